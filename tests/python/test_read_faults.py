"""A plain file that cannot be read, or only in parts: the error says which file and why, the rest is read on, nothing
hangs; what comes short or interrupted is asked for again. readfault.c stands between the process and the file."""

import os
import subprocess

import harness
import pytest
import test_read_errors

LAYOUTS = {
    "tiles": dict(codec="DEFLATE"),
    "raw tiles": dict(codec="NONE"),
    "strips": dict(codec="ZSTD", options=["BLOCKYSIZE=16"]),
    "planes": dict(codec="LZW", options=[*test_read_errors.TILED, "INTERLEAVE=BAND"], bands=2),
}

SETUP = """
import ctypes, errno, json, os, sys, threading
import harness, tiffpatch
from osgeo import gdal
path = sys.argv[1]
fault = ctypes.CDLL(None)
fault.readfault_set.argtypes = [ctypes.c_char_p] + [ctypes.c_long] * 5
OURS, BOTH = 1, 3
def bad(start, end, who=BOTH, error=errno.EIO, times=0, file=path):
    fault.readfault_set(file.encode(), who, start, end, error, times)
def good(): fault.readfault_set(b'', 0, 0, 0, 0, 0)
def faults(): return fault.readfault_faults()
tiff = tiffpatch.Tiff(path)
striles = tiff.striles()
gdal.SetCacheMax(0)  # a tile that was read once is read again
theirs = harness.open_gtiff(path)
want, width, height = theirs.ReadRaster(), theirs.RasterXSize, theirs.RasterYSize
w, h = theirs.GetRasterBand(1).GetBlockSize()
across = -(-width // w)
def window(k):
    x, y = k % across * w, k // across * h
    return x, y, min(w, width - x), min(h, height - y)
parts = [theirs.ReadRaster(*window(k)) for k in range(across * -(-height // h))]
assert None not in [want, *parts]
threads = [] if harness.SELF_TEST else ['NUM_THREADS=4']
def read(ds, *window):
    '-> (pixels, failures)'
    with harness.Errors() as errors: data = ds.ReadRaster(*window)
    return data, errors.failures()
def wrong(ds): return [k for k in range(len(parts)) if read(ds, *window(k)) != (parts[k], [])]
def counted(ds): return {} if harness.SELF_TEST else harness.counters(ds)
ds = harness.open_ours(path, threads)
band = ds.GetRasterBand(1)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("lib") / "readfault.so")
    source = os.path.join(harness.HERE, "readfault.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", out, source, "-ldl"], check=True)
    return out


@pytest.fixture
def run(library, tmp_path):
    def run(code, layout="tiles", **kw):
        path = str(tmp_path / "faulty one.tif")
        test_read_errors.make(path, **LAYOUTS[layout])
        return path, harness.run_json(SETUP + code, path, env={"LD_PRELOAD": library}, timeout=60, **kw)

    return run


def check_text(text, path, tile=None):
    """File, image, tile and the system's own word for it."""
    assert path in text and "image at offset " in text, text
    assert tile is None or "tile %d (" % tile in text, text
    assert "cannot read" in text and os.strerror(5) in text, text


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_bad_place(run, layout):
    """One byte of one tile cannot be read, by anybody: that tile fails, each time, until it can be read again."""
    code = """
at = striles[6][0] + 5
bad(at, at + 1)
first, second = read(ds), read(ds)
number = gdal.GetLastErrorNo()
failing = wrong(ds)
with harness.Errors() as errors: block = band.ReadBlock(6 % across, 6 // across)
texts = errors.failures()[:1]
counts, hit = counted(ds), faults()
good()
print(json.dumps([[data is None for data in (first[0], second[0], block)], [first[1], second[1], texts], number, failing,
                  hit, read(ds) == (want, []), counts]))
"""
    path, (failed, said, number, failing, hit, after, counts) = run(code, layout)
    assert failed == [True] * 3 and hit >= 3 and after, (failed, hit, after)
    assert failing == [6], "windows that fail: %s" % failing
    if harness.SELF_TEST:
        return
    for texts in said:
        assert len(texts) == 1, texts
        check_text(texts[0], path, 6)
    assert number == 3, "not CPLE_FileIO: %d" % number
    assert counts[harness.REQUESTS_PASSED] == 0, counts


def test_every_tile_is_bad_in_every_worker(run):
    """All workers fail at once, several times over; afterwards they work as before."""
    code = """
start = min(offset for offset, _ in striles)
fault.readfault_slow(0, 0, 500)  # slow enough that no worker does it all
bad(start, 1 << 40)
results = [read(ds) for _ in range(3)]
hit, seen = faults(), fault.readfault_threads()
good()
print(json.dumps([[r[0] is None for r in results], [r[1] for r in results], hit, seen, read(ds) == (want, [])]))
"""
    path, (failed, texts, hit, seen, after) = run(code)
    assert failed == [True] * 3 and after, (failed, after)
    if harness.SELF_TEST:
        return
    assert seen > 1 and hit >= 3 * 20, "threads %d, faults %d: nothing is shown" % (seen, hit)
    for said in texts:
        assert len(said) == 1, "a message for each tile? %d" % len(said)
        check_text(said[0], path)


def test_a_walk_meets_a_bad_place(run):
    """Block after block, with what is decoded ahead: exactly the bad ones fail, whoever met them."""
    code = """
bad(striles[7][0], striles[8][0] + 1)
out = []
for way in (lambda k: band.ReadBlock(k % across, k // across), lambda k: read(ds, *window(k))[0]):
    with harness.Errors() as errors:
        got = [way(k) for k in range(len(striles))]
    out.append([[k for k, data in enumerate(got) if data is None], errors.failures()])
good()
print(json.dumps(out + [read(ds) == (want, []), counted(ds)]))
"""
    path, (blocks, windows, after, counts) = run(code)
    assert blocks[0] == windows[0] == [7, 8] and after, (blocks, windows, after)
    if not harness.SELF_TEST:
        named = [t for t in blocks[1] + windows[1] if t.startswith("GPUGTiff: ")]
        assert len(named) >= 2, named
        for text in named:
            check_text(text, path)


def test_threads_with_datasets_of_their_own(run):
    """Some of them meet the bad place, the others do not notice."""
    code = """
bad(striles[5][0], striles[5][0] + 9)
odd = []
def reader(n):
    own = harness.open_ours(path, threads)
    for k in [*range(n, 12), *range(n)] * 3:
        data = own.ReadRaster(*window(k))
        if data != (None if k == 5 else parts[k]): odd.append((n, k))
gdal.SetErrorHandler('CPLQuietErrorHandler')  # in all threads
readers = [threading.Thread(target=reader, args=(n,)) for n in range(6)]
for t in readers: t.start()
for t in readers: t.join()
print(json.dumps([odd, faults()]))
"""
    _, (odd, hit) = run(code)
    assert odd == [] and hit >= 6 * 3, (odd, hit)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_gtiff_can_read_what_we_cannot(run, layout):
    """The second opinion: its pixels, without a word, and counted."""
    harness.skip_count_if_self_test()
    code = """
at = striles[6][0]
bad(at, at + 1, who=OURS)
result = read(ds)
print(json.dumps([result == (want, []), faults(), counted(ds)]))
"""
    _, (right, hit, counts) = run(code, layout)
    assert right and hit > 0 and counts[harness.TILES_PASSED] == 1, (right, hit, counts)
    assert counts[harness.DECODED] == counts[harness.TOUCHED] - 1, counts


def test_a_place_that_is_bad_once(run):
    """One failure while tiles are read together: each is read by itself and all is ours."""
    harness.skip_count_if_self_test()
    code = """
bad(striles[6][0], striles[6][0] + 1, who=OURS, times=1)
result = read(ds)
print(json.dumps([result == (want, []), faults(), counted(ds)]))
"""
    _, (right, hit, counts) = run(code)
    assert right and hit >= 2, (right, hit)  # the second met is the first that worked
    assert counts[harness.TILES_PASSED] == 0 and counts[harness.DECODED] == counts[harness.TOUCHED] == 20, counts


ARRAYS = pytest.mark.parametrize("array", ["OFFSETS", "COUNTS"])
SPOIL = """
entry = tiff.entry(tiffpatch.%s)
bad(entry.values_at, entry.values_at + 1, who=%s)
"""


@ARRAYS
def test_the_arrays_cannot_be_read(run, array):
    """Where the tiles are is read when they are. Without it there is an error, and afterwards there are tiles."""
    code = SPOIL % (array, "BOTH") + """
data, texts = read(ds)
hit = faults()
good()
print(json.dumps([data is None, texts, hit, read(harness.open_ours(path)) == (want, [])]))
"""
    path, (failed, texts, hit, after) = run(code)
    assert failed and hit > 0 and after, (failed, hit, after)
    if not harness.SELF_TEST:
        assert len(texts) == 1, texts
        check_text(texts[0], path)


@ARRAYS
def test_only_gtiff_can_read_the_arrays(run, array):
    harness.skip_count_if_self_test()
    code = SPOIL % (array, "OURS") + "print(json.dumps([read(ds) == (want, []), faults(), counted(ds)]))"
    _, (right, hit, counts) = run(code)
    assert right and hit > 0 and counts[harness.TILES_PASSED] == counts[harness.TOUCHED] == 20, (right, hit, counts)


@pytest.mark.parametrize("array,tile", [("OFFSETS", 0), ("OFFSETS", 7), ("COUNTS", 7), ("COUNTS", 0)])
def test_a_tile_whose_place_cannot_be_read_is_not_left_out(run, array, tile):
    """libtiff takes a byte count that it could not read for zero when it is asked again: that is no empty tile."""
    code = SPOIL % (array, "BOTH") + """
data, texts = read(ds, *window(%d))
print(json.dumps([data is None, texts, faults()]))
""" % tile
    path, (failed, texts, hit) = run(code)
    assert failed and texts and hit > 0, "pixels that nobody read"


def test_nothing_can_be_read_by_us_from_the_start(run):
    """Not even the header: all of it is left to GTiff, with the reason."""
    harness.skip_count_if_self_test()
    code = """
bad(0, 1 << 40, who=OURS)
ds = harness.open_ours(path)
print(json.dumps([read(ds) == (want, []), faults(), counted(ds)]))
"""
    _, (right, hit, counts) = run(code)
    assert right and hit > 0 and counts[harness.REQUESTS_PASSED] > 0, (right, hit, counts)
    assert os.strerror(5) in counts[harness.PASS_REASON], counts


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_short_and_interrupted_reads(run, layout):
    """As the system may at any time: a part of the bytes, or none before a signal."""
    code = """
out = []
for most, interrupt in (1000, 0), (7, 0), (0, 1), (333, 1):
    fault.readfault_slow(most, interrupt, 0)
    bad(-2, -1)  # none
    ds = harness.open_ours(path, threads)
    out.append([most, interrupt, read(ds) == (want, []), wrong(ds), faults(), counted(ds)])
print(json.dumps(out))
"""
    for most, interrupt, right, failing, hit, counts in run(code, layout)[1]:
        where = "at most %d bytes, interrupted %d" % (most, interrupt)
        assert right and failing == [], "%s: %s" % (where, failing)
        if harness.SELF_TEST:
            continue
        assert hit > 10, "%s: %d faults, nothing is shown" % (where, hit)
        passed = {k: counts[k] for k in (harness.TILES_PASSED, harness.REQUESTS_PASSED, harness.BLOCKS_PASSED)}
        assert not any(passed.values()), "%s: %s" % (where, passed)


def test_the_file_is_cut_while_it_is_open(run):
    """What is gone fails and says so; what is left is read."""
    code = """
last = max(range(len(striles)), key=lambda k: striles[k][0])
before = read(ds) == (want, [])
os.truncate(path, striles[last][0] + 3)
data, texts = read(ds)
print(json.dumps([before, data is None, texts, wrong(ds), last]))
"""
    path, (before, failed, texts, failing, last) = run(code)
    assert before and failed and failing == [last], (before, failed, failing)
    for part in (path, "tile %d (" % last, "not within the file"):
        assert harness.SELF_TEST or part in texts[0], texts
