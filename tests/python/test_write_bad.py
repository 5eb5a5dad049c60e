"""Writing that cannot succeed: bad options, no room, a source that breaks off, a callback that says stop. Each gives
an error, a non-zero exit, and no file that opens with wrong pixels."""

import errno
import os
import re
import resource
import shutil
import stat
import subprocess
import signal
import tempfile
from pathlib import Path

import harness
import numpy as np
import pytest
import sinkfault
import tiffpatch
import written
from osgeo import gdal


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return written.noise_source(tmp_path_factory.mktemp("s") / "s.tif", 700, 600, 3, INTERLEAVE="PIXEL")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return sinkfault.build(tmp_path_factory.mktemp("lib"))


EMPTY_VRT = '<VRTDataset rasterXSize="%d" rasterYSize="%d"><VRTRasterBand dataType="Byte" band="1"/></VRTDataset>'


def refused(done, target):
    """An error that names the driver's reason, a non-zero exit, nothing left beside the target either."""
    assert done.returncode > 0, "exit %d: %s" % (done.returncode, done.stderr)
    assert "ERROR" in done.stderr, done.stderr
    folder = os.path.dirname(str(target))
    left = os.listdir(folder) if os.path.isdir(folder) else []
    assert left == [] or written.SELF_TEST, "left behind: %s\n%s" % (left, done.stderr)


def fresh(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir(exist_ok=True)
    return folder / "o.tif"


# ---- options and sizes ---------------------------------------------------------------------

BAD = [
    dict(PREDICTOR=4), dict(PREDICTOR="FOO"), dict(BLOCKXSIZE=17, BLOCKYSIZE=16), dict(BLOCKXSIZE=16, BLOCKYSIZE=20),
    dict(BLOCKXSIZE=-16), dict(COMPRESS="FOO"), dict(BATCH_MB=0), dict(BATCH_MB=-1), dict(BATCH_MB="many"),
    dict(ENGINE="GPU"), dict(COPY_TILES="PERHAPS"), dict(NUM_THREADS="FOO"), dict(NUM_THREADS=0),
    dict(INTERLEAVE="LINE"),
    dict(COMPRESS="DEFLATE", PREDICTOR=3), dict(COMPRESS="DEFLATE", ZLEVEL=99), dict(COMPRESS="ZSTD", ZSTD_LEVEL=99),
    dict(ENDIANNESS="MIDDLE"),
]  # fmt: skip
IDS = [",".join("%s=%s" % kv for kv in o.items()) for o in BAD]
# GTiff 3.6 takes these and goes on with a warning (or a default): so may we, but the pixels have to be right.
LENIENT = {"NUM_THREADS=FOO", "NUM_THREADS=0", "ENDIANNESS=MIDDLE", "COMPRESS=FOO", "COMPRESS=DEFLATE,ZLEVEL=99",
           "COMPRESS=ZSTD,ZSTD_LEVEL=99", "BLOCKXSIZE=-16"}  # fmt: skip


@pytest.mark.parametrize("options", BAD, ids=IDS)
@pytest.mark.parametrize("by_copy", [True, False])
def test_bad_options(tmp_path, options, by_copy):
    """Refused before anything is made: an existing file of that name goes only where GTiff would have removed it, and
    nothing is left in its place."""
    written.ours_only()
    raster = written.Raster(harness.rng("bad"), "uint16", (3, 60, 70))
    path = fresh(tmp_path)
    with harness.Errors() as errors:
        ds = written.copy(path, raster.mem(), **options) if by_copy else raster.create(path, **options)
    if ds is None:
        assert errors.failures(), "refused without an error"
        named = [k for k, v in options.items() if k in errors.text() or str(v) in errors.text()]
        assert named and "/vsimem/" not in errors.text(), "which option, which file? %s" % errors.text()
        assert os.listdir(path.parent) == []
        return
    assert IDS[BAD.index(options)] in LENIENT, "taken: %s" % errors.text()
    assert len(errors) > 0, "taken without a word"
    with harness.Errors():
        if not by_copy:
            written.whole_raster(None, raster, ds)
        ds = None
    harness.same_bytes(written.read_gtiff(path), raster.whole(), str(options))


@pytest.mark.parametrize("options", BAD[:5] + BAD[6:7], ids=IDS[:5] + IDS[6:7])
def test_bad_options_of_a_command(tmp_path, source, options):
    written.ours_only()
    refused_or_lenient = written.translate(source, fresh(tmp_path), **options)
    if IDS[BAD.index(options)] not in LENIENT:
        refused(refused_or_lenient, fresh(tmp_path))


NO_LEVEL = ["LZW", "NONE", "PACKBITS", "JPEG"]


@pytest.mark.parametrize("codec", NO_LEVEL + ["DEFLATE", "ZSTD", "LZMA"])
def test_level_that_a_codec_does_not_have_is_warned_of(tmp_path, source, codec):
    written.ours_only()
    if codec not in gdal.GetDriverByName("GTiff").GetMetadataItem("DMD_CREATIONOPTIONLIST"):
        pytest.skip("this libtiff has no %s" % codec)
    with harness.Errors() as errors:
        ds = written.copy(fresh(tmp_path), harness.open_gtiff(source), COMPRESS=codec, LEVEL=5)
        assert ds is not None, errors.text()
        ds = None
    want = ["GPUGTiff: LEVEL=5 has no effect with COMPRESS=" + codec] if codec in NO_LEVEL else []
    assert [text for _, _, text in errors] == want


@pytest.mark.parametrize("codec,level", [("LZMA", 10), ("DEFLATE", 13)])
def test_level_that_a_codec_does_not_go_up_to(tmp_path, codec, level):
    written.ours_only()
    raster, path = written.Raster(harness.rng("level"), "uint8", (1, 60, 70)), fresh(tmp_path)
    with harness.Errors() as errors:
        assert written.copy(path, raster.mem(), COMPRESS=codec, LEVEL=level) is None
    assert "LEVEL=%d is not valid" % level in errors.text() and os.listdir(path.parent) == []


def test_mistyped_option_is_warned_of(tmp_path, source):
    done = written.translate(source, fresh(tmp_path), COMPRES="LZW")
    assert "COMPRES" in done.stderr and "Warning" in done.stderr


def test_every_option_of_gtiff_is_listed():
    """GDAL's validation warns of what is not in the list: all of GTiff's, and ours."""
    written.ours_only()
    xml = gdal.GetDriverByName(written.DRIVER).GetMetadataItem("DMD_CREATIONOPTIONLIST")
    names = lambda text: set(re.findall(r"<Option [^>]*name=['\"](\w+)", text))  # noqa: E731
    gtiff = names(gdal.GetDriverByName("GTiff").GetMetadataItem("DMD_CREATIONOPTIONLIST"))
    assert len(gtiff) > 20 and gtiff <= names(xml), gtiff - names(xml)
    assert {"BATCH_MB", "ENGINE", "NUM_THREADS", "COPY_TILES", "LEVEL"} <= names(xml)


@pytest.mark.parametrize("shape", [(1, 0, 10), (1, 10, 0), (1, -5, 10), (0, 10, 10), (70000, 10, 10)])
def test_absurd_shapes(tmp_path, shape):
    """As GTiff: zero bands and too many are refused, too."""
    path = fresh(tmp_path)
    got = []
    for driver in (written.DRIVER, "GTiff"):
        with harness.Errors() as errors:
            ds = written.create(path, shape, driver=driver)
        got.append(ds is None)
        assert ds is not None or errors.failures()
        ds = None
        if got[-1]:
            assert os.listdir(path.parent) == []
        else:
            path.unlink()
    assert got[0] == got[1], "ours refuses: %s, GTiff: %s" % tuple(got)


@pytest.mark.parametrize("options", [dict(COMPRESS="DEFLATE"), dict(COMPRESS="NONE")])
def test_absurd_size(tmp_path, options):
    """2^31 - 1 pixels each way: GTiff refuses for the number of tiles or the space; nobody allocates it."""
    code = """
import json, resource, sys, written
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import harness
with harness.Errors() as errors:
    ds = written.create(sys.argv[1], (1, 2**31 - 1, 2**31 - 1), TILED="YES", BIGTIFF="YES", %s)
    refused = ds is None
    ds = None
print(json.dumps([refused, errors.failures()]))
""" % ",".join("%s='%s'" % kv for kv in options.items())
    path = fresh(tmp_path)
    refused_, errors = harness.run_json(code, path, timeout=60)
    assert refused_ and errors, (refused_, errors)
    assert os.listdir(path.parent) == []


# ---- targets -------------------------------------------------------------------------------


def test_the_prefix_is_no_part_of_a_target(tmp_path, source):
    """A file of that name would be made, and not be opened by it."""
    written.ours_only()
    done = subprocess.run(["gdal_translate", "-q", "-of", written.DRIVER, source, "gpugtiff:out.tif"],
                          capture_output=True, text=True, cwd=tmp_path)  # fmt: skip
    assert done.returncode != 0 and "is for opening" in done.stderr, done
    with harness.Errors() as errors:
        assert gdal.GetDriverByName(written.DRIVER).Create("GPUGTIFF:%s" % (tmp_path / "a.tif"), 5, 5) is None
    assert "is for opening" in errors.text() and os.listdir(tmp_path) == [], errors.text()


def test_missing_directory(tmp_path, source):
    target = tmp_path / "nowhere" / "o.tif"
    refused(written.translate(source, target), target)
    assert not target.parent.exists()


NOBODY = 65534


class Unprivileged:
    """Programs run by a user with no more rights than the files give: root's become nobody's, in a folder that
    nobody can get into (pytest's own is shut to others)."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.user = dict(user=NOBODY, group=NOBODY, extra_groups=[]) if os.geteuid() == 0 else {}

    def run(self, *command):
        return written.run(*command, **self.user)

    def give(self, path, mode):
        if self.user:
            os.chown(path, NOBODY, NOBODY)
        os.chmod(path, mode)


@pytest.fixture
def unprivileged():
    with tempfile.TemporaryDirectory() as folder:
        nobody = Unprivileged(folder)
        nobody.give(folder, 0o755)
        try:
            reached = [nobody.run(*c).returncode for c in (["ls", folder], ["gdalinfo", "--format", written.DRIVER])]
        except PermissionError:
            pytest.skip("NO OTHER USER: a process may not change its own here")
        if any(reached):
            pytest.skip("NOT REACHED BY ANOTHER USER: %s or %s" % (folder, os.environ["GDAL_DRIVER_PATH"]))
        yield nobody
        for below, _, _ in os.walk(folder):
            os.chmod(below, 0o755)


# Modes of the old file and of its folder.
RIGHTS = {
    "a new file, read-only folder": (None, 0o555),
    "read-only file": (0o444, 0o755),
    "read-only file, read-only folder": (0o444, 0o555),
    "read-only folder": (0o644, 0o555),
}
# GDAL removes a file before it is made anew, or else writes into it.
ALLOWED = {"read-only file", "read-only folder"}


def with_rights(nobody, name, rights):
    """-> target in a folder of that name."""
    folder = nobody.folder / name
    folder.mkdir()
    target = folder / "o.tif"
    if rights[0] is not None:
        written.noise_source(target, 50, 40)
        nobody.give(target, rights[0])
    nobody.give(folder, rights[1])
    return target


@pytest.mark.parametrize("tool", ["gdal_translate", "gdal_create"])
@pytest.mark.parametrize("name", sorted(RIGHTS))
def test_no_right_to_write(unprivileged, source, name, tool):
    """The exit, the words and the files of GTiff; where it is refused the old file is as it was."""
    shutil.copy(source, unprivileged.folder / "s.tif")
    os.chmod(unprivileged.folder / "s.tif", 0o644)
    said = []
    for folder, driver in (("ours", written.DRIVER), ("theirs", "GTiff")):
        target = with_rights(unprivileged, folder, RIGHTS[name])
        before = written.digest(target) if target.exists() else None
        what = [unprivileged.folder / "s.tif"]
        if tool == "gdal_create":
            what = ["-outsize", "700", "600", "-bands", "3", "-burn", "7"]
        options = written.option_list(dict(written.SAME_AS_GTIFF, INTERLEAVE="PIXEL"), driver)
        done = unprivileged.run(tool, "-q", "-of", driver, *[a for o in options for a in ("-co", o)], *what, target)
        said.append((done.returncode, done.stderr.replace(folder, ""), os.listdir(target.parent)))
        if done.returncode:
            assert "%s' failed: Permission denied" % target in done.stderr, "what, and where? %s" % done.stderr
            assert (written.digest(target) if target.exists() else None) == before
        else:
            want = written.read_gtiff(source) if tool == "gdal_translate" else bytes([7]) * (700 * 600 * 3)
            harness.same_bytes(written.read_gtiff(target), want, name)
    assert said[0] == said[1] and (said[0][0] == 0) == (name in ALLOWED), said


def test_what_cannot_be_removed_does_not_open(unprivileged, source):
    """A write that breaks off, into a file that its user may change but not remove."""
    written.ours_only()
    path = damaged(unprivileged.folder, source, "rubbish")
    target = with_rights(unprivileged, "out", RIGHTS["read-only folder"])
    done = unprivileged.run("gdal_translate", "-q", "-of", written.DRIVER, "-co", "COPY_TILES=NO", path, target)
    assert done.returncode > 0 and "IReadBlock failed" in done.stderr, done.stderr
    assert target.exists() and written.read_gtiff(target) is None


def test_where_nothing_can_be_made(source):
    done = written.translate(source, "/proc/o.tif")
    assert done.returncode > 0 and "ERROR" in done.stderr


def test_a_device_is_not_replaced(tmp_path, source):
    """A full disk as a device; a file of ours in its place would be a success."""
    device = tmp_path / "full"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 7))
        with open(device, "rb") as f:
            f.read(1)
    except OSError:
        pytest.skip("NO DEVICES HERE: not shown without the right to make one")
    done = written.translate(source, device)
    assert done.returncode > 0 and "ERROR" in done.stderr
    assert not device.exists() or stat.S_ISCHR(device.stat().st_mode)


def test_target_is_a_directory(tmp_path, source):
    target = tmp_path / "o.tif"
    target.mkdir()
    (target / "keep").write_text("x")
    done = written.translate(source, target)
    assert done.returncode > 0 and (target / "keep").read_text() == "x"


def test_target_is_the_source(tmp_path, source):
    """gdal_translate over its own source: whatever it says, what is left opens with right pixels or not at all."""
    path = tmp_path / "s.tif"
    shutil.copy(source, path)
    want = written.read_gtiff(path)
    written.translate(path, path, COMPRESS="DEFLATE")
    if path.exists():
        assert written.read_gtiff(path) in (want, None)


def test_old_file_is_replaced_not_written_into(tmp_path, source):
    """Unlinked and made anew: who holds the old one open reads on in it, and a second name keeps the old bytes."""
    target = fresh(tmp_path)
    raster = written.Raster(harness.rng("old"), "uint8", (1, 200, 300))
    ds = written.copy(target, raster.mem(), "GTiff", TILED="YES")
    ds = None
    link = target.parent / "link.tif"
    os.link(target, link)
    reader = harness.open_gtiff(str(target))
    written.succeeded(written.translate(source, target))
    gdal.SetCacheMax(1), gdal.SetCacheMax(64 << 20)
    harness.same_bytes(reader.ReadRaster(), raster.whole(), "the old file, open")
    harness.same_bytes(written.read_gtiff(link), raster.whole(), "the old file's other name")
    harness.same_bytes(written.read_gtiff(target), written.read_gtiff(source), "the new file")


def test_two_writers_of_one_name(tmp_path):
    """The last to close may win or lose, but neither's tiles are in the other's file."""
    target = fresh(tmp_path)
    a, b = (written.Raster(harness.rng("two", k), "uint16", (1, 500, 400)) for k in range(2))
    first, second = a.create(target, COMPRESS="LZW"), b.create(target, COMPRESS="LZW")
    for y in range(0, 500, 50):
        a.write(first, 0, y, 400, 50)
        b.write(second, 0, y, 400, 50)
    with harness.Errors():
        first = None
        second = None
    assert written.SELF_TEST or written.read_gtiff(target) in (a.whole(), b.whole())


# ---- sources -------------------------------------------------------------------------------


def damaged(tmp_path, source, how):
    """A copy whose second half is gone, or whose last tiles are said to lie behind its end, or hold rubbish."""
    path = str(tmp_path / (how + ".tif"))
    ds = written.copy(path, harness.open_gtiff(source), "GTiff", TILED="YES", COMPRESS="DEFLATE", BLOCKXSIZE=128,
                      BLOCKYSIZE=128)  # fmt: skip
    ds = None
    tiff = tiffpatch.Tiff(path)
    n = len(tiff.striles())
    if how == "cut":
        tiff.data = tiff.data[: tiff.striles()[n * 2 // 3][0]]
    elif how == "behind":
        tiff.set(tiffpatch.OFFSETS, len(tiff.data) + 1000, n - 2)
    elif how == "overlapping":
        tiff.set(tiffpatch.COUNTS, 0xFFFFFFF0, n - 2)
    else:
        offset, count = tiff.striles()[n - 2]
        tiff.data[offset : offset + count] = bytes(count)
    tiff.save()
    return path


@pytest.mark.parametrize("copied", ["AUTO", "NO"])
@pytest.mark.parametrize("how", ["cut", "behind", "rubbish"])
def test_source_breaks_off(tmp_path, source, how, copied):
    """Nothing left but the error; with rubbish inside a tile a copy of tiles may not notice, but then the copy reads
    as the source does."""
    path, target = damaged(tmp_path, source, how), fresh(tmp_path)
    same = dict(COMPRESS="DEFLATE", TILED="YES", BLOCKXSIZE=128, BLOCKYSIZE=128)
    done = written.translate(path, target, COPY_TILES=copied, **same)
    if how == "rubbish" and copied == "AUTO" and done.returncode == 0:
        a, b = harness.open_gtiff(path), harness.open_gtiff(str(target))
        with harness.Errors():
            for y in range(0, 600, 100):
                harness.same_bytes(b.ReadRaster(0, y, 700, 100), a.ReadRaster(0, y, 700, 100), "rows at %d" % y)
        return
    refused(done, target)


INSIDE_OR_BESIDE = pytest.mark.parametrize("internal", ["YES", "NO"], ids=["mask inside", "mask beside"])


@INSIDE_OR_BESIDE
def test_mask_of_the_source_breaks_off(tmp_path, internal):
    """All pixels are read before: nothing left of them, and nothing beside."""
    path = written.masked_source(tmp_path / "s.tif", 700, 600, internal="NO", TILED="YES")
    tiff = tiffpatch.Tiff(path + ".msk")
    offset, count = tiff.striles()[-2]
    tiff.data[offset : offset + count] = bytes(count)
    tiff.save()
    target = fresh(tmp_path)
    done = written.translate(path, target, env={"GDAL_TIFF_INTERNAL_MASK": internal}, TFW="YES")
    refused(done, target)


def test_mask_that_a_killed_copy_left(tmp_path):
    """Not gone on with, whatever it is: the new mask takes its place."""
    written.ours_only()
    path, target = written.masked_source(tmp_path / "s.tif", 300, 200), fresh(tmp_path)
    written.noise_source(str(target) + ".msk", 30, 20)
    target.write_bytes(bytes(1000))
    with harness.config(GDAL_TIFF_INTERNAL_MASK="NO"):
        ds = written.copy(target, harness.open_gtiff(path))
        assert ds is not None, gdal.GetLastErrorMsg()
        ds = None
    copied, source = harness.open_gtiff(str(target)), harness.open_gtiff(path)
    masks = [ds.GetRasterBand(1).GetMaskBand().ReadRaster() for ds in (copied, source)]
    harness.same_bytes(*masks, "mask")


def test_source_is_untouched(tmp_path, source):
    path, target = damaged(tmp_path, source, "cut"), fresh(tmp_path)
    before = written.digest(path), os.stat(path).st_mtime_ns
    written.translate(path, target)
    assert (written.digest(path), os.stat(path).st_mtime_ns) == before


# ---- progress ------------------------------------------------------------------------------

PIXEL_FUNCTION = """
import numpy as np
def ramp(in_ar, out_ar, xoff, yoff, xsize, ysize, raster_xsize, raster_ysize, buf_radius, gt, **kw):
    out_ar[:] = (np.arange(ysize)[:, None] + yoff + np.arange(xsize)[None, :] * 7) % 251
    import written
    written.PIXELS_ASKED.append(xsize * ysize)
"""


def derived(w, h):
    """A source that notes what it was asked for."""
    written.PIXELS_ASKED.clear()
    code = PIXEL_FUNCTION.replace("<", "&lt;")
    return gdal.Open(
        '<VRTDataset rasterXSize="%d" rasterYSize="%d"><VRTRasterBand dataType="Byte" band="1" subClass='
        '"VRTDerivedRasterBand"><PixelFunctionLanguage>Python</PixelFunctionLanguage><PixelFunctionType>ramp'
        "</PixelFunctionType><PixelFunctionCode>%s</PixelFunctionCode></VRTRasterBand></VRTDataset>" % (w, h, code))


@pytest.mark.parametrize("compress", ["NONE", "DEFLATE"])
def test_progress_is_even(tmp_path, compress):
    seen = []
    source = written.Raster(harness.rng("p"), "uint8", (1, 4000, 4096)).mem()
    note = lambda p, message, data: seen.append(p) or 1  # noqa: E731
    ds = written.copy(fresh(tmp_path), source, callback=note, COMPRESS=compress, BATCH_MB=1, TILED="YES")
    assert ds is not None
    assert seen == sorted(seen), "goes back"
    assert seen[-1] == 1.0 and seen[0] <= 0.2 and all(0 <= p <= 1 for p in seen)
    steps = [b - a for a, b in zip([0] + seen, seen)]
    assert max(steps) <= 0.2, "jumps by %.2f" % max(steps)


@pytest.mark.parametrize("stop", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_false_from_progress_stops_it(tmp_path, stop, interleave):
    seen, path = [], fresh(tmp_path)
    raster = written.Raster(harness.rng("stop"), "uint16", (2, 2000, 2048))

    def callback(p, message, data):
        seen.append(p)
        return 0 if p >= stop else 1

    with harness.Errors() as errors:
        ds = written.copy(path, raster.mem(), callback=callback, COMPRESS="LZW", BATCH_MB=1, INTERLEAVE=interleave)
    assert ds is None, "went on to the end"
    assert [n for _, n, _ in errors if n == gdal.CPLE_UserInterrupt], "no user interrupt: %s" % errors
    assert len([p for p in seen if p >= stop]) == 1, "asked again after the stop: %s" % seen
    assert os.listdir(path.parent) == []


@INSIDE_OR_BESIDE
@pytest.mark.parametrize("stop,codec", [(0.76, "LZW"), (0.9, "LZW"), (1.0, "LZW"), (0.9, "JPEG")])
def test_false_from_progress_while_the_mask_is_written(tmp_path, internal, stop, codec):
    """The last quarter of the work: neither the file nor what belongs beside it stays, whoever writes it."""
    path, target, seen = written.masked_source(tmp_path / "s.tif", 1500, 1600), fresh(tmp_path), []

    def callback(p, message, data):
        seen.append(p)
        return int(p < stop)

    with harness.Errors() as errors, harness.config(GDAL_TIFF_INTERNAL_MASK=internal, GDAL_CACHEMAX="1"):
        # GTiff itself leaves a .tfw file.
        more = dict(TFW="YES") if codec == "LZW" else {}
        ds = written.copy(target, harness.open_gtiff(path), callback=callback, COMPRESS=codec, BATCH_MB=1, **more)
    assert ds is None, "went on to the end"
    assert [n for _, n, _ in errors if n == gdal.CPLE_UserInterrupt], "no user interrupt: %s" % errors
    assert len([p for p in seen if p >= stop]) == 1 and [p for p in seen if 0.5 < p < stop], seen
    assert written.SELF_TEST or os.listdir(target.parent) == []


BATCH = (1 << 20) // 4  # bytes of pixels that are encoded at once with BATCH_MB=1


def test_stop_comes_within_a_batch(tmp_path):
    """Told by what the source is asked for: a few batches from one call to the next (Python is called once for a
    hundredth), and nothing after the FALSE, while one is still being encoded and one waits for it."""
    path, asked = fresh(tmp_path), []
    with harness.config(GDAL_VRT_ENABLE_PYTHON="YES"):
        source = derived(4096, 4096)

        def callback(p, message, data):
            asked.append((p, sum(written.PIXELS_ASKED)))
            return int(p < 0.25)

        with harness.Errors():
            ds = written.copy(path, source, callback=callback, COMPRESS="ZSTD", BATCH_MB=1, TILED="YES")
    assert ds is None and os.listdir(path.parent) == []
    stopped, pixels = asked[-1]
    assert sum(written.PIXELS_ASKED) == pixels, "asked after the FALSE"
    assert 0 <= pixels - stopped * 4096 * 4096 <= 2 * BATCH, "asked ahead of what was told"
    steps = [b - a for (_, a), (_, b) in zip(asked, asked[1:])]
    assert written.SELF_TEST or max(steps) <= 3 * BATCH and len(steps) > 5, steps


# How a TIFF of tiles becomes another one, and what may be read of it after the FALSE: tiles that workers decode by
# themselves are in the air in two halves of a batch, everything else is read by who calls back.
READ_AFTER = {
    "cut otherwise": (dict(TILED="YES", BLOCKXSIZE=512, BLOCKYSIZE=512), 0),
    "strips": (dict(TILED="NO"), 0),
    "tiles copied": (dict(TILED="YES", COMPRESS="ZSTD"), 0),
    "tiles recoded": (dict(TILED="YES"), BATCH),
}


def bytes_read():
    """By this process, whatever from."""
    with open("/proc/self/io") as f:
        return int(f.readline().split()[1])


@pytest.mark.parametrize("opener", [harness.open_gtiff, harness.open_ours], ids=["GTiff", "ours"])
@pytest.mark.parametrize("name", sorted(READ_AFTER))
def test_stop_comes_within_a_batch_of_a_file(tmp_path, name, opener):
    written.ours_only()
    options, most = READ_AFTER[name]
    source = opener(written.noise_source(tmp_path / "s.tif", 4096, 4096, **options))
    path, at = fresh(tmp_path), []

    def callback(p, message, data):
        at.append((p, bytes_read()))
        return int(p < 0.25)

    with harness.Errors():
        ds = written.copy(path, source, callback=callback, COMPRESS="ZSTD", BATCH_MB=1, TILED="YES")
    after = bytes_read() - at[-1][1]
    assert ds is None and at[-1][0] < 0.6 and os.listdir(path.parent) == []
    # Less than a tile: the process reads a little beside.
    assert after < most + 65536, "%d bytes read after the FALSE" % after


# ---- no room -------------------------------------------------------------------------------


def test_file_size_limit(tmp_path, source):
    """RLIMIT_FSIZE: the write that crosses it fails with EFBIG, for us as on a full disk."""
    target = fresh(tmp_path)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    for compress in ("NONE", "LZW"):
        done = written.run("gdal_translate", "-q", "-of", written.DRIVER, "-co", "COMPRESS=" + compress, source, target,
                           preexec_fn=limit)  # fmt: skip
        refused(done, target)


@pytest.mark.parametrize("compress", ["NONE", "LZW"])
@pytest.mark.parametrize("nth", [1, 4, 12])
@pytest.mark.parametrize("tool", ["gdal_translate", "gdalwarp"])
def test_quota(tmp_path, source, library, compress, nth, tool):
    """EDQUOT from some write on, data or header: said in words, with the file's name."""
    written.ours_only()
    target = fresh(tmp_path)
    command = [tool, "-q", "-of", written.DRIVER, *written.flags(dict(COMPRESS=compress, BATCH_MB=1, COPY_TILES="NO"))]
    if tool == "gdalwarp":
        command += ["-to", "SRC_METHOD=NO_GEOTRANSFORM", "-to", "DST_METHOD=NO_GEOTRANSFORM"]
    env = sinkfault.env(library, target, FAIL=nth, ERRNO=errno.EDQUOT, STICKY=1, ONLY=sinkfault.TARGET)
    done = written.run(*command, source, target, env=env)
    assert done.returncode > 0 and "%s: Disk quota exceeded" % target in done.stderr, (done.returncode, done.stderr)
    assert written.read_gtiff(target) is None if target.exists() else True
    assert tool == "gdalwarp" or os.listdir(target.parent) == []


def in_small_tmpfs(folder, *command, env=None, size="500k"):
    """Runs a command with a file system of that size mounted on the folder, seen by nobody else; the folder's content
    afterwards is the last line of output."""
    script = 'mount -t tmpfs -o size=%s none "$0" || exit 99; "$@"; code=$?; echo left: $(ls -A "$0"); exit $code'
    script %= size
    return written.run("unshare", "-m", "sh", "-c", script, folder, *command, env=env)


@pytest.mark.parametrize("compress,check", [("NONE", "YES"), ("NONE", "NO"), ("DEFLATE", "YES")])
@pytest.mark.parametrize("tool", ["gdal_translate", "gdalwarp"])
def test_disk_full(tmp_path, source, compress, check, tool):
    target = fresh(tmp_path)
    command = [tool, "-q", "-of", written.DRIVER, "-co", "COMPRESS=" + compress]
    if tool == "gdalwarp":
        command += ["-to", "SRC_METHOD=NO_GEOTRANSFORM", "-to", "DST_METHOD=NO_GEOTRANSFORM"]
    done = in_small_tmpfs(target.parent, *command, source, target, env={"CHECK_DISK_FREE_SPACE": check})
    if done.returncode in (1, 99) and ("unshare failed" in done.stderr or "mount:" in done.stderr):
        pytest.skip("NO TMPFS: mounting is not allowed here")
    assert done.returncode > 0 and "ERROR" in done.stderr, (done.returncode, done.stderr)
    if tool == "gdal_translate":
        assert written.SELF_TEST or done.stdout.strip().endswith("left:"), done.stdout


@pytest.mark.parametrize("check", ["YES", "NO"])
def test_disk_space_is_checked_beforehand(tmp_path, check):
    """As GTiff: from a gigabyte uncompressed, before the first byte, unless told not to."""
    vrt = tmp_path / "e.vrt"
    vrt.write_text(EMPTY_VRT % (40000, 40000))
    target = fresh(tmp_path)
    for driver in (written.DRIVER, "GTiff"):
        command = ["gdal_translate", "-q", "-of", driver, "-co", "COMPRESS=NONE", "-co", "TILED=YES", vrt, target]
        done = in_small_tmpfs(target.parent, *command, env={"CHECK_DISK_FREE_SPACE": check})
        if "unshare failed" in done.stderr or "mount:" in done.stderr:
            pytest.skip("NO TMPFS: mounting is not allowed here")
        assert ("CHECK_DISK_FREE_SPACE" in done.stderr) == (check == "YES"), done.stderr
        assert check == "NO" or done.returncode > 0  # without the check zeros may take no room at all


# ---- more than 4 GiB -----------------------------------------------------------------------


def huge_source(tmp_path, w=32768, h=36864):
    """A TIFF of 4.5 GiB whose tiles are all one and the same megabyte of the file."""
    path = str(tmp_path / "huge.tif")
    side = 2048
    ds = written.create(path, (1, h, w), gdal.GDT_Int32, "GTiff", TILED="YES", BLOCKXSIZE=side, BLOCKYSIZE=side,
                        COMPRESS="PACKBITS", SPARSE_OK="YES", BIGTIFF="YES")  # fmt: skip
    ds.GetRasterBand(1).WriteRaster(0, 0, side, side, np.random.default_rng(1).bytes(side * side * 4))
    ds = None
    tiff = tiffpatch.Tiff(path)
    (offset, count), n = tiff.striles()[0], len(tiff.striles())
    for i in range(n):
        tiff.set(tiffpatch.OFFSETS, offset, i)
        tiff.set(tiffpatch.COUNTS, count, i)
    tiff.save()
    assert count * n > (4 << 30) + (64 << 20)
    return path, n


@pytest.mark.parametrize("bigtiff", ["NO", "IF_NEEDED"])
def test_compressed_beyond_4_gib(tmp_path, library, bigtiff):
    """Compressed tiles are copied, their bytes left out (holes): NO fails before the byte that does not fit, and
    IF_NEEDED becomes BigTIFF exactly then."""
    written.ours_only()
    path, n = huge_source(tmp_path)
    target = fresh(tmp_path)
    env = sinkfault.env(library, target, HOLES=1)
    done = written.translate(path, target, env=env, BIGTIFF=bigtiff, COMPRESS="PACKBITS", TILED="YES", BLOCKXSIZE=2048,
                             BLOCKYSIZE=2048)  # fmt: skip
    if bigtiff == "NO":
        refused(done, target)
        assert "BIGTIFF" in done.stderr.upper(), done.stderr
        return
    written.succeeded(done)
    assert written.header(target) == ("II", 43) and target.stat().st_size > 4 << 30
    ds = harness.open_gtiff(str(target))
    band = ds.GetRasterBand(1)
    last = int(band.GetMetadataItem("BLOCK_OFFSET_%d_%d" % (32768 // 2048 - 1, 36864 // 2048 - 1), "TIFF"))
    assert last > 4 << 30


def test_uncompressed_beyond_4_gib(tmp_path):
    """The size is known: refused at once with NO, by both drivers."""
    vrt = tmp_path / "e.vrt"
    vrt.write_text(EMPTY_VRT % (70000, 70000))
    target = fresh(tmp_path)
    for driver in (written.DRIVER, "GTiff"):
        done = written.translate(vrt, target, driver=driver, BIGTIFF="NO", COMPRESS="NONE", TILED="YES")
        refused(done, target)
