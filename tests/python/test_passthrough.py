"""Codecs that only GDAL has: workers decode them through GTiff, with the same pixels, and count them. What cannot be
cut out of its file goes to GTiff whole, with a reason."""

import harness
import numpy as np
import pytest
import tifffile
import tiffpatch
from osgeo import gdal

W, H = 200, 150
OPTIONS = gdal.GetDriverByName("GTiff").GetMetadataItem("DMD_CREATIONOPTIONLIST")

# name: (bands, type, creation options)
MADE_BY_GDAL = {
    "jpeg": (1, gdal.GDT_Byte, ["COMPRESS=JPEG"]),
    "jpeg_ycbcr": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR"]),
    "jpeg_strips": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "TILED=NO"]),
    "jpeg_band": (3, gdal.GDT_Byte, ["COMPRESS=JPEG", "INTERLEAVE=BAND"]),
    "nbits_1": (1, gdal.GDT_Byte, ["NBITS=1"]),
    "nbits_4": (2, gdal.GDT_Byte, ["NBITS=4", "COMPRESS=LZW"]),
    "nbits_7": (1, gdal.GDT_Byte, ["NBITS=7", "COMPRESS=DEFLATE"]),
    "nbits_12": (3, gdal.GDT_UInt16, ["NBITS=12", "COMPRESS=DEFLATE"]),
    "nbits_20": (1, gdal.GDT_UInt32, ["NBITS=20", "COMPRESS=ZSTD"]),
    "float16": (1, gdal.GDT_Float32, ["NBITS=16", "COMPRESS=DEFLATE"]),
    "float16_predictor": (2, gdal.GDT_Float32, ["NBITS=16", "COMPRESS=LZW", "PREDICTOR=3"]),
    "webp": (3, gdal.GDT_Byte, ["COMPRESS=WEBP"]),
    "webp_lossless": (4, gdal.GDT_Byte, ["COMPRESS=WEBP", "WEBP_LOSSLESS=YES"]),
    "lerc": (1, gdal.GDT_Float32, ["COMPRESS=LERC"]),
    "lerc_deflate": (1, gdal.GDT_UInt16, ["COMPRESS=LERC_DEFLATE"]),
    "lerc_zstd": (2, gdal.GDT_Float64, ["COMPRESS=LERC_ZSTD"]),
    "lzma": (1, gdal.GDT_Int16, ["COMPRESS=LZMA"]),
    "ccitt4": (1, gdal.GDT_Byte, ["COMPRESS=CCITTFAX4", "NBITS=1"]),
    "ccitt3": (1, gdal.GDT_Byte, ["COMPRESS=CCITTFAX3", "NBITS=1"]),
}


def _missing(options):
    codec = next((o.split("=")[1] for o in options if o.startswith("COMPRESS=")), "NONE")
    return ">%s<" % codec not in OPTIONS and codec


def _make(path, bands, kind, options):
    missing = _missing(options)
    if missing:
        pytest.skip("this GDAL does not write %s" % missing)
    if "TILED=NO" not in options:
        options = ["TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"] + options
    ds = gdal.GetDriverByName("GTiff").Create(str(path), W, H, bands, kind, options)
    y, x = np.mgrid[0:H, 0:W]
    bits = next((int(o[6:]) for o in options if o.startswith("NBITS=")), 8)
    for i in range(1, bands + 1):
        values = (x // 2 + y * i) % (1 << min(bits, 8))
        ds.GetRasterBand(i).WriteRaster(0, 0, W, H, values.astype(np.uint8).tobytes(), buf_type=gdal.GDT_Byte)
    ds = None
    return str(path)


def check_by_codec(path, implicit_overviews=False):
    """Same pixels by every way in, and every tile counted."""
    ours, theirs = harness.open_pair(path)
    assert theirs.ReadRaster() is not None, "GTiff itself fails: nothing is compared"
    harness.same_pixels(ours, theirs)
    for w in ((0, 0, W, H), (13, 17, 101, 90), (W - 1, H - 1, 1, 1)):
        harness.same_bytes(ours.ReadRaster(*w), theirs.ReadRaster(*w), "window %s" % (w,))
    harness.same_bytes(ours.ReadRaster(0, 0, W, H, 50, 40, resample_alg=gdal.GRIORA_Average),
                       theirs.ReadRaster(0, 0, W, H, 50, 40, resample_alg=gdal.GRIORA_Average), "resampled")  # fmt: skip
    harness.same_bytes(ours.ReadRaster(0, 0, W, H, W // 2, H // 2), theirs.ReadRaster(0, 0, W, H, W // 2, H // 2),
                       "half size, where JPEG has implicit overviews")  # fmt: skip
    backwards = list(range(ours.RasterCount, 0, -1))
    harness.same_bytes(ours.ReadRaster(5, 9, 150, 99, band_list=backwards),
                       theirs.ReadRaster(5, 9, 150, 99, band_list=backwards), "bands backwards")  # fmt: skip
    harness.same_bytes(ours.GetRasterBand(1).ReadBlock(0, 0), theirs.GetRasterBand(1).ReadBlock(0, 0), "block")
    if harness.SELF_TEST:
        return None
    c = harness.counters(ours)
    assert c[harness.BY_CODEC] == c[harness.DECODED] == c[harness.TOUCHED] > 0, c
    assert c[harness.TILES_PASSED] == c[harness.BLOCKS_PASSED] == 0, c
    assert (c[harness.REQUESTS_PASSED] > 0) == implicit_overviews, c
    return c


@pytest.mark.parametrize("name", sorted(MADE_BY_GDAL))
def test_made_by_gdal(name, tmp_path):
    check_by_codec(_make(tmp_path / "p.tif", *MADE_BY_GDAL[name]), implicit_overviews="jpeg" in name)


@pytest.mark.parametrize("codec", [None, "zlib", "lzw"])
def test_half_float_of_tifffile(tmp_path, codec):
    path = str(tmp_path / "h.tif")
    data = (np.arange(W * H).reshape(H, W) / 7).astype(np.float16)
    tifffile.imwrite(path, data, tile=(64, 64), compression=codec, predictor=3 if codec else None, metadata=None)
    check_by_codec(path)


FLOATS_24 = {"none": [], "strips": ["COMPRESS=PACKBITS", "TILED=NO"], "deflate": ["COMPRESS=DEFLATE"],
             "big_endian": ["COMPRESS=LZW", "ENDIANNESS=BIG"], "predictor": ["COMPRESS=DEFLATE"]}  # fmt: skip


@pytest.mark.parametrize("bands", [1, 2])
@pytest.mark.parametrize("name", sorted(FLOATS_24))
def test_float_of_24_bits(tmp_path, name, bands):
    """Nobody at hand writes it: every three samples of a byte are called one. GTiff makes Float32 of them."""
    options = ["INTERLEAVE=PIXEL", "PHOTOMETRIC=MINISBLACK"] + FLOATS_24[name]
    path = _make(tmp_path / "f.tif", 3 * bands, gdal.GDT_Byte, options)
    tiff = tiffpatch.Tiff(path)
    samples = {258: [24] * bands, 277: [bands], 338: [0] * (bands - 1), 339: [3] * bands}
    if name == "predictor":
        samples[317] = [3]  # whatever the bytes then stand for, it is the same to both
    for tag, values in samples.items():
        tiff.drop_tag(tag)
        if values:
            tiff.add_tag(tag, 3, values)
    tiff.save()
    theirs = harness.open_gtiff(path)
    band = theirs.GetRasterBand(bands)
    assert (band.DataType, band.GetMetadataItem("NBITS", "IMAGE_STRUCTURE")) == (gdal.GDT_Float32, "24")
    check_by_codec(path)


@pytest.mark.parametrize("options", [[], ["COMPRESS=LZW"], ["COMPRESS=PACKBITS", "TILED=NO"], ["COMPRESS=DEFLATE"]])
def test_fill_order_2(tmp_path, options):
    """Bits of every byte in reverse: the tag is put in, the data mirrored to match."""
    path = _make(tmp_path / "f.tif", 1, gdal.GDT_Byte, options)
    tiff = tiffpatch.Tiff(path)
    tiff.reverse_bits()
    tiff.add_tag(266, 3, [2])
    tiff.save()
    check_by_codec(path)


def test_ycbcr_without_jpeg(tmp_path):
    """Uncompressed YCbCr is turned to RGB by libtiff."""
    path = str(tmp_path / "y.tif")
    data = np.random.default_rng(1).integers(0, 255, (H, W, 3), dtype=np.uint8)
    tifffile.imwrite(path, data, photometric="ycbcr", subsampling=(1, 1), metadata=None, rowsperstrip=16)
    check_by_codec(path)


def test_cielab(tmp_path):
    path = str(tmp_path / "l.tif")
    data = np.random.default_rng(1).integers(0, 255, (H, W, 3), dtype=np.uint8)
    tifffile.imwrite(path, data, photometric="cielab", metadata=None, rowsperstrip=16)
    check_by_codec(path)


def test_old_style_lzw(tmp_path):
    """LZW with the least significant bit first: the first code, clear, begins 0x00 0x01. A tile of
    clear, 0, end is enough to be told apart; the rest of the file is ordinary."""
    path = _make(tmp_path / "o.tif", 1, gdal.GDT_Byte, ["COMPRESS=LZW", "TILED=NO", "BLOCKYSIZE=%d" % H])
    tiff = tiffpatch.Tiff(path)
    codes, size = tiffpatch.old_style_lzw(W * H)
    tiff.append_data(codes, strile=0)
    assert size == W * H
    tiff.save()
    ours, theirs = harness.open_pair(path)
    assert theirs.ReadRaster() is not None
    harness.same_pixels(ours, theirs)
    if not harness.SELF_TEST:
        # On a plain file the first bytes of the data tell before anything is decoded: all is passed whole.
        c = harness.counters(ours)
        assert c[harness.DECODED] == c[harness.TOUCHED] == c[harness.TILES_PASSED] == 0, c
        assert c[harness.REQUESTS_PASSED] + c[harness.BLOCKS_PASSED] > 0, c
        assert "old-style lzw" in c[harness.PASS_REASON].lower(), c


def test_overview_of_another_codec_decides_for_itself(tmp_path):
    """A JPEG image with DEFLATE overviews: each level has its own engine."""
    harness.skip_count_if_self_test()
    path = _make(tmp_path / "p.tif", 1, gdal.GDT_Byte, ["COMPRESS=JPEG"])
    with harness.config(COMPRESS_OVERVIEW="DEFLATE"):
        gdal.Open(path).BuildOverviews("NEAREST", [2])
    ours, theirs = harness.open_pair(path)
    level = ours.GetRasterBand(1).GetOverview(0)
    harness.same_bytes(level.ReadRaster(), theirs.GetRasterBand(1).GetOverview(0).ReadRaster(), "level")
    harness.check_all_ours(ours)
    assert harness.counters(ours)[harness.BY_CODEC] == 0
    ours.ReadRaster()
    assert harness.check_all_ours(ours)[harness.BY_CODEC] > 0


def test_separated_ink_is_ours(tmp_path):
    """CMYK of 16 bits is plain samples to GTiff, so it is within our engine."""
    path = str(tmp_path / "s.tif")
    data = np.random.default_rng(1).integers(0, 65535, (H, W, 4), dtype=np.uint16)
    tifffile.imwrite(path, data, photometric="separated", compression="zlib", predictor=2, metadata=None)
    ours, theirs = harness.open_pair(path)
    harness.same_pixels(ours, theirs)
    harness.check_all_ours(ours)
