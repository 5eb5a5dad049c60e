"""ENGINE=AUTO on rasters that are large enough for a GPU: CUDA is started beside the work, both engines
are tried on real batches, the slower one is dropped (on the emulated driver that is the GPU), small
windows stay on the CPU, and nothing is ever printed."""

import json

import emulated
import harness
import pytest
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")

WIDTH, HEIGHT, TILE = 16384, 17408, 128  # 272 MiB of pixels in 17408 tiles

START = """
import json, sys, time
import emulated_worker as worker
from osgeo import gdal
path, target = sys.argv[1], sys.argv[2]
rows = b"".join(bytes([3 + x % 7]) * 128 for x in range(128)) * 1024

def reason():
    return worker.counters(ds)["ENGINE_REASON"]

def tiles(name):
    return int(worker.counters(ds).get("CUDA_TILES_" + name, 0))

def until(done, step, seconds=40):
    "Steps until it is done; the time is there for a machine that is busy."
    end = time.time() + seconds
    while not done() and time.time() < end:
        step()
    return done()

def say(**answer):
    print(json.dumps(dict(answer, reason=reason(), messages=worker.messages, counters=worker.counters(ds))))
"""

READING = START + """
ds, y, same = worker.open_ours(path), 0, True

def slab():
    global y, same
    same &= ds.ReadRaster(0, y, %d, 1024) == rows
    y = (y + 1024) %% ds.RasterYSize

slab()
first = reason()
decided = until(lambda: "faster" in reason(), slab)
[slab() for _ in range(3)]  # what was under way when it was decided
tried = tiles("DECODED")
[slab() for _ in range(6)]
say(same=same, first=first, decided=decided, tried=tried, afterwards=tiles("DECODED"))
""" % WIDTH

WRITING = START + """
how = ["COMPRESS=DEFLATE", "TILED=YES", "BLOCKXSIZE=128", "BLOCKYSIZE=128", "SPARSE_OK=YES"]
ds, y = gdal.GetDriverByName("GPUGTiff").Create(target, %d, 1 << 20, 1, gdal.GDT_Byte, how), 0

def slab():
    global y
    assert ds.WriteRaster(0, y, %d, 1024, rows) == 0
    y += 1024

decided = until(lambda: "faster" in reason() or y == ds.RasterYSize, slab) and "faster" in reason()
tried = tiles("ENCODED")
[slab() for _ in range(6)]
say(same=True, decided=decided, tried=tried, afterwards=tiles("ENCODED"), rows=y)
ds = None
theirs = worker.open_gtiff(target)
assert all(theirs.ReadRaster(0, top, %d, 1024) == rows for top in range(0, y, 1024))
""" % (WIDTH, WIDTH, WIDTH)

# Ten by ten tiles, whole ones, in no order that reading ahead could make larger batches of.
WINDOWS = START + """
ds, n, same = worker.open_ours(path), 0, True

def window():
    global n, same
    x, top = n * 7 % 11 * 1280, n * 5 % 13 * 1280
    same &= ds.ReadRaster(x, top, 1280, 1280) == rows[x : x + 1280] * 1280
    n += 1

window()
started = until(lambda: "starting" not in reason(), lambda: time.sleep(0.02))
[window() for _ in range(20)]
say(same=same, started=started, decoded=tiles("DECODED"))
"""


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


@pytest.fixture(scope="module")
def raster(tmp_path_factory):
    """Tiles of one value each: they are real, and pack to nothing."""
    path = str(tmp_path_factory.mktemp("auto") / "large.tif")
    how = ["COMPRESS=DEFLATE", "ZLEVEL=1", "TILED=YES", "BLOCKXSIZE=128", "BLOCKYSIZE=128", "NUM_THREADS=2"]
    ds = gdal.GetDriverByName("GTiff").Create(path, WIDTH, HEIGHT, 1, gdal.GDT_Byte, how)
    rows = b"".join(bytes([3 + x % 7]) * TILE for x in range(WIDTH // TILE)) * 1024
    for y in range(0, HEIGHT, 1024):
        ds.WriteRaster(0, y, WIDTH, 1024, rows)
    return path


def run(code, raster, tmp_path, **settings):
    """-> (answer, emulator's report). Blocks are not kept, so that every window is decoded."""
    report = tmp_path / "report.json"
    env = emulated.environment(report, engine="AUTO", GDAL_CACHEMAX="1", **settings)
    done = harness.run_python(code, raster, tmp_path / "out.tif", env=env)
    assert done.returncode == 0 and done.stderr == "", done
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert answer["same"] and answer["messages"] == [], answer
    return answer, json.loads(report.read_text()) if report.exists() else None


def batches(report):
    """nvCOMP's work on batches of the raster's; known tiles, which CUDA starts with, are few."""
    return [op for op in emulated.operations(report, "nvcomp") if op["bytes"] >= 160 * TILE * TILE]


def both_were_tried(answer, report):
    assert answer["decided"], answer
    assert answer["reason"].startswith("AUTO: the CPU is faster (CPU "), answer
    assert answer["counters"]["ENGINE"] == "CPU", answer
    # One batch that does not count and two that do; none afterwards.
    assert len(batches(report)) >= 3 and answer["tried"] >= 3 * 160, answer
    assert answer["afterwards"] == answer["tried"], answer
    assert answer["counters"]["CUDA_TILES_REDONE"] == "0" and not report["faults"], answer
    # CUDA was started by a thread that does nothing else.
    starter = emulated.operations(report, "nvcomp")[0]["thread"]
    assert starter not in {op["thread"] for op in batches(report)}


def test_reading_tries_both_and_drops_the_slower(raster, tmp_path):
    answer, report = run(READING, raster, tmp_path)
    both_were_tried(answer, report)
    # The first batches did not wait for it.
    assert answer["first"] in ("AUTO: CUDA is starting", "AUTO: not decided yet"), answer


def test_writing_tries_both_and_drops_the_slower(raster, tmp_path):
    both_were_tried(*run(WRITING, raster, tmp_path))


@pytest.mark.parametrize("multiprocessors", [80, 51, 50, 1])
def test_small_windows_stay_on_the_cpu(multiprocessors, raster, tmp_path):
    """Windows of a hundred tiles: enough for fifty multiprocessors, not for fifty-one."""
    answer, report = run(WINDOWS, raster, tmp_path, SMS=multiprocessors)
    assert answer["started"] and report["nvcomp"]["deflate"]["decompressed"] > 0, answer
    if multiprocessors > 50:
        assert answer["reason"] == "AUTO: not decided yet" and answer["decoded"] == 0, answer
    else:
        assert answer["decoded"] >= 3 * 100 and "the CPU is faster" in answer["reason"], answer


def test_where_there_is_no_driver(raster, tmp_path):
    answer, report = run(WINDOWS, raster, tmp_path, LD_LIBRARY_PATH="/nowhere")
    assert answer["reason"] == "AUTO: no NVIDIA driver is installed (libcuda.so.1 was not found)", answer
    assert answer["counters"]["ENGINE"] == "CPU" and report is None, answer
