"""Reading that fails says which file, which image of it, which tile and why, whatever it is that failed."""

import re
import zlib

import harness
import numpy as np
import pytest
import tiffpatch
from osgeo import gdal

W, H = 300, 220
TILED = ["TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]


def make(path, codec="DEFLATE", options=TILED, bands=1):
    """The tiles that are damaged below are no edge's, of which GTiff decodes less than all."""
    ds = gdal.GetDriverByName("GTiff").Create(str(path), W, H, bands, gdal.GDT_UInt16, ["COMPRESS=" + codec, *options])
    y, x = np.mgrid[0:H, 0:W]
    for i in range(1, bands + 1):
        ds.GetRasterBand(i).WriteArray((x * 3 + y * i * 5 + (x * y) % 7).astype(np.uint16))
    return ds


# ---- damage --------------------------------------------------------------------------------


class Tile:
    """One tile of a file, to be damaged."""

    def __init__(self, path, directory, number):
        self.tiff, self.directory, self.number = tiffpatch.Tiff(path), directory, number
        for tag in (tiffpatch.OFFSETS, tiffpatch.COUNTS):
            self.tiff.widen(self.tiff.entry(tag, directory).tag, directory)
        self.move(self.bytes())

    def bytes(self):
        offset, count = self.tiff.striles(self.directory)[self.number]
        return bytes(self.tiff.data[offset : offset + count])

    def say(self, offset=None, count=None):
        for tag, value in ((tiffpatch.OFFSETS, offset), (tiffpatch.COUNTS, count)):
            if value is not None:
                self.tiff.set(tag, value, self.number, self.directory)

    def move(self, blob):
        """The last bytes of the file are now the tile's: what is beyond them is beyond the file."""
        self.say(len(self.tiff.data), len(blob))
        self.tiff.data += blob

    def recode(self, change):
        self.move(zlib.compress(change(zlib.decompress(self.bytes()))))

    def flip(self, at):
        offset, count = self.tiff.striles(self.directory)[self.number]
        self.tiff.data[offset + at % count] ^= 0xFF

    def cut(self, n):
        del self.tiff.data[-n:]


WITHIN = r"tile %d of \d+ bytes at \d+ is not within the file's \d+ bytes"
SHORT = r"\d+ bytes where a tile needs \d+"
# name: (what is done to a tile, the reason that is given)
DAMAGE = {
    "truncated": (lambda t: t.cut(9), WITHIN),
    "offset past the end": (lambda t: t.say(offset=len(t.tiff.data) + 1000), WITHIN),
    "offset at the end": (lambda t: t.say(offset=len(t.tiff.data)), WITHIN),
    "byte count huge": (lambda t: t.say(count=0xFFFFFFFF), r"tile %d has 4294967295 bytes"),
    "byte count too large": (lambda t: t.say(count=len(t.bytes()) + 40), WITHIN),
    "decodes short": (lambda t: t.recode(lambda b: b[: len(b) // 2]), SHORT),
    "wrong Adler-32": (lambda t: t.flip(-1), r"Deflate data or its Adler-32 checksum is wrong"),
    "no Deflate": (lambda t: t.move(b"\xff" * 500), r"Deflate data or its Adler-32 checksum is wrong"),
}  # fmt: skip
# What is wrong with 500 bytes of 255.
GARBAGE = {
    "NONE": SHORT,
    "PACKBITS": SHORT,
    "LZW": "LZW stream does not begin with a Clear code",
    "ZSTD": "ZSTD: Unknown frame descriptor",
}
# What GTiff reads all the same: a tile left out, and what is beyond a tile's end.
NO_DAMAGE = {
    "byte count zero": lambda t: t.say(count=0),
    "decodes long": lambda t: t.recode(lambda b: b + b"\1" * 500),
}



def image(path, **kw):
    make(path, **kw)
    return path, path, 0


def overview(path, inside=True):
    ds = make(path)
    if not inside:
        ds = None  # and opened anew, to be read only
        ds = gdal.Open(path)
    with harness.config(GDAL_TIFF_OVR_BLOCKSIZE="64", COMPRESS_OVERVIEW="DEFLATE"):
        ds.BuildOverviews("NEAREST", [2])
    return path, path if inside else path + ".ovr", int(inside)


def page(path):
    make(path)
    options = ["APPEND_SUBDATASET=YES", "COMPRESS=DEFLATE", *TILED]
    gdal.GetDriverByName("GTiff").CreateCopy(path, gdal.Open(path), options=options)
    return "GTIFF_DIR:2:" + path, path, 1


# name: (makes it -> (what to open, which file the tile is in, which directory), tile, where that is)
PLACES = {
    "tiles": (image, 6, (1, 1, 0)),
    "strips": (lambda p: image(p, options=["BLOCKYSIZE=16"]), 3, (0, 3, 0)),
    "planes": (lambda p: image(p, options=[*TILED, "INTERLEAVE=BAND"], bands=2), 26, (1, 1, 1)),
    "BigTIFF": (lambda p: image(p, options=[*TILED, "BIGTIFF=YES"]), 6, (1, 1, 0)),
    "overview": (overview, 1, (1, 0, 0)),
    "overview beside": (lambda p: overview(p, inside=False), 1, (1, 0, 0)),
    "page": (page, 6, (1, 1, 0)),
}


def opened(name, place, driver=harness.open_ours):
    """-> the dataset and the band that has the tile."""
    ds = driver(name)
    band = ds.GetRasterBand(ds.RasterCount)
    return ds, band.GetOverview(0) if place.startswith("overview") else band


def _rect(band, at):
    w, h = band.GetBlockSize()
    return at[0] * w, at[1] * h, w, h


# Every way in that meets the tile at (column, row).
WAYS = {
    "whole": lambda band, at: band.ReadRaster(),
    "block": lambda band, at: band.ReadBlock(*at[:2]),
    "pixel": lambda band, at: band.ReadRaster(*_rect(band, at)[:2], 1, 1),
    "tile": lambda band, at: band.ReadRaster(*_rect(band, at)),
    "type": lambda band, at: band.ReadRaster(buf_type=gdal.GDT_Float64),
    "smaller": lambda band, at: band.ReadRaster(buf_xsize=band.XSize // 2, buf_ysize=band.YSize // 2),
}


def damaged(folder, place, damage):
    """-> (what to open, the part of a message that names file, image and tile, the tile's place)."""
    prepare, number, at = PLACES[place]
    name, file, directory = prepare(str(folder / "named one.tif"))
    tile = Tile(file, directory, number)
    damage(tile)
    tile.tiff.save()
    offset = tile.tiff.directories[directory]["at"]
    return name, "%s: image at offset %d, tile %d (column %d, row %d, plane %d): " % (file, offset, number, *at), at


def check_message(name, place, wanted, at, reason):
    """By every way in: what fails with GTiff fails with us, and says file, image, tile and reason."""
    for way, read in WAYS.items():
        ds, band = opened(name, place)
        gtiff, theirs = opened(name, place, harness.open_gtiff)
        with harness.Errors() as errors:
            assert read(theirs, at) is None, "GTiff reads %s: nothing is shown" % way
            del errors[:]
            assert read(band, at) is None, way
        if harness.SELF_TEST:
            continue
        texts = errors.failures()
        assert texts[0].startswith("GPUGTiff: " + wanted), "%s: no %r in %r" % (way, wanted, texts[0])
        for text in texts:  # where GDAL adds that a block failed, it quotes ours
            assert wanted in text, "%s: no %r in %r" % (way, wanted, text)
            assert re.search("': " + reason, text), "%s: no reason like %r in %r" % (way, reason, text)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
@pytest.mark.parametrize("place", sorted(PLACES))
def test_file_image_tile_and_reason(place, damage, tmp_path):
    what, reason = DAMAGE[damage]
    name, wanted, at = damaged(tmp_path, place, what)
    check_message(name, place, wanted, at, reason % PLACES[place][1] if "%d" in reason else reason)


@pytest.mark.parametrize("codec", sorted(GARBAGE))
def test_reason_of_each_codec(codec, tmp_path):
    path = str(tmp_path / "named one.tif")
    make(path, codec=codec)
    tile = Tile(path, 0, 6)
    tile.move(b"\xff" * 500)
    tile.tiff.save()
    wanted = "%s: image at offset %d, tile 6 (column 1, row 1, plane 0): " % (path, tile.tiff.directories[0]["at"])
    check_message(path, "tiles", wanted, (1, 1, 0), GARBAGE[codec])


@pytest.mark.parametrize("change", sorted(NO_DAMAGE))
@pytest.mark.parametrize("place", sorted(PLACES))
def test_what_is_no_damage(place, change, tmp_path):
    """Without a word, and the pixels are those of the tile as it was, or zeros where it is left out."""
    folders = [tmp_path / name for name in ("intact", "changed")]
    for folder in folders:
        folder.mkdir()
    intact, _, at = damaged(folders[0], place, lambda tile: None)
    ds, band = opened(intact, place, harness.open_gtiff)
    want = band.ReadAsArray()
    x, y, w, h = _rect(band, at)
    if change == "byte count zero":
        want[y : y + h, x : x + w] = 0
    name, _, _ = damaged(folders[1], place, NO_DAMAGE[change])
    for way in ("whole", "tile", "block"):
        ds, band = opened(name, place)
        with harness.Errors() as errors:
            data = WAYS[way](band, at)
        assert errors == [] and data is not None, (way, errors)
        harness.same_bytes(data, (want if way == "whole" else want[y : y + h, x : x + w]).tobytes(), way)
