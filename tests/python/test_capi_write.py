"""Writing through the C API: windows in any order, what GTiff reads back, the ends a file can come to."""

import ctypes
import os
from ctypes import byref, c_void_p

import capi
import harness
import numpy as np
import pytest
from capi import C
from osgeo import gdal
from test_capi import in_threads

LIBRARY, COPY = capi.Library(capi.PLUGIN_PATH), capi.Library(capi.COPY_PATH)
WKT = 'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]'
SIX = (100.5, 0.25, 0, 60, 0, -0.5)
NUMPY = {C["TYPE_U8"]: np.uint8, C["TYPE_I16"]: np.int16, C["TYPE_F32"]: np.float32, C["TYPE_U64"]: np.uint64,
         C["TYPE_I64"]: np.int64, C["TYPE_CF64"]: np.complex128}  # fmt: skip


def noise(draw, shape, kind):
    return np.frombuffer(draw.randbytes(int(np.prod(shape))), np.uint8).reshape(shape).astype(NUMPY[kind])


def pieces(draw, width, height, step):
    """Windows that cover the image, in any order."""
    cut = [(x, y, min(step, width - x), min(step, height - y)) for y in range(0, height, step) for x in range(0, width, step)]
    draw.shuffle(cut)
    return cut


def read_back(path, pixels):
    ds = harness.open_gtiff(str(path))
    harness.same_bytes(ds.ReadRaster(), capi.bits(pixels), str(path))
    return ds


CASES = [("U8", 3, "COMPRESS=DEFLATE PREDICTOR=2", {}), ("I16", 1, "TILED=NO COMPRESS=LZW", dict(nodata=-7)),
         ("F32", 2, "COMPRESS=ZSTD PREDICTOR=3 INTERLEAVE=BAND BLOCKXSIZE=64 BLOCKYSIZE=32", dict(nodata=1.5)),
         ("U64", 1, "COMPRESS=DEFLATE", dict(nodata_u64=2**64 - 1)), ("I64", 1, "", dict(nodata_i64=-(2**63) + 1)),
         ("CF64", 1, "COMPRESS=NONE", {}), ("U8", 3, "COMPRESS=LERC", dict(nodata=3))]  # fmt: skip


@pytest.mark.parametrize("kind, bands, options, nodata", CASES)
@pytest.mark.parametrize("library", [LIBRARY, COPY], ids=["plugin", "copy"])
def test_windows_in_any_order(tmp_path, library, kind, bands, options, nodata):
    path, kind = tmp_path / "out.tif", C["TYPE_" + kind]
    draw = harness.rng("capi", "write", kind, bands, options)
    width, height = draw.randint(1, 300), draw.randint(1, 300)
    pixels = noise(draw, (bands, height, width), kind)
    spec = capi.spec(width, height, bands, kind, SIX, WKT, options=options.split(), **nodata)
    with library.create(str(path), spec) as writer:
        for x, y, w, h in pieces(draw, width, height, draw.choice([37, 64, 150])):
            # A view of the whole: its strides, upside down for some.
            window, strides = pixels[:, y : y + h, x : x + w], pixels.strides
            offset = (y * width + x) * pixels.itemsize
            if draw.random() < 0.5:
                flipped = np.ascontiguousarray(window[:, ::-1])
                line = flipped.strides[1]
                writer.write((x, y, w, h), flipped, offset=(h - 1) * line, strides=(pixels.itemsize, -line, flipped.strides[0]))
            else:
                writer.write((x, y, w, h), pixels, offset=offset, strides=(strides[2], strides[1], strides[0]))
        writer.call("finish")
        counters = writer.counters()
        assert counters["WRITTEN_BY_GTIFF"] == 0, counters
        assert writer.engine()[0]
    ds = read_back(path, pixels)
    assert ds.GetGeoTransform() == SIX and ds.GetSpatialRef().IsGeographic()
    for i in range(1, bands + 1):
        assert ds.GetRasterBand(i).GetNoDataValue() == next(iter(nodata.values()), None)


def test_bands_one_by_one_and_converted(tmp_path):
    path, draw = tmp_path / "out.tif", harness.rng("capi", "bands")
    pixels = noise(draw, (3, 100, 90), C["TYPE_I16"]) - 100
    with LIBRARY.create(str(path), capi.spec(90, 100, 3, C["TYPE_U8"])) as writer:
        for band in (2, 3, 1):
            writer.write((), pixels[band - 1], capi.selection([band], type=C["TYPE_I16"]))
        writer.call("finish")
    read_back(path, pixels.clip(0, 255).astype(np.uint8))


def test_what_is_never_written_is_nodata(tmp_path):
    path, pixels = tmp_path / "out.tif", np.full((1, 200, 200), 9, np.uint8)
    pixels[:, :10, :20] = 1
    with LIBRARY.create(str(path), capi.spec(200, 200, 1, C["TYPE_U8"], nodata=9)) as writer:
        writer.write((0, 0, 20, 10), np.ones((10, 20), np.uint8))
        writer.call("finish")
    read_back(path, pixels)


def test_threads_feed_one_writer(tmp_path):
    path, draw = tmp_path / "out.tif", harness.rng("capi", "feed")
    pixels = noise(draw, (2, 400, 300), C["TYPE_U8"])
    parts = pieces(draw, 300, 400, 70)
    with LIBRARY.create(str(path), capi.spec(300, 400, 2, C["TYPE_U8"], options=["COMPRESS=DEFLATE"])) as writer:
        def work(i):
            for x, y, w, h in parts[i::6]:
                writer.write((x, y, w, h), np.ascontiguousarray(pixels[:, y : y + h, x : x + w]))

        in_threads(6, work)
        writer.call("finish")
    read_back(path, pixels)


# ---- ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["COMPRESS=DEFLATE"], ["COMPRESS=LERC"], ["TFW=YES"]])
@pytest.mark.parametrize("end", ["abort", "free"])
def test_an_unfinished_file_is_removed(tmp_path, options, end):
    spec = capi.spec(300, 300, 1, C["TYPE_U8"], SIX, WKT, nodata=4, options=options)
    with LIBRARY.create(str(tmp_path / "out.tif"), spec) as writer:
        writer.write((0, 0, 300, 200), np.zeros((200, 300), np.uint8))
        assert os.listdir(tmp_path)
        writer.call(end)
        assert os.listdir(tmp_path) == []
        if end == "abort":
            assert writer.result("write", None, None, byref(capi.buffer(np.zeros((300, 300), np.uint8)))) == C["STATE"]
            assert "given up" in LIBRARY.message()
            assert writer.result("finish") == C["STATE"] and writer.call("abort") == C["OK"]


def test_a_finished_file_stays(tmp_path):
    path, pixels = tmp_path / "out.tif", np.arange(100, dtype=np.uint8).reshape(1, 10, 10)
    with LIBRARY.create(str(path), capi.spec(10, 10, 1, C["TYPE_U8"])) as writer:
        writer.write((), pixels)
        writer.call("finish")
        for name in ("finish", "abort"):
            assert writer.result(name) == C["STATE"] and "is finished" in LIBRARY.message()
        assert writer.result("write", None, None, byref(capi.buffer(pixels))) == C["STATE"]
    read_back(path, pixels)


def test_what_was_there_is_replaced(tmp_path):
    path = tmp_path / "out.tif"
    for value in (1, 2):
        with LIBRARY.create(str(path), capi.spec(10, 10, 1, C["TYPE_U8"])) as writer:
            writer.write((), np.full((10, 10), value, np.uint8))
            writer.call("finish")
    read_back(path, np.full((1, 10, 10), 2, np.uint8))


# The limit on the size of files stands for a full disk.
FULL_DISK = """
import json, os, resource, signal, sys
from ctypes import byref
import capi, numpy as np
from capi import C
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, compress = sys.argv[1:]
library = capi.Library(capi.PLUGIN_PATH)
writer = library.create(path, capi.spec(1000, 1000, 1, C["TYPE_U8"], options=["COMPRESS=" + compress]))
pixels = np.random.default_rng(1).integers(0, 256, (1000, 1000), np.uint8)
results = [writer.result("write", None, None, byref(capi.buffer(pixels))), writer.result("finish")]
text = library.message()
print(json.dumps([results, text, writer.result("free"), os.path.exists(path)]))
"""


@pytest.mark.parametrize("compress", ["DEFLATE", "NONE", "LERC"])
def test_a_full_disk_is_told_and_the_file_removed(tmp_path, compress):
    results, text, freed, left = harness.run_json(FULL_DISK, tmp_path / "out.tif", compress)
    assert min(results) < 0 and results[1] != C["OK"], (results, text)
    assert all(r in (C["OK"], C["IO"], C["STATE"]) for r in results), (results, text)
    assert freed == C["OK"] and not left and os.listdir(tmp_path) == [], text


# ---- misuse --------------------------------------------------------------------------------

SPECS = [
    (dict(width=0), "BAD_ARGUMENT", "width is 0"), (dict(height=-1), "BAD_ARGUMENT", "height is -1"),
    (dict(width=2**31), "BAD_ARGUMENT", "width"), (dict(bands=0), "BAD_ARGUMENT", "bands is 0"),
    (dict(type=0), "BAD_ARGUMENT", "type is 0"), (dict(type=99), "BAD_ARGUMENT", "type is 99"),
    (dict(options=capi.strings(["COMPRESS=NONSENSE"])), "BAD_ARGUMENT", "NONSENSE"),
    (dict(options=capi.strings(["NONSENSE=1"])), "BAD_ARGUMENT", "no option NONSENSE"),
    (dict(wkt=b"nonsense"), "BAD_ARGUMENT", ""), (dict(size=8), "BAD_ARGUMENT", "gpugtiff_spec.size is 8"),
    (dict(nodata_i64=ctypes.pointer(ctypes.c_int64(1))), "BAD_ARGUMENT", "nodata_i64"),
    (dict(nodata=ctypes.pointer(ctypes.c_double(1)), nodata_u64=ctypes.pointer(ctypes.c_uint64(1))), "BAD_ARGUMENT", "more than one"),
]  # fmt: skip


@pytest.mark.parametrize("fields, code, words", SPECS)
def test_specs_that_mean_nothing(tmp_path, fields, code, words):
    spec, out = capi.spec(10, 10, 1, C["TYPE_U8"]), c_void_p(5)
    for name, value in fields.items():
        setattr(spec, name, value)
    result = LIBRARY.result("writer_create", str(tmp_path / "out.tif").encode(), byref(spec), byref(out))
    assert capi.NAMES[result] == code and words in LIBRARY.message(), LIBRARY.message()
    assert out.value == 5 and os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_made(tmp_path):
    spec, out = capi.spec(10, 10, 1, C["TYPE_U8"]), c_void_p(5)
    result = LIBRARY.result("writer_create", str(tmp_path / "no" / "out.tif").encode(), byref(spec), byref(out))
    assert capi.NAMES[result] in ("OPEN_FAILED", "IO") and "out.tif" in LIBRARY.message()
    assert out.value == 5


def test_writes_that_mean_nothing_leave_the_file_as_it_is(tmp_path):
    path, pixels = tmp_path / "out.tif", np.full((2, 50, 60), 3, np.uint8)
    wrong = np.full((2, 50, 60), 9, np.uint8)
    with LIBRARY.create(str(path), capi.spec(60, 50, 2, C["TYPE_U8"])) as writer:
        writer.write((), pixels)
        cases = [
            ((1, 0, 60, 50), capi.selection(), {}, "OUT_OF_IMAGE"), ((0, 0, 60, 51), capi.selection(), {}, "OUT_OF_IMAGE"),
            ((), capi.selection([3]), {}, "BAD_ARGUMENT"), ((), capi.selection([1, 1]), {}, "BAD_ARGUMENT"),
            ((), capi.selection(level=1), {}, "BAD_ARGUMENT"), ((), capi.selection(type=50), {}, "BAD_ARGUMENT"),
            ((), capi.selection(type=C["TYPE_F32"]), {}, "BAD_STRIDE"),
            ((), capi.selection(), dict(offset=1), "BAD_STRIDE"), ((), capi.selection(), dict(strides=(1, 2**62, 0)), "BAD_STRIDE"),
            ((), capi.selection(), dict(strides=(-1, 60, 3000)), "BAD_STRIDE"),
        ]  # fmt: skip
        for where, chosen, how, code in cases:
            into = byref(capi.buffer(wrong, **how))
            result = writer.result("write", capi.window(*where) if where else None, byref(chosen), into)
            assert capi.NAMES[result] == code, (where, how, LIBRARY.message())
        device = capi.buffer(wrong)
        device.memory = C["MEMORY_DEVICE"]
        assert writer.result("write", None, None, byref(device)) == C["NO_DEVICE"]
        # Samples that are read from one place for many pixels are fine.
        writer.write((0, 0, 60, 1), pixels, strides=(1, 1, 1))
        writer.call("finish")
    read_back(path, pixels)
    assert gdal.GetLastErrorMsg() == ""


@pytest.mark.parametrize("kind, value, found", [
    ("TYPE_I64", -5.0, -5), ("TYPE_I64", -(2.0**63), -(2**63)), ("TYPE_I64", 2.0**63, None), ("TYPE_I64", 1.5, None),
    ("TYPE_I64", float("nan"), None), ("TYPE_U64", 2.0**63, 2**63), ("TYPE_U64", 2.0**64, None), ("TYPE_U64", -1.0, None)])  # fmt: skip
def test_nodata_of_64_bits_is_exact_or_refused(kind, value, found, tmp_path):
    path, out = tmp_path / "n.tif", c_void_p(5)
    spec = capi.spec(8, 8, 1, C[kind], nodata=value)
    result = LIBRARY.result("writer_create", str(path).encode(), byref(spec), byref(out))
    if found is None:
        assert capi.NAMES[result] == "BAD_ARGUMENT" and "nodata" in LIBRARY.message() and not path.exists()
        return
    assert result == C["OK"]
    LIBRARY.call("writer_finish", out)
    LIBRARY.call("writer_free", out)
    assert harness.open_gtiff(str(path)).GetRasterBand(1).GetNoDataValue() == found


@pytest.mark.parametrize("option", ["COMPRESS=FOO", "PREDICTOR=9", "ENGINE=XX", "NONSENSE=1", "BATCH_MB=-1"])
def test_a_file_survives_options_that_mean_nothing(option, tmp_path):
    path, out = tmp_path / "kept.tif", c_void_p(5)
    path.write_bytes(b"something that the user wants to keep")
    spec = capi.spec(8, 8, 1, C["TYPE_U8"], options=[option])
    with harness.Errors() as heard:
        result = LIBRARY.result("writer_create", str(path).encode(), byref(spec), byref(out))
    assert capi.NAMES[result] == "BAD_ARGUMENT" and out.value == 5 and not heard
    assert path.read_bytes() == b"something that the user wants to keep"
