"""Runs cases that are short of memory, each in a forked child of its own with a limit on its address space, several
at once. memory_worker.py FOLDER DRIVER ABREAST SECONDS reads cases (JSON) from standard input and prints one line of
JSON for each: how the child ended, what it raised, and the end of what it wrote to standard error.

A case is [kind, codec, seed, bytes]: what is done, the compression, and how much address space the child may take
beyond what it has when it begins."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import harness
import numpy as np
from osgeo import gdal

SHAPE, TILE = (3, 1500, 2000), 256
OPTIONS = {
    "DEFLATE": ["COMPRESS=DEFLATE", "PREDICTOR=2"],
    "ZSTD": ["COMPRESS=ZSTD"],
    "LZW": ["COMPRESS=LZW", "PREDICTOR=2"],
    "PACKBITS": ["COMPRESS=PACKBITS"],
    "NONE": ["COMPRESS=NONE"],
}
TILED = ["TILED=YES", "BLOCKXSIZE=%d" % TILE, "BLOCKYSIZE=%d" % TILE]
OURS = ["BATCH_MB=32", "NUM_THREADS=2"]


def pixels():
    """Pictures with some noise: they compress, but not to nothing."""
    draw = np.random.default_rng(7)
    y, x = np.mgrid[0 : SHAPE[1], 0 : SHAPE[2]]
    slopes = [(x * (band + 2) + y * 3).astype(np.uint16) for band in range(SHAPE[0])]
    return np.stack(slopes) + draw.integers(0, 64, SHAPE, dtype=np.uint16)


class Bench:
    """What all cases share, made before the first fork, without a thread."""

    def __init__(self, folder, driver):
        self.folder, self.driver, self.pixels = folder, gdal.GetDriverByName(driver), pixels()
        self.ours = driver != "GTiff"
        bands, h, w = SHAPE
        self.mem = gdal.GetDriverByName("MEM").Create("", w, h, bands, gdal.GDT_UInt16)
        self.mem.WriteRaster(0, 0, w, h, self.pixels.tobytes(), buf_type=gdal.GDT_UInt16)
        for codec, options in OPTIONS.items():
            gdal.GetDriverByName("GTiff").CreateCopy(self.source(codec), self.mem, options=options + TILED)
        self.into = np.zeros(SHAPE, np.uint16)
        self.into.fill(1)
        if self.ours:
            import capi

            self.capi, self.library = capi, capi.Library(capi.PLUGIN_PATH)

    def source(self, codec):
        return os.path.join(self.folder, "%s.tif" % codec)

    def open(self, path):
        options = OURS if self.ours else []
        return gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=[self.driver.ShortName], open_options=options)

    def options(self, codec):
        return OPTIONS[codec] + TILED + (OURS if self.ours else [])

    # Each returns whether it claims success; a failure was raised as an error of GDAL's or an exception.

    def read(self, codec, seed, path):
        ds = self.open(self.source(codec))
        return ds is not None and ds.ReadAsArray(buf_obj=self.into) is not None

    def rows(self, codec, seed, path):
        ds = self.open(self.source(codec))
        if ds is None:
            return False
        step = 1 + seed % 60
        for y in range(0, SHAPE[1], step):
            some = min(step, SHAPE[1] - y)
            if ds.ReadAsArray(0, y, SHAPE[2], some, buf_obj=self.into[:, y : y + some]) is None:
                return False
        return True

    def create(self, codec, seed, path):
        bands, h, w = SHAPE
        ds = self.driver.Create(path, w, h, bands, gdal.GDT_UInt16, self.options(codec))
        if ds is None:
            return False
        step = [h, 256, 100, 7][seed % 4]
        for y in range(0, h, step):
            some = min(step, h - y)
            if ds.WriteArray(self.pixels[:, y : y + some], 0, y) != 0:
                return False
        return True

    def copy(self, codec, seed, path):
        return self.driver.CreateCopy(path, self.mem, options=self.options(codec)) is not None

    def recode(self, codec, seed, path):
        source = self.open(self.source(list(OPTIONS)[seed % len(OPTIONS)]))
        return source is not None and self.driver.CreateCopy(path, source, options=self.options(codec)) is not None

    def capi_read(self, codec, seed, path):
        with self.library.open(self.source(codec), OURS) as raster:
            raster.read(None, self.into)
        return True

    def capi_write(self, codec, seed, path):
        bands, h, w = SHAPE
        spec = self.capi.spec(w, h, bands, self.capi.TYPE_U16, options=self.options(codec))
        with self.library.create(path, spec) as writer:
            step = [h, 256, 100][seed % 3]
            for y in range(0, h, step):
                some = min(step, h - y)
                part = np.frombuffer(self.pixels, np.uint16).reshape(SHAPE)[:, y : y + some]
                strides = (2, 2 * w, 2 * w * h)
                writer.call("write", self.capi.window(0, y, w, some), None,
                            self.capi.byref(self.capi.Buffer(self.capi.ctypes.sizeof(self.capi.Buffer), part.ctypes.data,
                                                             (bands - 1) * strides[2] + some * strides[1], 0, *strides,
                                                             0, 0, None)))  # fmt: skip
            writer.call("finish")
        return True


READS = ("read", "rows", "capi_read")


def judge(bench, kind, path, done, errors):
    """-> how it ended, after the limit is gone."""
    if errors:
        # Create()'s file exists from the start; the others leave none behind.
        gone = kind in READS or kind == "create" or not os.path.exists(path)
        return "error" if gone else "left behind"
    if not done:
        return "silent"
    if kind in READS:
        return "right" if np.array_equal(bench.into, bench.pixels) else "wrong"
    ds = gdal.OpenEx(path, allowed_drivers=["GTiff"])
    return "right" if ds is not None and np.array_equal(ds.ReadAsArray(), bench.pixels) else "wrong"


def child(bench, case, path):
    kind, codec, seed, room = case
    errors = []
    gdal.PushErrorHandler(lambda cls, no, text: errors.append(text) if cls >= gdal.CE_Failure else None)
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + room, unlimited[1]))
    done = False
    try:
        done = getattr(bench, kind)(codec, seed, path)
    except Exception as e:  # MemoryError of Python's, RuntimeError, the C API's Failure
        errors.append("%s: %s" % (type(e).__name__, e))
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    gdal.PopErrorHandler()
    return judge(bench, kind, path, done, errors), errors[:3]


def start(bench, number, case):
    path = os.path.join(bench.folder, "%d.tif" % number)
    said = os.path.join(bench.folder, "%d.txt" % number)
    pid = os.fork()
    if pid == 0:
        try:
            fd = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(fd, 2)
            answer = json.dumps(child(bench, case, path))
            os.write(2, b"\nANSWER " + answer.encode())
            sys.stderr.flush()
            os._exit(0)
        except BaseException as e:
            os.write(2, ("\nWORKER %r" % e).encode())
            os._exit(99)
    return {"pid": pid, "case": case, "path": path, "said": said, "since": time.monotonic()}


def stacks(pid):
    """Where the threads of a process that hangs are."""
    try:
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"], capture_output=True,
                              text=True, timeout=60)  # fmt: skip
        return [line for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))]
    except (OSError, subprocess.TimeoutExpired):
        return []


def finish(run, status, hung=None):
    with open(run["said"], errors="replace") as f:
        said, _, answer = f.read().partition("\nANSWER ")
    os.unlink(run["said"])
    if os.path.exists(run["path"]):
        os.unlink(run["path"])
    if hung is not None:
        end, errors = "hang", hung
    elif os.WIFSIGNALED(status):
        end, errors = "signal %d" % os.WTERMSIG(status), []
    elif os.WEXITSTATUS(status):
        end, errors = "exit %d" % os.WEXITSTATUS(status), []
    else:
        end, errors = json.loads(answer)
    print(json.dumps([run["case"], end, errors, said[-600:]]), flush=True)


def main(folder, driver, abreast, seconds):
    gdal.SetConfigOption("GDAL_PAM_ENABLED", "NO")
    gdal.SetCacheMax(32 << 20)
    bench = Bench(folder, driver)
    todo, runs = list(enumerate(json.load(sys.stdin)))[::-1], []
    while todo or runs:
        while todo and len(runs) < abreast:
            runs.append(start(bench, *todo.pop()))
        for run in list(runs):
            pid, status = os.waitpid(run["pid"], os.WNOHANG)
            hung = None
            if pid == 0 and time.monotonic() - run["since"] > seconds:
                hung = stacks(run["pid"])
                os.kill(run["pid"], signal.SIGKILL)
                pid, status = os.waitpid(run["pid"], 0)
            if pid:
                runs.remove(run)
                finish(run, status, hung)
        time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
