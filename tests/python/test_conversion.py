"""Pixels of one type read into a buffer of another, by GDAL's rules to the bit: values out of range, NaN and
infinities, whose conversion in GDAL depends on how many pixels one call converts."""

import asks
import harness
import numpy as np
import pytest
from osgeo import gdal

SIZES = ((385, 1), (100, 40), (37, 5))
NUMBERS = {
    gdal.GDT_Float32: [np.nan, np.inf, -np.inf, -0.0, 0.5, 1.5, -0.5, 254.5, 255.5, 65535.5, -32768.5, 3e9, -3e9, 1e20,
                       1e-40, 3e38],
    gdal.GDT_Float64: [np.nan, np.inf, -np.inf, -0.0, 0.5, 2.5, 1e300, -1e300, 4294967295.5, 2.0**63, -(2.0**63),
                       2.0**64, 1e-310, 1e39],
    gdal.GDT_Int32: [-(2**31), 2**31 - 1, -1, 0, 255, 256, 65535, 65536, 2**24 + 1],
    gdal.GDT_UInt32: [0, 2**32 - 1, 2**31, 255, 256, 65536, 2**24 + 1],
    gdal.GDT_Int64: [-(2**63), 2**63 - 1, -1, 2**53 + 1, 2**32, 0],
    gdal.GDT_UInt64: [2**64 - 1, 2**63, 2**53 + 1, 2**32, 0],
    gdal.GDT_Int16: [-32768, 32767, -1, 0, 255, 256],
    gdal.GDT_UInt16: [65535, 32768, 0, 255, 256],
}  # fmt: skip
NUMPY = {gdal.GDT_Float32: "f4", gdal.GDT_Float64: "f8", gdal.GDT_Int32: "i4", gdal.GDT_UInt32: "u4",
         gdal.GDT_Int64: "i8", gdal.GDT_UInt64: "u8", gdal.GDT_Int16: "i2", gdal.GDT_UInt16: "u2"}  # fmt: skip


def _windows(w, h):
    return ((0, 0, w, h), (17, 0, 19, h), (5, 0, 8, h), (5, h // 2, w - 7, 1), (1, 0, 16, 1), (w - 1, h - 1, 1, 1))


def _reads(bands, target):
    size = harness.sample_bytes(target)
    return {
        "dataset": lambda ds, w: ds.ReadRaster(*w, buf_type=target),
        "some bands": lambda ds, w: ds.ReadRaster(*w, buf_type=target, band_list=[bands, 1]),
        "pixel interleaved": lambda ds, w: ds.ReadRaster(
            *w, buf_type=target, buf_pixel_space=bands * size, buf_band_space=size),
        "band": lambda ds, w: ds.GetRasterBand(bands).ReadRaster(*w, buf_type=target),
    }  # fmt: skip


@pytest.mark.parametrize("bands", [1, 2, 6])
@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
@pytest.mark.parametrize("source", sorted(NUMBERS), ids=gdal.GetDataTypeName)
def test_every_target(tmp_path, source, interleave, bands):
    for w, h in SIZES:
        path = str(tmp_path / "c.tif")
        ds = gdal.GetDriverByName("GTiff").Create(
            path, w, h, bands, source,
            ["TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=16", "COMPRESS=LZW", "INTERLEAVE=" + interleave])  # fmt: skip
        values = np.resize(np.array(NUMBERS[source], NUMPY[source]), (bands, h, w))
        ds.WriteRaster(0, 0, w, h, values.tobytes(), buf_type=source)
        ds = None
        for target in asks.BUFFER_TYPES:
            ours, theirs = harness.open_pair(path)
            for name, read in _reads(bands, target).items():
                for window in _windows(w, h):
                    where = "%s to %s, %s, window %s of %d × %d" % (
                        gdal.GetDataTypeName(source), gdal.GetDataTypeName(target), name, window, w, h)  # fmt: skip
                    harness.same_bytes(read(ours, window), read(theirs, window), where)
            harness.check_all_ours(ours)
