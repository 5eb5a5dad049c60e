"""The C API called wrongly: a result, a message, and nothing written."""

import ctypes
from ctypes import byref, c_void_p

import capi
import harness
import numpy as np
import pytest
from capi import C
from osgeo import gdal

LIBRARY = capi.Library(capi.PLUGIN_PATH)
WIDTH, HEIGHT, BANDS = 200, 150, 3
BIG = 2**63 - 1


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("misuse") / "a.tif")
    options = ["TILED=YES", "COMPRESS=DEFLATE", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]
    ds = gdal.GetDriverByName("GTiff").Create(path, WIDTH, HEIGHT, BANDS, gdal.GDT_UInt16, options)
    ds.WriteRaster(0, 0, WIDTH, HEIGHT, np.arange(WIDTH * HEIGHT * BANDS, dtype=np.uint16).tobytes())
    ds.BuildOverviews("NEAREST", [2])
    return path


@pytest.fixture
def raster(path):
    with LIBRARY.open(path) as raster:
        yield raster


@pytest.fixture
def pixels():
    return np.full(WIDTH * HEIGHT * BANDS, 0xA5A5, np.uint16)


def refuse(code, words, name, *arguments):
    """Calls, and looks at the result and the message."""
    # Another message first, so that an old one is not taken for a new one.
    LIBRARY.result("raster_open", b"/nowhere", None, byref(c_void_p()))
    result = LIBRARY.result(name, *arguments)
    assert capi.NAMES.get(result) == code, "%s: %s" % (name, LIBRARY.message())
    assert words in LIBRARY.message(), LIBRARY.message()


def changed(struct, **fields):
    for name, value in fields.items():
        setattr(struct, name, value)
    return struct


WINDOWS = [(-1, 0, 5, 5), (0, -1, 5, 5), (0, 0, 0, 5), (0, 0, 5, 0), (0, 0, -5, 5), (0, 0, WIDTH + 1, 1),
           (0, 0, 1, HEIGHT + 1), (WIDTH, 0, 1, 1), (0, HEIGHT, 1, 1), (BIG, 0, BIG, 1), (1, 1, BIG, BIG),
           (-BIG, 0, BIG, 1), (2**32, 0, 1, 1)]  # fmt: skip


@pytest.mark.parametrize("where", WINDOWS)
def test_windows_that_leave_the_image(raster, pixels, where):
    before, tensor = pixels.tobytes(), c_void_p(5)
    into = byref(capi.buffer(pixels))
    refuse("OUT_OF_IMAGE", "%d x %d pixels" % (WIDTH, HEIGHT), "raster_read", raster.handle, capi.window(*where), None, into)
    for name in ("raster_read_tensor", "raster_read_tensor_unversioned"):
        refuse("OUT_OF_IMAGE", "window", name, raster.handle, capi.window(*where), None, -1, byref(tensor))
    harness.same_bytes(pixels.tobytes(), before, "touched")
    assert tensor.value == 5


def test_a_window_is_held_against_its_level(raster, pixels):
    chosen = capi.selection(level=1)
    refuse("OUT_OF_IMAGE", "100 x 75", "raster_read", raster.handle, capi.window(0, 0, 101, 1), byref(chosen),
           byref(capi.buffer(pixels)))  # fmt: skip


STRIDES = [dict(bytes=WIDTH * HEIGHT * BANDS * 2 - 1), dict(offset=1), dict(offset=2**64 - 1), dict(bytes=0),
           dict(pixel_stride=4), dict(line_stride=WIDTH * 2 + 2), dict(band_stride=WIDTH * HEIGHT * 2 + 2),
           dict(pixel_stride=1), dict(line_stride=2), dict(band_stride=2), dict(pixel_stride=-2),
           dict(line_stride=-WIDTH * 2), dict(pixel_stride=-2, line_stride=WIDTH * 2, band_stride=WIDTH * HEIGHT * 2),
           dict(pixel_stride=BIG), dict(line_stride=BIG), dict(band_stride=BIG),
           dict(band_stride=-BIG - 1), dict(pixel_stride=2**62), dict(bytes=2**64 - 1, band_stride=BIG),
           dict(bytes=2**64 - 1)]  # fmt: skip


@pytest.mark.parametrize("fields", STRIDES)
def test_strides_that_leave_the_buffer_or_meet(raster, pixels, fields):
    before = pixels.tobytes()
    into = changed(capi.buffer(pixels), **fields)
    refuse("BAD_STRIDE", "strides", "raster_read", raster.handle, None, None, byref(into))
    harness.same_bytes(pixels.tobytes(), before, "touched")


BUFFERS = [(dict(data=None), "NULL_ARGUMENT", "data is NULL"), (dict(memory=2), "BAD_ARGUMENT", "memory is 2"),
           (dict(memory=-1), "BAD_ARGUMENT", "memory"), (dict(memory=1), "NO_DEVICE", "NVIDIA"),
           (dict(size=0), "BAD_ARGUMENT", "size is 0"), (dict(size=71), "BAD_ARGUMENT", "sizeof(gpugtiff_buffer)"),
           (dict(size=2**40), "BAD_ARGUMENT", "size")]  # fmt: skip


@pytest.mark.parametrize("fields, code, words", BUFFERS)
def test_buffers_that_mean_nothing(raster, pixels, fields, code, words):
    before = pixels.tobytes()
    refuse(code, words, "raster_read", raster.handle, None, None, byref(changed(capi.buffer(pixels), **fields)))
    harness.same_bytes(pixels.tobytes(), before, "touched")


SELECTIONS = [(capi.selection([0]), "BAD_ARGUMENT", "no band 0"), (capi.selection([1, 4]), "BAD_ARGUMENT", "no band 4"),
              (capi.selection([-1]), "BAD_ARGUMENT", "no band -1"), (capi.selection(level=2), "BAD_ARGUMENT", "0 to 1"),
              (capi.selection(level=-1), "BAD_ARGUMENT", "level"), (capi.selection(type=17), "BAD_ARGUMENT", "type is 17"),
              (capi.selection(type=-1), "BAD_ARGUMENT", "type is -1"),
              (changed(capi.selection(), band_count=1), "NULL_ARGUMENT", "bands is NULL"),
              (changed(capi.selection([1]), band_count=0), "BAD_ARGUMENT", "band_count is 0"),
              (changed(capi.selection([1]), band_count=2**50), "BAD_ARGUMENT", "band_count"),
              (changed(capi.selection(), size=8), "BAD_ARGUMENT", "size is 8")]  # fmt: skip


@pytest.mark.parametrize("chosen, code, words", SELECTIONS)
def test_selections_that_mean_nothing(raster, pixels, chosen, code, words):
    before, out = pixels.tobytes(), c_void_p(5)
    refuse(code, words, "raster_read", raster.handle, None, byref(chosen), byref(capi.buffer(pixels)))
    refuse(code, words, "raster_read_tensor", raster.handle, None, byref(chosen), -1, byref(out))
    refuse(code, words, "batches_new", raster.handle, byref(chosen), 0, byref(out))
    harness.same_bytes(pixels.tobytes(), before, "touched")
    assert out.value == 5


def test_types_that_this_gdal_does_not_have(raster, pixels):
    for name, since in (("I8", 3070000), ("F16", 3110000)):
        if int(gdal.VersionInfo()) < since:
            refuse("UNSUPPORTED", "no type", "raster_read", raster.handle, None,
                   byref(capi.selection(type=C["TYPE_" + name])), byref(capi.buffer(pixels)))  # fmt: skip


def longer(struct, tail):
    """The struct as a later header has it: with more bytes at the end."""
    made = ctypes.create_string_buffer(bytes(struct) + tail, ctypes.sizeof(struct) + len(tail))
    ctypes.cast(made, ctypes.POINTER(ctypes.c_size_t))[0] = len(made)
    return made


def test_structs_of_a_later_header(raster, pixels, path):
    before = pixels.tobytes()
    chosen, into = capi.selection([2]), capi.buffer(pixels)
    for tail in (b"\0\0\0\1", bytes(7) + b"\1" + bytes(8)):
        refuse("BAD_ARGUMENT", "does not know", "raster_read", raster.handle, None, longer(chosen, tail), byref(into))
        refuse("BAD_ARGUMENT", "does not know", "raster_read", raster.handle, None, None, longer(into, tail))
        facts = longer(capi.RasterFacts(), tail)
        refuse("BAD_ARGUMENT", "does not know", "raster_info", raster.handle, 0, facts)
    harness.same_bytes(pixels.tobytes(), before, "touched")
    raster.call("read", None, longer(chosen, bytes(16)), longer(into, bytes(24)))
    wanted = harness.open_gtiff(path).ReadRaster(band_list=[2])
    harness.same_bytes(pixels.tobytes(), bytes(wanted) + before[len(wanted) :], "read")
    # Only what we know is filled in, and the size stays.
    facts = longer(capi.RasterFacts(), bytes(16))
    raster.call("info", 0, facts)
    assert capi.RasterFacts.from_buffer(facts).size == len(facts) and facts.raw[-16:] == bytes(16)
    assert capi.RasterFacts.from_buffer(facts).width == WIDTH


def test_facts_of_a_wrong_size_stay_as_they_are(raster):
    for size in (0, 8, ctypes.sizeof(capi.RasterFacts) - 1, 2**30):
        facts = capi.RasterFacts(size, width=-5)
        refuse("BAD_ARGUMENT", "gpugtiff_raster_facts.size is %d" % size, "raster_info", raster.handle, 0, byref(facts))
        assert facts.width == -5
    facts = capi.RasterFacts(ctypes.sizeof(capi.RasterFacts), width=-5)
    refuse("BAD_ARGUMENT", "no level 7", "raster_info", raster.handle, 7, byref(facts))
    assert facts.width == -5


def test_null_where_something_must_be(raster, path, pixels, tmp_path):
    out, file = c_void_p(5), str(tmp_path / "w.tif").encode()
    into, spec = byref(capi.buffer(pixels)), byref(capi.spec(8, 8, 1, C["TYPE_U8"]))
    with raster.batches() as batches:
        cases = [
            ("raster_open", None, None, byref(out)), ("raster_open", path.encode(), None, None),
            ("raster_wrap", None, byref(out)), ("raster_wrap", int(gdal.Open(path).this), None),
            ("raster_info", None, 0, None), ("raster_info", raster.handle, 0, None),
            ("raster_nodata", None, 1, None), ("raster_nodata", raster.handle, 1, None),
            ("raster_wkt", None, byref(out)), ("raster_wkt", raster.handle, None),
            ("raster_dataset", None, byref(out)), ("raster_dataset", raster.handle, None),
            ("raster_read", None, None, None, into), ("raster_read", raster.handle, None, None, None),
            ("raster_read_tensor", None, None, None, -1, byref(out)),
            ("raster_read_tensor", raster.handle, None, None, -1, None),
            ("raster_read_tensor_unversioned", None, None, None, -1, byref(out)),
            ("raster_read_tensor_unversioned", raster.handle, None, None, -1, None),
            ("raster_engine", None, byref(out), byref(out)), ("raster_engine", raster.handle, None, byref(out)),
            ("raster_engine", raster.handle, byref(out), None), ("raster_counters", None, None, None),
            ("raster_counters", raster.handle, None, None), ("batches_new", None, None, 0, byref(out)),
            ("batches_new", raster.handle, None, 0, None), ("batches_next", None, byref(capi.Window())),
            ("batches_next", batches.handle, None), ("batches_largest", None, None),
            ("batches_largest", batches.handle, None), ("batches_read", None, None, into),
            ("batches_read", batches.handle, None, into), ("batches_read", batches.handle, byref(capi.Window(0, 0, 1, 1)), None),
            ("writer_create", None, spec, byref(out)), ("writer_create", file, None, byref(out)),
            ("writer_create", file, spec, None), ("writer_write", None, None, None, into), ("writer_finish", None),
            ("writer_abort", None), ("writer_engine", None, byref(out), byref(out)),
            ("writer_counters", None, None, None), ("device_info", 0, None),
        ]  # fmt: skip
        for name, *arguments in cases:
            refuse("NULL_ARGUMENT", "NULL", name, *arguments)
    assert out.value == 5 and not (tmp_path / "w.tif").exists()
    for kind in ("raster", "batches", "writer"):
        assert LIBRARY.result(kind + "_free", None) == C["OK"]


def test_handles_that_were_freed_or_are_of_another_kind(path, pixels, tmp_path):
    raster, writer = LIBRARY.open(path), LIBRARY.create(str(tmp_path / "w.tif"), capi.spec(8, 8, 1, C["TYPE_U8"]))
    batches, into, out = raster.batches(), byref(capi.buffer(pixels)), c_void_p(5)
    before = pixels.tobytes()
    wild = c_void_p(0xDEADBEEF)
    for handle in (raster.handle, writer.handle, batches.handle):
        assert handle.value
    raster.free(), writer.free(), batches.free()
    live = LIBRARY.open(path)
    for handle in (raster.handle, writer.handle, batches.handle, wild):
        refuse("BAD_HANDLE", "freed", "raster_read", handle, None, None, into)
        refuse("BAD_HANDLE", "freed", "raster_wkt", handle, byref(out))
        refuse("BAD_HANDLE", "freed", "raster_free", handle)
        refuse("BAD_HANDLE", "freed", "batches_read", handle, None, into)
        refuse("BAD_HANDLE", "freed", "batches_free", handle)
        refuse("BAD_HANDLE", "freed", "writer_write", handle, None, None, into)
        refuse("BAD_HANDLE", "freed", "writer_free", handle)
    refuse("BAD_HANDLE", "not a writer", "writer_finish", live.handle)
    live.free()
    harness.same_bytes(pixels.tobytes(), before, "touched")
    assert out.value == 5


OPENING = [("/nowhere/a.tif", [], "OPEN_FAILED", "does not exist"), (__file__, [], "OPEN_FAILED", "not a TIFF"),
           (None, ["ENGINE=GPU"], "BAD_ARGUMENT", "ENGINE=GPU is not valid"), (None, ["NONSENSE=1"], "BAD_ARGUMENT", "NONSENSE"),
           (None, ["ENGINE"], "BAD_ARGUMENT", "NAME=VALUE"), (None, ["BATCH_MB=0"], "BAD_ARGUMENT", "BATCH_MB=0")]  # fmt: skip


@pytest.mark.parametrize("file, options, code, words", OPENING)
def test_what_cannot_be_opened(path, file, options, code, words):
    out = c_void_p(5)
    with harness.Errors() as heard:
        gdal.ErrorReset()
        refuse(code, words, "raster_open", (file or path).encode(), capi.strings(options), byref(out))
        # The message is the call's: GDAL's handlers and its last error know nothing of it.
        assert not heard and gdal.GetLastErrorMsg() == ""
    assert out.value == 5


def test_a_file_that_ends_too_early(path, tmp_path):
    with open(path, "rb") as f:
        data = f.read()
    short = tmp_path / "short.tif"
    ds = harness.open_gtiff(path)
    at = int(ds.GetRasterBand(1).GetMetadataItem("BLOCK_OFFSET_3_2", "TIFF"))
    short.write_bytes(data[: at + 5])
    out = c_void_p()
    result = LIBRARY.result("raster_open", str(short).encode(), None, byref(out))
    if result == C["OK"]:
        pixels = np.zeros(WIDTH * HEIGHT * BANDS, np.uint16)
        result = LIBRARY.result("raster_read", out, None, None, byref(capi.buffer(pixels)))
        LIBRARY.call("raster_free", out)
    assert capi.NAMES[result] in ("CORRUPT", "IO", "OPEN_FAILED") and str(short) in LIBRARY.message()


def test_bands_and_nodata_that_are_not_there(raster):
    found = capi.Nodata(is_set=9)
    for band in (0, -1, 4):
        refuse("BAD_ARGUMENT", "no band", "raster_nodata", raster.handle, band, byref(found))
    assert found.is_set == 9
