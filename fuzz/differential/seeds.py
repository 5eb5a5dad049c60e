"""Small valid files of every codec and layout, to be mutated."""

import glob
import os

import paths
import harness  # noqa: I001
import mutate
import numpy as np
from osgeo import gdal

W, H = 70, 53
MOST_BYTES = 120_000
TILES = ["TILED=YES", "BLOCKXSIZE=32", "BLOCKYSIZE=16"]
STRIPS = ["BLOCKYSIZE=9"]
BYTE, U16, I16, F32, F64, I64 = (gdal.GDT_Byte, gdal.GDT_UInt16, gdal.GDT_Int16, gdal.GDT_Float32, gdal.GDT_Float64,
                                 gdal.GDT_Int64)  # fmt: skip
CF32, CI16 = gdal.GDT_CFloat32, gdal.GDT_CInt16

# Name: (bands, type, creation options). The codecs of our own engines come first.
OURS = {
    "none": (2, U16, TILES),
    "none-strips": (1, BYTE, STRIPS),
    "none-lone-strip": (1, U16, ["BLOCKYSIZE=%d" % H]),
    "lzw2": (3, BYTE, TILES + ["COMPRESS=LZW", "PREDICTOR=2"]),
    "lzw-strips-big": (2, I16, STRIPS + ["COMPRESS=LZW", "PREDICTOR=2", "ENDIANNESS=BIG"]),
    "deflate3": (1, F32, TILES + ["COMPRESS=DEFLATE", "PREDICTOR=3"]),
    "deflate-planes": (3, U16, TILES + ["COMPRESS=DEFLATE", "INTERLEAVE=BAND", "BIGTIFF=YES"]),
    "deflate-complex": (1, CF32, TILES + ["COMPRESS=DEFLATE"]),
    "deflate-big3": (2, F64, STRIPS + ["COMPRESS=DEFLATE", "PREDICTOR=3", "ENDIANNESS=BIG"]),
    "deflate-ci16": (2, CI16, STRIPS + ["COMPRESS=DEFLATE", "ENDIANNESS=BIG"]),
    "packbits": (3, BYTE, STRIPS + ["COMPRESS=PACKBITS"]),
    "packbits-tiles": (1, U16, TILES + ["COMPRESS=PACKBITS"]),
    "zstd2": (2, U16, TILES + ["COMPRESS=ZSTD", "PREDICTOR=2"]),
    "sparse": (2, U16, TILES + ["COMPRESS=LZW", "SPARSE_OK=YES"]),
    "sparse-i64": (1, I64, TILES + ["COMPRESS=DEFLATE", "SPARSE_OK=YES"]),
    "bits1": (1, BYTE, TILES + ["COMPRESS=LZW", "NBITS=1"]),
    "mask": (3, BYTE, TILES + ["COMPRESS=DEFLATE"]),
}
GTIFFS = {
    "bits4": (1, BYTE, STRIPS + ["COMPRESS=DEFLATE", "NBITS=4"]),
    "bits12": (1, U16, TILES + ["COMPRESS=LZW", "NBITS=12"]),
    "jpeg": (3, BYTE, TILES + ["COMPRESS=JPEG", "INTERLEAVE=PIXEL"]),
    "jpeg-ycbcr": (3, BYTE, TILES + ["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR"]),
    "jpeg-planes": (3, BYTE, STRIPS[:0] + ["BLOCKYSIZE=16", "COMPRESS=JPEG", "INTERLEAVE=BAND"]),
    "lzma": (2, U16, TILES + ["COMPRESS=LZMA"]),
    "lzma-planes": (3, U16, TILES + ["COMPRESS=LZMA", "INTERLEAVE=BAND"]),
    "lerc": (2, F32, TILES + ["COMPRESS=LERC"]),
    "lerc-deflate": (3, U16, TILES + ["COMPRESS=LERC_DEFLATE", "INTERLEAVE=BAND"]),
    "webp": (3, BYTE, TILES + ["COMPRESS=WEBP", "WEBP_LOSSLESS=YES"]),
    "fax4": (1, BYTE, STRIPS + ["COMPRESS=CCITTFAX4", "NBITS=1"]),
    "fax3": (1, BYTE, STRIPS + ["COMPRESS=CCITTFAX3", "NBITS=1"]),
}


def pixels(dtype, band, name):
    """Something smooth with noise in it, and for the masks and the sparse files much of nothing."""
    y, x = np.mgrid[0:H, 0:W]
    values = x * 3 + y * band * 5 + (x * y) % 7
    if "sparse" in name:
        values = np.where((x < 32) & (y < 16), values, 0)
    if "bits1" in name or "fax" in name:
        values = (values // 40) % 2
    elif "bits4" in name:
        values = values % 16
    kinds = {BYTE: np.uint8, U16: np.uint16, I16: np.int16, F32: np.float32, F64: np.float64, I64: np.int64,
             CF32: np.complex64, CI16: np.int16}  # fmt: skip
    values = values.astype(kinds[dtype])
    return np.stack([values, values + 1], axis=-1) if dtype == CI16 else values


def make(name, spec, path):
    bands, dtype, options = spec
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        ds = gdal.GetDriverByName("GTiff").Create(path, W, H, bands, dtype, options)
        if ds is None:
            return None
        if "sparse" in name:
            ds.GetRasterBand(1).SetNoDataValue(7)
        for band in range(1, bands + 1):
            ds.GetRasterBand(band).WriteRaster(0, 0, W, H, pixels(dtype, band, name).tobytes(), buf_type=dtype)
        if name == "mask":
            ds.CreateMaskBand(gdal.GMF_PER_DATASET)
            ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, W, H, bytes([0, 255]) * (W * H // 2))
        if name in ("lzw2", "mask", "deflate-planes", "zstd2", "jpeg-ycbcr", "lerc"):
            ds.BuildOverviews("NEAREST", [2])
        ds = None
    return path


def generate():
    """Makes the seeds where they are not there yet; -> {name: path}."""
    os.makedirs(paths.SEEDS, exist_ok=True)
    found = {}
    with harness.Errors():
        for name, spec in {**OURS, **GTIFFS}.items():
            path = os.path.join(paths.SEEDS, name + ".tif")
            if not os.path.exists(path):
                temporary = "%s.%d" % (path, os.getpid())
                if make(name, spec, temporary) is None:
                    continue
                os.rename(temporary, path)
            found[name] = path
        _cog(found)
    return found


def _cog(found):
    path = os.path.join(paths.SEEDS, "cog.tif")
    if not os.path.exists(path):
        source = gdal.Open(found["mask"])
        options = ["COMPRESS=LZW", "BLOCKSIZE=128"]
        temporary = "%s.%d" % (path, os.getpid())
        if gdal.GetDriverByName("COG").CreateCopy(temporary, source, options=options) is None:
            return
        os.rename(temporary, path)
    found["cog"] = path


def corpus():
    """Files of others, where they are: {path from the folder: path}."""
    found = {}
    for folder in (paths.CORPUS, paths.SHARED_FINDINGS):
        for path in sorted(glob.glob(os.path.join(folder, "**", "*.tif*"), recursive=True)):
            if 0 < os.path.getsize(path) <= MOST_BYTES:
                found[os.path.relpath(path, folder)] = path
    return found


def zstd_frames():
    """Hashes of the ZSTD frames of the seeds that GTiff made; files of others may be damaged."""
    frames = set()
    for path in generate().values():
        with open(path, "rb") as f:
            frames |= mutate.zstd_frames(f.read())
    return frames - {None}


def codecs_ours():
    return set(OURS) | {"cog"}
