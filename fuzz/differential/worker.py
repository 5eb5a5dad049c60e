"""Carries out cases, one JSON line in, one out: what happened, with hashes in place of pixels.

Run as a process of its own, with limits on memory; whoever started it sees crashes and hangs."""

import hashlib
import json
import os
import random
import resource
import sys
import time

import paths  # noqa: F401
import asks  # noqa: I001
import harness
import sequences
from osgeo import gdal

MAX_BLOCKS = 60
# When a difference is looked into.
MAX_FRESH = 2000
MAX_BYTES = 24 << 20
ASKS = 6


def digest(data):
    return None if data is None else hashlib.sha1(data).hexdigest()[:12]


def open_dataset(driver, path):
    return gdal.OpenEx(path, gdal.OF_RASTER | gdal.OF_VERBOSE_ERROR, allowed_drivers=[driver])


def read_blocks(ask, ds, find):
    """The hash of every block (up to a limit) of the band that `find` gets of a dataset, None where it
    failed. "fresh": each block is read by a dataset of its own, whose memory nobody has used."""
    band = find(ds)
    bw, bh = band.GetBlockSize()
    if bw * bh * harness.sample_bytes(band.DataType) > MAX_BYTES:
        return "blocks too large"
    across, down = -(-band.XSize // bw), -(-band.YSize // bh)
    out = [None] * min(across * down, MAX_FRESH if ask.get("fresh") else MAX_BLOCKS)
    for i in reversed(range(len(out))) if ask["backward"] else range(len(out)):
        if ask.get("fresh"):
            ds = open_dataset(ask["driver"], ask["path"])
            band = find(ds)
        x, y = i % across, i // across
        size = min(bw, band.XSize - x * bw), min(bh, band.YSize - y * bh)
        out[i] = digest(band.ReadRaster(x * bw, y * bh, *size))
    return out


def read(ask):
    """Everything of a file: bands, masks, overviews by blocks, all at once, and random requests."""
    driver, path = ask["driver"], ask["path"]
    ds = open_dataset(driver, path)
    if ds is None:
        return {"open": False}
    out = {"open": True, "size": [ds.RasterXSize, ds.RasterYSize, ds.RasterCount], "parts": {}}
    for i in range(1, min(ds.RasterCount, 4) + 1):
        band = ds.GetRasterBand(i)
        out["parts"]["type %d" % i] = [gdal.GetDataTypeName(band.DataType), band.GetMaskFlags()]
        out["parts"]["band %d" % i] = read_blocks(ask, ds, lambda d: d.GetRasterBand(i))
        out["parts"]["mask %d" % i] = read_blocks(ask, ds, lambda d: d.GetRasterBand(i).GetMaskBand())
        for k in range(min(band.GetOverviewCount(), 2)):
            out["parts"]["band %d overview %d" % (i, k)] = band.GetOverview(k) and read_blocks(
                ask, ds, lambda d: d.GetRasterBand(i).GetOverview(k))  # fmt: skip
    bw, bh = ds.GetRasterBand(1).GetBlockSize() if ds.RasterCount else (0, 0)
    if ds.RasterCount and max(ds.RasterXSize, bw) * max(ds.RasterYSize, bh) * min(ds.RasterCount, 100) * 16 < MAX_BYTES:
        if ds.RasterCount <= 100 and not ask.get("fresh"):
            out["parts"]["whole"] = digest(open_dataset(driver, path).ReadRaster())
            random_asks(ask, out["parts"])
    return out


def random_asks(ask, parts):
    """Requests that depend on the case's number and the file's shape; each on a dataset of its own, as
    after an error GTiff's cache may hold blocks that nobody read."""
    rng = random.Random(ask["asks"])
    for k in range(ASKS):
        ds = open_dataset(ask["driver"], ask["path"])
        one = asks.random_ask(rng, ds)
        parts["ask %d %s" % (k, json.dumps(one))] = digest(asks.answer(ds, one))


def write(ask):
    return sequences.carry_out(ask["driver"], ask["folder"], ask["case"])


def peak_kb(reset=False):
    if reset:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    return harness.peak_kb()


def main():
    limit = int(os.environ.get("GPUGTIFF_FUZZ_MB", "6000")) << 20
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print stays out of the answers
    gdal.SetErrorHandler("CPLQuietErrorHandler")
    gdal.SetCacheMax(16 << 20)
    for line in sys.stdin:
        ask = json.loads(line)
        # Of the processor: other processes take time from each of those that are compared.
        start, before = time.process_time(), peak_kb(reset=True)
        try:
            out = {"read": read, "write": write}[ask["do"]](ask)
        except (MemoryError, RuntimeError, SystemError) as e:
            out = {"raised": repr(e)[:200]}
        out.update(seconds=round(time.process_time() - start, 2), peak_kb=peak_kb() - before, rss_kb=peak_kb())
        out.update(cache_lost=gdal.GetCacheUsed())
        answers.write(json.dumps(out) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
