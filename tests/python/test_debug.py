"""What is said about the driver and by it: CPL_DEBUG=GPUGTIFF, the option list, the help topic."""

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import harness
import pytest
from osgeo import gdal

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="about GPUGTiff itself")

SUMMARY = re.compile(
    r"GPUGTIFF: (?P<file>.*): engine (?P<engine>\w+), tiles decoded (?P<decoded>\d+), encoded (?P<encoded>\d+), "
    r"copied (?P<copied>\d+), from GTiff (?P<gtiff>\d+); requests passed to GTiff (?P<passed>\d+)$"
)


@pytest.fixture
def source(tmp_path):
    path = str(tmp_path / "s.tif")
    ds = gdal.GetDriverByName("GTiff").Create(path, 300, 300, 1, gdal.GDT_Byte, ["TILED=YES", "COMPRESS=LZW"])
    ds.GetRasterBand(1).WriteRaster(0, 0, 300, 300, bytes(i % 253 for i in range(90000)))
    ds.BuildOverviews("NEAREST", [2])
    return path


def lines(*command, debug="GPUGTIFF", **env):
    env = {**os.environ, **env}
    env.update({"CPL_DEBUG": debug} if debug else {})
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def summaries(said):
    found = [match.groupdict() for match in map(SUMMARY.match, said) if match]
    return {os.path.basename(one["file"]): one for one in found}


def test_only_our_lines_each_with_a_file(source, tmp_path):
    out = str(tmp_path / "o.tif")
    for command in (["gdal_translate", "-q", "-of", "GPUGTiff", source, out], ["gdalinfo", "-stats", source],
                    ["gdal_translate", "-q", "-of", "GPUGTiff", "-co", "COMPRESS=JPEG", source, out],
                    ["gdal_translate", "-q", "-if", "GPUGTiff", "-of", "GPUGTiff", source, out]):  # fmt: skip
        said = lines(*command, GPUGTIFF_CLAIM="YES")
        assert said and all(line.startswith("GPUGTIFF: ") and ".tif" in line for line in said), said


def test_files_that_we_do_not_open_are_not_spoken_of(source):
    """gdaladdo opens for update, which a claim leaves to GTiff."""
    assert not [line for line in lines("gdaladdo", "-q", source, "4", GPUGTIFF_CLAIM="YES") if line.startswith("GTiff")]


def test_what_became_of_tiles(source, tmp_path):
    out = str(tmp_path / "o.tif")
    named = ["gdal_translate", "-q", "-if", "GPUGTiff", "-of", "GPUGTiff"]
    said = summaries(lines(*named, "-co", "COMPRESS=ZSTD", "-co", "BLOCKXSIZE=128", "-co", "BLOCKYSIZE=128", source, out))
    assert said["s.tif"]["engine"] == "CPU" and int(said["s.tif"]["decoded"]) >= 4, said
    assert (said["o.tif"]["encoded"], said["o.tif"]["copied"]) == ("9", "0"), said
    said = summaries(lines(*named, "-co", "COMPRESS=LZW", source, out))
    assert (said["o.tif"]["encoded"], said["o.tif"]["copied"]) == ("0", "4"), said


def test_gtiff_is_heard_where_it_is_named(source):
    for debug in ("GPUGTIFF,GTIFF", "GTiff", "ON"):
        assert any(line.startswith("GTiff: ") for line in lines("gdalinfo", "GPUGTIFF:" + source, debug=debug)), debug


def test_a_debug_category_given_late(source):
    """--debug comes when the drivers are registered already."""
    said = lines("gdalinfo", "--debug", "GPUGTIFF", "GPUGTIFF:" + source, debug=None)
    assert summaries(said) and all(line.startswith("GPUGTIFF: ") for line in said), said


def test_options_have_descriptions():
    driver = gdal.GetDriverByName("GPUGTiff")
    for item in ("DMD_CREATIONOPTIONLIST", "DMD_OPENOPTIONLIST"):
        options = {o.get("name"): o for o in ElementTree.fromstring(driver.GetMetadataItem(item))}
        for name in set(options) & {"COMPRESS", "TILED", "PREDICTOR", "LEVEL", "COPY_TILES", "ENGINE", "NUM_THREADS", "GDS"}:
            assert options[name].get("description"), name
    assert "COMPRESS" in driver.GetMetadataItem("DMD_CREATIONOPTIONLIST")


def test_help_is_ours():
    cargo = open(os.path.join(harness.REPO, "Cargo.toml")).read()
    repository = re.search(r'^repository = "(.*)"', cargo, re.M).group(1)
    assert gdal.GetDriverByName("GPUGTiff").GetMetadataItem("DMD_HELPTOPIC").startswith(repository)
