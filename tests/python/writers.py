"""Random TIFF files from two writers, GDAL's GTiff and tifffile with imagecodecs.

A `Case` says how a file was made (its repr is enough to make it again), holds its pixels as the
writer got them, and whether our engine must decode all of it (`within`)."""

import dataclasses
import os

import harness
import imagecodecs  # noqa: F401  (without it tifffile writes no LZW, ZSTD or PackBits)
import numpy as np
import tifffile
from osgeo import gdal

GDAL_TYPES = {
    "uint8": gdal.GDT_Byte, "int8": gdal.GDT_Byte, "uint16": gdal.GDT_UInt16, "int16": gdal.GDT_Int16,
    "uint32": gdal.GDT_UInt32, "int32": gdal.GDT_Int32, "uint64": gdal.GDT_UInt64, "int64": gdal.GDT_Int64,
    "float32": gdal.GDT_Float32, "float64": gdal.GDT_Float64, "cint16": gdal.GDT_CInt16,
    "cint32": gdal.GDT_CInt32, "complex64": gdal.GDT_CFloat32, "complex128": gdal.GDT_CFloat64,
}  # fmt: skip
# How many real samples, and of what type, stand for one pixel of a type that numpy lacks or splits.
PARTS = {"cint16": ("int16", 2), "cint32": ("int32", 2), "complex64": ("float32", 2), "complex128": ("float64", 2)}
CODECS = ("NONE", "LZW", "DEFLATE", "PACKBITS", "ZSTD")
PREDICTABLE = ("LZW", "DEFLATE", "ZSTD")


@dataclasses.dataclass
class Case:
    path: str
    writer: str
    dtype: str
    shape: tuple  # bands, height, width
    options: dict
    pixels: bytes = dataclasses.field(repr=False, default=b"")  # band after band
    within: bool = True


# ---- content -------------------------------------------------------------------------------


def _limits(dtype):
    if dtype.kind == "f":
        return -1e4, 1e4
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _plane(np_rng, dtype, h, w):
    """Gradient, noise or constant; the codecs and predictors behave differently on each."""
    kind = np_rng.choice(["gradient", "noise", "constant", "stairs", "runs"])
    lo, hi = _limits(dtype)
    if kind == "noise":
        return np.frombuffer(np_rng.bytes(h * w * dtype.itemsize), dtype).reshape(h, w)
    if kind == "constant":
        return np.full((h, w), dtype.type(np_rng.integers(0, 100)))
    if kind == "runs":
        return np.repeat(np_rng.integers(0, 100, (h, w // 7 + 1)), 7, axis=1)[:, :w].astype(dtype)
    y, x = np.mgrid[0:h, 0:w]
    step = float(np_rng.uniform(0.1, 3))
    values = (x * step + y) if kind == "gradient" else ((x // 5) + (y // 3)) * 17
    if dtype.kind == "f":
        return (values * 0.37).astype(dtype)
    return (values.astype(np.int64) % (min(hi, 1 << 40))).astype(dtype)


def random_plane(rng, dtype_name, h, w):
    """One band as an array of real samples (two a pixel for complex), several textures side by side."""
    np_rng = np.random.default_rng(rng.getrandbits(64))
    base, parts = PARTS.get(dtype_name, (dtype_name, 1))
    dtype, w = np.dtype(base), w * parts
    out = _plane(np_rng, dtype, h, w).copy()
    if h > 2 and w > 2:
        y, x = int(np_rng.integers(h)), int(np_rng.integers(w))
        out[y:, x:] = _plane(np_rng, dtype, h - y, w - x)
    if dtype.kind == "f" and out.size > 16:
        spots = np_rng.integers(0, out.size, 6)
        # A signalling NaN with a payload survives only where no float arithmetic touches it.
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny / 4, 0], dtype)
        odd.view("u%d" % dtype.itemsize)[5] = 0x7FA12345 if dtype.itemsize == 4 else 0x7FF4000012345678
        out.reshape(-1)[spots] = odd
    return out


def random_size(rng, most=420):
    """Mostly a few tiles; now and then one pixel wide, high, or both."""
    pick = lambda: rng.choice([1, 2, 15, 16, 17, 31, 33, 64, 100, rng.randint(1, most), rng.randint(1, most)])  # noqa: E731
    return pick(), pick()


# ---- GDAL's own writer ---------------------------------------------------------------------


def gdal_options(rng, dtype, h, w):
    """Creation options drawn from everything issue point 4 names."""
    o = {"COMPRESS": rng.choice(CODECS), "INTERLEAVE": rng.choice(["PIXEL", "BAND"]),
         "ENDIANNESS": rng.choice(["LITTLE", "BIG"]), "BIGTIFF": rng.choice(["YES", "NO"])}  # fmt: skip
    if rng.random() < 0.6:
        o.update(TILED="YES", BLOCKXSIZE=16 * rng.randint(1, 10), BLOCKYSIZE=16 * rng.randint(1, 10))
    else:
        o["BLOCKYSIZE"] = rng.choice([1, 2, 3, rng.randint(1, h), h])
    real = dtype not in PARTS
    if o["COMPRESS"] in PREDICTABLE and rng.random() < 0.7:
        if real and dtype.startswith("float"):
            o["PREDICTOR"] = rng.choice([2, 3, 3])
        elif real:
            o["PREDICTOR"] = 2
    if dtype == "int8":
        o["PIXELTYPE"] = "SIGNEDBYTE"
    if rng.random() < 0.3:
        o["SPARSE_OK"] = "YES"
    return o


def _fill(rng, ds, case, sparse):
    """Writes random planes; with SPARSE_OK only some windows of them, the rest stays a hole."""
    bands, h, w = case.shape
    gdal_type, size = GDAL_TYPES[case.dtype], harness.sample_bytes(GDAL_TYPES[case.dtype])
    for i in range(1, bands + 1):
        plane = random_plane(rng, case.dtype, h, w)
        if not sparse:
            ds.GetRasterBand(i).WriteRaster(0, 0, w, h, plane.tobytes(), buf_type=gdal_type)
            continue
        bx, by = ds.GetRasterBand(i).GetBlockSize()
        for y in range(0, h, by):
            for x in range(0, w, bx):
                if rng.random() < 0.5:
                    n, m = min(bx, w - x), min(by, h - y)
                    rows = np.ascontiguousarray(plane).view(np.uint8).reshape(h, w * size)
                    ds.GetRasterBand(i).WriteRaster(
                        x, y, n, m, rows[y : y + m, x * size : (x + n) * size].tobytes(), buf_type=gdal_type)  # fmt: skip


def _nodata(rng, case, ds):
    """Returns the nodata set, of any of the three kinds GDAL knows, or None."""
    if rng.random() > 0.4:
        return None
    band = ds.GetRasterBand(1)
    if case.dtype == "int64":
        value = rng.choice([-(1 << 63), (1 << 53) + 1, -1])
        band.SetNoDataValueAsInt64(value)
    elif case.dtype == "uint64":
        value = rng.choice([(1 << 64) - 1, (1 << 53) + 1, 0])
        band.SetNoDataValueAsUInt64(value)
    else:
        value = rng.choice([0, 1, float("nan")]) if case.dtype.startswith("float") else rng.choice([0, 1, 99])
        band.SetNoDataValue(value)
    return value


def _resampling(rng, dtype):
    """GDAL 3.6 takes seconds to average a complex raster of this size."""
    return "NEAREST" if dtype in PARTS else rng.choice(["NEAREST", "AVERAGE"])


def _overviews(rng, case, path, sparse):
    """Internal ones or a .ovr with a codec of its own."""
    if rng.random() > 0.3 or min(case.shape[1:]) < 8:
        return None
    kind = rng.choice(["internal", "external"])
    if case.dtype in ("int64", "uint64") and case.options["nodata"] is not None:
        kind = "external"  # GTiff 3.6 loops for ever closing such a file with internal ones
    ds = gdal.OpenEx(path, gdal.OF_RASTER | (gdal.OF_UPDATE if kind == "internal" else 0), allowed_drivers=["GTiff"])
    settings = dict(COMPRESS_OVERVIEW=rng.choice(CODECS), INTERLEAVE_OVERVIEW=rng.choice(["PIXEL", "BAND"]))
    if not sparse:
        settings["GDAL_TIFF_OVR_BLOCKSIZE"] = rng.choice(["64", "128"])
    with harness.config(**settings):
        failed = ds.BuildOverviews(_resampling(rng, case.dtype), [2, 4])
    assert failed == 0, gdal.GetLastErrorMsg()
    return kind, settings


def _internal_mask(rng, ds, case):
    _, h, w = case.shape
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
    bits = np.random.default_rng(rng.getrandbits(64)).integers(0, 2, (h, w)).astype(np.uint8) * 255
    ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, bits.tobytes())


def write_gdal(rng, folder, name="g.tif", most=420):
    """A random file from GTiff's own writer."""
    dtype = rng.choice(sorted(GDAL_TYPES))
    h, w = random_size(rng, most)
    bands = rng.choice([1, 1, 1, 2, 3, 4, 5, 17])
    path = os.path.join(str(folder), name)
    options = gdal_options(rng, dtype, h, w)
    case = Case(path, "GDAL", dtype, (bands, h, w), dict(options))
    ds = gdal.GetDriverByName("GTiff").Create(
        path, w, h, bands, GDAL_TYPES[dtype], ["%s=%s" % kv for kv in options.items()])  # fmt: skip
    assert ds is not None, (case, gdal.GetLastErrorMsg())
    sparse = "SPARSE_OK" in options
    case.options["nodata"] = _nodata(rng, case, ds)
    if rng.random() < 0.2 and case.options["nodata"] is None:
        case.options["mask"] = "internal"
        _internal_mask(rng, ds, case)
    _fill(rng, ds, case, sparse)
    ds = None
    case.options["overviews"] = _overviews(rng, case, path, sparse)
    return case


def write_cog(rng, folder, name="c.tif"):
    """A file of the COG driver: ghost area, block leaders and trailers, overviews before the image."""
    source = write_gdal(rng, folder, "source.tif", most=700)
    options = {"COMPRESS": rng.choice([c for c in CODECS if c != "PACKBITS"]), "BLOCKSIZE": rng.choice([128, 256]),
               "PREDICTOR": rng.choice(["NO", "YES"]) if source.dtype not in PARTS else "NO",
               "RESAMPLING": _resampling(rng, source.dtype)}  # fmt: skip
    path = os.path.join(str(folder), name)
    ds = gdal.GetDriverByName("COG").CreateCopy(
        path, harness.open_gtiff(source.path), options=["%s=%s" % kv for kv in options.items()])  # fmt: skip
    assert ds is not None, gdal.GetLastErrorMsg()
    return Case(path, "COG", source.dtype, source.shape, {**options, "source": source.options})


# ---- tifffile ------------------------------------------------------------------------------

TIFFFILE_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
                  "float32", "float64", "complex64", "complex128")  # fmt: skip
# 'zlib' writes compression 8, 'deflate' 32946.
TIFFFILE_CODECS = (None, "lzw", "zlib", "deflate", "zstd", "packbits")


def tifffile_options(rng, dtype, h):
    o = {"byteorder": rng.choice("<>"), "bigtiff": rng.random() < 0.4, "compression": rng.choice(TIFFFILE_CODECS),
         "planarconfig": rng.choice(["contig", "separate"])}  # fmt: skip
    if o["compression"] in ("lzw", "zlib", "deflate", "zstd") and dtype not in PARTS and rng.random() < 0.6:
        o["predictor"] = 3 if dtype.startswith("float") else 2
    if rng.random() < 0.6:
        o["tile"] = (16 * rng.randint(1, 8), 16 * rng.randint(1, 8))
    else:
        o["rowsperstrip"] = rng.choice([1, 3, 7, rng.randint(1, h), h])
    return o


def write_tifffile(rng, folder, name="t.tif", dtype=None, **fixed):
    """A random file from tifffile; `fixed` overrides what is drawn."""
    dtype = dtype or rng.choice(TIFFFILE_TYPES)
    h, w = random_size(rng)
    bands = rng.choice([1, 1, 3, 4, 6, 70])
    if bands == 70:
        h, w = min(h, 40), min(w, 40)
    o = {**tifffile_options(rng, dtype, h), **fixed}
    plane = lambda: random_plane(rng, dtype, h, w).view(dtype)  # noqa: E731
    data = np.stack([plane() for _ in range(bands)])
    path = os.path.join(str(folder), name)
    case = Case(path, "tifffile", dtype, (bands, h, w), dict(o), data.tobytes())
    args = {k: v for k, v in o.items() if k not in ("byteorder", "bigtiff")}
    contig = args["planarconfig"] == "contig"
    array = data[0] if bands == 1 else (np.moveaxis(data, 0, -1) if contig else data)
    if bands == 1:
        del args["planarconfig"]
    else:
        args["extrasamples"] = ["unspecified"] * (bands - 1)
    with tifffile.TiffWriter(path, bigtiff=o["bigtiff"], byteorder=o["byteorder"]) as tif:
        tif.write(np.ascontiguousarray(array), photometric="minisblack", metadata=None, **args)
    return case


def write_random(rng, folder):
    write = rng.choice([write_gdal, write_gdal, write_gdal, write_tifffile, write_tifffile, write_cog])
    with harness.Errors():  # warnings of the writers about odd combinations say nothing about reading
        return write(rng, folder)
