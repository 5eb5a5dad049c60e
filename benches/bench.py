"""make bench: GPUGTiff against GTiff, side by side, pixels checked.

    bench.py [--quick] [--only WORD…] [--repeat N] [--out DIRECTORY]

Every measurement is a process of its own (benches/read.c), so that no side finds the
other's caches; the sides take turns, and the best of the repeats counts. A complete run
writes docs/benchmarks/read.{md,json,svg}; a partial one writes to target/bench.
GPUGTIFF_BENCH_DRIVER puts another driver in our place, to try the benchmark itself.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from osgeo import gdal

import report
from data import CODECS, RASTERS, Data
from ranges import RangeServer

ROOT = Path(__file__).resolve().parent.parent
READ = ROOT / "target/bench/read"
LIMIT = ROOT / "target/release/examples/limit"
DRIVER = os.environ.get("GPUGTIFF_BENCH_DRIVER", "GPUGTiff")
# side → (driver, NUM_THREADS)
SIDES = {"ours": (DRIVER, "-"), "gtiff_1": ("GTiff", "-"), "gtiff_all": ("GTiff", "ALL_CPUS")}
BATCH_MB = 64
# The same block cache on every machine; GDAL's default is a share of the memory.
CACHE_MB = 512


class WrongPixels(Exception):
    pass


def environment(**config):
    """Ours, without what would favour a side or send loopback requests elsewhere."""
    drop = ("GDAL_NUM_THREADS", "GDAL_CACHEMAX", "http_proxy", "HTTP_PROXY", "all_proxy")
    env = {key: value for key, value in os.environ.items() if key not in drop}
    return {**env, "GDAL_CACHEMAX": str(CACHE_MB), **config}


def read(side, pattern, file, count=1, **config):
    driver, threads = SIDES[side]
    command = [str(READ), driver, threads, pattern, str(file), str(count)]
    done = subprocess.run(command, env=environment(**config), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed ({done.returncode}): {done.stderr.strip()}")
    return json.loads(done.stdout)


def limit(file):
    done = subprocess.run([str(LIMIT), str(file)], capture_output=True, text=True)
    words = done.stdout.split()
    if done.returncode != 0 or "seconds" not in words:
        print(f"limit {file.name}: no result: {done.stderr.strip()}", file=sys.stderr)
        return None
    return float(words[words.index("seconds") + 1])


def same_pixels(runs, what):
    hashes = {side: run["hash"] for side, run in runs.items()}
    if len(set(hashes.values())) != 1:
        raise WrongPixels(f"{what}: the pixels differ: {hashes}")


def measure(file, pattern, count, repeat, with_limit=False):
    """Best seconds of each side over interleaved repeats, and our counters."""
    best = {}
    for _ in range(repeat):
        runs = {side: read(side, pattern, file, count) for side in SIDES}
        same_pixels(runs, f"{file.name} {pattern}")
        seconds = {side: run["seconds"] for side, run in runs.items()}
        if with_limit and LIMIT.exists():
            seconds["limit"] = limit(file)
        for side, value in seconds.items():
            if value is not None:
                best[side] = min(value, best.get(side, value))
    ours = runs["ours"]
    return {"seconds": best, "bytes": ours["bytes"], "counters": ours["counters"]}


def goal(codec, pattern, speed):
    """What the project asks of itself, in MB/s, and the words for it."""
    everyone = speed["gtiff_all"]
    fastest = max(everyone, speed["gtiff_1"])
    if pattern == "full" and codec in ("LZW", "DEFLATE", "ZSTD"):
        reach = 1.5 * everyone
        if "limit" in speed:
            reach = max(1.1 * everyone, min(reach, 0.9 * speed["limit"]))
        return reach, f"{reach / everyone:.2f} × ALL_CPUS"
    if pattern == "full" and codec == "NONE":
        return 0.95 * everyone, "0.95 × ALL_CPUS"
    return fastest, "1.00 × GTiff's faster"


def speed_row(raster, codec, pattern, result):
    mega = result["bytes"] / 1e6
    speed = {side: mega / seconds for side, seconds in result["seconds"].items()}
    target, words = goal(codec, pattern, speed)
    return {
        "raster": raster, "codec": codec, "pattern": pattern, "mb": mega,
        "seconds": result["seconds"], "mb_per_s": speed,
        "ratio_all": speed["ours"] / speed["gtiff_all"],
        "ratio_1": speed["ours"] / speed["gtiff_1"],
        "ratio_limit": speed["ours"] / speed["limit"] if "limit" in speed else None,
        "goal": words,
        # A request passed to GTiff measures GTiff: right for JPEG, no result for the others.
        "reached": round(speed["ours"] / target, 2) >= 1.0
        and (codec == "JPEG" or not report.passed_on(result)),
        "counters": result["counters"],
    }  # fmt: skip


def cases(quick):
    """(raster, codec, pattern, count): full reads of all, the other patterns of two."""
    patterns = (("rows", 1), ("windows", 20 if quick else 200),
                ("pixels", 10_000 if quick else 100_000))  # fmt: skip
    for raster in RASTERS:
        for codec in CODECS:
            yield raster, codec, "full", 1
    yield "imagery-rgb", "JPEG", "full", 1
    for pattern, count in patterns:
        for raster in ("terrain-float32", "imagery-rgb"):
            for codec in CODECS:
                yield raster, codec, pattern, count


def memory(data):
    """Peak of the process above the caller's buffer, for a full read with a small cache."""
    rows = []
    for raster, codec in (("terrain-float32", "DEFLATE"), ("imagery-rgb", "LZW")):
        file = data.raster(raster, codec)
        runs = {side: read(side, "full", file, GDAL_CACHEMAX="64") for side in SIDES}
        same_pixels(runs, f"{file.name} memory")
        peak = {side: run["peak_kb"] / 1024 - run["bytes"] / 2**20 for side, run in runs.items()}
        bound = BATCH_MB * 3 + 64
        rows.append({"raster": raster, "codec": codec, "mib": peak, "bound": bound,
                     "reached": peak["ours"] <= bound})  # fmt: skip
    return rows


def million(data, repeat):
    """Open a file of a million tiles and read one window: time and bytes of the file read."""
    file = data.million_tiles()
    best = {}
    for _ in range(4 * repeat):
        runs = {side: read(side, "windows", file) for side in SIDES}
        same_pixels(runs, file.name)
        for side, run in runs.items():
            if side not in best or run["seconds"] < best[side]["seconds"]:
                best[side] = run
    seconds = {side: run["seconds"] for side, run in best.items()}
    ratio = seconds["ours"] / min(seconds["gtiff_1"], seconds["gtiff_all"])
    return {"seconds": seconds, "ratio": ratio, "reached": round(ratio, 2) <= 1.1,
            "file_bytes_read": {side: run["file_bytes_read"] for side, run in best.items()}}  # fmt: skip


def requests(data):
    """HTTP requests for the same reads over /vsicurl/."""
    file = data.raster("terrain-float32", "DEFLATE")
    ds = gdal.OpenEx(str(file))
    kind = ds.GetRasterBand(1).DataType
    shape = f"{ds.RasterXSize} {ds.RasterYSize} {ds.RasterCount} {kind}"
    rows = []
    with RangeServer(file.parent) as server:
        for pattern, count in (("full", 1), ("windows", 10), ("pixels", 100)):
            counted, runs = {}, {}
            for side in SIDES:
                url = f"/vsicurl/{server.url}/{file.name}"
                server.take()
                runs[side] = read(side, pattern, url, count, READ_SHAPE=shape)
                counted[side] = server.take()
            same_pixels(runs, f"{file.name} over /vsicurl/")
            reached = counted["ours"] <= min(counted["gtiff_1"], counted["gtiff_all"])
            rows.append({"pattern": pattern, "count": count, "requests": counted,
                         "reached": reached})  # fmt: skip
    return rows


def machine():
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)),
            "gdal": gdal.VersionInfo("RELEASE_NAME"), "driver": DRIVER,
            "load": os.getloadavg()[0]}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small rasters, two repeats")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD",
                        help="cases that have all these words: a raster, codec or pattern, "
                             "or one of memory, million, requests")  # fmt: skip
    parser.add_argument("--repeat", type=int, help="default 5, quick 2")
    parser.add_argument("--out", type=Path, help="where the report goes")
    args = parser.parse_args()
    gdal.UseExceptions()
    if not READ.exists():
        sys.exit("bench: target/bench/read is missing: run 'make bench'")
    if gdal.GetDriverByName(DRIVER) is None:
        sys.exit(f"bench: GDAL did not load the driver {DRIVER}; run 'make bench'")
    repeat = args.repeat or (2 if args.quick else 5)
    partial = args.quick or args.only
    out = args.out or (ROOT / "target/bench" if partial else ROOT / "docs/benchmarks")

    def wanted(*words):
        return all(any(asked.lower() in word.lower() for word in words) for asked in args.only)

    data = Data(ROOT / "target/bench-data", args.quick)
    result = {"machine": machine(), "repeat": repeat, "cache_mb": CACHE_MB, "speed": []}
    if result["machine"]["load"] > 0.5:
        print(f"bench: the load average is {result['machine']['load']:.1f}: others use this "
              "machine, so expect noise", file=sys.stderr)  # fmt: skip
    try:
        for raster, codec, pattern, count in cases(args.quick):
            if wanted(raster, codec, pattern):
                file = data.raster(raster, codec)
                found = measure(file, pattern, count, repeat, pattern == "full" and codec != "JPEG")
                row = speed_row(raster, codec, pattern, found)
                result["speed"].append(row)
                print(report.speed_line(row), flush=True)
        if wanted("memory"):
            result["memory"] = memory(data)
        if wanted("million"):
            result["million"] = million(data, repeat)
        if wanted("requests"):
            result["requests"] = requests(data)
    except WrongPixels as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    report.write(result, out)
    print(f"\n{(out / 'read.md').read_text()}\nwritten to {out}/read.md, .json and .svg")


if __name__ == "__main__":
    main()
