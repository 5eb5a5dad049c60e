"""Writing that goes wrong on purpose: builds sinkfault.c and lets sink_worker.py run jobs under it."""

import errno
import json
import os
import subprocess
import sys

import harness
import written

SOURCE = os.path.join(harness.HERE, "sinkfault.c")
WORKER = os.path.join(harness.HERE, "sink_worker.py")
ALL, TARGET, BESIDE = 0, 1, 2  # which files of the folder count
ENOSPC, EIO = errno.ENOSPC, errno.EIO

# Copies from a TIFF: (source has a mask, options, configuration). The tiles of the source go over as they are, or each
# is decoded and encoded by itself; its mask goes into the file or beside it.
ALIKE = dict(TILED="YES", INTERLEAVE="PIXEL", BLOCKXSIZE=128, BLOCKYSIZE=128, PHOTOMETRIC="MINISBLACK")
COPIES = {
    "copied": (False, dict(ALIKE, COMPRESS="LZW", BATCH_MB=1), {}),
    "recoded": (False, dict(ALIKE, COMPRESS="ZSTD", BATCH_MB=1), {}),
    "mask inside": (True, dict(ALIKE, COMPRESS="LZW", BATCH_MB=1), {"GDAL_TIFF_INTERNAL_MASK": "YES"}),
    "mask beside": (True, dict(ALIKE, COMPRESS="LZW", BATCH_MB=1, TFW="YES"), {"GDAL_TIFF_INTERNAL_MASK": "NO"}),
}


def copy_source(folder, masked):
    """What COPIES are made from."""
    make = written.masked_source if masked else written.noise_source
    return make(os.path.join(str(folder), "s.tif"), 700, 600, 3, **dict(ALIKE, COMPRESS="LZW"))


def check_way(name, whole):
    """That a copy went the way that it is named after: all of its tiles."""
    tiles = {"copied": whole["tiles"], "recoded": 0}
    if name == "recoded":
        tiles = {"copied": 0, "recoded": whole["tiles"]}
    assert whole["tiles"] == 30 and {k: whole[k] for k in tiles} == tiles, whole
    assert ("out.tif.msk" in whole["left"]) == (name == "mask beside"), whole


def build(folder):
    """-> path of the library to preload."""
    out = os.path.join(str(folder), "sinkfault.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", out, SOURCE, "-ldl"], check=True)
    return out


def env(library, target, **settings):
    """The environment that puts a process under the library: FAIL, ERRNO, STICKY, KILL, FLUSH, HOLES, LOSE, LOG, ONLY."""
    out = {"LD_PRELOAD": library, "SINKFAULT_DIR": os.path.dirname(str(target)), "SINKFAULT_TARGET": str(target)}
    return {**out, **{"SINKFAULT_" + k: str(v) for k, v in settings.items()}}


def job(way, **fault):
    """One write: way is a key of sink_worker.WAYS; without a fault it counts."""
    return dict(dict(way=way, only=ALL, fail=0, error=0, sticky=0, kill=0, flush=1), **fault)


class Worker:
    """Runs jobs, each in a forked process, and looks at what they leave. One source, one target, one driver."""

    def __init__(self, library, folder, source, driver, options, config=None):
        self.target = os.path.join(str(folder), "out.tif")
        setting = dict(source=str(source), target=self.target, driver=driver, options=options, library=library,
                       log=str(folder) + ".log",
                       counters=dict(copied=written.COPIED, recoded=written.RECODED))  # fmt: skip
        full = dict(os.environ, LD_PRELOAD=library, PYTHONPATH=harness.HERE, GDAL_CACHEMAX="16", **(config or {}))
        self.process = subprocess.Popen(
            [sys.executable, WORKER, json.dumps(setting)], env=full, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)  # fmt: skip

    def run(self, **wanted):
        """-> what sink_worker says of it: code, signal, errors, calls, bytes, faults, copied, recoded, tiles, log, left,
        opens, right."""
        self.process.stdin.write(json.dumps(job(**wanted)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the worker died: %s" % self.process.stderr.read()[-2000:]
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close(), self.process.stderr.close()
