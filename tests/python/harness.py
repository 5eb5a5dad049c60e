"""What every test shares: the driver under test, pairs of datasets (ours, GTiff's), comparing
to the bit, and the names of the counters.

Set GPUGTIFF_TEST_DRIVER=GTiff to run GTiff against itself: the tests that count then skip.
"""

import contextlib
import hashlib
import json
import os
import random
import struct
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
PLUGIN_DIR = os.path.join(REPO, "target", "gdalplugins")

# GDAL reads the variable once, when osgeo is imported.
os.environ.setdefault("GDAL_DRIVER_PATH", PLUGIN_DIR)

from osgeo import gdal  # noqa: E402

gdal.DontUseExceptions()

DRIVER = os.environ.get("GPUGTIFF_TEST_DRIVER", "GPUGTiff")
SELF_TEST = DRIVER == "GTiff"
SEED = int(os.environ.get("GPUGTIFF_SEED") or random.SystemRandom().randrange(1 << 30))
DOMAIN = "GPUGTIFF"

# The counters' names, here and nowhere else.
ENGINE = "ENGINE"
ENGINE_REASON = "ENGINE_REASON"
BATCHES = "BATCHES"
DECODED = "TILES_DECODED"
TOUCHED = "TILES_TOUCHED"
BY_CODEC = "TILES_BY_GTIFF_CODEC"
SPARSE = "TILES_SPARSE"
TILES_PASSED = "TILES_GTIFF"
REQUESTS_PASSED = "REQUESTS_GTIFF"
BLOCKS_PASSED = "BLOCKS_GTIFF"
PASS_REASON = "GTIFF_REASON"
BYTES_READ = "BYTES_READ"
BYTES_DECODED = "BYTES_DECODED"
FROM_AHEAD = "TILES_FROM_AHEAD"
PEAK_BYTES = "PEAK_BYTES"
THREADS = "NUM_THREADS"
ON_DEVICE = "CUDA_TILES_DECODED"
ON_CPU = "CUDA_TILES_ON_CPU_"  # and a codec
REDONE = "CUDA_TILES_REDONE"
LEFT_TO_CPU = "CUDA_TILES_LEFT_TO_CPU"


def require_driver():
    if gdal.GetDriverByName(DRIVER) is None:
        import pytest

        pytest.exit(
            "GDAL driver %s is not there (GDAL_DRIVER_PATH=%s): run `make plugin` first, or set "
            "GPUGTIFF_TEST_DRIVER=GTiff to run the tests on GTiff itself" % (DRIVER, os.environ["GDAL_DRIVER_PATH"]),
            returncode=3,
        )


def rng(*parts):
    """A generator of its own for each case: a case can be run again alone from the run's seed."""
    return random.Random("%d/%s" % (SEED, "/".join(map(str, parts))))


# ---- errors and options --------------------------------------------------------------------

CONFIG_KEYS = (
    "GPUGTIFF_CLAIM", "GPUGTIFF_ENGINE", "GPUGTIFF_NUM_THREADS", "GPUGTIFF_BATCH_MB",
    "GPUGTIFF_TEST_FAIL_DECODE", "GDAL_TIFF_INTERNAL_MASK", "GDAL_TIFF_INTERNAL_MASK_TO_8BIT",
    "GDAL_DISABLE_READDIR_ON_OPEN", "GTIFF_IGNORE_READ_ERRORS", "COMPRESS_OVERVIEW",
    "PREDICTOR_OVERVIEW", "INTERLEAVE_OVERVIEW", "GDAL_NUM_THREADS", "USE_RRD",
    "GDAL_TIFF_ENDIANNESS", "GDAL_HTTP_HEADERS", "GDAL_TIFF_OVR_BLOCKSIZE",
)  # fmt: skip


@contextlib.contextmanager
def restored_config():
    """Puts back config options, block cache size and the error state."""
    before = {k: gdal.GetConfigOption(k) for k in CONFIG_KEYS}
    cache = gdal.GetCacheMax()
    try:
        yield
    finally:
        for k, v in before.items():
            gdal.SetConfigOption(k, v)
        gdal.SetCacheMax(cache)
        gdal.ErrorReset()


@contextlib.contextmanager
def config(**options):
    before = {k: gdal.GetConfigOption(k) for k in options}
    for k, v in options.items():
        gdal.SetConfigOption(k, v)
    try:
        yield
    finally:
        for k, v in before.items():
            gdal.SetConfigOption(k, v)


class Errors(list):
    """Collects (class, number, text) raised inside the `with`."""

    def __enter__(self):
        gdal.PushErrorHandler(lambda cls, no, text: self.append((cls, no, text)))
        return self

    def __exit__(self, *exc):
        gdal.PopErrorHandler()

    def failures(self):
        return [text for cls, _, text in self if cls >= gdal.CE_Failure]

    def text(self):
        return "\n".join(text for _, _, text in self)


# ---- opening -------------------------------------------------------------------------------


def open_ours(path, options=(), flags=0):
    return gdal.OpenEx(path, gdal.OF_RASTER | gdal.OF_VERBOSE_ERROR | flags, allowed_drivers=[DRIVER],
                       open_options=list(options))  # fmt: skip


def open_gtiff(path, options=(), flags=0):
    return gdal.OpenEx(path, gdal.OF_RASTER | gdal.OF_VERBOSE_ERROR | flags, allowed_drivers=["GTiff"],
                       open_options=list(options))  # fmt: skip


def open_pair(path, options=()):
    """(ours, GTiff's) of one file; `options` are for ours only."""
    ours, theirs = open_ours(path, () if SELF_TEST else options), open_gtiff(path)
    assert theirs is not None, "GTiff does not open %s" % path
    assert ours is not None, "%s does not open %s: %s" % (DRIVER, path, gdal.GetLastErrorMsg())
    return ours, theirs


# ---- counters ------------------------------------------------------------------------------


def counters(obj):
    """The domain GPUGTIFF of a dataset or band: numbers as int, the rest as text."""
    items = obj.GetMetadata_Dict(DOMAIN) or {}
    return {k: int(v) if v.lstrip("-").isdigit() else v for k, v in items.items()}


def skip_count_if_self_test():
    if SELF_TEST:
        import pytest

        pytest.skip("GTiff has no counters")


def check_all_ours(ds, where="", empty_ok=False):
    """The count that a pass-through driver fails: nothing passed on, every tile touched decoded by us."""
    if SELF_TEST:
        return {}
    c = counters(ds)
    passed = {k: c[k] for k in (BLOCKS_PASSED, REQUESTS_PASSED, TILES_PASSED)}
    assert not any(passed.values()), "%s passed to GTiff: %s, reason %r" % (where, passed, c.get(PASS_REASON))
    assert c[DECODED] == c[TOUCHED], "%s decoded %d of %d tiles touched" % (where, c[DECODED], c[TOUCHED])
    assert empty_ok or c[TOUCHED] + c[SPARSE] > 0, "%s no tile touched: %s" % (where, c)
    if gdal.GetConfigOption("GPUGTIFF_ENGINE") == "CUDA":
        check_on_device(c, where)
    return c


def check_on_device(c, where):
    """The count that an engine fails which leaves its work to the CPU: the device did all of it, and at once.
    Tiles that were decoded ahead of a caller who then went elsewhere are no dataset's, but the device's."""
    assert c[ENGINE] == "CUDA", "%s engine %s: %s" % (where, c[ENGINE], c[ENGINE_REASON])
    cpu = {k: n for k, n in c.items() if k.startswith(ON_CPU) or k in (REDONE, LEFT_TO_CPU) if n}
    assert not cpu, "%s done by the CPU: %s" % (where, cpu)
    assert c[ON_DEVICE] >= c[DECODED], "%s decoded %d of %d tiles on the device" % (where, c[ON_DEVICE], c[DECODED])


# ---- comparing -----------------------------------------------------------------------------


def sample_bytes(data_type):
    return max(1, gdal.GetDataTypeSize(data_type) // 8)


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return "byte %d: %s, GTiff %s" % (i, bytes(a[i : i + 8]).hex(), bytes(b[i : i + 8]).hex())
    return "lengths %d, GTiff %d" % (len(a), len(b))


def same_bytes(ours, theirs, where):
    """To the bit: two NaNs with different payloads differ. None stands for a failed read."""
    if ours is None or theirs is None:
        assert ours is None and theirs is None, "%s: read %s, GTiff %s" % (
            where, "failed" if ours is None else "worked", "failed" if theirs is None else "worked")  # fmt: skip
        return
    ours, theirs = bytes(ours), bytes(theirs)
    assert ours == theirs, "%s: %s" % (where, first_difference(ours, theirs))


def digests(value):
    """The value with a hash in place of all bytes in it: the difference of long ones takes pytest minutes to show."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return hashlib.sha256(value).hexdigest()
    return [digests(v) for v in value] if isinstance(value, (list, tuple)) else value


def bands_of(ds, overviews=True, masks=True):
    """(name, band) of every band with its overviews and masks."""
    for i in range(1, ds.RasterCount + 1):
        band = ds.GetRasterBand(i)
        yield "band %d" % i, band
        if masks:
            yield "band %d mask" % i, band.GetMaskBand()
        for k in range(band.GetOverviewCount() if overviews else 0):
            overview = band.GetOverview(k)
            yield "band %d overview %d" % (i, k), overview
            if masks:
                yield "band %d overview %d mask" % (i, k), overview.GetMaskBand()


def same_pixels(ours, theirs, where="", **kinds):
    """Reads everything of both datasets and compares it; -> samples compared."""
    n = 0
    pairs = zip(bands_of(ours, **kinds), bands_of(theirs, **kinds))
    for (name, a), (name_b, b) in pairs:
        assert (name, a.XSize, a.YSize, a.DataType) == (name_b, b.XSize, b.YSize, b.DataType), where
        same_bytes(a.ReadRaster(), b.ReadRaster(), "%s %s" % (where, name))
        n += a.XSize * a.YSize
    return n


# ---- processes -----------------------------------------------------------------------------


def run_python(code, *args, env=None, timeout=120):
    """Runs `code` in a fresh Python with this folder on its path; -> CompletedProcess.
    A crash shows as a negative returncode, a hang as TimeoutExpired."""
    full = dict(os.environ, PYTHONPATH=HERE, PYTHONFAULTHANDLER="1", GPUGTIFF_SEED=str(SEED))
    full.update(env or {})
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], env=full, capture_output=True,
                          text=True, timeout=timeout)  # fmt: skip


def run_json(code, *args, **kw):
    """Like run_python, for code whose last line of output is JSON."""
    done = run_python(code, *args, **kw)
    assert done.returncode == 0, "exit %d\n%s\n%s" % (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def peak_kb():
    """The process's highest resident size so far."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def tiff_is_big(path):
    with open(path, "rb") as f:
        head = f.read(4)
    return struct.unpack("<H" if head[:2] == b"II" else ">H", head[2:])[0] == 43
