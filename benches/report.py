"""Writes a benchmark result as JSON, as Markdown tables and as an SVG chart."""

import json
from html import escape

PATTERNS = {
    "full": "Full read: the whole raster in one request",
    "rows": "Row by row, each row of all bands one request",
    "windows": "Random windows of 512 × 512",
    "pixels": "Single pixels at random places",
}
SIDES = {"gtiff_1": "GTiff, 1 thread", "gtiff_all": "GTiff, ALL_CPUS", "ours": "GPUGTiff"}
COLOURS = {"gtiff_1": "#b8c4d0", "gtiff_all": "#7d93a8", "ours": "#d9622b", "limit": "#222222"}


def tick(reached):
    return "yes" if reached else "**no**"


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def passed_on(row):
    """What went to GTiff (requests, blocks, tiles): our figures would then be its own."""
    return sum(int(value) for key, value in row["counters"].items() if key.endswith("_GTIFF"))


def speed_line(row):
    speed = row["mb_per_s"]
    return (
        f"{row['pattern']:8}{row['raster']:17}{row['codec']:8}"
        f"ours {speed['ours']:8.1f}  1 thread {speed['gtiff_1']:8.1f}  "
        f"ALL_CPUS {speed['gtiff_all']:8.1f}  limit {number(speed.get('limit'), 1):>8} MB/s  "
        f"× {row['ratio_all']:.2f}  goal {row['goal']}: {'yes' if row['reached'] else 'NO'}"
    )


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def speed_section(pattern, rows):
    in_seconds = pattern == "pixels"
    unit = "s" if in_seconds else "MB/s"

    def cell(row, side):
        values = row["seconds" if in_seconds else "mb_per_s"]
        return number(values.get(side), 2 if in_seconds else 0)

    limited = pattern == "full"
    head = ["raster", "codec", f"GPUGTiff {unit}", f"GTiff 1 thread {unit}",
            f"GTiff ALL_CPUS {unit}"]  # fmt: skip
    head += ["limit MB/s"] if limited else []
    head += ["÷ 1 thread", "÷ ALL_CPUS"] + (["÷ limit"] if limited else []) + ["goal", "reached"]
    body = []
    for row in rows:
        note = "" if row["codec"] == "JPEG" or not passed_on(row) else " (passed to GTiff)"
        line = [row["raster"], row["codec"] + note]
        line += [cell(row, side) for side in ("ours", "gtiff_1", "gtiff_all")]
        line += [cell(row, "limit")] if limited else []
        line += [number(row["ratio_1"]), number(row["ratio_all"])]
        line += [number(row["ratio_limit"])] if limited else []
        body.append(line + [row["goal"], tick(row["reached"])])
    return [f"## {PATTERNS[pattern]}", ""] + table(head, body)


def markdown(result):
    machine = result["machine"]
    load = f"Load average at the start: {machine['load']:.1f}. "
    lines = [
        "# Reading: GPUGTiff against GTiff",
        "",
        f"Measured by `make bench` on {machine['cores']} cores of {machine['cpu']}, "
        f"GDAL {machine['gdal']}: files in the page cache, one process a measurement, the sides "
        f"taking turns, best of {result['repeat']}, the clock running from open to the last "
        f"pixel, GDAL_CACHEMAX={result['cache_mb']}. {load}Pixels were compared with GTiff's. "
        "Decimal megabytes of pixels. The limit is the fastest decoder known to us, the "
        "predictor and one copy into place, from memory, on all cores.",
        "",
        "![chart](read.svg)",
        "",
    ]
    if machine["driver"] != "GPUGTiff":
        lines += [f"**A trial: {machine['driver']} stood in for GPUGTiff.**", ""]
    for pattern in PATTERNS:
        rows = [row for row in result["speed"] if row["pattern"] == pattern]
        if rows:
            lines += speed_section(pattern, rows)
    sides = ("ours", "gtiff_1", "gtiff_all")
    names = ["GPUGTiff", "GTiff 1 thread", "GTiff ALL_CPUS"]
    if "memory" in result:
        lines += ["## Peak memory above the caller's buffer (MiB, full read, GDAL_CACHEMAX=64)", ""]
        lines += table(["raster", "codec", *names, "bound", "reached"], [
            [row["raster"], row["codec"], *(f"{row['mib'][side]:.0f}" for side in sides),
             row["bound"], tick(row["reached"])] for row in result["memory"]])  # fmt: skip
    if "million" in result:
        row = result["million"]
        lines += ["## A million tiles: open and read one window", ""]
        lines += table(["", *names, "÷ GTiff's faster", "goal", "reached"], [
            ["ms", *(f"{row['seconds'][side] * 1e3:.2f}" for side in sides),
             number(row["ratio"]), "at most 1.10", tick(row["reached"])],
            ["bytes of the file read", *(f"{row['file_bytes_read'][side]:,}" for side in sides),
             "", "", ""]])  # fmt: skip
    if "requests" in result:
        lines += ["## HTTP requests over /vsicurl/", ""]
        lines += table(["read", *names, "goal", "reached"], [
            [f"{row['pattern']} × {row['count']}", *(row["requests"][side] for side in sides),
             "no more than GTiff", tick(row["reached"])] for row in result["requests"]])  # fmt: skip
    return "\n".join(lines)


class Svg:
    def __init__(self, width):
        self.width, self.parts = width, []

    def text(self, x, y, words, size=12, anchor="start", weight="normal", fill="#222"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}" fill="{fill}" stroke="white" stroke-width="3" '
                          f'paint-order="stroke">{escape(words)}</text>')  # fmt: skip

    def bar(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
                          f'height="{height:.1f}" fill="{fill}"/>')  # fmt: skip

    def done(self, height):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height:.0f}" '
            f'viewBox="0 0 {self.width} {height:.0f}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def chart(result):
    """Full reads as bars of MB/s, the other patterns as bars of the ratio to GTiff's faster."""
    svg, left, right, bar = Svg(860), 190, 70, 11
    span = svg.width - left - right
    full = [row for row in result["speed"] if row["pattern"] == "full"]
    rest = [row for row in result["speed"] if row["pattern"] != "full"]
    y = 28
    if full:
        svg.text(16, y, "Full read, MB/s of pixels", 15, weight="bold")
        legend = {**SIDES, "limit": "limit"}
        x = 330
        for side, name in legend.items():
            svg.bar(x, y - 10, 3 if side == "limit" else 11, 12, COLOURS[side])
            svg.text(x + 16, y, name, 11)
            x += 40 + 7 * len(name)
        y += 18
        scale = span / max(max(row["mb_per_s"].values()) for row in full)
        for row in full:
            speed = row["mb_per_s"]
            svg.text(left - 10, y + 2 * bar, f"{row['raster']} {row['codec']}", 11, "end")
            for i, side in enumerate(SIDES):
                svg.bar(left, y + i * bar, speed[side] * scale, bar - 1, COLOURS[side])
                svg.text(left + speed[side] * scale + 5, y + i * bar + 9, f"{speed[side]:.0f}", 9)
            if "limit" in speed:
                svg.bar(left + speed["limit"] * scale - 1, y - 2, 2.5, 3 * bar + 3, COLOURS["limit"])
            y += 3 * bar + 10
        y += 24
    if rest:
        svg.text(16, y, "Other patterns, speed relative to the faster of GTiff's two modes", 15,
                 weight="bold")  # fmt: skip
        y += 18
        ratios = [min(row["ratio_all"], row["ratio_1"]) for row in rest]
        scale = span / max(1.2, *ratios)
        height = len(rest) * (bar + 6)
        for row, ratio in zip(rest, ratios):
            label = f"{row['pattern']}, {row['raster']} {row['codec']}"
            svg.text(left - 10, y + 10, label, 10, "end")
            svg.bar(left, y, ratio * scale, bar + 2, COLOURS["ours"])
            y += bar + 6
        top = y - height
        svg.bar(left + scale - 0.75, top - 4, 1.5, height + 2, COLOURS["limit"])
        for i, ratio in enumerate(ratios):
            svg.text(left + ratio * scale + 5, top + i * (bar + 6) + 10, f"{ratio:.2f}", 9)
    return svg.done(y + 12)


def write(result, directory):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "read.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "read.md").write_text(markdown(result))
    (directory / "read.svg").write_text(chart(result))
