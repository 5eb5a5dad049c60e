"""Peak memory is bounded by BATCH_MB whatever the raster's size: VmHWM of a child that writes a large raster is not
larger than of one that writes a small one, plus a little. Noise, so that a writer holding the compressed file shows."""

import json
import os

import harness
import numpy as np
import pytest
import written

SMALL, LARGE = 96, 1536  # MB of pixels
WIDTH = 8192
SLACK_KB = 12_000
ENV = {"GDAL_CACHEMAX": "64", "MALLOC_ARENA_MAX": "2"}

START = """
import json, os, sys
import harness, written
import numpy as np
from osgeo import gdal
path, source, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = json.loads(sys.argv[4])
noise = np.random.default_rng(1).bytes(4 << 20)
height = megabytes * (1 << 20) // %d
""" % WIDTH
END = """
ds = None
print(json.dumps([harness.peak_kb(), os.path.getsize(path)]))
"""

COPY = START + "ds = written.copy(path, gdal.Open(source), **options)\nassert ds is not None" + END
ROWS = START + """
ds = written.create(path, (1, height, %d), **options)
band = ds.GetRasterBand(1)
for y in range(0, height, 512):
    assert band.WriteRaster(0, y, %d, 512, noise) == 0
""" % (WIDTH, WIDTH) + END
BANDS = START + """
ds = written.create(path, (4, height // 4, %d), **options)
for b in range(4):
    for y in range(0, height // 4, 512):
        assert ds.GetRasterBand(b + 1).WriteRaster(0, y, %d, 512, noise) == 0
""" % (WIDTH, WIDTH) + END


def mosaic(folder, megabytes, interleaved=False):
    """A VRT that shows one file of noise many times: as large as one likes, cheap to read."""
    tile = os.path.join(str(folder), "tile.tif")
    if not os.path.exists(tile):
        written.noise_source(tile, WIDTH, 1024)
    height = megabytes * (1 << 20) // WIDTH
    parts = "".join(
        '<SimpleSource><SourceFilename>%s</SourceFilename><SourceBand>1</SourceBand><SrcRect xOff="0" yOff="0" '
        'xSize="%d" ySize="1024"/><DstRect xOff="0" yOff="%d" xSize="%d" ySize="1024"/></SimpleSource>'
        % (tile, WIDTH, y, WIDTH) for y in range(0, height, 1024))  # fmt: skip
    vrt = os.path.join(str(folder), "%d.vrt" % megabytes)
    with open(vrt, "w") as f:
        f.write('<VRTDataset rasterXSize="%d" rasterYSize="%d"><VRTRasterBand dataType="Byte" band="1">%s'
                "</VRTRasterBand></VRTDataset>" % (WIDTH, height, parts))  # fmt: skip
    return vrt


def peak(code, folder, megabytes, options):
    """-> (kB, bytes of the file); the file is gone afterwards."""
    path = os.path.join(str(folder), "o.tif")
    try:
        options = json.dumps({"BATCH_MB": 16, "TILED": "YES", **options})
        return harness.run_json(code, path, mosaic(folder, megabytes), megabytes, options, env=ENV, timeout=200)
    finally:
        if os.path.exists(path):
            os.remove(path)


WAYS = {
    "CreateCopy, NONE": (COPY, LARGE, dict(COMPRESS="NONE")),
    "CreateCopy, ZSTD": (COPY, LARGE // 2, dict(COMPRESS="ZSTD", ZSTD_LEVEL=1)),
    "rows, ZSTD": (ROWS, LARGE // 2, dict(COMPRESS="ZSTD", ZSTD_LEVEL=1)),
    "rows into strips, NONE": (ROWS, LARGE // 2, dict(COMPRESS="NONE", TILED="NO")),
    "band by band, NONE": (BANDS, LARGE // 3, dict(COMPRESS="NONE", INTERLEAVE="PIXEL")),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_peak_does_not_grow_with_the_raster(tmp_path, way, total):
    code, large, options = WAYS[way]
    few, _ = peak(code, tmp_path, SMALL, options)
    many, size = peak(code, tmp_path, large, options)
    print("%s: %d kB for %d MB, %d kB for %d MB" % (way, few, SMALL, many, large))
    assert size > large * 1_000_000, "not %d MB were written" % large
    assert many <= few + SLACK_KB, "%s: %d kB for %d MB, %d kB for %d MB" % (way, few, SMALL, many, large)


def test_peak_follows_the_batch(tmp_path):
    """And it is BATCH_MB that bounds it: a small one takes less than a large one takes."""
    written.ours_only()
    options = dict(COMPRESS="NONE")
    small = peak(COPY, tmp_path, 384, dict(options, BATCH_MB=4))[0]
    large = peak(COPY, tmp_path, 384, dict(options, BATCH_MB=64))[0]
    assert small + 20_000 < large, "%d kB with 4, %d kB with 64" % (small, large)


def test_mask_and_holes_take_no_memory(tmp_path):
    """A raster of 4 GB of which nothing is written but a corner: Create(), close, in little memory."""
    code = """
import json, sys
import harness, written
before = harness.peak_kb()
ds = written.create(sys.argv[1], (1, 65536, 65536), TILED="YES", COMPRESS="DEFLATE", SPARSE_OK="YES", BATCH_MB=16)
assert ds.GetRasterBand(1).WriteRaster(65000, 65000, 100, 100, bytes(range(100)) * 100) == 0
ds = None
print(json.dumps([harness.peak_kb() - before]))
"""
    (grown,) = harness.run_json(code, tmp_path / "o.tif", env=ENV)
    assert grown < 120_000, "%d kB" % grown
    ds = harness.open_gtiff(str(tmp_path / "o.tif"))
    harness.same_bytes(ds.ReadRaster(65000, 65000, 100, 100), bytes(range(100)) * 100, "the corner")
    assert not np.frombuffer(ds.ReadRaster(0, 0, 5000, 5000), np.uint8).any()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_unfinished_tiles_go_to_a_file_without_a_name(tmp_path, elsewhere):
    """Beside the target, or in CPL_TMPDIR: open, unlinked, and gone with the dataset."""
    written.ours_only()
    code = """
import json, os, sys
import harness, written
folder = sys.argv[2]
raster = written.Raster(harness.rng("spill"), "uint8", (3, 2048, 2048))
ds = raster.create(sys.argv[1], COMPRESS="LZW", INTERLEAVE="PIXEL", BATCH_MB=1)
def held():
    fds = ["/proc/self/fd/" + f for f in os.listdir("/proc/self/fd")]
    links = [os.readlink(f) for f in fds if os.path.islink(f)]
    return [os.path.dirname(l) for l in links if l.endswith("(deleted)")]
for y in range(0, 2048, 256):
    raster.write(ds, 0, y, 2048, 256, [1])
names, held_open = sorted(os.listdir(folder)) + sorted(os.listdir(os.path.dirname(sys.argv[1]))), held()
written.bands_backwards_by_rows(None, raster, ds)
ds = None
print(json.dumps([names, held_open, held(), written.read_gtiff(sys.argv[1]) == raster.whole()]))
"""
    (tmp_path / "out").mkdir()
    (tmp_path / "tmp").mkdir()
    env = {"CPL_TMPDIR": str(tmp_path / "tmp"), "GDAL_CACHEMAX": "1"} if elsewhere else {"GDAL_CACHEMAX": "1"}
    names, open_, after, right = harness.run_json(code, tmp_path / "out" / "o.tif", tmp_path / "tmp", env=env)
    assert names == ["o.tif"], "a name that a kill would leave behind: %s" % names
    assert open_ == [str(tmp_path / ("tmp" if elsewhere else "out"))] and after == [], (open_, after)
    assert right
