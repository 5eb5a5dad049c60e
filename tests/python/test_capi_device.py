"""Pixels that stay on the device: the C API on the emulated driver, GTiff as the oracle. The report tells
what came down, and that nothing was called that should not be."""

import os

import emulated
import harness
import pytest
import test_cuda

import capi

pytestmark = pytest.mark.usefixtures("emulator")
WORKER = os.path.join(harness.HERE, "device_worker.py")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def work(order, tmp_path, **settings):
    return emulated.right(emulated.work(order, tmp_path, worker=WORKER, engine="AUTO", **settings))


# codec, predictor, type, bands, interleave, byte order, tile
KINDS = [
    ("DEFLATE", 2, "u1", 3, "PIXEL", "LITTLE", 64),
    ("ZSTD", 3, "f4", 2, "BAND", "BIG", 48),
    ("NONE", 1, "u2", 4, "PIXEL", "BIG", 0),
    ("DEFLATE", 1, "f8", 3, "BAND", "LITTLE", 80),
    ("LZW", 2, "u2", 3, "PIXEL", "LITTLE", 64),
    ("PACKBITS", 1, "i4", 2, "BAND", "BIG", 64),
]


def raster(tmp_path, kind, size=(517, 431)):
    codec, predictor, dtype, bands, interleave, endian, tile = kind
    how = test_cuda.options(codec, predictor, tile, interleave, endian)
    path = test_cuda.make(tmp_path / "in.tif", dtype, bands, size, how, seed=harness.SEED)
    return str(path)


def several(tmp_path, kinds, size=(517, 431)):
    paths = []
    for n, kind in enumerate(kinds):
        (tmp_path / str(n)).mkdir()
        paths.append(raster(tmp_path / str(n), KINDS[kind], size))
    return paths


@pytest.mark.parametrize("verify", ["NO", "FIRST", "ALL"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind)))
def test_windows(kind, verify, tmp_path):
    path = raster(tmp_path, kind)
    order = {"do": "windows", "path": path, "seed": harness.SEED, "count": 12}
    how = {"NO": "lazy", "FIRST": "contrary", "ALL": "mixed"}[verify]
    done = work(order, tmp_path, ORDER=how, SEED=harness.SEED, GPUGTIFF_VERIFY=verify)
    assert not done.report["faults"] and not done.report["errors"], done.report["errors"]
    assert done.counter("CUDA_TILES_DECODED_" + kind[0]) == done.counter("CUDA_TILES_DECODED") > 0
    assert done.counter("CUDA_TILES_REDONE") == 0 and done.counter("CUDA_MISMATCHES") == 0
    assert done.counter("CUDA_TILES_LEFT_TO_CPU") == 0
    assert (done.counter("CUDA_TILES_VERIFIED") > 0) == (verify != "NO")


@pytest.mark.parametrize("order", ["lazy", "contrary", "mixed"])
@pytest.mark.parametrize(
    "kinds, settings", [((0, 0), {}), ((0, 3, 4), {}), ((0, 0), {"GPUGTIFF_DEVICE_MB": 1})],
    ids=["one size", "several sizes", "many batches"])  # fmt: skip
def test_nobody_waits_on_the_host(kinds, settings, order, tmp_path):
    """Pixels are ordered by events alone: a call returns before they are there. Batches of one call that use the
    same memory of the engine's wait for each other on the device; the next call looks whether it is free."""
    paths = several(tmp_path, kinds, (1000, 900) if settings else (517, 431))
    work_order = {"do": "queued", "paths": paths, "seed": harness.SEED, "count": 14}
    done = work(work_order, tmp_path, ORDER=order, SEED=harness.SEED, GPUGTIFF_VERIFY="NO", **settings)
    assert not done.report["faults"] and not done.report["errors"], done.report["errors"]
    if settings:
        assert done.answer["batches"] > 3 * 14, done.answer
    if order == "lazy":
        # Every third question has the emulator go on.
        assert done.answer["pending"] >= 9


@pytest.mark.parametrize("verify, order", [("NO", "lazy"), ("NO", "contrary"), ("FIRST", "mixed")])
def test_threads(verify, order, tmp_path):
    work_order = {"do": "at_once", "paths": several(tmp_path, (0, 1, 0)), "seed": harness.SEED, "count": 6}
    done = work(work_order, tmp_path, ORDER=order, SEED=harness.SEED, GPUGTIFF_VERIFY=verify)
    assert not done.report["faults"] and not done.report["errors"], done.report["errors"]
    assert done.answer["decoded"] > 0


@pytest.mark.parametrize("kind", [0, 3], ids=["contiguous", "planes"])
def test_batches_and_other_types(kind, tmp_path):
    path = raster(tmp_path, KINDS[kind], (1100, 900))
    done = work({"do": "batches", "path": path}, tmp_path, ORDER="mixed", SEED=harness.SEED)
    assert done.answer["batches"] > 4 and done.counter("CUDA_TILES_DECODED") > 0, done


def test_what_is_there(tmp_path):
    done = work({"do": "facts"}, tmp_path, DEVICES=2, CAPABILITY="9.0", SMS=132, NAME="Some GPU", DRIVER=12020, NVCOMP=5300)
    assert done.answer["devices"] == [["Some GPU", 9, 0, 132, 1]] * 2, done
    assert (done.answer["cuda"], done.answer["nvcomp"]) == (12020, 5300), done


@pytest.mark.parametrize("verify", ["NO", "FIRST", "ALL"])
def test_no_pixel_comes_down(verify, tmp_path):
    path = raster(tmp_path, KINDS[0], (1024, 768))
    # CUDA is started by a file of another kind, so that the first batch of this one is its first.
    (tmp_path / "warm").mkdir()
    warm = raster(tmp_path / "warm", KINDS[1])
    done = work({"do": "structure", "path": path, "warm": warm}, tmp_path, GPUGTIFF_VERIFY=verify)
    tiles = done.counter("CUDA_TILES_DECODED")
    assert tiles == 16 * 12
    verified = {"NO": 0, "FIRST": 64, "ALL": tiles}[verify]
    assert done.counter("CUDA_TILES_VERIFIED") == verified, done
    up, down = done.answer["moved"]["H2D"], done.answer["moved"]["D2H"]
    # Reports of tiles; flags of what was compared.
    assert 0 < down <= 16 * tiles + 256 + (0 if verify == "NO" else 4 * 8 * tiles), (down, tiles)
    if verify == "NO":
        assert up <= os.path.getsize(path) + tiles * (16 + 4 * 8 + 64 + 32 + 4) + 1024
        assert done.answer["allocations"] == 0, "in steady state nothing is allocated"


@pytest.mark.parametrize("verify, codec", [("ALL", "ZSTD"), ("NO", "DEFLATE")])
def test_a_wrong_device_is_noticed_there(verify, codec, tmp_path):
    """A device that decodes wrongly and says that all is well: what the CPU says counts."""
    path = raster(tmp_path, (codec, 2, "u2", 3, "PIXEL", "LITTLE", 64))
    order = {"do": "windows", "path": path, "seed": harness.SEED, "count": 25}
    done = work(order, tmp_path, WRONG=200, GPUGTIFF_VERIFY=verify)
    assert done.counter("CUDA_TILES_REDONE") > 0
    assert done.counter("CUDA_MISMATCHES") == (0 if codec == "DEFLATE" else 1), done


def test_a_damaged_file(tmp_path):
    """nvCOMP calls damaged input undefined: right pixels, or a failure that says why."""
    path = raster(tmp_path, ("ZSTD", 1, "u1", 1, "PIXEL", "LITTLE", 64))
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x40]))
    order = {"do": "windows", "path": path, "seed": 1, "count": 6}
    done = emulated.work(order, tmp_path, worker=WORKER, engine="AUTO", CORRUPT="garbage", GPUGTIFF_VERIFY="ALL")
    assert done.status == 0, done
    for _, result, text, *_ in done.answer["wrong"]:
        assert result == capi.CORRUPT and text, done


def test_sparse_and_passed_through(tmp_path):
    """Tiles that the file leaves out, and a codec that only GTiff has."""
    from osgeo import gdal

    sparse = str(tmp_path / "sparse.tif")
    ds = gdal.GetDriverByName("GTiff").Create(
        sparse, 400, 300, 2, gdal.GDT_Int16, options=["TILED=YES", "SPARSE_OK=TRUE", "COMPRESS=DEFLATE", "BLOCKXSIZE=64", "BLOCKYSIZE=64"])  # fmt: skip
    for band in (1, 2):
        ds.GetRasterBand(band).SetNoDataValue(-7)
        ds.GetRasterBand(band).WriteRaster(70, 70, 100, 90, bytes(range(250)) * 72)
    ds = None
    jpeg = str(tmp_path / "jpeg.tif")
    source = gdal.Open(raster(tmp_path, KINDS[0]))
    gdal.GetDriverByName("GTiff").CreateCopy(jpeg, source, options=["COMPRESS=JPEG", "TILED=YES"])
    for path in (sparse, jpeg):
        work({"do": "windows", "path": path, "seed": harness.SEED, "count": 8}, tmp_path)


def test_overviews(tmp_path):
    from osgeo import gdal

    path = raster(tmp_path, KINDS[0])
    gdal.Open(path, gdal.GA_Update).BuildOverviews("NEAREST", [2, 4])
    work({"do": "windows", "path": path, "seed": harness.SEED + 1, "count": 10}, tmp_path)


def test_tensors_own_their_memory(tmp_path):
    path = raster(tmp_path, KINDS[1])
    done = work({"do": "tensors", "path": path}, tmp_path)
    assert done.answer["aligned"]
    made = [a for a in done.report["allocations"] if a["kind"] == "device" and a["bytes"] == done.answer["bytes"]]
    assert len(made) == 3 and all(a["freed"] for a in made), done.report["allocations"]
    assert done.report["calls"]["cuMemFree_v2"] >= 3 and not done.report["errors"]


def test_a_tensor_is_freed_though_a_call_fails(tmp_path):
    path = raster(tmp_path, KINDS[1])
    done = work({"do": "deleted", "path": path, "sample": 4}, tmp_path)
    assert done.report["injected"][0]["symbol"] == "cuCtxGetCurrent"
    (made,) = [a for a in done.report["allocations"] if a["bytes"] == done.answer["bytes"]]
    assert made["kind"] == "device" and made["freed"], made


def test_misuse(tmp_path):
    path = raster(tmp_path, KINDS[0])
    done = work({"do": "misuse", "path": path}, tmp_path, DEVICES=2)
    assert done.answer["untouched"] and done.answer["kept"]


@pytest.mark.parametrize("order", ["lazy", "mixed"])
def test_writing(order, tmp_path):
    """Lazily nothing is in the window before somebody waits for the stream that fills it."""
    path = raster(tmp_path, KINDS[0])
    work_order = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "seed": harness.SEED}
    work(work_order, tmp_path, ORDER=order, SEED=harness.SEED)


def test_a_question_that_fails_once_costs_no_device(tmp_path):
    done = work({"do": "doubt", "path": raster(tmp_path, KINDS[0])}, tmp_path, GPUGTIFF_VERIFY="NO")
    assert [call["symbol"] for call in done.report["injected"]] == ["cuEventQuery"], done.report["injected"]
    assert done.counter("CUDA_TILES_DECODED") == 3 * 16 and done.counter("CUDA_FAULTS") == 0, done


@pytest.mark.parametrize("by", ["AUTO", "a tensor"])
def test_nobody_waits_while_cuda_starts(by, tmp_path):
    """cuInit takes two seconds: windows into host memory are read meanwhile, and questions answered."""
    from osgeo import gdal

    order = {"do": "starting", "path": raster(tmp_path, KINDS[0])}
    if by == "AUTO":
        order["large"] = str(tmp_path / "large.tif")
        how = ["TILED=YES", "SPARSE_OK=TRUE", "COMPRESS=DEFLATE"]
        ds = gdal.GetDriverByName("GTiff").Create(order["large"], 16384, 17408, 1, gdal.GDT_Byte, how)
        ds.WriteRaster(0, 0, 16384, 256, bytes([7]) * (16384 * 256))
        ds = None
    work(order, tmp_path, CUINIT_MS=2000)


def test_a_lost_device(tmp_path):
    path = raster(tmp_path, KINDS[0])
    done = work({"do": "lost", "path": path}, tmp_path)
    # On the way, afterwards, of tensors, and of a raster that was opened later.
    assert done.answer["results"] == [capi.DEVICE_FAILED] * 7, done
    count, result, text = done.answer["device"]
    assert (count, result) == (0, capi.NO_DEVICE) and "failed in this process (CUDA error 700)" in text, done
    # The caller's context comes back, and nvCOMP's version needs no driver.
    others = set(done.report["calls_after_fault"]) - {"cuCtxSetCurrent", "nvcompGetProperties"}
    assert not others, done.report["calls_after_fault"]


def test_no_gpu(tmp_path):
    """Where there is none: a sentence, for windows and tensors alike."""
    import numpy as np

    library = capi.Library(capi.PLUGIN_PATH)
    path = raster(tmp_path, KINDS[0])
    with library.open(path) as open_raster:
        memory = np.zeros(1 << 16, np.uint8)
        into = capi.Buffer(capi.ctypes.sizeof(capi.Buffer), memory.ctypes.data, memory.nbytes, 0, 0, 0, 0, 1, 0, None)
        where = capi.window(0, 0, 16, 16)
        assert open_raster.result("read", where, None, capi.byref(into)) == capi.NO_DEVICE
        assert "driver" in library.message() or "GPU" in library.message()
        with pytest.raises(capi.Failure) as failure:
            open_raster.tensor(device=0)
        assert failure.value.code == capi.NO_DEVICE and not memory.any()
