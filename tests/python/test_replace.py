"""GPUGTIFF_REPLACE_GTIFF=YES: ours under GTiff's name, for tools that ask for GTiff. The variable is
read at registration, so each test is a process of its own."""

import os
import shutil
import subprocess
from xml.etree import ElementTree

import harness
import metafiles
import pytest
from osgeo import gdal

ENV = {"GPUGTIFF_REPLACE_GTIFF": "YES"}


@pytest.fixture(autouse=True)
def ours_only():
    if harness.SELF_TEST:
        pytest.skip("about GPUGTiff itself")


@pytest.fixture
def path(tmp_path):
    return metafiles.georeferenced(str(tmp_path))


def run(code, *args):
    return harness.run_json("import json, sys\nfrom osgeo import gdal\n" + code, *args, env=ENV)


READ = """
ds = gdal.%s
ds.ReadRaster()
print(json.dumps([ds.GetDriver().ShortName, ds.GetMetadata_Dict('GPUGTIFF') or {}]))
"""


@pytest.mark.parametrize("call", [
    "Open(sys.argv[1])", "OpenEx(sys.argv[1], allowed_drivers=['GTiff'])", "OpenEx(sys.argv[1], gdal.OF_RASTER)"])  # fmt: skip
def test_gtiff_reads_with_our_engine(path, call):
    name, counts = run(READ % call, path)
    assert name == "GTiff"
    assert int(counts[harness.DECODED]) > 0 and int(counts[harness.BLOCKS_PASSED]) == 0, counts


def test_gpugtiff_stays_beside_it(path):
    name, counts = run(READ % "OpenEx(sys.argv[1], allowed_drivers=['GPUGTiff'])", path)
    assert name == "GPUGTiff" and int(counts[harness.DECODED]) > 0


def test_both_are_registered_once():
    names = run("print(json.dumps([gdal.GetDriver(i).ShortName for i in range(gdal.GetDriverCount())]))")
    assert names.count("GTiff") == 1 and names.count("GPUGTiff") == 1


def test_registering_again_changes_nothing(path):
    code = "for _ in range(3): gdal.AllRegister()\n" + READ % "Open(sys.argv[1])"
    assert run(code, path)[0] == "GTiff"


def test_items_are_gtiffs():
    code = "print(json.dumps(gdal.GetDriverByName('GTiff').GetMetadata()))"
    replaced, usual = run(code), harness.run_json("import json\nfrom osgeo import gdal\n" + code)
    for item in ("DMD_EXTENSION", "DMD_EXTENSIONS", "DMD_MIMETYPE", "DMD_CREATIONDATATYPES",
                 "DCAP_CREATE", "DCAP_CREATECOPY", "DMD_SUBDATASETS", "DMD_HELPTOPIC", "LIBTIFF", "LIBGEOTIFF"):  # fmt: skip
        assert replaced.get(item) == usual.get(item), item
    assert set(usual) <= set(replaced)
    ours, gtiffs = ({o.get("name") for o in ElementTree.fromstring(items["DMD_CREATIONOPTIONLIST"])}
                    for items in (replaced, usual))  # fmt: skip
    assert gtiffs <= ours and ours - gtiffs >= {"ENGINE", "BATCH_MB", "COPY_TILES"}


def test_creation_has_gtiffs_defaults(path, tmp_path):
    """Not ours (tiled, DEFLATE): what gdalinfo says is what it says of GTiff's own files."""
    code = """
gdal.Translate(sys.argv[2], sys.argv[1])
ds = gdal.GetDriverByName('GTiff').Create(sys.argv[3], 100, 80, 2, gdal.GDT_Int16)
ds.GetRasterBand(2).Fill(7); ds = None
ds = gdal.Open(sys.argv[2])
print(json.dumps([ds.GetRasterBand(1).GetBlockSize(), ds.GetMetadata_Dict('IMAGE_STRUCTURE')]))
"""
    (tmp_path / "ours").mkdir()
    (tmp_path / "gtiffs").mkdir()
    got = [str(tmp_path / "ours" / n) for n in ("a.tif", "b.tif")]
    want = [str(tmp_path / "gtiffs" / n) for n in ("a.tif", "b.tif")]
    block, structure = run(code, path, *got)
    harness.run_json("import json, sys\nfrom osgeo import gdal\n" + code, path, *want)
    assert block[0] == metafiles.W and "COMPRESSION" not in structure
    for a, b in zip(got, want):
        infos = [gdal.Info(f, format="json", computeChecksum=True) for f in (a, b)]
        for info in infos:
            info["files"] = [os.path.basename(f) for f in info["files"]]
            info["description"] = os.path.basename(info["description"])
        assert infos[0] == infos[1]
        pixels = [gdal.Open(f).ReadRaster() for f in (a, b)]
        harness.same_bytes(*pixels, a)


def test_update_append_delete_and_rename(path, tmp_path):
    code = """
drv, p, q = gdal.GetDriverByName('GTiff'), sys.argv[1], sys.argv[2]
ds = gdal.Open(p, gdal.GA_Update); ds.GetRasterBand(1).Fill(3); ds.BuildOverviews('NEAREST', [2]); ds = None
ds = gdal.Open(p); first = ds.GetRasterBand(1).ReadRaster(0, 0, 1, 1)[0]; levels = ds.GetRasterBand(1).GetOverviewCount(); ds = None
drv.CreateCopy(p, gdal.GetDriverByName('MEM').Create('', 8, 8), options=['APPEND_SUBDATASET=YES'])
parts = len(gdal.Open(p).GetSubDatasets())
drv.CopyFiles(q, p); drv.Rename(q + '2', q); drv.Delete(q + '2')
print(json.dumps([first, levels, parts]))
"""
    twin = str(tmp_path / "twin.tif")
    shutil.copy(path, twin)
    usual = harness.run_json("import json, sys\nfrom osgeo import gdal\n" + code, twin, tmp_path / "q.tif")
    assert run(code, path, tmp_path / "q.tif") == usual and usual[:2] == [3, 1]
    assert not os.path.exists(tmp_path / "q.tif") and not os.path.exists(tmp_path / "q.tif2")


def test_sidecars_and_masks(tmp_path):
    for kind in ("overviews_sidecar", "mask_sidecar", "mask_internal", "palette", "directories"):
        folder = tmp_path / kind
        folder.mkdir()
        file = metafiles.MAKERS[kind](str(folder))
        code = """
import harness, hashlib
out = [hashlib.sha1(b.ReadRaster()).hexdigest() for _, b in harness.bands_of(gdal.Open(sys.argv[1]))]
print(json.dumps(out))
"""
        assert run(code, file) == harness.run_json("import json, sys\nfrom osgeo import gdal\n" + code, file), kind


def test_cog_written_and_validated(path, tmp_path):
    out = str(tmp_path / "cog.tif")
    env = dict(os.environ, **ENV)
    subprocess.run(["gdal_translate", "-q", "-of", "COG", "-co", "BLOCKSIZE=128", path, out], check=True, env=env)
    code = """
from osgeo_utils.samples import validate_cloud_optimized_geotiff as v
warnings, errors, _ = v.validate(sys.argv[1], full_check=True)
print(json.dumps([warnings, errors]))
"""
    assert run(code, out) == [[], []]


def test_tools_run(path, tmp_path):
    env = dict(os.environ, **ENV)
    warped = str(tmp_path / "w.tif")
    for command in (["gdalwarp", "-q", "-t_srs", "EPSG:4326", path, warped], ["gdaladdo", "-q", warped, "2", "4"],
                    ["gdalinfo", "-stats", "-checksum", warped]):  # fmt: skip
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and "ERROR" not in done.stderr, (command, done.stderr)


def test_gtiff_skipped_is_no_crash(path):
    done = harness.run_python(
        "import sys\nfrom osgeo import gdal\nprint(gdal.Open(sys.argv[1]))", path, env={**ENV, "GDAL_SKIP": "GTiff"})  # fmt: skip
    assert done.returncode == 0, done.stderr
