"""The dataset while it is written, and the file afterwards: reading back, late setters, masks, overviews, flushes that
another process sees, tiles written again, holes, and GDAL's tools on the result. GTiff doing the same is the oracle."""

import hashlib
import threading

import harness
import metafiles
import numpy as np
import pytest
import test_write_metadata
import writers
import written
from osgeo import gdal

W, H = 500, 400
LAYOUTS = {
    "tiles": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE", INTERLEAVE="PIXEL"),
    "planes": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="LZW", INTERLEAVE="BAND", PREDICTOR=2),
    "strips": dict(TILED="NO", BLOCKYSIZE=30, COMPRESS="ZSTD", INTERLEAVE="PIXEL"),
}


@pytest.fixture(params=sorted(LAYOUTS))
def layout(request):
    return dict(LAYOUTS[request.param], PHOTOMETRIC="MINISBLACK", BATCH_MB=1)


def raster_of(*name, bands=3, dtype="uint16"):
    return written.Raster(harness.rng("update", *name), dtype, (bands, H, W))


class Twin:
    """The same calls on a dataset of ours and on one of GTiff's; answers must be equal."""

    def __init__(self, tmp_path, shape, kind, **options):
        self.paths, self.sets = [], []
        for driver, path in test_write_metadata.both(tmp_path):
            self.paths.append(path)
            self.sets.append(written.create(path, shape, kind, driver, **options))
        assert None not in self.sets, gdal.GetLastErrorMsg()

    def do(self, call):
        got = []
        for ds in self.sets:
            with harness.Errors() as errors:
                got.append(call(ds))
            assert not errors.failures(), "%s: %s" % (ds.GetDriver().ShortName, errors.text())
        same = repr(got[0]) == repr(got[1])
        assert same, "%r, GTiff %r" % tuple(str(g)[:200] for g in got)
        return got[0]

    def close(self, every_tag=True):
        self.sets = []
        test_write_metadata.same_as_gtiff(*self.paths, every_tag=every_tag)


def put(x, y, w, h, data, bands=None, kind=None):
    return lambda ds: ds.WriteRaster(x, y, w, h, data, band_list=bands, buf_type=kind)


# ---- reading back and writing again --------------------------------------------------------


def random_window(rng):
    x, y = rng.randrange(W), rng.randrange(H)
    return x, y, rng.randint(1, W - x), rng.randint(1, H - y)


@pytest.mark.parametrize("seed", range(4))
def test_random_life_of_a_dataset(tmp_path, layout, seed):
    """Writes of any windows, again and again, reads between, flushes, fills, blocks: never another answer."""
    rng = harness.rng("life", seed, sorted(layout.items()))
    gdal.SetCacheMax(rng.choice([150_000, 64 << 20]))
    twin = Twin(tmp_path, (3, H, W), gdal.GDT_UInt16, **layout)
    for step in range(60):
        window = random_window(rng)
        kind = rng.choice(["write"] * 5 + ["read"] * 3 + ["flush", "fill", "block", "small"])
        bands = rng.choice([None, [1], [2], [3], [3, 1]])
        n = len(bands or [1, 2, 3])
        if kind == "write":
            values = np.random.default_rng(rng.getrandbits(32))
            data = values.integers(0, rng.choice([2, 60000]), window[2] * window[3] * n)
            twin.do(put(*window, data.astype(np.uint16).tobytes(), bands, gdal.GDT_UInt16))
        elif kind == "read":
            twin.do(lambda ds: ds.ReadRaster(*window, band_list=bands))
        elif kind == "small":
            twin.do(lambda ds: ds.ReadRaster(*window, min(17, window[2]), min(13, window[3]), band_list=bands))
        elif kind == "flush":
            twin.do(lambda ds: ds.FlushCache() and None)
        elif kind == "fill" and rng.random() < 0.3:
            value = rng.randrange(1000)
            twin.do(lambda ds: ds.GetRasterBand((bands or [1])[0]).Fill(value))
        elif kind == "block":
            twin.do(lambda ds: ds.FlushCache() and None)  # ReadBlock looks past the block cache
            twin.do(lambda ds: bytes(ds.GetRasterBand((bands or [1])[0]).ReadBlock(0, step % 6)))
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()


@pytest.mark.parametrize("then", ["smaller", "larger", "equal", "zero"])
def test_finished_tiles_written_again(tmp_path, layout, then):
    """Replaced in place where the new bytes fit, else appended: right either way, and not written over a neighbour."""
    first, path = raster_of("first", then), tmp_path / "a.tif"
    if then == "larger":
        first.bytes[:] = 7
    ds = first.create(path, **layout)
    written.rows(None, first, ds, 100)
    ds.FlushCache()
    size = path.stat().st_size
    second = raster_of("second")
    if then == "larger":
        second.bytes[:] = np.random.default_rng(3).integers(0, 256, second.bytes.shape)
    second.bytes[:] = {"smaller": 1, "zero": 0}.get(then, second.bytes if then == "larger" else first.bytes)
    want = first.bytes.copy()
    for x, y, w, h in ((0, 0, 64, 64), (128, 64, 200, 130), (300, 200, 64, 30)):
        second.write(ds, x, y, w, h)
        want[:, y : y + h, x * 2 : (x + w) * 2] = second.bytes[:, y : y + h, x * 2 : (x + w) * 2]
    harness.same_bytes(ds.ReadRaster(), want.tobytes(), "before close")
    ds = None
    harness.same_bytes(written.read_gtiff(path), want.tobytes(), then)
    if then == "equal" and not written.SELF_TEST:
        assert path.stat().st_size <= size + 4096, "equal tiles were appended"


def test_partial_windows_keep_what_was_there(tmp_path, layout):
    """A tile half written, thrown out of the cache, written on: as in GTiff the rest stays zero."""
    gdal.SetCacheMax(100_000)
    twin = Twin(tmp_path, (2, H, W), gdal.GDT_Int16, **layout)
    rng = harness.rng("partial")
    for _ in range(200):
        x, y = rng.randrange(W - 10), rng.randrange(H - 10)
        twin.do(put(x, y, 10, 10, np.full(100, rng.randrange(1, 9000), np.int16).tobytes(), [rng.randint(1, 2)]))
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()


@pytest.mark.parametrize("nodata", [None, 0, 77])
@pytest.mark.parametrize("sparse", ["YES", "NO"])
def test_without_a_pixel(tmp_path, layout, nodata, sparse):
    """Create() and close: filled as GTiff fills it, with nodata where one is set."""
    twin = Twin(tmp_path, (3, H, W), gdal.GDT_Int16, **dict(layout, SPARSE_OK=sparse))
    if nodata is not None:
        twin.do(lambda ds: ds.GetRasterBand(1).SetNoDataValue(nodata))
    twin.close()
    holes = [sum(t is None for t in written.tile_bytes(p)) for p in twin.paths]
    assert (holes[0] == 0) == (holes[1] == 0), holes
    got = np.frombuffer(written.read_gtiff(twin.paths[0]), np.int16)
    assert (got == (nodata or 0)).all()


@pytest.mark.parametrize("nodata", [None, 77])
@pytest.mark.parametrize("sparse", ["YES", "NO"])
def test_some_tiles_never_written(tmp_path, layout, nodata, sparse):
    twin = Twin(tmp_path, (3, H, W), gdal.GDT_UInt16, **dict(layout, SPARSE_OK=sparse))
    if nodata is not None:
        twin.do(lambda ds: ds.GetRasterBand(1).SetNoDataValue(nodata))
    raster = raster_of("some")
    for window in ((0, 0, 64, 64), (100, 100, 50, 200), (450, 380, 50, 20)):
        twin.do(put(*window, raster.window(*window), kind=gdal.GDT_UInt16))
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()
    if sparse == "YES":
        ours, theirs = ([t is None for t in written.tile_bytes(p)] for p in twin.paths)
        assert ours == theirs


def test_fill(tmp_path, layout):
    twin = Twin(tmp_path, (3, H, W), gdal.GDT_UInt16, **layout)
    twin.do(lambda ds: ds.GetRasterBand(2).Fill(1234))
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()


def test_written_by_blocks(tmp_path, layout):
    """WriteBlock through the bindings' WriteArray of exactly a block."""
    raster, path = raster_of("blocks"), tmp_path / "a.tif"
    ds = raster.create(path, **layout)
    written.single_blocks(None, raster, ds)
    written.check_by_us(ds)
    ds = None
    written.check_readers(path, raster, "blocks")


@pytest.mark.parametrize("dtype", ["float64", "uint8", "complex64"])
def test_buffers_of_another_type_and_spacing(tmp_path, layout, dtype):
    """Converted, clamped and spaced by the caller; a buffer smaller than the window is resampled."""
    twin, kind = Twin(tmp_path, (3, H, W), gdal.GDT_UInt16, **layout), writers.GDAL_TYPES[dtype]
    values = (np.random.default_rng(4).random((3, 120, 150)) * 90000 - 9000).astype(dtype)
    size = values.itemsize
    pixels = np.ascontiguousarray(np.moveaxis(values, 0, -1))
    twin.do(lambda ds: ds.WriteRaster(33, 44, 150, 120, values.tobytes(), buf_type=kind))
    twin.do(lambda ds: ds.WriteRaster(210, 144, 150, 120, pixels.tobytes(), buf_type=kind, buf_pixel_space=3 * size,
                                      buf_line_space=450 * size, buf_band_space=size))  # fmt: skip
    twin.do(lambda ds: ds.WriteRaster(0, 300, 400, 90, values.tobytes(), 150, 120, buf_type=kind))
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()


# ---- late setters --------------------------------------------------------------------------


def palette():
    table = gdal.ColorTable()
    for i in range(256):
        table.SetColorEntry(i, (i, 255 - i, 9, 255))
    return table


RPC = {"%s_%s" % (k, part): "1" for k in ("LINE", "SAMP", "LAT", "LONG", "HEIGHT") for part in ("OFF", "SCALE")}
RPC.update({"%s_%s_COEFF" % (k, part): " ".join(["1"] * 20) for k in ("LINE", "SAMP") for part in ("NUM", "DEN")})

LATE = {
    "colour table": lambda ds: ds.GetRasterBand(1).SetColorTable(palette()),
    "nodata": lambda ds: ds.GetRasterBand(1).SetNoDataValue(3),
    "nodata set and deleted": lambda ds: (ds.GetRasterBand(1).SetNoDataValue(3),
                                          ds.GetRasterBand(1).DeleteNoDataValue()),
    "metadata": lambda ds: (ds.SetMetadata({"a": "b" * 9000}), ds.GetRasterBand(1).SetMetadata({"c": "d"}, "E")),
    "CRS": lambda ds: (ds.SetSpatialRef(metafiles._srs(2154)), ds.SetGeoTransform([1, 2, 0, 3, 0, -2])),
    "ground control": lambda ds: ds.SetGCPs([gdal.GCP(i, 2 * i, 0, i, i) for i in range(5)], metafiles._srs(4326)),
    "descriptions": lambda ds: [ds.GetRasterBand(i + 1).SetDescription("b%d" % i) for i in range(ds.RasterCount)],
    "categories": lambda ds: ds.GetRasterBand(1).SetCategoryNames(["a", "b"]),
    "unit and scale": lambda ds: (ds.GetRasterBand(1).SetUnitType("m"), ds.GetRasterBand(1).SetScale(3)),
    "statistics": lambda ds: ds.GetRasterBand(1).SetStatistics(1, 2, 3, 4),
    "statistics computed": lambda ds: ds.GetRasterBand(1).ComputeStatistics(False),
    "minimum and maximum": lambda ds: (ds.GetRasterBand(1).ComputeRasterMinMax(False), ds.GetRasterBand(1).Checksum()),
    "histogram": lambda ds: ds.GetRasterBand(1).GetHistogram(),
    "alpha": lambda ds: ds.GetRasterBand(ds.RasterCount).SetColorInterpretation(gdal.GCI_AlphaBand),
    "colour interpretation": lambda ds: [ds.GetRasterBand(i + 1).SetColorInterpretation(gdal.GCI_BlueBand - i)
                                         for i in range(min(3, ds.RasterCount))],
    "XMP": lambda ds: ds.SetMetadata(["<x>y</x>"], "xml:XMP"),
    "RPC": lambda ds: ds.SetMetadata(RPC, "RPC"),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(LATE))
@pytest.mark.parametrize("when", ["before", "after", "flushed"])
def test_late_setters(tmp_path, what, when):
    """Set before the first pixel, after the last, and after a flush."""
    bands = 1 if what == "colour table" else 4
    twin = Twin(tmp_path, (bands, H, W), gdal.GDT_Byte, PHOTOMETRIC="MINISBLACK", BATCH_MB=1, **written.SAME_AS_GTIFF)
    raster = raster_of("late", dtype="uint8", bands=bands)
    if when == "before":
        twin.do(LATE[what])
    twin.do(put(0, 0, W, H // 2, raster.window(0, 0, W, H // 2)))
    if when == "flushed":
        twin.do(lambda ds: ds.FlushCache() and None)
    twin.do(put(0, H // 2, W, H // 2, raster.window(0, H // 2, W, H // 2)))
    if when != "before":
        twin.do(LATE[what])
    for name in ("GetMetadata", "GetGeoTransform", "GetProjectionRef", "GetGCPCount"):
        twin.do(lambda ds: getattr(ds, name)())
    for name in ("GetNoDataValue", "GetMetadata", "GetScale", "GetDescription", "GetColorInterpretation",
                 "GetCategoryNames"):  # fmt: skip
        twin.do(lambda ds: getattr(ds.GetRasterBand(1), name)())
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()


# ---- masks and overviews -------------------------------------------------------------------


@pytest.mark.parametrize("internal", ["YES", "NO"])
@pytest.mark.parametrize("when", ["first", "middle", "last"])
@pytest.mark.parametrize("order", ["rows", "blocks", "rows again"])
def test_create_mask_band(tmp_path, layout, internal, when, order):
    bits = np.random.default_rng(6).integers(0, 2, (H, W)).astype(np.uint8) * 255
    twin = Twin(tmp_path, (3, H, W), gdal.GDT_UInt16, **layout)
    raster = raster_of("mask")

    def mask(ds):
        with harness.config(GDAL_TIFF_INTERNAL_MASK=internal):
            failed = ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        band = ds.GetRasterBand(1).GetMaskBand()
        if order == "blocks":
            windows = [(x, y, min(64, W - x), min(64, H - y)) for x in range(0, W, 64) for y in range(0, H, 64)]
        else:
            windows = [(0, y, W, 40) for y in range(0, H, 40)] * (2 if "again" in order else 1)
        for x, y, w, h in windows:
            band.WriteRaster(x, y, w, h, bits[y : y + h, x : x + w].tobytes())
        return failed, band.ReadRaster(7, 9, 100, 100), ds.GetRasterBand(2).GetMaskFlags()

    if when == "first":
        assert twin.do(mask)[0] == 0
    twin.do(put(0, 0, W, 200, raster.window(0, 0, W, 200)))
    if when == "middle":
        assert twin.do(mask)[0] == 0
    twin.do(put(0, 200, W, 200, raster.window(0, 200, W, 200)))
    if when == "last":
        assert twin.do(mask)[0] == 0
    twin.do(lambda ds: ds.ReadRaster())
    twin.close()
    again = harness.open_gtiff(twin.paths[0])
    harness.same_bytes(again.GetRasterBand(3).GetMaskBand().ReadRaster(), bits.tobytes(), "mask")


@pytest.mark.parametrize("method", ["NEAREST", "AVERAGE"])
@pytest.mark.parametrize("then", ["close", "write on", "read", "flush"])
def test_overviews_before_close(tmp_path, layout, method, then):
    """Of the pixels, never of zeros; and the dataset lives on."""
    twin = Twin(tmp_path, (3, H, W), gdal.GDT_UInt16, **layout)
    raster = raster_of("overviews")
    for y in range(0, H, 50):
        twin.do(put(0, y, W, 50, raster.window(0, y, W, 50)))
    assert twin.do(lambda ds: ds.BuildOverviews(method, [2, 4])) == 0
    assert twin.do(lambda ds: ds.GetRasterBand(1).GetOverviewCount()) == 2
    if then == "write on":
        twin.do(put(10, 10, 100, 100, bytes(60000)))
        twin.do(lambda ds: ds.SetMetadataItem("after", "overviews"))
        twin.do(lambda ds: ds.GetRasterBand(2).SetDescription("two"))
    if then == "flush":
        twin.do(lambda ds: ds.FlushCache() and None)
    if then == "read":
        twin.do(lambda ds: (ds.ReadRaster(), ds.GetRasterBand(2).GetOverview(1).ReadRaster()))
    twin.close(every_tag=False)
    again = harness.open_gtiff(twin.paths[0])
    assert any(again.GetRasterBand(1).GetOverview(0).ReadRaster()), "an overview of zeros"


def test_overviews_of_what_create_copy_returned(tmp_path):
    paths = []
    for driver, path in test_write_metadata.both(tmp_path):
        ds = written.copy(path, raster_of("copied").mem(), driver, **written.SAME_AS_GTIFF)
        assert ds.BuildOverviews("AVERAGE", [2]) == 0
        ds.GetRasterBand(1).WriteRaster(5, 5, 50, 50, bytes(5000))
        ds = None
        paths.append(path)
    test_write_metadata.same_as_gtiff(*paths, every_tag=False)


# ---- flushes that others see ---------------------------------------------------------------

LOOK = """
import json, sys
import hashlib, harness
with harness.Errors() as errors:
    ds = harness.open_gtiff(sys.argv[1])
    data = ds and ds.ReadRaster(0, 0, ds.RasterXSize, int(sys.argv[2]))
print(json.dumps([data and hashlib.sha1(data).hexdigest(), errors.failures(), ds and ds.GetMetadata()]))
"""


def test_flushed_file_is_read_by_another_process(tmp_path, layout):
    raster, path = raster_of("flush"), tmp_path / "a.tif"
    ds = raster.create(path, **layout)
    seen = []
    for k, y in enumerate(range(0, H, 100)):
        raster.write(ds, 0, y, W, 100)
        ds.SetMetadataItem("at", str(k))
        ds.FlushCache()
        digest, errors, metadata = harness.run_json(LOOK, path, y + 100)
        want = hashlib.sha1(raster.window(0, 0, W, y + 100)).hexdigest()
        assert (digest, errors) == (want, []), "after %d rows: %s" % (y + 100, errors)
        assert metadata.get("at") == str(k)
        seen.append(path.stat().st_size)
    written.check_by_us(ds)
    ds = None
    assert all(a < b for a, b in zip(seen, seen[1:])), "nothing went to the file before close: %s" % seen
    written.check_readers(path, raster, "flushed")
    tile = max(len(t) for t in written.tile_bytes(path))
    packed = sum(len(t) for t in written.tile_bytes(path))
    if not written.SELF_TEST:  # old directories and half tile rows are overwritten, not piled up
        assert path.stat().st_size < packed + 12 * tile * (W // 64 + 2) + 60_000, (path.stat().st_size, packed)


def test_header_is_zero_again_after_the_next_write(tmp_path, layout):
    """Between two flushes the file is no TIFF: what was said of it no longer holds. Finished tiles are replaced where
    they are, so nothing else would tell."""
    written.ours_only()
    raster, other, path = raster_of("zero"), raster_of("other"), tmp_path / "a.tif"
    ds = raster.create(path, **dict(layout, COMPRESS="NONE", PREDICTOR=1))
    assert written.header(path) is None
    for now, before in ((raster, None), (other, raster), (raster, other)):
        now.write(ds, 0, 0, W, H)
        if before is not None:
            with open(path, "rb") as f:
                assert f.read(16) == bytes(16), "a header over tiles that are being replaced"
            assert path.stat().st_size == size, "not replaced where they are"
        ds.FlushCache()
        assert written.header(path) is not None
        size = path.stat().st_size
        harness.same_bytes(written.read_gtiff(path), now.whole(), "flushed")
    ds = None
    written.check_readers(path, raster, "zero")


def test_flush_without_anything_new_changes_nothing(tmp_path, layout):
    written.ours_only()
    raster, path = raster_of("idle"), tmp_path / "a.tif"
    ds = raster.create(path, **layout)
    written.whole_raster(None, raster, ds)
    ds.FlushCache()
    first = written.digest(path)
    for _ in range(3):
        ds.FlushCache()
    assert written.digest(path) == first
    ds = None
    written.check_readers(path, raster, "idle")


def test_open_at_the_end_of_the_process(tmp_path):
    """A dataset never closed by the program is closed by GDAL's bindings at exit, or left as no TIFF."""
    code = """
import sys, harness, written
raster = written.Raster(harness.rng("exit"), "uint16", (3, 400, 500))
ds = raster.create(sys.argv[1])
written.whole_raster(None, raster, ds)
import builtins; builtins.keep = ds
"""
    path = tmp_path / "a.tif"
    done = harness.run_python(code, path)
    assert done.returncode == 0, done.stderr
    got = written.read_gtiff(path)
    assert got in (None, written.Raster(harness.rng("exit"), "uint16", (3, 400, 500)).whole())


@pytest.mark.parametrize("count", [4])
def test_several_datasets_at_once(tmp_path, count, layout):
    """Written in turn by one thread, and each by a thread of its own."""
    rasters = [raster_of("several", k) for k in range(count)]
    sets = [r.create(tmp_path / ("%d.tif" % k), **layout) for k, r in enumerate(rasters)]
    for y in range(0, H, 40):
        for r, ds in zip(rasters, sets):
            r.write(ds, 0, y, W, 40)
    sets.clear()
    ds = None
    failed = []

    def job(k):
        try:
            mine = rasters[k].create(tmp_path / ("t%d.tif" % k), **layout)
            written.ORDERS[(k * 3) % len(written.ORDERS)](harness.rng("t", k), rasters[k], mine)
            mine = None
        except AssertionError as e:
            failed.append(e)

    threads = [threading.Thread(target=job, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed
    for k, r in enumerate(rasters):
        for name in ("%d.tif", "t%d.tif"):
            harness.same_bytes(written.read_gtiff(tmp_path / (name % k)), r.whole(), name % k)


@pytest.mark.parametrize("by_copy", [True, False])
def test_description_and_files_while_it_is_written(tmp_path, by_copy):
    """The target's own, never those of the hidden file that holds the tags."""
    raster, path = raster_of("names"), str(tmp_path / "a.tif")
    ds = written.copy(path, raster.mem()) if by_copy else raster.create(path)
    assert ds.GetDescription() == path and ds.GetDriver().ShortName == written.DRIVER
    assert ds.GetFileList() == [path]
    ds.GetRasterBand(1).SetCategoryNames(["a"])  # kept in .aux.xml
    ds.FlushCache()
    assert set(ds.GetFileList()) <= {path, path + ".aux.xml"}
    ds = None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tif", "a.tif.aux.xml"]


# ---- update mode is GTiff's: nothing of ours stands before what was written last -----------


def _updated(tmp_path, how):
    """-> a dataset whose pixels GTiff reads and writes, holding 3."""
    path = str(tmp_path / "u.tif")
    make = written.create(path, (1, H, W), gdal.GDT_Byte, TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)
    make.GetRasterBand(1).Fill(3)
    if how == "realised":
        # Where tiles are is only known of a finished file.
        assert make.GetRasterBand(1).GetMetadataItem("BLOCK_OFFSET_0_0", "TIFF")
        return make, path
    make = None
    if how == "opened":
        return gdal.OpenEx(path, gdal.OF_UPDATE, allowed_drivers=[written.DRIVER]), path
    copy = str(tmp_path / "c.tif")
    return written.copy(copy, harness.open_gtiff(path)), copy


@pytest.mark.parametrize("how", ["opened", "copied", "realised"])
@pytest.mark.parametrize("what", ["ComputeStatistics", "GetStatistics", "MinMax", "Histogram", "DefaultHistogram", "Block"])
def test_what_is_computed_is_computed_from_what_was_written_last(tmp_path, how, what):
    ask = {
        "ComputeStatistics": lambda b: b.ComputeStatistics(False)[:2],
        "GetStatistics": lambda b: b.GetStatistics(False, True)[:2],
        "MinMax": lambda b: list(b.ComputeRasterMinMax(False)),
        "Histogram": lambda b: [v for v, n in enumerate(b.GetHistogram(-0.5, 255.5, 256, True, False)) if n] * 2,
        "DefaultHistogram": lambda b: [v for v, n in enumerate(b.GetDefaultHistogram(force=True)[3]) if n][:1] * 2,
        "Block": lambda b: [b.ReadBlock(0, 0)[0]] * 2,
    }[what]
    ds, path = _updated(tmp_path, how)
    band = ds.GetRasterBand(1)
    if what != "DefaultHistogram":  # of which the first is remembered, as any histogram and GetStatistics()
        assert what in ("GetStatistics", "Histogram") or ask(band) == [3, 3]
    band.WriteRaster(0, 0, W, H, b"\4" * (W * H))
    if what == "DefaultHistogram":
        low, high, count, buckets = band.GetDefaultHistogram(force=True)
        assert low < 4.5 and high > 3.5 and sum(buckets) == W * H
    else:
        assert ask(band) == [4, 4]
    ds = band = None
    again = harness.open_gtiff(path)
    assert again.GetRasterBand(1).GetMetadataItem("STATISTICS_MAXIMUM") in (None, "4")
    assert again.GetRasterBand(1).ComputeRasterMinMax(False) == (4, 4)


@pytest.mark.parametrize("external", [False, True])
def test_bands_of_levels_outlive_new_levels(tmp_path, external):
    """Callers hold the band of an overview while others are built, as they may with GTiff."""
    path = str(tmp_path / "o.tif")
    ds = written.create(path, (1, H, W), gdal.GDT_Byte, TILED="YES")
    ds.GetRasterBand(1).Fill(7)
    ds = None
    ds = gdal.OpenEx(path, 0 if external else gdal.OF_UPDATE, allowed_drivers=[written.DRIVER])
    assert ds.BuildOverviews("NEAREST", [2]) == 0
    held = ds.GetRasterBand(1).GetOverview(0)
    assert set(held.ReadRaster()) == {7}
    assert ds.BuildOverviews("NEAREST", [4]) == 0
    if not external:  # GTiff opens the other file anew: its bands are gone as well
        assert (held.XSize, set(held.ReadRaster())) == (W // 2, {7})
        assert ds.CreateMaskBand(gdal.GMF_PER_DATASET) == 0
        assert (held.XSize, set(held.ReadRaster())) == (W // 2, {7})
    assert [set(ds.GetRasterBand(1).GetOverview(i).ReadRaster()) for i in range(2)] == [{7}, {7}]


@pytest.mark.parametrize("internal", ["YES", "NO"])
def test_overviews_heed_a_mask_that_was_just_written(tmp_path, internal):
    rng = np.random.default_rng(harness.SEED)
    pixels, mask = rng.integers(0, 255, (H, W), dtype=np.uint8), (rng.integers(0, 3, (H, W)) > 0).astype(np.uint8) * 255
    seen = []
    for driver, path in test_write_metadata.both(tmp_path):
        with harness.config(GDAL_TIFF_INTERNAL_MASK=internal):
            ds = written.create(path, (1, H, W), gdal.GDT_Byte, driver, TILED="YES")
            ds.GetRasterBand(1).WriteArray(pixels)
            ds.CreateMaskBand(gdal.GMF_PER_DATASET)
            ds.GetRasterBand(1).GetMaskBand().WriteArray(mask)
            ds.BuildOverviews("AVERAGE", [2])
            flags, shown = ds.GetRasterBand(1).GetMaskFlags(), ds.GetRasterBand(1).GetMaskBand().ReadAsArray()
            ds = None
        assert flags == gdal.GMF_PER_DATASET and (shown == mask).all(), driver
        again = harness.open_gtiff(path)
        seen.append(again.GetRasterBand(1).GetOverview(0).ReadAsArray())
    assert (seen[0] == seen[1]).all()


def test_after_finishing_failed_nothing_crashes(tmp_path):
    ds = written.create(tmp_path / "f.tif", (1, H, W), gdal.GDT_Int64 if hasattr(gdal, "GDT_Int64") else gdal.GDT_Int32)
    ds.GetRasterBand(1).Fill(1)
    (tmp_path / "f.tif").unlink()
    with harness.Errors() as errors:
        assert ds.BuildOverviews("NEAREST", [2]) != 0
    assert errors.failures()
    band = ds.GetRasterBand(1)
    with harness.Errors():
        for ask in (band.GetNoDataValue, lambda: band.SetNoDataValue(3), band.GetMaskFlags, band.GetOverviewCount,
                    band.GetMetadata, band.ReadRaster, lambda: band.ComputeStatistics(False), band.GetColorTable,
                    ds.GetFileList, ds.GetMetadata, ds.FlushCache):  # fmt: skip
            ask()
        ds = band = None
