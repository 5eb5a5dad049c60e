"""Measures the sides of a case in turns, each time in a process of its own."""

import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "target/bench"
LIMIT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/limit"
DRIVER = os.environ.get("GPUGTIFF_BENCH_DRIVER", "GPUGTiff")
# side → (driver, NUM_THREADS)
SIDES = {"ours": (DRIVER, "-"), "gtiff_1": ("GTiff", "-"), "gtiff_all": ("GTiff", "ALL_CPUS")}
# The same block cache on every machine; GDAL's default is a share of the memory.
CACHE_MB = 512
# However short a measurement is.
MOST_ROUNDS = 30
# Seconds after which those that decide nothing have no more turns.
SLOW = 5


class WrongPixels(Exception):
    pass


@dataclass(frozen=True)
class Pace:
    """How long a case goes on, in rounds and seconds."""

    # So many rounds,
    repeat: int
    # and until ours took this long in all
    enough: float = 3
    # or the case did;
    patience: float = 10
    # fewer of them where the next would end after this.
    budget: float = math.inf

    def is_over(self, rounds, ours, elapsed):
        if rounds >= self.repeat:
            return ours >= self.enough or elapsed > self.patience
        return rounds > 0 and elapsed * (rounds + 1) / rounds > self.budget


def environment(**config):
    """Ours, without what would favour a side or send loopback requests elsewhere."""
    drop = ("GDAL_NUM_THREADS", "GDAL_CACHEMAX", "http_proxy", "HTTP_PROXY", "all_proxy")
    env = {key: value for key, value in os.environ.items() if key not in drop}
    return {**env, "GDAL_CACHEMAX": str(CACHE_MB), **config}


def run(program, side, *arguments, **config):
    """What benches/read.c or write.c says of one measurement."""
    return run_plain(program, *SIDES[side], *arguments, **config)


def run_plain(program, *arguments, **config):
    """The same, all words given."""
    command = [str(PROGRAMS / program), *(str(word) for word in arguments)]
    done = subprocess.run(command, env=environment(**config), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed ({done.returncode}): {done.stderr.strip()}")
    return json.loads(done.stdout)


def limits(task, file, target=None):
    """The side that is bare codecs, as a dict to add to the others; empty without it. With a target
    also the one that reads and writes files."""
    sides = {"limit": partial(_limit, task, file)}
    if target:
        sides["files"] = partial(_limit, task, file, target)
    return sides if LIMIT.exists() else {}


def _limit(task, file, *target):
    command = [str(word) for word in (LIMIT, task, file, *target)]
    done = subprocess.run(command, capture_output=True, text=True)
    for path in target:
        path.unlink(missing_ok=True)
    words = done.stdout.split()
    if done.returncode != 0 or "seconds" not in words:
        print(f"limit {file.name}: no result: {done.stderr.strip()}", file=sys.stderr)
        return None
    return {"seconds": float(words[words.index("seconds") + 1])}


def same_pixels(runs, what):
    hashes = {side: run["hash"] for side, run in runs.items() if "hash" in run}
    if len(set(hashes.values())) > 1:
        raise WrongPixels(f"{what}: the pixels differ: {hashes}")


def measure(sides, what, pace):
    """The best run of each side, with how many there were. `sides`: name → what runs it."""
    best, runs, spent = {}, Counter(), Counter()
    start = time.monotonic()

    def rests(side):
        """The limits and GTiff's slower mode are not worth more time than that."""
        slower = side in ("limit", "files") or (
            side == "gtiff_1" and runs[side] and
            best[side]["seconds"] > best["gtiff_all"]["seconds"])  # fmt: skip
        return slower and (runs[side] >= pace.repeat or spent[side] >= SLOW)

    for done in range(MOST_ROUNDS):
        if pace.is_over(done, spent["ours"], time.monotonic() - start):
            break
        latest = {}
        # Back and forth, so that none always comes after the same one.
        for side in list(sides)[:: -1 if done % 2 else 1]:
            if rests(side):
                continue
            before = time.monotonic()
            found = sides[side]()
            if found is None:
                continue
            latest[side] = found
            runs[side] += 1
            spent[side] += time.monotonic() - before if side in ("limit", "files") else found["seconds"]
            if side not in best or found["seconds"] < best[side]["seconds"]:
                best[side] = found
        same_pixels(latest, what)
    return {side: {**found, "runs": runs[side]} for side, found in best.items()}


def speed_row(raster, codec, pattern, best):
    """The figures of a case, whatever was asked of it."""
    mega = best["ours"]["bytes"] / 1e6
    speed = {side: mega / found["seconds"] for side, found in best.items()}
    return {
        "raster": raster, "codec": codec, "pattern": pattern, "mb": mega,
        "seconds": {side: found["seconds"] for side, found in best.items()},
        "runs": {side: found["runs"] for side, found in best.items()},
        "mb_per_s": speed,
        "ratio_all": speed["ours"] / speed["gtiff_all"],
        "ratio_1": speed["ours"] / speed["gtiff_1"],
        "ratio_limit": speed["ours"] / speed["limit"] if "limit" in speed else None,
        "ratio_files": speed["ours"] / speed["files"] if "files" in speed else None,
        "counters": best["ours"]["counters"],
    }  # fmt: skip


def is_reached(ratio, goal=1.0):
    return round(ratio / goal, 2) >= 1.0
