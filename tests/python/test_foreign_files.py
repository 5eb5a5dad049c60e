"""File systems that are VSI plugins: one handle a file, one thread, no ReadMultiRange. GTiff's handle is the only one,
used on the calling thread, and nothing is said about it. onehandle.cpp counts, and refuses what it has not."""

import os
import subprocess

import harness
import pytest
from osgeo import gdal

SETUP = """
import ctypes, json, os, sys
import harness
from osgeo import gdal
library = ctypes.CDLL(sys.argv[1])
path, code = sys.argv[2:4]
PREFIX = os.environ["PREFIX"]
library.onehandle_install(PREFIX.encode())
plain, there = path, PREFIX + path
def take():
    counts = (ctypes.c_long * 4)()
    library.onehandle_take(counts)
    return list(counts)
def windows(ds):
    out = [ds.ReadRaster(), ds.ReadRaster(3, 5, 60, 70), ds.GetRasterBand(1).ReadRaster(0, 100, 150, 1)]
    out += [ds.GetRasterBand(1).ReadRaster(0, y, 150, 1) for y in range(0, 40)]
    return [bytes(x) if x is not None else None for x in out]
result = {}
for driver in ("GTiff", harness.DRIVER):
    with harness.Errors() as errors:
        exec(code)
        result[driver] = {"value": run(driver), "errors": list(errors)}
    result[driver]["counts"] = take()
print(json.dumps(result))
"""

CODECS = ["NONE", "LZW", "DEFLATE", "ZSTD", "JPEG", "LZMA"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("lib") / "onehandle.so")
    source = os.path.join(harness.HERE, "onehandle.cpp")
    flags = subprocess.run(["gdal-config", "--cflags"], check=True, capture_output=True, text=True)
    subprocess.run(["g++", *flags.stdout.split(), "-shared", "-fPIC", "-O1", "-o", out, source, "-lgdal"], check=True)
    return out


@pytest.fixture
def both(library, tmp_path):
    def both(code, codec="DEFLATE", prefix="/vsionehandle/", **env):
        path = str(tmp_path / "one.tif")
        options = ["COMPRESS=" + codec, "TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]
        ds = gdal.GetDriverByName("GTiff").Create(path, 150, 130, 1, gdal.GDT_Byte, options)
        r = harness.rng("foreign", codec)
        ds.WriteRaster(0, 0, 150, 130, bytes(r.randrange(8) * 9 for _ in range(150 * 130)))
        ds = None
        return harness.run_json(SETUP, library, path, code, env={"PREFIX": prefix, **env}, timeout=120)

    return both


def same(result, opens=None):
    theirs, ours = result["GTiff"], result[harness.DRIVER]
    assert ours["value"] == theirs["value"]
    assert ours["errors"] == theirs["errors"] == []
    # Opened, closed, refused, calls from other threads.
    assert ours["counts"] == theirs["counts"], (ours, theirs)
    assert ours["counts"][2:] == [0, 0]
    assert opens is None or ours["counts"][0] == opens


READ = """
def run(driver):
    ds = gdal.OpenEx(there, allowed_drivers=[driver])
    got = windows(ds)
    ds = None
    import hashlib
    return [None if x is None else hashlib.md5(x).hexdigest() for x in got]
"""


@pytest.mark.parametrize("codec", CODECS)
def test_read(both, codec):
    same(both(READ, codec), opens=1)


@pytest.mark.parametrize("prefix", ["/onehandle/", "/vsigpu_no_such_thing/"])
def test_any_prefix(both, prefix):
    """A handler may have any prefix."""
    same(both(READ, prefix=prefix), opens=1)


def test_claimed(both):
    """A plain open that we claim."""
    code = READ.replace(
        "gdal.OpenEx(there, allowed_drivers=[driver])",
        "gdal.OpenEx(there, allowed_drivers=['GTiff']) if driver == 'GTiff' else gdal.Open(there)",
    )
    same(both(code, GPUGTIFF_CLAIM="YES"), opens=1)


def test_prefixed_name(both):
    """`GPUGTIFF:` and a name."""
    code = READ.replace("gdal.OpenEx(there,", "gdal.OpenEx(('' if driver == 'GTiff' else 'GPUGTIFF:') + there,")
    same(both(code), opens=1)


def test_behind_another_file_system(both):
    """/vsisubfile/ of such a file."""
    size = "os.path.getsize(plain)"
    code = READ.replace("gdal.OpenEx(there,", "gdal.OpenEx('/vsisubfile/0_%%d,%%s' %% (%s, there)," % size)
    same(both(code.replace("%%", "%")), opens=1)


def test_copy_from(both):
    """CreateCopy() from such a file, whoever has it open."""
    code = """
def run(driver):
    out = []
    for source in ("GTiff", harness.DRIVER):
        src = gdal.OpenEx(there, allowed_drivers=[source])
        name = "/vsimem/copy.tif"
        gdal.GetDriverByName(driver).CreateCopy(name, src, options=["COMPRESS=DEFLATE", "TILED=YES"])
        src = None
        copy = gdal.OpenEx(name, allowed_drivers=["GTiff"])
        out.append(copy.GetRasterBand(1).Checksum())
        copy = None
        gdal.Unlink(name)
    return out
"""
    same(both(code), opens=2)


@pytest.mark.parametrize("how", ["Create", "CreateCopy"])
def test_write_to(both, how):
    """Creation in such a file system: what GTiff writes, with its messages."""
    code = """
def run(driver):
    target = PREFIX + plain + ".out.tif"
    options = ["COMPRESS=DEFLATE", "TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]
    src = gdal.OpenEx(plain, allowed_drivers=["GTiff"])
    d = gdal.GetDriverByName(driver)
    if %r == "CreateCopy":
        ds = d.CreateCopy(target, src, options=options)
    else:
        ds = d.Create(target, 150, 130, 1, gdal.GDT_Byte, options)
        if ds is not None:
            ds.WriteRaster(0, 0, 150, 130, src.ReadRaster())
    made = ds is not None
    ds = None
    real = plain + ".out.tif"
    q = gdal.OpenEx(real, allowed_drivers=["GTiff"]) if os.path.exists(real) else None
    sum = q.GetRasterBand(1).Checksum() if q else None
    q = None
    if os.path.exists(real): os.unlink(real)
    return [made, sum]
""" % how
    result = both(code)
    theirs, ours = result["GTiff"], result[harness.DRIVER]
    assert ours["value"] == theirs["value"], result
    assert len(ours["errors"]) == len(theirs["errors"]), result
    assert ours["counts"][2:] == theirs["counts"][2:] == [0, 0], result


RASTERIO = """
import sys, faulthandler
faulthandler.enable()
import warnings; warnings.simplefilter("ignore")
import rasterio
sums = []
for driver in ("GTiff", "GPUGTiff"):
    with open(sys.argv[1], "rb") as f:
        d = rasterio.open(f, driver=driver)
        a, b = d.read(1), d.read(1, window=((3, 90), (5, 140)))
        sums.append((int(a.sum()), int(b.sum())))
        d.close()
assert sums[0] == sums[1], sums
print("fine")
"""


def test_rasterio_file_object(tmp_path):
    """rasterio with a Python file object (F_file_object_segv: SIGSEGV when it was closed)."""
    python = "/usr/bin/python3"
    probe = subprocess.run([python, "-c", "import rasterio"], capture_output=True)
    if probe.returncode:
        pytest.skip("python3-rasterio is not installed: rasterio's file objects were NOT tested")
    path = str(tmp_path / "object.tif")
    options = ["COMPRESS=DEFLATE", "TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]
    ds = gdal.GetDriverByName("GTiff").Create(path, 150, 130, 1, gdal.GDT_Byte, options)
    ds.WriteRaster(0, 0, 150, 130, bytes(i * i % 251 for i in range(150 * 130)))
    ds = None
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([python, "-c", RASTERIO, path], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0 and done.stdout == "fine\n", done
