"""Tiles copied compressed (COPY_TILES=AUTO): exactly where source and target agree, counted, byte for byte; and never
where the target would be another file than one written from the pixels."""

import os

import harness
import numpy as np
import pytest
import tifffile
import tiffpatch
import writers
import written
from osgeo import gdal

W, H = 300, 260

SOURCES = {
    "tiles DEFLATE": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE", INTERLEAVE="PIXEL"),
    "tiles LZW by band": dict(
        TILED="YES", BLOCKXSIZE=48, BLOCKYSIZE=80, COMPRESS="LZW", INTERLEAVE="BAND", PREDICTOR=2),
    "tiles ZSTD": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="ZSTD", INTERLEAVE="PIXEL", PREDICTOR=2),
    "tiles NONE": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="NONE", INTERLEAVE="PIXEL"),
    "tiles PACKBITS": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="PACKBITS", INTERLEAVE="BAND"),
    "strips LZW": dict(TILED="NO", BLOCKYSIZE=7, COMPRESS="LZW", INTERLEAVE="PIXEL"),
    "strips NONE by band": dict(TILED="NO", BLOCKYSIZE=16, COMPRESS="NONE", INTERLEAVE="BAND"),
    "big-endian": dict(
        TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE", INTERLEAVE="PIXEL", ENDIANNESS="BIG"),
    "BigTIFF": dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE", INTERLEAVE="PIXEL", BIGTIFF="YES"),
}
OTHERS = {
    "COPY_TILES=NO": dict(COPY_TILES="NO"), "a level": dict(LEVEL=9), "another codec": dict(COMPRESS="OTHER"),
    "another block": dict(BLOCKYSIZE=32), "another interleaving": dict(INTERLEAVE="OTHER"),
    "another byte order": dict(ENDIANNESS="OTHER"), "another predictor": dict(PREDICTOR="OTHER"),
    "discarded bits": dict(DISCARD_LSB=2),
}  # fmt: skip


@pytest.fixture(autouse=True)
def about_ours():
    written.ours_only()


@pytest.fixture(params=sorted(SOURCES))
def made(request, tmp_path):
    """(path, options, raster) of a source of GTiff's."""
    raster = written.Raster(harness.rng("copy", request.param), "uint16", (3, H, W))
    options = dict(SOURCES[request.param], PHOTOMETRIC="MINISBLACK")
    path = str(tmp_path / "s.tif")
    ds = written.copy(path, raster.mem(), "GTiff", **options)
    ds = None
    return path, options, raster


def copy(path, out, opener=harness.open_gtiff, by_us=True, **options):
    """-> the counter; the pixels are those of the source."""
    source = opener(path)
    ds = written.copy(out, source, **options)
    assert ds is not None, gdal.GetLastErrorMsg()
    n = written.counter(ds, written.COPIED)
    written.check_by_us(ds) if by_us else None
    ds = None
    return n


@pytest.mark.parametrize("opener", [harness.open_gtiff, harness.open_ours], ids=["GTiff", "ours"])
@pytest.mark.parametrize("batch", [1, 64])
def test_every_tile_is_copied(made, tmp_path, opener, batch):
    """Opened by GTiff or by us: as many as there are, the bytes as they were."""
    path, options, raster = made
    tiles = written.tile_bytes(path)
    out = str(tmp_path / "o.tif")
    assert copy(path, out, opener, BATCH_MB=batch, **options) == len(tiles) > 4
    assert harness.digests(written.tile_bytes(out)) == harness.digests(tiles), "other bytes"
    written.check_readers(out, raster, "copied")


def test_by_gdal_translate(made, tmp_path):
    path, options, raster = made
    out = tmp_path / "o.tif"
    done = written.translate(path, out, "--debug", "on", **options)
    assert done.returncode == 0, done.stderr
    assert harness.digests(written.tile_bytes(out)) == harness.digests(written.tile_bytes(path))
    written.check_readers(out, raster, "copied")


def other_options(options, change):
    o = dict(options)
    for key, value in change.items():
        if key == "COMPRESS":
            value = "LZW" if o["COMPRESS"] != "LZW" else "DEFLATE"
        if key == "INTERLEAVE":
            value = "BAND" if o["INTERLEAVE"] == "PIXEL" else "PIXEL"
        if key == "ENDIANNESS":
            value = "LITTLE" if o.get("ENDIANNESS") == "BIG" else "BIG"
        if key == "PREDICTOR":
            value = 1 if o.get("PREDICTOR") == 2 else 2
        if key == "LEVEL":
            key = {"DEFLATE": "ZLEVEL", "ZSTD": "ZSTD_LEVEL"}[o["COMPRESS"]]
        o[key] = value
    return o


@pytest.mark.parametrize("what", sorted(OTHERS))
def test_none_is_copied_where_they_differ(made, tmp_path, what):
    path, options, raster = made
    levels = options["COMPRESS"] in ("DEFLATE", "ZSTD")
    predicts = options["COMPRESS"] in writers.PREDICTABLE
    if (what == "a level" and not levels) or (what == "another predictor" and not predicts):
        pytest.skip("not with this codec")
    out = str(tmp_path / "o.tif")
    assert not copy(path, out, **other_options(options, OTHERS[what]))
    if what == "discarded bits":
        assert written.read_gtiff(out) != raster.whole()
    else:
        written.check_readers(out, raster, what)


@pytest.mark.parametrize("codec,level", [("DEFLATE", "ZSTD_LEVEL"), ("ZSTD", "ZLEVEL"), ("LZW", "ZLEVEL")])
def test_the_level_of_another_codec_is_none(tmp_path, codec, level):
    """GTiff does not look at it: tiles are copied as if it were not there."""
    raster = written.Raster(harness.rng("level"), "uint8", (1, H, W))
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    options = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS=codec)
    ds = written.copy(path, raster.mem(), "GTiff", **options)
    ds = None
    assert copy(path, out, **options, **{level: 3}) == len(written.tile_bytes(path))
    written.check_readers(out, raster, codec)


def test_byte_order_of_single_bytes_is_no_matter_of_pixels(tmp_path):
    """Whether tiles of bytes are copied into the other byte order or not: right pixels."""
    raster = written.Raster(harness.rng("bytes"), "uint8", (1, H, W))
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    ds = written.copy(path, raster.mem(), "GTiff", TILED="YES", COMPRESS="LZW")
    ds = None
    copy(path, out, TILED="YES", COMPRESS="LZW", ENDIANNESS="BIG")
    written.check_readers(out, raster, "bytes")


@pytest.mark.parametrize("how", ["window", "bands", "scaled", "type", "nodata", "VRT"])
def test_what_is_not_the_whole_file_has_right_pixels(made, tmp_path, how):
    """gdal_translate then hands over a VRT."""
    path, options, raster = made
    args = {"window": ["-srcwin", "64", "64", "128", "128"], "bands": ["-b", "2", "-b", "1"],
            "scaled": ["-outsize", "50%", "0"],
            "type": ["-ot", "Int32"], "nodata": ["-a_nodata", "7"], "VRT": ["-mo", "A=B"]}[how]  # fmt: skip
    results = []
    for driver in (written.DRIVER, "GTiff"):
        out = str(tmp_path / (driver + "_o.tif"))
        written.succeeded(written.translate(path, out, *args, driver=driver, **options))
        results.append(out)
    harness.same_pixels(*(harness.open_gtiff(r) for r in results), where=how)


# ---- holes ---------------------------------------------------------------------------------


def sparse_source(tmp_path, nodata=None, **options):
    path = str(tmp_path / "s.tif")
    o = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="LZW", SPARSE_OK="YES", **options)
    ds = written.create(path, (2, H, W), gdal.GDT_UInt16, "GTiff", **o)
    if nodata is not None:
        ds.GetRasterBand(1).SetNoDataValue(nodata)
    for x, y in ((0, 0), (128, 64), (256, 192)):
        w, h = min(64, W - x), min(64, H - y)
        ds.WriteRaster(x, y, w, h, np.random.default_rng(x).integers(1, 9999, w * h * 2).astype(np.uint16).tobytes())
    ds = None
    del o["SPARSE_OK"]
    return path, o


@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
@pytest.mark.parametrize("sparse", ["YES", "NO"])
@pytest.mark.parametrize("nodata", [None, 500])
def test_holes_follow_sparse_ok(tmp_path, interleave, sparse, nodata):
    path, options = sparse_source(tmp_path, nodata, INTERLEAVE=interleave)
    tiles = written.tile_bytes(path)
    full = [t for t in tiles if t is not None]
    assert 0 < len(full) < len(tiles)
    out = str(tmp_path / "o.tif")
    n = copy(path, out, SPARSE_OK=sparse, **options)
    made = written.tile_bytes(out)
    assert n == len(full), "%d copied of %d that are there" % (n, len(full))
    assert harness.digests([m for m, t in zip(made, tiles) if t is not None]) == harness.digests(full)
    assert all((m is None) == (sparse == "YES") for m, t in zip(made, tiles) if t is None)
    harness.same_bytes(written.read_gtiff(out), written.read_gtiff(path), "holes")


# ---- damaged sources -----------------------------------------------------------------------


def damage(path, how):
    tiff = tiffpatch.Tiff(path)
    n = len(tiff.striles())
    offset, count = tiff.striles()[n // 2]
    if how == "offset behind the end":
        tiff.set(tiffpatch.OFFSETS, len(tiff.data) + 10, n // 2)
    elif how == "end behind the end":
        tiff.widen(tiff.entry(tiffpatch.COUNTS).tag)
        tiff.set(tiffpatch.COUNTS, len(tiff.data), n // 2)
    elif how == "count of zero":
        tiff.set(tiffpatch.COUNTS, 0, n // 2)
    elif how == "offset in the header":
        tiff.set(tiffpatch.OFFSETS, 2, n // 2)
    elif how == "rubbish":
        tiff.data[offset : offset + count] = os.urandom(count)
    elif how == "cut off":
        tiff.data = tiff.data[: max(offset, 3000) + count // 2]
    tiff.save()


@pytest.mark.parametrize("how", ["offset behind the end", "end behind the end", "count of zero", "offset in the header",
                                 "rubbish", "cut off"])  # fmt: skip
def test_damaged_ranges(made, tmp_path, how):
    """Refused with nothing left, or the target reads everywhere as the source does (fails where it fails)."""
    path, options, _ = made
    damage(path, how)
    out = str(tmp_path / "o.tif")
    with harness.Errors() as errors:
        source = harness.open_gtiff(path)
        if source is None:
            pytest.skip("GTiff does not open it either")
        ds = written.copy(out, source, **options)
        done = ds is not None
        ds = None
    if not done:
        assert errors.failures() and not os.path.exists(out)
        return
    a, b = harness.open_gtiff(path), harness.open_gtiff(out)
    bx, by = a.GetRasterBand(1).GetBlockSize()
    for y in range(0, H, by):
        for x in range(0, W, bx):
            window = (x, y, min(bx, W - x), min(by, H - y))
            with harness.Errors():
                want, got = a.ReadRaster(*window), b.ReadRaster(*window)
            if want is not None:
                harness.same_bytes(got, want, "%s at %s" % (how, window))
            else:
                assert got is None, "%s at %s: pixels out of nothing" % (how, window)


# ---- what rules it out ---------------------------------------------------------------------


def test_shared_and_unordered_tiles(tmp_path):
    """Two tiles of one range, tiles stored backwards: copied in row-major order, each with bytes of its own."""
    raster = written.Raster(harness.rng("shared"), "uint8", (1, 128, 256))
    raster.bytes[:, :64, 64:128] = raster.bytes[:, :64, :64]
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    options = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE")
    ds = written.create(path, raster.shape, driver="GTiff", **options)
    for x, y in [(x, y) for y in (64, 0) for x in (192, 128, 64, 0)]:
        raster.write(ds, x, y, 64, 64)
        ds.FlushCache()
    ds = None
    tiff = tiffpatch.Tiff(path)
    offset, count = tiff.striles()[0]
    tiff.set(tiffpatch.OFFSETS, offset, 1)
    tiff.set(tiffpatch.COUNTS, count, 1)
    tiff.save()
    assert copy(path, out, **options) == 8
    starts = [o for o, _ in tiffpatch.Tiff(out).striles()]
    assert starts == sorted(starts) and len(set(starts)) == 8
    written.check_readers(out, raster, "shared")


@pytest.mark.parametrize("internal", ["YES", "NO"])
def test_mask_beside_copied_tiles(tmp_path, internal):
    raster = written.Raster(harness.rng("mask"), "uint8", (3, H, W))
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    options = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE", INTERLEAVE="PIXEL")
    bits = (np.arange(W * H) // 19 % 2 * 255).astype(np.uint8).tobytes()
    with harness.config(GDAL_TIFF_INTERNAL_MASK=internal):
        ds = written.copy(path, raster.mem(), "GTiff", **options)
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, W, H, bits)
        ds = None
        copy(path, out, **options)
    harness.same_pixels(harness.open_gtiff(out), harness.open_gtiff(path), "mask")
    again = harness.open_gtiff(out)
    harness.same_bytes(again.GetRasterBand(1).GetMaskBand().ReadRaster(), bits, "mask")


def test_source_written_to_and_not_flushed(tmp_path):
    """The file on disk lags behind an updated source: what the dataset shows is what is written."""
    raster, later = (written.Raster(harness.rng("dirty", k), "uint16", (1, H, W)) for k in range(2))
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    options = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="LZW")
    ds = written.copy(path, raster.mem(), "GTiff", **options)
    ds = None
    source = gdal.OpenEx(path, gdal.OF_RASTER | gdal.OF_UPDATE, allowed_drivers=["GTiff"])
    later.write(source, 0, 0, W, H)
    out_ds = written.copy(out, source, **options)
    out_ds = None
    harness.same_bytes(written.read_gtiff(out), later.whole(), "of an updated source")


@pytest.mark.parametrize("tag", [None, 500])
@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_nodata_of_pam_fills_holes(tmp_path, tag, interleave):
    """A hole shows PAM's nodata value in the band that has it, the tag's in the others: with SPARSE_OK=NO that is what
    its tile holds."""
    path, options = sparse_source(tmp_path, tag, INTERLEAVE=interleave)
    ds = gdal.Open(path)
    ds.GetRasterBand(1).SetNoDataValue(321)
    ds = None
    out = str(tmp_path / "o.tif")
    copy(path, out, SPARSE_OK="NO", **options)
    harness.same_bytes(written.read_gtiff(out), written.read_gtiff(path), "holes")


def test_old_lzw_and_other_fill_orders_are_decoded(tmp_path):
    """What only looks like the same codec is no tile to copy."""
    raster = written.Raster(harness.rng("order"), "uint8", (1, 64, 64))
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    options = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="LZW")
    ds = written.copy(path, raster.mem(), "GTiff", **options)
    ds = None
    tiff = tiffpatch.Tiff(path)
    tiff.reverse_bits()
    tiff.add_tag(266, 3, [2])
    tiff.save()
    harness.same_bytes(written.read_gtiff(path), raster.whole(), "fill order 2 itself")
    source = harness.open_gtiff(path)
    ds = written.copy(out, source, **options)
    ds = None
    written.check_readers(out, raster, "fill order 2")


def test_mixed_sources_in_deflate(tmp_path):
    """Compression 32946 is Deflate too, under another number than the target's tag."""
    raster = written.Raster(harness.rng("old deflate"), "uint16", (1, 128, 128))
    array = np.frombuffer(raster.whole(), np.uint16).reshape(128, 128)
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    tifffile.imwrite(path, array, tile=(64, 64), compression="deflate", metadata=None)
    copy(path, out, TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="DEFLATE")
    written.check_readers(out, raster, "old deflate")
