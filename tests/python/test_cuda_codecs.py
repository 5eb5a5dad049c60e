"""LZW and PackBits on the device, of libtiff's own making: thousands of small tiles, large ones, and what
is asked of the device for them. The CPU never steps in (VERIFY=NO), so that it cannot hide a fault."""

import os

import emulated
import numpy as np
import pytest
import test_cuda
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def patchwork(dtype, bands, size, patch, seed):
    """Every patch of another kind: noise, a slope, runs of a few classes, one value."""
    width, height = size
    rng = np.random.default_rng(seed)
    data = np.zeros((bands, height, width), dtype=np.float64)
    for b, y, x in np.ndindex(bands, -(-height // patch), -(-width // patch)):
        here = data[b, y * patch : (y + 1) * patch, x * patch : (x + 1) * patch]
        kind = rng.integers(4)
        if kind == 0:
            here[:] = rng.integers(0, 250, here.shape)
        elif kind == 1:
            here[:] = (np.add.outer(np.arange(here.shape[0]), np.arange(here.shape[1])) * 3 + rng.integers(0, 4, here.shape)) % 250
        elif kind == 2:
            runs = np.repeat(rng.integers(0, 5, here.size), rng.integers(1, 60, here.size))
            here[:] = runs[: here.size].reshape(here.shape)
        else:
            here[:] = rng.integers(250)
    return (data * (1.37 if dtype[0] == "f" else 1)).astype(dtype)


def make(path, dtype, bands, size, options, patch=16, seed=7):
    data = patchwork(dtype, bands, size, patch, seed)
    ds = gdal.GetDriverByName("GTiff").Create(str(path), *size, bands, test_cuda.TYPES[dtype], options)
    ds.WriteRaster(0, 0, *size, data.tobytes())
    del ds
    return str(path)


def decoded_alone(path, tmp_path, codec, **settings):
    done = emulated.alone(emulated.work({"do": "read", "path": path, "report": True}, tmp_path, GPUGTIFF_VERIFY="NO", **settings))
    tiles = done.counter("TILES_DECODED")
    assert done.counter("CUDA_TILES_DECODED_" + codec) == done.counter("CUDA_TILES_DECODED") == tiles > 0, done
    assert done.counter("CUDA_TILES_ON_CPU_" + codec) == done.counter("TILES_GTIFF") == 0, done
    assert not done.report["faults"], done
    return done


TYPES = [("u1", "LITTLE"), ("u2", "LITTLE"), ("i4", "BIG"), ("f4", "LITTLE"), ("f8", "BIG")]
KINDS = [("LZW", predictor, *kind) for predictor in (1, 2, 3) for kind in TYPES if predictor < 3 or kind[0][0] == "f"]
KINDS += [("PACKBITS", 1, *kind) for kind in TYPES]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k)))
def test_a_thousand_tiles_of_every_kind(kind, tmp_path, total):
    codec, predictor, dtype, endian = kind
    how = test_cuda.options(codec, predictor, 16, "PIXEL", endian)
    path = make(tmp_path / "in.tif", dtype, 1, (512, 512), how, seed=predictor)
    done = decoded_alone(path, tmp_path, codec)
    assert done.counter("TILES_DECODED") == 1024
    total("%s tiles of libtiff's on the device" % codec, 1024)


@pytest.mark.parametrize("codec", ["LZW", "PACKBITS"])
@pytest.mark.parametrize("interleave, tile", [("PIXEL", 256), ("BAND", 0)])
def test_tiles_of_many_segments_and_strips(codec, interleave, tile, tmp_path):
    how = test_cuda.options(codec, 2 if codec == "LZW" else 1, tile, interleave)
    path = make(tmp_path / "in.tif", "u2", 3, (500, 301), how, patch=128)
    decoded_alone(path, tmp_path, codec)


def test_lzw_that_is_larger_than_its_pixels(tmp_path):
    """Noise, in a batch of one tile."""
    path = str(tmp_path / "in.tif")
    ds = gdal.GetDriverByName("GTiff").Create(path, 1024, 600, 1, gdal.GDT_Byte, ["COMPRESS=LZW", "BLOCKYSIZE=600"])
    ds.WriteRaster(0, 0, 1024, 600, np.random.default_rng(5).bytes(1024 * 600))
    del ds
    assert os.path.getsize(path) > 1.3 * 1024 * 600
    decoded_alone(path, tmp_path, "LZW", GPUGTIFF_BATCH_MB=1)


@pytest.mark.parametrize("codec", ["LZW", "PACKBITS"])
def test_schedules_and_races(codec, tmp_path):
    path = make(tmp_path / "in.tif", "u2", 1, (96, 64), test_cuda.options(codec, 1, 32))
    for seed in range(2):
        decoded_alone(path, tmp_path, codec, SCHEDULE="adversarial", RACES=1, ORDER="contrary", SEED=seed)


@pytest.mark.parametrize("codec", ["LZW", "PACKBITS"])
def test_a_batch_is_one_copy_two_kernels_and_one_copy(codec, tmp_path):
    """From the emulator's report: nothing is asked of nvCOMP, and in steady state nothing is allocated."""
    how = test_cuda.options(codec, 1, 64)
    small = make(tmp_path / "small.tif", "u1", 1, (64, 64), how)
    path = make(tmp_path / "in.tif", "u1", 1, (1024, 1024), how, patch=64)
    order = {"do": "read", "path": path, "reset": small, "report": True, "options": ["BATCH_MB=1"]}
    done = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO", SMS=8))
    report, batches = done.report, done.counter("CUDA_BATCHES")
    assert batches >= 4 and not emulated.operations(report, "nvcomp"), batches
    kernels = [op["name"] for op in emulated.operations(report, "kernel")]
    assert kernels == [codec.lower(), "undo"] * batches, kernels
    up = emulated.operations(report, "H2D")
    assert len(up) == len(emulated.operations(report, "D2H")) == batches
    assert not [a for a in report["allocations"] if a["call"] > up[2]["call"]], report["allocations"]


@pytest.mark.parametrize("codec", ["LZW", "PACKBITS"])
def test_writing_is_the_cpus(codec, tmp_path):
    """The same bytes as without a GPU, and a file that the device reads."""
    path = make(tmp_path / "in.tif", "u2", 1, (300, 200), test_cuda.options("DEFLATE", 1, 64))
    order = {"do": "write", "path": path, "options": test_cuda.options(codec, 1, 64)}
    shas = set()
    for engine in ("CUDA", "CPU"):
        target = str(tmp_path / (engine + ".tif"))
        done = emulated.right(emulated.work(dict(order, target=target), tmp_path, engine=engine))
        shas.add(done.answer["sha"])
        if engine == "CUDA":
            assert done.counter("CUDA_TILES_ENCODED") == 0 and done.counter("CUDA_TILES_REDONE") == 0, done
            decoded_alone(target, tmp_path, codec)
    assert len(shas) == 1


@pytest.mark.parametrize("verify", ["NO", "ALL"])
def test_damaged_lzw_ends_as_it_does_on_the_cpu(verify, tmp_path):
    """What the device calls corrupt is asked from the CPU, which is the one to complain."""
    path = make(tmp_path / "in.tif", "u1", 1, (256, 256), test_cuda.options("LZW", 1, 64))
    size = os.path.getsize(path)
    rng = np.random.default_rng(3)
    with open(path, "r+b") as file:
        for at in rng.integers(size // 4, size, 12):
            file.seek(at)
            file.write(b"\xff")
    done = emulated.work({"do": "read", "path": path}, tmp_path, GPUGTIFF_VERIFY=verify)
    cpu = emulated.work({"do": "read", "path": path}, tmp_path, engine="CPU")
    assert done.status == cpu.status == 0, done
    assert done.answer["same"] == cpu.answer["same"] and done.answer["read"] == cpu.answer["read"], done
    assert done.counter("CUDA_TILES_ON_CPU_LZW") > 0 and not done.report["faults"], done
    assert done.counter("CUDA_MISMATCHES") == 0
