"""Tiles decoded and encoded one by one, where source and target are cut alike: the bytes that a copy out of memory
gives, whatever codecs, padding, holes and damage the source has; and counted."""

import os

import harness
import numpy as np
import pytest
import test_write_copy
import tiffpatch
import written
from osgeo import gdal

W, H = test_write_copy.W, test_write_copy.H
OPENERS = pytest.mark.parametrize("opener", [harness.open_gtiff, harness.open_ours], ids=["GTiff", "ours"])

made = test_write_copy.made


@pytest.fixture(autouse=True)
def about_ours():
    written.ours_only()


def tiles_of(path):
    return harness.digests(written.tile_bytes(path))


def recode(path, out, opener=harness.open_gtiff, **options):
    """-> the counter."""
    ds = written.copy(out, opener(path), **options)
    assert ds is not None, gdal.GetLastErrorMsg()
    n, copied = written.counter(ds, written.RECODED), written.counter(ds, written.COPIED)
    written.check_by_us(ds)
    ds = None
    assert copied == 0
    return n


def from_memory(raster, out, **options):
    """The stored tiles of a file that is made of the same pixels in memory, as digests."""
    ds = written.copy(out, raster.mem(), **options)
    assert written.counter(ds, written.RECODED) == 0
    ds = None
    return tiles_of(out)


ALIKE = ["COPY_TILES=NO", "a level", "another codec", "another byte order", "another predictor"]


@OPENERS
@pytest.mark.parametrize("what", ALIKE)
def test_every_tile_is_recoded(made, tmp_path, what, opener):
    path, options, raster = made
    levels = options["COMPRESS"] in ("DEFLATE", "ZSTD")
    if what == "a level" and not levels or what == "another predictor" and options["COMPRESS"] in ("NONE", "PACKBITS"):
        pytest.skip("not with this codec")
    options = test_write_copy.other_options(options, test_write_copy.OTHERS[what])
    out = str(tmp_path / "o.tif")
    n = recode(path, out, opener, BATCH_MB=harness.rng("batch", what).choice([1, 64]), **options)
    assert n == len(written.tile_bytes(path)) > 4
    assert tiles_of(out) == from_memory(raster, str(tmp_path / "m.tif"), **options), "other bytes"
    written.check_readers(out, raster, what)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "complex64", "float64"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(tmp_path, dtype, threads):
    raster = written.Raster(harness.rng("threads", dtype), dtype, (2, 700, 600))
    alike = dict(TILED="YES", BLOCKXSIZE=32, BLOCKYSIZE=48, INTERLEAVE="PIXEL")
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    ds = written.copy(path, raster.mem(), "GTiff", COMPRESS="LZW", **alike)
    ds = None
    options = dict(COMPRESS="ZSTD", ENDIANNESS="BIG", BATCH_MB=1, NUM_THREADS=threads, **alike)
    assert recode(path, out, **options) == len(written.tile_bytes(path))
    assert tiles_of(out) == from_memory(raster, str(tmp_path / "m.tif"), **options)
    written.check_readers(out, raster, dtype)


@pytest.mark.parametrize("what", ["another block", "another interleaving"])
def test_none_is_recoded_where_they_are_cut_otherwise(made, tmp_path, what):
    path, options, raster = made
    out = str(tmp_path / "o.tif")
    assert recode(path, out, **test_write_copy.other_options(options, test_write_copy.OTHERS[what])) == 0
    written.check_readers(out, raster, what)


def test_padding_is_not_taken_over(tmp_path):
    """Whatever stands in a source's tiles outside the image, in ours there is fill."""
    raster = written.Raster(harness.rng("padding"), "uint8", (1, 100, 90))
    alike = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    ds = written.copy(path, raster.mem(), "GTiff", COMPRESS="NONE", **alike)
    ds = None
    tiff = tiffpatch.Tiff(path)
    for n, (offset, _) in enumerate(tiff.striles()):
        columns, rows = (64, 26)[n % 2], (64, 36)[n // 2]
        tile = np.frombuffer(tiff.data, np.uint8, 64 * 64, offset).reshape(64, 64).copy()
        tile[rows:], tile[:, columns:] = 0xAB, 0xCD
        tiff.data[offset : offset + 64 * 64] = tile.tobytes()
    tiff.save()
    assert recode(path, out, COMPRESS="DEFLATE", **alike) == 4
    assert tiles_of(out) == from_memory(raster, str(tmp_path / "m.tif"), COMPRESS="DEFLATE", **alike)


@OPENERS
@pytest.mark.parametrize("nodata", [None, 500])
@pytest.mark.parametrize("sparse", ["YES", "NO"])
def test_holes(tmp_path, nodata, sparse, opener):
    """What stands in a hole the source's dataset knows: batches that have one are asked of it."""
    path, options = test_write_copy.sparse_source(tmp_path, nodata)
    out = str(tmp_path / "o.tif")
    recode(path, out, opener, SPARSE_OK=sparse, **dict(options, COMPRESS="ZSTD", BATCH_MB=1))
    harness.same_bytes(written.read_gtiff(out), written.read_gtiff(path), "holes")
    assert any(tile is None for tile in written.tile_bytes(out)) == (sparse == "YES")


@OPENERS
@pytest.mark.parametrize("ignored", ["NO", "YES"])
@pytest.mark.parametrize("how", ["offset behind the end", "end behind the end", "count of zero", "rubbish", "cut off"])
def test_damage(made, tmp_path, how, ignored, opener):
    """A tile that cannot be decoded is asked of the source's dataset: what a copy by GTiff makes of it, ours does."""
    path, options, _ = made
    test_write_copy.damage(path, how)
    options = dict(options, COPY_TILES="NO", BATCH_MB=1)
    results = []
    for driver, name in ((written.DRIVER, "ours.tif"), ("GTiff", "theirs.tif")):
        out = str(tmp_path / name)
        with harness.Errors() as errors, harness.config(GTIFF_IGNORE_READ_ERRORS=ignored):
            source = opener(path) if driver == written.DRIVER else harness.open_gtiff(path)
            if source is None:
                pytest.skip("GTiff does not open it either")
            ds = written.copy(out, source, driver, **options)
            done = ds is not None
            ds = None
        assert done or errors.failures()
        results.append(written.read_gtiff(out) if done else None)
    ours, theirs = results
    assert (ours is None) == (theirs is None), "ours %s, GTiff %s" % (ours is not None, theirs is not None)
    if ours is not None:
        # What is read where errors are ignored is left over from whatever was read before.
        harness.same_bytes(ours, theirs, how) if ignored == "NO" else None
    else:
        assert not os.path.exists(str(tmp_path / "ours.tif"))


@OPENERS
@pytest.mark.parametrize("place", ["plain", "open elsewhere", "in memory"])
@pytest.mark.parametrize("codec, way", [("NONE", "NO"), ("LZW", "NO"), ("LZW", "AUTO"), ("NONE", "AUTO")])
def test_another_file_under_its_name(tmp_path, codec, way, opener, place):
    """What the dataset shows is what is written, whatever was put into its file's place since."""
    rasters = [written.Raster(harness.rng("replaced", k), "uint8", (1, 200, 200)) for k in range(2)]
    alike = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64)
    folder = "/vsimem/%s" % tmp_path.name if place == "in memory" else str(tmp_path)
    paths = ["%s/%s.tif" % (folder, name) for name in "ab"]
    for path, raster in zip(paths, rasters):
        ds = written.copy(path, raster.mem(), "GTiff", COMPRESS=codec, **alike)
        ds = None
    source = opener(paths[0])
    assert gdal.Unlink(paths[0]) == 0 and gdal.Rename(paths[1], paths[0]) == 0
    other = open(paths[0], "rb") if place == "open elsewhere" else None
    for target in ("LZW", "ZSTD"):
        out = str(tmp_path / (target + ".tif"))
        ds = written.copy(out, source, COMPRESS=target, COPY_TILES=way, **alike)
        ds = None
        harness.same_bytes(written.read_gtiff(out), rasters[0].whole(), "as it was opened")
    source = None
    other.close() if other else gdal.Unlink(paths[0])


@pytest.mark.parametrize("stop", [0.2, 0.6])
def test_progress_and_cancel(tmp_path, stop):
    raster = written.Raster(harness.rng("progress"), "uint8", (3, 900, 900))
    alike = dict(TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, INTERLEAVE="PIXEL")
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    ds = written.copy(path, raster.mem(), "GTiff", COMPRESS="LZW", **alike)
    ds = None
    options, told = dict(COMPRESS="DEFLATE", BATCH_MB=1, **alike), []

    def note(done, *_):
        told.append(done)
        return 1

    ds = written.copy(out, harness.open_gtiff(path), callback=note, **options)
    assert written.counter(ds, written.RECODED) == 15 * 15
    ds = None
    assert told == sorted(told) and told[0] == 0 and told[-1] == 1
    # The caller looks ten times a second: two batches, a quarter of BATCH_MB each, may have ended meanwhile.
    assert max(b - a for a, b in zip(told, told[1:])) < 0.5, "moves evenly"

    with harness.Errors() as errors:
        ds = written.copy(out, harness.open_gtiff(path), callback=lambda done, *_: int(done < stop), **options)
        assert ds is None and errors.failures()
    assert not os.path.exists(out)


def test_by_gdal_translate(tmp_path):
    """The plain command, GTiff reading: another codec."""
    raster = written.Raster(harness.rng("translate"), "int16", (1, 500, 400))
    path, out = str(tmp_path / "s.tif"), str(tmp_path / "o.tif")
    ds = written.copy(path, raster.mem(), "GTiff", TILED="YES", COMPRESS="LZW", PREDICTOR=2)
    ds = None
    written.succeeded(written.translate(path, out, COMPRESS="ZSTD", PREDICTOR=2))
    written.check_readers(out, raster, "translated")
