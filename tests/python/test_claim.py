"""Claims: plain files opened by us where nobody named us (GPUGTIFF_CLAIM). Nothing but speed may show it, so
GTiff is asked the same and the answers are compared."""

import glob
import os
import shutil
import subprocess

import harness
import j2kfiles
import metafiles
import pytest
from osgeo import gdal

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="about GPUGTiff itself")

ENV = {"GPUGTIFF_CLAIM": "YES"}
HAS_GPU = os.path.exists("/dev/nvidiactl") and glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/usr/lib/wsl/lib/libcuda.so.1")


@pytest.fixture
def path(tmp_path):
    return metafiles.georeferenced(str(tmp_path))


@pytest.fixture
def claim():
    with harness.config(GPUGTIFF_CLAIM="YES"):
        yield


def driver_of(ds):
    return ds.GetDriver().ShortName


def is_ours(ds):
    return bool(ds.GetMetadata("GPUGTIFF"))


def plain_open(path, flags=gdal.OF_RASTER, options=()):
    return gdal.OpenEx(path, flags | gdal.OF_VERBOSE_ERROR, open_options=list(options))


def tool(*command, **env):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=120)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def both(*command):
    """What a tool says where files are claimed and where they are not."""
    said = tool(*command, GPUGTIFF_CLAIM="YES"), tool(*command, GPUGTIFF_CLAIM="NO")
    assert said[0] == said[1]
    return said[0]


# ---- who ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value,claimed", [("YES", True), ("NO", False), ("AUTO", HAS_GPU), (None, HAS_GPU)])
def test_who_opens(path, value, claimed):
    with harness.config(GPUGTIFF_CLAIM=value):
        ds = plain_open(path)
        assert is_ours(ds) == bool(claimed) and driver_of(ds) == "GTiff"
        harness.same_pixels(ds, harness.open_gtiff(path))


def test_claimed_says_gtiff(path, claim):
    ds = plain_open(path)
    assert is_ours(ds)
    # The built-in driver itself, not one of its name.
    assert ds.GetDriver().this == gdal.GetDriverByName("GTiff").this
    assert driver_of(gdal.OpenShared(path)) == driver_of(gdal.Open(path)) == "GTiff"
    assert "ENGINE" not in ds.GetDriver().GetMetadataItem("DMD_OPENOPTIONLIST")
    harness.check_all_ours(ds) if ds.ReadRaster() else None


def test_named_says_gpugtiff(path, claim):
    for ds in (
        gdal.Open("GPUGTIFF:" + path),
        gdal.OpenEx(path, allowed_drivers=["GPUGTiff"]),
        gdal.OpenEx(path, allowed_drivers=["GTiff", "GPUGTiff"]),
    ):
        assert driver_of(ds) == "GPUGTiff" and is_ours(ds)
    assert not is_ours(gdal.OpenEx(path, allowed_drivers=["GTiff"]))


def test_gtiff_is_identified(path, claim):
    assert gdal.IdentifyDriver(path).ShortName == "GTiff"
    assert gdal.IdentifyDriverEx(path, gdal.OF_RASTER).ShortName == "GTiff"
    assert gdal.IdentifyDriver("GPUGTIFF:" + path).ShortName == "GPUGTiff"
    assert both("gdalmanage", "identify", path).strip() == path + ": GTiff"


def test_a_list_without_gtiff_claims_nothing(path, claim):
    """All drivers but GTiff: nobody opens it, and we are not named by such a list."""
    names = [gdal.GetDriver(i).ShortName for i in range(gdal.GetDriverCount())]
    with harness.Errors():
        assert gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=[n for n in names if n != "GTiff"]) is None
    assert driver_of(gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=names)) == "GTiff"


def test_without_gtiff_nothing_is_claimed(path):
    code = """
import sys, harness
from osgeo import gdal
with harness.Errors() as errors:
    print(gdal.Open(sys.argv[1]), [t for t in errors if "not recognized" not in t[2]])
"""
    done = harness.run_python(code, path, env={**ENV, "GDAL_SKIP": "GTiff"})
    assert done.stdout.strip() == "None []", (done.stdout, done.stderr)


# ---- other drivers' files, updates -------------------------------------------------------


def test_leaves_update_to_gtiff(path):
    with harness.config(GPUGTIFF_CLAIM="YES"):
        ds = plain_open(path, gdal.OF_RASTER | gdal.OF_UPDATE)
        assert driver_of(ds) == "GTiff" and not is_ours(ds)


def test_leaves_other_formats_alone(tmp_path):
    file = str(tmp_path / "a.png")
    gdal.GetDriverByName("PNG").CreateCopy(file, gdal.GetDriverByName("MEM").Create("", 8, 8))
    with harness.config(GPUGTIFF_CLAIM="YES"):
        assert driver_of(plain_open(file)) == "PNG"


def test_a_tool_that_builds_overviews_and_masks(tmp_path):
    """GDAL's core opens .ovr and .msk without a list of drivers, for update: GTiff's affair."""
    file = metafiles.bare(str(tmp_path))
    with harness.config(GPUGTIFF_CLAIM="YES"):
        ds = plain_open(file)
        assert ds.BuildOverviews("NEAREST", [2, 4]) == 0
        assert ds.GetRasterBand(1).GetOverviewCount() == 2
        with harness.config(GDAL_TIFF_INTERNAL_MASK="NO"):
            ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        ds.GetRasterBand(1).GetMaskBand().Fill(255)
        ds = None
        harness.same_pixels(plain_open(file), harness.open_gtiff(file))
    assert os.path.exists(file + ".ovr") and os.path.exists(file + ".msk")

# ---- options, messages -------------------------------------------------------------------


def test_options_raise_no_warning(path, claim):
    for options in (["GEOREF_SOURCES=NONE", "NUM_THREADS=2"], ["ENGINE=CPU", "BATCH_MB=32"], ["OVERVIEW_LEVEL=NONE"]):
        with harness.Errors() as errors:
            ds = plain_open(path, options=options)
        assert ds is not None and not errors, (options, errors)
        assert driver_of(ds) == "GTiff" or "OVERVIEW_LEVEL=NONE" in options


@pytest.mark.parametrize("options", [["NUM_THREADS=0"], ["NUM_THREADS=-7"], ["ENGINE=GPU"], ["NO_SUCH_OPTION=1"]])
def test_what_gtiff_judges(path, options):
    """An open option that our driver would refuse: GTiff opens the file, and says what it says."""
    said = []
    for value in ("YES", "NO"):
        with harness.config(GPUGTIFF_CLAIM=value), harness.Errors() as errors:
            ds = plain_open(path, options=options)
            said.append((ds is not None, driver_of(ds), [text for _, _, text in errors]))
    assert said[0] == said[1]


def test_what_gtiff_does_not_open(tmp_path):
    """JPEG 2000 in TIFF is ours where we are named; a claim is as if we were not there."""
    path = j2kfiles.write(str(tmp_path / "j.tif"), j2kfiles.pixels((90, 70, 3), "uint8", harness.rng("claim")))
    assert harness.open_ours(path) is not None
    said = []
    for value in ("YES", "NO"):
        with harness.config(GPUGTIFF_CLAIM=value), harness.Errors() as errors:
            said.append((plain_open(path), list(errors)))
    assert said[0] == said[1] and said[0][0] is None


def test_a_bad_setting_of_ours_is_a_warning(path, claim):
    """What the user set for us, nobody else would notice."""
    with harness.config(GPUGTIFF_ENGINE="GPU"), harness.Errors() as errors:
        ds = plain_open(path)
    assert not is_ours(ds) and driver_of(ds) == "GTiff"
    assert not errors.failures() and "GPUGTIFF_ENGINE=GPU is not valid" in errors.text()


@pytest.mark.parametrize("content", [b"II*\0\xff\xff\xff\x7f", b"II*\0\x08\0\0\0\x02\0", b"MM\0*", b"II*\0\0\0\0\0"])
def test_files_that_gtiff_refuses(tmp_path, content):
    """The same answer, and the same messages, once."""
    file = tmp_path / "x.tif"
    file.write_bytes(content)
    said = []
    for value in ("YES", "NO"):
        with harness.config(GPUGTIFF_CLAIM=value), harness.Errors() as errors:
            said.append((plain_open(str(file)), list(errors)))
    assert said[0] == said[1] and said[0][0] is None


# ---- programs ----------------------------------------------------------------------------


def test_tools_say_the_same(tmp_path):
    file = metafiles.overviews_internal(str(tmp_path))
    assert "Driver: GTiff/GeoTIFF" in both("gdalinfo", "-checksum", "-mdd", "all", file)
    for value in ("YES", "NO"):
        tool("gdaltindex", str(tmp_path / (value + ".geojson")), file, GPUGTIFF_CLAIM=value)
        copy = shutil.copy(file, tmp_path / (value + ".tif"))
        tool("gdaladdo", "-q", "-clean", copy, GPUGTIFF_CLAIM=value)
        tool("gdaladdo", "-q", "-ro", copy, "2", GPUGTIFF_CLAIM=value)
        assert os.path.exists(str(copy) + ".ovr")
    texts = [(tmp_path / (value + ".geojson")).read_text().replace('"NO"', '"YES"') for value in ("YES", "NO")]
    assert texts[0] == texts[1]


def test_validator_of_cogs(tmp_path):
    """It refuses what does not say GTiff."""
    script = pytest.importorskip("osgeo_utils.samples.validate_cloud_optimized_geotiff")
    file = str(tmp_path / "cog.tif")
    source = harness.open_gtiff(metafiles.georeferenced(str(tmp_path)))
    gdal.GetDriverByName("COG").CreateCopy(file, source)
    with harness.config(GPUGTIFF_CLAIM="YES"):
        assert is_ours(gdal.Open(file))
        assert script.validate(file)[:2] == ([], [])


def test_deleting_renaming_and_overwriting(tmp_path, claim):
    """gdal.Driver.Delete(), gdalmanage and CreateCopy() over a file that has others beside it."""
    file = metafiles.overviews_sidecar(str(tmp_path))
    moved = str(tmp_path / "moved.tif")
    tool("gdalmanage", "rename", file, moved, **ENV)
    assert os.path.exists(moved + ".ovr") and not os.path.exists(file)
    mem = gdal.GetDriverByName("MEM").Create("", 5, 5)
    assert gdal.GetDriverByName("GTiff").CreateCopy(moved, mem) is not None
    assert not os.path.exists(moved + ".ovr")
    ds = gdal.Open(moved)
    driver, ds = ds.GetDriver(), None
    assert driver.Delete(moved) == 0 and not os.path.exists(moved)


def test_vrt_of_claimed_files_is_gtiffs(tmp_path, claim):
    """The VRT that is made, and what is read through one: relative names go on working elsewhere."""
    file = metafiles.georeferenced(str(tmp_path))
    made = str(tmp_path / "made.vrt")
    assert gdal.BuildVRT(made, [file]) is not None
    text = open(made).read()
    assert 'relativeToVRT="1">%s<' % os.path.basename(file) in text and "GPUGTIFF" not in text
    other = tmp_path / "elsewhere"
    other.mkdir()
    shutil.move(file, other), shutil.move(made, other)
    vrt = gdal.Open(str(other / "made.vrt"))
    harness.same_bytes(vrt.ReadRaster(), harness.open_gtiff(str(other / os.path.basename(file))).ReadRaster(), "VRT")


def test_copies_of_claimed_files_are_copied_by_tiles(tmp_path, claim):
    """A source that says GTiff and is ours is known as ours by the writer."""
    mem = gdal.GetDriverByName("MEM").Create("", 300, 300)
    file = str(tmp_path / "a.tif")
    gdal.GetDriverByName("GPUGTiff").CreateCopy(file, mem)
    source = gdal.Open(file)
    assert is_ours(source) and driver_of(source) == "GTiff"
    made = gdal.GetDriverByName("GPUGTiff").CreateCopy(str(tmp_path / "b.tif"), source)
    assert int(made.GetMetadataItem("TILES_COPIED", "GPUGTIFF")) == 4
    assert made.GetDriver().ShortName == "GPUGTiff"


def test_vrt_of_prefixed_files(tmp_path, monkeypatch):
    """GDAL 3.6 keeps the name behind our prefix as it was given: an absolute one works from anywhere."""
    file = metafiles.georeferenced(str(tmp_path))
    other = tmp_path / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    assert gdal.BuildVRT("made.vrt", ["GPUGTIFF:" + file]) is not None
    monkeypatch.chdir(tmp_path)
    vrt = gdal.Open("elsewhere/made.vrt")
    harness.same_bytes(vrt.ReadRaster(), harness.open_gtiff(file).ReadRaster(), "VRT")
