"""Random requests. An ask is plain data (so that a failure can print it) and `answer` runs it on a
dataset; the answers of ours and of GTiff must be the same bytes.

Buffers are filled with a pattern first: bytes between the pixels must stay as they were."""

import ctypes

import harness
from osgeo import gdal

BUFFER_TYPES = [gdal.GDT_Byte, gdal.GDT_UInt16, gdal.GDT_Int16, gdal.GDT_UInt32, gdal.GDT_Int32, gdal.GDT_UInt64,
                gdal.GDT_Int64, gdal.GDT_Float32, gdal.GDT_Float64, gdal.GDT_CInt16, gdal.GDT_CInt32,
                gdal.GDT_CFloat32, gdal.GDT_CFloat64]  # fmt: skip
RESAMPLING = [gdal.GRIORA_NearestNeighbour, gdal.GRIORA_Bilinear, gdal.GRIORA_Cubic, gdal.GRIORA_CubicSpline,
              gdal.GRIORA_Lanczos, gdal.GRIORA_Average, gdal.GRIORA_Mode, gdal.GRIORA_Gauss, gdal.GRIORA_RMS]  # fmt: skip
PATTERN = 0xA5
KINDS = ("band", "band", "dataset", "dataset", "dataset", "resampled", "resampled", "resampled_dataset", "blocks",
         "walk", "rows", "pixels", "mask", "resampled_mask", "mask_level", "overview", "overview_mask", "upside_down",
         "advise")  # fmt: skip


def _window(rng, w, h):
    """Any size, aligned to nothing, with a taste for the edges and the whole."""
    if rng.random() < 0.15:
        return 0, 0, w, h
    n, m = rng.randint(1, w), rng.randint(1, h)
    if rng.random() < 0.4:
        n, m = min(n, 40), min(m, 40)
    x, y = rng.randint(0, w - n), rng.randint(0, h - m)
    if rng.random() < 0.2:
        x, y = w - n, h - m
    return x, y, n, m


def _spaces(rng, size, width, height, bands=1):
    """Pixel, line and band spacing, packed or with odd gaps, in any nesting order."""
    gap = lambda: rng.choice([0, 0, 1, 3, 7, 16])  # noqa: E731
    if bands > 1 and rng.random() < 0.5:  # pixel interleaved
        band = size + gap()
        pixel = band * bands + gap()
        return pixel, pixel * width + gap(), band
    pixel = size + gap()
    if rng.random() < 0.2:  # columns outermost
        line = size + gap()
        pixel = line * height + gap()
        return pixel, line, pixel * width + gap()
    line = pixel * width + gap()
    return pixel, line, line * height + gap()


def random_ask(rng, ds):
    """One ask that fits the dataset."""
    w, h, n = ds.RasterXSize, ds.RasterYSize, ds.RasterCount
    kind = rng.choice(KINDS)
    band = ds.GetRasterBand(rng.randint(1, n))
    ask = {"kind": kind, "band": band.GetBand(), "type": rng.choice(BUFFER_TYPES + [band.DataType] * 8)}
    if kind in ("overview", "overview_mask"):
        if not band.GetOverviewCount():
            return random_ask(rng, ds)
        ask["level"] = rng.randrange(band.GetOverviewCount())
        w, h = band.GetOverview(ask["level"]).XSize, band.GetOverview(ask["level"]).YSize
    if kind == "mask_level":
        levels = band.GetMaskBand().GetOverviewCount()
        if not levels:
            return random_ask(rng, ds)
        ask["level"] = rng.randrange(levels)
        w, h = (getattr(band.GetMaskBand().GetOverview(ask["level"]), side) for side in ("XSize", "YSize"))
    bx, by = band.GetBlockSize()
    across, down = -(-w // bx), -(-h // by)
    if kind == "blocks":
        ask["blocks"] = [(rng.randrange(across), rng.randrange(down)) for _ in range(rng.randint(1, 5))]
        return ask
    if kind == "walk":
        first = rng.randrange(across * down)
        ask["blocks"] = [(i % across, i // across) for i in range(first, min(across * down, first + 60))]
        return ask
    if kind == "pixels":
        ask["pixels"] = [(rng.randrange(w), rng.randrange(h)) for _ in range(rng.randint(1, 10))]
        return ask
    if kind == "rows":
        first = rng.randrange(h)
        ask["rows"] = list(range(first, min(h, first + rng.randint(1, 50))))
        return ask
    ask["window"] = _window(rng, w, h)
    _buffer(rng, ask, n)
    # GDAL 3.6.2 resamples complex bands through uninitialised memory (average shows it, GTiff twice in a
    # row gives two answers): there is no oracle but for nearest neighbour.
    if "alg" in ask and gdal.DataTypeIsComplex(band.DataType):
        ask["alg"] = gdal.GRIORA_NearestNeighbour
    return ask


def _buffer(rng, ask, band_count):
    """Adds buffer size, band list and spacings."""
    _, _, width, height = ask["window"]
    bands = 1
    if ask["kind"].startswith("resampled"):
        ask["alg"] = rng.choice(RESAMPLING)
        width = max(1, min(500, int(width * rng.choice([0.1, 0.25, 0.5, 0.77, 1, 1.3, 3]))))
        height = max(1, min(500, int(height * rng.choice([0.1, 0.25, 0.5, 0.77, 1, 1.3, 3]))))
        if rng.random() < 0.3:  # a window between the pixels
            x, y, n, m = ask["window"]
            ask["window"] = (x + rng.random() * 0.4, y + rng.random() * 0.4, max(0.5, n - 0.5), max(0.5, m - 0.5))
    if ask["kind"] in ("dataset", "resampled_dataset", "advise"):
        bands = rng.randint(1, min(band_count + 1, 6))
        ask["bands"] = [rng.randint(1, band_count) for _ in range(bands)]
        if rng.random() < 0.4:
            ask["bands"] = list(range(1, min(band_count, 20) + 1))
        bands = len(ask["bands"])
    ask["size"] = (width, height)
    ask["spaces"] = _spaces(rng, harness.sample_bytes(ask["type"]), width, height, bands)


# ---- answers -------------------------------------------------------------------------------


def _buffer_bytes(ask, bands):
    (width, height), (pixel, line, band) = ask["size"], ask["spaces"]
    size = harness.sample_bytes(ask["type"])
    return bytearray([PATTERN]) * ((width - 1) * pixel + (height - 1) * line + (bands - 1) * band + size)


def _band_io(band, ask):
    buf = _buffer_bytes(ask, 1)
    (width, height), (pixel, line, _) = ask["size"], ask["spaces"]
    done = band.ReadRaster(*ask["window"], buf_xsize=width, buf_ysize=height, buf_type=ask["type"],
                           buf_pixel_space=pixel, buf_line_space=line,
                           resample_alg=ask.get("alg", gdal.GRIORA_NearestNeighbour), buf_obj=buf)  # fmt: skip
    return None if done is None else buf


def _dataset_io(ds, ask):
    buf = _buffer_bytes(ask, len(ask["bands"]))
    (width, height), (pixel, line, band) = ask["size"], ask["spaces"]
    done = ds.ReadRaster(*ask["window"], buf_xsize=width, buf_ysize=height, buf_type=ask["type"],
                         band_list=ask["bands"], buf_pixel_space=pixel, buf_line_space=line, buf_band_space=band,
                         resample_alg=ask.get("alg", gdal.GRIORA_NearestNeighbour), buf_obj=buf)  # fmt: skip
    return None if done is None else buf


def valid_block(band, x, y, data):
    """The part of a block inside the raster; what a block holds beyond it is nobody's promise."""
    bx, by = band.GetBlockSize()
    size = harness.sample_bytes(band.DataType)
    n, m = min(bx, band.XSize - x * bx), min(by, band.YSize - y * by)
    return b"".join(bytes(data[r * bx * size : (r * bx + n) * size]) for r in range(m))


def _blocks(band, ask):
    bx, by = band.GetBlockSize()
    out = b""
    for x, y in ask["blocks"]:
        buf = bytearray(bx * by * harness.sample_bytes(band.DataType))
        if band.ReadBlock(x, y, buf) is None:
            return None
        out += valid_block(band, x, y, buf)
    return out


def _pieces(band, ask, windows):
    pieces = [band.ReadRaster(*w, buf_type=ask["type"]) for w in windows]
    return None if None in pieces else b"".join(pieces)


_LIBGDAL = None


def libgdal():
    """The very library that osgeo loaded, for what its bindings leave out."""
    global _LIBGDAL
    if _LIBGDAL is None:
        with open("/proc/self/maps") as f:
            path = next(line.split()[-1] for line in f if "/libgdal.so" in line)
        _LIBGDAL = ctypes.CDLL(path)
    return _LIBGDAL


def _upside_down(ds, ask):
    """Negative line spacing, which Python's ReadRaster cannot say."""
    buf = _buffer_bytes(ask, 1)
    (width, height), (pixel, line, _) = ask["size"], ask["spaces"]
    io = libgdal().GDALRasterIOEx
    io.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 5 + [ctypes.c_void_p] + [ctypes.c_int] * 3
    io.argtypes += [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    start = ctypes.addressof(ctypes.c_char.from_buffer(buf)) + (height - 1) * line
    band = int(ds.GetRasterBand(ask["band"]).this)
    failed = io(band, gdal.GF_Read, *ask["window"], start, width, height, ask["type"], pixel, -line, None)
    return None if failed == gdal.CE_Failure else buf


def answer(ds, ask):
    """The bytes a dataset gives to an ask; None when the read fails."""
    kind, band = ask["kind"], ds.GetRasterBand(ask["band"])
    if kind in ("dataset", "resampled_dataset"):
        return _dataset_io(ds, ask)
    if kind in ("blocks", "walk"):
        return _blocks(band, ask)
    if kind == "rows":
        return _pieces(band, ask, [(0, y, band.XSize, 1) for y in ask["rows"]])
    if kind == "pixels":
        return _pieces(band, ask, [(x, y, 1, 1) for x, y in ask["pixels"]])
    if kind == "upside_down":
        return _upside_down(ds, ask)
    if kind == "advise":
        x, y, n, m = ask["window"]
        ds.AdviseRead(x, y, n, m)
        return _dataset_io(ds, ask)
    if kind in ("mask", "resampled_mask"):
        band = band.GetMaskBand()
    elif kind == "mask_level":
        band = band.GetMaskBand().GetOverview(ask["level"])
    elif kind.startswith("overview"):
        band = band.GetOverview(ask["level"])
        band = band.GetMaskBand() if kind == "overview_mask" else band
    return _band_io(band, ask)
