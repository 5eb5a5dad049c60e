"""make bench: GPUGTiff against GTiff, side by side, pixels checked.

    bench.py [--quick] [--only WORD…] [--repeat N] [--out DIRECTORY]

Every measurement is a process of its own (benches/read.c, write.c, threads.c), so that no side
finds the other's caches; the sides take turns, and the best of the repeats counts. A complete
run writes docs/benchmarks/{read,write}.{md,json,svg} and the figures in README.md; a partial one writes to target/bench.
GPUGTIFF_BENCH_DRIVER puts another driver in our place, to try the benchmark itself.
"""

import argparse
import math
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from osgeo import gdal

import reading
import readme
import report
import writing
from data import Data
from measure import CACHE_MB, DRIVER, MOST_ROUNDS, PROGRAMS, ROOT, Pace, WrongPixels

# what is measured → how, and at what pace: the slower codecs are written once or twice
SUBJECTS = {"read": (reading, Pace(5)), "write": (writing, Pace(3, budget=65))}


def machine():
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)),
            "gdal": gdal.VersionInfo("RELEASE_NAME"), "driver": DRIVER,
            "load": os.getloadavg()[0]}  # fmt: skip


def touch_memory():
    """Has every page that is free touched once. A virtual machine gets its memory from its host when
    it is first touched, at a tenth of the speed: whichever side came first would pay for it."""
    free = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()
                if line.startswith("MemFree:"))  # fmt: skip
    code = ("import mmap, sys; memory = mmap.mmap(-1, int(sys.argv[1]))\n"
            "for at in range(0, len(memory), mmap.PAGESIZE): memory[at] = 1")  # fmt: skip
    subprocess.run([sys.executable, "-c", code, str(free * 1024 * 9 // 10)], check=False)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small rasters, two repeats")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD",
                        help="cases that have all these words: read or write, a raster, a codec, "
                             "a pattern (full, rows, windows, pixels; mem, file, copy), or one of "
                             "threads, memory, million, requests (read), peak (write)")  # fmt: skip
    parser.add_argument("--repeat", type=int, help="default 5 for reads, 3 for writes, quick 2")
    parser.add_argument("--out", type=Path, help="where the reports go")
    return parser.parse_args()


def main():
    args = arguments()
    gdal.UseExceptions()
    for program in (*SUBJECTS, "threads"):
        if not (PROGRAMS / program).exists():
            sys.exit(f"bench: target/bench/{program} is missing: run 'make bench'")
    if gdal.GetDriverByName(DRIVER) is None:
        sys.exit(f"bench: GDAL did not load the driver {DRIVER}; run 'make bench'")
    partial = args.quick or args.only
    out = args.out or (ROOT / "target/bench" if partial else ROOT / "docs/benchmarks")

    def wanted(*words):
        return all(any(asked.lower() in word.lower() for word in words) for asked in args.only)

    if not args.quick:
        touch_memory()
    data = Data(ROOT / "target/bench-data", args.quick)
    about = machine()
    if about["load"] > 0.5:
        print(f"bench: the load average is {about['load']:.1f}: others use this "
              "machine, so expect noise", file=sys.stderr)  # fmt: skip
    for name, (subject, pace) in SUBJECTS.items():
        if args.quick:
            pace = Pace(2, enough=0)
        if args.repeat:
            pace = replace(pace, repeat=args.repeat, budget=math.inf)
        try:
            found = subject.measured(data, wanted, pace)
        except WrongPixels as error:
            sys.exit(f"bench: {error}")
        except KeyboardInterrupt:
            sys.exit(130)
        if found:
            result = {"machine": about, "repeat": pace.repeat, "most_rounds": MOST_ROUNDS,
                      "cache_mb": CACHE_MB, **found}  # fmt: skip
            report.save(name, result, subject, out)
            text = (out / f"{name}.md").read_text()
            print(f"\n{text}\nwritten to {out}/{name}.md, .json and .svg\n", flush=True)
    if out == ROOT / "docs/benchmarks":
        readme.rewrite()


if __name__ == "__main__":
    main()
