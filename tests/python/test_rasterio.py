"""rasterio on the system's GDAL (Debian's python3-rasterio): opens, reads and writes through us, claimed and
named, in processes of its own."""

import json
import os
import subprocess

import harness
import metafiles
import pytest
from osgeo import gdal

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="about GPUGTiff itself")

# With Debian's interpreter: rasterio must be built for the very GDAL that the plugin is built for.
PYTHON = os.environ.get("GPUGTIFF_SYSTEM_PYTHON", "/usr/bin/python3")


def why_not():
    look = "import rasterio, osgeo.gdal; print(rasterio.__gdal_version__, osgeo.gdal.VersionInfo('RELEASE_NAME'))"
    try:
        done = subprocess.run([PYTHON, "-c", look], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    versions = done.stdout.split()
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["it does not load"])[-1]
    return "" if versions[0] == versions[1] else "it is built for GDAL %s, not %s" % tuple(versions)


@pytest.fixture(scope="module", autouse=True)
def rasterio_is_there():
    if why := why_not():
        pytest.skip("rasterio is NOT TESTED (apt-get install python3-rasterio): " + why)


def run(code, *arguments, **env):
    code = "import json, sys, rasterio\n" + code
    env = {**os.environ, "GPUGTIFF_CLAIM": "YES", **env}
    done = subprocess.run([PYTHON, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null"), done.stderr


def striped(path, rows=2):
    ds = gdal.GetDriverByName("GTiff").Create(str(path), 100, 70, 3, gdal.GDT_Byte, ["BLOCKYSIZE=%d" % rows, "COMPRESS=LZW"])
    for band in (1, 2, 3):
        ds.GetRasterBand(band).WriteRaster(0, 0, 100, 70, bytes((x * band) % 251 for x in range(7000)))
    return str(path)


PROFILE = """
with rasterio.open(sys.argv[1]) as src:
    profile, data, who = src.profile, src.read(), src.tags(ns="GPUGTIFF")
with rasterio.open(sys.argv[2], "w", **{**profile, **json.loads(sys.argv[3])}) as dst:
    dst.write(data)
with rasterio.open(sys.argv[2]) as back:
    same = bool((back.read() == data).all())
    layout = [back.profile["driver"], back.is_tiled, list(back.block_shapes[0])]
print(json.dumps([profile["driver"], bool(who), same, layout]))
"""


@pytest.mark.parametrize("tiled", [False, True])
def test_the_profile_idiom(tmp_path, tiled):
    """open(dst, "w", **src.profile) of a claimed file: what the built-in driver makes of it."""
    source = striped(tmp_path / "s.tif")
    if tiled:
        source = str(tmp_path / "t.tif")
        gdal.Translate(source, str(tmp_path / "s.tif"), creationOptions=["TILED=YES", "BLOCKXSIZE=32", "BLOCKYSIZE=48"])
    target = tmp_path / "d.tif"
    driver, ours, same, layout = run(PROFILE, source, target, "{}")[0]
    assert (driver, ours, same) == ("GTiff", True, True)
    assert layout == ["GTiff", tiled, [48, 32] if tiled else [2, 100]]


@pytest.mark.parametrize("tiled", [False, True])
def test_the_profile_idiom_with_our_driver(tmp_path, tiled):
    """The same profile with driver="GPUGTiff": the layout is the source's."""
    source = striped(tmp_path / "s.tif", 7)
    if tiled:
        source = str(tmp_path / "t.tif")
        gdal.Translate(source, str(tmp_path / "s.tif"), creationOptions=["TILED=YES", "BLOCKXSIZE=32", "BLOCKYSIZE=48"])
    (_, _, same, layout), _ = run(PROFILE, source, tmp_path / "d.tif", json.dumps({"driver": "GPUGTiff"}))
    assert same and layout == ["GTiff", tiled, [48, 32] if tiled else [7, 100]]


def test_windows_masks_and_overviews(tmp_path):
    code = """
from rasterio.windows import Window
answers = []
for driver in (None, "GTiff"):
    with rasterio.open(sys.argv[1], driver=driver) as src:
        answers.append([src.read(1, window=Window(3, 5, 40, 30)).tolist(), src.read(1, out_shape=(20, 25)).tolist(),
                        src.dataset_mask().tolist(), src.overviews(1), str(src.crs), list(src.transform), src.meta["driver"]])
        ours = src.tags(ns="GPUGTIFF") if driver is None else ours
print(json.dumps([answers[0] == answers[1], bool(ours)]))
"""
    for kind in ("georeferenced", "overviews_internal", "mask_internal", "mask_sidecar"):
        assert run(code, metafiles.MAKERS[kind](str(tmp_path)))[0] == [True, True], kind


def test_memory_files_and_named_opens(tmp_path):
    code = """
from rasterio.io import MemoryFile
data = open(sys.argv[1], "rb").read()
with MemoryFile(data) as memory, memory.open() as src, rasterio.open("GPUGTIFF:" + sys.argv[1]) as named, \\
        rasterio.open(sys.argv[1], driver="GPUGTiff") as listed:
    print(json.dumps([src.driver, named.driver, listed.driver,
                      bool((src.read() == named.read()).all() and (src.read() == listed.read()).all())]))
"""
    assert run(code, striped(tmp_path / "s.tif"))[0] == ["GTiff", "GPUGTiff", "GPUGTiff", True]
