"""Worker processes, and the verdict on a case: ours against GTiff without threads.

Two GTiff processes, whose fresh memory is filled differently and that read blocks in opposite order,
are asked. A block on which they disagree holds memory that GTiff never set, and is not compared; nor are
larger requests of that file. Before a difference is told, one of them reads every block once more, each
by a dataset of its own: what an earlier block left in GTiff's buffer may have been the same both ways."""

import json
import os
import select
import subprocess
import sys
import time

import mutate
import paths
import seeds
import sequences
from osgeo import gdal

# So long without an answer is a hang, unless the process was at work and got little of the processor.
TIMEOUT = float(os.environ.get("GPUGTIFF_FUZZ_TIMEOUT", "30"))
LONGEST = 10 * TIMEOUT
# A process that used less in that time waits for something.
STUCK = 0.1
# Memory beyond GTiff's × 1.5 + 64 MB is too much.
FACTOR, SLACK_KB = 1.5, 64 << 10
# Not under a sanitizer, which takes memory and time of its own.
MEASURED = "GPUGTIFF_FUZZ_NO_MEMORY" not in os.environ
OURS = {1, 5, 8, 32946, 32773, 50000}


class Worker:
    """A worker.py; started anew after it died."""

    def __init__(self, driver, perturb, environment=None):
        self.driver, self.perturb, self.process = driver, perturb, None
        self.environment = environment or {}

    def _start(self):
        env = {**os.environ, "MALLOC_PERTURB_": str(self.perturb), **self.environment}
        self.process = subprocess.Popen([sys.executable, "-B", os.path.join(paths.HERE, "worker.py")], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=open(self.log(), "wb"))  # fmt: skip
        self.pending = b""

    def log(self):
        os.makedirs(paths.WORK, exist_ok=True)
        return os.path.join(paths.WORK, "worker-%d-%s-%d.log" % (os.getpid(), self.driver, self.perturb))

    def send(self, ask):
        if self.process is None or self.process.poll() is not None:
            self.stop()
            self._start()
        self.start, self.used = time.time(), self._cpu()
        try:
            self.process.stdin.write(json.dumps(dict(ask, driver=self.driver)).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self):
        while b"\n" not in self.pending:
            before = self._cpu()
            if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
                waited, used = time.time() - self.start, self._cpu() - self.used
                if self._cpu() - before > STUCK and used < TIMEOUT and waited < LONGEST:
                    continue
                self.stop()
                return {"died": "hang: no answer in %d s, %.1f s of CPU" % (waited, used)}
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                code = self.process.wait()
                self.stop()
                return {"died": "crash: exit %d\n%s" % (code, self._said())}
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        answer = json.loads(line)
        # GDAL counts a block that it could not read as one in its cache, for ever. With the cache full of those, it
        # writes every block at once, and lossy codecs and late tags show that.
        if answer["cache_lost"]:
            self.stop()
        return answer

    def _cpu(self):
        """Seconds of the processor that the process has used."""
        with open("/proc/%d/stat" % self.process.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _said(self):
        with open(self.log(), errors="replace") as f:
            return f.read()[-6000:]

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def remove(self):
        self.stop()
        if os.path.exists(self.log()):
            os.remove(self.log())


class Judge:
    def __init__(self, folder, ours=None):
        """`ours`: variables of the process that has our driver, for a sanitizer."""
        self.folder, self.frames = folder, None
        self.ours = Worker("GPUGTiff", 85, ours)
        self.theirs = [Worker("GTiff", 85), Worker("GTiff", 170)]

    def stop(self):
        for worker in [self.ours, *self.theirs]:
            worker.remove()

    def _ask(self, ask, backward=True):
        workers = [self.ours, *self.theirs]
        for k, worker in enumerate(workers):
            worker.send(dict(ask, backward=backward and k == 2))
        return [worker.answer() for worker in workers]

    # ---- files --------------------------------------------------------------------------------

    def read(self, data, number):
        """-> None, or (class, text) of what is wrong with how the file is read."""
        path = os.path.join(self.folder, "case.tif")
        mutate.save(path, data)
        ask = {"do": "read", "path": path, "asks": number}
        ours, a, b = self._ask(ask)
        verdict = self._common(ours, a, b, ask)
        if verdict or "died" in a or "died" in b or "raised" in a:
            return verdict
        if ours.get("open") != a["open"]:
            return ("open", "open: %s, GTiff %s" % (ours.get("open"), a["open"]))
        if not a["open"]:
            return None
        if ours["size"] != a["size"]:
            return ("difference", "size %s, GTiff %s" % (ours["size"], a["size"]))
        lenient = self._has_unknown_frame(data)
        verdict = _parts(ours["parts"], [a["parts"], b["parts"]], lenient)
        if verdict is None:
            return None
        self.theirs[1].send(dict(ask, backward=False, fresh=True))
        fresh = self.theirs[1].answer()
        if "parts" not in fresh:
            return verdict
        if mutate.has_long_last_strip(data):
            _forget_last_blocks(fresh["parts"])
        return _parts(ours["parts"], [a["parts"], b["parts"], fresh["parts"]], lenient)

    def _has_unknown_frame(self, data):
        """Whether a ZSTD frame is not one of the seeds': of a damaged one without a checksum releases of libzstd
        make different pixels."""
        frames = mutate.zstd_frames(data)
        if frames and self.frames is None:
            self.frames = seeds.zstd_frames()
        return not frames <= (self.frames or set())

    # ---- sequences ----------------------------------------------------------------------------

    def write(self, case):
        """-> None, or (class, text) of what is wrong with a sequence of writes."""
        ask = {"do": "write", "folder": self.folder, "case": case}
        ours, a, b = self._ask(ask)
        verdict = self._common(ours, a, b, ask)
        if verdict or "died" in a or "died" in b or "raised" in a:
            return verdict
        if _steps(a) != _steps(b) or a["file"] != b["file"]:
            return None
        failed = [_failed(x) for x in (ours, a)]
        if failed == [False, True] and sequences.is_fill_refused(case):
            return None
        if failed[0] != failed[1]:
            text = "%s, GTiff %s" % tuple("an error" if f else "success" for f in failed)
            return ("error" if failed[0] else "success", "%s\n%s\n%s" % (text, _steps(ours), _steps(a)))
        if failed[1]:
            return None
        # A read of what GTiff lost, as below.
        steps = [x if _is_wrong(y) and not _is_wrong(x) else y for x, y in zip(_steps(ours), _steps(a))]
        if _steps(ours) != steps:
            return ("steps", "steps %s\nGTiff %s" % (_steps(ours), _steps(a)))
        if _right(ours) and not _right(a):
            # GTiff leaves out blocks of the nodata value (without one: zero), also of files that are not sparse
            # until they are closed; where the value has changed by then, these pixels are lost.
            _take_over_pixels(ours["file"], a["file"])
        text = _difference(ours["file"], a["file"])
        return ("difference", text) if text else None

    # ---- both ---------------------------------------------------------------------------------

    def _common(self, ours, a, b, ask):
        if "died" in ours:
            return None if "died" in a or "died" in b else self._death(ours["died"], ask)
        if "raised" in ours and "raised" not in a and "died" not in a:
            return ("raised", ours["raised"])
        if MEASURED and "died" not in a and ours["peak_kb"] > a["peak_kb"] * FACTOR + SLACK_KB:
            return self._memory(ask)
        if MEASURED and "died" not in a and ours["seconds"] > 5 + 20 * a["seconds"]:
            return self._time(ask)
        return None

    def _fresh(self, ask):
        out = []
        for worker in (self.ours, self.theirs[0]):
            worker.stop()
            worker.send(dict(ask, backward=False))
            out.append(worker.answer())
            worker.stop()
        return out

    def _death(self, text, ask):
        """Once more in fresh processes: an earlier case may have broken the heap, and what kills GTiff
        too is GTiff's, or the machine's."""
        kind = text.split(":")[0]
        ours, theirs = self._fresh(ask)
        if "died" in theirs:
            return None
        return (kind, ours["died"]) if "died" in ours else (kind + " later", "not by itself: " + text)

    def _memory(self, ask):
        """Once more, each in a fresh process: caches of earlier cases are not this one's."""
        ours, theirs = self._fresh(ask)
        if "died" in ours or "died" in theirs or ours["rss_kb"] <= theirs["rss_kb"] * FACTOR + SLACK_KB:
            return None
        return ("memory", "%d kB, GTiff %d kB" % (ours["rss_kb"], theirs["rss_kb"]))

    def _time(self, ask):
        ours, theirs = self._fresh(ask)
        if "died" in ours or "died" in theirs or ours["seconds"] <= 5 + 20 * theirs["seconds"]:
            return None
        return ("slow", "%.1f s, GTiff %.1f s" % (ours["seconds"], theirs["seconds"]))


def _steps(outcome):
    return outcome["log"]


def _failed(outcome):
    return (not outcome["created"] or outcome["create_failed"] or outcome["close_failed"]
            or any(failed for _, _, failed in outcome["log"]))  # fmt: skip


def _right(outcome):
    """Whether a file has the pixels that were written."""
    bands = [part for name, part in (outcome["file"] or {}).items() if name.startswith("band")]
    return [band[0] for band in bands] == outcome["truth"]


def _is_wrong(step):
    """Whether a read gave other pixels than were written."""
    return isinstance(step[1], list) and step[1][1] == "wrong"


def _take_over_pixels(ours, theirs):
    """Puts our pixels, and the masks that are made of them, in place of GTiff's."""
    for name, band in ours.items():
        if name.startswith("band") and name in theirs:
            of_pixels = band[5] & (gdal.GMF_NODATA | gdal.GMF_ALPHA)
            theirs[name][:2] = [band[0], band[1] if of_pixels else theirs[name][1]]


def _difference(ours, theirs):
    if ours is None or theirs is None:
        return "" if ours is theirs else "no file" if ours is None else "no file by GTiff"
    # A band that GTiff cannot read of its own file is not compared.
    names = [k for k in {**ours, **theirs} if ours.get(k) != theirs.get(k) and _readable(theirs.get(k))]
    return "\n".join("%s: %s\nGTiff %s" % (k, ours.get(k), theirs.get(k)) for k in names)


def _readable(part):
    return not isinstance(part, list) or None not in part[:2]


def _parts(ours, theirs, lenient):
    """The first difference. `theirs`: what processes with GTiff found, the last of them not always all of it."""
    unset = any(_apart([found.get(name) for found in theirs]) for name in theirs[0])
    for name in theirs[0]:
        # Larger requests, in which blocks that GTiff never set may be.
        if unset and name.startswith(("whole", "ask")):
            continue
        verdict = _part(name, ours.get(name), [found[name] for found in theirs if name in found], lenient)
        if verdict:
            return verdict
    return None


def _apart(lists):
    """Whether a block is not the same in all lists."""
    return all(isinstance(blocks, list) for blocks in lists) and any(len(set(block)) > 1 for block in zip(*lists))


def _forget_last_blocks(parts):
    """Of a Deflate strip that holds more rows than the image has left, libtiff 4.5 with libdeflate keeps what was
    decoded when the room ended, which lacks up to 258 bytes; ours has all of them."""
    for name, blocks in parts.items():
        if name.startswith(("band", "mask")) and isinstance(blocks, list) and blocks:
            blocks[-1] = "not defined"


def _part(name, ours, theirs, lenient):
    """A list of blocks, or one hash."""
    if not all(isinstance(part, list) for part in [ours, *theirs]):
        ours, theirs = [ours], [[part] for part in theirs]
    if len(ours) != len(theirs[0]):
        return ("difference", "%s: %d blocks, GTiff %d" % (name, len(ours), len(theirs[0])))
    for i, (x, p, *others) in enumerate(zip(ours, *theirs)):
        if any(p != q for q in others) or x == p or lenient:
            continue
        kind = "success" if p is None else "error" if x is None else "difference"
        return (kind, "%s, block %d: %s, GTiff %s" % (name, i, x or "failed", p or "failed"))
    return None
