"""JPEG 2000 through the emulated nvJPEG2000, as GDAL and the C API see it: decoded on the device, and
left to the CPU with a reason where the library is missing or refuses."""

import os
import subprocess

import emulated
import harness
import j2kfiles
import pytest
import test_capi_device

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def raster(tmp_path, dtype="uint8", samples=3, size=(300, 400), **kw):
    array = j2kfiles.pixels((*size, samples), dtype, harness.rng("cuda j2k", dtype, samples))
    return j2kfiles.write(str(tmp_path / "in.tif"), array, **kw)


def order(path, do="read", **more):
    return {"do": do, "path": path, "oracle": path + ".plain", "report": True, **more}


@pytest.mark.parametrize("dtype, samples, planar", [("uint8", 3, 0), ("int8", 1, 0), ("int16", 2, 1), ("uint16", 4, 0)])
def test_every_tile_on_the_device(dtype, samples, planar, tmp_path):
    path = raster(tmp_path, dtype, samples, planar=planar)
    done = emulated.alone(emulated.work(order(path), tmp_path, GPUGTIFF_VERIFY="NO", ORDER="contrary"))
    tiles = 35 * (samples if planar else 1)
    assert done.counter("CUDA_TILES_DECODED_JPEG2000") == done.counter("TILES_DECODED") == tiles
    library = done.report["nvjpeg2k"]
    # One more is the known tile.
    assert library["decoded"] == tiles + 1 and library["misuse"] == library["corrupt"] == 0
    assert not done.report["faults"] and not done.report["errors"]


def test_the_library_is_not_touched_for_other_codecs(tmp_path):
    path = raster(tmp_path)
    done = emulated.work({"do": "read", "path": path + ".plain", "report": True}, tmp_path)
    assert emulated.right(done).report["nvjpeg2k"]["handles"] == 0


@pytest.mark.parametrize("verify", ["NO", "ALL"])
@pytest.mark.parametrize("planar", [0, 1])
def test_pixels_that_stay_on_the_device(planar, verify, tmp_path):
    path = raster(tmp_path, "int16", 3, planar=planar)
    done = test_capi_device.work(order(path, "windows", seed=harness.SEED, count=12), tmp_path,
                                 GPUGTIFF_VERIFY=verify, ORDER="mixed", SEED=harness.SEED)  # fmt: skip
    assert done.counter("CUDA_TILES_DECODED_JPEG2000") == done.counter("CUDA_TILES_DECODED") > 0
    assert done.counter("CUDA_TILES_REDONE") == done.counter("CUDA_TILES_LEFT_TO_CPU") == 0
    assert (done.counter("CUDA_TILES_VERIFIED") > 0) == (verify == "ALL")


def on_the_cpu(path, tmp_path, **settings):
    done = emulated.right(emulated.work(order(path), tmp_path, **settings))
    assert done.counter("CUDA_TILES_ON_CPU_JPEG2000") == done.counter("TILES_DECODED") == 35
    assert done.counter("CUDA_TILES_DECODED_JPEG2000") == 0
    return "\n".join(text for _, _, text in done.answer["messages"])


def test_without_the_library(tmp_path):
    """The CPU, and one warning that says what to install; given a path, nothing else is tried."""
    path, directory = raster(tmp_path), str(tmp_path / "without")
    link = os.path.join(harness.REPO, "tests", "emulated-cuda", "link.sh")
    library = os.path.realpath(os.path.join(emulated.DIRECTORY, "libcuda.so.1"))
    subprocess.run([link, library, directory, "--without", "libnvjpeg2k.so.0"], check=True)
    said = on_the_cpu(path, tmp_path, LD_LIBRARY_PATH=directory, HOME=str(tmp_path))
    assert said.count("nvJPEG2000 was not found") == 1 and "GPUGTIFF_NVJPEG2K" in said, said
    said = on_the_cpu(path, tmp_path, GPUGTIFF_NVJPEG2K="/nowhere/libnvjpeg2k.so.0")
    assert "/nowhere/libnvjpeg2k.so.0 is not nvJPEG2000" in said, said
    given = os.path.join(emulated.DIRECTORY, "libnvjpeg2k.so.0")
    emulated.alone(emulated.work(order(path), tmp_path, LD_LIBRARY_PATH=directory, GPUGTIFF_NVJPEG2K=given))


def test_a_library_that_refuses(tmp_path):
    said = on_the_cpu(raster(tmp_path), tmp_path, NVJPEG2K="refused")
    assert "nvJPEG2000 does not start (status 7)" in said, said


def test_little_device_memory(tmp_path):
    """Fewer tiles at a time, and still on the device."""
    path = raster(tmp_path, samples=1)
    done = emulated.alone(emulated.work(order(path), tmp_path, GPUGTIFF_DEVICE_MB=4, GPUGTIFF_VERIFY="NO"))
    assert done.counter("CUDA_BATCHES") > 2 and done.counter("CUDA_PEAK_BYTES") <= 4 << 20
