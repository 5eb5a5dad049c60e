"""Reading: full reads, rows, windows, pixels; threads; memory, a million tiles, HTTP requests."""

from dataclasses import replace
from functools import partial

from osgeo import gdal

import report
from data import CODECS, GDAL_CODECS, RASTERS
from measure import (
    DRIVER, MOST_ROUNDS, SIDES, is_reached, limits, measure, run, run_plain, same_pixels, speed_row
)  # fmt: skip
from ranges import RangeServer

PATTERNS = {
    "full": "Full read: the whole raster in one request",
    "rows": "Row by row, each row of all bands one request",
    "windows": "Random windows of 512 × 512",
    "pixels": "Single pixels at random places",
}
BATCH_MB = 64
# What reads windows in threads: the C API, and RasterIO as (driver, NUM_THREADS).
WAYS = {"ours": ("api", "-"), "rasterio": (DRIVER, "-"), "gtiff_1": ("GTiff", "-"),
        "gtiff_all": ("GTiff", "ALL_CPUS")}  # fmt: skip
RASTERS_OF_THREADS = {"one": "one for all", "each": "one for each"}
THREADS = 4


def read(side, pattern, file, count=1, **config):
    return run("read", side, pattern, file, count, **config)


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


def judged(row):
    """The row with its goal. A request passed to GTiff measures GTiff: no result."""
    target, words = goal(row["codec"], row["pattern"], row["mb_per_s"])
    reached = is_reached(row["mb_per_s"]["ours"], target) and not report.passed_on(row)
    return {**row, "goal": words, "reached": reached}


def cases(quick):
    """(raster, codec, pattern, count): full reads of all, the other patterns of two rasters, and of
    all codecs that only GDAL has."""
    patterns = (("rows", 1), ("windows", 20 if quick else 200),
                ("pixels", 10_000 if quick else 100_000))  # fmt: skip
    for raster in RASTERS:
        for codec in CODECS:
            yield raster, codec, "full", 1
    for codec, raster in GDAL_CODECS.items():
        yield raster, codec, "full", 1
    for pattern, count in patterns:
        for raster in ("terrain-float32", "imagery-rgb"):
            for codec in CODECS:
                yield raster, codec, pattern, count
        for codec, raster in GDAL_CODECS.items():
            # A pixel of LZMA costs every side a whole tile.
            yield raster, codec, pattern, count // 20 if pattern == "pixels" else count


def patient(pace, codec, pattern):
    """Where GDAL and the kernel do nearly all of the work on every side, the sides differ by less
    than this machine's noise: more rounds."""
    alike = codec in GDAL_CODECS or (codec == "NONE" and pattern == "pixels")
    return replace(pace, repeat=min(6 * pace.repeat, MOST_ROUNDS)) if alike else pace


def case(data, raster, codec, pattern, count, pace):
    file = data.raster(raster, codec)
    pace = patient(pace, codec, pattern)
    sides = {side: partial(read, side, pattern, file, count) for side in SIDES}
    if pattern == "full" and codec not in GDAL_CODECS:
        sides |= limits("read", file)
    best = measure(sides, f"{file.name} {pattern}", pace)
    return judged(speed_row(raster, codec, pattern, best))


def threads(data, pace):
    """Windows read by several threads at once, by the C API and by RasterIO."""
    windows = 10 if data.quick else 100
    rows = []
    for raster in ("terrain-float32", "imagery-rgb"):
        for codec in CODECS:
            file = data.raster(raster, codec)
            for rasters in RASTERS_OF_THREADS:
                sides = {
                    side: partial(run_plain, "threads", way, rasters, many, file, THREADS, windows)
                    for side, (way, many) in WAYS.items()
                }
                best = measure(sides, f"{file.name} threads {rasters}", pace)
                mega = best["ours"]["bytes"] / 1e6
                speed = {side: mega / found["seconds"] for side, found in best.items()}
                ratio = speed["ours"] / max(speed["gtiff_1"], speed["gtiff_all"])
                rows.append({"raster": raster, "codec": codec, "rasters": rasters,
                             "mb_per_s": speed, "ratio": ratio,
                             "ratio_rasterio": speed["ours"] / speed["rasterio"],
                             "reached": is_reached(ratio)})  # fmt: skip
                print(f"threads {raster:17}{codec:9}{rasters:5}", *(
                    f"{side} {value:.0f}" for side, value in speed.items()), f"× {ratio:.2f}",
                    flush=True)  # fmt: skip
    return rows


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


def measured(data, wanted, pace):
    """All that is wanted; empty if nothing is."""
    result = {}
    for raster, codec, pattern, count in cases(data.quick):
        if wanted("read", raster, codec, pattern):
            row = case(data, raster, codec, pattern, count, pace)
            result.setdefault("speed", []).append(row)
            print(report.speed_line(row), flush=True)
    if wanted("read", "threads"):
        result["threads"] = threads(data, pace)
    if wanted("read", "memory"):
        result["memory"] = memory(data)
    if wanted("read", "million"):
        result["million"] = million(data, pace.repeat)
    if wanted("read", "requests"):
        result["requests"] = requests(data)
    return result


def markdown(result):
    lines = report.opening("Reading", "read.svg", result, (
        "the clock running from open to the last pixel",
        "Pixels were compared with GTiff's. Decimal megabytes of pixels. The limit is the fastest "
        "decoder known to us, the predictor and one copy into place, from memory, on all cores.",
    ))  # fmt: skip
    for pattern, title in PATTERNS.items():
        rows = [row for row in result.get("speed", []) if row["pattern"] == pattern]
        lines += report.speed_section(title, rows, limited=pattern == "full",
                                      in_seconds=pattern == "pixels")  # fmt: skip
    if "threads" in result:
        lines += [f"## Random windows of 512 × 512 in {THREADS} threads: the C API and RasterIO", "",
                  "One raster for all threads, which GDAL's datasets need a lock for, or one for each.",
                  ""]  # fmt: skip
        lines += report.table(["raster", "codec", "rasters", "C API MB/s", "RasterIO of GPUGTiff",
                               "of GTiff, 1 thread", "of GTiff, ALL_CPUS", "÷ our RasterIO", "÷ GTiff's faster",
                               "goal", "reached"], [
            [row["raster"], row["codec"], RASTERS_OF_THREADS[row["rasters"]],
             *(report.number(row["mb_per_s"][side], 0) for side in WAYS),
             report.number(row["ratio_rasterio"]), report.number(row["ratio"]), "1.00",
             report.tick(row["reached"])] for row in result["threads"]])  # fmt: skip
    sides, names = report.ORDER, report.NAMES
    if "memory" in result:
        lines += ["## Peak memory above the caller's buffer (MiB, full read, GDAL_CACHEMAX=64)", ""]
        lines += report.table(["raster", "codec", *names, "bound", "reached"], [
            [row["raster"], row["codec"], *(f"{row['mib'][side]:.0f}" for side in sides),
             row["bound"], report.tick(row["reached"])] for row in result["memory"]])  # fmt: skip
    if "million" in result:
        row = result["million"]
        lines += ["## A million tiles: open and read one window", ""]
        lines += report.table(["", *names, "÷ GTiff's faster", "goal", "reached"], [
            ["ms", *(f"{row['seconds'][side] * 1e3:.2f}" for side in sides),
             report.number(row["ratio"]), "at most 1.10", report.tick(row["reached"])],
            ["bytes of the file read", *(f"{row['file_bytes_read'][side]:,}" for side in sides),
             "", "", ""]])  # fmt: skip
    if "requests" in result:
        lines += ["## HTTP requests over /vsicurl/", ""]
        lines += report.table(["read", *names, "goal", "reached"], [
            [f"{row['pattern']} × {row['count']}", *(row["requests"][side] for side in sides),
             "no more than GTiff", report.tick(row["reached"])]
            for row in result["requests"]])  # fmt: skip
    return "\n".join(lines)


def chart(result):
    """Full reads as bars of MB/s, the other patterns as bars of the ratio to GTiff's faster."""
    svg, rows = report.Svg(860), result.get("speed", [])
    svg.bars("Full read, MB/s of pixels", [row for row in rows if row["pattern"] == "full"])
    svg.ratios("Other patterns, speed relative to the faster of GTiff's two modes", [
        (f"{row['pattern']}, {row['raster']} {row['codec']}",
         min(row["ratio_all"], row["ratio_1"]))
        for row in rows if row["pattern"] != "full"])  # fmt: skip
    return svg.done()
