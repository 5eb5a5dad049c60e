"""Tags that are set after pixels, and tiles that are written twice: codecs that only GDAL has depend on the tags, and
the lossy ones show how often a tile was encoded. GTiff, whose block cache holds all of these rasters, is asked the same."""

import harness
import numpy as np
import pytest
from osgeo import gdal

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="about GPUGTiff itself")

TILED = ["TILED=YES", "BLOCKXSIZE=128", "BLOCKYSIZE=128"]


def numbers(name):
    return np.random.default_rng(harness.rng(name).getrandbits(32))


def by_both(tmp_path, shape, kind, options, change, batch_mb=1):
    """-> the pixels that each driver's file has, None if it cannot be read, and its errors at close."""
    found = []
    for driver in ("GTiff", harness.DRIVER):
        path = str(tmp_path / (driver + ".tif"))
        with harness.Errors() as errors:
            given = TILED + options
            if driver == harness.DRIVER:
                given += ["BATCH_MB=%d" % batch_mb, "NUM_THREADS=2"]
            ds = gdal.GetDriverByName(driver).Create(path, shape[2], shape[1], shape[0], kind, given)
            change(ds)
            ds = None
        with harness.Errors():
            ds = gdal.OpenEx(path, allowed_drivers=["GTiff"])
            found.append((ds and ds.ReadAsArray(), errors.failures()))
    return found


def test_late_alpha_of_lerc(tmp_path):
    """LERC makes a mask of alpha: tiles that were encoded without one are encoded again."""
    pixels = numbers("alpha").integers(0, 2, (4, 900, 900), np.uint8) * 255

    def change(ds):
        ds.WriteArray(pixels)
        assert ds.GetRasterBand(4).SetColorInterpretation(gdal.GCI_AlphaBand) == 0

    theirs, ours = by_both(tmp_path, pixels.shape, gdal.GDT_Byte, ["COMPRESS=LERC", "ALPHA=NO"], change)
    assert not ours[1] and (ours[0] == theirs[0]).all() and (ours[0][3] == pixels[3]).all()


@pytest.mark.parametrize("options,interpretation", [(["ALPHA=YES"], gdal.GCI_Undefined), (["ALPHA=YES"], gdal.GCI_GrayIndex),
                                                    (["ALPHA=NO", "MAX_Z_ERROR=3"], gdal.GCI_AlphaBand)])  # fmt: skip
def test_alpha_that_changes_after_tiles_lost_something(tmp_path, options, interpretation):
    """Colours under alpha are lost, or would be within MAX_Z_ERROR twice: an error that says what to do, and no TIFF."""
    pixels = numbers("loss").integers(0, 255, (4, 900, 900), np.uint8)

    def change(ds):
        ds.WriteArray(pixels)
        ds.GetRasterBand(4).SetColorInterpretation(interpretation)

    array, failures = by_both(tmp_path, pixels.shape, gdal.GDT_Byte, ["COMPRESS=LERC", *options], change)[1]
    assert array is None and "set it before the first pixel" in "".join(failures), failures


@pytest.mark.parametrize("codec", ["DEFLATE", "ZSTD", "LZMA"])
def test_discarded_bits_and_a_late_nodata_value(tmp_path, codec):
    """DISCARD_LSB leaves the nodata value alone, which many programs set after the pixels."""
    pixels = np.full((1, 900, 900), -9999, np.float32)
    pixels[:, ::2] = numbers("bits").random((1, 450, 900), np.float32)

    def change(ds):
        ds.WriteArray(pixels[0])
        ds.GetRasterBand(1).SetNoDataValue(-9999)

    theirs, ours = by_both(tmp_path, pixels.shape, gdal.GDT_Float32, ["COMPRESS=" + codec, "DISCARD_LSB=12"], change)
    assert (ours[0] == theirs[0]).all() and (ours[0][1::2] == -9999).all()


@pytest.mark.parametrize("options", [["COMPRESS=JPEG"], ["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR"], ["COMPRESS=WEBP"]])
@pytest.mark.parametrize("size", [200, 1000])
def test_tiles_written_again_are_encoded_once(tmp_path, options, size):
    """One large write and some small ones into it, within a batch: no tile loses twice."""
    rng = numbers("again")
    pixels = (np.add.outer(np.arange(size), np.arange(size)) % 251).astype(np.uint8) * np.ones((3, 1, 1), np.uint8)
    windows = [(int(x), int(y)) for x, y in rng.integers(0, size - 10, (20, 2))]

    def change(ds):
        ds.WriteArray(pixels)
        for x, y in windows:
            ds.WriteRaster(x, y, 10, 10, bytes(300), 10, 10, gdal.GDT_Byte, [1, 2, 3])

    theirs, ours = by_both(tmp_path, pixels.shape, gdal.GDT_Byte, options, change, batch_mb=64)
    assert (ours[0] == theirs[0]).all()
