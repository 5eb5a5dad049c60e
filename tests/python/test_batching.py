"""How requests become batches, told by the counters: no more decoded than asked for, nothing twice."""

import harness
import numpy as np
import pytest
from osgeo import gdal


def make(path, w, h, bands=1, **options):
    options = {"TILED": "YES", "BLOCKXSIZE": 256, "BLOCKYSIZE": 256, "COMPRESS": "ZSTD", "ZSTD_LEVEL": 1, **options}
    ds = gdal.GetDriverByName("GTiff").Create(
        str(path), w, h, bands, gdal.GDT_UInt16, ["%s=%s" % kv for kv in options.items()])  # fmt: skip
    ramp = (np.arange(w * 64, dtype=np.uint64) * 7 % 65521).astype(np.uint16).tobytes()
    for y in range(0, h, 64):
        n = min(64, h - y)
        for i in range(1, bands + 1):
            ds.GetRasterBand(i).WriteRaster(0, y, w, n, ramp[: w * n * 2])
    ds = None
    return str(path)


@pytest.fixture(autouse=True)
def counting():
    harness.skip_count_if_self_test()


def test_small_window_of_wide_raster_decodes_only_its_tiles(tmp_path):
    ds = harness.open_ours(make(tmp_path / "wide.tif", 100_000, 300))
    ds.ReadRaster(50_000, 10, 300, 300 - 20)
    c = harness.check_all_ours(ds)
    # 300 × 280 pixels at (50000, 10) lie in at most three tiles across and two down.
    assert c[harness.DECODED] <= 6, c


def file_bytes_read():
    with open("/proc/self/io") as counts:
        return int(next(line for line in counts if line.startswith("rchar")).split()[1])


@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_of_an_uncompressed_tile_only_the_wanted_rows_are_read(tmp_path, interleave):
    """And they are not kept: the system has them. Row by row they are, or each would be a read."""
    file = make(tmp_path / "a.tif", 5000, 3000, bands=2, COMPRESS="NONE", BLOCKXSIZE=2048, BLOCKYSIZE=1024,
                INTERLEAVE=interleave)  # fmt: skip
    ds = harness.open_ours(file)
    ds.ReadRaster(0, 0, 1, 1)
    for window in ((1900, 1000, 300, 100), (2000, 900, 2100, 130)):
        before = file_bytes_read()
        pixels = ds.ReadRaster(*window)
        rows_of_tiles = 130 * 2048 * 3 * 2 * 2
        assert file_bytes_read() - before < rows_of_tiles + 100_000, window
        harness.same_bytes(pixels, gdal.Open(file).ReadRaster(*window), str(window))
    before = file_bytes_read()
    for y in range(1100, 1400):
        ds.ReadRaster(0, y, 5000, 1)
    assert file_bytes_read() - before < 2048 * 1024 * 2 * 2 * 3 + 100_000
    harness.check_all_ours(ds)


def test_column_by_column_an_uncompressed_tile_is_read_once(tmp_path):
    """A column's bytes lie all over the tile: not kept, nearly all of it would be read for each."""
    file = make(tmp_path / "a.tif", 700, 1000, COMPRESS="NONE", BLOCKXSIZE=512, BLOCKYSIZE=512)
    ds, theirs = harness.open_ours(file), gdal.Open(file)
    for width in (1, 16):
        before = file_bytes_read()
        for x in range(0, 700 - width, width):
            window = (x, 0, width, 1000)
            harness.same_bytes(ds.ReadRaster(*window), theirs.ReadRaster(*window), str(window))
        assert file_bytes_read() - before < 2 * 4 * 512 * 512 * 2 + 100_000, width
    harness.check_all_ours(ds)


def test_lone_block_decodes_one(tmp_path):
    ds = harness.open_ours(make(tmp_path / "a.tif", 4096, 4096))
    ds.GetRasterBand(1).ReadBlock(7, 5)
    assert harness.counters(ds)[harness.DECODED] == 1


def test_scattered_blocks_decode_no_rows(tmp_path):
    ds = harness.open_ours(make(tmp_path / "a.tif", 4096, 4096))
    for x, y in ((3, 9), (14, 2), (0, 13), (8, 8), (5, 1)):
        ds.GetRasterBand(1).ReadBlock(x, y)
    assert harness.counters(ds)[harness.DECODED] == 5


@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_full_read_decodes_each_tile_once(tmp_path, interleave):
    ds = harness.open_ours(make(tmp_path / "a.tif", 3000, 2000, bands=3, INTERLEAVE=interleave), ["BATCH_MB=4"])
    ds.ReadRaster()
    c = harness.check_all_ours(ds)
    assert c[harness.DECODED] == 12 * 8 * (1 if interleave == "PIXEL" else 3), c
    assert c[harness.BATCHES] < c[harness.DECODED], "a batch a tile: %s" % c


def test_row_by_row_decodes_no_tile_twice(tmp_path):
    """A row crosses every tile of a tile row 256 times; the block cache has to carry them."""
    ds = harness.open_ours(make(tmp_path / "a.tif", 3000, 2000))
    band = ds.GetRasterBand(1)
    for y in range(2000):
        band.ReadRaster(0, y, 3000, 1)
    c = harness.check_all_ours(ds)
    assert c[harness.DECODED] <= 12 * 8, c


def test_single_pixels_decode_no_tile_twice(tmp_path):
    ds = harness.open_ours(make(tmp_path / "a.tif", 1500, 1500))
    rng = harness.rng("pixels")
    for _ in range(3000):
        ds.GetRasterBand(1).ReadRaster(rng.randrange(1500), rng.randrange(1500), 1, 1)
    c = harness.check_all_ours(ds)
    assert c[harness.DECODED] <= 36, c


def test_row_by_row_over_bands_decodes_no_tile_twice(tmp_path):
    """Pixel-interleaved: reading band after band must not decode every tile once a band."""
    ds = harness.open_ours(make(tmp_path / "a.tif", 1000, 600, bands=4))
    for y in range(600):
        for i in range(1, 5):
            ds.GetRasterBand(i).ReadRaster(0, y, 1000, 1)
    c = harness.check_all_ours(ds)
    assert c[harness.DECODED] <= 4 * 3, c


def test_walk_is_served_ahead(tmp_path):
    """The way gdal_translate walks: block after block, row after row."""
    ds = harness.open_ours(make(tmp_path / "a.tif", 4096, 4096))
    band = ds.GetRasterBand(1)
    for y in range(16):
        for x in range(16):
            band.ReadBlock(x, y)
    c = harness.check_all_ours(ds)
    assert c[harness.FROM_AHEAD] > 128, "sequence not recognised: %s" % c
    assert c[harness.DECODED] <= 256, c
    assert c[harness.BATCHES] < 128, c


def test_walk_by_blocks_of_rows_is_served_ahead(tmp_path):
    """The way a warper or a VRT walks: whole rows of blocks by RasterIO, forwards."""
    ds = harness.open_ours(make(tmp_path / "a.tif", 4096, 4096))
    for y in range(0, 4096, 256):
        ds.ReadRaster(0, y, 4096, 256)
    c = harness.check_all_ours(ds)
    assert c[harness.DECODED] == 256, c


def test_counters_of_a_band_are_the_datasets(tmp_path):
    ds = harness.open_ours(make(tmp_path / "a.tif", 500, 500))
    ds.ReadRaster()
    assert harness.counters(ds.GetRasterBand(1))[harness.DECODED] == harness.counters(ds)[harness.DECODED] == 4


def test_overviews_and_masks_count_too(tmp_path):
    path = make(tmp_path / "a.tif", 1000, 1000)
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        ds = gdal.OpenEx(path, gdal.OF_UPDATE, allowed_drivers=["GTiff"])
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        ds.GetRasterBand(1).GetMaskBand().Fill(255)
        ds.BuildOverviews("NEAREST", [2])
        ds = None
    ours, theirs = harness.open_pair(path)
    seen = 0
    for name, band in harness.bands_of(ours):
        band.ReadRaster()
        now = harness.counters(ours)[harness.TOUCHED]
        assert now > seen, "%s: no tile touched" % name
        seen = now
    harness.same_pixels(ours, theirs)
    harness.check_all_ours(ours)


def test_engine_and_reason_are_told(tmp_path):
    ds = harness.open_ours(make(tmp_path / "a.tif", 100, 100))
    ds.ReadRaster()
    c = harness.counters(ds)
    assert c[harness.ENGINE] == "CPU" and c[harness.ENGINE_REASON], c
    named = harness.open_ours(make(tmp_path / "b.tif", 100, 100), ["ENGINE=CPU"])
    named.ReadRaster()
    assert harness.counters(named)[harness.ENGINE] == "CPU"


def test_bytes_decoded_are_the_pixels(tmp_path):
    """As many as the tiles hold, padding of edge tiles included or not."""
    ds = harness.open_ours(make(tmp_path / "a.tif", 1000, 700, bands=2))
    ds.ReadRaster()
    c = harness.check_all_ours(ds)
    assert 1000 * 700 * 2 * 2 <= c[harness.BYTES_DECODED] <= 1024 * 768 * 2 * 2, c
    for y in range(0, 700, 70):
        ds.GetRasterBand(1).ReadRaster(0, y, 1000, 1)
    assert harness.counters(ds)[harness.BYTES_DECODED] <= 2 * 1024 * 768 * 2 * 2, "rows read from a cache were counted"


def test_peak_stays_within_the_budget(tmp_path):
    ds = harness.open_ours(make(tmp_path / "a.tif", 6000, 6000), ["BATCH_MB=2"])
    ds.ReadRaster()
    c = harness.check_all_ours(ds)
    assert 0 < c[harness.PEAK_BYTES] <= 3 * 2 * 1024 * 1024 + (64 << 20), c


def test_config_option_is_the_default_of_the_open_option(tmp_path):
    path = make(tmp_path / "a.tif", 3000, 3000)

    def batches(options, **settings):
        with harness.config(**settings):
            ds = harness.open_ours(path, options)
            ds.ReadRaster()
            return harness.counters(ds)[harness.BATCHES]

    assert batches([], GPUGTIFF_BATCH_MB="2") == batches(["BATCH_MB=2"])
    assert batches(["BATCH_MB=64"], GPUGTIFF_BATCH_MB="2") == batches(["BATCH_MB=64"])
    assert batches(["BATCH_MB=2"]) > batches(["BATCH_MB=64"])


def test_summary_line_at_close(tmp_path):
    path = make(tmp_path / "a.tif", 300, 300)
    done = harness.run_python(
        "import harness, sys\nds = harness.open_ours(sys.argv[1]); ds.ReadRaster(); ds = None\n", path,
        env={"CPL_DEBUG": "GPUGTIFF,GPUGTiff"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "GPUGT" in done.stderr.upper() and "tiles" in done.stderr.lower(), done.stderr
