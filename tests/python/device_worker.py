"""One process with the emulated driver in libcuda's place that reads to and writes from device memory by
the C API: does what its argument (JSON) says, and prints one line of JSON.

    do: windows | queued | at_once | batches | facts | structure | tensors | deleted | misuse | write | lost
        | starting | doubt
    path, paths, options, seed, count, target, large
"""

import ctypes
import json
import os
import random
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

import harness  # noqa: F401  (sets GDAL_DRIVER_PATH before osgeo)
from osgeo import gdal

import capi
import numpy as np

gdal.DontUseExceptions()
GUARD = 0xA5
# What the caller queued before it asked for pixels.
EARLIER = 0x11
NOT_INITIALIZED, NOT_READY = 3, 600


class Cuda:
    """The driver as a program uses it: the primary context of a device, current."""

    def __init__(self, device=0):
        self.dll = ctypes.CDLL("libcuda.so.1")
        self.context = c_void_p()
        self.ok("cuInit", 0)
        self.ok("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self.enter()

    def ok(self, name, *arguments):
        result = getattr(self.dll, name)(*arguments)
        assert result == 0, (name, result)

    def enter(self):
        self.ok("cuCtxSetCurrent", self.context)

    def allocate(self, count, fill=GUARD):
        address = c_uint64()
        self.ok("cuMemAlloc_v2", byref(address), c_size_t(count))
        self.ok("cuMemsetD8_v2", address, ctypes.c_uint8(fill), c_size_t(count))
        # It returns before it is done, and streams of the caller's need not wait for it.
        self.ok("cuCtxSynchronize")
        return address.value

    def free(self, address):
        self.ok("cuMemFree_v2", c_uint64(address))

    def stream(self, flags=1):
        stream = c_void_p()
        self.ok("cuStreamCreate", byref(stream), flags)
        return stream.value

    def memset(self, address, count, value, stream):
        self.ok("cuMemsetD8Async", c_uint64(address), ctypes.c_uint8(value), c_size_t(count), c_void_p(stream))

    def copy(self, target, source, count, stream):
        self.ok("cuMemcpyDtoDAsync_v2", c_uint64(target), c_uint64(source), c_size_t(count), c_void_p(stream))

    def get(self, address, count):
        data = np.empty(count, np.uint8)
        self.ok("cuMemcpyDtoH_v2", c_void_p(data.ctypes.data), c_uint64(address), c_size_t(count))
        return data

    def pinned(self, count):
        address = c_void_p()
        self.ok("cuMemHostAlloc", byref(address), c_size_t(count), 0)
        return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address.value))

    def put(self, address, data):
        self.ok("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(data.ctypes.data), c_size_t(data.nbytes))


def device_buffer(address, count, offset=0, strides=(0, 0, 0), device=0, stream=None):
    return capi.Buffer(ctypes.sizeof(capi.Buffer), address, count, offset, *strides, 1, device, stream)


def gtiff(path, level=0):
    ds = gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=["GTiff"])
    return ds if level == 0 else gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=["GTiff"], open_options=["OVERVIEW_LEVEL=%d" % (level - 1)])


def pixels(ds, where, bands):
    x, y, w, h = where
    return np.stack([ds.GetRasterBand(band).ReadAsArray(x, y, w, h) for band in bands])


def layout(rng, shape, sample):
    """Random places for (bands, rows, columns) of samples: bytes, offset, strides (pixel, line, band)."""
    order, strides, reach = rng.sample(range(3), 3), [0, 0, 0], sample
    for axis in order:
        strides[axis] = reach + rng.choice([0, 0, 1, 3])
        reach = strides[axis] * shape[axis]
    signs = [rng.choice([1, 1, 1, -1]) for _ in range(3)]
    offset = sum(stride * (n - 1) for stride, n, sign in zip(strides, shape, signs) if sign < 0) + rng.choice([0, 0, 1, 7])
    strides = [stride * sign for stride, sign in zip(strides, signs)]
    return reach + 16, offset, (strides[2], strides[1], strides[0])


def expected(data, count, offset, strides):
    """The buffer as it must be: pixels in their places, guards between them."""
    memory = np.full(count, GUARD, np.uint8)
    pixel, line, band = strides
    view = np.lib.stride_tricks.as_strided(
        memory[offset:], shape=(*data.shape, data.itemsize), strides=(band, line, pixel, 1))  # fmt: skip
    view[...] = np.ascontiguousarray(data).view(np.uint8).reshape(*data.shape, data.itemsize)
    return memory


def windows(order):
    """Random windows, bands, levels and strides, on every kind of stream, with the caller's own work
    queued before and after."""
    cuda, library, rng = Cuda(), capi.Library(capi.PLUGIN_PATH), random.Random(order["seed"])
    raster = library.open(order["path"], order.get("options", ()))
    levels = raster.info().levels
    streams = [None, 1, 2, cuda.stream(), cuda.stream(0)]
    wrong = []
    for n in range(order["count"]):
        level = rng.randrange(levels)
        ds, facts = gtiff(order.get("oracle", order["path"]), level), raster.info(level)
        x, y = rng.randrange(facts.width), rng.randrange(facts.height)
        where = x, y, rng.randint(1, min(300, facts.width - x)), rng.randint(1, min(200, facts.height - y))
        bands = [rng.randint(1, facts.bands) for _ in range(rng.randint(1, facts.bands + 1))]
        if rng.random() < 0.5:
            bands = list(range(1, facts.bands + 1))
        data = pixels(ds, where, bands)
        count, offset, strides = layout(rng, data.shape, data.itemsize)
        stream = rng.choice(streams)
        memory, copy = cuda.allocate(count), cuda.allocate(count)
        want = expected(data, count, offset, strides)
        # Only where pixels will be: what is between them must stay.
        first = offset + sum(min(0, s * (k - 1)) for s, k in zip(strides, data.shape[::-1]))
        cuda.memset(memory + first, 1, EARLIER, stream)
        chosen = capi.selection(bands, level)
        into = device_buffer(memory, count, offset, strides, 0, stream)
        result = raster.result("read", capi.window(*where), byref(chosen), byref(into))
        cuda.copy(copy, memory, count, stream)
        cuda.ok("cuStreamSynchronize", c_void_p(stream))
        got = cuda.get(copy, count)
        if result != 0 or (got != want).any():
            wrong.append([n, result, library.message(), where, bands, level, strides, int((got != want).sum())])
        cuda.free(memory)
        cuda.free(copy)
    counters = raster.counters()
    raster.free()
    return {"same": not wrong, "wrong": wrong[:3], "counters": counters}


def queued(order):
    """One window after the other of several rasters, each to its own memory on one of two streams, and
    nobody waits for any of them before all were asked for."""
    cuda, library, rng = Cuda(), capi.Library(capi.PLUGIN_PATH), random.Random(order["seed"])
    rasters = [(library.open(path), gtiff(path)) for path in order["paths"]]
    streams, asked, pending = [cuda.stream(), cuda.stream()], [], 0
    for n in range(order["count"]):
        raster, ds = rng.choice(rasters)
        facts = raster.info()
        x, y = rng.randrange(facts.width // 2), rng.randrange(facts.height // 2)
        where = x, y, rng.randint(100, facts.width - x), rng.randint(100, facts.height - y)
        data, stream = pixels(ds, where, range(1, facts.bands + 1)), rng.choice(streams)
        # All of it before the first read: allocating waits for the device.
        memory, copy = cuda.allocate(data.nbytes), cuda.allocate(data.nbytes)
        asked.append((raster, where, data, stream, memory, copy))
    for raster, where, data, stream, memory, copy in asked:
        raster.call("read", capi.window(*where), None, byref(device_buffer(memory, data.nbytes, stream=stream)))
        pending += cuda.dll.cuStreamQuery(c_void_p(stream)) == NOT_READY
        cuda.copy(copy, memory, data.nbytes, stream)
    for stream in streams:
        cuda.ok("cuStreamSynchronize", c_void_p(stream))
    same = [bytes(cuda.get(copy, data.nbytes)) == data.tobytes() for *_, data, _, _, copy in asked]
    return {"same": all(same), "wrong": same, "pending": pending,
            "batches": sum(int(raster.counters()["CUDA_BATCHES"]) for raster, _ in rasters)}  # fmt: skip


def at_once(order):
    """Threads with streams of their own, the thread's default among them, on rasters that all share; each
    has work of its own before and after, and waits for its stream alone."""
    cuda, library = Cuda(), capi.Library(capi.PLUGIN_PATH)
    rasters = [(library.open(path), path) for path in order["paths"]]
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        cuda.enter()
        streams = [2, cuda.stream(), cuda.stream(0)]
        for _ in range(order["count"]):
            raster, path = rng.choice(rasters)
            facts, stream = raster.info(), rng.choice(streams)
            x, y = rng.randrange(facts.width // 2), rng.randrange(facts.height // 2)
            where = x, y, rng.randint(20, facts.width - x), rng.randint(20, facts.height - y)
            data = pixels(gtiff(path), where, range(1, facts.bands + 1))
            memory, copy = cuda.allocate(data.nbytes), cuda.allocate(data.nbytes)
            cuda.memset(memory, data.nbytes, EARLIER, stream)
            into = device_buffer(memory, data.nbytes, stream=stream)
            result = raster.result("read", capi.window(*where), None, byref(into))
            cuda.copy(copy, memory, data.nbytes, stream)
            cuda.ok("cuStreamSynchronize", c_void_p(stream))
            if result or bytes(cuda.get(copy, data.nbytes)) != data.tobytes():
                wrong.append([seed, result, path, where, stream])
            cuda.free(memory)
            cuda.free(copy)

    threads = [threading.Thread(target=work, args=(order["seed"] + n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    decoded = sum(int(raster.counters()["CUDA_TILES_DECODED"]) for raster, _ in rasters)
    return {"same": not wrong, "wrong": wrong[:3], "decoded": decoded}


def batches(order):
    """A raster batch by batch into one buffer of the device's, in its own type and in another."""
    cuda, library, same = Cuda(), capi.Library(capi.PLUGIN_PATH), []
    raster, ds = library.open(order["path"]), gtiff(order["path"])
    facts, stream = raster.info(), cuda.stream()
    for kind, dtype in ((0, None), (capi.constants()["TYPE_F64"], np.float64)):
        walk, where = raster.batches(capi.selection(None, 0, kind), 1), capi.Window()
        walk.call("largest", byref(where))
        data = pixels(ds, (0, 0, facts.width, facts.height), range(1, facts.bands + 1))
        data = data if dtype is None else data.astype(dtype)
        room = facts.bands * where.width * where.height * data.itemsize
        memory, rows = cuda.allocate(room), 0
        while where := walk.next():
            part = np.ascontiguousarray(data[:, where.y : where.y + where.height])
            walk.call("read", byref(where), byref(device_buffer(memory, part.nbytes, stream=stream)))
            cuda.ok("cuStreamSynchronize", c_void_p(stream))
            same.append(bytes(cuda.get(memory, part.nbytes)) == part.tobytes())
            rows += where.height
        same.append(rows == facts.height)
        walk.free()
    return {"same": all(same), "batches": len(same) - 2, "counters": raster.counters()}


def facts(order):
    """What the library says of the driver, the devices and nvCOMP."""
    library, told = capi.Library(capi.PLUGIN_PATH), []
    count = library.ask("device_count")
    for device in range(count):
        found = capi.DeviceFacts(ctypes.sizeof(capi.DeviceFacts))
        library.call("device_info", device, byref(found))
        told.append([found.name.decode(), found.compute_major, found.compute_minor, found.multiprocessors, found.is_usable])
    return {"same": True, "devices": told, "cuda": library.ask("cuda_version"), "nvcomp": library.ask("nvcomp_version")}


def structure(order):
    """One large window, and the report before anybody brings the pixels down."""
    cuda, library = Cuda(), capi.Library(capi.PLUGIN_PATH)
    raster, ds = library.open(order["path"], order.get("options", ())), gtiff(order["path"])
    facts = raster.info()
    data = pixels(ds, (0, 0, facts.width, facts.height), range(1, facts.bands + 1))
    memory = cuda.allocate(data.nbytes)
    small = device_buffer(cuda.allocate(1 << 20), 1 << 20)
    warm = library.open(order["warm"])
    warm.call("read", capi.window(0, 0, 16, 16), None, byref(small))
    warm.free()
    cuda.dll.emucudaReset()
    raster.call("read", None, None, byref(device_buffer(memory, data.nbytes)))
    cuda.dll.emucudaReport()
    with open(os.environ["EMUCUDA_REPORT"]) as file:
        report = json.load(file)
    same = bytes(cuda.get(memory, data.nbytes)) == data.tobytes()
    moved = {kind: sum(op["bytes"] for op in report["timeline"] if op["kind"] == kind) for kind in ("H2D", "D2H")}
    return {"same": same, "counters": raster.counters(), "moved": moved, "allocations": sum(a["call"] > 0 for a in report["allocations"])}


def tensors(order):
    """Device tensors, freed on other threads, after their raster."""
    cuda, library = Cuda(), capi.Library(capi.PLUGIN_PATH)
    raster, ds = library.open(order["path"], order.get("options", ())), gtiff(order["path"])
    facts = raster.info()
    where = 0, 0, facts.width, facts.height
    data = pixels(ds, where, range(1, facts.bands + 1))
    cuda.dll.emucudaReset()
    made = [raster.tensor(device=0, versioned=versioned) for versioned in (True, False, True)]
    raster.free()
    same, aligned = True, True
    for tensor in made:
        dl = tensor.contents.dl_tensor
        same &= (dl.device_type, dl.device_id, list(dl.shape[:3])) == (2, 0, list(data.shape))
        aligned &= dl.data % 256 == 0
        same &= bytes(cuda.get(dl.data, data.nbytes)) == data.tobytes()

    def delete(tensor):
        tensor.contents.deleter(ctypes.cast(tensor, c_void_p))

    workers = [threading.Thread(target=delete, args=(tensor,)) for tensor in made]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    cuda.dll.emucudaReport()
    return {"same": same, "aligned": aligned, "bytes": data.nbytes}


def deleted(order):
    """The first call of a tensor's deleter fails, and passes."""
    cuda, library = Cuda(), capi.Library(capi.PLUGIN_PATH)
    raster = library.open(order["path"], order.get("options", ()))
    tensor, facts = raster.tensor(device=0), raster.info()
    raster.free()
    cuda.dll.emucudaSet(b"FAIL", b"1:999")
    cuda.dll.emucudaReset()
    tensor.contents.deleter(ctypes.cast(tensor, c_void_p))
    return {"same": True, "bytes": facts.width * facts.height * facts.bands * order["sample"]}


def misuse(order):
    """Every wrong pointer and stream: a code, a sentence, and nothing written."""
    here, there, library = Cuda(0), Cuda(1), capi.Library(capi.PLUGIN_PATH)
    far = there.allocate(1 << 16)
    far_stream = there.stream()
    own = c_void_p()
    here.ok("cuCtxCreate_v2", byref(own), 0, 0)
    apart = here.allocate(1 << 16)
    apart_stream = here.stream()
    here.enter()
    near, host, pinned = here.allocate(1 << 16), np.full(1 << 16, GUARD, np.uint8), here.pinned(1 << 16)
    pinned[:] = GUARD
    raster = library.open(order["path"], order.get("options", ()))
    cases = {
        "host memory said to be the device's": (device_buffer(host.ctypes.data, 1 << 16), capi.WRONG_MEMORY),
        "pinned memory said to be the device's": (device_buffer(pinned.ctypes.data, 1 << 16), capi.WRONG_MEMORY),
        "device memory said to be the host's": (capi.Buffer(ctypes.sizeof(capi.Buffer), near, 1 << 16, 0, 0, 0, 0, 0, 0, None), capi.WRONG_MEMORY),
        "memory of another device": (device_buffer(far, 1 << 16), capi.WRONG_DEVICE),
        "memory of another context": (device_buffer(apart, 1 << 16), capi.WRONG_DEVICE),
        "a stream of another device": (device_buffer(near, 1 << 16, stream=far_stream), capi.WRONG_DEVICE),
        "a stream of another context": (device_buffer(near, 1 << 16, stream=apart_stream), capi.WRONG_DEVICE),
        "no such device": (device_buffer(near, 1 << 16, device=7), capi.NO_DEVICE),
        "a negative device": (device_buffer(near, 1 << 16, device=-1), capi.BAD_ARGUMENT),
        "strides outside": (device_buffer(near, 100), capi.BAD_STRIDE),
    }
    wrong = {}
    capturing = here.stream()
    here.ok("cuStreamBeginCapture_v2", c_void_p(capturing), 0)
    cases["a stream that records a graph"] = device_buffer(near, 1 << 16, stream=capturing), capi.BAD_ARGUMENT
    for name, (into, code) in cases.items():
        result = raster.result("read", capi.window(0, 0, 16, 16), None, byref(into))
        if result != code or not library.message():
            wrong[name] = [result, library.message()]
    there.enter()
    result = raster.result("read", capi.window(0, 0, 16, 16), None, byref(device_buffer(near, 1 << 16)))
    if result != capi.WRONG_DEVICE:
        wrong["the default stream of another context"] = [result, library.message()]
    current = c_void_p()
    here.ok("cuCtxGetCurrent", byref(current))
    kept = current.value == there.context.value
    here.enter()
    untouched = (host == GUARD).all() and (pinned == GUARD).all() and (here.get(near, 1 << 16) == GUARD).all()
    there.enter()
    untouched = untouched and (there.get(far, 1 << 16) == GUARD).all()
    return {"same": not wrong and bool(untouched) and kept, "wrong": wrong, "untouched": bool(untouched), "kept": kept}


def write(order):
    """Device windows in any order, in any layout, that the stream has still to fill when they are passed."""
    cuda, library, rng = Cuda(), capi.Library(capi.PLUGIN_PATH), random.Random(order["seed"])
    data = pixels(gtiff(order["path"]), (0, 0, 300, 200), [1, 2, 3])
    spec = capi.spec(300, 200, 3, capi.OUR_TYPE[gdal.OpenEx(order["path"]).GetRasterBand(1).DataType],
                     options=["COMPRESS=DEFLATE", "BLOCKXSIZE=64", "BLOCKYSIZE=64"])  # fmt: skip
    writer = library.create(order["target"], spec)
    places = [(x, y) for x in range(0, 300, 60) for y in range(0, 200, 50)]
    rng.shuffle(places)
    for x, y in places:
        part = data[:, y : y + 50, x : x + 60]
        count, offset, strides = layout(rng, part.shape, part.itemsize)
        memory, ready, stream = cuda.allocate(count), cuda.allocate(count), cuda.stream()
        cuda.put(ready, expected(part, count, offset, strides))
        cuda.copy(memory, ready, count, stream)
        source = device_buffer(memory, count, offset, strides, 0, stream)
        writer.call("write", capi.window(x, y, 60, 50), None, byref(source))
        cuda.free(memory)
        cuda.free(ready)
    writer.call("finish")
    writer.free()
    return {"same": bool((pixels(gtiff(order["target"]), (0, 0, 300, 200), [1, 2, 3]) == data).all())}


def lost(order):
    """The device is lost while a tensor is alive: its deleter is quiet, and so is all that is asked later."""
    cuda, library = Cuda(), capi.Library(capi.PLUGIN_PATH)
    raster = library.open(order["path"], order.get("options", ()))
    tensor, versions = raster.tensor(device=0), [library.ask("cuda_version"), library.ask("nvcomp_version")]
    cuda.dll.emucudaSet(b"FAIL", b"1:700")
    cuda.dll.emucudaReset()
    into = device_buffer(cuda_address := tensor.contents.dl_tensor.data, 1 << 16)
    result = raster.result("read", capi.window(0, 0, 16, 16), None, byref(into))
    text, results, out = library.message(), [result], c_void_p()
    for later in (raster, library.open(order["path"], order.get("options", ()))):
        results.append(later.result("read", capi.window(0, 0, 16, 16), None, byref(into)))
        results.append(later.result("read_tensor", None, None, 0, byref(out)))
        results.append(later.result("read_tensor_unversioned", None, None, 0, byref(out)))
    facts = capi.DeviceFacts(ctypes.sizeof(capi.DeviceFacts))
    device = [library.ask("device_count"), library.result("device_info", 0, byref(facts)), library.message()]
    known = versions == [library.ask("cuda_version"), library.ask("nvcomp_version")] and 0 not in versions
    tensor.contents.deleter(ctypes.cast(tensor, c_void_p))
    host = np.zeros((1, 16, 16), np.uint8)
    raster.read((0, 0, 16, 16), host, capi.selection([1]))
    same = (host == pixels(gtiff(order["path"]), (0, 0, 16, 16), [1])).all()
    raster.free()
    return {"same": bool(same) and known, "results": results, "device": device, "text": text, "address": cuda_address}


def doubt(order):
    """A question about the batch before fails, which says nothing of the device."""
    cuda, library, same = Cuda(), capi.Library(capi.PLUGIN_PATH), True
    raster, ds = library.open(order["path"]), gtiff(order["path"])
    data = pixels(ds, (0, 0, 200, 200), range(1, raster.info().bands + 1))
    memory, stream = cuda.allocate(data.nbytes), cuda.stream()
    for n in range(3):
        if n == 1:
            cuda.dll.emucudaSet(b"FAIL", b"cuEventQuery:999")
        raster.call("read", capi.window(0, 0, 200, 200), None, byref(device_buffer(memory, data.nbytes, stream=stream)))
        cuda.ok("cuStreamSynchronize", c_void_p(stream))
        same &= bytes(cuda.get(memory, data.nbytes)) == data.tobytes()
    return {"same": same, "counters": raster.counters()}


def starting(order):
    """CUDA takes its time to start, for a raster that AUTO finds large or for a tensor: nobody else is held up."""
    library, driver = capi.Library(capi.PLUGIN_PATH), ctypes.CDLL("libcuda.so.1")
    is_starting = lambda: driver.cuDeviceGetCount(byref(ctypes.c_int())) == NOT_INITIALIZED  # noqa: E731
    raster = library.open(order.get("large", order["path"]))
    others = [raster, library.open(order["path"], ["ENGINE=CPU"])]
    if "large" in order:
        raster.read((0, 0, 16384, 256), np.zeros((256, 16384), np.uint8))
    else:
        threading.Thread(target=lambda: raster.tensor((0, 0, 16, 16), device=0)).start()
    time.sleep(0.2)
    held_up = [] if is_starting() else ["too late"]
    for n, other in enumerate(others):
        other.read((0, 0, 16, 16), np.zeros((other.info().bands, 16, 16), np.uint8))
        held_up += [] if is_starting() else ["read %d" % n]
        other.counters()
        held_up += [] if is_starting() else ["counters %d" % n]
    while is_starting():
        time.sleep(0.05)
    return {"same": not held_up, "held_up": held_up}


WORK = {"windows": windows, "queued": queued, "at_once": at_once, "batches": batches, "facts": facts, "structure": structure, "tensors": tensors, "deleted": deleted, "misuse": misuse, "write": write, "lost": lost, "starting": starting, "doubt": doubt}

if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    print(json.dumps(WORK[order["do"]](order), default=str), flush=True)
