"""Tiles or strips, as the block size says (rasterio's profile of a striped file has one, and no TILED)."""

import harness
import pytest
import written
from osgeo import gdal

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="about GPUGTiff itself")

WIDTH, HEIGHT = 400, 300

LAYOUTS = [
    ({}, [256, 256]),
    ({"BLOCKYSIZE": 2}, [WIDTH, 2]),
    ({"BLOCKYSIZE": 37}, [WIDTH, 37]),
    ({"BLOCKXSIZE": WIDTH, "BLOCKYSIZE": 2}, [WIDTH, 2]),
    ({"BLOCKXSIZE": WIDTH, "BLOCKYSIZE": 128}, [WIDTH, 128]),
    ({"BLOCKXSIZE": 128, "BLOCKYSIZE": 64}, [128, 64]),
    ({"BLOCKXSIZE": 128}, [128, 256]),
    ({"BLOCKXSIZE": 512, "BLOCKYSIZE": 512}, [512, 512]),
    ({"TILED": "NO", "BLOCKXSIZE": 128, "BLOCKYSIZE": 3}, [WIDTH, 3]),
    ({"TILED": "YES", "BLOCKXSIZE": WIDTH, "BLOCKYSIZE": 16}, [WIDTH, 16]),
]


@pytest.fixture(scope="module")
def pixels():
    mem = gdal.GetDriverByName("MEM").Create("", WIDTH, HEIGHT)
    mem.GetRasterBand(1).WriteRaster(0, 0, WIDTH, HEIGHT, bytes(i * i % 251 for i in range(WIDTH * HEIGHT)))
    return mem


@pytest.mark.parametrize("options,block", LAYOUTS)
def test_layout(tmp_path, pixels, options, block):
    driver = gdal.GetDriverByName("GPUGTiff")
    asked = ["%s=%s" % pair for pair in options.items()]
    copied, created = str(tmp_path / "copied.tif"), str(tmp_path / "created.tif")
    with harness.Errors() as errors:
        driver.CreateCopy(copied, pixels, options=asked)
        ds = driver.Create(created, WIDTH, HEIGHT, 1, gdal.GDT_Byte, asked)
        ds.WriteRaster(0, 0, WIDTH, HEIGHT, pixels.ReadRaster())
        assert written.counter(ds, written.BY_GTIFF) == 0
        ds = None
    assert not errors.failures()
    for path in (copied, created):
        ds = harness.open_gtiff(path)
        assert ds.GetRasterBand(1).GetBlockSize() == block, path
        harness.same_bytes(ds.ReadRaster(), pixels.ReadRaster(), path)


@pytest.mark.parametrize("options", [
    {"TILED": "YES", "BLOCKYSIZE": 2}, {"TILED": "YES", "BLOCKXSIZE": WIDTH + 1, "BLOCKYSIZE": 256},
    {"BLOCKXSIZE": 100, "BLOCKYSIZE": 256}, {"TILED": "YES", "BLOCKXSIZE": -16},
])  # fmt: skip
def test_impossible_tiles(tmp_path, pixels, options):
    """One error, ours, that says what is allowed, and no file."""
    driver = gdal.GetDriverByName("GPUGTiff")
    asked = ["%s=%s" % pair for pair in options.items()]
    path = tmp_path / "o.tif"
    for make in (lambda: driver.CreateCopy(str(path), pixels, options=asked),
                 lambda: driver.Create(str(path), WIDTH, HEIGHT, 1, gdal.GDT_Byte, asked)):  # fmt: skip
        with harness.Errors() as errors:
            assert make() is None
        assert len(errors.failures()) == 1, errors
        assert "SIZE=" in errors.failures()[0] and "expected a multiple of 16" in errors.failures()[0]
        assert not path.exists()
