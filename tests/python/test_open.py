"""Who opens what: by name, by prefix, for update; and GTiff's own settings. Claims have test_claim.py."""

import os
import shutil
import subprocess

import harness
import metafiles
import pytest
from osgeo import gdal

PREFIX = "GPUGTIFF:"


@pytest.fixture
def path(tmp_path):
    return metafiles.georeferenced(str(tmp_path))


@pytest.fixture
def ours_only():
    if harness.SELF_TEST:
        pytest.skip("about GPUGTiff itself")


def driver_of(ds):
    return ds.GetDriver().ShortName


def plain_open(path, flags=gdal.OF_RASTER):
    return gdal.OpenEx(path, flags)


# ---- the driver ----------------------------------------------------------------------------


def test_driver_items(ours_only):
    driver = gdal.GetDriverByName("GPUGTiff")
    items = driver.GetMetadata()
    assert items["DCAP_RASTER"] == items["DCAP_VIRTUALIO"] == "YES"
    assert items["DMD_CONNECTION_PREFIX"] == PREFIX
    assert not driver.GetMetadataItem("DMD_EXTENSION") and not driver.GetMetadataItem("DMD_EXTENSIONS")
    for option in ("ENGINE", "NUM_THREADS", "BATCH_MB"):
        assert "'%s'" % option in driver.GetMetadataItem("DMD_OPENOPTIONLIST").replace('"', "'"), option
    # GTiff's own open options are accepted, so they are listed too.
    assert "GEOREF_SOURCES" in driver.GetMetadataItem("DMD_OPENOPTIONLIST")


def test_tools_list_it(ours_only):
    formats = subprocess.run(["gdalinfo", "--formats"], capture_output=True, text=True, check=True).stdout
    line = next(line for line in formats.splitlines() if line.strip().startswith("GPUGTiff"))
    assert "raster" in line and "v" in line.split("(")[1]
    about = subprocess.run(["gdalinfo", "--format", "GPUGTiff"], capture_output=True, text=True, check=True).stdout
    assert "ENGINE" in about and "BATCH_MB" in about


def test_registration_raises_no_error(ours_only, path):
    done = subprocess.run(["gdalinfo", path], capture_output=True, text=True)
    assert done.returncode == 0 and "ERROR" not in done.stderr and "GPUGTiff" not in done.stderr


def test_output_by_extension_stays_gtiffs(ours_only, path, tmp_path):
    out = str(tmp_path / "o.tif")
    done = subprocess.run(["gdal_translate", path, out], capture_output=True, text=True)
    assert done.returncode == 0 and "Several drivers" not in done.stderr, done.stderr
    assert driver_of(harness.open_gtiff(out)) == "GTiff"


def test_translate_by_input_format(ours_only, path, tmp_path):
    out = str(tmp_path / "o.tif")
    subprocess.run(["gdal_translate", "-q", "-if", "GPUGTiff", path, out], check=True)
    harness.same_pixels(harness.open_gtiff(out), harness.open_gtiff(path))


# ---- named ---------------------------------------------------------------------------------


def test_named(ours_only, path):
    assert driver_of(harness.open_ours(path)) == "GPUGTiff"


def test_named_refuses_what_is_no_tiff(tmp_path):
    file = tmp_path / "x.tif"
    file.write_bytes(b"not a TIFF at all, whatever it is called")
    with harness.Errors():
        assert harness.open_ours(str(file)) is None
        assert harness.open_ours(str(tmp_path / "absent.tif")) is None
        assert harness.open_ours(str(tmp_path)) is None


def test_prefix(ours_only, path):
    ds = plain_open(PREFIX + path)
    assert driver_of(ds) == "GPUGTiff"
    assert ds.GetDescription() == PREFIX + path
    assert ds.GetFileList() == harness.open_gtiff(path).GetFileList()
    harness.same_pixels(ds, harness.open_gtiff(path))
    harness.check_all_ours(ds)


def test_prefix_is_case_insensitive_like_gdals(ours_only, path):
    assert driver_of(plain_open("gpugtiff:" + path)) == "GPUGTiff"


def test_prefix_before_directories(ours_only, tmp_path):
    file = metafiles.directories(str(tmp_path))
    for i in (1, 2, 3):
        name = "GTIFF_DIR:%d:%s" % (i, file)
        ours, theirs = plain_open(PREFIX + name), harness.open_gtiff(name)
        assert driver_of(ours) == "GPUGTiff" and ours.GetDescription() == PREFIX + name
        harness.same_pixels(ours, theirs)
        harness.check_all_ours(ours)


def test_directory_by_offset(ours_only, tmp_path):
    file = metafiles.directories(str(tmp_path))
    second = harness.open_gtiff("GTIFF_DIR:2:" + file)
    offset = second.GetRasterBand(1).GetMetadataItem("IFD_OFFSET", "TIFF")
    name = "GTIFF_DIR:off:%s:%s" % (offset, file)
    harness.same_pixels(*harness.open_pair(name))


def test_prefix_before_nothing(ours_only):
    for name in (PREFIX, PREFIX + "absent.tif", PREFIX + "GTIFF_DIR:", PREFIX + "GTIFF_DIR:9:absent.tif"):
        with harness.Errors() as errors:
            assert plain_open(name) is None
        if name.endswith(":absent.tif") and "DIR" not in name:
            assert "No such file" in errors.text(), errors.text()


def test_every_subdataset(tmp_path):
    file = metafiles.directories(str(tmp_path))
    names = [n for n, _ in harness.open_gtiff(file).GetSubDatasets()]
    assert len(names) == 3
    for name in names:
        ours, theirs = harness.open_pair(name)
        harness.same_pixels(ours, theirs)
        harness.check_all_ours(ours, name)


def test_skipping_gtiff_is_quiet(ours_only, path):
    code = "import sys\nfrom osgeo import gdal\nds = gdal.OpenEx(sys.argv[1], 0, allowed_drivers=['GPUGTiff'])\nprint(ds)"
    done = harness.run_python(code, path, env={"GDAL_SKIP": "GTiff"})
    assert done.returncode == 0, done.stderr


# ---- for update ----------------------------------------------------------------------------


def test_update_when_named(path):
    """Every pixel, read or written, goes through the inner dataset: both sides see the same."""
    ds = harness.open_ours(path, flags=gdal.OF_UPDATE)
    before = ds.GetRasterBand(1).ReadRaster(0, 0, 100, 100)
    ds.GetRasterBand(1).WriteRaster(10, 10, 30, 30, bytes([9]) * 900)
    assert ds.GetRasterBand(1).ReadRaster(10, 10, 30, 30) == bytes([9]) * 900
    assert ds.GetRasterBand(1).ReadRaster(0, 0, 100, 5) == before[:500]
    ds.SetMetadataItem("new", "item")
    ds.GetRasterBand(2).SetNoDataValue(4)
    ds.SetGeoTransform([1, 2, 0, 3, 0, -2])
    block = ds.GetRasterBand(3).ReadBlock(0, 0)
    ds = None
    ours, theirs = harness.open_pair(path)
    assert theirs.GetRasterBand(1).ReadRaster(10, 10, 30, 30) == bytes([9]) * 900
    assert theirs.GetMetadataItem("new") == ours.GetMetadataItem("new") == "item"
    assert theirs.GetRasterBand(2).GetNoDataValue() == ours.GetRasterBand(2).GetNoDataValue() == 4
    assert theirs.GetGeoTransform() == ours.GetGeoTransform() == (1, 2, 0, 3, 0, -2)
    harness.same_bytes(ours.GetRasterBand(3).ReadBlock(0, 0), block, "block")
    harness.same_pixels(ours, theirs)


def test_update_builds_overviews_inside(path):
    ds = harness.open_ours(path, flags=gdal.OF_UPDATE)
    assert ds.BuildOverviews("AVERAGE", [2, 4]) == 0
    assert ds.GetRasterBand(1).GetOverviewCount() == 2
    assert ds.GetRasterBand(1).GetOverview(0).ReadRaster() is not None
    ds = None
    assert not os.path.exists(path + ".ovr")
    harness.same_pixels(*harness.open_pair(path))


def test_new_overviews_are_seen_at_once(tmp_path):
    """The wrappers of old levels must not outlive them."""
    file = metafiles.overviews_sidecar(str(tmp_path))
    ds = harness.open_ours(file)
    assert ds.GetRasterBand(1).GetOverview(0).ReadRaster() is not None
    ds.BuildOverviews("NEAREST", [])
    assert ds.GetRasterBand(1).GetOverviewCount() == 0
    ds.BuildOverviews("NEAREST", [3])
    assert ds.GetRasterBand(1).GetOverview(0).XSize == 100
    assert len(ds.GetRasterBand(1).GetOverview(0).ReadRaster()) == 100 * 67


# ---- GTiff's settings ----------------------------------------------------------------------


@pytest.mark.parametrize("value", ["YES", "NO"])
def test_mask_to_8bit(tmp_path, value):
    file = metafiles.mask_internal(str(tmp_path))
    with harness.config(GDAL_TIFF_INTERNAL_MASK_TO_8BIT=value):
        ours, theirs = harness.open_pair(file)
        harness.same_pixels(ours, theirs)
        found = set(ours.GetRasterBand(1).GetMaskBand().ReadRaster())
    assert found == ({0, 255} if value == "YES" else {0, 1})


@pytest.mark.parametrize("value", ["TRUE", "FALSE", "EMPTY_DIR"])
@pytest.mark.parametrize("kind", ["overviews_sidecar", "mask_sidecar", "world_file", "auxiliary"])
def test_readdir_on_open(tmp_path, value, kind):
    file = metafiles.MAKERS[kind](str(tmp_path))
    with harness.config(GDAL_DISABLE_READDIR_ON_OPEN=value):
        ours, theirs = harness.open_pair(file)
        assert ours.GetFileList() == theirs.GetFileList()
        assert ours.GetGeoTransform() == theirs.GetGeoTransform()
        harness.same_pixels(ours, theirs)


@pytest.mark.parametrize("value", ["YES", "NO"])
def test_ignore_read_errors(tmp_path, value):
    file = metafiles.bare(str(tmp_path))
    ds = harness.open_gtiff(file)
    offset = int(ds.GetRasterBand(1).GetMetadataItem("BLOCK_OFFSET_1_1", "TIFF"))
    ds = None
    with open(file, "r+b") as f:
        f.seek(offset)
        f.write(b"\xff" * 20)
    with harness.config(GTIFF_IGNORE_READ_ERRORS=value), harness.Errors():
        ours, theirs = harness.open_pair(file)
        a, b = ours.GetRasterBand(1), theirs.GetRasterBand(1)
        harness.same_bytes(a.ReadRaster(0, 0, 64, 64), b.ReadRaster(0, 0, 64, 64), "intact tile")
        x, y = (band.ReadRaster(64, 64, 64, 64) for band in (a, b))
        assert (x is None) == (y is None) == (value == "NO")
        if value == "YES":
            # What GTiff leaves in a broken tile is not defined; that it is a tile is.
            assert len(x) == len(y) == 64 * 64


def test_direct_io_settings(path):
    for key in ("GTIFF_DIRECT_IO", "GTIFF_VIRTUAL_MEM_IO"):
        with harness.config(**{key: "YES"}):
            harness.same_pixels(*harness.open_pair(path))


def test_open_options_of_gtiff(tmp_path):
    file = metafiles.world_file(str(tmp_path))
    for sources in ("NONE", "WORLDFILE", "INTERNAL"):
        ours = harness.open_ours(file, ["GEOREF_SOURCES=" + sources])
        theirs = harness.open_gtiff(file, ["GEOREF_SOURCES=" + sources])
        assert ours.GetGeoTransform() == theirs.GetGeoTransform(), sources


def test_overview_level(tmp_path):
    file = metafiles.overviews_internal(str(tmp_path))
    for level in ("0", "1", "2", "NONE", "0only"):
        ours = harness.open_ours(file, ["OVERVIEW_LEVEL=" + level])
        theirs = harness.open_gtiff(file, ["OVERVIEW_LEVEL=" + level])
        harness.same_pixels(ours, theirs, level)


def test_relative_path_after_chdir(path, monkeypatch):
    """A dataset that is open reads on, wherever the process goes."""
    folder, name = os.path.split(path)
    monkeypatch.chdir(folder)
    ours, theirs = harness.open_pair(name)
    os.mkdir("below")
    monkeypatch.chdir("below")
    harness.same_bytes(ours.ReadRaster(), theirs.ReadRaster(), "after chdir")
    shutil.rmtree("../below")
    monkeypatch.chdir("..")
