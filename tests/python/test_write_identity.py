"""One sha256 for the same pixels and options: whatever the batch size, the number of threads, CreateCopy or Create(),
and the order in which every pixel arrives for the first time."""

import harness
import numpy as np
import pytest
import written
from osgeo import gdal

W, H = 1100, 700

LAYOUTS = {
    "tiles by pixel, DEFLATE": ("uint16", 3, dict(COMPRESS="DEFLATE", INTERLEAVE="PIXEL", PREDICTOR=2)),
    "tiles by band, LZW": ("uint16", 3, dict(COMPRESS="LZW", INTERLEAVE="BAND", BLOCKXSIZE=128, BLOCKYSIZE=64)),
    "odd tiles by pixel, NONE": ("uint8", 4, dict(COMPRESS="NONE", INTERLEAVE="PIXEL", BLOCKXSIZE=80, BLOCKYSIZE=48)),
    "strips by pixel, ZSTD": ("int16", 3, dict(COMPRESS="ZSTD", INTERLEAVE="PIXEL", TILED="NO", BLOCKYSIZE=19)),
    "strips by band, PACKBITS": ("uint8", 2, dict(COMPRESS="PACKBITS", INTERLEAVE="BAND", TILED="NO", BLOCKYSIZE=33)),
    "float tiles, big-endian BigTIFF": (
        "float32", 2, dict(COMPRESS="ZSTD", INTERLEAVE="PIXEL", PREDICTOR=3, ENDIANNESS="BIG", BIGTIFF="YES")),
    "one band, high tiles": ("float64", 1, dict(COMPRESS="DEFLATE", BLOCKXSIZE=64, BLOCKYSIZE=256)),
    "holes": ("uint16", 3, dict(COMPRESS="DEFLATE", INTERLEAVE="PIXEL", SPARSE_OK="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)),
    "holes by band": (
        "uint8", 3, dict(COMPRESS="LZW", INTERLEAVE="BAND", SPARSE_OK="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)),
}  # fmt: skip

RUNS = [(b, t) for b in (1, 8, 64) for t in (1, 2, 8)]


def raster_of(name):
    """Texture everywhere but in two regions of zeros, which are holes under SPARSE_OK."""
    dtype, bands, options = LAYOUTS[name]
    raster = written.Raster(harness.rng("identity", name), dtype, (bands, H, W))
    raster.bytes[:, 200:420, : 300 * raster.size] = 0
    raster.bytes[0, 500:, 500 * raster.size :] = 0
    fixed = {"TILED": "YES", "COPY_TILES": "NO", "PHOTOMETRIC": "MINISBLACK", "ALPHA": "NO"}
    return raster, {**fixed, **options}


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def made(request, tmp_path_factory):
    """(raster, options, sha256 of the file that CreateCopy with one thread and small batches makes)."""
    written.ours_only()
    raster, options = raster_of(request.param)
    path = tmp_path_factory.mktemp("i") / "first.tif"
    ds = written.copy(path, raster.mem(), BATCH_MB=1, NUM_THREADS=1, **options)
    assert ds is not None, gdal.GetLastErrorMsg()
    ds = None
    harness.same_bytes(written.read_gtiff(path), raster.whole(), request.param)
    digest = written.digest(path)
    holes = sum(t is None for t in written.tile_bytes(path))
    assert (holes > 0) == (options.get("SPARSE_OK") == "YES"), "%d holes" % holes
    path.unlink()
    return raster, options, digest


def check(path, digest, raster, where):
    got = written.digest(path)
    if got != digest:  # say first whether the pixels are right at all
        harness.same_bytes(written.read_gtiff(path), raster.whole(), where)
    assert got == digest, "%s: right pixels, other bytes" % where


def test_batches_and_threads(made, tmp_path, total):
    raster, options, digest = made
    source = raster.mem()
    for batch, threads in RUNS:
        path = tmp_path / ("%d-%d.tif" % (batch, threads))
        ds = written.copy(path, source, BATCH_MB=batch, NUM_THREADS=threads, **options)
        ds = None
        check(path, digest, raster, "CreateCopy BATCH_MB=%d NUM_THREADS=%d" % (batch, threads))
        total("files of equal bytes", 1)


@pytest.mark.parametrize("order", written.ORDERS, ids=lambda f: f.__name__)
def test_orders_of_writing(made, tmp_path, order, total):
    """Each order with a setting of its own, so that small batches meet every one over the layouts."""
    raster, options, digest = made
    rng = harness.rng("identity", order.__name__, sorted(options.items()))
    for batch, threads in rng.sample(RUNS[:3], 1) + rng.sample(RUNS[3:], 1):
        path = tmp_path / ("%d-%d.tif" % (batch, threads))
        ds = raster.create(path, BATCH_MB=batch, NUM_THREADS=threads, **options)
        order(rng, raster, ds)
        ds = None
        where = "%s BATCH_MB=%d NUM_THREADS=%d" % (order.__name__, batch, threads)
        check(path, digest, raster, where)
        total("files of equal bytes", 1)


@pytest.mark.parametrize("order", [written.rows, written.single_blocks, written.odd_windows], ids=lambda f: f.__name__)
def test_tiny_block_cache(made, tmp_path, order):
    """The block cache hands dirty blocks over early and in its own order."""
    raster, options, digest = made
    gdal.SetCacheMax(200_000)
    path = tmp_path / "a.tif"
    ds = raster.create(path, BATCH_MB=1, **options)
    order(harness.rng("tiny", order.__name__), raster, ds)
    ds = None
    check(path, digest, raster, order.__name__)


def test_arrays_band_by_band(made, tmp_path):
    """WriteArray of each band, the whole of it: numpy's way."""
    raster, options, digest = made
    path = tmp_path / "a.tif"
    ds = raster.create(path, BATCH_MB=1, **options)
    dtype = np.dtype(raster.dtype)
    for i in range(raster.shape[0]):
        ds.GetRasterBand(i + 1).WriteArray(np.ascontiguousarray(raster.bytes[i]).view(dtype))
    ds = None
    check(path, digest, raster, "WriteArray")


def test_reading_back_between_changes_nothing(made, tmp_path):
    raster, options, digest = made
    path = tmp_path / "a.tif"
    ds = raster.create(path, BATCH_MB=1, **options)
    for y in range(0, H, 70):
        raster.write(ds, 0, y, W, 70)
        x, n = y // 2, 40
        harness.same_bytes(ds.ReadRaster(x, y, n, n), raster.window(x, y, n, n), "at %d" % y)
        first = max(0, y - 300)
        harness.same_bytes(ds.ReadRaster(x, first, n, n), raster.window(x, first, n, n), "at %d" % first)
    ds = None
    check(path, digest, raster, "with reads between")


def test_from_a_file_as_from_memory(made, tmp_path):
    """A tiled source, a source of strips and a VRT hand over the same pixels in other pieces."""
    raster, options, digest = made
    for name, layout in (("tiles", ["TILED=YES", "BLOCKXSIZE=96", "BLOCKYSIZE=112"]), ("strips", ["BLOCKYSIZE=5"])):
        layout = layout + ["PHOTOMETRIC=MINISBLACK", "ALPHA=NO"]
        source = gdal.GetDriverByName("GTiff").CreateCopy(str(tmp_path / "s.tif"), raster.mem(), options=layout)
        source.FlushCache()
        for kind, ds in ((name, source), (name + " in a VRT", gdal.GetDriverByName("VRT").CreateCopy("", source))):
            out = written.copy(tmp_path / "a.tif", ds, BATCH_MB=1, NUM_THREADS=2, **options)
            out = None
            check(tmp_path / "a.tif", digest, raster, kind)


def test_recoded_tiles_as_from_memory(made, tmp_path, total):
    """A source that is cut alike, of another codec: each tile is decoded and encoded by itself."""
    raster, options, digest = made
    alike = {k: v for k, v in options.items() if k in ("TILED", "BLOCKXSIZE", "BLOCKYSIZE", "INTERLEAVE", "PHOTOMETRIC")}
    codec = "ZSTD" if options["COMPRESS"] == "LZW" else "LZW"
    path, out = str(tmp_path / "s.tif"), tmp_path / "a.tif"
    ds = written.copy(path, raster.mem(), "GTiff", COMPRESS=codec, ALPHA="NO", **alike)
    ds = None
    source, tiles = harness.open_gtiff(path), len(written.tile_bytes(path))
    for batch, threads in RUNS:
        ds = written.copy(out, source, BATCH_MB=batch, NUM_THREADS=threads, **options)
        assert written.counter(ds, written.RECODED) == tiles
        ds = None
        check(out, digest, raster, "recoded BATCH_MB=%d NUM_THREADS=%d" % (batch, threads))
        total("files of equal bytes", 1)


def test_flush_in_the_middle_keeps_pixels(made, tmp_path):
    """FlushCache writes a directory that the next write overwrites: the end of the file may differ, tiles may not."""
    raster, options, digest = made
    path = tmp_path / "a.tif"
    ds = raster.create(path, **options)
    raster.write(ds, 0, 0, W, 300)
    ds.FlushCache()
    raster.write(ds, 0, 300, W, H - 300)
    ds = None
    harness.same_bytes(written.read_gtiff(path), raster.whole(), "flushed")
