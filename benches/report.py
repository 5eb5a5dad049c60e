"""What the reports share: Markdown tables of speeds, SVG bars, and the files themselves."""

import json
from html import escape

SIDES = {"gtiff_1": "GTiff, 1 thread", "gtiff_all": "GTiff, ALL_CPUS", "ours": "GPUGTiff"}
COLOURS = {"gtiff_1": "#b8c4d0", "gtiff_all": "#7d93a8", "ours": "#d9622b", "limit": "#222222"}
# The columns of a table.
ORDER = ("ours", "gtiff_1", "gtiff_all")
NAMES = ("GPUGTiff", "GTiff 1 thread", "GTiff ALL_CPUS")


def tick(reached):
    return "yes" if reached else "**no**"


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def passed_on(row):
    """What went to GTiff (requests, blocks, tiles, files): our figures would then be its own."""
    counters = [*row["counters"].items(), *row.get("source_counters", {}).items()]
    return sum(int(value) for key, value in counters if key.endswith("_GTIFF"))


def speed_line(row):
    speed = row["mb_per_s"]
    size = f"  size × {row['ratio_size']:.3f}" if "ratio_size" in row else ""
    return (
        f"{row['pattern']:8}{row['raster']:17}{row['codec']:9}"
        f"ours {speed['ours']:8.1f}  1 thread {speed['gtiff_1']:8.1f}  "
        f"ALL_CPUS {speed['gtiff_all']:8.1f}  limit {number(speed.get('limit'), 1):>8} MB/s  "
        f"× {row['ratio_all']:.2f}{size}  goal {row['goal']}: {'yes' if row['reached'] else 'NO'}"
    )


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def opening(subject, picture, result, words):
    """Title, how it was measured, the chart. `words`: of the clock, and of what is shown."""
    machine = result["machine"]
    lines = [
        f"# {subject}: GPUGTiff against GTiff",
        "",
        f"Measured by `make bench` on {machine['cores']} cores of {machine['cpu']}, "
        f"GDAL {machine['gdal']}: files in the page cache, one process a measurement, the sides "
        f"taking turns, best of {result['repeat']} (short measurements: of up to "
        f"{result['most_rounds']}; those of many seconds: fewer), {words[0]}, "
        f"GDAL_CACHEMAX={result['cache_mb']}. "
        f"Load average at the start: {machine['load']:.1f}. {words[1]}",
        "",
        f"![chart]({picture})",
        "",
    ]
    if machine["driver"] != "GPUGTiff":
        lines += [f"**A trial: {machine['driver']} stood in for GPUGTiff.**", ""]
    return lines


def speed_section(title, rows, limited, in_seconds=False, filed=False, sized=False):
    """A table of the rows; nothing without any."""
    if not rows:
        return []
    unit = "s" if in_seconds else "MB/s"

    def cell(row, side):
        values = row["seconds" if in_seconds else "mb_per_s"]
        return number(values.get(side), 2 if in_seconds else 0)

    head = ["raster", "codec", *(f"{name} {unit}" for name in NAMES)]
    head += ["limit MB/s"] if limited else []
    head += ["limit with files"] if filed else []
    head += ["÷ 1 thread", "÷ ALL_CPUS"] + (["÷ limit"] if limited else [])
    head += ["÷ limit with files"] if filed else []
    head += ["size MB", "÷ GTiff's size"] if sized else []
    body = []
    for row in rows:
        note = " (passed to GTiff)" if passed_on(row) else ""
        line = [row["raster"], row["codec"] + note]
        line += [cell(row, side) for side in ORDER]
        line += [cell(row, "limit")] if limited else []
        line += [cell(row, "files")] if filed else []
        line += [number(row["ratio_1"]), number(row["ratio_all"])]
        line += [number(row["ratio_limit"])] if limited else []
        line += [number(row["ratio_files"])] if filed else []
        line += [number(row["file_mb"]["ours"], 1), number(row["ratio_size"], 3)] if sized else []
        body.append(line + [row["goal"], tick(row["reached"])])
    return [f"## {title}", ""] + table([*head, "goal", "reached"], body)


class Svg:
    """A column of bar charts."""

    LEFT, RIGHT, BAR = 190, 70, 11

    def __init__(self, width):
        self.width, self.y, self.parts = width, 28, []
        self.span = width - self.LEFT - self.RIGHT

    def text(self, x, y, words, size=12, anchor="start", weight="normal", fill="#222"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}" fill="{fill}" stroke="white" stroke-width="3" '
                          f'paint-order="stroke">{escape(words)}</text>')  # fmt: skip

    def bar(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
                          f'height="{height:.1f}" fill="{fill}"/>')  # fmt: skip

    def bars(self, title, rows):
        """MB/s of each side, the limit as a mark across them if it is on the scale."""
        if not rows:
            return
        self.text(16, self.y, title, 15, weight="bold")
        x = 330
        for side, name in {**SIDES, "limit": "limit"}.items():
            self.bar(x, self.y - 10, 3 if side == "limit" else 11, 12, COLOURS[side])
            self.text(x + 16, self.y, name, 11)
            x += 40 + 7 * len(name)
        self.y += 18
        most = max(row["mb_per_s"][side] for row in rows for side in SIDES)
        limits = [row["mb_per_s"].get("limit", 0) for row in rows]
        most = max(most, *(limit if limit <= 2 * most else 0 for limit in limits))
        scale, bar = self.span / most, self.BAR
        for row in rows:
            speed, label = row["mb_per_s"], f"{row['raster']} {row['codec']}"
            self.text(self.LEFT - 10, self.y + 2 * bar, label, 11, "end")
            for i, side in enumerate(SIDES):
                self.bar(self.LEFT, self.y + i * bar, speed[side] * scale, bar - 1, COLOURS[side])
            limit = speed.get("limit", 0)
            if 0 < limit <= most:
                at = self.LEFT + limit * scale - 1
                self.bar(at, self.y - 2, 2.5, 3 * bar + 3, COLOURS["limit"])
            elif limit:
                self.text(self.width - 8, self.y + 3 * bar - 2, f"limit {limit:.0f} →", 9, "end")
            for i, side in enumerate(SIDES):
                at = self.LEFT + speed[side] * scale + 5
                self.text(at, self.y + i * bar + 9, f"{speed[side]:.0f}", 9)
            self.y += 3 * bar + 10
        self.y += 24

    def ratios(self, title, ratios):
        """One bar for each (label, ratio), with a mark at 1."""
        if not ratios:
            return
        self.text(16, self.y, title, 15, weight="bold")
        self.y += 18
        bar, top = self.BAR, self.y
        scale = self.span / max(1.2, *(ratio for _, ratio in ratios))
        for label, ratio in ratios:
            self.text(self.LEFT - 10, self.y + 10, label, 10, "end")
            self.bar(self.LEFT, self.y, ratio * scale, bar + 2, COLOURS["ours"])
            self.y += bar + 6
        self.bar(self.LEFT + scale - 0.75, top - 4, 1.5, self.y - top + 2, COLOURS["limit"])
        for i, (_, ratio) in enumerate(ratios):
            self.text(self.LEFT + ratio * scale + 5, top + i * (bar + 6) + 10, f"{ratio:.2f}", 9)

    def done(self):
        height = self.y + 12
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height:.0f}" '
            f'viewBox="0 0 {self.width} {height:.0f}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def save(name, result, subject, directory):
    """name.md, .json and .svg, the first and the last as `subject` makes them of the result."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / f"{name}.md").write_text(subject.markdown(result))
    (directory / f"{name}.svg").write_text(subject.chart(result))
