"""A device that packs wrongly and says that all is well: what is written was unpacked by the CPU and
compared with the pixels first, so that the file is right. Which algorithm a level stands for."""

import emulated
import harness
import numpy as np
import pytest
import test_cuda
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def write(tmp_path, codec, tile, more=(), size=(700, 500), name="out.tif", **settings):
    """Has the device pack pixels that nobody has packed so before; GTiff reads what was written."""
    path = str(tmp_path / "in.tif")
    if not (tmp_path / "in.tif").exists():
        test_cuda.make(path, "u2", size=size, options=["COMPRESS=NONE"])
    how = test_cuda.options(codec, 2, tile) + list(more)
    order = {"do": "write", "path": path, "target": str(tmp_path / name), "options": how}
    return emulated.work(order, tmp_path, **settings)


def told(done):
    return [text for _, _, text in done.answer["messages"] if "gives other results than the CPU" in text]


@pytest.mark.parametrize("codec", ["DEFLATE", "ZSTD"])
@pytest.mark.parametrize("verify, wrong", [("FIRST", 100), ("ALL", 30)])
def test_a_device_that_encodes_wrongly(codec, verify, wrong, tmp_path):
    """The batch is encoded again by the CPU, and so is all that follows."""
    done = emulated.right(write(tmp_path, codec, 32, WRONG_PACK=wrong, GPUGTIFF_VERIFY=verify))
    assert done.counter("CUDA_MISMATCHES") >= 1 and done.counter("CUDA_TILES_REDONE") > 0, done
    assert done.counter("TILES_ENCODED") == done.counter("CUDA_TILES_REDONE") + sum(
        done.counter("CUDA_TILES_" + name) for name in ("ENCODED", "LEFT_TO_CPU")), done  # fmt: skip
    (text,) = told(done)
    assert "encoding" in text and codec.title() in text, text


@pytest.mark.parametrize("codec", ["DEFLATE", "ZSTD"])
def test_nothing_but_the_comparison_notices(codec, tmp_path):
    """Else the tests above would show nothing: with VERIFY=NO the same device spoils the file."""
    done = write(tmp_path, codec, 32, WRONG_PACK=100, GPUGTIFF_VERIFY="NO")
    assert done.status == 0 and not done.answer["same"] and not told(done), done
    assert done.counter("CUDA_TILES_VERIFIED") == done.counter("CUDA_TILES_REDONE") == 0, done


# 181² samples of two bytes are just below 64 KiB, 182² just above; tiles are multiples of 16.
BELOW, ABOVE = 176, 192


@pytest.mark.parametrize("tile", [BELOW, ABOVE])
def test_large_deflate_tiles_are_compared_whatever_verify_says(tile, tmp_path):
    """All tiles of the first batch of that size, and none of the later ones."""
    size = (tile * 8, tile * 24)
    done = write(tmp_path, "DEFLATE", tile, ["BATCH_MB=24"], size, GPUGTIFF_VERIFY="NO", SMS=8)
    emulated.alone(done)
    batches, verified = done.counter("CUDA_BATCHES"), done.counter("CUDA_TILES_VERIFIED")
    assert done.counter("CUDA_TILES_ENCODED") == 8 * 24 and batches > 3, done
    assert (0 < verified < 8 * 24 / 2) if tile == ABOVE else verified == 0, done


@pytest.mark.parametrize("codec, noticed", [("DEFLATE", True), ("ZSTD", False)])
def test_large_tiles_that_are_packed_wrongly(codec, noticed, tmp_path):
    """ZSTD tiles are in doubt from 16 MB on only."""
    done = write(tmp_path, codec, ABOVE, size=(ABOVE * 8, ABOVE * 8), WRONG_PACK=200, GPUGTIFF_VERIFY="NO")
    assert done.status == 0 and done.answer["same"] == noticed, done
    assert len(told(done)) == (done.counter("CUDA_MISMATCHES") > 0) == noticed, done


# ---- levels --------------------------------------------------------------------------------------

# By the number of nvCOMP's algorithm.
LEVELS = {1: [1], 2: [None, 2, 5], 4: [6, 8], 5: [9, 12]}


def test_each_level_has_its_algorithm(tmp_path):
    """The emulated nvCOMP looks for repetitions as hard as it is told to: so many kinds of files there are,
    and the harder it looks, the smaller they are."""
    sizes = []
    for levels in LEVELS.values():
        made = set()
        for level in levels:
            more = ["ZLEVEL=%d" % level] if level else []
            done = emulated.alone(write(tmp_path, "DEFLATE", 128, more))
            made.add((done.answer["bytes"], done.answer["sha"]))
        assert len(made) == 1, (levels, made)
        sizes.append(made.pop()[0])
    assert sizes == sorted(set(sizes), reverse=True), sizes


@pytest.mark.parametrize("codec, foreign, own", [
    ("DEFLATE", "ZSTD_LEVEL=1", ["ZLEVEL=6", "LEVEL=6"]), ("ZSTD", "ZLEVEL=1", ["ZSTD_LEVEL=9", "LEVEL=9"])])  # fmt: skip
def test_a_level_of_another_codec_is_none(codec, foreign, own, tmp_path):
    """It neither chooses an algorithm nor is it said to have no effect."""
    seen = []
    for more in ([], [foreign], *([option] for option in own)):
        done = emulated.alone(write(tmp_path, codec, 128, more))
        said = any("has no effect on the GPU" in text for _, _, text in done.answer["messages"])
        seen.append((done.answer["sha"], said))
    none, other, *given = seen
    assert none == other and none not in given and given[0] == given[1], seen


def test_a_mask_has_the_level_of_its_own_codec(tmp_path):
    """GTiff packs masks by Deflate, whatever the image is packed by: only ZLEVEL is theirs."""
    path, size = test_cuda.make(tmp_path / "in.tif", "u2", size=(700, 500)), 700 * 500
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        ds = gdal.Open(path, gdal.GA_Update)
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        bits = np.random.default_rng(harness.SEED).integers(0, 10, size) == 0
        ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, 700, 500, (bits * 255).astype("u1").tobytes())
        ds = None
    seen = {}
    for more in ("", "ZSTD_LEVEL=9", "LEVEL=9", "ZLEVEL=9"):
        done = write(tmp_path, "ZSTD", 128, more.split(), GDAL_TIFF_INTERNAL_MASK="YES")
        emulated.alone(done)
        assert done.counter("CUDA_TILES_ENCODED") == 2 * 6 * 4, "image and mask"
        said = any("ZSTD_LEVEL has no effect on the GPU" in text for _, _, text in done.answer["messages"])
        assert said == (more in ("ZSTD_LEVEL=9", "LEVEL=9")), done
        seen[more] = done.answer["sha"]
    assert seen[""] == seen["ZSTD_LEVEL=9"] == seen["LEVEL=9"] != seen["ZLEVEL=9"], seen
