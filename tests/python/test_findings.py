"""Files and calls that once gave other pixels, other tags or another result than GTiff: byte orders of complex samples,
a late alpha band, odd arrays of strips and tiles; and files of few bytes that claim much, whose cost is GTiff's."""

import itertools
import struct
import zlib

import harness
import pytest
from osgeo import gdal

TAGS = {3: "H", 4: "I"}


def tiff(tags, planes, big=False):
    """A classic TIFF of (tag, type, values); None stands for the offsets of `planes`."""
    e = ">" if big else "<"
    sizes = {3: 2, 4: 4}
    at = 8 + 2 + 12 * len(tags) + 4
    places = {}
    for tag, kind, values in tags:
        size = sizes[kind] * len(planes if values is None else values)
        if size > 4:
            places[tag], at = at, at + size + size % 2
    offsets = [at + sum(map(len, planes[:i])) for i in range(len(planes))]
    entries = values_out = b""
    for tag, kind, values in tags:
        values = offsets if values is None else values
        data = struct.pack(e + TAGS[kind] * len(values), *values)
        entries += struct.pack(e + "HHI", tag, kind, len(values))
        entries += struct.pack(e + "I", places[tag]) if tag in places else data.ljust(4, b"\0")
        values_out += data + b"\0" * (len(data) % 2) if tag in places else b""
    head = (b"MM" if big else b"II") + struct.pack(e + "HIH", 42, 8, len(tags))
    return head + entries + struct.pack(e + "I", 0) + values_out + b"".join(planes)


def results(data, read, name):
    """What both drivers make of a file."""
    path = "/vsimem/findings_%s.tif" % name
    gdal.FileFromMemBuffer(path, data)
    out = []
    with harness.Errors():
        for driver in ("GTiff", harness.DRIVER):
            ds = gdal.OpenEx(path, allowed_drivers=[driver])
            out.append("not opened" if ds is None else read(ds))
            ds = None
    gdal.Unlink(path)
    return out


@pytest.mark.parametrize("order", ["sorted", "BitsPerSample last"])
def test_byte_orders(order):
    """F_BE_*: libtiff swaps complex samples of some sizes by halves, if BitsPerSample came first, and others whole."""
    r = harness.rng("byte orders", order)
    readable = 0
    codecs = ((1, 1), (8, 1), (8, 2))
    for big, form, bits, codec, planar in itertools.product((1, 0), range(1, 7), (8, 16, 32, 64, 128), codecs, (1, 2)):
        compression, predictor = codec
        samples = 2
        planes = [r.randbytes(13 * 9 * bits // 8 * (samples if planar == 1 else 1)) for _ in range(planar)]
        planes = [zlib.compress(p) if compression == 8 else p for p in planes]
        tags = [
            (256, 3, [13]), (257, 3, [9]), (258, 3, [bits] * samples), (259, 3, [compression]), (262, 3, [1]),
            (273, 4, None), (277, 3, [samples]), (278, 3, [9]), (279, 4, [len(p) for p in planes]), (284, 3, [planar]),
            (317, 3, [predictor]), (338, 3, [0]), (339, 3, [form] * samples),
        ]  # fmt: skip
        if order != "sorted":
            tags.append(tags.pop(2))
        read = lambda ds: (ds.GetRasterBand(1).DataType, ds.ReadRaster(), ds.GetRasterBand(2).ReadRaster(1, 1, 5, 5))
        theirs, ours = results(tiff(tags, planes, big), read, "order")
        assert ours == theirs, (big, form, bits, codec, planar)
        readable += theirs != "not opened"
    assert readable > 150


def test_alpha_after_a_write():
    """F_ci_alpha_complex: the hollow file takes tags as long as GTiff does, whatever the type."""
    for kind, profile in itertools.product(range(1, 14), ("GDALGeoTIFF", "BASELINE")):
        if not gdal.GetDataTypeName(kind):
            continue
        for when in ("CW", "WC", "WFC", "WFCW", "WCFW"):
            got = []
            for driver in ("GTiff", harness.DRIVER):
                path = "/vsimem/findings_alpha.tif"
                options = ["COMPRESS=LZW", "TILED=NO", "INTERLEAVE=BAND", "PROFILE=" + profile]
                with harness.Errors():
                    ds = gdal.GetDriverByName(driver).Create(path, 16, 16, 2, kind, options)
                    for call in when:
                        if call == "W":
                            ds.WriteRaster(0, 0, 16, 16, bytes([3]) * 512, 16, 16, gdal.GDT_Byte)
                        elif call == "F":
                            ds.FlushCache()
                        else:
                            ds.GetRasterBand(2).SetColorInterpretation(gdal.GCI_AlphaBand)
                    ds = None
                    ds = gdal.OpenEx(path, allowed_drivers=["GTiff"])
                    got.append(ds.GetRasterBand(2).GetColorInterpretation())
                    ds = None
                    gdal.GetDriverByName("GTiff").Delete(path)
            assert got[0] == got[1], (gdal.GetDataTypeName(kind), profile, when)


def entries(data):
    e = "<" if data[:2] == b"II" else ">"
    big = struct.unpack(e + "H", data[2:4])[0] == 43
    first = struct.unpack(e + ("Q" if big else "I"), data[8:16] if big else data[4:8])[0]
    count = struct.unpack(e + ("Q" if big else "H"), data[first : first + (8 if big else 2)])[0]
    start, size = first + (8 if big else 2), 20 if big else 12
    return e, "Q" if big else "I", [start + i * size for i in range(count)]


@pytest.mark.parametrize("codec", ["NONE", "LZW", "DEFLATE", "ZSTD", "PACKBITS"])
def test_odd_arrays(codec):
    """Siblings of F_succ_*: arrays of offsets and sizes of any type, count and value. Success where GTiff has success."""
    r = harness.rng("odd arrays", codec)
    reads = {
        "all": lambda ds: ds.ReadRaster(),
        "a row": lambda ds: ds.ReadRaster(0, 20, 81, 1),
        "a window": lambda ds: ds.GetRasterBand(2).ReadRaster(17, 17, 3, 3),
    }
    for tiled, big, endian, interleave in itertools.product((0, 1), ("YES", "NO"), ("LITTLE", "BIG"), ("PIXEL", "BAND")):
        shape = ["TILED=YES", "BLOCKXSIZE=16", "BLOCKYSIZE=16"] if tiled else ["BLOCKYSIZE=3"]
        options = shape + ["COMPRESS=" + codec, "BIGTIFF=" + big, "ENDIANNESS=" + endian, "INTERLEAVE=" + interleave]
        path = "/vsimem/findings_arrays_%s.tif" % codec
        ds = gdal.GetDriverByName("GTiff").Create(path, 81, 41, 3, gdal.GDT_Int16, options)
        ds.WriteRaster(0, 0, 81, 41, bytes(r.randrange(4) for _ in range(81 * 41 * 6)))
        ds = None
        f = gdal.VSIFOpenL(path, "rb")
        whole = bytes(gdal.VSIFReadL(1, gdal.VSIStatL(path).size, f))
        gdal.VSIFCloseL(f)
        gdal.Unlink(path)
        e, number, places = entries(whole)
        for at in places:
            tag = struct.unpack(e + "H", whole[at : at + 2])[0]
            if tag not in (273, 279, 324, 325):
                continue
            count = struct.unpack_from(e + number, whole, at + 4)[0]
            edits = [("H", 2, kind) for kind in (0, 1, 3, 4, 6, 11, 12, 13, 16, 99)]
            edits += [(number, 4, n) for n in (0, 1, count - 1, count + 1, 70000)]
            for form, place, value in r.sample(edits, 5):
                data = bytearray(whole)
                struct.pack_into(e + form, data, at + place, value)
                for name, read in reads.items():
                    theirs, ours = results(bytes(data), read, "arrays_" + codec)
                    assert ours == theirs, (harness.SEED, options, tag, form, place, value, name)


COST = """
import json, resource, sys
import harness
from osgeo import gdal
with harness.Errors():
    ds = gdal.OpenEx(sys.argv[1], allowed_drivers=[sys.argv[2]])
    if sys.argv[3] == "all":
        got = ds.ReadRaster()
    else:
        got = ds.GetRasterBand(1).ReadRaster(0, 0, 1, 300)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([got is not None, used.ru_utime + used.ru_stime, harness.peak_kb() / 1024]))
"""


def packed(codec, size):
    """One strip of zeros."""
    path = "/vsimem/findings_packed.tif"
    options = ["COMPRESS=" + codec, "BLOCKYSIZE=%d" % (size // 4096)]
    ds = gdal.GetDriverByName("GTiff").Create(path, 4096, size // 4096, 1, gdal.GDT_Byte, options)
    ds.GetRasterBand(1).Fill(0)
    ds = None
    ds = gdal.Open(path)
    offset, length = (int(ds.GetRasterBand(1).GetMetadataItem("BLOCK_%s_0_0" % n, "TIFF")) for n in ("OFFSET", "SIZE"))
    ds = None
    f = gdal.VSIFOpenL(path, "rb")
    gdal.VSIFSeekL(f, offset, 0)
    data = bytes(gdal.VSIFReadL(1, length, f))
    gdal.VSIFCloseL(f)
    gdal.Unlink(path)
    return data


def damaged(data):
    return data[:-12] + bytes(byte ^ 0x5A for byte in data[-12:])


NUMBERS = {"LZW": 5, "DEFLATE": 8, "PACKBITS": 32773, "ZSTD": 50000}


@pytest.mark.skipif(harness.SELF_TEST, reason="compares ours with GTiff")
@pytest.mark.parametrize(
    "what, codec",
    [("many damaged", codec) for codec in sorted(NUMBERS)]
    + [("one large", "DEFLATE"), ("one large", "ZSTD"), ("a column", "DEFLATE")],
)
def test_cost(tmp_path, codec, what):
    """Files of few bytes that claim much: at most twice GTiff's time and a second, 1.5 times its memory and 64 MB."""
    if what == "many damaged":
        # 225 tiles of 16 MB, all of them the same bytes, which turn out to be damaged at their end.
        width, side, count, data = 4096 * 15, 4096, 225, damaged(packed(codec, 1 << 24))
    elif what == "one large":
        width, side, count, data = 16384, 16384, 1, packed(codec, 1 << 28)
    else:
        # Strips of a pixel, of which some codecs decode less than libtiff does.
        width, side, count, data = 1, 1, 200000, packed(codec, 1 << 20)[:20]
    height = width if width > 1 else count
    shape = [(278, 4, [1])] if width == 1 else [(322, 4, [side]), (323, 4, [side])]
    places, sizes = (273, 279) if width == 1 else (324, 325)
    tags = [
        (256, 4, [width]), (257, 4, [height]), (258, 3, [8]), (259, 3, [NUMBERS[codec]]), (262, 3, [1]), (277, 3, [1]),
        (284, 3, [1]), (places, 4, [0] * count), (sizes, 4, [len(data)] * count), *shape,
    ]  # fmt: skip
    tags.sort()
    start = len(tiff(tags, []))
    tags = [(tag, kind, [start] * count if tag == places else values) for tag, kind, values in tags]
    path = tmp_path / "claims.tif"
    path.write_bytes(tiff(tags, [data]))
    how = "a window" if what == "one large" else "all"
    theirs, ours = (harness.run_json(COST, str(path), driver, how, timeout=300) for driver in ("GTiff", harness.DRIVER))
    assert ours[0] == theirs[0], (theirs, ours)
    assert ours[1] <= 2 * theirs[1] + 1 and ours[2] <= 1.5 * theirs[2] + 64, (theirs, ours)
