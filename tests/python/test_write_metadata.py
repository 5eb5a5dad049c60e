"""Everything carried over: for the same command with the same explicit options gdalinfo -json, the tags, the files
beside and every mask are what GTiff writes; through gdal_translate, CreateCopy and Create() with late setters."""

import json
import os
import re
import shutil

import harness
import metafiles
import numpy as np
import pytest
import test_metadata
import written
from osgeo import gdal, osr

MAKERS = sorted(metafiles.MAKERS)
INTERNAL = {"GDAL_TIFF_INTERNAL_MASK": "YES"}

# (arguments of gdal_translate, creation options, environment, kinds of source)
COMMANDS = {
    "as it is": ([], {}, {}, MAKERS),
    "strips by band": ([], dict(TILED="NO", BLOCKYSIZE=13, COMPRESS="LZW", INTERLEAVE="BAND"), {},
                       ["georeferenced", "scaled", "mask_internal", "alpha", "strips_big_endian_bigtiff"]),
    "mask inside": ([], {}, INTERNAL, ["mask_internal", "mask_sidecar"]),
    "mask inside, strips": ([], dict(TILED="NO", COMPRESS="PACKBITS"), INTERNAL, ["mask_internal"]),
    "mask of a band": (["-b", "1", "-mask", "2"], {}, INTERNAL, ["georeferenced"]),
    "mask beside of a band": (["-b", "1", "-mask", "2"], {}, {}, ["georeferenced"]),
    "no mask": (["-mask", "none"], {}, {}, ["mask_internal"]),
    "baseline": ([], dict(PROFILE="BASELINE"), {}, ["georeferenced", "palette", "scaled", "ground_control",
                                                    "rational_polynomials", "nodata", "mask_internal"]),
    "GeoTIFF profile": ([], dict(PROFILE="GeoTIFF"), {}, ["georeferenced", "scaled", "rational_polynomials", "nodata"]),
    "world file": ([], dict(TFW="YES"), {}, ["georeferenced", "world_file"]),
    "RPB": ([], dict(RPB="YES", PROFILE="BASELINE"), {}, ["rational_polynomials"]),
    "RPC as text": ([], dict(RPCTXT="YES"), {}, ["rational_polynomials"]),
    "GeoTIFF 1.0": ([], dict(GEOTIFF_VERSION="1.0"), {}, ["georeferenced", "geographic_rotated"]),
    "GeoTIFF 1.1": ([], dict(GEOTIFF_VERSION="1.1"), {}, ["georeferenced", "geographic_rotated"]),
    "ESRI keys": ([], dict(GEOTIFF_KEYS_FLAVOR="ESRI_PE"), {}, ["georeferenced"]),
    "big-endian BigTIFF": ([], dict(ENDIANNESS="BIG", BIGTIFF="YES"), {}, ["georeferenced", "palette", "mask_internal",
                                                                           "nodata_int64", "rational_polynomials"]),
    "palette to RGB": (["-expand", "rgba"], {}, {}, ["palette"]),
    "statistics": (["-stats"], {}, {}, ["georeferenced", "nodata_nan", "mask_internal"]),
    "other nodata": (["-a_nodata", "9"], {}, {}, ["nodata", "bare"]),
    "metadata and CRS given": (["-mo", "A=B", "-a_srs", "EPSG:2154", "-a_ullr", "0", "9", "9", "0"], {}, {}, ["bare"]),
    "ground control given": (["-gcp", "0", "0", "1", "2", "-gcp", "9", "0", "2", "2", "-gcp", "0", "9", "1", "1",
                              "-a_srs", "EPSG:4326"], {}, {}, ["bare"]),
    "part of it": (["-srcwin", "33", "21", "150", "99"], {}, {}, ["georeferenced", "mask_internal", "ground_control",
                                                                  "rational_polynomials"]),
    "half of it": (["-outsize", "50%", "50%", "-r", "average"], {}, {}, ["georeferenced", "mask_internal"]),
    "colours named": (["-colorinterp", "blue,green,red"], {}, {}, ["georeferenced"]),
    "bands swapped": (["-b", "3", "-b", "1"], {}, {}, ["georeferenced", "alpha"]),
    "another type": (["-ot", "Float32", "-scale", "0", "200", "0", "1"], {}, {}, ["nodata", "scaled"]),
    "white is zero": ([], dict(PHOTOMETRIC="MINISWHITE"), {}, ["bare"]),
    "alpha said": ([], dict(ALPHA="PREMULTIPLIED"), {}, ["alpha"]),
    "no auxiliary": ([], {}, {"GDAL_PAM_ENABLED": "NO"}, ["attributes_and_categories", "auxiliary"]),
}  # fmt: skip
CASES = [(c, kind) for c in sorted(COMMANDS) for kind in COMMANDS[c][3]]


def info(path):
    """gdalinfo -json in a fresh process: the text of a CRS depends on what a process did before."""
    done = written.run("gdalinfo", "-json", "-mdd", "all", "-listmdd", "-checksum", "-if", "GTiff", path)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    return test_metadata.without_folder(out, os.path.dirname(str(path)))


def text_files(folder):
    """The files beside, by name: text by content, the rest by being there."""
    out = {}
    for name in sorted(os.listdir(folder)):
        out[name] = None
        if not name.endswith((".tif", ".msk", ".ovr")):
            with open(os.path.join(folder, name), errors="replace") as f:
                out[name] = f.read().replace(str(folder), "")
    return out


def same_as_gtiff(ours, theirs, every_tag=True):
    """Compares two files in folders of their own."""
    found = test_metadata.differences(
        text_files(os.path.dirname(ours)), text_files(os.path.dirname(theirs)), "files")  # fmt: skip
    found += test_metadata.differences(info(ours), info(theirs))
    a, b = written.tags(ours), written.tags(theirs)
    if every_tag:
        found += test_metadata.differences(dict(enumerate(a)), dict(enumerate(b)), "tags")
    else:
        found += test_metadata.differences({**a[0], 0: len(a)}, {**b[0], 0: len(b)}, "tags")
    assert not found, "\n".join(found)
    harness.same_pixels(harness.open_gtiff(ours), harness.open_gtiff(theirs))


def both(tmp_path):
    """(driver, path) of ours and of GTiff's, in folders of their own."""
    out = []
    for name, driver in (("ours", written.DRIVER), ("theirs", "GTiff")):
        (tmp_path / name).mkdir()
        out.append((driver, str(tmp_path / name / "o.tif")))
    return out


@pytest.fixture
def make(tmp_path):
    """make(kind) -> a source file of that kind."""

    def make(kind):
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        return metafiles.MAKERS[kind](str(folder))

    return make


# ---- gdal_translate ------------------------------------------------------------------------


@pytest.mark.parametrize("command,kind", CASES, ids=["%s: %s" % c for c in CASES])
def test_translate(tmp_path, make, command, kind, total):
    args, options, env, _ = COMMANDS[command]
    source = make(kind)
    paths = []
    for driver, path in both(tmp_path):
        o = {**written.SAME_AS_GTIFF, **options}
        done = written.translate(source, path, *args, driver=driver, env=env, **o)
        assert done.returncode == 0, "%s: %s" % (driver, done.stderr)
        paths.append((path, done.stderr.replace(os.path.dirname(path), "")))
    same_as_gtiff(paths[0][0], paths[1][0])
    assert paths[0][1] == paths[1][1], "said %r, GTiff %r" % (paths[0][1], paths[1][1])
    total("commands compared with GTiff's", 1)


@pytest.mark.parametrize("threads", ["1", "ALL_CPUS"])
def test_vrt_sources_never_crash(tmp_path, make, threads):
    """gdal_translate hands over a VRT for most of its arguments; GTiff looks into what calls itself one."""
    source, codes = make("bare"), []
    for k in range(8):
        done = written.translate(source, tmp_path / "o.tif", "-a_nodata", "9", NUM_THREADS=threads,
                                 env={"MALLOC_PERTURB_": str(k * 31)})  # fmt: skip
        codes.append((done.returncode, done.stderr))
    assert codes == [(0, "")] * 8


# ---- CreateCopy in a program ---------------------------------------------------------------


def _told(ds):
    """Everything a dataset tells, but for files (PAM writes at close) and the domain "", listed or not by who asked."""
    with harness.Errors():
        out = test_metadata.describe(ds)
    out.pop("files")
    for o in [out, *out["bands"], *[b["mask"] for b in out["bands"]]]:
        o["domains"] = [d for d in o["domains"] if d]
    return out


@pytest.mark.parametrize("kind", MAKERS)
def test_what_create_copy_returns(tmp_path, make, kind):
    """The dataset that CreateCopy returned is ours, tells what GTiff's tells (which lags behind its own file here and
    there: then what that file tells) and leaves nothing in /vsimem; what it is given then goes to the file."""
    source = make(kind)
    told, paths = [], []
    for driver, path in both(tmp_path):
        ds = written.copy(path, harness.open_gtiff(source), driver, **written.SAME_AS_GTIFF)
        assert ds is not None, gdal.GetLastErrorMsg()
        assert ds.GetDescription() == path and ds.GetDriver().ShortName == driver
        written.check_by_us(ds) if driver == written.DRIVER else None
        assert all(os.path.dirname(f) == os.path.dirname(path) for f in ds.GetFileList()), ds.GetFileList()
        told.append(_told(ds))
        ds = None
        told.append(_told(harness.open_gtiff(path)))
        paths.append(path)
    assert written.in_vsimem() == []
    where = lambda d: d.split(": ")[0]  # noqa: E731
    stale = {where(d) for d in test_metadata.differences(told[0], told[3])}
    found = [d for d in test_metadata.differences(told[0], told[2]) if where(d) in stale]
    assert not found, "\n".join(found)
    same_as_gtiff(*paths)


@pytest.mark.parametrize("kind", ["georeferenced", "palette", "bare"])
def test_setters_on_what_create_copy_returns(tmp_path, make, kind):
    """It is in update mode: what is set and written then goes to the file."""
    source, paths = make(kind), []
    for driver, path in both(tmp_path):
        ds = written.copy(path, harness.open_gtiff(source), driver, **written.SAME_AS_GTIFF)
        assert ds.SetMetadataItem("late", "yes") == 0
        ds.GetRasterBand(1).SetDescription("named late")
        assert ds.GetRasterBand(1).WriteRaster(70, 60, 100, 90, bytes(range(100)) * 90) == 0
        harness.same_bytes(ds.GetRasterBand(1).ReadRaster(70, 60, 100, 1), bytes(range(100)), "read back")
        ds = None
        paths.append(path)
    same_as_gtiff(*paths)


# ---- Create() with setters -----------------------------------------------------------------


class GdalWith:
    """osgeo.gdal, but the driver asked for as GTiff is another one."""

    def __init__(self, driver):
        self.driver = driver

    def __getattr__(self, name):
        return getattr(gdal, name)

    def GetDriverByName(self, name):
        return gdal.GetDriverByName(self.driver if name == "GTiff" else name)


@pytest.mark.parametrize("kind", [k for k in MAKERS if k != "directories"])
def test_create_and_set(tmp_path, monkeypatch, kind):
    """The makers' own files, made by our Create() with everything set after it, masks and overviews included."""
    paths = []
    for driver, path in both(tmp_path):
        monkeypatch.setattr(metafiles, "gdal", GdalWith(driver))
        paths.append(metafiles.MAKERS[kind](os.path.dirname(path)))
    same_as_gtiff(*paths, every_tag="overviews" not in kind and kind != "mask_internal")
    assert written.in_vsimem() == []


def test_set_before_and_between_pixels(tmp_path):
    """Setters in the middle of the pixels: none lost, none of the pixels either."""
    paths = []
    for driver, path in both(tmp_path):
        raster = written.Raster(harness.rng("between"), "uint8", (3, 300, 400))
        ds = written.create(path, raster.shape, driver=driver, BATCH_MB=1, PHOTOMETRIC="RGB", **written.SAME_AS_GTIFF)
        for k in range(6):
            raster.write(ds, 0, k * 50, 400, 50)
            ds.SetMetadataItem("item %d" % k, "x" * 1000 * k)
            ds.GetRasterBand(k % 3 + 1).SetMetadataItem("k", str(k), "DOMAIN%d" % (k % 2))
            ds.GetRasterBand(1).SetNoDataValue(k)
            ds.SetGeoTransform([k, 1, 0, k, 0, -1])
            ds.SetSpatialRef(metafiles._srs(32630 + k))
            ds.GetRasterBand(1).SetScale(k + 0.5)
        assert ds.GetMetadataItem("item 5") == "x" * 5000 and ds.GetRasterBand(1).GetNoDataValue() == 5
        assert ds.GetGeoTransform()[0] == 5
        ds = None
        harness.same_bytes(written.read_gtiff(path), raster.whole(), driver)
        paths.append(path)
    same_as_gtiff(*paths)


CRS = {
    "projected": "EPSG:32631", "geographic": "EPSG:4326", "geographic 3D": "EPSG:4979", "compound": "EPSG:7415",
    "geocentric": "EPSG:4978", "vertical scale": "EPSG:2193+7839",
    "PROJ": "+proj=laea +lat_0=52 +lon_0=10 +ellps=GRS80",
    "local": 'LOCAL_CS["mine",UNIT["metre",1]]', "ESRI": "ESRI:102003",
    "polar": "EPSG:3031", "oblique": "EPSG:2056", "derived": "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39 "
    "+lon_0=18 +to_meter=0.0174532925199433",
    "feet": "EPSG:2263", "bound": "+proj=utm +zone=31 +ellps=intl +towgs84=-87,-98,-121 +units=m",
    "epoch": "epoch",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CRS))
def test_kinds_of_crs(tmp_path, name):
    srs = osr.SpatialReference()
    assert srs.SetFromUserInput("EPSG:9000" if CRS[name] == "epoch" else CRS[name]) == 0
    if name == "epoch":
        srs.SetCoordinateEpoch(2021.3)
    source = gdal.GetDriverByName("MEM").Create("", 40, 30)
    source.SetSpatialRef(srs)
    source.SetGeoTransform([100, 2, 0, 200, 0, -2])
    paths = []
    for driver, path in both(tmp_path):
        with harness.Errors():
            ds = written.copy(path, source, driver, **written.SAME_AS_GTIFF)
        assert ds is not None
        ds = None
        paths.append(path)
    same_as_gtiff(*paths)


def test_nodata_and_statistics_of_a_copy_of_a_copy(tmp_path, make):
    """.aux.xml written by us is read and carried over again."""
    source, paths = make("auxiliary"), []
    ds = gdal.Open(source)
    ds.GetRasterBand(1).ComputeStatistics(False)
    ds = None
    for driver, path in both(tmp_path):
        first = os.path.join(os.path.dirname(path), "first.tif")
        written.succeeded(written.translate(source, first, driver=driver, **written.SAME_AS_GTIFF))
        written.succeeded(written.translate(first, path, driver=driver, **written.SAME_AS_GTIFF))
        paths.append(path)
    assert os.path.exists(paths[1] + ".aux.xml") == os.path.exists(paths[0] + ".aux.xml")
    same_as_gtiff(*paths)


def test_old_sidecars_do_not_stay(tmp_path, make):
    """A target written again without what its first version had beside it."""
    for driver, path in both(tmp_path):
        written.succeeded(written.translate(make("attributes_and_categories"), path, driver=driver, TFW="YES",
                                            **written.SAME_AS_GTIFF))  # fmt: skip
        assert os.path.exists(path + ".aux.xml")
        written.succeeded(written.translate(make("bare"), path, driver=driver, **written.SAME_AS_GTIFF))
    files = [sorted(os.listdir(tmp_path / n)) for n in ("ours", "theirs")]
    assert files[0] == files[1]


# ---- masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("internal", ["YES", "NO"])
@pytest.mark.parametrize("compress", ["DEFLATE", "LZW", "ZSTD", "PACKBITS", "NONE"])
def test_masks_stream_like_bands(tmp_path, internal, compress):
    """A mask larger than a batch; not a pixel of it in /vsimem when it is done."""
    h, w = 1200, 1500
    raster = written.Raster(harness.rng("mask"), "uint8", (3, h, w))
    bits = (np.random.default_rng(5).integers(0, 2, (h // 10, w // 10)) * 255).astype(np.uint8)
    bits = bits.repeat(10, 0).repeat(10, 1)
    source = raster.mem()
    source.CreateMaskBand(gdal.GMF_PER_DATASET)
    source.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, bits.tobytes())
    paths = []
    for driver, path in both(tmp_path):
        with harness.config(GDAL_TIFF_INTERNAL_MASK=internal):
            ds = written.copy(path, source, driver, TILED="YES", COMPRESS=compress, BATCH_MB=1)
            assert ds is not None
            written.check_by_us(ds) if driver == written.DRIVER else None
        ds = None
        again = harness.open_gtiff(path)
        harness.same_bytes(again.GetRasterBand(2).GetMaskBand().ReadRaster(), bits.tobytes(), driver)
        assert os.path.exists(path + ".msk") == (internal == "NO")
        paths.append(path)
    same_as_gtiff(*paths)
    assert written.in_vsimem() == []


@pytest.mark.parametrize("create", [False, True])
def test_internal_mask_of_narrow_strips(tmp_path, create):
    """A row of bits ends with the byte: in bytes it seems wider than the image."""
    h, w = 7, 9
    raster = written.Raster(harness.rng("narrow"), "uint8", (1, h, w))
    bits = (np.arange(h * w) % 3 == 0).astype(np.uint8) * 255
    source = raster.mem()
    source.CreateMaskBand(gdal.GMF_PER_DATASET)
    source.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, bits.tobytes())
    path = str(tmp_path / "o.tif")
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        if create:
            ds = gdal.GetDriverByName(written.DRIVER).Create(path, w, h, 1, gdal.GDT_Byte, ["TILED=NO"])
            ds.WriteRaster(0, 0, w, h, source.ReadRaster())
            assert ds.CreateMaskBand(gdal.GMF_PER_DATASET) == 0
            ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, bits.tobytes())
        else:
            ds = written.copy(path, source, TILED="NO")
        assert ds is not None
    ds = None
    again = harness.open_gtiff(path)
    assert not os.path.exists(path + ".msk")
    harness.same_bytes(again.ReadRaster(), source.ReadRaster(), "pixels")
    harness.same_bytes(again.GetRasterBand(1).GetMaskBand().ReadRaster(), bits.tobytes(), "mask")


@pytest.mark.parametrize("internal", ["YES", "NO"])
def test_a_mask_of_its_own_for_each_band(tmp_path, internal):
    """Mask flags 0: GTiff writes them beside the file, and refuses to put them inside; none is lost in silence."""
    raster = written.Raster(harness.rng("own masks"), "uint8", (3, 60, 70))
    source = raster.mem()
    for i in (1, 2, 3):
        source.GetRasterBand(i).CreateMaskBand(0)
        bits = np.random.default_rng(i).integers(0, 2, 60 * 70).astype(np.uint8) * 255
        source.GetRasterBand(i).GetMaskBand().WriteRaster(0, 0, 70, 60, bits.tobytes())
    made = []
    for driver, path in both(tmp_path):
        with harness.config(GDAL_TIFF_INTERNAL_MASK=internal), harness.Errors():
            ds = written.copy(path, source, driver, **written.SAME_AS_GTIFF)
            made.append(path if ds is not None else None)
            ds = None
    assert (made[1] is None) == (internal == "YES")
    if internal == "NO":
        same_as_gtiff(*made)
    elif made[0] is not None:
        harness.same_pixels(harness.open_gtiff(made[0]), source, "not refused")


# ---- other tools ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["georeferenced", "mask_internal", "palette", "nodata", "overviews_internal"])
def test_gdalcompare_finds_only_the_bytes(tmp_path, make, kind):
    source, paths = make(kind), []
    for driver, path in both(tmp_path):
        written.succeeded(written.translate(source, path, driver=driver, COPY_TILES="NO", **written.SAME_AS_GTIFF))
        paths.append(path)
    done = written.run("gdalcompare.py", paths[1], paths[0])
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    more = [line for line in lines if "binary" not in line and not line.startswith("Differences Found")]
    assert more == [], done.stdout
    assert done.returncode in (0, 1), done.stdout + done.stderr
    if not written.SELF_TEST:
        assert any("binary" in line for line in lines), "GTiff's bytes: did it write? %s" % done.stdout


def _without_places(text):
    """What tiffinfo and tiffdump print, without offsets, byte counts and the file's name."""
    text = re.sub(r"0x[0-9a-f]+ \(\d+\)|\S+\.tif", "", text)
    return [line for line in text.splitlines() if not re.search(r"Offsets|ByteCounts|^\s+\d+: \[", line)]


def libtiff_says(path):
    """What tiffinfo and tiffdump tell and warn of."""
    info_ = written.run("tiffinfo", "-D", path)
    dump = written.run("tiffdump", "-m", "4", path)
    tags = re.findall(r"^(\w+) \((\d+)\) (\w+) \((\d+)\) (\d+)<", dump.stdout, re.M)
    known = [t for t in tags if int(t[1]) not in written.STRILE_TAGS | {256, 257, 322, 323, 278}]
    assert known and info_.returncode == 0, info_.stderr
    return {"info": _without_places(info_.stdout), "info errors": _without_places(info_.stderr),
            "dump errors": _without_places(dump.stderr), "tags": known}  # fmt: skip


@pytest.mark.skipif(not shutil.which("tiffinfo"), reason="NO TIFFINFO: install libtiff-tools")
@pytest.mark.parametrize("kind", ["georeferenced", "mask_internal", "palette", "nodata_nan", "alpha", "scaled",
                                  "strips_big_endian_bigtiff", "rational_polynomials", "ground_control"])  # fmt: skip
def test_tiffinfo_says_what_it_says_of_gtiffs(tmp_path, make, kind):
    source, said = make(kind), []
    more = dict(ENDIANNESS="BIG", BIGTIFF="YES", TILED="NO") if "bigtiff" in kind else {}
    for driver, path in both(tmp_path):
        o = {**written.SAME_AS_GTIFF, **more}
        written.succeeded(written.translate(source, path, driver=driver, env=INTERNAL, **o))
        said.append(libtiff_says(path))
    found = test_metadata.differences(*said)
    assert not found, "\n".join(found)


def test_nothing_stays_in_memory(tmp_path):
    """Hundreds of files made and closed: the process does not grow with what is hidden in /vsimem."""
    code = """
import json, os, sys
import harness, written
raster = written.Raster(harness.rng("leak"), "uint8", (3, 100, 2000))
mem = raster.mem()
def once(k):
    ds = written.copy(sys.argv[1] + "/a.tif", mem) if k % 2 else raster.create(sys.argv[1] + "/a.tif")
    ds.SetMetadataItem("x", "y" * 20000)
    ds = None
def rss():
    with open("/proc/self/status") as f: return next(int(l.split()[1]) for l in f if l.startswith("VmRSS"))
for k in range(60): once(k)
base = rss()
for k in range(300): once(k)
print(json.dumps([rss() - base, written.in_vsimem()]))
"""
    grown, left = harness.run_json(code, tmp_path)
    assert left == [] and grown < 4000, "grown by %d kB; in /vsimem: %s" % (grown, left)
