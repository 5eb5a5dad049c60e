"""Run by tests/foreign-gdal.sh: rasterio's GDAL alone, then with GDAL's own bindings in the same process."""

import logging
import os
import sys
import warnings

import numpy as np
import rasterio

warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
PIXELS = np.arange(3 * 300 * 280, dtype=np.uint16).reshape(3, 300, 280)


class Said(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append("%s %s" % (record.levelname, record.getMessage()))


def mapped(*words):
    with open("/proc/self/maps") as file:
        paths = {line.split()[-1] for line in file if "/" in line}
    return sorted(path for path in paths if any(word in os.path.basename(path) for word in words))


def works(path):
    """Written and read as ever, by GTiff."""
    profile = dict(driver="GTiff", width=280, height=300, count=3, dtype="uint16", compress="deflate", tiled=True)
    with rasterio.open(path, "w", **profile) as target:
        target.write(PIXELS)
    with rasterio.open(path) as source:
        assert source.driver == "GTiff" and (source.read() == PIXELS).all()
        assert not source.tags(ns="GPUGTIFF"), source.tags(ns="GPUGTIFF")


def alone(folder):
    said = Said()
    logging.getLogger("rasterio").addHandler(said)
    logging.getLogger("rasterio").setLevel(logging.DEBUG)
    with rasterio.Env(CPL_DEBUG="ON") as env:
        assert "GPUGTiff" not in env.drivers()
        works(os.path.join(folder, "alone.tif"))
    ours = [line for line in said.lines if "GPUGTIFF" in line]
    assert ours and all("DEBUG" in line and "the driver GPUGTiff is not registered" in line for line in ours), said.lines
    assert len(mapped("libgdal")) == 1, mapped("libgdal")
    assert not mapped("libgpugtiff"), mapped("libgpugtiff")
    print("foreign-gdal: rasterio %s, GDAL %s: %s" % (rasterio.__version__, rasterio.__gdal_version__, ours[0]))


def together(folder):
    from osgeo import gdal

    gdal.UseExceptions()
    path = os.path.join(folder, "together.tif")
    works(path)
    ds = gdal.OpenEx(path, allowed_drivers=["GPUGTiff"])
    assert (ds.ReadAsArray() == PIXELS).all() and ds.GetMetadata("GPUGTIFF")["ENGINE"]
    del ds
    works(path)
    with rasterio.Env() as env:
        assert "GPUGTiff" not in env.drivers()
    assert len(mapped("libgdal")) == 2 and len(mapped("libgpugtiff")) == 1, mapped("libgdal", "libgpugtiff")
    print("foreign-gdal: with osgeo.gdal %s in the same process: the driver is there only" % gdal.__version__)


alone(sys.argv[1])
together(sys.argv[1])
