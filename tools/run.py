"""make run: convert a TIFF through GPUGTiff and show that the pixels are GTiff's.

    run.py [IN OUT]

Without IN a small sample raster is made. The output appears under its name only when it
is complete and compared; the comparison goes window by window, so that memory stays bounded whatever
the size of the file.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from osgeo import gdal, osr

ROOT = Path(__file__).resolve().parent.parent
WINDOW_BYTES = 32 << 20
SIDECARS = (".aux.xml", ".msk", ".ovr", ".msk.ovr")


class Failure(Exception):
    """Something the user is to be told, without a traceback."""


def make_sample(path, size=2048):
    """Hills and noise in three bands: the same bytes on every machine."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    noise = np.random.RandomState(1).randint(0, 6, (size, size))
    options = ["TILED=YES", "COMPRESS=DEFLATE", "PREDICTOR=2", "INTERLEAVE=PIXEL"]
    path.parent.mkdir(parents=True, exist_ok=True)
    ds = gdal.GetDriverByName("GTiff").Create(str(path), size, size, 3, gdal.GDT_Byte, options)
    srs = osr.SpatialReference()
    srs.ImportFromEPSG(32632)
    ds.SetProjection(srs.ExportToWkt())
    ds.SetGeoTransform((500000, 10, 0, 5200000, 0, -10))
    for band in range(3):
        hills = np.sin((5 + 3 * band) * x) * np.cos((7 - band) * y) + np.sin(31 * x * y) / 4
        ds.GetRasterBand(band + 1).WriteArray((120 + 80 * hills + noise).astype(np.uint8))


def open_with(driver, path):
    try:
        return gdal.OpenEx(str(path), gdal.OF_RASTER, allowed_drivers=[driver])
    except RuntimeError as error:
        raise Failure(f"{driver} can't open {path}: {error}") from None


@contextmanager
def staged(target):
    """A path beside the target to write to; renamed to it if the block ends well."""
    directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        path = directory / target.name
        yield path
        for suffix in SIDECARS:
            part = Path(f"{path}{suffix}")
            if part.exists():
                os.replace(part, f"{target}{suffix}")
            else:  # left by an earlier file of this name
                Path(f"{target}{suffix}").unlink(missing_ok=True)
        os.replace(path, target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def translate(driver, source, target):
    command = ["gdal_translate", "-if", driver, "-of", driver, source, str(target)]
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        raise Failure(f"gdal_translate failed (status {status}); OUT was not written")


def windows(ds):
    """Windows of whole blocks that cover the raster, each of at most WINDOW_BYTES if one
    block is; taller or wider blocks are cut."""
    band = ds.GetRasterBand(1)  # a TIFF has one type and block size for all bands
    block_x, block_y = band.GetBlockSize()
    pixel = gdal.GetDataTypeSize(band.DataType) // 8 * ds.RasterCount
    pixels = max(1, WINDOW_BYTES // pixel)

    def extent(limit, block, whole):
        return min(whole, max(1, limit // block * block or limit))

    width = extent(pixels // min(block_y, max(1, int(pixels**0.5))), block_x, ds.RasterXSize)
    height = extent(pixels // width, block_y, ds.RasterYSize)
    for y in range(0, ds.RasterYSize, height):
        for x in range(0, ds.RasterXSize, width):
            yield x, y, min(width, ds.RasterXSize - x), min(height, ds.RasterYSize - y)


def compare(reference, others):
    """Counts the samples compared; raises at the first window that differs."""
    shape = (reference.RasterXSize, reference.RasterYSize, reference.RasterCount)
    for name, ds in others.items():
        if (ds.RasterXSize, ds.RasterYSize, ds.RasterCount) != shape:
            raise Failure(f"{name} is not of the size GTiff reads")
    for window in windows(reference):
        expected = reference.ReadRaster(*window)
        for name, ds in others.items():
            if ds.ReadRaster(*window) != expected:
                x, y, width, height = window
                raise Failure(
                    f"{name} differs from GTiff's pixels in the window "
                    f"{width} × {height} at column {x}, row {y}"
                )
    return shape[0] * shape[1] * shape[2]


def describe(ds):
    structure = ds.GetMetadata("IMAGE_STRUCTURE")
    bands = f"{ds.RasterCount} band{'s' if ds.RasterCount != 1 else ''}"
    kind = gdal.GetDataTypeName(ds.GetRasterBand(1).DataType)
    compression = structure.get("COMPRESSION", "uncompressed")
    return f"{ds.RasterXSize} × {ds.RasterYSize}, {bands} of {kind}, {compression}"


def gpu(driver, source):
    """Which GPU could be used, or why none."""
    try:
        ds = gdal.OpenEx(
            source, gdal.OF_RASTER, allowed_drivers=[driver], open_options=["ENGINE=CUDA"]
        )
    except RuntimeError as error:
        return "none: " + str(error).split("ENGINE=CUDA: ")[-1]
    reason = (ds.GetMetadata("GPUGTIFF") or {}).get("ENGINE_REASON", "")
    return reason.split("ENGINE=CUDA: ")[-1] or "not reported"


def run(driver, source, target):
    if not source:
        source = str(ROOT / "target/run/sample.tif")
        target = target or str(ROOT / "target/run/converted.tif")
        make_sample(Path(source))
    if not target:
        raise Failure("OUT is missing: make run IN=a.tif OUT=b.tif")
    target = Path(target)
    if not target.parent.is_dir():
        raise Failure(f"the directory of OUT does not exist: {target.parent}")
    if target.is_dir():
        raise Failure(f"OUT is a directory: {target}")
    if target.exists() and os.path.exists(source) and os.path.samefile(source, target):
        raise Failure("IN and OUT are the same file")
    if gdal.GetDriverByName(driver) is None:
        path = os.environ.get("GDAL_DRIVER_PATH", "unset")
        raise Failure(f"GDAL did not load the driver {driver} (GDAL_DRIVER_PATH is {path})")

    reference = open_with("GTiff", source)
    if reference.RasterCount == 0:
        raise Failure(f"{source} has no raster of its own (name one of its subdatasets)")
    print(f"read     {source}: {describe(reference)}", flush=True)
    with staged(target) as path:
        start = time.monotonic()
        translate(driver, source, path)
        seconds = time.monotonic() - start
        ours = open_with(driver, source)
        count = compare(reference, {driver: ours, "OUT": open_with("GTiff", path)})
    print(f"wrote    {target}: {seconds:.2f} s by gdal_translate -if {driver} -of {driver}")
    facts = ours.GetMetadata("GPUGTIFF") or {}
    engine, reason = facts.pop("ENGINE", "not reported"), facts.pop("ENGINE_REASON", "")
    print(f"engine   {engine}" + (f": {reason}" if reason else ""))
    print(f"gpu      {gpu(driver, source)}")
    if facts:
        print("counted  " + ", ".join(f"{key} {value}" for key, value in facts.items()))
    print(f"pixels   equal to GTiff's: {count:,} samples, as {driver} reads them and as written")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default="", metavar="IN")
    parser.add_argument("target", nargs="?", default="", metavar="OUT")
    parser.add_argument("--driver", default="GPUGTiff")
    args = parser.parse_args()
    gdal.UseExceptions()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(args.driver, args.source, args.target)
    except (Failure, OSError, RuntimeError) as error:
        sys.exit(f"make run: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
