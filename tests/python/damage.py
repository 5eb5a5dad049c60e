"""Drives damage_worker processes and judges: what ours does to a damaged file is what GTiff does."""

import json
import os
import select
import subprocess
import sys
import time

import damage_worker
import harness

TIMEOUT = 30
# What reading small damaged files may cost at most; a byte count believed unchecked shows here.
PEAK_KB = 700_000


class Worker:
    """A damage_worker; started anew after it crashed or hung."""

    def __init__(self, driver, perturb, backward=False):
        self.driver, self.perturb, self.backward, self.process = driver, perturb, backward, None

    def _start(self):
        env = dict(os.environ, PYTHONPATH=harness.HERE, GDAL_CACHEMAX="16", MALLOC_PERTURB_=str(self.perturb))
        self.process = subprocess.Popen([sys.executable, "-B", os.path.join(harness.HERE, "damage_worker.py")], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        self.pending = b""

    def ask(self, path):
        if self.process is None or self.process.poll() is not None:
            self._start()
        ask = {"path": path, "driver": self.driver, "backward": self.backward}
        self.process.stdin.write(json.dumps(ask).encode() + b"\n")
        self.process.stdin.flush()
        end = time.time() + TIMEOUT
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], max(0, end - time.time()))[0]:
                self.stop()
                return {"died": "hang: no answer in %d s" % TIMEOUT}
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                code = self.process.wait()
                self.stop()
                return {"died": "crash: exit %d" % code}
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


def first_read(path, number, block):
    """What GTiff reads of a block if that is the first it reads."""
    with harness.Errors() as errors:
        ds = harness.open_gtiff(path)
        return damage_worker.read_block(ds.GetRasterBand(number), block, errors)


class Judge:
    """Ours against two GTiff processes whose fresh memory is filled differently and that read the blocks
    in opposite order. Where those two disagree GTiff hands out memory that it never set, or, after a
    Deflate stream longer than its tile, what the block before left there: nothing is to be compared."""

    def __init__(self):
        self.ours = Worker(harness.DRIVER, 85)
        self.theirs = [Worker("GTiff", 85), Worker("GTiff", 170, backward=True)]

    def stop(self):
        for w in [self.ours, *self.theirs]:
            w.stop()

    def compare(self, path, where, undefined=None):
        """-> ours' outcome; fails the test where it differs from GTiff's. `undefined`: the names of
        bands and the block of them whose pixels, where both read any, are nobody's promise."""
        a, b = (w.ask(path) for w in self.theirs)
        ours = self.ours.ask(path)
        assert "died" not in ours, "%s: %s" % (where, ours["died"])
        assert ours["peak_kb"] < PEAK_KB, "%s: peak %d kB" % (where, ours["peak_kb"])
        if "died" in a or "died" in b:
            return ours
        assert ours["open"] == a["open"], "%s: open %s, GTiff %s; %s" % (
            where, ours["open"], a["open"], ours["open_failures"] or a["open_failures"])  # fmt: skip
        if not ours["open"]:
            return ours
        assert ours["size"] == a["size"], where
        stale = False
        for name in a["bands"]:
            skip = undefined[1] if undefined and name in undefined[0] else None
            stale |= self._band(path, name, ours["bands"].get(name), [a["bands"][name], b["bands"][name]], skip, where)
        said = [bool(x["said"]) for x in (ours, a, b)]
        # libtiff mentions oddities that cost no pixel; ours need not, but must not complain where GTiff does not.
        assert said[1] or not said[0] or said[1] != said[2], "%s: %d messages, GTiff none" % (where, ours["said"])
        if not undefined and not stale:
            self._whole(ours["whole"], a["whole"], b["whole"], where)
        self._texts(ours, path, where)
        return ours

    @staticmethod
    def _band(path, name, ours, theirs, skip, where):
        """-> whether GTiff, asked both ways, gave the same of what an earlier block left: a dataset that reads a block
        first says otherwise."""
        stale = False
        if isinstance(theirs[0], str):
            assert ours == theirs[0], "%s band %s" % (where, name)
            return stale
        for i, (x, p, q) in enumerate(zip(ours, *theirs)):
            if i == skip and None not in (x, p):
                continue
            if p == q and x != p and name.isdigit() and first_read(path, int(name), i) == x:
                stale = True
                continue
            assert p != q or x == p, "%s band %s block %d: %s, GTiff %s" % (where, name, i, x or "failed", p or "failed")
        return stale

    @staticmethod
    def _whole(ours, a, b, where):
        if isinstance(a, str) or a["hash"] != b["hash"]:
            return
        assert ours["hash"] == a["hash"], "%s whole: %s, GTiff %s; %s; GTiff: %s" % (
            where, ours["hash"] or "failed", a["hash"] or "failed", ours["failures"], a["failures"])  # fmt: skip

    @staticmethod
    def _texts(ours, path, where):
        """A read that failed says which file and why."""
        if harness.SELF_TEST or isinstance(ours["whole"], str) or ours["whole"]["hash"] is not None:
            return
        texts = ours["whole"]["failures"]
        assert any(os.path.basename(path) in t for t in texts), "%s: no message names the file: %s" % (where, texts)
