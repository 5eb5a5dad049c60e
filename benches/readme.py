"""The figures in README.md, made from docs/benchmarks/*.json.

A complete `make bench` rewrites them; tests/python/test_readme.py holds README.md to the JSON."""

import json
import re
from pathlib import Path

from data import CODECS, GDAL_CODECS, RASTERS

ROOT = Path(__file__).resolve().parent.parent
RASTER_NAMES = {"terrain-float32": "terrain, float32", "terrain-int16": "terrain, int16",
                "imagery-rgb": "imagery, RGB 8-bit"}  # fmt: skip
RECODED = ("LZW", "DEFLATE", "ZSTD", "PACKBITS")
# column → report and pattern
GDAL_PATTERNS = {"whole raster": ("read", "full"), "row by row": ("read", "rows"),
                 "512 × 512 windows": ("read", "windows"), "written from memory": ("write", "mem"),
                 "file to file": ("write", "file")}  # fmt: skip


def load(directory=ROOT / "docs/benchmarks"):
    """{(report, raster, codec, pattern): row}"""
    rows = {}
    for report in ("read", "write"):
        for row in json.loads((directory / f"{report}.json").read_text())["speed"]:
            rows[report, row["raster"], row["codec"], row["pattern"]] = row
    return rows


def cell(row):
    return f"{row['mb_per_s']['ours']:.0f} ({row['ratio_all']:.1f} ×)"


def table(head, body):
    rule = "|" + "---|" * len(head)
    head, *body = ["| " + " | ".join(line) + " |" for line in [head, *body]]
    return "\n".join([head, rule, *body])


def by_raster(rows, report, codecs, pattern):
    body = [[RASTER_NAMES[raster], *(cell(rows[report, raster, codec, pattern]) for codec in codecs)]
            for raster in RASTERS]  # fmt: skip
    return table(["raster", *codecs], body)


def of_gdal_codecs(rows):
    if not all((report, raster, codec, pattern) in rows for codec, raster in GDAL_CODECS.items()
               for report, pattern in GDAL_PATTERNS.values()):  # fmt: skip
        return "(not part of the last complete run)"
    body = [[codec, *(cell(rows[report, raster, codec, pattern]) for report, pattern in GDAL_PATTERNS.values())]
            for codec, raster in GDAL_CODECS.items()]  # fmt: skip
    return table(["codec", *GDAL_PATTERNS], body)


def copy_speeds(rows):
    """The slowest and the fastest tile copy."""
    speeds = [row["mb_per_s"]["ours"] for (_, _, codec, pattern), row in rows.items() if pattern == "copy"]
    return f"{min(speeds):.0f} to {max(speeds):.0f} MB/s"


def figures(rows):
    """name of a marked part of README.md → its text"""
    return {
        "read": "\n" + by_raster(rows, "read", CODECS, "full") + "\n",
        "recode": "\n" + by_raster(rows, "write", RECODED, "file") + "\n",
        "gdal": "\n" + of_gdal_codecs(rows) + "\n",
        "copy": copy_speeds(rows),
    }


def filled_in(text, rows):
    """README's text with today's figures."""
    for name, figure in figures(rows).items():
        part = re.compile(f"(<!-- bench:{name} -->).*?(<!-- end -->)", re.DOTALL)
        text, count = part.subn(lambda found: found[1] + figure + found[2], text)
        if count != 1:
            raise ValueError(f"README.md has {count} parts named bench:{name}")
    return text


def rewrite():
    readme = ROOT / "README.md"
    readme.write_text(filled_in(readme.read_text(), load()))
