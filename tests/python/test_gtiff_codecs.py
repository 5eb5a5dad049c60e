"""Tiles of codecs that only GDAL has, decoded by our workers: whatever becomes of the file, the process or
the tile, the outcome is that of GTiff without threads."""

import ctypes
import os
import shutil

import harness
import numpy as np
import pytest
import tiffpatch
from osgeo import gdal

GTIFF = gdal.GetDriverByName("GTiff")
LIST = GTIFF.GetMetadataItem("DMD_CREATIONOPTIONLIST")

# name: (bands, type, creation options)
KINDS = {
    "jpeg": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "TILED=YES"]),
    "jpeg_ycbcr": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR", "TILED=YES"]),
    "jpeg_ycbcr_strips": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR", "BLOCKYSIZE=16"]),
    "jpeg_planes": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "INTERLEAVE=BAND", "TILED=YES"]),
    "webp": (3, gdal.GDT_Byte, ["COMPRESS=WEBP", "TILED=YES"]),
    "lerc": (2, gdal.GDT_Float32, ["COMPRESS=LERC", "MAX_Z_ERROR=0.1", "TILED=YES"]),
    "lerc_zstd_planes": (2, gdal.GDT_Float64, ["COMPRESS=LERC_ZSTD", "INTERLEAVE=BAND", "BLOCKYSIZE=7"]),
    "lzma": (3, gdal.GDT_UInt16, ["COMPRESS=LZMA", "TILED=YES"]),
    "lzma_rows": (2, gdal.GDT_Int16, ["COMPRESS=LZMA", "BLOCKYSIZE=1", "PREDICTOR=2"]),
    "lzma_big_endian": (2, gdal.GDT_Float64, ["COMPRESS=LZMA", "ENDIANNESS=BIG", "BIGTIFF=YES", "TILED=YES"]),
    "bits_12": (3, gdal.GDT_UInt16, ["COMPRESS=DEFLATE", "NBITS=12", "TILED=YES"]),
    "bits_1": (1, gdal.GDT_Byte, ["NBITS=1", "BLOCKYSIZE=3"]),
    "fax": (1, gdal.GDT_Byte, ["COMPRESS=CCITTFAX4", "NBITS=1", "BLOCKYSIZE=50"]),
}  # fmt: skip
W, H = 333, 217


def make(path, name, size=(W, H)):
    bands, kind, options = KINDS[name]
    codec = next((o[9:] for o in options if o.startswith("COMPRESS=")), "NONE")
    if ">%s<" % codec not in LIST:
        pytest.skip("this GDAL does not write %s" % codec)
    if "TILED=YES" in options:
        options = options + ["BLOCKXSIZE=64", "BLOCKYSIZE=48"]
    ds = GTIFF.Create(str(path), *size, bands, kind, options)
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    for i in range(1, bands + 1):
        values = ((x * i) // 3 + y * 2 + (x * y * 7919) % 11) % 256
        if "NBITS=1" in options:
            values //= 128
        ds.GetRasterBand(i).WriteRaster(0, 0, *size, values.astype(np.uint8).tobytes(), buf_type=gdal.GDT_Byte)
    ds = None
    return str(path)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_random_windows(tmp_path, name):
    """Any window, bands in any order and number, any type and spacing."""
    ours, theirs = harness.open_pair(make(tmp_path / "a.tif", name), ["NUM_THREADS=3", "BATCH_MB=1"])
    rng = harness.rng("windows", name)
    for k in range(60):
        x, y = rng.randrange(W), rng.randrange(H)
        w, h = rng.randint(1, W - x), rng.randint(1, H - y)
        bands = rng.sample(range(1, ours.RasterCount + 1), rng.randint(1, ours.RasterCount))
        kind = rng.choice([None, gdal.GDT_Float32, gdal.GDT_Int32])
        size = harness.sample_bytes(kind or ours.GetRasterBand(1).DataType)
        pixel = size * rng.choice([1, len(bands)])
        how = dict(band_list=bands, buf_type=kind, buf_pixel_space=pixel, buf_line_space=pixel * w,
                   buf_band_space=size if pixel > size else size * w * h)  # fmt: skip
        where = "seed %d, %s, window %s of %s" % (harness.SEED, name, (x, y, w, h), how)
        harness.same_bytes(ours.ReadRaster(x, y, w, h, **how), theirs.ReadRaster(x, y, w, h, **how), where)
    if not harness.SELF_TEST:
        assert harness.check_all_ours(ours)[harness.BY_CODEC] > 0


@pytest.mark.parametrize("name", [n for n in sorted(KINDS) if "planes" in n])
def test_one_plane_with_a_band_space(tmp_path, name):
    """GTiff's threads put band k at (k - 1) times the band space, beyond the buffer: a heap overflow."""
    path = make(tmp_path / "a.tif", name)
    ds, theirs = harness.open_ours(path), harness.open_gtiff(path)
    with open("/proc/self/maps") as maps:
        libgdal = next(line.split()[-1] for line in maps if "libgdal.so" in line)
    read = ctypes.CDLL(libgdal).GDALDatasetRasterIOEx
    read.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 5 + [ctypes.c_void_p] + [ctypes.c_int] * 4 + [
        ctypes.c_void_p] + [ctypes.c_longlong] * 3 + [ctypes.c_void_p]  # fmt: skip
    kind = ds.GetRasterBand(1).DataType
    size = harness.sample_bytes(kind)
    for band in range(1, ds.RasterCount + 1):
        buffer = bytearray(4 * W * H * size)
        memory, bands = (ctypes.c_char * len(buffer)).from_buffer(buffer), (ctypes.c_int * 1)(band)
        read(int(ds.this), 0, 0, 0, W, H, ctypes.addressof(memory), W, H, kind, 1, ctypes.addressof(bands), size,
             size * W, size * W * H, None)  # fmt: skip
        want = theirs.GetRasterBand(band).ReadRaster()
        assert bytes(buffer[: len(want)]) == bytes(want) and not any(buffer[len(want) :]), band


FORK = """
import hashlib, json, os, sys
import harness
from osgeo import gdal
path = sys.argv[1]
def digest(ds): return hashlib.sha1(ds.ReadRaster()).hexdigest()
want = digest(harness.open_gtiff(path))
ds = harness.open_ours(path)
codes = []
for k in range(6):
    for y in range(k, 60 + k): ds.ReadRaster(0, y, ds.RasterXSize, 1)   # tiles are decoded ahead while we fork
    pid = os.fork()
    if pid == 0:
        same = digest(ds if k % 2 else harness.open_ours(path)) == want and digest(harness.open_ours(path)) == want
        os._exit(0 if same else 7)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps([codes, digest(ds) == want]))
"""


@pytest.mark.parametrize("name", ["jpeg_ycbcr", "webp", "lerc", "lzma", "bits_12", "fax"])
def test_forked_children(tmp_path, name):
    """A child with a dataset of its parent's, and with one of its own, while workers of the parent decode."""
    path = make(tmp_path / "a.tif", name, (500, 400))
    assert harness.run_json(FORK, path, timeout=90) == [[0] * 6, True]


@pytest.mark.parametrize("name", ["jpeg_ycbcr", "lzma", "bits_12"])
@pytest.mark.parametrize("fate", ["deleted", "renamed", "replaced"])
def test_file_that_is_gone(tmp_path, name, fate):
    """The file is never opened a second time by its name."""
    path, other = make(tmp_path / "a.tif", name), make(tmp_path / "b.tif", "lzma_rows", (50, 50))
    want = harness.open_gtiff(path).ReadRaster()
    ours = harness.open_ours(path)
    {"deleted": lambda: os.remove(path), "renamed": lambda: os.rename(path, path + "x"),
     "replaced": lambda: shutil.move(other, path)}[fate]()  # fmt: skip
    harness.same_bytes(ours.ReadRaster(), want, fate)


def test_no_further_descriptors(tmp_path):
    """A mosaic of many files costs one descriptor each, as with GTiff, before and after reading."""
    paths = [make(tmp_path / ("%d.tif" % i), "jpeg_ycbcr", (64, 48)) for i in range(20)]
    counts = []
    for opens in (harness.open_gtiff, harness.open_ours):
        before = len(os.listdir("/proc/self/fd"))
        opened = [opens(path) for path in paths]
        for ds in opened:
            ds.ReadRaster()
        counts.append(len(os.listdir("/proc/self/fd")) - before)
        del ds, opened
    assert counts[1] <= counts[0], counts


def test_a_mosaic_of_as_many_files_as_gtiff_can_open(tmp_path):
    """Files opened until the limit is near: all are read, though no descriptor is left for a second one each."""
    path = make(tmp_path / "a.tif", "jpeg_ycbcr", (64, 48))
    code = """
import resource, sys
import harness
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
opened = [harness.open_ours(sys.argv[1]) for _ in range(150)]
assert all(ds.ReadRaster() is not None for ds in opened)
"""
    done = harness.run_python(code, path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("when", ["open", "read", "both"])
def test_colours_as_when_the_file_was_opened(tmp_path, when):
    """CONVERT_YCBCR_TO_RGB counts when a file is opened, as with GTiff, whatever it is when tiles are decoded."""
    path, outcomes = make(tmp_path / "a.tif", "jpeg_ycbcr"), []
    for opens in (harness.open_gtiff, harness.open_ours):
        with harness.Errors(), harness.config(CONVERT_YCBCR_TO_RGB="YES" if when == "read" else "NO"):
            ds = opens(path)
        with harness.Errors(), harness.config(CONVERT_YCBCR_TO_RGB="YES" if when == "open" else "NO"):
            outcomes.append(ds.ReadRaster())
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("threads", ["ALL_CPUS", "4"])
def test_threads_of_gtiff_stay_off(tmp_path, threads):
    """GDAL_NUM_THREADS would switch them on in the dataset that serves tiles that fail."""
    path = make(tmp_path / "a.tif", "jpeg_planes")
    code = """
import sys, threading, os
import harness
ds = harness.open_ours(sys.argv[1])
assert ds.ReadRaster(0, 0, ds.RasterXSize, ds.RasterYSize, 50, 40) is not None   # by the inner dataset
names = [open('/proc/self/task/%s/comm' % t).read().strip() for t in os.listdir('/proc/self/task')]
print(len(names), names)
assert len(names) == 1, names
"""
    done = harness.run_python(code, path, env={"GDAL_NUM_THREADS": threads})
    assert done.returncode == 0, done.stdout + done.stderr


# libtiff's CCITT decoder leaves what was in memory where a damaged line ends: GTiff's pixels differ from read to read.
@pytest.mark.parametrize("name", [n for n in sorted(KINDS) if n != "fax"])
def test_damaged_tiles(tmp_path, name):
    """Bytes of some tiles are others. Every block has GTiff's outcome: its pixels, or an error where it has one.
    Each is the first that GTiff reads: what a damaged tile does to its JPEG tables shows in tiles that it decodes
    later, those of the next plane too."""
    path = make(tmp_path / "a.tif", name)
    rng = harness.rng("damage", name)
    for k in range(6):
        damaged = str(tmp_path / ("d%d.tif" % k))
        shutil.copy(path, damaged)
        tiff = tiffpatch.Tiff(damaged)
        places = list(zip(tiff.values(tiffpatch.OFFSETS), tiff.values(tiffpatch.COUNTS)))
        for offset, count in rng.sample(places, min(3, len(places))):
            for _ in range(rng.randint(1, 4)):
                tiff.data[offset + rng.randrange(count)] = rng.randrange(256)
        tiff.save()
        ours, all_there = harness.open_ours(damaged, [] if harness.SELF_TEST else ["NUM_THREADS=2"]), True
        with harness.Errors():
            bw, bh = ours.GetRasterBand(1).GetBlockSize()
            for y in range(0, H, bh):
                for x in range(0, W, bw):
                    w, h = min(bw, W - x), min(bh, H - y)
                    for band in range(1, ours.RasterCount + 1):
                        where = "seed %d, %s, file %d, band %d, window %s" % (harness.SEED, name, k, band, (x, y, w, h))
                        want, got = [opened(damaged).ReadRaster(x, y, w, h, band_list=[band])
                                     for opened in (harness.open_gtiff, harness.open_ours)]  # fmt: skip
                        harness.same_bytes(got, want, where)
                        all_there &= want is not None
            assert (ours.ReadRaster() is not None) == all_there, "seed %d, %s, file %d" % (harness.SEED, name, k)


def test_tile_with_chroma_of_another_size(tmp_path):
    """libtiff takes the first tile's for all and refuses the others; a tile alone in its file would pass."""
    path = make(tmp_path / "a.tif", "jpeg_ycbcr")
    KINDS["full"] = (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "JPEG_QUALITY=75", "TILED=YES"])
    other = make(tmp_path / "b.tif", "full")
    tiff, full = tiffpatch.Tiff(path), tiffpatch.Tiff(other)
    offset, count = full.values(tiffpatch.OFFSETS)[4], full.values(tiffpatch.COUNTS)[4]
    tiff.append_data(bytes(full.data[offset : offset + count]), strile=4)
    tiff.save()
    ours, theirs = harness.open_pair(path)
    with harness.Errors():
        for x in range(0, W, 64):
            w = min(64, W - x)
            harness.same_bytes(ours.ReadRaster(x, 0, w, 48), theirs.ReadRaster(x, 0, w, 48), "column %d" % x)
        assert theirs.ReadRaster(256, 0, 64, 48) is None


def test_tables_are_those_of_the_file(tmp_path):
    """A JPEG file of another quality, and one without tables."""
    for k, options in enumerate((["JPEG_QUALITY=30"], ["JPEGTABLESMODE=0"], ["JPEG_QUALITY=95", "JPEGTABLESMODE=1"])):
        KINDS["tables"] = (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR", "TILED=YES"] + options)
        ours, theirs = harness.open_pair(make(tmp_path / ("%d.tif" % k), "tables"))
        harness.same_pixels(ours, theirs)
        if not harness.SELF_TEST:
            assert harness.check_all_ours(ours)[harness.BY_CODEC] > 0
