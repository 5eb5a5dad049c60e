"""Codecs that only GDAL has, written by our workers tile by tile. GTiff with one thread is the oracle: the same pixels
everywhere, and the same bytes of every tile where the library gives the same bytes twice (LERC of integers does not:
it stores a few bytes that nobody set)."""

import harness
import numpy as np
import pytest
import written
from osgeo import gdal

SHAPE = (333, 501)  # no multiple of any block
LAYOUTS = [
    dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=48), dict(TILED="YES"), dict(TILED="NO", BLOCKYSIZE=16), dict(TILED="NO"),
]  # fmt: skip
B, U16, I32, F32 = gdal.GDT_Byte, gdal.GDT_UInt16, gdal.GDT_Int32, gdal.GDT_Float32
CASES = [
    (B, 1, dict(COMPRESS="JPEG")), (B, 3, dict(COMPRESS="JPEG", JPEG_QUALITY=40)),
    (B, 3, dict(COMPRESS="JPEG", PHOTOMETRIC="YCBCR")), (B, 4, dict(COMPRESS="JPEG", PHOTOMETRIC="RGB", ALPHA="YES")),
    (B, 2, dict(COMPRESS="JPEG", JPEGTABLESMODE=0)), (B, 3, dict(COMPRESS="WEBP", WEBP_LEVEL=30)),
    (B, 4, dict(COMPRESS="WEBP", WEBP_LOSSLESS="YES", WEBP_LEVEL=100)), (B, 1, dict(COMPRESS="LERC", MAX_Z_ERROR=0.5)),
    (B, 4, dict(COMPRESS="LERC", ALPHA="YES")), (F32, 3, dict(COMPRESS="LERC_ZSTD", MAX_Z_ERROR=0.5)),
    (I32, 2, dict(COMPRESS="LERC_DEFLATE")), (U16, 3, dict(COMPRESS="LZMA", LZMA_PRESET=1, PREDICTOR=2)),
    (F32, 1, dict(COMPRESS="LZMA", LZMA_PRESET=1, PREDICTOR=3)), (B, 1, dict(COMPRESS="CCITTFAX4", NBITS=1)),
    (U16, 3, dict(COMPRESS="NONE", NBITS=12)), (B, 2, dict(COMPRESS="DEFLATE", NBITS=7, ENDIANNESS="BIG")),
    (F32, 1, dict(COMPRESS="ZSTD", NBITS=16)), (B, 3, dict(COMPRESS="NONE", DISCARD_LSB=2)),
    (U16, 3, dict(COMPRESS="DEFLATE", PREDICTOR=2, DISCARD_LSB="1,3,5")), (I32, 2, dict(COMPRESS="LZW", DISCARD_LSB=3)),
    (F32, 1, dict(COMPRESS="ZSTD", PREDICTOR=3, DISCARD_LSB=12)), (B, 1, dict(COMPRESS="JPEG", DISCARD_LSB=4)),
    (U16, 2, dict(COMPRESS="PACKBITS", DISCARD_LSB="4,0", ENDIANNESS="BIG")), (F32, 2, dict(COMPRESS="LERC", DISCARD_LSB=9)),
]  # fmt: skip
name = lambda case: ",".join(map(str, [case[1], *case[2].values()]))  # noqa: E731


def have(options):
    codecs = gdal.GetDriverByName("GTiff").GetMetadataItem("DMD_CREATIONOPTIONLIST")
    if "<Value>%s</Value>" % options["COMPRESS"] not in codecs:
        pytest.skip("this libtiff has no %s" % options["COMPRESS"])


def planes(bands, bits=8, shape=SHAPE):
    """Waves and some noise, within the bits."""
    rng, (y, x) = np.random.default_rng(7), np.mgrid[0 : shape[0], 0 : shape[1]]
    waves = [(np.sin(x / 9 + i) + np.cos(y / 7)) * 25 + 60 + rng.integers(0, 9, shape) for i in range(bands)]
    return [(w > 60).astype(float) if bits == 1 else np.floor(w) for w in waves]


def source(kind, bands, options, shape=SHAPE):
    ds = gdal.GetDriverByName("MEM").Create("", shape[1], shape[0], bands, kind)
    for i, plane in enumerate(planes(bands, options.get("NBITS", 8), shape)):
        ds.GetRasterBand(i + 1).WriteArray(plane)
    return ds


def interleaves(bands, options):
    pixel_only = bands == 1 or options["COMPRESS"] == "WEBP" or options.get("PHOTOMETRIC") == "YCBCR"
    return ["PIXEL"] if pixel_only else ["PIXEL", "BAND"]


def same_file(ours, theirs, options, where, bytes_too=True):
    harness.same_bytes(written.read_gtiff(ours), written.read_gtiff(theirs), where)
    assert written.tags(ours) == written.tags(theirs), where
    if bytes_too and "LERC" not in options["COMPRESS"]:
        assert written.tile_bytes(ours) == written.tile_bytes(theirs), where


@pytest.mark.parametrize("case", CASES, ids=name)
def test_copy(tmp_path, case):
    written.ours_only()
    kind, bands, options = case
    have(options)
    src = source(kind, bands, options)
    for layout in LAYOUTS:
        for interleave in interleaves(bands, options):
            o = dict(options, INTERLEAVE=interleave, **layout)
            theirs = tmp_path / "g.tif"
            assert written.copy(theirs, src, "GTiff", NUM_THREADS=1, **o) is not None
            for threads in (1, 4) if layout is LAYOUTS[0] else (2,):
                ours = tmp_path / ("%d.tif" % threads)
                ds = written.copy(ours, src, NUM_THREADS=threads, **o)
                assert ds is not None, gdal.GetLastErrorMsg()
                written.check_by_us(ds, str(o))
                ds = None
                same_file(ours, theirs, o, "%s, %d threads" % (o, threads))


@pytest.mark.parametrize("case", [c for c in CASES if "DISCARD_LSB" not in c[2]], ids=name)
def test_windows_in_any_order(tmp_path, case):
    """Lossy codecs too: no tile is encoded before all of it is there."""
    written.ours_only()
    kind, bands, options = case
    have(options)
    rng = harness.rng("gtiff codecs", name(case))
    for interleave in interleaves(bands, options):
        o = dict(options, INTERLEAVE=interleave, **LAYOUTS[0])
        src = source(kind, bands, options)
        theirs, ours = tmp_path / "g.tif", tmp_path / "o.tif"
        ds = written.create(theirs, (bands, *SHAPE), kind, "GTiff", NUM_THREADS=1, **o)
        ds.WriteRaster(0, 0, SHAPE[1], SHAPE[0], src.ReadRaster())
        ds = None
        ds = written.create(ours, (bands, *SHAPE), kind, **o)
        for x, y, w, h in shuffled(rng):
            each = [[b + 1] for b in range(bands)] if rng.random() < 0.5 else [list(range(1, bands + 1))]
            for b in each:
                assert ds.WriteRaster(x, y, w, h, src.ReadRaster(x, y, w, h, band_list=b), band_list=b) == 0
        written.check_by_us(ds, str(o))
        ds = None
        same_file(ours, theirs, o, str(o))


def shuffled(rng):
    windows = written._pieces(rng, 0, 0, SHAPE[1], SHAPE[0], 5)
    rng.shuffle(windows)
    return windows


@pytest.mark.parametrize("case", [c for c in CASES if c[1] < 4], ids=name)
def test_read_back_rewritten_and_overviews(tmp_path, case):
    """What was stored is read while the file is being written, as by GTiff; a flushed tile is written again."""
    written.ours_only()
    kind, bands, options = case
    have(options)
    src, made = source(kind, bands, options), []
    for driver in ("GTiff", written.DRIVER):
        path = tmp_path / (driver + ".tif")
        ds = written.create(path, (bands, *SHAPE), kind, driver, NUM_THREADS=1, INTERLEAVE="PIXEL", **LAYOUTS[0], **options)
        ds.WriteRaster(0, 0, SHAPE[1], SHAPE[0], src.ReadRaster())
        ds.FlushCache()
        back = ds.ReadRaster(0, 0, 200, 200)
        ds.WriteRaster(0, 0, 64, 48, b"\0" * (64 * 48 * bands * harness.sample_bytes(kind)))
        ds.FlushCache()
        ds.BuildOverviews("NEAREST", [2])
        ds = None
        info = harness.open_gtiff(str(path))
        made.append((back, info.ReadRaster(), info.GetRasterBand(1).GetOverviewCount()))
    assert made[0] == made[1]


@pytest.mark.parametrize("codec", ["NONE", "DEFLATE", "LZMA"])
@pytest.mark.parametrize("kind", [B, U16, F32, gdal.GDT_Int64], ids=gdal.GetDataTypeName)
@pytest.mark.parametrize("by_copy", [True, False], ids=["copy", "create"])
def test_discarded_bits_keep_the_nodata_value(tmp_path, codec, kind, by_copy):
    """Which is not rounded, nor do others become it, and edge tiles are padded with it."""
    written.ours_only()
    options, made = dict(COMPRESS=codec, DISCARD_LSB=20 if kind == F32 else 3, **LAYOUTS[0]), []
    have(options)
    src = source(kind, 1, {})
    src.GetRasterBand(1).SetNoDataValue(69)
    assert b"\x45" in src.ReadRaster(buf_type=B)
    for driver in ("GTiff", written.DRIVER):
        made.append(tmp_path / (driver + ".tif"))
        if by_copy:
            ds = written.copy(made[-1], src, driver, NUM_THREADS=1, **options)
        else:
            ds = written.create(made[-1], (1, *SHAPE), kind, driver, NUM_THREADS=1, **options)
            ds.GetRasterBand(1).SetNoDataValue(69)
            ds.WriteRaster(0, 0, SHAPE[1], SHAPE[0], src.ReadRaster())
        assert ds is not None, gdal.GetLastErrorMsg()
    # Create() with this option is GTiff's.
    if by_copy:
        written.check_by_us(ds, str(options))
    ds = None
    same_file(made[1], made[0], options, str(options))
    pixels = np.frombuffer(written.read_gtiff(made[1]), harness.open_gtiff(str(made[1])).ReadAsArray().dtype)
    before = src.ReadAsArray().ravel()
    assert kind == gdal.GDT_Int64 or ((pixels == 69) == (before == 69)).all() and (pixels != before).any()


def test_bits_of_a_paletted_image_are_kept(tmp_path):
    """GTiff warns, once, and ignores the option; a table that comes after Create() is none of its business."""
    written.ours_only()
    src, table, made = source(B, 1, {}), gdal.ColorTable(), []
    table.SetColorEntry(255, (1, 2, 3))
    for late in (False, True):
        for driver in ("GTiff", written.DRIVER):
            made.append(tmp_path / ("%s%d.tif" % (driver, late)))
            src.GetRasterBand(1).SetColorTable(None if late else table)
            options = dict(COMPRESS="DEFLATE", DISCARD_LSB=3, **LAYOUTS[0])
            with harness.Errors() as errors:
                if late:
                    ds = written.create(made[-1], (1, *SHAPE), B, driver, **options)
                    ds.GetRasterBand(1).SetColorTable(table)
                    ds.WriteRaster(0, 0, SHAPE[1], SHAPE[0], src.ReadRaster())
                else:
                    ds = written.copy(made[-1], src, driver, **options)
            assert len(["paletted" in text for text in errors]) == (not late), list(errors)
        if not late:
            written.check_by_us(ds)
        ds = None
        same_file(made[-1], made[-2], options, "late" if late else "copied", bytes_too=late)
        assert (written.read_gtiff(made[-1]) == src.ReadRaster()) == (not late)


@pytest.mark.parametrize("codec", ["JPEG", "LZMA", "LERC", "WEBP"])
@pytest.mark.parametrize("sparse", ["YES", "NO"])
def test_what_nobody_wrote(tmp_path, codec, sparse):
    """The first tile that is filled in is cut by the image's edge, the last one is not: both are all nodata."""
    written.ours_only()
    options = dict(COMPRESS=codec, SPARSE_OK=sparse, INTERLEAVE="PIXEL", **LAYOUTS[0])
    have(options)
    bands, made = 3, []
    for driver in ("GTiff", written.DRIVER):
        path = tmp_path / (driver + ".tif")
        ds = written.create(path, (bands, *SHAPE), B, driver, NUM_THREADS=1, **options)
        ds.GetRasterBand(1).SetNoDataValue(77)
        ds.WriteRaster(0, 0, 7 * 64, 48, b"\5" * (7 * 64 * 48 * bands))
        ds = None
        made.append((written.read_gtiff(path), [t is None for t in written.tile_bytes(path)]))
    harness.same_bytes(made[1][0], made[0][0], "pixels")
    assert made[0][1] == made[1][1]


def test_alpha_that_is_set_before_the_first_pixel(tmp_path):
    """LERC stores it as a mask: tiles are encoded for the tags that the file has when the first pixel comes."""
    written.ours_only()
    have(dict(COMPRESS="LERC"))
    src, made = source(B, 4, {}), []
    for driver in ("GTiff", written.DRIVER):
        path = tmp_path / (driver + ".tif")
        options = dict(COMPRESS="LERC", PHOTOMETRIC="RGB", ALPHA="NO", INTERLEAVE="PIXEL", **LAYOUTS[0])
        ds = written.create(path, (4, *SHAPE), B, driver, NUM_THREADS=1, **options)
        ds.GetRasterBand(4).SetColorInterpretation(gdal.GCI_AlphaBand)
        ds.WriteRaster(0, 0, SHAPE[1], SHAPE[0], src.ReadRaster())
        ds = None
        made.append(path)
    same_file(made[1], made[0], dict(COMPRESS="LERC"), "alpha")


def test_a_mask_beside_jpeg(tmp_path):
    written.ours_only()
    have(dict(COMPRESS="JPEG"))
    masked = written.masked_source(tmp_path / "s.tif", 300, 200)
    made = []
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        for driver in ("GTiff", written.DRIVER):
            made.append(tmp_path / (driver + ".tif"))
            options = dict(COMPRESS="JPEG", PHOTOMETRIC="YCBCR", NUM_THREADS=1, **LAYOUTS[0])
            assert written.copy(made[-1], harness.open_gtiff(masked), driver, **options) is not None
    same_file(made[1], made[0], dict(COMPRESS="JPEG"), "masked")
    files = [harness.open_gtiff(str(path)) for path in made]
    masks = [ds.GetRasterBand(1).GetMaskBand().ReadRaster() for ds in files]
    assert masks[0] == masks[1]


def test_a_write_that_fails_is_told(tmp_path):
    """Seven bands side by side are more than JPEG takes. GTiff's threads said nothing and left zeros."""
    written.ours_only()
    have(dict(COMPRESS="JPEG"))
    for threads in (1, 4):
        path = str(tmp_path / ("%d.tif" % threads))
        options = dict(COMPRESS="JPEG", INTERLEAVE="PIXEL", TILED="YES", BLOCKXSIZE=48, BLOCKYSIZE=48)
        with harness.Errors() as errors, harness.config(GDAL_NUM_THREADS="4"):
            ds = written.create(path, (7, 20, 75), B, NUM_THREADS=threads, **options)
            failed = ds is None or ds.WriteRaster(0, 0, 75, 20, b"\7" * (75 * 20 * 7)) != 0
            ds = None
        assert failed or errors, "a failed write was a success"


def test_a_warning_of_gtiffs_is_passed_on(tmp_path):
    written.ours_only()
    src = source(B, 1, {}, (100, 100))
    with harness.Errors() as errors:
        ds = written.copy(tmp_path / "o.tif", src, COMPRESS="LZMA", NBITS=4, **LAYOUTS[0])
        ds = None
    assert any("clipped" in str(e) for e in errors), list(errors)
    assert not any("vsimem" in str(e) for e in errors), list(errors)


def test_a_jpeg_is_copied_without_loss(tmp_path):
    """GTiff takes the coefficients of a JPEG over: that is left to it."""
    written.ours_only()
    jpeg = gdal.GetDriverByName("JPEG")
    if jpeg is None:
        pytest.skip("this GDAL has no JPEG driver")
    jpeg.CreateCopy(str(tmp_path / "s.jpg"), source(B, 3, {}), options=["QUALITY=30"])
    made = []
    for driver in ("GTiff", written.DRIVER):
        made.append(tmp_path / (driver + ".tif"))
        assert written.copy(made[-1], gdal.Open(str(tmp_path / "s.jpg")), driver, COMPRESS="JPEG", TILED="YES") is not None
    harness.same_bytes(written.read_gtiff(made[1]), written.read_gtiff(made[0]), "copied")
    assert written.tile_bytes(made[1]) == written.tile_bytes(made[0])


def test_nothing_stays_in_memory(tmp_path):
    written.ours_only()
    before = written.in_vsimem()
    assert written.copy(tmp_path / "o.tif", source(B, 3, {}), COMPRESS="LZMA", LZMA_PRESET=1) is not None
    assert written.in_vsimem() == before
