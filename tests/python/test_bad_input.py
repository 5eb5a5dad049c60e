"""Damaged files: never a crash, a hang or a memory hog, and always what GTiff does with them."""

import os
import shutil

import damage
import harness
import numpy as np
import pytest
import tiffpatch
from osgeo import gdal

W, H = 150, 110
LAYOUTS = {
    "none": ["TILED=YES"],
    "deflate": ["TILED=YES", "COMPRESS=DEFLATE", "PREDICTOR=2"],
    "lzw": ["TILED=YES", "COMPRESS=LZW"],
    "zstd": ["TILED=YES", "COMPRESS=ZSTD", "PREDICTOR=2"],
    "packbits": ["BLOCKYSIZE=9", "COMPRESS=PACKBITS"],
    "strips": ["BLOCKYSIZE=16", "COMPRESS=LZW", "PREDICTOR=2", "ENDIANNESS=BIG"],
    "big": ["TILED=YES", "COMPRESS=DEFLATE", "BIGTIFF=YES", "INTERLEAVE=BAND"],
}


def make(path, name="deflate", bands=2, overviews=True):
    options = LAYOUTS[name] + (["BLOCKXSIZE=32", "BLOCKYSIZE=32"] if "TILED=YES" in LAYOUTS[name] else [])
    ds = gdal.GetDriverByName("GTiff").Create(str(path), W, H, bands, gdal.GDT_UInt16, options)
    y, x = np.mgrid[0:H, 0:W]
    for i in range(1, bands + 1):
        values = (x * 3 + y * i * 5 + (x * y) % 7).astype(np.uint16)
        ds.GetRasterBand(i).WriteRaster(0, 0, W, H, values.tobytes())
    if overviews:
        ds.BuildOverviews("NEAREST", [2])
    ds = None
    return str(path)


@pytest.fixture(scope="module")
def judge():
    j = damage.Judge()
    yield j
    j.stop()


@pytest.fixture(params=sorted(LAYOUTS))
def layout(request):
    return request.param


def damaged(judge, path, where, **kw):
    return judge.compare(path, "%s (GPUGTIFF_SEED=%d)" % (where, harness.SEED), **kw)


# ---- by chance -----------------------------------------------------------------------------


def test_truncated(judge, layout, tmp_path, total):
    source = make(tmp_path / "s.tif", layout)
    size = os.path.getsize(source)
    rng = harness.rng("truncated", layout)
    cuts = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, size - 1, size - 2, size // 2] + [rng.randrange(size) for _ in range(17)]
    for n in cuts:
        path = str(tmp_path / "t.tif")
        shutil.copy(source, path)
        os.truncate(path, n)
        damaged(judge, path, "%s cut to %d of %d bytes" % (layout, n, size))
    total("damaged files", len(cuts))


def _flip_places(tiff, rng):
    """Names the parts of a file and gives an offset inside each."""
    d = tiff.directories[rng.randrange(len(tiff.directories))]
    entry = rng.choice(list(d["entries"].values()))
    offset, count = rng.choice(tiff.striles())
    offsets = tiff.entry(rng.choice([tiffpatch.OFFSETS, tiffpatch.COUNTS]))
    return {
        "header": rng.randrange(16),
        "entry of tag %d" % entry.tag: entry.at + rng.randrange(20 if tiff.big else 12),
        "values of tag %d" % entry.tag: entry.values_at + rng.randrange(max(1, entry.count)),
        "strile array": offsets.values_at + rng.randrange(offsets.count * tiffpatch.SIZES[offsets.kind]),
        "data": offset + rng.randrange(max(1, count)),
        "start of data": offset + rng.randrange(min(4, count) or 1),
        "end of data": offset + max(0, count - 1 - rng.randrange(6)),
        "anywhere": rng.randrange(len(tiff.data)),
    }


def _hit_zstd(tiff, at):
    """The block that a byte of data belongs to. Releases of libzstd make different pixels of one broken
    frame without a checksum (GDAL's 1.5.4 and our 1.5.7 do), so those are not compared."""
    for n, bands in enumerate((("1", "2"), ("1 level 0", "2 level 0"))):
        for k, (offset, count) in enumerate(tiff.striles(n)):
            if offset <= at < offset + count:
                return bands, k
    return None


def test_flipped_bytes(judge, layout, tmp_path, total):
    source = make(tmp_path / "s.tif", layout)
    rng = harness.rng("flipped", layout)
    rounds = int(os.environ.get("GPUGTIFF_FLIPS", "12"))
    for _ in range(rounds):
        tiff = tiffpatch.Tiff(source)
        for name, at in _flip_places(tiff, rng).items():
            if at >= len(tiff.data):
                continue
            old = tiff.data[at]
            tiff.data[at] = rng.choice([0, 255, old ^ (1 << rng.randrange(8)), rng.randrange(256)])
            tiff.path = str(tmp_path / "f.tif")
            tiff.save()
            where = "%s, %s: byte %d from %d to %d" % (layout, name, at, old, tiff.data[at])
            damaged(judge, tiff.path, where, undefined=_hit_zstd(tiff, at) if layout == "zstd" else None)
            tiff.data[at] = old
            total("damaged files", 1)


# ---- on purpose ----------------------------------------------------------------------------

BEYOND = 1 << 31


def _last(tiff):
    return len(tiff.striles()) - 1


# What is done to an intact file, by name.
LIES = {
    "offset past the end": lambda t: t.set(tiffpatch.OFFSETS, len(t.data) + 1000, 1),
    "offset at the end": lambda t: t.set(tiffpatch.OFFSETS, len(t.data), 1),
    "offset nearly past the end": lambda t: t.set(tiffpatch.OFFSETS, len(t.data) - 3, 1),
    "huge offset": lambda t: t.set(tiffpatch.OFFSETS, (1 << 63) + 5 if t.big else BEYOND + 9, 1),
    "offset into the header": lambda t: t.set(tiffpatch.OFFSETS, 2, 1),
    "offset zero, count kept": lambda t: t.set(tiffpatch.OFFSETS, 0, 1),
    "count zero": lambda t: t.set(tiffpatch.COUNTS, 0, 1),
    "count one": lambda t: t.set(tiffpatch.COUNTS, 1, 1),
    "count huge": lambda t: t.set(tiffpatch.COUNTS, 0xFFFFFFFF, 1),
    "count beyond all files": lambda t: t.set(tiffpatch.COUNTS, (1 << 62) if t.big else 0x7FFFFFFF, 1),
    "count one too small": lambda t: t.set(tiffpatch.COUNTS, t.striles()[1][1] - 1, 1),
    "count half": lambda t: t.set(tiffpatch.COUNTS, t.striles()[1][1] // 2, 1),
    "count too large": lambda t: t.set(tiffpatch.COUNTS, t.striles()[1][1] + 50, 1),
    "last count past the end": lambda t: t.set(tiffpatch.COUNTS, len(t.data), _last(t)),
    "two tiles at one place": lambda t: t.set(tiffpatch.OFFSETS, t.striles()[0][0], 1),
    "overlapping tiles": lambda t: t.set(tiffpatch.OFFSETS, t.striles()[0][0] + 5, 1),
    "width huge": lambda t: t.set(256, 0x7FFFFFF0),
    "height huge": lambda t: t.set(257, 0x7FFFFFF0),
    "width and height at the limit": lambda t: (t.set(256, 0xFFFFFFFF), t.set(257, 0xFFFFFFFF)),
    "width zero": lambda t: t.set(256, 0),
    "height one more row of tiles": lambda t: t.set(257, H + 64),
    "height less": lambda t: t.set(257, H - 40),
    "samples 60000": lambda t: t.set(277, 60000),
    "samples zero": lambda t: t.set(277, 0),
    "bits 0": lambda t: t.set(258, 0),
    "bits 65": lambda t: t.set(258, 65),
    "bits differ between samples": lambda t: t.set(258, 8, 1),
    "planar 7": lambda t: t.set(284, 7),
    "compression unknown": lambda t: t.set(259, 4711),
    "compression of another codec": lambda t: t.set(259, 8 if t.values(259)[0] == 5 else 5),
    "directory loop": lambda t: t.put(t.word, t.directories[-1]["next_at"], t.directories[0]["at"]),
    "next directory past the end": lambda t: t.put(t.word, t.directories[0]["next_at"], len(t.data) + 99),
    "first directory past the end": lambda t: t.put(t.word, t.first, len(t.data) + 99),
    "entry count 65535": lambda t: t.put("H", t.directories[0]["at"] + (6 if t.big and t.end == ">" else 0), 65535),
}  # fmt: skip


@pytest.mark.parametrize("lie", sorted(LIES))
def test_lie(judge, lie, tmp_path, total):
    for name in sorted(LAYOUTS):
        tiff = tiffpatch.Tiff(make(tmp_path / "l.tif", name))
        for tag in (tiffpatch.OFFSETS, tiffpatch.COUNTS):
            tiff.widen(tiff.entry(tag).tag)
        for tag in (256, 257):
            tiff.widen(tag)
        LIES[lie](tiff)
        tiff.save()
        damaged(judge, tiff.path, "%s: %s" % (name, lie))
        total("damaged files", 1)


def test_tile_size_absurd(judge, tmp_path):
    """No allocation larger than the file's evidence supports: a tile of 2^60 pixels is refused or fails."""
    for w, h in ((1 << 30, 1 << 30), (65536, 65536), (1 << 31, 16), (0, 16), (33, 32)):
        tiff = tiffpatch.Tiff(make(tmp_path / "a.tif"))
        tiff.widen(322), tiff.widen(323)
        tiff.set(322, w), tiff.set(323, h)
        tiff.save()
        damaged(judge, tiff.path, "tile of %d × %d" % (w, h))


@pytest.mark.parametrize("level", ["short", "long"])
def test_tile_that_decodes_to_another_size(judge, level, tmp_path):
    import zlib

    path = make(tmp_path / "a.tif")
    full = zlib.decompress(_tile_bytes(path, 1))
    other = full[: len(full) // 2] if level == "short" else full + b"\1" * 500
    tiff = tiffpatch.Tiff(path)
    tiff.append_data(zlib.compress(other), 1)
    tiff.save()
    damaged(judge, path, "tile decodes %s" % level)


def _tile_bytes(path, n):
    tiff = tiffpatch.Tiff(path)
    offset, count = tiff.striles()[n]
    return bytes(tiff.data[offset : offset + count])


def test_wrong_checksum(judge, tmp_path):
    """Adler-32 is the last four bytes of a zlib stream."""
    path = make(tmp_path / "a.tif")
    tiff = tiffpatch.Tiff(path)
    offset, count = tiff.striles()[1]
    tiff.data[offset + count - 1] ^= 0xFF
    tiff.save()
    damaged(judge, path, "wrong Adler-32")


def test_trailing_garbage_after_the_stream(judge, layout, tmp_path):
    tiff = tiffpatch.Tiff(make(tmp_path / "g.tif", layout))
    tiff.append_data(_tile_bytes(tiff.path, 1) + b"garbage" * 9, 1)
    tiff.save()
    damaged(judge, tiff.path, "%s with bytes after the stream" % layout)


def test_the_rest_stays_readable(tmp_path):
    """One broken tile: every other one reads, before and after, by block and by window."""
    path = make(tmp_path / "r.tif", bands=1, overviews=False)
    tiff = tiffpatch.Tiff(path)
    offset, count = tiff.striles()[6]
    tiff.data[offset : offset + count] = b"\xff" * count
    tiff.save()
    ours, theirs = harness.open_pair(path)
    for k in list(range(tiff.entry(tiffpatch.OFFSETS).count)) * 2:
        window = (k % 5 * 32, k // 5 * 32, min(32, W - k % 5 * 32), min(32, H - k // 5 * 32))
        with harness.Errors() as errors:
            data = ours.ReadRaster(*window)
        if k == 6:
            assert data is None and any("r.tif" in t for t in errors.failures()) or harness.SELF_TEST, errors
        else:
            harness.same_bytes(data, theirs.ReadRaster(*window), "tile %d" % k)


def test_message_names_file_image_tile_and_reason(tmp_path):
    if harness.SELF_TEST:
        pytest.skip("about our own messages")
    path = make(tmp_path / "named.tif", bands=1, overviews=False)
    tiff = tiffpatch.Tiff(path)
    tiff.set(tiffpatch.OFFSETS, len(tiff.data) + 1000, 6)
    tiff.save()
    ds = harness.open_ours(path)
    with harness.Errors() as errors:
        assert ds.ReadRaster() is None
    text = "\n".join(errors.failures())
    ours = next((t for t in errors.failures() if "named.tif" in t and "tile 6 " in t), None)
    assert ours, "no message names file and tile: %s" % text
    assert "image at offset %d" % tiff.directories[0]["at"] in ours and "column 1, row 1" in ours, ours
    assert "%d" % (len(tiff.data) + 1000) in ours or "end" in ours, "no reason: %s" % ours


def test_a_tile_that_looks_like_old_style_lzw_spoils_no_other(tmp_path):
    """libtiff takes the style from the first tile it decodes: asked for the broken one first, it fails for ever."""
    path = make(tmp_path / "l.tif", "lzw")
    tiff = tiffpatch.Tiff(path)
    offset, _ = tiff.striles()[13]
    tiff.data[offset : offset + 2] = b"\0\1"
    tiff.save()
    ours, theirs = harness.open_pair(path)
    for k in list(range(20)) * 2:
        window = (k % 5 * 32, k // 5 * 32, min(32, W - k % 5 * 32), min(32, H - k // 5 * 32))
        with harness.Errors():
            a, b = ours.ReadRaster(*window), theirs.ReadRaster(*window)
        assert (b is None) == (k == 13), "GTiff: tile %d" % k
        harness.same_bytes(a, b, "tile %d" % k)
