"""Every function of the C API that is said to be thread-safe, by many threads at once (threads.c): on the CPU, and
on the emulated driver, with one raster decoded by the CUDA engine."""

import os
import subprocess

import emulated
import harness
import numpy as np
import pytest
from osgeo import gdal

import capi

WIDTH, HEIGHT = 700, 500
WKT = 'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]'
KINDS = ["COMPRESS=DEFLATE PREDICTOR=2 TILED=YES BLOCKXSIZE=128 BLOCKYSIZE=64", "COMPRESS=LZW BLOCKYSIZE=7",
         "COMPRESS=ZSTD TILED=YES INTERLEAVE=BAND BLOCKXSIZE=64 BLOCKYSIZE=64", "COMPRESS=LERC TILED=YES"]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, paths = tmp_path_factory.mktemp("threads"), []
    band, y, x = np.meshgrid(np.arange(3), np.arange(HEIGHT), np.arange(WIDTH), indexing="ij")
    pixels = (3 * x + 7 * y + 11 * band + x * y // 16).astype(np.uint8)
    for n, options in enumerate(KINDS):
        paths.append(str(folder / ("%d.tif" % n)))
        ds = gdal.GetDriverByName("GTiff").Create(paths[n], WIDTH, HEIGHT, 3, gdal.GDT_Byte, options.split())
        ds.SetProjection(WKT)
        ds.GetRasterBand(1).SetNoDataValue(255)
        ds.WriteRaster(0, 0, WIDTH, HEIGHT, pixels.tobytes())
        ds.BuildOverviews("NEAREST", [2, 4])
    return paths


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    for name in ("libgpugtiff.so", "libgpugtiff.so.%d" % capi.C["VERSION_MAJOR"]):
        os.symlink(capi.COPY_PATH, folder / name)
    made = str(folder / "threads")
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", os.path.dirname(capi.HEADER),
                    os.path.join(harness.HERE, "threads.c"), "-o", made, "-L", str(folder), "-lgpugtiff",
                    "-Wl,-rpath," + str(folder)], check=True)  # fmt: skip
    return made


@pytest.mark.parametrize("engine", ["CPU", "CUDA"])
def test_everything_at_once(files, program, engine):
    emulated.require()
    settings = {"GPUGTIFF_VERIFY": "NO"} if engine == "CUDA" else {}
    env = emulated.environment(engine=engine, **settings)
    done = subprocess.run([program, "25" if engine == "CPU" else "6", *files], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.endswith(" 0 tiles by CUDA\n") == (engine == "CPU"), done.stdout
