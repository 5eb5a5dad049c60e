"""Sizes that need care on a device: more tiles in a batch than a grid's second dimension counts, and an
arena beyond what 32 bits address. Seen in the emulated driver's report."""

import hashlib

import emulated
import numpy as np
import pytest
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def small(folder):
    """Something to start CUDA with, so that the report has one file's work only."""
    path = str(folder / "small.tif")
    ds = gdal.GetDriverByName("GTiff").Create(path, 32, 32, 1, gdal.GDT_Byte, ["COMPRESS=DEFLATE"])
    ds.WriteRaster(0, 0, 32, 32, bytes(range(256)) * 4)
    return path


def make(path, data, kind, options):
    height, width = data.shape
    ds = gdal.GetDriverByName("GTiff").Create(path, width, height, 1, kind, options)
    assert ds.WriteRaster(0, 0, width, height, data.tobytes()) == 0


def read(path, data, options, tmp_path, **settings):
    """Reads all of it on the device alone; -> outcome, with the report of nothing else."""
    order = {"do": "read", "path": path, "reset": small(tmp_path), "report": True, "options": options,
             "expected": hashlib.sha256(data.tobytes()).hexdigest()}  # fmt: skip
    done = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO", **settings))
    assert done.counter("CUDA_TILES_DECODED") == done.counter("TILES_DECODED") > 0, done
    assert not done.report["faults"] and len(emulated.operations(done.report, "nvcomp")) == 1, done
    return done


STRIPS = 70_000


def test_seventy_thousand_strips_in_one_batch(tmp_path):
    """More tiles than a grid's second dimension could count (65,535)."""
    data = (np.arange(STRIPS)[:, None] * 7 + np.arange(48) // 3).astype("u2")
    path = str(tmp_path / "strips.tif")
    make(path, data, gdal.GDT_UInt16, ["COMPRESS=DEFLATE", "ZLEVEL=1", "PREDICTOR=2", "BLOCKYSIZE=1"])
    done = read(path, data, ["BATCH_MB=128"], tmp_path)
    assert done.counter("CUDA_TILES_DECODED") == STRIPS
    assert done.report["nvcomp"]["deflate"]["decompressed"] == STRIPS
    assert [launch["grid"][0] >= STRIPS for launch in done.report["launches"]] == [True, True], done.report["launches"]


def test_seventy_thousand_strips_are_written(tmp_path):
    data = (np.arange(STRIPS)[:, None] * 5 + np.arange(16)).astype("u2")
    path, target = str(tmp_path / "in.tif"), str(tmp_path / "out.tif")
    make(path, data, gdal.GDT_UInt16, ["BLOCKYSIZE=1024"])
    how = ["COMPRESS=ZSTD", "TILED=NO", "BLOCKYSIZE=1", "BATCH_MB=256"]
    order = {"do": "write", "path": path, "target": target, "options": how, "reset": small(tmp_path), "report": True,
             "expected": hashlib.sha256(data.tobytes()).hexdigest()}  # fmt: skip
    done = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO"))
    assert done.counter("CUDA_TILES_ENCODED") == done.report["nvcomp"]["zstd"]["compressed"] == STRIPS, done
    assert max(launch["grid"][0] for launch in done.report["launches"]) >= STRIPS, done.report["launches"]


TILE, TILES = 2048, 64
# Page-locked memory is three batches up and three down: 7.5 GB, and unpacked tiles another one.
NEEDED_GB = 12


def available_gb():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 1e6


def test_a_tile_at_the_far_end_of_a_six_gib_arena(tmp_path):
    """64 tiles of 16 MiB in one batch; what nvCOMP unpacks lies at the end of the arena, beyond 4.5 GiB.
    The raster is 16 pixels wide and the rest of each tile is padding, so that the interpreter has
    little to lay out."""
    if available_gb() < NEEDED_GB:
        pytest.skip("a 6 GiB arena and its page-locked memory want %d GB of memory" % NEEDED_GB)
    height = TILE * TILES
    data = (np.arange(16, dtype="f4")[None, :] + np.arange(height, dtype="f4")[:, None] * 3) % 65521
    path = str(tmp_path / "far.tif")
    how = ["COMPRESS=DEFLATE", "ZLEVEL=1", "TILED=YES", "BLOCKXSIZE=%d" % TILE, "BLOCKYSIZE=%d" % TILE, "NUM_THREADS=2"]
    make(path, data, gdal.GDT_Float32, how)
    done = read(path, data, ["DEVICE_MB=6500", "BATCH_MB=4800"], tmp_path, MEMORY_MB=16384)
    assert done.counter("CUDA_TILES_DECODED") == TILES, done
    unpacked = done.report["nvcomp"]["deflate"]
    assert unpacked["decompressed"] == TILES and unpacked["decompressed_bytes"] == TILES * TILE * TILE * 4
    assert done.report["peak_device_bytes"][0] > 6_000_000_000, done.report["peak_device_bytes"]
    largest = max(a["bytes"] for a in done.report["allocations"] if a["kind"] == "device")
    assert largest > 6_000_000_000, "not in one piece: %d" % largest
