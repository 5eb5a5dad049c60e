"""GDAL's tools writing with our driver, and changing a file of ours: the same as with GTiff."""

import harness
import metafiles
import numpy as np
import pytest
import test_metadata
import test_write_metadata
import written


@pytest.fixture
def georeferenced(tmp_path):
    """The same raster as a file of ours and as one of GTiff's."""
    (tmp_path / "source").mkdir()
    source = metafiles.georeferenced(str(tmp_path / "source"))
    paths = []
    for driver, path in test_write_metadata.both(tmp_path):
        written.succeeded(written.translate(source, path, driver=driver, **written.SAME_AS_GTIFF))
        paths.append(path)
    return paths


@pytest.mark.parametrize("command", [
    ["gdaladdo", "-q", "-r", "average", "FILE", "2", "4"], ["gdaladdo", "-q", "-ro", "FILE", "2"],
    ["gdal_edit.py", "-a_srs", "EPSG:2154", "-mo", "A=B", "-a_nodata", "5", "FILE"],
    ["gdal_edit.py", "-unsetgt", "-unsetmd", "FILE"], ["gdal_edit.py", "-stats", "-scale", "2", "-offset", "1", "FILE"],
    ["gdalinfo", "-stats", "-hist", "FILE"],
    ["gdal_rasterize", "-q", "-burn", "9", "-b", "1", "SHAPE", "FILE"],
], ids=lambda c: " ".join(c[:2]))  # fmt: skip
def test_tools_change_our_file_as_gtiffs(tmp_path, georeferenced, command):
    shape = tmp_path / "shape.geojson"
    shape.write_text(SHAPE)
    for path in georeferenced:
        done = written.run(*[{"FILE": path, "SHAPE": str(shape)}.get(a, a) for a in command])
        assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr
    test_write_metadata.same_as_gtiff(*georeferenced, every_tag=False)


SHAPE = """{"type": "FeatureCollection", "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32631"}},
"features": [{"type": "Feature", "properties": {"v": 7}, "geometry": {"type": "Polygon", "coordinates":
[[[441000, 3751000], [452000, 3750000], [450000, 3742000], [442000, 3743000], [441000, 3751000]]]}}]}"""


WARPS = {
    "to degrees": ["-t_srs", "EPSG:4326", "-r", "cubic"],
    "chunks": ["-t_srs", "EPSG:3857", "-wm", "1", "-tr", "20", "20"],
    "threads": ["-t_srs", "EPSG:3857", "-multi", "-wo", "NUM_THREADS=2", "-tr", "25", "25"],
    "with alpha": ["-t_srs", "EPSG:4326", "-dstalpha"],
    "with nodata": ["-t_srs", "EPSG:4326", "-dstnodata", "250", "-ot", "Int16"],
    "larger than the source": ["-te", "430000", "3730000", "470000", "3760000", "-tr", "60", "60"],
    "of one type": ["-ot", "Float32", "-t_srs", "EPSG:2154", "-r", "bilinear"],
}


@pytest.mark.parametrize("name", sorted(WARPS))
@pytest.mark.parametrize("options", [{}, dict(INTERLEAVE="BAND", COMPRESS="LZW"), dict(TILED="NO", SPARSE_OK="YES")],
                         ids=["plain", "by band", "strips"])  # fmt: skip
def test_gdalwarp(tmp_path, georeferenced, name, options):
    """Equal pixels. PHOTOMETRIC is set by gdalwarp for the name GTiff alone: said here for both."""
    out = []
    for driver, path in zip((written.DRIVER, "GTiff"), georeferenced):
        target = path.replace("o.tif", "w.tif")
        o = {**written.SAME_AS_GTIFF, "PHOTOMETRIC": "RGB", **options, "BATCH_MB": 1}
        co = [a for v in written.option_list(o, driver) for a in ("-co", v)]
        done = written.run("gdalwarp", "-q", "-of", driver, *co, *WARPS[name], georeferenced[1], target)
        written.succeeded(done)
        out.append(target)
    ours, theirs = (harness.open_gtiff(p) for p in out)
    harness.same_pixels(ours, theirs, name)
    assert ours.GetGeoTransform() == theirs.GetGeoTransform() and ours.GetProjectionRef() == theirs.GetProjectionRef()
    assert any(ours.ReadRaster())


@pytest.mark.parametrize("name", sorted(WARPS))
def test_gdalwarp_in_replace_mode(tmp_path, georeferenced, name):
    """Under GTiff's name: its defaults, its name-based options, the same gdalinfo."""
    written.ours_only()
    out = []
    for path, env in zip(georeferenced, ({"GPUGTIFF_REPLACE_GTIFF": "YES"}, {})):
        target = path.replace("o.tif", "w.tif")
        written.succeeded(written.run("gdalwarp", "-q", *WARPS[name], georeferenced[1], target, env=env))
        out.append(target)
    found = test_metadata.differences(*(test_write_metadata.info(p) for p in out))
    assert not found, "\n".join(found)
    harness.same_pixels(*(harness.open_gtiff(p) for p in out), where=name)


def test_gdalwarp_into_an_existing_file(tmp_path, georeferenced):
    """Two warps into one target: the second opens the file for update."""
    for driver, path in zip((written.DRIVER, "GTiff"), georeferenced):
        target = path.replace("o.tif", "w.tif")
        for k, te in enumerate((["440000", "3740000", "460000", "3752000"], [])):
            more = ["-te", *te, "-tr", "60", "60"] if te else ["-r", "bilinear"]
            made = ["-of", driver, "-co", "COMPRESS=LZW"] if k == 0 else []
            done = written.run("gdalwarp", "-q", *made, *more, georeferenced[1], target)
            assert done.returncode == 0, done.stderr
    a, b = (harness.open_gtiff(p.replace("o.tif", "w.tif")) for p in georeferenced)
    harness.same_pixels(a, b)


def test_gdal_rasterize_makes_a_file(tmp_path):
    shape = tmp_path / "s.geojson"
    shape.write_text(SHAPE)
    out = []
    for driver, path in test_write_metadata.both(tmp_path):
        co = [a for v in written.option_list(written.SAME_AS_GTIFF, driver) for a in ("-co", v)]
        done = written.run("gdal_rasterize", "-q", "-of", driver, *co, "-a", "v", "-tr", "30", "30", "-ot", "Int16",
                           "-a_nodata", "-9", "-init", "1", shape, path)  # fmt: skip
        written.succeeded(done)
        out.append(path)
    test_write_metadata.same_as_gtiff(*out)
    assert np.frombuffer(written.read_gtiff(out[0]), np.int16).max() == 7


def test_gdal_calc_writes_with_our_driver(tmp_path, georeferenced):
    out = []
    for driver, path in zip((written.DRIVER, "GTiff"), georeferenced):
        target = path.replace("o.tif", "c.tif")
        co = ["--co=" + o for o in written.option_list(written.SAME_AS_GTIFF, driver)]
        done = written.run("gdal_calc.py", "--quiet", "--format", driver, *co, "-A", georeferenced[1], "--calc=A*2.5",
                           "--type=Float32", "--outfile=" + target)  # fmt: skip
        assert done.returncode == 0, done.stderr
        out.append(target)
    test_write_metadata.same_as_gtiff(*out)


def test_translate_of_a_vrt(tmp_path, georeferenced):
    vrt = str(tmp_path / "v.vrt")
    written.succeeded(written.run("gdalbuildvrt", "-q", vrt, georeferenced[1]))
    out = []
    for driver, path in zip((written.DRIVER, "GTiff"), georeferenced):
        target = path.replace("o.tif", "v.tif")
        written.succeeded(written.translate(vrt, target, driver=driver, **written.SAME_AS_GTIFF))
        out.append(target)
    test_write_metadata.same_as_gtiff(*out)
