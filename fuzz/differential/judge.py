"""Worker processes, and the verdict on a case: ours against GTiff without threads.

Two GTiff processes, whose fresh memory is filled differently and that read blocks in opposite order,
are asked: where they disagree GTiff hands out memory that it never set, and nothing is compared."""

import json
import os
import select
import subprocess
import sys
import time

import mutate
import paths

TIMEOUT = float(os.environ.get("GPUGTIFF_FUZZ_TIMEOUT", "30"))
# Memory beyond GTiff's × 1.5 + 64 MB is too much.
FACTOR, SLACK_KB = 1.5, 64 << 10
# Not under a sanitizer, which takes memory and time of its own.
MEASURED = "GPUGTIFF_FUZZ_NO_MEMORY" not in os.environ
OURS = {1, 5, 8, 32946, 32773, 50000}
ZSTD = {50000}


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
        self.end = time.time() + TIMEOUT
        try:
            self.process.stdin.write(json.dumps(dict(ask, driver=self.driver)).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self):
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], max(0, self.end - time.time()))[0]:
                self.stop()
                return {"died": "hang: no answer in %d s" % TIMEOUT}
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                code = self.process.wait()
                self.stop()
                return {"died": "crash: exit %d\n%s" % (code, self._said())}
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

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
        self.folder = folder
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
        # Of a damaged ZSTD frame without a checksum releases of libzstd make different pixels.
        lenient = bool(mutate.compressions(data) & ZSTD)
        for name, theirs in a["parts"].items():
            verdict = _part(name, ours["parts"].get(name), theirs, b["parts"].get(name), lenient)
            if verdict:
                return verdict
        return None

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
        if failed[0] != failed[1]:
            text = "%s, GTiff %s" % tuple("an error" if f else "success" for f in failed)
            return ("error" if failed[0] else "success", "%s\n%s\n%s" % (text, _steps(ours), _steps(a)))
        if failed[1]:
            return None
        if _steps(ours) != _steps(a):
            return ("steps", "steps %s\nGTiff %s" % (_steps(ours), _steps(a)))
        if _right(ours) and not _right(a):
            return None  # with SPARSE_OK, GTiff 3.6 makes nodata of a source's zeros
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
    """Whether a copy has the pixels of its source."""
    bands = [part for name, part in (outcome["file"] or {}).items() if name.startswith("band")]
    return outcome["truth"] is not None and [band[0] for band in bands] == outcome["truth"]


def _difference(ours, theirs):
    if ours is None or theirs is None:
        return "" if ours is theirs else "no file" if ours is None else "no file by GTiff"
    # A band that GTiff cannot read of its own file is not compared.
    names = [k for k in {**ours, **theirs} if ours.get(k) != theirs.get(k) and _readable(theirs.get(k))]
    return "\n".join("%s: %s\nGTiff %s" % (k, ours.get(k), theirs.get(k)) for k in names)


def _readable(part):
    return not isinstance(part, list) or None not in part[:2]


def _part(name, ours, a, b, lenient):
    """A list of blocks, or one hash."""
    if not isinstance(a, list) or not isinstance(b, list) or not isinstance(ours, list):
        ours, a, b = [ours], [a], [b]
    if len(ours) != len(a):
        return ("difference", "%s: %d blocks, GTiff %d" % (name, len(ours), len(a)))
    for i, (x, p, q) in enumerate(zip(ours, a, b)):
        if p != q or x == p or lenient:
            continue
        kind = "success" if p is None else "error" if x is None else "difference"
        return (kind, "%s, block %d: %s, GTiff %s" % (name, i, x or "failed", p or "failed"))
    return None
