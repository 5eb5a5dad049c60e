"""Every file of the shared corpus that opens, written by us: the pixels are those that GTiff reads of the source, to
the bit, whether read by GTiff, by ourselves or by tifffile; all else is as in GTiff's copy with the same options. What
GTiff cannot read we do not write. Needs ../shared beside the repository; skips loudly otherwise.

Of more than MOST samples a window is written (cut out by a VRT), of more than BANDS bands the first ones. A file's
options follow from its name, whatever the seed. gdalcompare and libtiff's tools look at every NTH file."""

import collections
import contextlib
import io
import json
import math
import os
import random
import shutil
import types

import harness
import pytest
import test_corpus
import test_metadata
import test_write_metadata
import writers
import written
from osgeo import gdal
from osgeo_utils import gdalcompare

pytestmark = pytest.mark.skipif(
    not os.path.exists(os.path.join(test_corpus.CORPUS, "manifest.tsv")), reason="NO CORPUS: %s" % test_corpus.CORPUS)

SHARDS = 8
MOST = 1 << 19  # samples
BANDS = 40
NTH = 6
WAYS = ("read by GTiff", "read by us", "read by tifffile", "metadata", "gdalcompare", "tiffinfo and tiffdump")
# The depth that a type has of its own: others are GTiff's to write.
DEPTHS = {gdal.GDT_Byte: 8, gdal.GDT_UInt16: 16, gdal.GDT_UInt32: 32, gdal.GDT_Float32: 32}
DTYPES = {kind: name for name, kind in writers.GDAL_TYPES.items()}


def of_long_curves(row):
    """GTiff 3.6 takes minutes and gigabytes for the transfer function of such a file, 2^32 entries."""
    return row["photometric"] == "RGB" and "32" in row["bits_per_sample"].split(",")


def of_huge_blocks(row):
    """Two files of a line of 2 GB each: seconds to read a pixel, for anybody."""
    w, h = row["block"].split("x")
    return int(w) * int(h) > 1 << 30


def open_source(row):
    ds = harness.open_gtiff(os.path.join(test_corpus.CORPUS, row["path"]))
    w, h, bands = ds.RasterXSize, ds.RasterYSize, min(ds.RasterCount, BANDS)
    if w * h * bands <= MOST and bands == ds.RasterCount and not of_long_curves(row):
        return ds
    rows = max(1, min(h, math.isqrt(MOST // bands)))
    columns = max(1, min(w, MOST // bands // rows))
    window = [(w - columns) // 2, (h - rows) // 2, columns, rows]
    return gdal.Translate("", ds, format="VRT", srcWin=window, bandList=list(range(1, bands + 1)))


def options_for(row, source):
    draw, band = random.Random(row["path"]), source.GetRasterBand(1)
    kind = DTYPES[band.DataType]
    o = {"COMPRESS": draw.choice(writers.CODECS), "TILED": draw.choice(["YES", "NO"])}
    if o["COMPRESS"] in writers.PREDICTABLE and kind not in writers.PARTS:
        o["PREDICTOR"] = draw.choice([1, 2, 3] if kind.startswith("float") else [1, 2])
    if source.RasterCount > 1:
        o["INTERLEAVE"] = draw.choice(["PIXEL", "BAND"])
    if draw.random() < 0.2 and o.get("PREDICTOR") != 3:  # libtiff 4.5 writes that one wrong
        o["ENDIANNESS"] = "BIG"
    if draw.random() < 0.2:
        o["BIGTIFF"] = "YES"
    if band.GetMetadataItem("NBITS", "IMAGE_STRUCTURE") is not None:
        o["NBITS"] = DEPTHS[band.DataType]
    if of_long_curves(row):
        o["PHOTOMETRIC"] = "MINISBLACK"
    return o


def info(path):
    """gdalinfo -json of what is no pixel, as text that need not be UTF-8."""
    options = gdal.InfoOptions(format="json", listMDD=True, showRAT=True, extraMDDomains=["all"])[0]
    with harness.Errors():
        text = gdal.InfoInternal(harness.open_gtiff(path), options)
    text = text if isinstance(text, str) else text.decode(errors="surrogateescape")
    return text.replace(os.path.dirname(path), "")


def check_metadata(ours, theirs):
    found, said = [], [info(ours), info(theirs)]
    if said[0] != said[1]:
        found = test_metadata.differences(*map(json.loads, said))
        # The text of a CRS depends on what a process did before: once more, by one that did nothing.
        with contextlib.suppress(UnicodeError):
            found = test_metadata.differences(*(test_write_metadata.info(p) for p in (ours, theirs)))
    found += test_metadata.differences(*(dict(enumerate(written.tags(p))) for p in (ours, theirs)), where="tags")
    beside = (test_write_metadata.text_files(os.path.dirname(p)) for p in (ours, theirs))
    found += test_metadata.differences(*beside, where="files")
    assert not found, "\n".join(found)


def compared(golden, other):
    """The lines of gdalcompare.py."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), harness.Errors():
        gdalcompare.find_diff(golden, other)
    return out.getvalue().splitlines()


def check_gdalcompare(ours, theirs):
    """Only the bytes, beside what it says of any file and itself (that NaN is not NaN)."""
    said = compared(theirs, ours)
    differ = written.digest(ours) != written.digest(theirs)
    assert said == ["Files differ at the binary level."] * differ + compared(theirs, theirs)


def check_libtiff(ours, theirs):
    found = test_metadata.differences(*(test_write_metadata.libtiff_says(p) for p in (ours, theirs)))
    assert not found, "\n".join(found)


def check_pixels(path, want, count):
    theirs, ours = harness.open_gtiff(path), harness.open_ours(path)
    assert theirs is not None and ours is not None, "does not open"
    harness.same_bytes(theirs.ReadRaster(), want, "read by GTiff")
    count["read by GTiff"] += 1
    harness.same_bytes(ours.ReadRaster(), want, "read by us")
    harness.check_all_ours(ours, "read by us")
    count["read by us"] += 1
    shape = (ours.RasterCount, ours.RasterYSize, ours.RasterXSize)
    raster = types.SimpleNamespace(dtype=DTYPES[ours.GetRasterBand(1).DataType], shape=shape)
    # GTiff's last strip may be longer than the image, and tifffile refuses it.
    again = written.read_tifffile(path, raster) if not written.SELF_TEST else None
    if again is not None:
        harness.same_bytes(again, want, "read by tifffile")
        count["read by tifffile"] += 1


def write(row, folder, driver, options):
    """-> path, None where it is refused."""
    os.makedirs(folder)
    path = os.path.join(folder, "o.tif")
    with harness.Errors() as errors:
        ds = written.copy(path, open_source(row), driver, **options)
        made = ds is not None
        if made and driver == written.DRIVER:
            written.check_by_us(ds)
        ds = None
    assert made or errors.failures(), "refused without a word"
    assert made or driver == "GTiff" or os.listdir(folder) == [], "left behind"
    return path if made else None


def convert(row, options, folder, by_tools, count):
    want = open_source(row).ReadRaster()
    if want is None:
        # Tiles that are copied as they are would not be looked into. GTiff takes some of these files for holes.
        options["COPY_TILES"] = "NO"
        assert write(row, folder, written.DRIVER, options) is None or written.SELF_TEST, "written, but not read"
        count["refused"] += 1
        return
    ours = write(row, os.path.join(folder, "ours"), written.DRIVER, options)
    theirs = write(row, os.path.join(folder, "theirs"), "GTiff", options)
    assert ours and theirs, "refused, by GTiff: %s" % (theirs is None)
    right = written.read_gtiff(theirs) == want  # big-endian blocks of nodata it swaps once too often
    if right or not written.SELF_TEST:
        check_pixels(ours, want, count)
    if right:
        harness.same_pixels(harness.open_gtiff(ours), harness.open_gtiff(theirs))  # the masks
    check_metadata(ours, theirs)
    count["metadata"] += 1
    if by_tools and right:
        check_gdalcompare(ours, theirs)
        count["gdalcompare"] += 1
    if by_tools and shutil.which("tiffinfo"):
        check_libtiff(ours, theirs)
        count["tiffinfo and tiffdump"] += 1


@pytest.mark.parametrize("shard", range(SHARDS))
def test_round_trip(shard, tmp_path, total):
    count, wrong = collections.Counter(), []
    rows = [r for r in test_corpus.rows() if r["opens"] == "yes"]
    for n, row in enumerate(rows[shard::SHARDS]):
        if of_huge_blocks(row):
            count["left out"] += 1
            continue
        folder = str(tmp_path / str(n))
        with harness.Errors():
            source = open_source(row)
            count["a window of it"] += source.GetDriver().ShortName == "VRT"
            options = options_for(row, source)
            try:
                convert(row, options, folder, n % NTH == 0, count)
            except Exception as e:  # tifffile's too
                wrong.append("%s: %s: %s: %s" % (row["path"], options, type(e).__name__, str(e)[:600]))
        shutil.rmtree(folder, ignore_errors=True)
        count["files"] += 1
    for way, files in count.items():
        total("corpus: " + way, files)
    assert not wrong, "%d files:\n%s" % (len(wrong), "\n".join(wrong[:20]))
    missing = {"tiffinfo and tiffdump"} if not shutil.which("tiffinfo") else set()
    missing |= {"read by tifffile"} if written.SELF_TEST else set()
    assert all(count[way] for way in WAYS if way not in missing), count
