"""The shared corpus of real files, where it is there: everything same as GTiff, and all of what is
within our engine decoded by it. Needs ../shared beside the repository; skips loudly otherwise."""

import csv
import os
import subprocess
import sys

import harness
import pytest

SHARED = os.path.join(os.path.dirname(harness.REPO), "shared")
TOOL = os.path.join(SHARED, "tools", "check_corpus.py")
CORPUS = os.path.join(SHARED, "corpus")

pytestmark = pytest.mark.skipif(not os.path.exists(TOOL), reason="NO CORPUS: %s is not there" % TOOL)

OURS = {"NONE", "LZW", "DEFLATE", "DEFLATE_OLD", "PACKBITS", "ZSTD"}
MAX_BYTES = 200 << 20


def rows():
    csv.field_size_limit(1 << 30)
    with open(os.path.join(CORPUS, "manifest.tsv"), newline="") as f:
        return list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))


def within(row):
    """Issue 2, point 4, told by the manifest's columns."""
    depths = set(row["bits_per_sample"].split(","))
    # Bits as GDAL sees them: NBITS is set for depths that are not a type's own (16 and 24 bit floats too).
    plain = not row["nbits"] and len(depths) == 1 and depths <= {"8", "16", "32", "64", "128"}
    if row["predictor"] == "3" and depths == {"8"} or "skipped" in row["checksums"]:
        return False  # no such predictor in point 4; a block too large for the manifest's maker to try
    return (
        row["status"] == "valid" and row["compression"] in OURS and plain and row["fill_order"] == "1"
        and row["predictor"] in ("1", "2", "3") and "light" not in row["flags"] and not _as_rgba(row)
    )  # fmt: skip


def _as_rgba(row):
    """What libtiff turns to RGBA for GTiff: its decoding, not ours."""
    return row["photometric"] in ("YCBCR", "CIELAB", "LOGL", "LOGLUV") or (
        row["photometric"] == "SEPARATED" and set(row["bits_per_sample"].split(",")) == {"8"}
    )


def old_style_lzw(path, row):
    """Such a strip begins 0x00 and an odd byte (libtiff's own test)."""
    if row["compression"] != "LZW":
        return False
    import tiffpatch

    tiff = tiffpatch.Tiff(path)
    offset = next((o for o, n in tiff.striles() if o and n), 0)
    return tiff.data[offset] == 0 and tiff.data[offset + 1] & 1 == 1


def test_same_as_gtiff(tmp_path):
    done = subprocess.run(
        [sys.executable, TOOL, CORPUS, "--driver", harness.DRIVER, "--jobs", "2", "--json", str(tmp_path / "c.json"), "-v"],
        capture_output=True, text=True, cwd=tmp_path, timeout=3000)  # fmt: skip
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def read_all(ds):
    """Every band, level and mask; of huge ones the first and the last corner."""
    for name, band in harness.bands_of(ds):
        w, h = band.XSize, band.YSize
        if w * h * harness.sample_bytes(band.DataType) <= MAX_BYTES:
            windows = [(0, 0, w, h)]
        else:
            n, m = min(w, 512), min(h, 512)
            windows = [(0, 0, n, m), (w - n, h - m, n, m)]
        for window in windows:
            assert band.ReadRaster(*window) is not None, "%s %s" % (name, window)


def test_counted(total):
    """Every intact file within our formats: nothing passed to GTiff, decoded = touched."""
    harness.skip_count_if_self_test()
    wrong = []
    for row in filter(within, rows()):
        path = os.path.join(CORPUS, row["path"])
        if old_style_lzw(path, row):
            total("corpus: old-style LZW", 1)
            continue
        with harness.Errors():
            ds = harness.open_ours(path)
            try:
                read_all(ds)
                c = harness.check_all_ours(ds, row["path"])
            except AssertionError as e:
                wrong.append(str(e))
                c = harness.counters(ds) if ds is not None else {}
        total("corpus: files within our engine", 1)
        for name in (harness.DECODED, harness.TOUCHED, harness.SPARSE, harness.BLOCKS_PASSED, harness.REQUESTS_PASSED):
            total("corpus: " + name, c.get(name, 0))
    assert not wrong, "%d files:\n%s" % (len(wrong), "\n".join(wrong))
