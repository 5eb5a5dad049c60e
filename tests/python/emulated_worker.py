"""One process with the emulated driver in libcuda's place: does what its argument (JSON) says, and
prints one line of JSON: whether the pixels are GTiff's, counters, messages.

    do: read | write | windows | fork | contexts | threads | open | exit
    path, target, options, reset (forget what the emulator has seen before the real work)
"""

import ctypes
import hashlib
import json
import os
import random
import sys
import threading

import harness  # noqa: F401  (sets GDAL_DRIVER_PATH before osgeo)
from osgeo import gdal

gdal.DontUseExceptions()
messages = []
gdal.PushErrorHandler(lambda cls, no, text: messages.append([cls, no, text]))


def emulator():
    return ctypes.CDLL("libcuda.so.1")


def counters(ds):
    return ds.GetMetadata("GPUGTIFF") or {}


def open_ours(path, options=()):
    return gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=["GPUGTiff"], open_options=list(options))


def open_gtiff(path):
    return gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=["GTiff"])


def digest(ds, rows=1024):
    """Of all pixels, read in slices."""
    sha = hashlib.sha256()
    for y in range(0, ds.RasterYSize, rows):
        data = ds.ReadRaster(0, y, ds.RasterXSize, min(rows, ds.RasterYSize - y))
        if data is None:
            return None
        sha.update(data)
    return sha.hexdigest()


def whole(ds):
    data = ds.ReadRaster()
    return None if data is None else hashlib.sha256(data).hexdigest()


def warm(order):
    """Starts CUDA and forgets that it was started."""
    if order.get("reset"):
        small = open_ours(order["reset"])
        whole(small)
        del small
        emulator().emucudaReset()


def read(order):
    warm(order)
    ours = open_ours(order["path"], order.get("options", ()))
    if ours is None:
        return {"same": False}
    got = whole(ours)
    expected = order.get("expected") or whole(open_gtiff(order.get("oracle", order["path"])))
    return {"same": got == expected, "read": got is not None, "counters": counters(ours)}


def windows(order):
    ours, theirs = open_ours(order["path"], order.get("options", ())), open_gtiff(order["path"])
    rng, same = random.Random(order.get("seed", 0)), True
    for _ in range(order.get("count", 20)):
        x, y = rng.randrange(ours.RasterXSize), rng.randrange(ours.RasterYSize)
        w, h = rng.randint(1, ours.RasterXSize - x), rng.randint(1, ours.RasterYSize - y)
        same &= ours.ReadRaster(x, y, w, h) == theirs.ReadRaster(x, y, w, h)
    return {"same": same, "counters": counters(ours)}


def write(order):
    warm(order)
    source = open_gtiff(order["path"])
    made = gdal.GetDriverByName("GPUGTiff").CreateCopy(order["target"], source, options=order.get("options", []))
    if made is None:
        return {"same": False, "made": False}
    found = counters(made)
    made.FlushCache()
    del made
    same = digest(open_gtiff(order["target"])) == (order.get("expected") or digest(source))
    with open(order["target"], "rb") as file:
        sha = hashlib.sha256(file.read()).hexdigest()
    return {"same": same, "made": True, "counters": found, "sha": sha, "bytes": os.path.getsize(order["target"])}


def fork(order):
    """The parent reads, forks, the child reads on: an inherited dataset, a new one, a demanded one."""
    ours = open_ours(order["path"])
    expected = whole(open_gtiff(order.get("oracle", order["path"])))
    same = whole(ours) == expected
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = {"inherited": whole(ours) == expected}
        gdal.SetConfigOption("GPUGTIFF_ENGINE", "AUTO")
        gdal.SetConfigOption("GPUGTIFF_GDS", "AUTO")
        answer["auto"] = whole(open_ours(order["path"])) == expected
        gdal.SetConfigOption("GPUGTIFF_GDS", None)
        gdal.SetConfigOption("GPUGTIFF_ENGINE", "CUDA")
        del messages[:]
        answer["demanded"] = open_ours(order["path"]) is not None
        answer["messages"] = [text for _, _, text in messages]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = json.loads(pipe.read() or "{}")
    _, status = os.waitpid(child, 0)
    same &= whole(open_ours(order["path"])) == expected
    return {"same": same, "child": answer, "child_status": status, "counters": counters(ours)}


def contexts(order):
    """The caller has a context of its own current, on another device: it is current afterwards too."""
    cuda = emulator()
    context, current = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    same, kept = True, True
    expected = whole(open_gtiff(order.get("oracle", order["path"])))

    def once(own):
        nonlocal same, kept
        cuda.cuCtxSetCurrent(context if own else None)
        ours = open_ours(order["path"], order.get("options", ()))
        same &= whole(ours) == expected
        del ours
        cuda.cuCtxGetCurrent(ctypes.byref(current))
        kept &= current.value == (context.value if own else None)

    for own in (True, False):
        once(own)
        thread = threading.Thread(target=once, args=(own,))
        thread.start()
        thread.join()
    ours = open_ours(order["path"], order.get("options", ()))
    whole(ours)
    return {"same": same, "kept": kept, "counters": counters(ours)}


def threads(order):
    expected = whole(open_gtiff(order.get("oracle", order["path"])))
    results = []

    def once():
        for _ in range(order.get("rounds", 3)):
            results.append(whole(open_ours(order["path"])) == expected)

    workers = [threading.Thread(target=once) for _ in range(order.get("count", 6))]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    ours = open_ours(order["path"])
    whole(ours)
    return {"same": all(results), "reads": len(results), "counters": counters(ours)}


def only_open(order):
    ours = [open_ours(order["path"], order.get("options", ())) for _ in range(order.get("count", 1))]
    found = counters(ours[0]) if ours[0] is not None else {}
    return {"same": ours[0] is not None, "counters": found}


def many(order):
    """Many datasets open at once, all of them read."""
    expected = whole(open_gtiff(order.get("oracle", order["path"])))
    datasets = [open_ours(order["path"]) for _ in range(order["count"])]
    same = all(whole(ds) == expected for ds in datasets)
    return {"same": same, "counters": counters(datasets[-1])}


def leave(order):
    """Exits with datasets open, one of them in the middle of being written."""
    global kept
    source = open_ours(order["path"])
    same = whole(source) == whole(open_gtiff(order.get("oracle", order["path"])))
    target = gdal.GetDriverByName("GPUGTiff").Create(order["target"], 512, 512, 1, gdal.GDT_Byte)
    target.GetRasterBand(1).Fill(7)
    kept = [source, target]
    return {"same": same, "counters": counters(source)}


WORK = {"read": read, "windows": windows, "write": write, "fork": fork, "contexts": contexts,
        "threads": threads, "open": only_open, "many": many, "exit": leave}  # fmt: skip

if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    answer = WORK[order["do"]](order)
    answer["messages"] = messages
    print(json.dumps(answer), flush=True)
    if order.get("report"):
        emulator().emucudaReport()
