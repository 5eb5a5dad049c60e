#!/usr/bin/env python3
"""Draws docs/cuda-timeline.svg: how batches overlap on the device, by the modelled clock of the
emulated driver's report (its copies, nvCOMP calls and kernels, each stream a line).

    .venv/bin/python tools/timeline.py                  makes the report itself: five batches of 1024
                                                        tiles of 16 KiB (after `make plugin emulator`)
    tools/timeline.py report.json [picture.svg]         draws a report that is there
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "cuda-timeline.svg"
KINDS = {"H2D": "up", "nvcomp": "nvcomp", "kernel": "kernel", "D2H": "down"}
ROLES = {"up": "in", "nvcomp": "compute", "kernel": "compute", "down": "out"}
LINES = ("in", "compute", "out")
WIDTH, LEFT, RIGHT, TOP, BAR, STEP = 860, 74, 14, 46, 34, 50

# Bars have one colour each on both grounds, with dark figures; words and rules follow the reader's.
STYLE = """
text{font:12px system-ui,sans-serif;fill:#24292f}
.rule{stroke:#8c959f;stroke-width:.5}
.up{fill:#6cb6ff}.nvcomp{fill:#8ddb8c}.kernel{fill:#f0b357}.down{fill:#dca6f5}
rect{stroke:#57606a;stroke-width:.5}
.n{fill:#14171a;text-anchor:middle}.m{text-anchor:middle}
@media(prefers-color-scheme:dark){text{fill:#d1d7e0}.n{fill:#14171a}.rule{stroke:#656c76}}
"""


def bars(report):
    """(line, class, name, begin, end, batch) of everything that takes the device's time. A batch begins
    with its copy up; on each stream batches come in order."""
    found, seen = [], {}
    for op in report["timeline"]:
        kind = KINDS.get(op["kind"])
        if kind is None or op["executed"] is None:
            continue
        # A batch has one copy up, one nvCOMP call and one copy down; kernels go with the call before.
        if kind == "kernel":
            batch = seen.get("nvcomp", 1)
        else:
            batch = seen[kind] = seen.get(kind, 0) + 1
        found.append((ROLES[kind], kind, op["name"], op["start_ns"], op["end_ns"], batch))
    counts = {seen.get(kind) for kind in ("up", "nvcomp", "down")}
    if len(counts) != 1 or None in counts:
        raise SystemExit("not a report of decoded batches: %s" % seen)
    return found


def tick(span):
    """A round number of nanoseconds, of which there are at most ten in the span."""
    steps = (digit * 10**power for power in itertools.count(3) for digit in (1, 2, 5))
    return next(step for step in steps if span <= 10 * step)


def picture(found):
    begin, end = min(bar[3] for bar in found), max(bar[4] for bar in found)
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    place = lambda ns: LEFT + (ns - begin) * scale  # noqa: E731
    height = TOP + STEP * len(LINES) + 26
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">' % (WIDTH, height),
        "<title>Batches on the device, by the emulated driver's modelled clock</title>",
        "<style>%s</style>" % STYLE.replace("\n", ""),
    ]
    x = LEFT
    for name, kind in [("copy up", "up"), ("nvCOMP", "nvcomp"), ("our kernels", "kernel"), ("copy down", "down")]:
        out.append('<rect class="%s" x="%d" y="9" width="14" height="14"/>' % (kind, x))
        out.append('<text x="%d" y="21">%s</text>' % (x + 20, name))
        x += 50 + 7 * len(name)
    bottom, step = TOP + STEP * len(LINES), tick(end - begin)
    for n in range(int((end - begin) // step) + 1):
        at = place(begin + n * step)
        out.append('<path class="rule" d="M%.1f %dV%d"/>' % (at, TOP - 8, bottom - 4))
        unit = "" if n * step + step <= end - begin else " ms"
        out.append('<text class="m" x="%.1f" y="%d">%g%s</text>' % (at, bottom + 14, n * step / 1e6, unit))
    for i, line in enumerate(LINES):
        out.append('<text x="4" y="%d">%s</text>' % (TOP + STEP * i + 22, line))
    for line, kind, name, start, stop, batch in found:
        y, x, width = TOP + STEP * LINES.index(line), place(start), max((stop - start) * scale, 0.8)
        tip = "batch %d: %s, %.3f to %.3f ms" % (batch, name, (start - begin) / 1e6, (stop - begin) / 1e6)
        shape = 'class="%s" x="%.1f" y="%d" width="%.1f" height="%d"' % (kind, x, y, width, BAR)
        out.append("<rect %s><title>%s</title></rect>" % (shape, tip))
        if width >= 11:
            out.append('<text class="n" x="%.1f" y="%d">%d</text>' % (x + width / 2, y + 22, batch))
    return "\n".join(out + ["</svg>", ""])


def make_report():
    """Five batches of 1024 tiles of 16 KiB, after CUDA was started by another file, as in test_cuda.py."""
    sys.path.insert(0, str(ROOT / "tests" / "python"))
    import emulated
    import test_cuda

    with tempfile.TemporaryDirectory() as where:
        where = Path(where)
        few, many = (test_cuda.options("DEFLATE", 2, tile) for tile in (32, 128))
        small = test_cuda.make(where / "small.tif", "u1", size=(64, 64), options=few)
        path = test_cuda.make(where / "in.tif", "u1", size=(4096, 128 * 160), options=many)
        order = {"do": "read", "path": path, "reset": small, "report": True}
        return emulated.alone(emulated.work(order, where, GPUGTIFF_VERIFY="NO")).report


def main(arguments):
    report = json.loads(Path(arguments[0]).read_text()) if arguments else make_report()
    target = Path(arguments[1]) if len(arguments) > 1 else PICTURE
    found = bars(report)
    target.write_text(picture(found))
    print("%s: %d batches, %d bytes" % (target, max(bar[5] for bar in found), target.stat().st_size))


if __name__ == "__main__":
    main(sys.argv[1:])
