"""The shared corpus of real files, where it is there, written by us: pixels, masks and tags as GTiff's copy of the same
file with the same options. Needs ../shared beside the repository; skips loudly otherwise."""

import os
import time

import harness
import pytest
import test_corpus
import test_metadata
import writers
import written
from osgeo import gdal

pytestmark = pytest.mark.skipif(
    not os.path.exists(os.path.join(test_corpus.CORPUS, "manifest.tsv")), reason="NO CORPUS: %s" % test_corpus.CORPUS)

SHARDS = 8
SECONDS = 12  # of each shard; what is left is counted
MOST = 6 << 20  # bytes of pixels of a file


def quick(row):
    if row["opens"] != "yes" or row["status"] != "valid" or row["unstable"] == "yes" or "skipped" in row["checksums"]:
        return False
    if row["photometric"] == "RGB" and "32" in row["bits_per_sample"]:
        return False  # GTiff 3.6 takes minutes and gigabytes to ask for the transfer function of 2^32 entries
    w, h = (int(v) for v in row["size"].split("x"))
    return w * h * max(1, int(row["bands"])) * 8 <= MOST and float(row["gdal_seconds"] or 0) < 0.5


def options_for(rng, source):
    o = {"COMPRESS": rng.choice(writers.CODECS), "TILED": rng.choice(["YES", "NO"])}
    kind = source.GetRasterBand(1).DataType
    if o["COMPRESS"] in writers.PREDICTABLE and rng.random() < 0.6:
        if kind in (gdal.GDT_Float32, gdal.GDT_Float64):
            o["PREDICTOR"] = 3
        elif kind in (gdal.GDT_Byte, gdal.GDT_UInt16, gdal.GDT_Int16, gdal.GDT_UInt32, gdal.GDT_Int32):
            o["PREDICTOR"] = 2
    if rng.random() < 0.5:
        o["INTERLEAVE"] = rng.choice(["PIXEL", "BAND"])
    return o


def convert(path, folder, rng):
    """-> (counter of GTiff's writing, error text) or None where GTiff itself does not write it."""
    out = {}
    source = harness.open_gtiff(path)
    nbits = source.GetRasterBand(1).GetMetadataItem("NBITS", "IMAGE_STRUCTURE")
    options = options_for(rng, source)
    if nbits is not None:
        options.pop("PREDICTOR", None)
    by_gtiff = None
    for driver in ("GTiff", written.DRIVER):
        os.makedirs(os.path.join(folder, driver), exist_ok=True)
        out[driver] = os.path.join(folder, driver, "o.tif")
        source = harness.open_gtiff(path)
        with harness.Errors() as errors:
            ds = written.copy(out[driver], source, driver, **options)
        if ds is None and driver == "GTiff":
            return None
        assert ds is not None, "%s: %s" % (options, errors.text())
        if not written.SELF_TEST and driver == written.DRIVER:
            by_gtiff = written.counter(ds, written.BY_GTIFF)
        ds = None
    ours, theirs = (harness.open_gtiff(out[d]) for d in (written.DRIVER, "GTiff"))
    harness.same_pixels(ours, theirs, str(options))
    found = test_metadata.differences(*(dict(enumerate(written.tags(out[d]))) for d in (written.DRIVER, "GTiff")))
    beside = [sorted(os.listdir(os.path.join(folder, d))) for d in (written.DRIVER, "GTiff")]
    assert not found and beside[0] == beside[1], "%s: %s %s" % (options, found, beside)
    # Depths that no engine has (NBITS) are GTiff's; everything else must be ours.
    assert by_gtiff in (None, 0) or nbits is not None, "%s: written by GTiff" % options
    return by_gtiff or 0


@pytest.mark.parametrize("shard", range(SHARDS))
def test_round_trip(shard, tmp_path, total):
    rows = [r for r in test_corpus.rows() if quick(r)][shard::SHARDS]
    rng, wrong, end = harness.rng("corpus", shard), [], time.monotonic() + SECONDS
    rng.shuffle(rows)
    for n, row in enumerate(rows):
        if time.monotonic() > end:
            total("corpus: left for another run", len(rows) - n)
            break
        folder = str(tmp_path / str(n))
        try:
            with harness.Errors():
                path = os.path.join(test_corpus.CORPUS, row["path"])
                by_gtiff = convert(path, folder, harness.rng("corpus", row["path"]))
        except AssertionError as e:
            wrong.append("%s: %s" % (row["path"], str(e)[:600]))
            continue
        total("corpus: files written", by_gtiff is not None)
        total("corpus: of them by GTiff", by_gtiff or 0)
    assert not wrong, "GPUGTIFF_SEED=%d, %d files:\n%s" % (harness.SEED, len(wrong), "\n".join(wrong[:20]))
