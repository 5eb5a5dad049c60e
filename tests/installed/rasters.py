"""Makes the rasters of tests/installed.sh and checks what the examples say and write about them,
with GTiff as the oracle.

    rasters.py make <directory>
    rasters.py statistics <directory> <answers>…    what read_window printed
    rasters.py tensors <directory> <answers>        what tensor.py printed
    rasters.py same <directory> <directory>         pixels, georeferencing, nodata
    rasters.py mean <raster> <size>                 prints that of band 1's first pixels
    rasters.py device <raster> <report>             the emulated driver's, of read_device

Answers: for each question a line "= raster level window" and what the program printed.
"""

import glob
import json
import os
import re
import sys

import numpy
from osgeo import gdal, osr

gdal.UseExceptions()


def opened(path):
    return gdal.OpenEx(path, allowed_drivers=["GTiff"])


def make(directory):
    """Edge tiles, planes and pixels interleaved, nodata, an overview, a type of 64 bits."""
    random = numpy.random.default_rng(20)
    kinds = {
        "byte": (3, numpy.uint8, ["COMPRESS=DEFLATE", "TILED=YES", "INTERLEAVE=PIXEL"]),
        "float": (1, numpy.float32, ["COMPRESS=ZSTD", "TILED=YES", "PREDICTOR=3"]),
        "int": (2, numpy.int32, ["COMPRESS=LZW", "PREDICTOR=2"]),
        "lzma": (1, numpy.float64, ["COMPRESS=LZMA", "TILED=YES"]),  # GTiff's own to decode
    }
    for name, (bands, kind, options) in kinds.items():
        shape = (bands, 1201, 407)  # more than one batch of 1 MB
        pixels = (random.random(shape) * 50 + numpy.arange(407) / 3).astype(kind)
        if "TILED=YES" in options:
            options = options + ["BLOCKXSIZE=64", "BLOCKYSIZE=64"]
        code = gdal.GetDataTypeByName({"u": "Byte", "i": "Int32"}.get(
            numpy.dtype(kind).kind, f"Float{numpy.dtype(kind).itemsize * 8}"))
        target = gdal.GetDriverByName("GTiff").Create(
            f"{directory}/{name}.tif", shape[2], shape[1], bands, code, options)
        srs = osr.SpatialReference()
        srs.ImportFromEPSG(32633)
        target.SetProjection(srs.ExportToWkt())
        target.SetGeoTransform((500000, 10, 0, 4600000, 0, -10))
        target.GetRasterBand(1).SetNoDataValue(float(pixels[0, 5, 5]))
        target.WriteArray(pixels)
        target.FlushCache()
        target.BuildOverviews("NEAREST", [2])
        del target


def window_of(path, level, numbers):
    """What GTiff reads, and nodata."""
    dataset = opened(path)
    band = dataset.GetRasterBand(1)
    nodata = band.GetNoDataValue()
    if level:
        dataset = gdal.OpenEx(path, allowed_drivers=["GTiff"], open_options=[f"OVERVIEW_LEVEL={level - 1}"])
    pixels = dataset.ReadAsArray(*numbers)
    return pixels.reshape(-1, *pixels.shape[-2:]), nodata


def answers(paths):
    """What a program said about each window: (raster, level, window), lines."""
    for part in "".join(open(path).read() for path in paths).split("= ")[1:]:
        question, *lines = part.splitlines()
        raster, level, *numbers = question.split()
        yield raster, int(level), [int(n) for n in numbers], lines


def statistics(directory, *paths):
    skipped = 0
    for raster, level, numbers, lines in answers(paths):
        pixels, nodata = window_of(f"{directory}/{raster}.tif", level, numbers)
        assert len(lines) == len(pixels), (raster, lines)
        for number, (line, band) in enumerate(zip(lines, pixels), 1):
            valid = band[band != nodata].astype(float)
            skipped += band.size - valid.size
            said = re.fullmatch(r"band (\d+): min (\S+) max (\S+) mean (\S+) pixels (\d+)", line)
            assert said, line
            expected = (number, valid.min(), valid.max(), valid.mean(), valid.size)
            found = [float(text) for text in said.groups()]
            assert numpy.allclose(found, expected, rtol=1e-12, atol=0), (line, expected)
    assert skipped, "no pixel was nodata"


def tensors(directory, *paths):
    for raster, level, numbers, lines in answers(paths):
        pixels, _ = window_of(f"{directory}/{raster}.tif", level, numbers)
        [line] = [line for line in lines if line.startswith("numpy: ")]
        said = re.fullmatch(r"numpy: shape \((.*)\) type (\S+) means (.*)", line)
        assert said, line
        shape = tuple(int(text) for text in said[1].split(","))
        means = [float(text) for text in said[3].split()]
        assert (shape, said[2]) == (pixels.shape, pixels.dtype.name), (line, pixels.shape)
        # NumPy means float32 in float32.
        assert numpy.allclose(means, [band.mean() for band in pixels], rtol=1e-6, atol=0), line


def same(directory, other):
    for path in glob.glob(f"{directory}/*.tif"):
        a, b = opened(path), opened(f"{other}/{os.path.basename(path)}")
        assert numpy.array_equal(a.ReadAsArray(), b.ReadAsArray()), f"{path}: other pixels"
        assert b.GetRasterBand(1).GetBlockSize() == [128, 128], path
        assert a.GetGeoTransform() == b.GetGeoTransform(), path
        assert a.GetSpatialRef().IsSame(b.GetSpatialRef()), path
        first, other_first = a.GetRasterBand(1), b.GetRasterBand(1)
        assert first.GetNoDataValue() == other_first.GetNoDataValue(), path
        assert first.DataType == other_first.DataType, path


def mean(path, size):
    pixels, _ = window_of(path, 0, [0, 0, int(size), int(size)])
    print("%g" % pixels[0].mean(dtype=float))


def device(path, report):
    """Tiles were unpacked and placed on the device; pixels came down once, on the program's own
    stream; what the program had there, it gave back."""
    with open(report) as file:
        report = json.load(file)
    assert not report["errors"] and not report["faults"], (report["errors"], report["faults"])
    assert report["kernels"]["place"]["launches"], "nothing was placed"
    pixels, _ = window_of(path, 0, [])
    _, height, width = pixels.shape
    columns, rows = opened(path).GetRasterBand(1).GetBlockSize()
    tiles, unpacked = -(-width // columns) * -(-height // rows), report["nvcomp"]["deflate"]["decompressed"]
    assert unpacked >= tiles, f"{unpacked} of {tiles} tiles were unpacked there"
    size = pixels.nbytes
    down = [copy for copy in report["timeline"] if copy["kind"] == "D2H"]
    [download] = [copy for copy in down if copy["bytes"] == size]
    others = sum(copy["bytes"] for copy in down) - size
    assert others < size / 10, f"{others} bytes came down besides the program's {size}"
    assert download["stream"] not in [stream["id"] for stream in report["streams"]], "a stream is left"
    [memory] = [made for made in report["allocations"] if made["bytes"] == size]
    assert memory["freed"] and memory["kind"] == "device", memory
    calls = report["calls"]
    # The other one is the library's, which stays.
    assert (calls["cuDevicePrimaryCtxRetain"], calls["cuDevicePrimaryCtxRelease_v2"]) == (2, 1), calls


command, *arguments = sys.argv[1:]
commands = {"make": make, "statistics": statistics, "tensors": tensors, "same": same, "mean": mean, "device": device}
commands[command](*arguments)
