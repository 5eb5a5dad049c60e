"""Ways to walk through a raster, told by the counters: tiles, strips and lone strips are decoded once however
small the steps, walks are served ahead, and a cache too small for the walk costs time but no pixels."""

import os

import asks
import harness
import numpy as np
import pytest
from osgeo import gdal

W, H = 300, 2100

# A lone strip of 8-bit pixels and more than 2000 rows is shown by GTiff row by row (uncompressed: a few rows).
LAYOUTS = {
    "tiles": dict(TILED="YES", BLOCKXSIZE=128, BLOCKYSIZE=128),
    "strips": dict(BLOCKYSIZE=50),
    "strips of one row": dict(BLOCKYSIZE=1),
    "lone strip": dict(BLOCKYSIZE=H),
}


def make(path, layout, codec, bands=1, kind=gdal.GDT_Byte, interleave="PIXEL"):
    options = dict(LAYOUTS[layout], COMPRESS=codec, INTERLEAVE=interleave)
    ds = gdal.GetDriverByName("GTiff").Create(str(path), W, H, bands, kind, ["%s=%s" % kv for kv in options.items()])
    y, x = np.mgrid[0:H, 0:W]
    for i in range(1, bands + 1):
        plane = (x // 3 + y * i + (x * y) % 5) % 251
        ds.GetRasterBand(i).WriteRaster(0, 0, W, H, plane.astype(np.uint8).tobytes(), buf_type=gdal.GDT_Byte)
    ds = None
    return str(path)


def make_and_open(tmp_path, layout, codec, bands=1, interleave="PIXEL", options=()):
    """-> (ours, the bytes of each 8-bit band as GTiff reads them whole: row by row it may take minutes)."""
    ours, theirs = harness.open_pair(make(tmp_path / "a.tif", layout, codec, bands, interleave=interleave), options)
    assert ours.GetRasterBand(1).GetBlockSize() == theirs.GetRasterBand(1).GetBlockSize()
    rows = ours.GetRasterBand(1).GetBlockSize()[1]
    assert layout != "lone strip" or rows < 50, "not what this is about: GTiff shows blocks of %d rows" % rows
    return ours, [theirs.GetRasterBand(i + 1).ReadRaster() for i in range(bands)]


def check_once(ours):
    """Nothing was fetched twice, nothing was decoded twice, nothing was counted twice; and all of it by us."""
    if harness.SELF_TEST:
        return
    c = harness.check_all_ours(ours)
    size = os.path.getsize(ours.GetDescription())
    assert c[harness.BYTES_READ] <= size * 1.1 + 100_000, (size, c)
    bw, bh = ours.GetRasterBand(1).GetBlockSize()
    tiles = -(-W // bw) * -(-H // bh) * ours.RasterCount
    assert c[harness.DECODED] <= tiles, c
    # Padding of edge tiles may count.
    assert c[harness.BYTES_DECODED] <= tiles * bw * bh * harness.sample_bytes(ours.GetRasterBand(1).DataType), c


@pytest.mark.parametrize("codec", ["NONE", "LZW", "DEFLATE"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_row_by_row(tmp_path, layout, codec):
    ours, (want,) = make_and_open(tmp_path, layout, codec)
    for y in range(H):
        harness.same_bytes(ours.GetRasterBand(1).ReadRaster(0, y, W, 1), want[y * W : (y + 1) * W], "row %d" % y)
    check_once(ours)


@pytest.mark.parametrize("layout", ["tiles", "strips", "lone strip"])
def test_row_by_row_upwards(tmp_path, layout):
    """No order of rows may cost a decoding a row (GTiff's own does, of a lone strip)."""
    ours, (want,) = make_and_open(tmp_path, layout, "LZW")
    for y in reversed(range(H)):
        harness.same_bytes(ours.GetRasterBand(1).ReadRaster(0, y, W, 1), want[y * W : (y + 1) * W], "row %d" % y)
    check_once(ours)


@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
@pytest.mark.parametrize("layout", ["tiles", "strips", "lone strip"])
def test_row_by_row_of_three_bands(tmp_path, layout, interleave):
    """By dataset and by band after band, in turn."""
    ours, want = make_and_open(tmp_path, layout, "LZW", 3, interleave)
    for y in range(H):
        row = [plane[y * W : (y + 1) * W] for plane in want]
        if y % 2:
            harness.same_bytes(ours.ReadRaster(0, y, W, 1), b"".join(row), "row %d" % y)
            continue
        for i in (1, 2, 3):
            harness.same_bytes(ours.GetRasterBand(i).ReadRaster(0, y, W, 1), row[i - 1], "row %d band %d" % (y, i))
    check_once(ours)


@pytest.mark.parametrize("threads", ["1", "2", "ALL_CPUS"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_block_by_block(tmp_path, layout, threads):
    """The way gdal_translate walks. With workers to do it, it is served ahead."""
    ours, (want,) = make_and_open(tmp_path, layout, "LZW", options=["NUM_THREADS=" + threads])
    band, pixels = ours.GetRasterBand(1), np.frombuffer(want, np.uint8).reshape(H, W)
    bw, bh = band.GetBlockSize()
    across, down = -(-W // bw), -(-H // bh)
    for k in range(across * down):
        x, y = k % across, k // across
        inside = pixels[y * bh : (y + 1) * bh, x * bw : (x + 1) * bw].tobytes()
        block = asks.valid_block(band, x, y, band.ReadBlock(x, y))
        harness.same_bytes(block, inside, "block %d %d" % (x, y))
    check_once(ours)
    c = harness.counters(ours)
    if not harness.SELF_TEST and layout != "lone strip" and threads != "1":
        assert c[harness.FROM_AHEAD] > across * down // 2, "sequence not recognised: %s" % c


def test_small_window_of_wide_raster_reads_only_its_bytes(tmp_path):
    """100,000 pixels wide: neither the row of tiles nor their bytes are fetched, by band, dataset and block."""
    harness.skip_count_if_self_test()
    path = str(tmp_path / "w.tif")
    ds = gdal.GetDriverByName("GTiff").Create(
        path, 100_000, 600, 2, gdal.GDT_Byte,
        ["TILED=YES", "COMPRESS=LZW", "BLOCKXSIZE=256", "BLOCKYSIZE=256"])  # fmt: skip
    noise = np.random.default_rng(harness.SEED).integers(0, 255, 100_000 * 50, dtype=np.uint8).tobytes()
    for i in (1, 2):
        for y in range(0, 600, 50):
            ds.GetRasterBand(i).WriteRaster(0, y, 100_000, 50, noise)
    ds = None
    ours, theirs = harness.open_pair(path)
    ways = {
        "dataset": (4, lambda ds: ds.ReadRaster(51_100, 200, 200, 200)),
        "band": (2, lambda ds: ds.GetRasterBand(2).ReadRaster(70_000, 300, 300, 30)),
        "resampled": (4, lambda ds: ds.ReadRaster(30_000, 0, 300, 300, 30, 30, resample_alg=gdal.GRIORA_Average)),
        "block": (1, lambda ds: ds.GetRasterBand(1).ReadBlock(5, 1)),
    }
    for name, (most, read) in ways.items():
        before = harness.counters(ours)
        harness.same_bytes(read(ours), read(theirs), name)
        now = harness.counters(ours)
        assert now[harness.DECODED] - before[harness.DECODED] <= most, (name, now)
        # Noise grows under LZW: a tile is some 180 kB. What is read to know offsets is little.
        assert now[harness.BYTES_READ] - before[harness.BYTES_READ] <= most * 200_000 + 100_000, (name, now)
    harness.check_all_ours(ours)


# ---- a cache too small ---------------------------------------------------------------------


@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
@pytest.mark.parametrize("layout", ["tiles", "strips", "lone strip"])
def test_cache_of_one_megabyte(tmp_path, layout, interleave):
    """Six 16-bit bands: a row of tiles is larger than the whole block cache."""
    gdal.SetCacheMax(1_000_000)
    path = make(tmp_path / "a.tif", layout, "DEFLATE", 6, gdal.GDT_UInt16, interleave)
    ours, theirs = harness.open_pair(path)
    rng = harness.rng("cache", layout, interleave)
    for y in range(0, H - 3, 230):
        harness.same_bytes(ours.ReadRaster(0, y, W, 3), theirs.ReadRaster(0, y, W, 3), "rows from %d" % y)
    for _ in range(40):
        x, y, i = rng.randrange(W - 200), rng.randrange(H - 200), rng.randint(1, 6)
        window = (x, y, rng.randint(1, 200), rng.randint(1, 200))
        a, b = ours.GetRasterBand(i), theirs.GetRasterBand(i)
        harness.same_bytes(a.ReadRaster(*window), b.ReadRaster(*window), "band %d %s" % (i, window))
    harness.same_bytes(ours.ReadRaster(), theirs.ReadRaster(), "whole")
    harness.check_all_ours(ours)


def test_flushed_cache(tmp_path):
    ours, theirs = harness.open_pair(make(tmp_path / "a.tif", "tiles", "LZW", 2))
    for _ in range(3):
        harness.same_bytes(ours.ReadRaster(100, 100, 200, 300), theirs.ReadRaster(100, 100, 200, 300), "window")
        ours.FlushCache(), ours.GetRasterBand(1).FlushCache()
    harness.check_all_ours(ours)


# ---- what a caller may say -----------------------------------------------------------------


def _read_until(ds, stop_at, how):
    """-> (what the read gave, the fractions its callback was told)."""
    told = []

    def progress(fraction, *_):
        told.append(fraction)
        return 0 if fraction >= stop_at else 1

    source = ds if how == "dataset" else ds.GetRasterBand(2)
    return source.ReadRaster(callback=progress), told


@pytest.mark.parametrize("how", ["dataset", "band"])
@pytest.mark.parametrize("layout", ["tiles", "strips", "lone strip"])
def test_progress(tmp_path, layout, how):
    """Runs up to 1; a callback that says no stops the read, which then fails; the next read is whole."""
    ours, theirs = harness.open_pair(make(tmp_path / "a.tif", layout, "LZW", 3), ["BATCH_MB=1"])
    data, told = _read_until(ours, 2, how)
    want, _ = _read_until(theirs, 2, how)
    harness.same_bytes(data, want, "with a callback")
    assert told == sorted(told) and told[-1] == 1, told
    ours, _ = harness.open_pair(make(tmp_path / "b.tif", layout, "LZW", 3), ["BATCH_MB=1"])
    with harness.Errors():
        data, told = _read_until(ours, 0, how)
    assert data is None and len(told) == 1, (len(told), "stopped and yet the read worked")
    harness.same_bytes(_read_until(ours, 2, how)[0], want, "after a stopped read")


def test_progress_stopped_midway_stops_early(tmp_path):
    """With many batches a no in the middle saves the work of the rest."""
    ours, _ = harness.open_pair(make(tmp_path / "a.tif", "tiles", "LZW", 3, gdal.GDT_UInt32), ["BATCH_MB=1"])
    with harness.Errors():
        data, told = _read_until(ours, 0.3, "dataset")
    assert data is None and 0.3 <= told[-1] < 0.8, told
    if not harness.SELF_TEST:
        c = harness.counters(ours)
        assert c[harness.DECODED] < -(-W // 128) * -(-H // 128) * 0.8, c


def test_advise_read_changes_no_pixel(tmp_path):
    ours, theirs = harness.open_pair(make(tmp_path / "a.tif", "tiles", "LZW", 3))
    for window, bands in (((0, 0, W, H), [1, 2, 3]), ((50, 60, 200, 200), [2]), ((290, 2090, 10, 10), [3, 1])):
        assert ours.AdviseRead(*window) == theirs.AdviseRead(*window) == 0
        assert ours.GetRasterBand(1).AdviseRead(*window) == 0
        harness.same_bytes(ours.ReadRaster(*window, band_list=bands), theirs.ReadRaster(*window, band_list=bands),
                           "advised %s" % (window,))  # fmt: skip
    ours.AdviseRead(0, 0, W, H)  # and then nothing is read
    other = (200, 1000, 17, 19)
    harness.same_bytes(ours.ReadRaster(*other), theirs.ReadRaster(*other), "not what was advised")
    harness.check_all_ours(ours)


@pytest.mark.parametrize("window", [(-1, 0, 10, 10), (0, -1, 10, 10), (W - 5, 0, 10, 10), (0, H - 5, 10, 10),
                                    (0, 0, 0, 0), (0, 0, -3, 5), (2**31 - 1, 0, 10, 10)])  # fmt: skip
def test_window_outside(tmp_path, window):
    """Refused as GTiff refuses it, and the dataset reads on."""
    ours, theirs = harness.open_pair(make(tmp_path / "a.tif", "tiles", "LZW"))
    read_dataset = lambda ds: ds.ReadRaster(*window, 4, 4, buf_obj=bytearray(16))  # noqa: E731
    read_band = lambda ds: ds.GetRasterBand(1).ReadRaster(*window, 4, 4, buf_obj=bytearray(16))  # noqa: E731
    for read in (read_dataset, read_band):
        with harness.Errors() as said:
            a = read(ours)
        with harness.Errors() as theirs_said:
            b = read(theirs)
        harness.same_bytes(a, b, str(window))
        assert [e[:2] for e in said] == [e[:2] for e in theirs_said], (said, theirs_said)
    with harness.Errors():
        for block in ((99, 0), (0, -1)):
            assert ours.GetRasterBand(1).ReadBlock(*block) is None
    harness.same_bytes(ours.ReadRaster(), theirs.ReadRaster(), "afterwards")
