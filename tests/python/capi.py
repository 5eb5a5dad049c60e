"""The C API by ctypes: structs as in include/gpugtiff.h, and a few words to call it with.

`PLUGIN` is the copy of the library that GDAL has loaded as its driver, `COPY` another one of the
same build: two instances in one process.
"""

import ctypes
import os
import re
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int32, c_int64, c_size_t,
                    c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)  # fmt: skip

import harness
import numpy as np

HEADER = os.path.join(harness.REPO, "include", "gpugtiff.h")


def constants(path=HEADER):
    """Every #define of a number in the header."""
    with open(path) as f:
        return {n: int(v) for n, v in re.findall(r"^#define GPUGTIFF_(\w+) \(?(-?\d+)\)?$", f.read(), re.M)}


C = constants()
globals().update(C)  # OK, BAD_HANDLE, TYPE_U8 …

# GDAL's types by ours.
GDAL_TYPE = {C["TYPE_" + name]: gdal for name, gdal in dict(
    U8=1, U16=2, I16=3, U32=4, I32=5, F32=6, F64=7, CI16=8, CI32=9, CF32=10, CF64=11, U64=12, I64=13).items()}  # fmt: skip
OUR_TYPE = {gdal: ours for ours, gdal in GDAL_TYPE.items()}


class Window(Structure):
    _fields_ = [(name, c_int64) for name in ("x", "y", "width", "height")]


class Selection(Structure):
    _fields_ = [("size", c_size_t), ("bands", POINTER(c_int32)), ("band_count", c_size_t), ("level", c_int32),
                ("type", c_int32)]  # fmt: skip


class Buffer(Structure):
    _fields_ = [("size", c_size_t), ("data", c_void_p), ("bytes", c_size_t), ("offset", c_size_t),
                ("pixel_stride", c_int64), ("line_stride", c_int64), ("band_stride", c_int64), ("memory", c_int32),
                ("device", c_int32), ("stream", c_void_p)]  # fmt: skip


class Nodata(Structure):
    _fields_ = [("is_set", c_int32), ("type", c_int32), ("value", c_double), ("i64", c_int64), ("u64", c_uint64)]


class RasterFacts(Structure):
    _fields_ = [("size", c_size_t), ("width", c_int64), ("height", c_int64), ("bands", c_int32), ("type", c_int32),
                ("tile_width", c_int32), ("tile_height", c_int32), ("levels", c_int32), ("has_geotransform", c_int32),
                ("geotransform", c_double * 6), ("nodata", Nodata)]  # fmt: skip


class Spec(Structure):
    _fields_ = [("size", c_size_t), ("width", c_int64), ("height", c_int64), ("bands", c_int32), ("type", c_int32),
                ("geotransform", POINTER(c_double)), ("wkt", c_char_p), ("nodata", POINTER(c_double)),
                ("nodata_i64", POINTER(c_int64)), ("nodata_u64", POINTER(c_uint64)),
                ("options", POINTER(c_char_p))]  # fmt: skip


class DeviceFacts(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char * 256), ("compute_major", c_int32), ("compute_minor", c_int32),
                ("multiprocessors", c_int32), ("is_usable", c_int32)]  # fmt: skip


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]  # fmt: skip


DELETER = CFUNCTYPE(None, c_void_p)


class ManagedTensor(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", DELETER)]


class ManagedTensorVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p), ("deleter", DELETER),
                ("flags", c_uint64), ("dl_tensor", DLTensor)]  # fmt: skip


COUNTER = CFUNCTYPE(None, c_char_p, c_uint64, c_void_p)
LOG = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)

# Arguments of each function; those that are not here return something else than a result.
P = c_void_p
RESULTS = dict(
    raster_open=[c_char_p, P, P], raster_wrap=[P, P], raster_free=[P], raster_info=[P, c_int32, P],
    raster_nodata=[P, c_int32, P], raster_wkt=[P, P], raster_dataset=[P, P], raster_read=[P, P, P, P],
    raster_read_tensor=[P, P, P, c_int32, P], raster_read_tensor_unversioned=[P, P, P, c_int32, P],
    raster_engine=[P, P, P], raster_counters=[P, P, P], batches_new=[P, P, c_size_t, P], batches_largest=[P, P],
    batches_next=[P, P], batches_read=[P, P, P], batches_free=[P], writer_create=[c_char_p, P, P],
    writer_write=[P, P, P, P], writer_finish=[P], writer_abort=[P], writer_free=[P], writer_engine=[P, P, P],
    writer_counters=[P, P, P], device_info=[c_int32, P], log_set=[P, P],
)  # fmt: skip
OTHERS = dict(version=c_char_p, version_number=c_uint32, gdal_version=c_char_p, cuda_version=c_uint32,
              nvcomp_version=c_uint32, device_count=c_int32, error_message=c_char_p)  # fmt: skip


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__("%s: %s" % (NAMES.get(code, code), text))
        self.code, self.text = code, text


NAMES = {value: name for name, value in C.items() if not re.match("TYPE_|MEMORY_|LOG_|VERSION_", name)}


class Library:
    """One copy of the library: its functions without their prefix; those that fail raise."""

    def __init__(self, path):
        self.dll = ctypes.CDLL(path)
        for name, arguments in RESULTS.items():
            function = getattr(self.dll, "gpugtiff_" + name)
            function.argtypes, function.restype = arguments, c_int32
        for name, answer in OTHERS.items():
            function = getattr(self.dll, "gpugtiff_" + name)
            function.argtypes, function.restype = [], answer
        self.dll.gpugtiff_result_name.restype = c_char_p

    def result(self, name, *arguments):
        """Calls and gives the number back."""
        return getattr(self.dll, "gpugtiff_" + name)(*arguments)

    def call(self, name, *arguments):
        result = self.result(name, *arguments)
        if result < 0:
            raise Failure(result, self.message())
        return result

    def message(self):
        return self.dll.gpugtiff_error_message().decode()

    def ask(self, name):
        return getattr(self.dll, "gpugtiff_" + name)()

    def open(self, path, options=()):
        return Raster(self, self._handle("raster_open", os.fsencode(path), strings(options)))

    def wrap(self, dataset):
        return Raster(self, self._handle("raster_wrap", int(dataset.this)))

    def create(self, path, spec):
        return Writer(self, self._handle("writer_create", os.fsencode(path), byref(spec)))

    def _handle(self, name, *arguments):
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle


def strings(items):
    """A NULL-terminated list."""
    return (c_char_p * (len(items) + 1))(*[item.encode() for item in items], None)


def selection(bands=None, level=0, type=0):
    numbers = None if bands is None else (c_int32 * len(bands))(*bands)
    made = Selection(ctypes.sizeof(Selection), numbers, 0 if bands is None else len(bands), level, type)
    made.keep = numbers
    return made


def buffer(array, offset=0, strides=(0, 0, 0)):
    """A whole numpy array, with strides (pixel, line, band)."""
    return Buffer(ctypes.sizeof(Buffer), array.ctypes.data, array.nbytes, offset, *strides, 0, 0, None)


def spec(width, height, bands, type, geotransform=None, wkt=None, nodata=None, nodata_i64=None, nodata_u64=None,
         options=()):  # fmt: skip
    def pointer(kind, value):
        return None if value is None else ctypes.pointer(kind(value))

    six = None if geotransform is None else (c_double * 6)(*geotransform)
    return Spec(ctypes.sizeof(Spec), width, height, bands, type, six, wkt and wkt.encode(), pointer(c_double, nodata),
                pointer(c_int64, nodata_i64), pointer(c_uint64, nodata_u64), strings(options))  # fmt: skip


def window(*numbers):
    return byref(Window(*numbers)) if numbers else None


class Handle:
    kind = None

    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def call(self, name, *arguments):
        return self.library.call("%s_%s" % (self.kind, name), self.handle, *arguments)

    def result(self, name, *arguments):
        return self.library.result("%s_%s" % (self.kind, name), self.handle, *arguments)

    def free(self):
        return self.call("free")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.result("free")

    def counters(self):
        found = {}
        self.call("counters", COUNTER(lambda name, value, _: found.update({name.decode(): value})), None)
        return found

    def engine(self):
        name, reason = c_char_p(), c_char_p()
        self.call("engine", byref(name), byref(reason))
        return name.value.decode(), reason.value.decode()


class Raster(Handle):
    kind = "raster"

    def info(self, level=0):
        facts = RasterFacts(ctypes.sizeof(RasterFacts))
        self.call("info", level, byref(facts))
        return facts

    def wkt(self):
        text = c_char_p()
        self.call("wkt", byref(text))
        return text.value.decode()

    def nodata(self, band):
        found = Nodata()
        self.call("nodata", band, byref(found))
        return found

    def read(self, where, into, chosen=None, **how):
        self.call("read", window(*where) if where else None, chosen and byref(chosen), byref(buffer(into, **how)))
        return into

    def tensor(self, where=(), chosen=None, device=-1, versioned=True):
        kind = ManagedTensorVersioned if versioned else ManagedTensor
        tensor = POINTER(kind)()
        name = "read_tensor" if versioned else "read_tensor_unversioned"
        self.call(name, window(*where) if where else None, chosen and byref(chosen), device, byref(tensor))
        return tensor

    def batches(self, chosen=None, megabytes=0):
        handle = c_void_p()
        self.library.call("batches_new", self.handle, chosen and byref(chosen), megabytes, byref(handle))
        return Batches(self.library, handle)


class Batches(Handle):
    kind = "batches"

    def next(self):
        where = Window(-7, -7, -7, -7)
        return where if self.call("next", byref(where)) == C["OK"] else None


class Writer(Handle):
    kind = "writer"

    def write(self, where, array, chosen=None, **how):
        self.call("write", window(*where) if where else None, chosen and byref(chosen), byref(buffer(array, **how)))


def bits(array):
    """The bytes of an array, for comparing to the bit."""
    return np.ascontiguousarray(array).tobytes()


# What gdal_GPUGTiff.so, the loader, loads.
PLUGIN_PATH = os.path.join(harness.PLUGIN_DIR, "libgpugtiff-gdal%s.so" % ".".join(harness.gdal.__version__.split(".")[:2]))
COPY_PATH = os.path.join(harness.REPO, "target", "release", "libgpugtiff.so")
