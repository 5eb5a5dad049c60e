"""Reads files that may be damaged, one JSON line in ({"path", "driver", "backward"}), one out: what happened.
Run as a process of its own, so that a crash, a hang or a memory hog is seen from outside."""

import hashlib
import json
import os
import sys
import time

import harness
from osgeo import gdal

MAX_BLOCKS = 600
MAX_BLOCK_BYTES = 64 << 20


def read_band(band, backward, said):
    """The hash of every block (up to a limit), None where it failed; listed forward in either order of
    reading. Messages go to `said`: GTiff may say something and yet give pixels."""
    bw, bh = band.GetBlockSize()
    if bw * bh * harness.sample_bytes(band.DataType) > MAX_BLOCK_BYTES:
        return "block too large to try"
    across, down = -(-band.XSize // bw), -(-band.YSize // bh)
    out = [None] * min(across * down, MAX_BLOCKS)
    for i in reversed(range(len(out))) if backward else range(len(out)):
        out[i] = read_block(band, i, said)
    return out


def read_block(band, number, said):
    """The hash of a block, None where it failed."""
    bw, bh = band.GetBlockSize()
    across = -(-band.XSize // bw)
    x, y = number % across * bw, number // across * bh
    with harness.Errors() as errors:
        data = band.ReadRaster(x, y, min(bw, band.XSize - x), min(bh, band.YSize - y))
    said += errors.failures()
    return None if data is None else hashlib.sha1(data).hexdigest()[:12]


def describe(path, driver, backward):
    with harness.Errors() as errors:
        ds = gdal.OpenEx(path, gdal.OF_RASTER | gdal.OF_VERBOSE_ERROR, allowed_drivers=[driver])
        out = {"open": ds is not None, "open_failures": errors.failures()}
        if ds is None:
            return out
        del errors[:]
        out["size"] = [ds.RasterXSize, ds.RasterYSize, ds.RasterCount]
        out["bands"], said = {}, []
        for i in range(1, min(ds.RasterCount, 4) + 1):
            band = ds.GetRasterBand(i)
            out["bands"]["%d" % i] = read_band(band, backward, said)
            out["bands"]["%d mask" % i] = read_band(band.GetMaskBand(), backward, said)
            for k in range(min(band.GetOverviewCount(), 3)):
                level = band.GetOverview(k)
                out["bands"]["%d level %d" % (i, k)] = read_band(level, backward, said) if level else "missing"
        out["said"] = len(said)
        out["whole"] = whole(ds)
    return out


def whole(ds):
    """One request over everything: fails as a whole where a block does."""
    if ds.RasterCount == 0:
        return "no bands"
    bw, bh = ds.GetRasterBand(1).GetBlockSize()
    if max(ds.RasterXSize, bw) * max(ds.RasterYSize, bh) * ds.RasterCount * 16 > MAX_BLOCK_BYTES:
        return "too large to try"
    with harness.Errors() as errors:
        data = ds.ReadRaster()
    return {"hash": None if data is None else hashlib.sha1(data).hexdigest()[:12],
            "failures": errors.failures()[:5]}  # fmt: skip


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print stays out of the answers
    for line in sys.stdin:
        ask = json.loads(line)
        start = time.time()
        out = describe(ask["path"], ask["driver"], ask["backward"])
        out.update(seconds=round(time.time() - start, 3), peak_kb=harness.peak_kb())
        answers.write(json.dumps(out) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
