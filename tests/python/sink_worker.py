"""Under sinkfault.c: reads a job a line, writes the source to the target in a forked process with the fault that the
job asks for, then tells how it ended and what is left. Started by sinkfault.Worker."""

import ctypes
import json
import os
import sys
import time

import harness
import tiffpatch
from osgeo import gdal

S = json.loads(sys.argv[1])
LIBRARY = ctypes.CDLL(S["library"])
LIBRARY.sinkfault_set.argtypes = [ctypes.c_char_p, ctypes.c_char_p] + [ctypes.c_long] * 6
for name in ("calls", "bytes", "faults"):
    getattr(LIBRARY, "sinkfault_" + name).restype = ctypes.c_long
FOLDER = os.path.dirname(S["target"])
TIMEOUT = 60
TILES = {}  # counters of a copy


# ---- ways of writing -----------------------------------------------------------------------


def copy(source):
    ds = gdal.GetDriverByName(S["driver"]).CreateCopy(S["target"], source, options=S["options"])
    for name, counter in S["counters"].items():
        TILES[name] = int(ds and ds.GetMetadataItem(counter, harness.DOMAIN) or 0)
    return ds is not None


def _create(source):
    return gdal.GetDriverByName(S["driver"]).Create(
        S["target"], source.RasterXSize, source.RasterYSize, source.RasterCount,
        source.GetRasterBand(1).DataType, S["options"])  # fmt: skip


def _put(source, ds, x, y, w, h, bands=None):
    bands = bands or list(range(1, source.RasterCount + 1))
    return ds.WriteRaster(x, y, w, h, source.ReadRaster(x, y, w, h, band_list=bands), band_list=bands) == 0


def rows(source):
    ds = _create(source)
    w, h = source.RasterXSize, source.RasterYSize
    return ds is not None and all(_put(source, ds, 0, y, w, min(64, h - y)) for y in range(0, h, 64))


def bands(source):
    """Band after band: into a pixel-interleaved file every tile is left unfinished until the last band."""
    ds = _create(source)
    w, h = source.RasterXSize, source.RasterYSize
    return ds is not None and all(
        _put(source, ds, 0, y, w, min(64, h - y), [b + 1]) for b in range(source.RasterCount) for y in range(0, h, 64))


def upwards(source):
    ds = _create(source)
    w, h = source.RasterXSize, source.RasterYSize
    return ds is not None and all(_put(source, ds, 0, y, w, min(64, h - y)) for y in reversed(range(0, h, 64)))


def flushed(source):
    """Half of it, FlushCache, the rest: between the two the file may open with the upper half right."""
    ds = _create(source)
    w, h = source.RasterXSize, source.RasterYSize
    if ds is None or not _put(source, ds, 0, 0, w, h // 2):
        return False
    ds.FlushCache()
    return all(_put(source, ds, 0, y, w, min(64, h - y)) for y in range(h // 2, h, 64))


def again(source):
    """Other pixels, FlushCache, and the right ones over them, each tile where it is."""
    ds = _create(source)
    w, h, bands = source.RasterXSize, source.RasterYSize, source.RasterCount
    other = [inverted(source.GetRasterBand(b + 1).ReadRaster()) for b in range(bands)]
    if ds is None or ds.WriteRaster(0, 0, w, h, b"".join(other)) != 0:
        return False
    ds.FlushCache()
    return _put(source, ds, 0, 0, w, h)


def inverted(plane):
    return bytes(plane).translate(bytes(range(255, -1, -1)))


def masked(source, after=0, call=lambda ds: None):
    """Create() with a mask: inside, or beside by a dataset of GDAL's own."""
    ds = _create(source)
    w, h = source.RasterXSize, source.RasterYSize
    if ds is None or ds.CreateMaskBand(gdal.GMF_PER_DATASET) != 0:
        return False
    mask = source.GetRasterBand(1).GetMaskBand()
    if ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, mask.ReadRaster()) != 0:
        return False
    for y in range(0, h, 64):
        if not _put(source, ds, 0, y, w, min(64, h - y)):
            return False
        if y == after:
            call(ds)
    return True


def masked_flushed(source):
    half = source.RasterYSize // 128 * 64
    return masked(source, half, lambda ds: ds.FlushCache())


def masked_overviews(source):
    """What is built from mask and pixels finishes the file first."""
    last = (source.RasterYSize - 1) // 64 * 64
    return masked(source, last, lambda ds: ds.BuildOverviews("NEAREST", [4]))


WAYS = {f.__name__: f for f in (copy, rows, bands, upwards, flushed, again, masked, masked_flushed, masked_overviews)}


# ---- one job -------------------------------------------------------------------------------


def child(job, out):
    errors = []
    gdal.PushErrorHandler(lambda cls, no, text: errors.append(text) if cls >= gdal.CE_Failure else None)
    source = harness.open_gtiff(S["source"])
    if not (job["fail"] or job["kill"]):
        LIBRARY.sinkfault_log(S["log"].encode())
    LIBRARY.sinkfault_set(FOLDER.encode(), S["target"].encode(), job["only"], job["fail"], job["error"],
                          job["sticky"], job["kill"], job["flush"])  # fmt: skip
    done = WAYS[job["way"]](source)
    counts = [LIBRARY.sinkfault_calls(), LIBRARY.sinkfault_bytes(), LIBRARY.sinkfault_faults()]
    LIBRARY.sinkfault_set(b"", b"", 0, 0, 0, 0, 0, 0)
    os.write(out, json.dumps([done, errors[:3], counts, TILES]).encode())
    os._exit(0 if done and not errors else 1)


def wait(pid):
    """-> exit code, negative for a signal; a hang is ended and told as None."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        got, status = os.waitpid(pid, os.WNOHANG)
        if got:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def whole(path):
    """Each band, and the mask if there is one; None where it does not open."""
    ds = gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=["GTiff"])
    bands = ds and [ds.GetRasterBand(i + 1) for i in range(ds.RasterCount)]
    if bands and bands[0].GetMaskFlags() == gdal.GMF_PER_DATASET:
        bands.append(bands[0].GetMaskBand())
    return bands and [bytes(band.ReadRaster() or b"") for band in bands]


def flushed_right(found, want, width, height):
    """The upper half as written; below it a row is as written or still empty (read band by band)."""
    for f, w in zip(found, want):
        for y in range(height):
            row = slice(y * width, y * width + width)
            if f[row] != w[row] and (y < height // 2 or any(f[row])):
                # A tile row that holds the border of what was flushed counts as flushed only down to the border.
                return False
    return True


def look(job, want):
    """What is left of it, told by GTiff."""
    out = {"left": sorted(os.listdir(FOLDER)), "opens": False, "right": False, "size": 0, "tiles": 0}
    if os.path.exists(S["target"]):
        out["size"] = os.path.getsize(S["target"])
        found = whole(S["target"])
        out["opens"] = found is not None
        out["right"] = found == want["planes"] or (
            found is not None and job["way"].endswith("flushed") and len(found) == len(want["planes"])
            and flushed_right(found, want["planes"], *want["size"])) or (
            found is not None and job["way"] == "again" and found == [inverted(p) for p in want["planes"]])  # fmt: skip
        if out["right"]:
            out["tiles"] = len(tiffpatch.Tiff(S["target"]).striles())
    for name in out["left"]:
        os.remove(os.path.join(FOLDER, name))
    return out


def run(job, want):
    if os.path.exists(S["log"]):
        os.remove(S["log"])
    inside, outside = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(job, outside)
    os.close(outside)
    code = wait(pid)
    with os.fdopen(inside, "rb") as f:
        told = f.read()
    done, errors, counts, tiles = json.loads(told) if told else (False, [], [0, 0, 0], {})
    out = {"code": code, "done": done, "errors": errors, "calls": counts[0], "bytes": counts[1], "faults": counts[2],
           **tiles}  # fmt: skip
    if os.path.exists(S["log"]):
        with open(S["log"]) as f:
            out["log"] = [line.split()[1:3] for line in f]
    return {**out, **look(job, want)}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    gdal.PushErrorHandler("CPLQuietErrorHandler")
    source = harness.open_gtiff(S["source"])
    want = {"planes": whole(S["source"]), "size": (source.RasterXSize, source.RasterYSize)}
    source = None
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), want)), flush=True)


if __name__ == "__main__":
    main()
