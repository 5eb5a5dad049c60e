"""Files that GTiff writes as a whole, with one thread: what it loses without a word is an error of ours, and a tile that
may be left out is none."""

import os

import harness
import numpy as np
import pytest
import sinkfault
import tiffpatch
import written
from osgeo import gdal

SHAPE = (2, 150, 170)
# What our writer leaves to GTiff.
LEFT = dict(COPY_SRC_OVERVIEWS="YES", TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="LZW", INTERLEAVE="PIXEL")
# Create() knows no overviews to copy, and takes a private option of GDAL's as it is.
CREATED = dict(LEFT, **{"@LEFT_TO_GTIFF": "YES"})
del CREATED["COPY_SRC_OVERVIEWS"]


def raster(name="left"):
    return written.Raster(harness.rng("by gtiff", name), "uint8", SHAPE)


def flush(ds):
    """Twice: at the first GTiff writes the directory before it knows where the tiles are."""
    ds.FlushCache()
    ds.FlushCache()


def lose(path, tile, directory=0):
    """Makes a tile one that nobody wrote, as far as the file tells."""
    assert tiffpatch.Tiff(path).values(tiffpatch.COUNTS, directory)[tile]
    tiff = tiffpatch.Tiff(path)
    tiff.set(tiffpatch.COUNTS, 0, tile, directory)
    tiff.save()


def test_a_tile_that_was_lost_is_an_error_at_close(tmp_path):
    """GTiff has written everything when it flushes, and does not look at the file again."""
    written.ours_only()
    path, pixels = str(tmp_path / "o.tif"), raster()
    for lost in (False, True):
        ds = written.create(path, SHAPE, gdal.GDT_Byte, **CREATED)
        assert written.counter(ds, written.BY_GTIFF) == 1
        written.whole_raster(None, pixels, ds)
        flush(ds)
        if lost:
            lose(path, 4)
        with harness.Errors() as errors:
            ds = None
        said = [str(e) for e in errors]
        assert bool(said) == lost, said
    assert "1 of 9 tiles of directory 0 were not written, the first of them is tile 4" in said[0], said


@pytest.mark.parametrize("options", [dict(SPARSE_OK="YES"), {}], ids=["sparse", "filled at close"])
def test_what_nobody_wrote_is_no_error(tmp_path, options):
    written.ours_only()
    path = str(tmp_path / "o.tif")
    with harness.Errors() as errors:
        ds = written.create(path, SHAPE, gdal.GDT_Byte, **CREATED, **options)
        ds.WriteRaster(0, 0, 64, 64, b"\7" * (64 * 64 * 2))
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        ds.BuildOverviews("NEAREST", [2])
        ds = None
    assert not errors, list(errors)
    assert os.path.exists(path)


def test_a_file_that_is_gone_at_close_is_no_error(tmp_path):
    written.ours_only()
    path = str(tmp_path / "o.tif")
    with harness.Errors() as errors:
        ds = written.create(path, SHAPE, gdal.GDT_Byte, **CREATED)
        written.whole_raster(None, raster(), ds)
        ds.FlushCache()
        os.remove(path)
        ds = None
    assert not errors, list(errors)


def test_other_images_of_the_file_are_not_looked_at(tmp_path):
    """One that was there before leaves tiles out, as its owner wished."""
    written.ours_only()
    path, pixels = str(tmp_path / "o.tif"), raster()
    for sparse in ("YES", "NO"):
        options = dict(CREATED, SPARSE_OK=sparse, APPEND_SUBDATASET="NO" if sparse == "YES" else "YES")
        with harness.Errors() as errors:
            ds = written.create(path, SHAPE, gdal.GDT_Byte, **options)
            if sparse == "NO":
                written.whole_raster(None, pixels, ds)
            ds = None
        assert not errors, list(errors)
    harness.same_bytes(written.read_gtiff("GTIFF_DIR:2:" + path), pixels.whole(), "appended")
    # A copy that is appended is looked at as well, and what was there is not.
    with harness.Errors() as errors:
        ds = written.copy(path, pixels.mem(), **dict(LEFT, COPY_SRC_OVERVIEWS="NO", APPEND_SUBDATASET="YES"))
        assert ds is not None
        ds = None
    assert not errors, list(errors)
    harness.same_bytes(written.read_gtiff("GTIFF_DIR:3:" + path), pixels.whole(), "copied")
    ds = written.create(path, SHAPE, gdal.GDT_Byte, **dict(CREATED, APPEND_SUBDATASET="YES"))
    written.whole_raster(None, pixels, ds)
    flush(ds)
    lose(path, 5, 3)
    with harness.Errors() as errors:
        ds = None
    assert "1 of 9 tiles of directory 3" in errors.text(), list(errors)


def with_overviews(folder):
    """A source with overviews and a mask, some of whose tiles are all nodata."""
    path = os.path.join(str(folder), "s.tif")
    ds = written.create(path, SHAPE, gdal.GDT_Byte, "GTiff", TILED="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, COMPRESS="LZW")
    pixels = np.frombuffer(raster().whole(), np.uint8).reshape(SHAPE).copy()
    pixels[:, :64, :128] = 0
    ds.WriteArray(pixels)
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        ds.CreateMaskBand(gdal.GMF_PER_DATASET)
    mask = np.full(SHAPE[1:], 255, np.uint8)
    mask[:64, :] = 0
    ds.GetRasterBand(1).GetMaskBand().WriteArray(mask)
    ds.BuildOverviews("NEAREST", [2, 4])
    ds = None
    return path


@pytest.mark.parametrize("sparse", ["YES", "NO"])
@pytest.mark.parametrize("where", ["file", "/vsimem/"])
def test_a_copy_is_gtiffs_file(tmp_path, sparse, where):
    """Closed and opened again, with overviews and masks: the same bytes, under its name, and it can be changed."""
    written.ours_only()
    source, files = harness.open_gtiff(with_overviews(tmp_path)), []
    options = dict(LEFT, SPARSE_OK=sparse)
    for driver in ("GTiff", written.DRIVER):
        folder = tmp_path / driver
        folder.mkdir()
        path = str(folder / "o.tif") if where == "file" else "/vsimem/%s/o.tif" % driver
        with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"), harness.Errors() as errors:
            ds = written.copy(path, source, driver, **options)
            assert ds is not None and ds.GetDescription() == path and ds.GetFileList() == [path]
            assert ds.GetRasterBand(1).GetOverviewCount() == 2
            if driver != "GTiff":
                assert written.counter(ds, written.BY_GTIFF) == 1
            ds = None
        assert not errors, list(errors)
        files.append(content(path))
    assert files[0] == files[1]
    ds = written.copy(path, source, **options)
    assert ds.GetRasterBand(1).WriteRaster(0, 0, 2, 1, b"\1\2") == 0
    ds.SetMetadataItem("A", "B")
    ds = None
    ds = harness.open_gtiff(path)
    assert ds.GetRasterBand(1).ReadRaster(0, 0, 2, 1) == b"\1\2" and ds.GetMetadataItem("A") == "B"
    for name in (path, path + ".msk"):
        gdal.Unlink(name)


def content(path):
    handle, size = gdal.VSIFOpenL(path, "rb"), gdal.VSIStatL(path).size
    try:
        return bytes(gdal.VSIFReadL(1, size, handle))
    finally:
        gdal.VSIFCloseL(handle)


def test_jpeg_of_more_bands_than_it_takes(tmp_path):
    """GTiff tells of it when it flushes; a copy leaves no file of zeros."""
    written.ours_only()
    options = dict(COMPRESS="JPEG", INTERLEAVE="PIXEL", TILED="YES", BLOCKXSIZE=48, BLOCKYSIZE=48)
    pixels = written.Raster(harness.rng("seven"), "uint8", (7, 20, 75))
    path = tmp_path / "o.tif"
    with harness.Errors() as errors:
        assert written.copy(path, pixels.mem(), **options) is None
    assert errors and os.listdir(tmp_path) == []
    with harness.Errors() as errors:
        ds = written.create(path, pixels.shape, gdal.GDT_Byte, **options)
        written.whole_raster(None, pixels, ds)
        ds = None
    assert any("tiles of directory 0 were not written" in str(e) for e in errors), list(errors)


COPY = """
import sys
import harness, written
source = harness.open_gtiff(sys.argv[1])
sys.exit(int(written.copy(sys.argv[2], source, **dict(word.split("=") for word in sys.argv[3:])) is None))
"""


def test_a_copy_whose_bytes_were_lost(tmp_path):
    """A disk that takes everything and keeps the first writes only: GTiff notices nothing."""
    written.ours_only()
    library, source = sinkfault.build(tmp_path), with_overviews(tmp_path)
    folder, log = tmp_path / "out", tmp_path / "log"
    folder.mkdir()
    target, words = folder / "o.tif", written.option_list(LEFT)
    done = harness.run_python(COPY, source, target, *words, env=sinkfault.env(library, target, LOG=log))
    want = written.read_gtiff(target)
    assert done.returncode == 0, done.stderr
    writes = [int(line.split()[0]) for line in log.read_text().splitlines() if " write target " in line]
    assert len(writes) > 2, writes
    for n in writes:
        for file in os.listdir(folder):
            os.remove(folder / file)
        done = harness.run_python(COPY, source, target, *words, env=sinkfault.env(library, target, LOSE=n))
        if done.returncode == 0:
            harness.same_bytes(written.read_gtiff(target), want, "write %d of %d lost" % (n, len(writes)))
            continue
        assert done.returncode == 1 and os.listdir(folder) == [], "%d: %s" % (n, done.stderr)
        assert "ERROR" in done.stderr and "vsigpugtiff" not in done.stderr, "%d: %s" % (n, done.stderr)


def test_a_stop_is_called_one(tmp_path):
    """A progress function that returns FALSE: the error of an interrupted copy, as where our writer writes."""
    target = tmp_path / "stopped.tif"
    with harness.Errors() as errors:
        assert written.copy(target, raster("stop").mem(), callback=lambda p, *_: int(p < 0.3), **LEFT) is None
    assert [n for _, n, _ in errors] == [gdal.CPLE_UserInterrupt] and not os.listdir(tmp_path), list(errors)
