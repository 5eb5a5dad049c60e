"""TIFFs of JPEG 2000 tiles, which GTiff does not open: pixels as tifffile has them, everything else as
GTiff has it for the same file uncompressed."""

import os
import shutil
import struct
import subprocess
import threading
import time

import capi
import harness
import j2kfiles
import numpy
import pytest
import tifffile
from osgeo import gdal, gdal_array

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="GTiff does not open them")

TYPES = ("uint8", "int8", "uint16", "int16")


def opened(path, *options):
    ds = harness.open_ours(path, options)
    assert ds is not None, gdal.GetLastErrorMsg()
    return ds


def in_memory(array):
    """The same as a dataset. Signed bytes are GDAL's bytes before 3.7."""
    shown = array.view("uint8") if array.dtype == "int8" and not hasattr(gdal, "GDT_Int8") else array
    return gdal_array.OpenArray(numpy.ascontiguousarray(numpy.moveaxis(shown, -1, 0)))


def same_as(ds, array, where="", windows=12, key="windows"):
    """Whole, and by random windows, bands and buffer types."""
    other, rng = in_memory(array), harness.rng(key, where)
    assert (ds.RasterXSize, ds.RasterYSize, ds.RasterCount) == (
        other.RasterXSize, other.RasterYSize, other.RasterCount), where  # fmt: skip
    harness.same_bytes(ds.ReadRaster(), other.ReadRaster(), "%s whole" % where)
    for i in range(windows):
        x, y = rng.randrange(ds.RasterXSize), rng.randrange(ds.RasterYSize)
        w, h = rng.randint(1, ds.RasterXSize - x), rng.randint(1, ds.RasterYSize - y)
        bands = [rng.randint(1, ds.RasterCount) for _ in range(rng.randint(1, 3))]
        kind = rng.choice([gdal.GDT_Byte, gdal.GDT_UInt16, gdal.GDT_Int16, gdal.GDT_Float32])
        ask = dict(xoff=x, yoff=y, xsize=w, ysize=h, buf_type=kind, band_list=bands)
        harness.same_bytes(ds.ReadRaster(**ask), other.ReadRaster(**ask), "%s %s" % (where, ask))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("samples", (1, 2, 3, 4))
def test_pixels(tmp_path, dtype, samples):
    rng = harness.rng("j2k", dtype, samples)
    for i, (planar, boxed, big) in enumerate([(0, 0, 0), (1, 0, 1), (0, 1, 0)]):
        shape = (rng.randint(1, 200), rng.randint(1, 200), samples)
        array = j2kfiles.pixels(shape, dtype, rng)
        where = "%s x %d %s" % (dtype, samples, (shape, planar, boxed, big))
        path = j2kfiles.write(str(tmp_path / ("%d.tif" % i)), array, planar=planar, boxed=boxed,
                              tile=(16 * rng.randint(1, 6), 16 * rng.randint(1, 6)), bigtiff=bool(big),
                              byteorder=rng.choice("<>"))  # fmt: skip
        ds = opened(path)
        same_as(ds, array, where)
        harness.check_all_ours(ds, where)


@pytest.mark.parametrize("dtype", ("uint8", "uint16"))
@pytest.mark.parametrize("samples", (1, 3))
def test_lossy(tmp_path, dtype, samples):
    """Within one of imagecodecs' decoder: two versions of OpenJPEG round irreversible wavelets
    differently."""
    rng = harness.rng("lossy", dtype, samples)
    array = j2kfiles.pixels((100, 130, samples), dtype, rng)
    path = j2kfiles.write(str(tmp_path / "l.tif"), array, lossy=True)
    theirs = j2kfiles.decoded(path)
    assert (theirs != array).any(), "that was to be lossy"
    ours = opened(path).ReadAsArray()
    ours = numpy.moveaxis(ours, 0, -1) if samples > 1 else ours[..., None]
    assert abs(ours.astype(int) - theirs).max() <= 1
    same_as(opened(path), ours)


@pytest.mark.parametrize("rows", (1, 7, 16, 90))
def test_strips(tmp_path, rows):
    array = j2kfiles.pixels((90, 70, 3), "uint8", harness.rng("strips", rows))
    path = j2kfiles.write(str(tmp_path / "s.tif"), array, tile=None, rowsperstrip=rows)
    same_as(opened(path), array)


def test_tiles_without_padding(tmp_path):
    """Tiles on the right and at the bottom may end with the image; others may not."""
    array = j2kfiles.pixels((50, 75, 3), "uint8", harness.rng("cropped"))
    path = j2kfiles.write(str(tmp_path / "c.tif"), array, tile=(32, 32))
    for i, (y, x) in enumerate((y, x) for y in (0, 32) for x in (0, 32, 64)):
        j2kfiles.replace_tile(path, i, j2kfiles.encode(array[y : y + 32, x : x + 32]))
    ds = opened(path)
    same_as(ds, array)
    assert ds.GetRasterBand(1).ReadBlock(2, 1)[11:32] == bytes(21)
    j2kfiles.replace_tile(path, 1, j2kfiles.encode(array[:32, 32:63]))
    with harness.Errors() as errors:
        assert opened(path).ReadRaster() is None
    assert "31 x 32 pixels where a tile has 32 x 32" in errors.text()


def test_missing_tiles_are_nodata(tmp_path):
    array = j2kfiles.pixels((64, 96, 1), "uint16", harness.rng("sparse"))
    path = j2kfiles.write(str(tmp_path / "n.tif"), array, tile=(32, 32), extratags=[(42113, 2, 0, "77", True)])
    tiff = j2kfiles.tiffpatch.Tiff(path)
    for tag in (324, 325):
        tiff.set(tag, 0, 1)
    tiff.save()
    array[:32, 32:64] = 77
    ds = opened(path)
    same_as(ds, array)
    assert harness.counters(ds)[harness.SPARSE] > 0


# ---- YCbCr ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", (j2kfiles.JPEG2000, j2kfiles.APERIO_YCBCR, j2kfiles.APERIO_RGB))
@pytest.mark.parametrize("photometric", (2, 6))
@pytest.mark.parametrize("mct", (False, True))
def test_colours(tmp_path, compression, photometric, mct):
    """YCbCr by Photometric or by 33003, whose Photometric may be anything; what the codestream converts
    itself is RGB."""
    array = j2kfiles.pixels((64, 64, 3), "uint8", harness.rng("ycbcr"))
    path = j2kfiles.write(str(tmp_path / "y.tif"), array, tile=(64, 64), compression=compression)
    j2kfiles.replace_tile(path, 0, j2kfiles.encode(array, mct=mct))
    j2kfiles.patch(path, 262, photometric)
    converts = not mct and (photometric == 6 or compression == j2kfiles.APERIO_YCBCR)
    ds = opened(path)
    same_as(ds, j2kfiles.to_rgb(*numpy.moveaxis(array, -1, 0)) if converts else array)
    colours = [ds.GetRasterBand(i).GetColorInterpretation() for i in (1, 2, 3)]
    assert colours == [gdal.GCI_RedBand, gdal.GCI_GreenBand, gdal.GCI_BlueBand]


@pytest.mark.parametrize("name, step", (("u8x3-422", (2, 1)), ("u8x3-420", (2, 2))))
def test_subsampled(tmp_path, name, step):
    array = numpy.zeros((32, 64, 3), "uint8")
    path = j2kfiles.write(str(tmp_path / "y.tif"), array, tile=(32, 32), compression=j2kfiles.APERIO_YCBCR)
    for tile in (0, 1):
        j2kfiles.replace_tile(path, tile, j2kfiles.fixture(name))
    y = j2kfiles.fixture_samples(32, 32, 0)
    chroma = [j2kfiles.fixture_samples(32 // step[0], 32 // step[1], c) for c in (1, 2)]
    cb, cr = (c.repeat(step[0], 1).repeat(step[1], 0) for c in chroma)
    rgb = j2kfiles.to_rgb(y, cb, cr)
    same_as(opened(path), numpy.concatenate([rgb, rgb], 1))
    j2kfiles.patch(path, 259, j2kfiles.APERIO_RGB)
    with harness.Errors() as errors:
        assert opened(path).ReadRaster() is None
    assert "subsampled components in an image that is not YCbCr" in errors.text()


def test_unusual_coefficients_are_refused(tmp_path):
    array = j2kfiles.pixels((32, 32, 3), "uint8", harness.rng("coefficients"))
    tags = [(529, 5, 3, (2126, 10000, 7152, 10000, 722, 10000), True)]
    path = j2kfiles.write(str(tmp_path / "y.tif"), array, tile=(32, 32), extratags=tags)
    same_as(opened(path), array)
    j2kfiles.patch(path, 262, 6)
    with harness.Errors() as errors:
        assert opened(path).ReadRaster() is None
    assert "tag 529" in errors.text() and "Deflate" not in errors.text() and "ZIP" not in errors.text()


# ---- everything but pixels -----------------------------------------------------------------

GEOGRAPHY = [
    (33550, 12, 3, (0.5, 0.25, 0.0), True),
    (33922, 12, 6, (0.0, 0.0, 0.0, 10.0, 50.0, 0.0), True),
    (34735, 3, 16, (1, 1, 0, 3, 1024, 0, 1, 2, 1025, 0, 1, 1, 2048, 0, 1, 4326), True),
    (42112, 2, 0, '<GDALMetadata><Item name="KEY">some text</Item><Item name="OFFSET" sample="0" '
                  'role="offset">3</Item></GDALMetadata>', True),
    (42113, 2, 0, "7", True),
]  # fmt: skip


def facts(ds):
    bands = []
    for i in range(1, ds.RasterCount + 1):
        band = ds.GetRasterBand(i)
        bands.append((band.DataType, band.GetBlockSize(), band.GetColorInterpretation(), band.GetNoDataValue(),
                      band.GetMetadata(), band.GetOverviewCount(), band.GetMaskFlags(), band.GetOffset(),
                      band.GetMetadata("IMAGE_STRUCTURE"), band.GetDescription()))  # fmt: skip
    structure = dict(ds.GetMetadata("IMAGE_STRUCTURE"))
    structure.pop("COMPRESSION", None)
    return (ds.GetProjection(), ds.GetGeoTransform(), ds.GetMetadata(), structure, bands, ds.GetGCPCount(),
            ds.RasterXSize, ds.RasterYSize)  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("samples, planar", ((1, 0), (3, 0), (4, 1)))
def test_metadata(tmp_path, dtype, samples, planar):
    array = j2kfiles.pixels((70, 90, samples), dtype, harness.rng("metadata"))
    path = j2kfiles.write(str(tmp_path / "m.tif"), array, planar=planar, extratags=GEOGRAPHY, tile=(32, 48),
                          description="an image", software="somebody", byteorder=">")  # fmt: skip
    ours, theirs = opened(path), harness.open_gtiff(path + ".plain")
    assert facts(ours) == facts(theirs)
    assert "WGS 84" in ours.GetProjection() and ours.GetMetadataItem("KEY") == "some text"
    assert ours.GetMetadataItem("COMPRESSION", "IMAGE_STRUCTURE") == "JP2000"
    assert ours.GetMetadata("IMAGE_STRUCTURE")["COMPRESSION"] == "JP2000"
    assert ours.GetFileList() == [path] and ours.GetDescription() == path


def test_what_lies_beside_the_file_is_found(tmp_path):
    array = j2kfiles.pixels((128, 128, 1), "uint8", harness.rng("beside"))
    path = j2kfiles.write(str(tmp_path / "b & c's.tif"), array)
    plain = path + ".plain"
    harness.open_gtiff(plain).BuildOverviews("NEAREST", [2])
    shutil.move(plain + ".ovr", path + ".ovr")
    with open(path + ".aux.xml", "w") as f:
        f.write("<PAMDataset><Metadata><MDI key='BESIDE'>yes</MDI></Metadata></PAMDataset>")
    ds = opened(path)
    assert ds.GetMetadataItem("BESIDE") == "yes"
    assert sorted(ds.GetFileList()) == sorted([path, path + ".ovr", path + ".aux.xml"])
    overview = ds.GetRasterBand(1).GetOverview(0)
    harness.same_bytes(overview.ReadRaster(), numpy.ascontiguousarray(array[::2, ::2, 0]).tobytes(), "overview")
    harness.check_all_ours(ds)


def test_what_is_made_of_pixels(tmp_path):
    array = j2kfiles.pixels((100, 120, 1), "uint16", harness.rng("statistics"))
    path = j2kfiles.write(str(tmp_path / "p.tif"), array)
    datasets = opened(path), harness.open_gtiff(path + ".plain")
    ours, theirs = (ds.GetRasterBand(1) for ds in datasets)
    assert ours.Checksum() == theirs.Checksum()
    # GTiff remembers exact ones, and takes them for approximate ones later.
    for approximate in (1, 0):
        ask = dict(min=0, max=65536, buckets=64, approx_ok=approximate)
        for beyond in (0, 1):
            ask["include_out_of_range"] = beyond
            assert ours.GetHistogram(**ask) == theirs.GetHistogram(**ask)
    assert ours.ComputeRasterMinMax() == theirs.ComputeRasterMinMax()
    assert ours.ComputeStatistics(False) == theirs.ComputeStatistics(False)
    small = dict(buf_xsize=30, buf_ysize=25, resample_alg=gdal.GRIORA_Bilinear)
    harness.same_bytes(ours.ReadRaster(**small), theirs.ReadRaster(**small), "resampled")
    out = str(tmp_path / "o.tif")
    subprocess.run(["gdal_translate", "-q", "-if", "GPUGTiff", path, out], check=True)
    same_as(harness.open_gtiff(out), array, windows=0)
    with harness.Errors() as errors:
        assert opened(path).BuildOverviews("NEAREST", [2]) != 0
    assert "building overviews" in errors.text() and not os.path.exists(path + ".ovr")


def levels(path, arrays, compressions, reduced=True):
    with tifffile.TiffWriter(path) as tiff:
        for i, (array, compression) in enumerate(zip(arrays, compressions)):
            args = {"level": 0} if compression == "jpeg2000" else {}
            tiff.write(array, tile=(32, 32), photometric="rgb", compression=compression, compressionargs=args,
                       subfiletype=1 if i and reduced else 0, metadata=None)  # fmt: skip
    return path


def test_overviews(tmp_path):
    array = j2kfiles.pixels((120, 160, 3), "uint8", harness.rng("overviews"))
    halves = [array, array[::2, ::2].copy(), array[::4, ::4].copy()]
    path = levels(str(tmp_path / "o.tif"), halves, ["jpeg2000", "jpeg2000", "deflate"])
    ds = opened(path)
    band = ds.GetRasterBand(2)
    assert band.GetOverviewCount() == 2
    for i in (0, 1):
        want = numpy.ascontiguousarray(halves[i + 1][..., 1]).tobytes()
        harness.same_bytes(band.GetOverview(i).ReadRaster(), want, "overview %d" % i)
    half = dict(buf_xsize=80, buf_ysize=60)
    same = numpy.ascontiguousarray(numpy.moveaxis(halves[1], -1, 0)).tobytes()
    harness.same_bytes(ds.ReadRaster(**half), same, "half the size")
    harness.check_all_ours(ds)


def test_several_images_as_a_slide_has_them(tmp_path):
    """JPEG and LZW beside JPEG 2000, as Aperio's slides: each by its number and by its offset."""
    array = j2kfiles.pixels((120, 160, 3), "uint8", harness.rng("slide"))
    path = levels(str(tmp_path / "s.svs"), [array, array[:50].copy(), array[:, :64].copy()],
                  ["jpeg2000", "jpeg", "jpeg2000"], reduced=False)  # fmt: skip
    tiff = j2kfiles.tiffpatch.Tiff(path)
    for directory in (0, 2):
        tiff.set(259, j2kfiles.APERIO_RGB, directory=directory)
    tiff.save()
    ds = opened(path)
    same_as(ds, array)
    assert len(ds.GetSubDatasets()) == 3 and all(path in name for name, _ in ds.GetSubDatasets())
    jpeg, compressions = gdal.Open("GPUGTIFF:GTIFF_DIR:2:" + path), []
    harness.same_bytes(jpeg.ReadRaster(), harness.open_gtiff("GTIFF_DIR:2:" + path).ReadRaster(), "JPEG")
    for name in ("GTIFF_DIR:3:", "GTIFF_DIR:off:%d:" % tiff.directories[2]["at"]):
        third = opened(name + path)
        same_as(third, array[:, :64].copy(), name)
        compressions.append(third.GetMetadataItem("COMPRESSION", "IMAGE_STRUCTURE"))
    assert compressions == ["JP2000"] * 2 and "JPEG" in jpeg.GetMetadataItem("COMPRESSION", "IMAGE_STRUCTURE")


# ---- directories ---------------------------------------------------------------------------


def pages(folder, arrays, compression):
    os.makedirs(folder)
    return levels(str(folder / "p.tif"), arrays, [compression] * len(arrays), reduced=False)


def test_absent_directories(tmp_path):
    array = j2kfiles.pixels((40, 40, 3), "uint8", harness.rng("absent"))
    path = pages(tmp_path / "j2k", [array, array], "jpeg2000")
    for name in ("GTIFF_DIR:0:", "GTIFF_DIR:3:", "GTIFF_DIR:99:", "GTIFF_DIR:off:0:", "GTIFF_DIR:off:1000000:",
                 "GTIFF_RAW:GTIFF_DIR:3:"):  # fmt: skip
        said = []
        for prefix, opens in (("GPUGTIFF:", gdal.Open), ("", harness.open_gtiff)):
            with harness.Errors() as errors:
                assert opens(prefix + name + path) is None, name
            said.append(errors.text())
        assert said[0] == said[1] and said[0], name


def test_what_lies_beside_a_page(tmp_path):
    """As GTiff has it for the same pages of another codec: the world file, no overviews or metadata of the
    first page, and statistics that are kept. GTiff does not read these again; we do, and so name their file."""
    array = j2kfiles.pixels((64, 64, 3), "uint8", harness.rng("beside a page"))
    seen = []
    for codec, opens in (("jpeg2000", opened), ("deflate", harness.open_gtiff)):
        path = pages(tmp_path / codec, [array, array[:32].copy()], codec)
        with open(path[:-4] + ".tfw", "w") as f:
            f.write("2\n0\n0\n-3\n100\n200\n")
        levels(path + ".ovr", [array[::2, ::2].copy()], ["deflate"])
        for name in ("GTIFF_DIR:2:", "GTIFF_DIR:off:%d:" % j2kfiles.tiffpatch.Tiff(path).directories[1]["at"]):
            with open(path + ".aux.xml", "w") as f:
                f.write("<PAMDataset><Metadata><MDI key='BESIDE'>yes</MDI></Metadata></PAMDataset>")
            first = opens(path)
            assert first.GetMetadataItem("BESIDE") == "yes" and first.GetRasterBand(1).GetOverviewCount() == 1
            first = None
            ds = opens(name + path)
            assert ds.GetDescription() == name + path
            files = {os.path.relpath(file, os.path.dirname(path)) for file in ds.GetFileList()} - {"p.tif.aux.xml"}
            seen.append((facts(ds), files, ds.GetSubDatasets(), ds.GetRasterBand(1).ComputeStatistics(False)))
            ds = None
            with open(path + ".aux.xml") as f:
                kept = f.read()
            for part in ("BESIDE", "STATISTICS_MEAN", '<Subdataset name="%s">' % (name + path)):
                assert part in kept
            if codec == "jpeg2000":
                ds = opens(name + path)
                assert ds.GetRasterBand(1).GetStatistics(0, 0) == pytest.approx(seen[-1][3])
                assert path + ".aux.xml" in ds.GetFileList()
    assert seen[0] == seen[2] and seen[1] == seen[3]
    assert seen[0][0][1] == (99.0, 2.0, 0.0, 201.5, 0.0, -3.0) and seen[0][1] == {"p.tfw", "p.tif"}


def test_raw(tmp_path):
    array = j2kfiles.pixels((40, 64, 3), "uint8", harness.rng("raw"))
    path = pages(tmp_path / "j2k", [array, array[:20].copy()], "jpeg2000")
    same_as(opened("GTIFF_RAW:" + path), array, "raw")
    same_as(opened("GTIFF_RAW:GTIFF_DIR:2:" + path), array[:20].copy(), "raw page")
    plain = pages(tmp_path / "plain", [array, array[:20].copy()], None)
    same_as(opened("GTIFF_RAW:GTIFF_DIR:2:" + plain), array[:20].copy(), "another codec's")


def test_each_image_has_its_own_reason(tmp_path):
    array = j2kfiles.pixels((64, 64, 3), "uint8", harness.rng("reasons"))
    path = levels(str(tmp_path / "r.tif"), [array, array[::2, ::2].copy()], ["jpeg2000"] * 2)
    for directory, bits in ((0, 12), (1, 10)):
        tiff = j2kfiles.tiffpatch.Tiff(path)
        for sample in range(3):
            tiff.set(258, bits, sample, directory=directory)
        tiff.save()
    ds = opened(path)
    band = ds.GetRasterBand(1)
    for image, bits in ((band, 12), (band.GetOverview(0), 10), (band, 12)):
        with harness.Errors() as errors:
            assert image.ReadRaster(0, 0, 20, 20) is None
        assert "%d bits" % bits in errors.text()


def test_many_pages_take_few_descriptors(tmp_path):
    array = j2kfiles.pixels((16, 16, 3), "uint8", harness.rng("pages"))
    path = pages(tmp_path / "j2k", [array] * 300, "jpeg2000")
    before = len(os.listdir("/proc/self/fd"))
    ds = opened(path)
    assert len(ds.GetSubDatasets()) == 300
    last = opened("GTIFF_DIR:300:" + path)
    for each in (ds, last):
        same_as(each, array, windows=2)
    assert len(os.listdir("/proc/self/fd")) - before <= 8


def test_a_chain_of_many_directories(tmp_path):
    """Tens of thousands, with metadata that lies over all of them."""
    array = j2kfiles.pixels((16, 16, 1), "uint8", harness.rng("chain"))
    path = j2kfiles.write(str(tmp_path / "c.tif"), array, tile=(16, 16))
    tiff = j2kfiles.tiffpatch.Tiff(path)
    tiff.add_tag(42112, 4, [0])
    entry, count = tiff.entry(42112), 50000
    tiff.data += b"\0" * (len(tiff.data) % 2)
    start = len(tiff.data)
    for i in range(count):
        following = start + (i + 1) * 18 if i + 1 < count else 0
        tiff.data += struct.pack("<HHHIHHI", 1, 259, 3, 1, j2kfiles.JPEG2000, 0, following)
    tiff.put("I", tiff.directories[0]["next_at"], start)
    for code, at, value in (("H", 2, 2), ("I", 4, count * 18), ("I", 8, start)):
        tiff.put(code, entry.at + at, value)
    tiff.save()
    code = """
import sys, harness
ds = harness.open_ours(sys.argv[1])
print(ds.RasterXSize, len(ds.ReadRaster()), bool(ds.GetMetadata()))
print(harness.open_ours("GTIFF_DIR:%d:" % 49999 + sys.argv[1]))
"""
    begun = time.monotonic()
    done = harness.run_python(code, path)
    assert done.returncode == 0 and done.stdout.split()[:2] == ["16", "256"], (done.stdout, done.stderr[-500:])
    assert time.monotonic() - begun < 20


def test_threads_that_open(tmp_path):
    rng = harness.rng("threads that open")
    arrays = [j2kfiles.pixels((48, 48, 3), "uint8", rng) for _ in range(4)]
    paths = [pages(tmp_path / str(i), [array] * 20, "jpeg2000") for i, array in enumerate(arrays)]
    failures = []

    def work(i):
        for k in range(25):
            which = (i + k) % len(paths)
            name = ("GTIFF_DIR:%d:" % (1 + k % 20) if k % 2 else "") + paths[which]
            ds = harness.open_ours(name)
            want = numpy.ascontiguousarray(numpy.moveaxis(arrays[which], -1, 0)).tobytes()
            if ds is None or ds.ReadRaster() != want:
                failures.append(name)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_file_that_moves_away(tmp_path):
    """Opened by a relative name; then the process goes elsewhere, and the file too."""
    array = j2kfiles.pixels((120, 160, 3), "uint8", harness.rng("away"))
    halves = [array, array[::2, ::2].copy()]
    levels(str(tmp_path / "a.tif"), halves, ["jpeg2000"] * 2)
    os.makedirs(tmp_path / "elsewhere")
    was = os.getcwd()
    try:
        os.chdir(tmp_path)
        datasets = [opened("a.tif"), opened("GTIFF_DIR:1:a.tif")]
        os.chdir(tmp_path / "elsewhere")
        os.unlink(tmp_path / "a.tif")
        with harness.Errors() as errors:
            for ds in datasets:
                assert ds.GetMetadata() is not None
                same_as(ds, array, windows=3)
            overview = datasets[0].GetRasterBand(2).GetOverview(0)
            want = numpy.ascontiguousarray(halves[1][..., 1]).tobytes()
            harness.same_bytes(overview.ReadRaster(), want, "overview")
        assert not errors
    finally:
        os.chdir(was)


# ---- who opens them ------------------------------------------------------------------------


def test_who_opens_them(tmp_path):
    array = j2kfiles.pixels((40, 40, 1), "uint8", harness.rng("open"))
    path = j2kfiles.write(str(tmp_path / "w.tif"), array)
    with harness.Errors() as errors:
        assert gdal.Open(path) is None and harness.open_gtiff(path) is None
    assert "missing codec" in errors.text()
    with harness.Errors() as errors:
        assert gdal.Open("GPUGTIFF:" + path).ReadRaster() == array.tobytes()
    assert not errors
    with harness.Errors() as errors:
        assert harness.open_ours(path, flags=gdal.OF_UPDATE) is None
    assert "missing codec" in errors.text()
    code = """
import sys, harness
from osgeo import gdal
gdal.UseExceptions()
ds = gdal.Open(sys.argv[1])
print(ds.GetRasterBand(1).Checksum())
"""
    done = harness.run_python(code, path, env={"GPUGTIFF_REPLACE_GTIFF": "YES"})
    assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr
    plain = harness.open_gtiff(path + ".plain")
    assert int(done.stdout) == plain.GetRasterBand(1).Checksum()


def test_other_sources(tmp_path):
    """Through /vsimem/ and /vsizip/, whose bytes no descriptor reaches."""
    array = j2kfiles.pixels((80, 80, 3), "uint8", harness.rng("sources"))
    path = j2kfiles.write(str(tmp_path / "v.tif"), array)
    with open(path, "rb") as f:
        gdal.FileFromMemBuffer("/vsimem/j2k test.tif", f.read())
    same_as(opened("/vsimem/j2k test.tif"), array)
    gdal.Unlink("/vsimem/j2k test.tif")
    shutil.make_archive(str(tmp_path / "z"), "zip", str(tmp_path), "v.tif")
    same_as(opened("/vsizip/%s/v.tif" % (tmp_path / "z.zip")), array)
    left = [name for name in gdal.ReadDir("/vsimem/") or () if "gpugtiff" in name]
    assert not left, left


def test_threads_on_one_raster(tmp_path):
    """Through the C API, where threads read beside each other; a damaged tile is an error to those who want it."""
    array = j2kfiles.pixels((200, 300, 3), "uint8", harness.rng("threads"))
    path = j2kfiles.write(str(tmp_path / "t.tif"), array, tile=(32, 32))
    j2kfiles.replace_tile(path, 0, j2kfiles.fixture("u8x3")[:500])
    library, failures = capi.Library(capi.PLUGIN_PATH), []
    with library.open(path, ["NUM_THREADS=2"]) as raster:

        def work(i):
            draw = harness.rng("threads", i)
            for _ in range(15):
                x, y = draw.randrange(300), draw.randrange(200)
                w, h = draw.randint(1, 300 - x), draw.randint(1, 200 - y)
                got = numpy.zeros((3, h, w), "uint8")
                try:
                    raster.read((x, y, w, h), got)
                    right = x >= 32 or y >= 32
                except capi.Failure as failure:
                    right = x < 32 and y < 32 and "tile 0 (column 0, row 0" in str(failure)
                    got = numpy.moveaxis(array[y : y + h, x : x + w], -1, 0)
                if not right or (got != numpy.moveaxis(array[y : y + h, x : x + w], -1, 0)).any():
                    failures.append((x, y, w, h))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_without_the_driver(tmp_path):
    array = j2kfiles.pixels((40, 40, 1), "uint8", harness.rng("driver"))
    path = j2kfiles.write(str(tmp_path / "d.tif"), array)
    code = "import sys, harness; ds = harness.open_ours(sys.argv[1], ['ENGINE=CPU']); print(ds.RasterXSize, ds.ReadRaster())"
    done = harness.run_python(code, path, env={"GDAL_SKIP": "JP2OpenJPEG"})
    assert done.stdout.split() == ["40", "None"] and "this GDAL has no JP2OpenJPEG driver" in done.stderr


def test_what_we_do_not_decode_says_so(tmp_path):
    """Metadata is there, pixels are an error that says why: nobody else reads them."""
    array = j2kfiles.pixels((64, 64, 1), "uint16", harness.rng("depth"))
    path = j2kfiles.write(str(tmp_path / "12.tif"), array)
    j2kfiles.patch(path, 258, 12)
    ds = opened(path)
    for ask in (ds.ReadRaster, lambda: ds.GetRasterBand(1).ReadBlock(0, 0), lambda: ds.GetRasterBand(1).ReadRaster(3, 3, 1, 1)):
        with harness.Errors() as errors:
            assert ask() is None
        assert "12 bits" in errors.text() and path in errors.text()
        assert "ZIP" not in errors.text() and "Deflate" not in errors.text()


# ---- damage --------------------------------------------------------------------------------


def damages(good, rng):
    yield "garbage", bytes(rng.randrange(256) for _ in range(500))
    for _ in range(4):
        yield "cut", good[: rng.randrange(1, len(good) - 2)]
    fields = {"width": 8, "height": 12, "tile width": 27, "components": 40, "depth": 42, "step": 43}
    for what, field in fields.items():
        yield what, good[:field] + b"\x09" + good[field + 1 :]
    yield "other components", j2kfiles.fixture("u8x2")
    yield "other depth", j2kfiles.fixture("u16")
    yield "other sign", j2kfiles.fixture("i8")
    yield "other size", j2kfiles.fixture("u8-cropped")


def test_damage(tmp_path):
    """Never a crash, never a wrong size taken; the error names file, image, tile and reason, and of GDAL's
    own driver nothing else is heard."""
    rng = harness.rng("damage")
    array = j2kfiles.pixels((64, 96, 1), "uint8", rng)
    whole = j2kfiles.write(str(tmp_path / "whole.tif"), array, tile=(32, 32))
    good = j2kfiles.trimmed(j2kfiles.tile_bytes(whole, 4))
    for what, blob in damages(good, rng):
        path = str(tmp_path / "d.tif")
        shutil.copy(whole, path)
        j2kfiles.replace_tile(path, 4, blob)
        with harness.Errors() as errors:
            ds = opened(path)
            assert ds.ReadRaster() is None, what
        assert len(errors) == 1, (what, errors)
        for part in (path, "tile 4 (column 1, row 1, plane 0)", "JPEG 2000"):
            assert part in errors.text(), (what, errors.text())
        harness.same_bytes(ds.ReadRaster(0, 0, 96, 32), array[:32].tobytes(), "beside " + what)


def test_random_damage(tmp_path):
    """Flipped bits: pixels of some kind or an error, and no trace of the decoder's own."""
    rng = harness.rng("flips")
    array = j2kfiles.pixels((64, 64, 3), "uint8", rng)
    path = j2kfiles.write(str(tmp_path / "f.tif"), array, tile=(64, 64))
    good = j2kfiles.trimmed(j2kfiles.tile_bytes(path, 0))
    failed = 0
    for _ in range(150):
        blob = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            blob[rng.randrange(len(blob) if rng.random() < 0.5 else 120)] ^= 1 << rng.randrange(8)
        shutil.copy(path, path + ".x")
        j2kfiles.replace_tile(path + ".x", 0, bytes(blob))
        with harness.Errors() as errors:
            read = opened(path + ".x").ReadRaster()
        assert (read is None) == bool(errors) and all("GPUGTiff" in text for _, _, text in errors), errors
        failed += read is None
    assert failed > 30


def test_damaged_directories(tmp_path):
    """Loops, wild offsets and sizes: an error or an image, in bounded time and memory."""
    rng = harness.rng("directories")
    array = j2kfiles.pixels((64, 64, 1), "uint8", rng)
    path = j2kfiles.write(str(tmp_path / "g.tif"), array, tile=(16, 16))
    with open(path, "rb") as f:
        good = f.read()
    tiff = j2kfiles.tiffpatch.Tiff(path)
    start, end = tiff.directories[0]["at"], tiff.directories[0]["next_at"] + 4
    for _ in range(200):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(start, end)] = rng.choice((0, 1, 2, 8, 255, rng.randrange(256)))
        with open(path, "wb") as f:
            f.write(bad)
        with harness.Errors():
            ds = harness.open_ours(path)
            if ds is not None and ds.RasterXSize * ds.RasterYSize < 1 << 22:
                ds.ReadRaster()
