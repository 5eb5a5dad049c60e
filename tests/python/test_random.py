"""Random files × random requests, GTiff as the oracle, to the bit; and the count that nothing of
it was GTiff's work. GPUGTIFF_CASES=n runs n requests (default 20,000); GPUGTIFF_SEED repeats a run."""

import os
import shutil

import asks
import harness
import pytest
import writers
from osgeo import gdal

ASKS_PER_FILE = 25
CASES = int(os.environ.get("GPUGTIFF_CASES", "20000"))
# Files of one test: small enough for xdist to spread them and for a failure to name few of them.
FILES_PER_TEST = 10
TESTS = max(1, CASES // (ASKS_PER_FILE * FILES_PER_TEST))


def random_open_options(rng):
    return ["NUM_THREADS=%s" % rng.choice([1, 2, 3, "ALL_CPUS"]), "BATCH_MB=%d" % rng.choice([1, 1, 2, 64])]


def run_file(rng, folder):
    """One file, many asks; -> its counters and the number of asks answered."""
    gdal.SetCacheMax(64 << 20)  # with the tiny one of the file before, writing may take minutes
    case = writers.write_random(rng, folder)
    options = random_open_options(rng)
    # A tiny block cache throws blocks out between asks, a usual one keeps them: both must be right.
    gdal.SetCacheMax(rng.choice([200_000, 64 << 20]))
    where = "%r %s" % (case, options)
    ours, theirs = harness.open_pair(case.path, options)
    answered = 0
    for _ in range(ASKS_PER_FILE):
        ask = asks.random_ask(rng, theirs)
        with harness.Errors() as errors:
            a = asks.answer(ours, ask)
        with harness.Errors():
            b = asks.answer(theirs, ask)
        harness.same_bytes(a, b, "%s\nask %s\n%s" % (where, ask, errors.text()))
        answered += b is not None
    full = b"".join(ours.GetRasterBand(i + 1).ReadRaster() for i in range(ours.RasterCount))
    harness.same_bytes(full, case.pixels or full, "%s: not what was written" % where)
    return harness.check_all_ours(ours, where), answered


@pytest.mark.parametrize("n", range(TESTS))
def test_random_requests(n, tmp_path, total):
    for k in range(FILES_PER_TEST):
        folder = tmp_path / str(k)
        folder.mkdir()
        try:
            counts, answered = run_file(harness.rng("random", n, k), folder)
        except AssertionError as e:
            raise AssertionError("GPUGTIFF_SEED=%d, file %d of test %d: %s" % (harness.SEED, k, n, e)) from None
        shutil.rmtree(folder)
        total("files read at random", 1)
        total("requests compared with GTiff", ASKS_PER_FILE)
        total("requests with pixels", answered)
        for name in (harness.DECODED, harness.TOUCHED, harness.SPARSE, harness.BLOCKS_PASSED):
            total("random: " + name, counts.get(name, 0))


CODECS_AND_PREDICTORS = [(c, p) for c in writers.CODECS for p in ([1, 2, 3] if c in writers.PREDICTABLE else [1])]


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("codec,predictor", CODECS_AND_PREDICTORS)
def test_every_combination(codec, predictor, order, tmp_path, total):
    """Chance may miss one: every codec × predictor × type × layout × byte order is read in full."""
    rng = harness.rng("every", codec, predictor, order)
    for dtype in writers.GDAL_TYPES:
        real_float = dtype.startswith("float")
        if (predictor == 3 and not real_float) or (predictor == 2 and dtype in writers.PARTS):
            continue
        for interleave in ("PIXEL", "BAND"):
            for layout in (dict(TILED="YES", BLOCKXSIZE=48, BLOCKYSIZE=32), dict(BLOCKYSIZE=7)):
                o = dict(COMPRESS=codec, PREDICTOR=predictor, ENDIANNESS=order, INTERLEAVE=interleave, **layout)
                if dtype == "int8":
                    o["PIXELTYPE"] = "SIGNEDBYTE"
                _read_in_full(rng, tmp_path / "x.tif", dtype, o)
                total("combinations read in full", 1)


def _read_in_full(rng, path, dtype, options):
    if options["COMPRESS"] in ("NONE", "PACKBITS"):
        options = {k: v for k, v in options.items() if k != "PREDICTOR"}
    w, h, bands = 75, 53, 3
    gdal_type = writers.GDAL_TYPES[dtype]
    planes = b"".join(writers.random_plane(rng, dtype, h, w).tobytes() for _ in range(bands))
    ds = gdal.GetDriverByName("GTiff").Create(str(path), w, h, bands, gdal_type, ["%s=%s" % o for o in options.items()])
    ds.WriteRaster(0, 0, w, h, planes, buf_type=gdal_type)
    ds = None
    ours, theirs = harness.open_pair(str(path))
    where = "%s %s" % (dtype, options)
    harness.same_bytes(ours.ReadRaster(), theirs.ReadRaster(), where)
    # libtiff 4.5 itself writes big-endian files with predictor 3 byte-swapped on this machine.
    if not (options["ENDIANNESS"] == "BIG" and options.get("PREDICTOR") == 3):
        harness.same_bytes(ours.ReadRaster(), planes, where + " as written")
    harness.check_all_ours(ours, where)
