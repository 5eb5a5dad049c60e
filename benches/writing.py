"""Writing: from memory to disk, from file to file, tile copies; memory of a large raster."""

from functools import partial

import report
from data import CODECS, GDAL_CODECS, LOSSY, RASTERS, creation_options
from measure import DRIVER, SIDES, WrongPixels, is_reached, limits, measure, run, speed_row

PATTERNS = {
    "mem": "From memory to disk: CreateCopy of a MEM dataset",
    "file": "From file to file, all tiles decoded and encoded (COPY_TILES=NO)",
    "copy": "From file to file, the same options: tiles copied as they are (COPY_TILES=AUTO)",
}
# pattern → speed that is asked for, relative to GTiff with ALL_CPUS and to the limit
GOALS = {"mem": 1.0, "file": 1.05, "copy": 10.0}
COPY_GOAL_NONE = 3.0
LIMIT_GOAL = 0.9
# A file may be larger than GTiff's by this factor, and a peak of memory than the other.
SIZE_GOAL = 1.01
PEAK_GOAL = 1.05


def write(data, side, mode, source, *options, **config):
    """One measurement; the file is there only for its time."""
    target = data.directory / f"written-{side}.tif"
    own = SIDES[side][0] != "GTiff"
    options = [option for option in options if own or not option.startswith("COPY_TILES=")]
    remove(target)
    try:
        return run("write", side, mode, source, target, *options, **config)
    finally:
        remove(target)


def remove(target):
    for path in target.parent.glob(f"{target.name}*"):
        path.unlink()


class Pixels:
    """The hash that every file of a raster must have."""

    def __init__(self):
        self._hashes = {}

    def check(self, source, best):
        """Against the source's own pixels; that the sides agree was checked before."""
        if source not in self._hashes:
            self._hashes[source] = run("write", "gtiff_all", "hash", source)["hash"]
        for side, found in best.items():
            if found.get("hash", self._hashes[source]) != self._hashes[source]:
                raise WrongPixels(f"{source.name}, written by {side}: not the source's pixels")


def judged(row):
    """The row with its goal."""
    codec, pattern = row["codec"], row["pattern"]
    asked = COPY_GOAL_NONE if (pattern, codec) == ("copy", "NONE") else GOALS[pattern]
    words = f"{asked:.2f} × ALL_CPUS"
    reached = is_reached(row["ratio_all"], asked)
    # Without a codec the limit is one copy in memory, where a file takes two.
    if pattern == "file" and codec != "NONE" and row["ratio_limit"] is not None:
        words += f", {LIMIT_GOAL} × limit"
        reached = reached and is_reached(row["ratio_limit"], LIMIT_GOAL)
    # What GTiff did for us is no result of ours; nor is a copy that should not be one.
    copied = int(row["counters"].get("TILES_COPIED", 0)) > 0
    own = not report.passed_on(row) and (DRIVER == "GTiff" or copied == (pattern == "copy"))
    return {**row, "goal": words, "reached": reached and own and row["ratio_size"] <= SIZE_GOAL}


def row_of(raster, codec, pattern, best):
    row = speed_row(raster, codec, pattern, best)
    row["source_counters"] = best["ours"]["source_counters"]
    row["file_mb"] = {side: found["file_bytes"] / 1e6
                      for side, found in best.items() if "file_bytes" in found}  # fmt: skip
    # Tiles of GDAL's codecs have the bytes of GTiff's with one thread; of LZMA its threads make others.
    base = "gtiff_1" if codec in GDAL_CODECS else "gtiff_all"
    row["ratio_size"] = row["file_mb"]["ours"] / row["file_mb"][base]
    return judged(row)


def case(data, raster, codec, mode, pace, pixels):
    """The rows of a case: tile copies take turns with the conversion that they stand for."""
    source = data.raster(raster, codec)
    options = creation_options(raster, codec)
    sides = {side: partial(write, data, side, mode, source, *options, "COPY_TILES=NO")
             for side in SIDES}  # fmt: skip
    if mode == "file" and codec not in GDAL_CODECS:
        sides["copy"] = partial(write, data, "ours", mode, source, *options)
    if codec in GDAL_CODECS:
        pass
    elif mode == "mem":
        sides |= limits("write", source)
    else:
        sides |= limits("convert", source, data.directory / "written-limit.tif")
    best = measure(sides, f"{source.name} {mode}", pace)
    if codec not in LOSSY:
        pixels.check(data.raster(raster, "NONE"), best)
    copy = best.pop("copy", None)
    rows = [row_of(raster, codec, mode, best)]
    if copy:
        gtiff = {side: best[side] for side in SIDES if side != "ours"}
        rows.append(row_of(raster, codec, "copy", {"ours": copy, **gtiff}))
    return rows


def peak(data, pixels):
    """Peak of the process for a raster of 250 MB and one of 8 GB, at GDAL_CACHEMAX=64. The last one
    is as large and wider: batches are whole tile rows, and those of another width fill their share
    of BATCH_MB better or worse."""
    raster = "terrain-int16"
    options = [*creation_options(raster, "ZSTD"), "ZSTD_LEVEL=1"]
    rows = []
    for across, down in ((6, 6), (6, 22), (11, 12)) if data.quick else ((1, 1), (1, 32), (4, 8)):
        source = data.mosaic(raster, across, down)
        found = write(data, "ours", "file", source, *options, GDAL_CACHEMAX="64")
        pixels.check(source, {"ours": found})
        rows.append({"raster": f"{raster} × {across} × {down}", "mb": found["bytes"] / 1e6,
                     "file_mb": found["file_bytes"] / 1e6, "seconds": found["seconds"],
                     "mib": found["peak_kb"] / 1024, "counters": found["counters"]})  # fmt: skip
    ratios = [row["mib"] / rows[0]["mib"] for row in rows]
    return {"rows": rows, "ratios": ratios, "reached": ratios[1] <= PEAK_GOAL}


def cases():
    """(mode, raster, codec)"""
    for mode in ("mem", "file"):
        for raster in RASTERS:
            for codec in (*CODECS, "PACKBITS"):
                yield mode, raster, codec
        for codec, raster in GDAL_CODECS.items():
            yield mode, raster, codec


def measured(data, wanted, pace):
    """All that is wanted; empty if nothing is."""
    result, pixels = {}, Pixels()
    for mode, raster, codec in cases():
        if wanted("write", raster, codec, mode, "copy" if mode == "file" else mode):
            for row in case(data, raster, codec, mode, pace, pixels):
                result.setdefault("speed", []).append(row)
                print(report.speed_line(row), flush=True)
    if wanted("write", "peak"):
        result["peak"] = peak(data, pixels)
    return result


def markdown(result):
    lines = report.opening("Writing", "write.svg", result, (
        "the clock running from CreateCopy() until the file is closed (not until the disk has it)",
        "Tiles of 256 × 256, predictor 3 for floating-point numbers and 2 for others where the "
        "codec has one, GTiff's default levels; with ALL_CPUS GTiff reads and writes on all "
        "cores. The files were read back by GTiff and their pixels compared. Decimal megabytes "
        "of pixels. The limit is the fastest codecs known to us, the predictor and, from "
        "memory, one copy out of place, from memory to memory, on all cores; the limit with files "
        "reads the same tiles from the file and writes them to another. Sizes are of our "
        f"file; one at most {SIZE_GOAL - 1:.0%} larger than GTiff's is part of every goal.",
    ))  # fmt: skip
    for pattern, title in PATTERNS.items():
        rows = [row for row in result.get("speed", []) if row["pattern"] == pattern]
        lines += report.speed_section(title, rows, limited=pattern != "copy",
                                      filed=pattern == "file", sized=True)  # fmt: skip
    if "peak" in result:
        found = result["peak"]
        lines += ["## Peak memory of a conversion (VmHWM, a mosaic to ZSTD_LEVEL=1, "
                  "GDAL_CACHEMAX=64)", ""]  # fmt: skip
        body = [[row["raster"], f"{row['mb']:.0f}", f"{row['file_mb']:.0f}",
                 f"{row['seconds']:.1f}", f"{row['mib']:.0f}", "", "", ""]
                for row in found["rows"]]  # fmt: skip
        for line, ratio in zip(body, found["ratios"]):
            line[-3] = report.number(ratio)
        body[1][-2:] = [f"at most {PEAK_GOAL:.2f}", report.tick(found["reached"])]
        body[2][-2] = "none: wider, so that batches fill their share of BATCH_MB"
        lines += report.table(["raster", "MB", "file MB", "s", "peak MiB", "÷ the smallest's",
                               "goal", "reached"], body)  # fmt: skip
    return "\n".join(lines)


def chart(result):
    """Bars of MB/s from memory and from file, tile copies as ratios to GTiff."""
    svg, rows = report.Svg(860), result.get("speed", [])
    titles = {"mem": "From memory to disk, MB/s", "file": "From file to file, MB/s"}
    for pattern, title in titles.items():
        svg.bars(title, [row for row in rows if row["pattern"] == pattern])
    svg.ratios("Tiles copied as they are, speed relative to GTiff with ALL_CPUS", [
        (f"{row['raster']} {row['codec']}", row["ratio_all"])
        for row in rows if row["pattern"] == "copy"])  # fmt: skip
    return svg.done()
