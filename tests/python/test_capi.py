"""Reading through the C API: every pixel against GTiff's, facts, tensors, batches, threads."""

import ctypes
import ctypes.util
import os
import subprocess
import sys
import threading
from ctypes import byref, c_char_p, c_void_p

import capi
import harness
import numpy as np
import pytest
from capi import C
from osgeo import gdal

PLUGIN, COPY = (capi.Library(path) for path in (capi.PLUGIN_PATH, capi.COPY_PATH))
WKT = 'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]]'

# name: (GDAL type, bands, width, height, creation options, overviews, share of blocks written)
FILES = {
    "rgb": (gdal.GDT_Byte, 3, 700, 500, "TILED=YES COMPRESS=DEFLATE PREDICTOR=2 BLOCKXSIZE=128 BLOCKYSIZE=64", (2, 4), 1),
    "planes": (gdal.GDT_Float32, 4, 300, 333, "TILED=YES COMPRESS=ZSTD PREDICTOR=3 INTERLEAVE=BAND BLOCKXSIZE=64 BLOCKYSIZE=64", (2,), 1),
    "strips": (gdal.GDT_Int16, 1, 421, 390, "COMPRESS=LZW BLOCKYSIZE=7", (), 1),
    "sparse": (gdal.GDT_UInt16, 2, 512, 512, "TILED=YES COMPRESS=DEFLATE SPARSE_OK=YES BLOCKXSIZE=64 BLOCKYSIZE=64", (), 0.5),
    "lerc": (gdal.GDT_Byte, 3, 320, 256, "TILED=YES COMPRESS=LERC BLOCKXSIZE=64 BLOCKYSIZE=64", (2,), 1),
    "complex": (gdal.GDT_CInt16, 2, 130, 140, "TILED=YES COMPRESS=DEFLATE BLOCKXSIZE=64 BLOCKYSIZE=64", (), 1),
    "wide": (gdal.GDT_UInt64, 1, 100, 90, "TILED=YES COMPRESS=DEFLATE BLOCKXSIZE=32 BLOCKYSIZE=32", (), 1),
}  # fmt: skip
NODATA = {"sparse": 7.0, "strips": -32768.0}


def make(path, name):
    kind, bands, width, height, options, overviews, share = FILES[name]
    draw = np.random.default_rng(len(name))
    ds = gdal.GetDriverByName("GTiff").Create(str(path), width, height, bands, kind, options.split())
    ds.SetGeoTransform((440720, 60, 1, 3751320, -2, -60))
    ds.SetProjection(WKT)
    if name == "wide":
        ds.GetRasterBand(1).SetNoDataValue(2**64 - 1)
    for i in range(1, bands + 1):
        if name in NODATA:
            ds.GetRasterBand(i).SetNoDataValue(NODATA[name])
        for y in range(0, height, 64):
            for x in range(0, width, 64):
                w, h = min(64, width - x), min(64, height - y)
                size = w * h * harness.sample_bytes(kind)
                pixels = (np.arange(size) // 5 + draw.integers(0, 9, size)).astype(np.uint8)
                if kind == gdal.GDT_Float32:
                    pixels = draw.normal(0, 1e4, w * h).astype(np.float32)
                if draw.random() < share:
                    ds.GetRasterBand(i).WriteRaster(x, y, w, h, pixels.tobytes())
    if overviews:
        ds.BuildOverviews("NEAREST", list(overviews))
    del ds
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capi")
    return {name: make(folder / (name + ".tif"), name) for name in FILES}


def oracle(path, level, where, bands, kind):
    """GTiff's pixels, one band after the other."""
    ds = harness.open_gtiff(path)
    pixels = b""
    for band in bands:
        band = ds.GetRasterBand(band)
        band = band.GetOverview(level - 1) if level else band
        pixels += bytes(band.ReadRaster(*where, buf_type=kind))
    return np.frombuffer(pixels, np.uint8).reshape(len(bands), where[3], where[2], -1)


def a_layout(draw, extents, sample):
    """(bytes, offset, strides (pixel, line, band)) of a buffer: dimensions nested in any order, with gaps, some
    backwards."""
    strides, reach, offset = [0, 0, 0], sample, 0
    for i in draw.sample(range(3), 3):
        step = reach + draw.choice([0, 0, 0, 1, 3, 8])
        strides[i] = step
        reach += step * (extents[i] - 1)
        if draw.random() < 0.25:
            strides[i], offset = -step, offset + step * (extents[i] - 1)
    before = draw.choice([0, 0, 5])
    return before + reach + draw.choice([0, 11]), before + offset, strides


def one_read(raster, path, facts, level, draw):
    bands = [draw.randint(1, facts.bands) for _ in range(draw.randint(1, 4))]
    x, y = draw.randrange(facts.width), draw.randrange(facts.height)
    where = (x, y, draw.randint(1, facts.width - x), draw.randint(1, facts.height - y))
    kind = draw.choice([0, 0, *capi.GDAL_TYPE])
    gdal_kind = capi.GDAL_TYPE[kind or facts.type]
    extents = (where[2], where[3], len(bands))
    size, offset, strides = a_layout(draw, extents, harness.sample_bytes(gdal_kind))
    wanted = oracle(path, level, where, bands, gdal_kind)
    backing = np.frombuffer(draw.randbytes(size), np.uint8).copy()
    expected = backing.copy()
    view = np.ndarray(wanted.shape, np.uint8, expected, offset, (strides[2], strides[1], strides[0], 1))
    view[...] = wanted
    raster.read(where, backing, capi.selection(bands, level, kind), offset=offset, strides=strides)
    harness.same_bytes(backing, expected, "%s level %d %s bands %s type %s strides %s offset %d" % (
        path, level, where, bands, kind, strides, offset))  # fmt: skip
    return view.size


@pytest.mark.parametrize("name", FILES)
def test_random_reads_are_gtiffs(files, name, total):
    with PLUGIN.open(files[name]) as raster:
        levels = [raster.info(level) for level in range(raster.info().levels)]
        for i in range(25):
            draw = harness.rng("capi", name, i)
            level = draw.randrange(len(levels))
            total("bytes read through the C API", one_read(raster, files[name], levels[level], level, draw))
        counters = raster.counters()
        assert counters["REQUESTS_GTIFF"] == 0, counters
        assert (counters["TILES_BY_GTIFF_CODEC"] > 0) == (name == "lerc"), counters


@pytest.mark.parametrize("name", FILES)
def test_facts_are_gdals(files, name):
    ds = harness.open_gtiff(files[name])
    first = ds.GetRasterBand(1)
    with PLUGIN.open(files[name]) as raster:
        levels = raster.info().levels
        assert levels == 1 + first.GetOverviewCount()
        for level in range(levels):
            facts, band = raster.info(level), first.GetOverview(level - 1) if level else first
            assert (facts.width, facts.height, facts.bands) == (band.XSize, band.YSize, ds.RasterCount)
            assert capi.GDAL_TYPE[facts.type] == band.DataType
            assert [facts.tile_width, facts.tile_height] == band.GetBlockSize()
            six, (rx, ry) = ds.GetGeoTransform(), (ds.RasterXSize / band.XSize, ds.RasterYSize / band.YSize)
            assert facts.has_geotransform
            assert list(facts.geotransform) == [six[0], six[1] * rx, six[2] * ry, six[3], six[4] * rx, six[5] * ry]
        assert raster.wkt() == ds.GetProjection()
        for i in range(1, ds.RasterCount + 1):
            value, found = ds.GetRasterBand(i).GetNoDataValue(), raster.nodata(i)
            assert bool(found.is_set) == (value is not None)
            assert not found.is_set or (found.u64 if name == "wide" else found.value) == value
        assert bytes(raster.info().nodata) == bytes(raster.nodata(1))


def test_a_plain_read_is_packed(files):
    with PLUGIN.open(files["rgb"]) as raster:
        pixels = raster.read((), np.zeros((3, 500, 700), np.uint8))
    harness.same_bytes(capi.bits(pixels), harness.open_gtiff(files["rgb"]).ReadRaster(), "rgb")


def test_versions_and_names():
    for library in (PLUGIN, COPY):
        version = library.ask("version").decode()
        parts = [int(part) for part in version.split(".")]
        assert library.ask("version_number") == parts[0] * 10000 + parts[1] * 100 + parts[2]
        assert parts == [C["VERSION_MAJOR"], C["VERSION_MINOR"], C["VERSION_PATCH"]]
        assert library.ask("gdal_version").decode() == gdal.VersionInfo("RELEASE_NAME")
        for code, name in capi.NAMES.items():
            assert library.dll.gpugtiff_result_name(code) == b"GPUGTIFF_" + name.encode()
        assert library.dll.gpugtiff_result_name(-999) == b"an unknown result"


def test_engine_and_counters(files):
    with PLUGIN.open(files["rgb"], ["ENGINE=CPU", "NUM_THREADS=2"]) as raster:
        assert raster.engine() == ("CPU", "ENGINE=CPU")
        raster.read((), np.zeros(3 * 700 * 500, np.uint8))
        counters = raster.counters()
        assert counters["TILES_DECODED"] == counters["TILES_TOUCHED"] == 6 * 8
        assert counters["NUM_THREADS"] == 2 and "ENGINE" not in counters


# ---- datasets ------------------------------------------------------------------------------


def test_a_dataset_of_this_copy_is_wrapped_and_others_are_refused(files):
    ours = harness.open_ours(files["rgb"])
    with PLUGIN.wrap(ours) as raster:
        dataset = c_void_p()
        raster.call("dataset", byref(dataset))
        assert dataset.value == int(ours.this)
        # The raster's reference keeps the dataset when ours goes.
        del ours
        one_read(raster, files["rgb"], raster.info(1), 1, harness.rng("capi", "wrap"))
    ours = harness.open_ours(files["rgb"])
    handle = c_void_p(123)
    level = ours.GetRasterBand(1).GetOverview(0).GetDataset()
    made = gdal.GetDriverByName("GPUGTiff").Create("/vsimem/being-made.tif", 8, 8)
    cases = [(PLUGIN, harness.open_gtiff(files["rgb"]), "expected one that"), (COPY, ours, "expected one that"),
             (PLUGIN, level, "overview"), (PLUGIN, made, "being created")]  # fmt: skip
    for library, dataset, words in cases:
        assert library.result("raster_wrap", int(dataset.this), byref(handle)) == C["FOREIGN_DATASET"]
        assert words in library.message() and handle.value == 123
    del made, level
    assert gdal.Unlink("/vsimem/being-made.tif") == 0
    with COPY.open(files["rgb"]) as raster:
        dataset = c_void_p()
        raster.call("dataset", byref(dataset))
        assert PLUGIN.result("raster_wrap", dataset, byref(handle)) == C["FOREIGN_DATASET"]


def test_another_copy_reads_beside_the_registered_driver(files):
    with COPY.open(files["planes"]) as raster, COPY.open("GPUGTIFF:" + files["planes"]) as prefixed:
        for i in range(3):
            one_read(raster, files["planes"], raster.info(), 0, harness.rng("capi", "copy", i))
            one_read(prefixed, files["planes"], raster.info(), 0, harness.rng("capi", "copy", i))
        assert raster.counters()["TILES_DECODED"] > 0 == raster.counters()["REQUESTS_GTIFF"]


ALONE = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
gdal = ctypes.CDLL(None)
raster = ctypes.c_void_p()
assert lib.gpugtiff_raster_open(sys.argv[2].encode(), None, ctypes.byref(raster)) == 0
gdal.GDALGetDriverShortName.restype = ctypes.c_char_p
gdal.GDALGetDriver.restype = ctypes.c_void_p
gdal.GDALGetDriverShortName.argtypes = [ctypes.c_void_p]
print([gdal.GDALGetDriverShortName(gdal.GDALGetDriver(i)) for i in range(gdal.GDALGetDriverCount())])
gdal.GDALAllRegister()
gdal.GDALAllRegister()
again = ctypes.c_void_p()
assert lib.gpugtiff_raster_open(sys.argv[2].encode(), None, ctypes.byref(again)) == 0
assert lib.gpugtiff_raster_free(raster) == 0 and lib.gpugtiff_raster_free(again) == 0
gdal.GDALDestroyDriverManager()
assert lib.gpugtiff_raster_open(sys.argv[2].encode(), None, ctypes.byref(again)) == 0
assert lib.gpugtiff_raster_free(again) == 0
"""


@pytest.mark.parametrize("path", [capi.PLUGIN_PATH, capi.COPY_PATH])
def test_a_program_that_never_initialised_gdal(files, path):
    # GDAL's symbols must be global for ctypes.CDLL(None).
    code = "import ctypes; ctypes.CDLL(%r, ctypes.RTLD_GLOBAL)\n" % ctypes.util.find_library("gdal") + ALONE
    done = subprocess.run([sys.executable, "-c", code, path, files["rgb"]], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[b'GPUGTiff']"), done.stdout + done.stderr


# ---- batches, tensors, log -----------------------------------------------------------------


@pytest.mark.parametrize("name, chosen, level, megabytes", [
    ("rgb", None, 0, 0), ("rgb", [3, 1], 1, 1), ("planes", None, 0, 1), ("strips", None, 0, 1), ("lerc", [2], 1, 1)])  # fmt: skip
def test_batches_cover_the_raster_from_top_to_bottom(files, name, chosen, level, megabytes):
    kind = C["TYPE_F64"]
    with PLUGIN.open(files[name]) as raster:
        facts = raster.info(level)
        pick = capi.selection(chosen, level, kind)
        bands = chosen or list(range(1, facts.bands + 1))
        with raster.batches(pick, megabytes) as batches:
            assert raster.free() == C["OK"]
            largest, got, y = capi.Window(), [], 0
            batches.call("largest", byref(largest))
            outside = capi.Window(0, 0, facts.width, facts.height + 1)
            assert batches.result("read", byref(outside), byref(capi.buffer(np.zeros(8)))) == C["OUT_OF_IMAGE"]
            while where := batches.next():
                assert (where.x, where.y, where.width) == (0, y, facts.width)
                assert where.height == facts.height - y or where.height % facts.tile_height == 0
                assert where.height <= largest.height
                array = np.zeros((len(bands), where.height, where.width))
                batches.call("read", byref(where), byref(capi.buffer(array)))
                got.append(array)
                y += where.height
            assert y == facts.height and batches.next() is None
            if megabytes:
                most = max(1 << 20, facts.tile_height * facts.width * len(bands) * 8)
                assert max(a.nbytes for a in got) <= most
    wanted = oracle(files[name], level, (0, 0, facts.width, facts.height), bands, gdal.GDT_Float64)
    harness.same_bytes(capi.bits(np.concatenate(got, 1)), wanted.tobytes(), name)


class Capsule:
    """What numpy.from_dlpack() wants."""

    def __init__(self, tensor):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
        self.capsule = new(ctypes.cast(tensor, c_void_p), b"dltensor", None)

    def __dlpack__(self, stream=None):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def test_a_tensor_is_numpys_without_a_copy_and_deleted_once(files):
    with PLUGIN.open(files["planes"]) as raster:
        tensor = raster.tensor((10, 20, 130, 70), capi.selection([4, 2]), versioned=False)
    wanted = oracle(files["planes"], 0, (10, 20, 130, 70), [4, 2], gdal.GDT_Float32)
    # By its address: what ctypes gives out for a field follows the field.
    deleted, real = [], capi.DELETER(ctypes.cast(tensor.contents.deleter, c_void_p).value)
    ours = capi.DELETER(lambda at: (deleted.append(at), real(at)))
    tensor.contents.deleter = ours
    address = tensor.contents.dl_tensor.data
    array = np.from_dlpack(Capsule(tensor))
    assert array.ctypes.data == address and address % 256 == 0
    assert array.shape == (2, 70, 130) and array.dtype == np.float32
    harness.same_bytes(array.tobytes(), wanted.tobytes(), "tensor")
    assert not deleted
    del array
    assert len(deleted) == 1


@pytest.mark.parametrize("kind, code, width", [("U8", 1, 8), ("I16", 0, 16), ("U64", 1, 64), ("F32", 2, 32),
                                               ("F64", 2, 64), ("CF32", 5, 64), ("CF64", 5, 128)])  # fmt: skip
def test_a_versioned_tensor(files, kind, code, width):
    with PLUGIN.open(files["complex"]) as raster:
        tensor = raster.tensor((1, 2, 100, 120), capi.selection(type=C["TYPE_" + kind]))
    managed, t = tensor.contents, tensor.contents.dl_tensor
    assert (managed.major, managed.minor, managed.flags) == (1, 0, 0)
    assert (t.device_type, t.device_id, t.ndim, t.byte_offset) == (1, 0, 3, 0)
    assert (t.code, t.bits, t.lanes) == (code, width, 1) and t.data % 256 == 0
    assert t.shape[:3] == [2, 120, 100] and t.strides[:3] == [12000, 100, 1]
    gdal_kind = capi.GDAL_TYPE[C["TYPE_" + kind]]
    wanted = oracle(files["complex"], 0, (1, 2, 100, 120), [1, 2], gdal_kind).tobytes()
    harness.same_bytes(ctypes.string_at(t.data, len(wanted)), wanted, kind)
    # On another thread, long after the raster is gone.
    deleter = threading.Thread(target=managed.deleter, args=[ctypes.cast(tensor, c_void_p).value])
    deleter.start()
    deleter.join()


VERSIONED = """
import ctypes, sys
import numpy as np
from ctypes import c_char_p, c_void_p
import capi

new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
name = ctypes.pythonapi.PyCapsule_GetName
name.restype, name.argtypes = c_char_p, [ctypes.py_object]

class Tensor:
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert max_version >= (1, 0), max_version
        self.capsule = new(ctypes.cast(tensor, c_void_p), b"dltensor_versioned", None)
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)

with capi.Library(capi.PLUGIN_PATH).open(sys.argv[1]) as raster:
    tensor = raster.tensor((10, 20, 130, 70), capi.selection([4, 2]))
deleted, real = [], capi.DELETER(ctypes.cast(tensor.contents.deleter, c_void_p).value)
ours = capi.DELETER(lambda at: (deleted.append(at), real(at)))
tensor.contents.deleter = ours
address = tensor.contents.dl_tensor.data
source = Tensor()
array = np.from_dlpack(source)
assert name(source.capsule) == b"used_dltensor_versioned", name(source.capsule)
assert (array.ctypes.data, array.flags.writeable) == (address, True), (array.ctypes.data, address, array.flags)
assert array.shape == (2, 70, 130) and array.dtype == np.float32
print(np.__version__, array.tobytes().hex())
assert not deleted
del array
assert len(deleted) == 1, deleted
"""


def test_a_versioned_tensor_is_numpys_without_a_copy_and_deleted_once(files):
    """By a NumPy that asks for it: 2.1 or later, in a process of its own."""
    numpy2 = os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "numpy2")
    if not os.path.isdir(numpy2):
        pytest.skip("no NumPy 2 in %s: make setup-test installs it" % numpy2)
    done = harness.run_python(VERSIONED, files["planes"], env={"PYTHONPATH": numpy2 + os.pathsep + harness.HERE})
    assert done.returncode == 0, done.stderr
    version, pixels = done.stdout.split()
    wanted = oracle(files["planes"], 0, (10, 20, 130, 70), [4, 2], gdal.GDT_Float32)
    assert version.startswith("2.")
    harness.same_bytes(bytes.fromhex(pixels), wanted.tobytes(), "tensor")


def test_tensors_do_not_leak(files):
    def rounds(raster, n):
        for _ in range(n):
            tensor = raster.tensor(chosen=capi.selection(type=C["TYPE_F64"]))
            tensor.contents.deleter(ctypes.cast(tensor, c_void_p).value)

    with PLUGIN.open(files["rgb"]) as raster:
        rounds(raster, 3)
        before = harness.peak_kb()
        rounds(raster, 40)  # 320 MB
    assert harness.peak_kb() - before < 40_000


def test_what_tensors_cannot_be(files):
    with PLUGIN.open(files["complex"]) as raster:
        for chosen, device, code in [(None, -1, "UNSUPPORTED"), (capi.selection(type=C["TYPE_F32"]), 0, "NO_DEVICE"),
                                     (None, -2, "BAD_ARGUMENT")]:  # fmt: skip
            for name in ("read_tensor", "read_tensor_unversioned"):
                out = c_void_p(99)
                assert raster.result(name, None, chosen and byref(chosen), device, byref(out)) == C[code]
                assert out.value == 99


def test_the_log_hears_our_messages_and_no_others(files):
    heard = []
    ear = capi.LOG(lambda level, text, user: heard.append((level, text.decode(), user)))
    gdal.PushErrorHandler("CPLQuietErrorHandler")
    try:
        PLUGIN.call("log_set", ear, 42)
        PLUGIN.result("raster_open", files["rgb"].encode(), capi.strings(["ENGINE=NONSENSE"]), byref(c_void_p()))
        gdal.Error(gdal.CE_Failure, 1, "somebody else's")
        with PLUGIN.open(files["lerc"]) as raster:
            raster.read((), np.zeros(3 * 320 * 256, np.uint8))
        PLUGIN.call("log_set", None, None)
        n = len(heard)
        PLUGIN.result("raster_open", files["rgb"].encode(), capi.strings(["ENGINE=NONSENSE"]), byref(c_void_p()))
    finally:
        PLUGIN.call("log_set", None, None)
        gdal.PopErrorHandler()
    assert any(level == C["LOG_ERROR"] and "NONSENSE" in text for level, text, _ in heard)
    assert any(level == C["LOG_DEBUG"] and files["lerc"] in text for level, text, _ in heard)
    assert all(user == 42 for *_, user in heard) and len(heard) == n
    assert not any("somebody" in text for _, text, _ in heard)


def test_devices_where_there_is_none_or_some():
    count, facts = PLUGIN.ask("device_count"), capi.DeviceFacts(ctypes.sizeof(capi.DeviceFacts))
    assert count >= 0
    assert PLUGIN.result("device_info", count, byref(facts)) == C["NO_DEVICE"] and PLUGIN.message()
    assert PLUGIN.result("device_info", -1, byref(facts)) == C["NO_DEVICE"]
    assert bytes(facts) == bytes(capi.DeviceFacts(ctypes.sizeof(capi.DeviceFacts)))
    if count == 0:
        assert PLUGIN.ask("nvcomp_version") == 0


# ---- threads -------------------------------------------------------------------------------


def in_threads(count, work):
    failures = []

    def run(i):
        try:
            work(i)
        except BaseException as failure:  # noqa: B902
            failures.append(failure)

    threads = [threading.Thread(target=run, args=[i]) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("name", ["rgb", "planes", "sparse", "strips", "lerc"])
def test_many_threads_read_one_raster(files, name, total):
    facts_of = harness.open_gtiff(files[name])
    size = (facts_of.RasterXSize, facts_of.RasterYSize, facts_of.RasterCount)
    kind = facts_of.GetRasterBand(1).DataType
    whole = np.frombuffer(facts_of.ReadRaster(), np.uint8).reshape(size[2], size[1], size[0], -1)
    with PLUGIN.open(files[name], ["NUM_THREADS=2"]) as raster:
        def work(i):
            draw = harness.rng("capi", "threads", name, i)
            for _ in range(12):
                x, y = draw.randrange(size[0]), draw.randrange(size[1])
                w, h = draw.randint(1, size[0] - x), draw.randint(1, size[1] - y)
                got = np.zeros((size[2], h, w, harness.sample_bytes(kind)), np.uint8)
                raster.read((x, y, w, h), got)
                wanted = capi.bits(whole[:, y : y + h, x : x + w])
                harness.same_bytes(capi.bits(got), wanted, str((name, x, y, w, h)))

        in_threads(8, work)
        total("windows read by threads", 96)


def damage(path, to, block):
    """A copy of a file with one block of band 1 destroyed."""
    ds = harness.open_gtiff(path)
    at, size = (int(ds.GetRasterBand(1).GetMetadataItem("BLOCK_%s_%d_%d" % (what, *block), "TIFF"))
                for what in ("OFFSET", "SIZE"))  # fmt: skip
    with open(path, "rb") as f:
        data = bytearray(f.read())
    data[at : at + size] = bytes(size)
    to.write_bytes(data)
    return str(to)


def test_a_window_of_whole_tiles_does_not_wait_for_another_read(files, tmp_path):
    """The failure of a damaged tile is told while its reader holds the dataset: another thread reads meanwhile."""
    path, meanwhile = damage(files["rgb"], tmp_path / "damaged.tif", (0, 0)), []
    wanted = bytes(harness.open_gtiff(path).ReadRaster(128, 64, 256, 128))

    def read_another(level, text, user):
        def work():
            got = np.zeros(3 * 256 * 128, np.uint8)
            meanwhile.append((raster.result("read", capi.window(128, 64, 256, 128), None, byref(capi.buffer(got))), got))

        if level == C["LOG_ERROR"]:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(20)

    ear = capi.LOG(read_another)
    with PLUGIN.open(path) as raster:
        PLUGIN.call("log_set", ear, None)
        try:
            got = np.zeros(3 * 256 * 128, np.uint8)
            assert raster.result("read", capi.window(0, 0, 256, 128), None, byref(capi.buffer(got))) == C["CORRUPT"]
        finally:
            PLUGIN.call("log_set", None, None)
        assert path in PLUGIN.message() and "tile 0 (column 0, row 0" in PLUGIN.message()
        assert [(result, pixels.tobytes() == wanted) for result, pixels in meanwhile] == [(0, True)]


def test_many_threads_with_rasters_of_their_own(files):
    names = list(FILES)

    def work(i):
        for k in range(4):
            name = names[(i + k) % len(names)]
            with PLUGIN.open(files[name]) as raster:
                one_read(raster, files[name], raster.info(), 0, harness.rng("capi", "own", i, k))

    in_threads(8, work)


def test_a_raster_is_freed_while_others_read(files):
    raster = PLUGIN.open(files["rgb"])
    wanted = bytes(harness.open_gtiff(files["rgb"]).ReadRaster())
    begun = threading.Barrier(5)

    def work(i):
        begun.wait()
        if i == 0:
            raster.free()
            return
        got = np.zeros(len(wanted), np.uint8)
        result = raster.result("read", None, None, byref(capi.buffer(got)))
        assert result in (C["OK"], C["BAD_HANDLE"])
        harness.same_bytes(got.tobytes(), wanted if result == C["OK"] else bytes(len(wanted)), "read")

    in_threads(5, work)
    assert raster.result("read", None, None, None) == C["BAD_HANDLE"]


@pytest.mark.parametrize("by", ["raster", "batches"])
def test_a_raster_is_freed_when_calls_of_others_have_ended(files, tmp_path, by):
    """A reader is stopped in the middle of its call, while it says that a tile is damaged. Walks stay, and so
    does the file, as long as they need it: theirs are not waited for."""
    path, freed = damage(files["rgb"], tmp_path / "damaged.tif", (0, 0)), []
    is_open = lambda: any(os.path.realpath(fd.path) == path for fd in os.scandir("/proc/self/fd"))  # noqa: E731

    def free():
        raster.free()
        freed.append(is_open())

    def free_it(level, text, user):
        if level == C["LOG_ERROR"] and not threads:
            threads.append(threading.Thread(target=free, daemon=True))
            threads[0].start()
            threads[0].join(0.3 if by == "raster" else 20)
            meanwhile.extend(freed)

    ear, threads, meanwhile = capi.LOG(free_it), [], []
    raster, into = PLUGIN.open(path), np.zeros((3, 128, 256), np.uint8)
    where = byref(capi.Window(0, 0, 256, 128))
    with raster.batches() as batches:
        PLUGIN.call("log_set", ear, None)
        try:
            if by == "raster":
                batches.free()
                assert raster.result("read", where, None, byref(capi.buffer(into))) == C["CORRUPT"]
            else:
                assert batches.result("read", where, byref(capi.buffer(into))) == C["CORRUPT"]
        finally:
            PLUGIN.call("log_set", None, None)
    threads[0].join(20)
    assert (meanwhile, freed) == (([], [False]) if by == "raster" else ([True], [True]))
    assert not is_open()


def test_messages_are_the_threads_own(files):
    def work(i):
        for _ in range(50):
            name = "/nowhere/%d.tif" % i
            assert PLUGIN.result("raster_open", name.encode(), None, byref(c_void_p())) == C["OPEN_FAILED"]
            assert name in PLUGIN.message()

    in_threads(6, work)


# ---- whose dataset, whose window ------------------------------------------------------------


def test_a_wrapped_raster_is_done_with_its_dataset_when_it_is_freed(files):
    """The caller may close the dataset then: nobody reads from it any more."""
    for _ in range(20):
        ds = harness.open_ours(files["rgb"])
        raster = PLUGIN.wrap(ds)
        batches, where = raster.batches(), capi.Window(0, 0, 64, 64)
        pixels = [np.zeros((3, 64, 64), np.uint8) for _ in range(4)]
        results = [[] for _ in pixels]

        def read(n):
            while not results[n] or results[n][-1] == C["OK"]:
                results[n].append(raster.result("read", byref(where), None, byref(capi.buffer(pixels[n]))))

        threads = [threading.Thread(target=read, args=(n,)) for n in range(len(pixels))]
        [thread.start() for thread in threads]
        assert raster.free() == C["OK"]
        del ds  # GDALClose()
        [thread.join() for thread in threads]
        assert all(result[-1] == C["BAD_HANDLE"] for result in results)
        assert batches.result("read", byref(where), byref(capi.buffer(pixels[0]))) == C["BAD_HANDLE"]
        batches.free()


def test_a_dataset_has_one_raster(files):
    ds, handle = harness.open_ours(files["rgb"]), c_void_p(5)
    for _ in range(2):
        with PLUGIN.wrap(ds) as raster:
            assert PLUGIN.result("raster_wrap", int(ds.this), byref(handle)) == C["STATE"]
            assert raster.info().bands == 3
    with PLUGIN.open(files["rgb"]) as raster:
        inner = c_void_p()
        raster.call("dataset", byref(inner))
        assert PLUGIN.result("raster_wrap", inner, byref(handle)) == C["STATE"]
    assert handle.value == 5


def test_threads_that_share_a_walk_read_the_windows_they_got(files):
    kind = C["TYPE_U8"]
    with PLUGIN.open(files["rgb"]) as raster:
        facts = raster.info()
        whole = harness.open_gtiff(files["rgb"]).ReadAsArray()
        for _ in range(5):
            with raster.batches(capi.selection(None, 0, kind), 1) as batches:
                rows, wrong = [], []

                def walk():
                    while where := batches.next():
                        array = np.zeros((facts.bands, where.height, where.width), np.uint8)
                        batches.call("read", byref(where), byref(capi.buffer(array)))
                        rows.append(where.height)
                        if (array != whole[:, where.y : where.y + where.height]).any():
                            wrong.append(where.y)

                threads = [threading.Thread(target=walk) for _ in range(4)]
                [thread.start() for thread in threads]
                [thread.join() for thread in threads]
                assert not wrong and sum(rows) == facts.height


def test_a_handle_of_another_copy_is_refused(files):
    other = capi.Library(capi.COPY_PATH)
    with PLUGIN.open(files["rgb"]) as raster, other.open(files["strips"]) as theirs:
        out = capi.RasterFacts(ctypes.sizeof(capi.RasterFacts))
        assert other.result("raster_info", raster.handle, 0, byref(out)) == C["BAD_HANDLE"]
        assert PLUGIN.result("raster_free", theirs.handle) == C["BAD_HANDLE"]
        assert theirs.info().width > 0
