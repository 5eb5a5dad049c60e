#!/usr/bin/env python3
"""Reads a window of a raster as a DLPack tensor and gives it to NumPy and, where there is a GPU,
to CuPy and PyTorch: none of them copies the pixels.

    tensor.py [-l level] <raster> [x y width height]

Prints shape, type and the mean of each band, a line for each library that took it. The library is
$GPUGTIFF_LIBRARY, else the installed libgpugtiff.so.0. Exit code: 0, 1 if something failed, 2 if
it was called wrongly."""

import argparse
import ctypes
import importlib
import os
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_void_p

import numpy

OK, NO_DEVICE, UNSUPPORTED = 0, -8, -14
HOST = -1

library = None  # once main() has loaded it


class Failure(Exception):
    """A call of the library that failed."""

    def __init__(self, result):
        name = library.gpugtiff_result_name(result).decode()
        super().__init__(f"{library.gpugtiff_error_message().decode()} ({name})")
        self.result = result


def check(result):
    if result != OK:
        raise Failure(result)


class Window(Structure):
    _fields_ = [(name, c_int64) for name in ("x", "y", "width", "height")]


class Selection(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("bands", POINTER(c_int32)),
        ("band_count", c_size_t),
        ("level", c_int32),
        ("type", c_int32),
    ]


class Device(Structure):
    _fields_ = [("kind", c_int32), ("number", c_int32)]


class ManagedTensor(Structure):
    """DLManagedTensor, which every library takes; the first fields of the DLTensor in it."""

    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("dimensions", c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", c_void_p),
        ("deleter", c_void_p),
    ]


# Capsules are asked by address: in a destructor nobody may take a reference any more.
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
capsule_is_valid.argtypes = [c_void_p, c_char_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = c_void_p, [c_void_p, c_char_p]


def delete(address):
    tensor = ManagedTensor.from_address(address)
    if tensor.deleter:
        CFUNCTYPE(None, c_void_p)(tensor.deleter)(address)


@CFUNCTYPE(None, c_void_p)
def end_capsule(capsule):
    """Who took the tensor has renamed the capsule; else it is still ours."""
    if capsule_is_valid(capsule, b"dltensor"):
        delete(capsule_pointer(capsule, b"dltensor"))


class Tensor:
    """Pixels (band, row, column) that know the DLPack protocol; they can be taken once."""

    def __init__(self, address):
        self.address = address
        device = ManagedTensor.from_address(address).device
        self.device = (device.kind, device.number)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if self.address is None or copy:
            raise BufferError("the tensor was taken already" if not copy else "no copies here")
        if dl_device not in (None, self.device):
            raise BufferError(f"the pixels are on device {self.device}")
        address, self.address = self.address, None
        return new_capsule(address, b"dltensor", ctypes.cast(end_capsule, c_void_p))

    def __del__(self):
        if self.address is not None:
            delete(self.address)


class Raster:
    def __init__(self, path):
        self.handle = c_void_p()
        check(library.gpugtiff_raster_open(os.fsencode(path), None, ctypes.byref(self.handle)))

    def read(self, window, level, device):
        """A tensor of all bands in the raster's type; the whole level without a window."""
        selection = Selection(size=ctypes.sizeof(Selection), level=level)
        tensor = c_void_p()
        check(
            library.gpugtiff_raster_read_tensor_unversioned(
                self.handle,
                ctypes.byref(Window(*window)) if window else None,
                ctypes.byref(selection),
                c_int32(device),
                ctypes.byref(tensor),
            )
        )
        return Tensor(tensor.value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        library.gpugtiff_raster_free(self.handle)


def load_library():
    name = os.environ.get("GPUGTIFF_LIBRARY", "libgpugtiff.so.0")
    try:
        found = ctypes.CDLL(name)
    except OSError as error:
        sys.exit(f"tensor.py: {error}; set GPUGTIFF_LIBRARY to where {name} is")
    for name in ("gpugtiff_error_message", "gpugtiff_result_name"):
        getattr(found, name).restype = c_char_p
    return found


def show(name, array):
    means = " ".join(f"{float(band.mean()):.10g}" for band in array)
    print(f"{name}: shape {tuple(array.shape)} type {array.dtype} means {means}")


def show_on_device(raster, arguments):
    """On the first GPU, for the libraries that are there."""
    for name in ("cupy", "torch"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        try:
            array = module.from_dlpack(raster.read(arguments.window, arguments.level, 0))
        except Failure as failure:
            if failure.result not in (NO_DEVICE, UNSUPPORTED):
                raise
            print(f"{name}: {failure}", file=sys.stderr)
            continue
        show(name, array.double() if name == "torch" else array)


def parse():
    parser = argparse.ArgumentParser(description="reads a window of a raster as a DLPack tensor")
    parser.add_argument("-l", dest="level", type=int, default=0, help="0: the image, n: its n-th overview")
    parser.add_argument("raster")
    parser.add_argument("window", type=int, nargs="*", metavar="x y width height")
    arguments = parser.parse_args()
    if len(arguments.window) not in (0, 4):
        parser.error("a window has four numbers: x y width height")
    return arguments


def main():
    global library
    arguments = parse()
    library = load_library()
    try:
        with Raster(arguments.raster) as raster:
            array = numpy.from_dlpack(raster.read(arguments.window, arguments.level, HOST))
            show_on_device(raster, arguments)
        # The pixels outlive the raster.
        show("numpy", array)
    except Failure as failure:
        sys.exit(f"tensor.py: {failure}")


if __name__ == "__main__":
    main()
