"""Device memory of the CUDA engine, as the emulated driver counts it: bounded by DEVICE_MB whatever
the raster's size and the level, and not by what a file claims."""

import hashlib
import os
import time

import emulated
import numpy as np
import pytest
import tiffpatch
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")

DEVICE_MB = 500
# Large enough that device memory, and not the host's, decides how many tiles a batch has.
BATCH_MB = 2048


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def slopes(path, size, options):
    """A raster whose rows all differ, written by GTiff; -> SHA-256 of its pixels."""
    ds = gdal.GetDriverByName("GTiff").Create(str(path), size, size, 1, gdal.GDT_Float32, options)
    sha, row = hashlib.sha256(), np.arange(size, dtype="f4")
    for y in range(0, size, 256):
        rows = (row[None, :] + np.arange(y, y + 256, dtype="f4")[:, None]).tobytes()
        sha.update(rows)
        assert ds.WriteRaster(0, y, size, 256, rows) == 0
    return sha.hexdigest()


@pytest.fixture(scope="module")
def rasters(tmp_path_factory):
    """rasters(size) -> (path, SHA-256) of a Float32 raster, made once."""
    folder, made = tmp_path_factory.mktemp("rasters"), {}

    def get(size):
        if size not in made:
            path = folder / ("%d.tif" % size)
            made[size] = str(path), slopes(path, size, ["COMPRESS=ZSTD", "ZSTD_LEVEL=1", "TILED=YES", "NUM_THREADS=2"])
        return made[size]

    yield get
    for path, _ in made.values():
        os.unlink(path)


PEAKS = {}


@pytest.mark.parametrize("size, level", [(8192, 1), (8192, 6), (8192, 9), (16384, 1)])
def test_writing_stays_within_device_mb(size, level, rasters, tmp_path):
    """nvCOMP's algorithms want very different amounts of temporary memory (levels 1, 6, 9); four times
    the pixels take no more. The bound is one that bites: most of it is used."""
    path, sha = rasters(size)
    target = str(tmp_path / "out.tif")
    how = ["COMPRESS=DEFLATE", "TILED=YES", "ZLEVEL=%d" % level, "DEVICE_MB=%d" % DEVICE_MB, "BATCH_MB=%d" % BATCH_MB]
    order = {"do": "write", "path": path, "target": target, "options": how, "expected": sha}
    started = time.time()
    done = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO"))
    os.unlink(target)
    assert done.counter("CUDA_TILES_ENCODED") == (size // 256) ** 2, done
    assert done.report["nvcomp"]["deflate"]["compressed"] >= (size // 256) ** 2
    (peak,) = done.report["peak_device_bytes"]
    PEAKS[size, level] = peak
    print("%d² ZLEVEL=%d: %.1f MB of device memory, %.1f s" % (size, level, peak / (1 << 20), time.time() - started))
    assert DEVICE_MB * 8 // 10 << 20 < peak < DEVICE_MB << 20
    if (8192, level) in PEAKS:
        assert peak == PEAKS[8192, level], PEAKS


# ---- what is free -------------------------------------------------------------------------------


def within_nine_tenths(report, free):
    """Every allocation, at the time of it: no more than 90 % of what was free; -> the largest. And none
    was tried in vain: too much is noticed before."""
    made = [a for a in report["allocations"] if a["kind"].startswith("device")]
    for allocation in made:
        call = allocation["call"]
        live = [a["bytes"] for a in made if a["call"] < call and (a["freed"] is None or a["freed"] < call)]
        assert allocation["bytes"] <= 0.9 * (free - sum(live)), (allocation, live)
    refused = [error for error in report["errors"] if error["symbol"].startswith("cuMemAlloc")]
    assert not refused, refused
    return max((a["bytes"] for a in made), default=0)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """64 tiles of 256 KiB."""
    path = tmp_path_factory.mktemp("small") / "in.tif"
    return str(path), slopes(path, 2048, ["COMPRESS=ZSTD", "TILED=YES"])


def both_ways(small, tmp_path, options, creation=(), **settings):
    """Reads, and writes; -> outcomes."""
    (path, sha), target = small, str(tmp_path / "out.tif")
    read = {"do": "read", "path": path, "options": options, "expected": sha}
    how = ["COMPRESS=DEFLATE", "TILED=YES", *options, *creation]
    write = {"do": "write", "path": path, "options": how, "target": target, "expected": sha}
    for order in (read, write):
        yield emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO", **settings)


@pytest.mark.parametrize("free", [60, 150, 400])
def test_device_mb_above_what_is_free(free, small, tmp_path):
    """Batches have fewer tiles then, of which the device has all; nine tenths are not exceeded."""
    for done in both_ways(small, tmp_path, ["DEVICE_MB=6000", "BATCH_MB=%d" % BATCH_MB], FREE_MB=free):
        emulated.alone(done)
        largest = within_nine_tenths(done.report, free << 20)
        # Half as many tiles at a time: more than 45 % are used.
        assert largest > 0.4 * (free << 20), (free, largest)


def test_device_mb_above_what_is_free_for_one_tile(tmp_path):
    """The CPU does it, and nothing large was allocated meanwhile."""
    path, free = tmp_path / "in.tif", 24
    large = ["BLOCKXSIZE=2048", "BLOCKYSIZE=2048"]
    one = str(path), slopes(path, 2048, ["COMPRESS=ZSTD", "TILED=YES", *large])
    for done in both_ways(one, tmp_path, ["DEVICE_MB=6000"], large, FREE_MB=free):
        emulated.right(done)
        assert done.counter("CUDA_TILES_DECODED") == done.counter("CUDA_TILES_ENCODED") == 0, done
        assert done.counter("CUDA_TILES_LEFT_TO_CPU") == 1 and done.counter("CUDA_TILES_REDONE") == 0, done
        assert done.counter("CUDA_TILES_BUSY") == 0 and done.counter("CUDA_FAULTS") < 9, done
        # The known tiles that each codec is tried with.
        assert within_nine_tenths(done.report, free << 20) < 4 << 20, done.report["allocations"]


# Megabytes: what is free, and the most that is taken of it unasked. The emulated device has to have as much.
UNASKED = [(200, 50), (1000, 250), (8000, 2000), (16384, 2048), (40000, 2048)]


@pytest.mark.parametrize("free, most", UNASKED)
def test_a_quarter_of_what_is_free_unless_device_mb_says_otherwise(free, most, small, tmp_path):
    """And never more than 2 GiB. BATCH_MB would allow for more, so that this is what decides."""
    for done in both_ways(small, tmp_path, ["BATCH_MB=16000"], FREE_MB=free, MEMORY_MB=max(free, 8192)):
        emulated.alone(done)
        (peak,) = done.report["peak_device_bytes"]
        assert 0.8 * (most << 20) < peak <= most << 20, (peak, most)
        within_nine_tenths(done.report, free << 20)


# ---- what a file claims --------------------------------------------------------------------------

CLAIMED = 3_000_000_000


def _taken(report):
    """Device memory at its highest, and the largest single allocation, pinned memory included."""
    return report["peak_device_bytes"][0], max(a["bytes"] for a in report["allocations"])


@pytest.mark.parametrize("codec", ["NONE", "DEFLATE", "ZSTD"])
@pytest.mark.parametrize("there", [False, True], ids=["beyond-the-end", "holes"])
def test_lying_byte_counts_allocate_nothing(codec, there, tmp_path):
    """A tile that claims 3 GB, in a file that ends long before and in one that is that long (a hole):
    a clean failure or the right pixels, in no more memory than the honest file takes."""
    path = str(tmp_path / "lie.tif")
    data = np.random.default_rng(3).integers(0, 50, (256, 256)).astype("u2")
    how = ["COMPRESS=" + codec, "TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]
    ds = gdal.GetDriverByName("GTiff").Create(path, 256, 256, 1, gdal.GDT_UInt16, how)
    ds.WriteRaster(0, 0, 256, 256, data.tobytes())
    del ds
    order = {"do": "read", "path": path, "expected": hashlib.sha256(data.tobytes()).hexdigest()}
    honest = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO"))
    assert honest.counter("CUDA_TILES_DECODED") == 16, honest
    tiff = tiffpatch.Tiff(path)
    tiff.widen(tiff.entry(tiffpatch.COUNTS).tag)
    tiff.set(tiffpatch.COUNTS, CLAIMED, 5)
    assert tiff.striles()[5][1] == CLAIMED
    tiff.save()
    if there:
        os.truncate(path, CLAIMED + (1 << 20))
    done = emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO")
    assert done.status == 0, done
    failed = [text for cls, _, text in done.answer["messages"] if cls >= gdal.CE_Failure]
    assert done.answer["same"] or (not done.answer["read"] and failed), done
    # Its neighbours went through the device all the same.
    assert done.counter("CUDA_TILES_DECODED") == 15 and not done.report["faults"], done
    assert [a <= b for a, b in zip(_taken(done.report), _taken(honest.report))] == [True, True]
