"""What the tests of writing share: the driver that writes, sources in memory, the orders in which pixels arrive,
reading back to the bit by three readers, tags compared, and programs run.

Set GPUGTIFF_TEST_WRITE_DRIVER=GTiff to let GTiff write in our place: what only ours has (counters, byte identity,
a header that comes last) then skips, the rest shows that the tests themselves are sound."""

import hashlib
import os
import subprocess

import harness
import imagecodecs  # noqa: F401  (tifffile needs it for LZW, ZSTD and PackBits)
import numpy as np
import pytest
import tifffile
import tiffpatch
import writers
from osgeo import gdal

DRIVER = os.environ.get("GPUGTIFF_TEST_WRITE_DRIVER", "GPUGTiff")
SELF_TEST = DRIVER == "GTiff"

# The counters' names, here and nowhere else.
BY_GTIFF = "WRITTEN_BY_GTIFF"
COPIED = "TILES_COPIED"
RECODED = "TILES_RECODED"

# Options that GTiff does not have: left out where it writes in our place.
ONLY_OURS = {"BATCH_MB", "ENGINE", "COPY_TILES", "VERIFY", "DEVICE", "DEVICE_MB"}
# What differs between two files of the same pixels: where the tiles are and how long.
STRILE_TAGS = {273, 279, 324, 325}
VSIMEM_PLACES = ("/vsimem/", "/vsimem/gpugtiff/")
# GTiff's defaults differ from ours (strips, no compression): comparisons with it name both.
SAME_AS_GTIFF = dict(TILED="YES", COMPRESS="DEFLATE")

CODECS_AND_PREDICTORS = [(c, p) for c in writers.CODECS for p in ([1, 2, 3] if c in writers.PREDICTABLE else [1])]


def ours_only():
    if SELF_TEST:
        pytest.skip("about GPUGTiff's own writing")


# ---- writing -------------------------------------------------------------------------------


def option_list(options, driver=None):
    """{'A': 1} -> ['A=1'], without those that the driver does not know."""
    known = lambda k: (driver or DRIVER) != "GTiff" or k not in ONLY_OURS  # noqa: E731
    return ["%s=%s" % kv for kv in options.items() if known(kv[0])]


def flags(options):
    """The same as arguments of gdal_translate and gdalwarp."""
    return [a for o in option_list(options) for a in ("-co", o)]


def copy(path, source, driver=None, callback=None, **options):
    """CreateCopy; -> the dataset, None where it failed."""
    more = {"callback": callback} if callback else {}
    d = gdal.GetDriverByName(driver or DRIVER)
    return d.CreateCopy(str(path), source, options=option_list(options, driver), **more)


def create(path, shape, kind=gdal.GDT_Byte, driver=None, **options):
    """Create(); shape is (bands, height, width)."""
    bands, h, w = shape
    d = gdal.GetDriverByName(driver or DRIVER)
    return d.Create(str(path), w, h, bands, kind, option_list(options, driver))


def counter(ds, name):
    value = ds.GetMetadataItem(name, harness.DOMAIN)
    return int(value) if value is not None else None


def check_by_us(ds, where=""):
    """The count that a driver handing everything to GTiff fails."""
    if not SELF_TEST:
        assert counter(ds, BY_GTIFF) == 0, "%s: written by GTiff: %r" % (where, counter(ds, BY_GTIFF))


# ---- rasters in memory ---------------------------------------------------------------------


class Raster:
    """Random pixels of a type: band after band as bytes, and as a MEM dataset."""

    def __init__(self, rng, dtype, shape, planes=None):
        self.dtype, self.shape, self.kind = dtype, shape, writers.GDAL_TYPES[dtype]
        bands, h, w = shape
        self.size = harness.sample_bytes(self.kind)
        if planes is None:
            planes = [np.ascontiguousarray(writers.random_plane(rng, dtype, h, w)) for _ in range(bands)]
        self.bytes = np.stack([p.view(np.uint8).reshape(h, w * self.size) for p in planes])

    def whole(self):
        return self.bytes.tobytes()

    def window(self, x, y, w, h, bands=None):
        part = self.bytes if bands is None else self.bytes[[b - 1 for b in bands]]
        return part[:, y : y + h, x * self.size : (x + w) * self.size].tobytes()

    def mem(self):
        bands, h, w = self.shape
        ds = gdal.GetDriverByName("MEM").Create("", w, h, bands, self.kind)
        ds.WriteRaster(0, 0, w, h, self.whole(), buf_type=self.kind)
        if self.dtype == "int8":
            for i in range(bands):
                ds.GetRasterBand(i + 1).SetMetadataItem("PIXELTYPE", "SIGNEDBYTE", "IMAGE_STRUCTURE")
        return ds

    def create(self, path, **options):
        if self.dtype == "int8":
            options = dict(options, PIXELTYPE="SIGNEDBYTE")
        return create(path, self.shape, self.kind, **options)

    def write(self, ds, x, y, w, h, bands=None):
        bands = bands or list(range(1, self.shape[0] + 1))
        failed = ds.WriteRaster(x, y, w, h, self.window(x, y, w, h, bands), buf_type=self.kind, band_list=bands)
        assert failed == 0, "write of %s failed: %s" % ((x, y, w, h, bands), gdal.GetLastErrorMsg())


# ---- the orders in which pixels arrive -----------------------------------------------------


def whole_raster(rng, raster, ds):
    raster.write(ds, 0, 0, raster.shape[2], raster.shape[1])


def rows(rng, raster, ds, step=1):
    _, h, w = raster.shape
    for y in range(0, h, step):
        raster.write(ds, 0, y, w, min(step, h - y))


def rows_by_7(rng, raster, ds):
    rows(rng, raster, ds, 7)


def rows_by_300(rng, raster, ds):
    rows(rng, raster, ds, 300)


def _block_list(raster, ds, bands):
    bx, by = ds.GetRasterBand(1).GetBlockSize()
    _, h, w = raster.shape
    return [(x, y, min(bx, w - x), min(by, h - y), b)
            for b in bands for y in range(0, h, by) for x in range(0, w, bx)]  # fmt: skip


def blocks(rng, raster, ds):
    """All bands of a block at once, row-major: what a block-wise program does."""
    for window in _block_list(raster, ds, [None]):
        raster.write(ds, *window)


def single_blocks(rng, raster, ds):
    """One band's block at a time, through WriteBlock's own path: the block cache hands them over."""
    for x, y, w, h, b in _block_list(raster, ds, [[i + 1] for i in range(raster.shape[0])]):
        raster.write(ds, x, y, w, h, b)


def bands(rng, raster, ds):
    """Python's usual loop: one whole band after the other."""
    for i in range(raster.shape[0]):
        raster.write(ds, 0, 0, raster.shape[2], raster.shape[1], [i + 1])


def bands_backwards_by_rows(rng, raster, ds):
    _, h, w = raster.shape
    for i in reversed(range(raster.shape[0])):
        for y in range(0, h, 100):
            raster.write(ds, 0, y, w, min(100, h - y), [i + 1])


def shuffled_blocks(rng, raster, ds):
    windows = _block_list(raster, ds, [None])
    rng.shuffle(windows)
    for window in windows:
        raster.write(ds, *window)


def _pieces(rng, x, y, w, h, n):
    """Cuts a window in two n times over: every pixel in exactly one piece, no edge on a block's."""
    if n == 0 or w * h < 2:
        return [(x, y, w, h)]
    if (rng.random() < 0.5 and w > 1) or h == 1:
        k = rng.randint(1, w - 1)
        return _pieces(rng, x, y, k, h, n - 1) + _pieces(rng, x + k, y, w - k, h, n - 1)
    k = rng.randint(1, h - 1)
    return _pieces(rng, x, y, w, k, n - 1) + _pieces(rng, x, y + k, w, h - k, n - 1)


def odd_windows(rng, raster, ds):
    """Windows of any size in any order, each band by itself or all at once."""
    count, h, w = raster.shape
    each = [None] if rng.random() < 0.5 else [[i + 1] for i in range(count)]
    windows = [(*piece, b) for b in each for piece in _pieces(rng, 0, 0, w, h, 5)]
    rng.shuffle(windows)
    for window in windows:
        raster.write(ds, *window)


def upwards(rng, raster, ds):
    """Last row first, as some formats come."""
    _, h, w = raster.shape
    for y in reversed(range(0, h, 50)):
        raster.write(ds, 0, y, w, min(50, h - y))


ORDERS = [whole_raster, rows, rows_by_7, rows_by_300, blocks, single_blocks, bands, bands_backwards_by_rows,
          shuffled_blocks, odd_windows, upwards]  # fmt: skip


# ---- reading back --------------------------------------------------------------------------


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def read_gtiff(path):
    """Every band's bytes, None if the file does not open or does not read."""
    with harness.Errors():
        ds = harness.open_gtiff(str(path))
        return ds and ds.ReadRaster()


def read_tifffile(path, raster):
    """Band after band in native order, or None for types that tifffile does not have (complex integers)."""
    if raster.dtype in ("cint16", "cint32"):
        return None
    count, h, w = raster.shape
    with tifffile.TiffFile(str(path)) as tif:
        page = tif.pages[0]
        array = page.asarray()
        if count > 1 and page.planarconfig == tifffile.PLANARCONFIG.CONTIG:
            array = np.moveaxis(array.reshape(h, w, count), -1, 0)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("=")).tobytes()


def check_readers(path, raster, where, by_tifffile=True):
    """GTiff, ours and tifffile read what was written, to the bit."""
    want = raster.whole()
    theirs = harness.open_gtiff(str(path))
    assert theirs is not None, "%s: GTiff does not open it: %s" % (where, gdal.GetLastErrorMsg())
    harness.same_bytes(theirs.ReadRaster(), want, where + " read by GTiff")
    ours = harness.open_ours(str(path))
    assert ours is not None, "%s: we do not open it: %s" % (where, gdal.GetLastErrorMsg())
    harness.same_bytes(ours.ReadRaster(), want, where + " read by us")
    if by_tifffile:
        again = read_tifffile(path, raster)
        if again is not None:
            harness.same_bytes(again, want, where + " read by tifffile")
            return 1
    return 0


def in_vsimem():
    """What lies at the top of /vsimem/ and where the hollow files are kept: GDAL lists no folder that was not made."""
    return [p for d in VSIMEM_PLACES for p in gdal.ReadDirRecursive(d) or []]


# ---- tags ----------------------------------------------------------------------------------


def tags(path):
    """Each directory as {tag: values as bytes}, without the places and lengths of tiles. Integers are compared by
    value: SHORT or LONG for the same number is the writer's choice."""
    tiff = tiffpatch.Tiff(str(path))
    out = []
    for i, d in enumerate(tiff.directories):
        values = {}
        for tag, e in d["entries"].items():
            if tag in STRILE_TAGS:
                continue
            if e.kind in tiffpatch.CODES and e.kind not in (1, 6):
                values[tag] = tiff.values(tag, i)
            else:
                values[tag] = bytes(tiff.data[e.values_at : e.values_at + e.count * tiffpatch.SIZES[e.kind]])
        out.append(values)
    return out


def header(path):
    """(byte order, 42 or 43), or None where the file has no TIFF header."""
    with open(path, "rb") as f:
        head = f.read(4)
    if head[:2] not in (b"II", b"MM"):
        return None
    return head[:2].decode(), int.from_bytes(head[2:], "little" if head[:2] == b"II" else "big")


def tile_bytes(path, directory=0):
    """The stored bytes of each tile, None for a hole. To be compared by their digests."""
    tiff = tiffpatch.Tiff(str(path))
    return [bytes(tiff.data[o : o + n]) if n else None for o, n in tiff.striles(directory)]


# ---- programs ------------------------------------------------------------------------------


def run(*command, env=None, timeout=120, **kw):
    """A GDAL program; -> CompletedProcess with text."""
    return subprocess.run([str(c) for c in command], env=dict(os.environ, **(env or {})), capture_output=True,
                          text=True, timeout=timeout, **kw)  # fmt: skip


def translate(source, target, *args, driver=None, env=None, **options):
    """gdal_translate with our driver; -> CompletedProcess."""
    co = [a for o in option_list(options, driver) for a in ("-co", o)]
    return run("gdal_translate", "-q", "-of", driver or DRIVER, *co, *args, source, target, env=env)


def succeeded(done):
    assert done.returncode == 0 and "ERROR" not in done.stderr, "exit %d\n%s\n%s" % (
        done.returncode, done.stdout[-2000:], done.stderr[-2000:])  # fmt: skip
    return done


def noise_source(path, w, h, bands=1, driver="GTiff", **options):
    """A file of noise, so that what a codec makes of it is as long as the pixels."""
    rng = np.random.default_rng(harness.SEED)
    ds = create(path, (bands, h, w), gdal.GDT_Byte, driver, **options)
    for i in range(bands):
        ds.GetRasterBand(i + 1).WriteRaster(0, 0, w, h, rng.bytes(w * h))
    ds = None
    return str(path)


def masked_source(path, w, h, bands=3, internal="YES", **options):
    """The same with a mask of noise, in the file or beside it, and a place in the world."""
    noise_source(path, w, h, bands, **options)
    ds = gdal.OpenEx(str(path), gdal.OF_RASTER | gdal.OF_UPDATE, allowed_drivers=["GTiff"])
    ds.SetGeoTransform([10, 2, 0, 20, 0, -2])
    bits = np.random.default_rng(harness.SEED).integers(0, 2, w * h).astype(np.uint8) * 255
    with harness.config(GDAL_TIFF_INTERNAL_MASK=internal):
        assert ds.CreateMaskBand(gdal.GMF_PER_DATASET) == 0
        ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, bits.tobytes())
        ds = None
    return str(path)


# What a source written in Python was asked for (test_write_bad.py; its code runs inside a VRT and imports us).
PIXELS_ASKED = []
