"""Files that each carry one kind of thing GTiff tells about a raster. A maker gets a folder, writes a
file (and its sidecars) there and returns its path."""

import os

import harness
import numpy as np
from osgeo import gdal, osr

W, H = 300, 200
MAKERS = {}


def maker(f):
    MAKERS[f.__name__] = f
    return f


def _create(folder, bands=1, kind=gdal.GDT_Byte, **options):
    path = os.path.join(folder, "m.tif")
    options = {"TILED": "YES", "BLOCKXSIZE": 64, "BLOCKYSIZE": 64, "COMPRESS": "DEFLATE", **options}
    ds = gdal.GetDriverByName("GTiff").Create(path, W, H, bands, kind, ["%s=%s" % kv for kv in options.items()])
    y, x = np.mgrid[0:H, 0:W]
    for i in range(1, bands + 1):
        ds.GetRasterBand(i).WriteRaster(0, 0, W, H, ((x // 3 + y * i) % 200).astype(np.uint8).tobytes(),
                                        buf_type=gdal.GDT_Byte)  # fmt: skip
    return path, ds


def _srs(code):
    srs = osr.SpatialReference()
    srs.ImportFromEPSG(code)
    return srs


@maker
def bare(folder):
    return _create(folder)[0]


@maker
def georeferenced(folder):
    path, ds = _create(folder, 3, PHOTOMETRIC="RGB")
    ds.SetSpatialRef(_srs(32631))
    ds.SetGeoTransform([440720, 60, 0, 3751320, 0, -60])
    ds.SetMetadata({"AREA_OR_POINT": "Point", "TIFFTAG_SOFTWARE": "x", "TIFFTAG_DATETIME": "2024:01:01 00:00:00"})
    ds.SetMetadata({"a": "b", "ü": "ß"}, "MINE")
    ds.SetMetadata(["<x:xmpmeta>&lt;</x:xmpmeta>"], "xml:XMP")
    ds.GetRasterBand(2).SetDescription("second")
    ds.GetRasterBand(2).SetMetadataItem("k", "v")
    return path


@maker
def geographic_rotated(folder):
    path, ds = _create(folder)
    ds.SetSpatialRef(_srs(4326))
    ds.SetGeoTransform([2, 0.01, 0.001, 49, 0.001, -0.01])
    return path


@maker
def world_file(folder):
    return _with_transform(_create(folder, TFW="YES", PROFILE="BASELINE"))


def _with_transform(made):
    made[1].SetGeoTransform([10, 2, 0, 20, 0, -2])
    return made[0]


@maker
def ground_control(folder):
    path, ds = _create(folder)
    points = [gdal.GCP(100 + i * 7, 50 - j * 3, 5, i * 99, j * 66, "info%d" % i, "id%d%d" % (i, j))
              for i in range(3) for j in range(3)]  # fmt: skip
    ds.SetGCPs(points, _srs(4326))
    return path


@maker
def rational_polynomials(folder):
    path, ds = _create(folder, PROFILE="GDALGeoTIFF", RPCTXT="YES")
    terms = " ".join(str(0.5 / (i + 1)) for i in range(20))
    ds.SetMetadata({"LINE_OFF": "100", "SAMP_OFF": "150", "LAT_OFF": "10", "LONG_OFF": "20", "HEIGHT_OFF": "5",
                    "LINE_SCALE": "100", "SAMP_SCALE": "150", "LAT_SCALE": "1", "LONG_SCALE": "1",
                    "HEIGHT_SCALE": "100", "LINE_NUM_COEFF": terms, "LINE_DEN_COEFF": terms, "SAMP_NUM_COEFF": terms,
                    "SAMP_DEN_COEFF": terms}, "RPC")  # fmt: skip
    return path


@maker
def scaled(folder):
    path, ds = _create(folder, 2, gdal.GDT_Int16)
    for i, band in enumerate((ds.GetRasterBand(1), ds.GetRasterBand(2))):
        band.SetScale(0.1 + i), band.SetOffset(-273.15), band.SetUnitType("metre")
        band.SetDescription("band %d" % i)
    return path


@maker
def palette(folder):
    path, ds = _create(folder, PHOTOMETRIC="PALETTE")
    table = gdal.ColorTable()
    for i in range(200):
        table.SetColorEntry(i, (i, 255 - i, i // 2, 255))
    ds.GetRasterBand(1).SetColorTable(table)
    ds.GetRasterBand(1).SetNoDataValue(7)
    return path


@maker
def attributes_and_categories(folder):
    path, ds = _create(folder)
    table = gdal.RasterAttributeTable()
    table.CreateColumn("Value", gdal.GFT_Integer, gdal.GFU_MinMax)
    table.CreateColumn("Name", gdal.GFT_String, gdal.GFU_Name)
    for i in range(5):
        table.SetValueAsInt(i, 0, i), table.SetValueAsString(i, 1, "class %d" % i)
    ds.GetRasterBand(1).SetDefaultRAT(table)
    ds.GetRasterBand(1).SetCategoryNames(["none", "water", "land"])
    return path


@maker
def nodata(folder):
    path, ds = _create(folder, 2)
    ds.GetRasterBand(1).SetNoDataValue(5)
    return path


@maker
def nodata_nan(folder):
    path, ds = _create(folder, kind=gdal.GDT_Float32, PREDICTOR=3)
    ds.GetRasterBand(1).SetNoDataValue(float("nan"))
    ds.GetRasterBand(1).WriteRaster(10, 10, 50, 50, np.full(2500, np.nan, np.float32).tobytes())
    return path


@maker
def nodata_int64(folder):
    path, ds = _create(folder, kind=gdal.GDT_Int64)
    ds.GetRasterBand(1).SetNoDataValueAsInt64(-(1 << 63))
    return path


@maker
def nodata_uint64(folder):
    path, ds = _create(folder, kind=gdal.GDT_UInt64)
    ds.GetRasterBand(1).SetNoDataValueAsUInt64((1 << 64) - 1)
    return path


@maker
def alpha(folder):
    return _create(folder, 4, PHOTOMETRIC="RGB", ALPHA="YES")[0]


@maker
def premultiplied_alpha_16(folder):
    return _create(folder, 2, gdal.GDT_UInt16, ALPHA="PREMULTIPLIED")[0]


def _fill_mask(ds):
    bits = ((np.arange(W * H) // 17) % 2 * 255).astype(np.uint8)
    ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, W, H, bits.tobytes())


@maker
def mask_internal(folder):
    path, ds = _create(folder, 3)
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        _fill_mask(ds)
        ds.BuildOverviews("NEAREST", [2, 4])
    return path


@maker
def mask_sidecar(folder):
    path, ds = _create(folder, 3)
    ds = None
    ds = gdal.Open(path)
    with harness.config(GDAL_TIFF_INTERNAL_MASK="NO"):
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        _fill_mask(ds)
    return path


@maker
def overviews_internal(folder):
    path, ds = _create(folder, 2)
    ds.BuildOverviews("AVERAGE", [2, 4, 8])
    return path


@maker
def overviews_sidecar(folder):
    path, ds = _create(folder, 2)
    ds = None
    gdal.Open(path).BuildOverviews("AVERAGE", [2, 4])
    return path


@maker
def directories(folder):
    """Three images in one file: subdatasets."""
    path = os.path.join(folder, "m.tif")
    for i in range(3):
        mem = gdal.GetDriverByName("MEM").Create("", 64, 48 + i)
        mem.GetRasterBand(1).Fill(i + 1)
        options = ["COMPRESS=LZW"] + (["APPEND_SUBDATASET=YES"] if i else [])
        gdal.GetDriverByName("GTiff").CreateCopy(path, mem, options=options)
    return path


@maker
def strips_big_endian_bigtiff(folder):
    return _create(folder, 3, gdal.GDT_Int32, TILED="NO", ENDIANNESS="BIG", BIGTIFF="YES", INTERLEAVE="BAND")[0]


@maker
def auxiliary(folder):
    """PAM beside the file overrides what the file says."""
    path, ds = _create(folder)
    ds = None
    ds = gdal.Open(path)
    ds.SetMetadataItem("from", "pam")
    ds.GetRasterBand(1).SetDescription("pam name")
    ds.GetRasterBand(1).SetNoDataValue(3)
    ds.SetSpatialRef(_srs(3857))
    return path
