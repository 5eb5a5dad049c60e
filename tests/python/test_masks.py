"""Masks and overviews from every place they come from, read by us: inside a file of another codec, with several
samples, in .ovr and .msk files beside, with masks of their own; and holes filled with a nodata value of PAM's."""

import os

import harness
import metafiles
import numpy as np
import pytest
import tifffile
import tiffpatch
from osgeo import gdal

W, H = 300, 200


def bits(n=1):
    return np.random.default_rng(n).integers(0, 2, (H, W)).astype(np.uint8) * 255


def create(path, bands=3, **options):
    options = {"TILED": "YES", "BLOCKXSIZE": 64, "BLOCKYSIZE": 64, "COMPRESS": "DEFLATE", **options}
    options = ["%s=%s" % kv for kv in options.items()]
    ds = gdal.GetDriverByName("GTiff").Create(str(path), W, H, bands, gdal.GDT_Byte, options)
    y, x = np.mgrid[0:H, 0:W]
    for i in range(1, bands + 1):
        ds.GetRasterBand(i).WriteRaster(0, 0, W, H, ((x // 3 + y * i) % 200).astype(np.uint8).tobytes())
    return ds


def add_mask(ds, internal):
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES" if internal else "NO"):
        assert ds.CreateMaskBand(gdal.GMF_PER_DATASET) == 0
        ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, W, H, bits().tobytes())


def reopened(path, update=False):
    return gdal.OpenEx(str(path), gdal.OF_RASTER | (gdal.OF_UPDATE if update else 0), allowed_drivers=["GTiff"])


def same_masks(ours, theirs, levels, counted=True):
    """Everything, and masks of bands and levels once more by windows and resampled."""
    assert ours.GetRasterBand(1).GetOverviewCount() == theirs.GetRasterBand(1).GetOverviewCount() == levels
    for (name, a), (_, b) in zip(harness.bands_of(ours), harness.bands_of(theirs)):
        assert a.GetMaskFlags() == b.GetMaskFlags(), name
    harness.same_pixels(ours, theirs)
    for (name, a), (_, b) in zip(harness.bands_of(ours), harness.bands_of(theirs)):
        window = (a.XSize // 3, a.YSize // 4, a.XSize // 2, a.YSize // 2)
        for alg in (gdal.GRIORA_NearestNeighbour, gdal.GRIORA_Average, gdal.GRIORA_Bilinear):
            small, want = (x.ReadRaster(*window, 40, 30, resample_alg=alg) for x in (a, b))
            harness.same_bytes(small, want, "%s resampled %d" % (name, alg))
    if counted:
        harness.check_all_ours(ours)


def test_mask_of_a_jpeg_image_is_ours(tmp_path):
    """The image goes to GTiff, its mask (1 bit, Deflate) and the mask's levels do not."""
    path = str(tmp_path / "j.tif")
    ds = create(path, COMPRESS="JPEG", PHOTOMETRIC="YCBCR")
    add_mask(ds, internal=True)
    ds = None
    reopened(path, update=True).BuildOverviews("NEAREST", [2])
    ours, theirs = harness.open_pair(path)
    a, b = ours.GetRasterBand(1), theirs.GetRasterBand(1)
    harness.same_bytes(a.GetMaskBand().ReadRaster(), b.GetMaskBand().ReadRaster(), "mask")
    a, b = a.GetOverview(0).GetMaskBand(), b.GetOverview(0).GetMaskBand()
    harness.same_bytes(a.ReadRaster(), b.ReadRaster(), "mask of the level")
    harness.check_all_ours(ours)
    same_masks(ours, theirs, 1, counted=False)
    assert harness.SELF_TEST or harness.counters(ours)[harness.REQUESTS_PASSED] > 0


def test_levels_of_a_mask_are_ours(tmp_path):
    """They are reached through the level's mask, the mask's level, and the mask read smaller than it is."""
    path = metafiles.mask_internal(str(tmp_path))
    ways = {
        "mask of a level": lambda band: band.GetOverview(1).GetMaskBand().ReadRaster(),
        "level of a mask": lambda band: band.GetMaskBand().GetOverview(1).ReadRaster(),
        "mask at half size": lambda band: band.GetMaskBand().ReadRaster(0, 0, W, H, W // 2, H // 2),
        "mask averaged": lambda band: band.GetMaskBand().ReadRaster(
            0, 0, W, H, 40, 30, resample_alg=gdal.GRIORA_Average),
    }
    for name, read in ways.items():
        ours, theirs = harness.open_pair(path)
        harness.same_bytes(read(ours.GetRasterBand(1)), read(theirs.GetRasterBand(1)), name)
        harness.check_all_ours(ours, name)


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_mask_with_three_samples(tmp_path, planar):
    """A mask image of 1 bit with a sample for each band: every band has a mask of its own."""
    path = str(tmp_path / "m.tif")
    ds = create(path, COMPRESS="LZW")
    ds = None
    image = np.stack([bits(i) for i in range(3)])
    planes = [np.packbits(p // 255, axis=1) for p in image]
    with tifffile.TiffWriter(path, append=True) as tif:
        # tifffile packs no bits of several samples: a bilevel page first, patched to three samples below.
        tif.write(image[0] > 0, photometric="minisblack", subfiletype=4, rowsperstrip=H, metadata=None)
    _three_samples(path, planes, np.packbits(np.moveaxis(image, 0, -1).reshape(H, -1) // 255, axis=1), planar)
    ours, theirs = harness.open_pair(path)
    assert theirs.GetRasterBand(1).GetMaskFlags() == 0, "GTiff takes it for no mask of a band"
    seen = {bytes(theirs.GetRasterBand(i).GetMaskBand().ReadRaster()) for i in (1, 2, 3)}
    assert len(seen) == 3, "GTiff gives every band the same mask: not what this is about"
    same_masks(ours, theirs, 0, counted=False)


def _three_samples(path, planes, interleaved, planar):
    tiff = tiffpatch.Tiff(path)
    blobs = [interleaved.tobytes()] if planar == "contig" else [p.tobytes() for p in planes]
    offsets = []
    for blob in blobs:
        offsets.append(len(tiff.data))
        tiff.data += blob
    for tag in (277, 258, 284, 273, 279):
        tiff.drop_tag(tag, directory=1)
    tiff.add_tag(277, 3, [3], directory=1)
    tiff.add_tag(258, 3, [1, 1, 1], directory=1)
    tiff.add_tag(284, 3, [1 if planar == "contig" else 2], directory=1)
    tiff.add_tag(273, 4, offsets, directory=1)
    tiff.add_tag(279, 4, [len(b) for b in blobs], directory=1)
    tiff.save()


@pytest.mark.parametrize("mask", ["internal", "beside", "none"])
@pytest.mark.parametrize("levels", ["internal", "beside"])
@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_masks_and_levels_inside_or_beside(tmp_path, mask, levels, interleave):
    """.msk, .ovr and .msk.ovr files in every mixture GTiff makes."""
    path = str(tmp_path / "m.tif")
    ds = create(path, INTERLEAVE=interleave)
    if mask == "internal":
        add_mask(ds, internal=True)
    ds = None
    if mask == "beside":
        add_mask(reopened(path), internal=False)
    with harness.config(COMPRESS_OVERVIEW="LZW", GDAL_TIFF_INTERNAL_MASK="YES"):
        assert reopened(path, update=levels == "internal").BuildOverviews("NEAREST", [2, 4]) == 0
    assert os.path.exists(path + ".msk") == (mask == "beside")
    assert os.path.exists(path + ".ovr") == (levels == "beside")
    ours, theirs = harness.open_pair(path)
    assert ours.GetFileList() == theirs.GetFileList()
    same_masks(ours, theirs, 2, counted=mask != "beside")


@pytest.mark.parametrize("levels", ["internal", "beside"])
@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_dataset_resampling_of_some_bands_uses_the_levels(tmp_path, levels, interleave):
    path = str(tmp_path / "m.tif")
    ds = create(path, 4, INTERLEAVE=interleave)
    ds = None
    assert reopened(path, update=levels == "internal").BuildOverviews("NEAREST", [2, 4, 8]) == 0
    for bands in ([1], [3, 1], [4, 4, 2], [1, 2, 3, 4]):
        for size in ((150, 100), (75, 50), (40, 20), (37, 25), (149, 99), (290, 190), (600, 400)):
            ours, theirs = harness.open_pair(path)
            for alg in (gdal.GRIORA_NearestNeighbour, gdal.GRIORA_Average, gdal.GRIORA_Cubic):
                a, b = (ds.ReadRaster(0, 0, W, H, *size, band_list=bands, resample_alg=alg) for ds in (ours, theirs))
                harness.same_bytes(a, b, "bands %s to %s by %d" % (bands, size, alg))
            c = harness.check_all_ours(ours)
            if not harness.SELF_TEST and size == (40, 20):
                # Level 2 (75 × 50) is one or two tiles; the image itself would be 20 a plane.
                assert c[harness.DECODED] < 20, c


# ---- PAM -----------------------------------------------------------------------------------


def _sparse(path, bands=2):
    ds = gdal.GetDriverByName("GTiff").Create(
        str(path), W, H, bands, gdal.GDT_Int16,
        ["TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64", "SPARSE_OK=YES", "COMPRESS=LZW"])  # fmt: skip
    ds.GetRasterBand(1).WriteRaster(70, 70, 100, 50, np.arange(5000, dtype=np.int16).tobytes())
    ds = None
    return str(path)


@pytest.mark.parametrize("when", ["before reading", "after reading", "read again by another"])
def test_nodata_set_on_a_read_only_dataset_and_holes(tmp_path, when):
    """SetNoDataValue without update access goes to .aux.xml; holes are then what GTiff makes of them."""
    results = []
    for name, opener in (("a.tif", harness.open_ours), ("b.tif", harness.open_gtiff)):
        path = _sparse(tmp_path / name)
        ds = opener(path)
        before = ds.ReadRaster() if when == "after reading" else None
        ds.FlushCache()  # blocks in GDAL's cache keep the fill they were read with
        assert ds.GetRasterBand(1).SetNoDataValue(-77) == 0
        assert ds.GetRasterBand(1).GetNoDataValue() == -77
        if when == "read again by another":
            ds = None
            assert os.path.exists(path + ".aux.xml")
            ds = opener(path)
        seen = [before, ds.ReadRaster()]
        for i in (1, 2):
            band = ds.GetRasterBand(i)
            mask = band.GetMaskBand()
            seen += [band.ReadRaster(), bytes(band.ReadBlock(0, 0)), mask.ReadRaster(), band.GetNoDataValue()]
            seen += [band.ReadRaster(0, 0, W, H, 50, 40, resample_alg=gdal.GRIORA_Average), band.GetMaskFlags()]
            seen += [band.ComputeStatistics(False), band.GetHistogram(approx_ok=0)]
        results.append(seen)
    assert harness.digests(results[0]) == harness.digests(results[1])
    assert results[1][1] != bytes(len(results[1][1])), "nothing but zeros: nothing is compared"


def test_coverage_of_holes(tmp_path):
    """GetDataCoverageStatus tells holes from data as GTiff tells."""
    ours, theirs = harness.open_pair(_sparse(tmp_path / "s.tif"))
    seen = set()
    for window in ((0, 0, W, H), (0, 0, 64, 64), (64, 64, 64, 64), (100, 60, 20, 20), (10, 10, 100, 100)):
        for i in (1, 2):
            a = ours.GetRasterBand(i).GetDataCoverageStatus(*window)
            b = theirs.GetRasterBand(i).GetDataCoverageStatus(*window)
            assert a == b, (window, i)
            seen.add(b[0])
    assert len(seen) > 1


# ---- tools ---------------------------------------------------------------------------------

TOOLS = {
    "translate": lambda ds, out: gdal.Translate(out, ds),
    "translate smaller": lambda ds, out: gdal.Translate(out, ds, width=70, height=50, resampleAlg="average"),
    "translate of a window": lambda ds, out: gdal.Translate(out, ds, srcWin=[33, 21, 150, 99], bandList=[2, 1]),
    "translate with a mask": lambda ds, out: gdal.Translate(out, ds, maskBand="auto", creationOptions=["COMPRESS=LZW"]),
    "warp": lambda ds, out: gdal.Warp(out, ds, dstSRS="EPSG:4326", resampleAlg="cubic", width=120, height=90),
    "warp on two threads": lambda ds, out: gdal.Warp(
        out, ds, dstSRS="EPSG:3857", resampleAlg="bilinear", multithread=True, warpOptions=["NUM_THREADS=2"]),
}  # fmt: skip


@pytest.mark.parametrize("tool", sorted(TOOLS))
@pytest.mark.parametrize("kind", ["georeferenced", "mask_internal", "nodata"])
def test_tools_give_the_same_result(tmp_path, tool, kind):
    path = metafiles.MAKERS[kind](str(tmp_path))
    if kind != "georeferenced":
        ds = reopened(path, update=True)
        ds.SetSpatialRef(metafiles._srs(32631))
        ds.SetGeoTransform([440720, 60, 0, 3751320, 0, -60])
        ds = None
    ours, theirs = harness.open_pair(path)
    made = []
    for name, ds in (("ours", ours), ("theirs", theirs)):
        result = TOOLS[tool](ds, str(tmp_path / (name + ".out.tif")))
        assert result is not None, gdal.GetLastErrorMsg()
        result.FlushCache()
        made.append(result)
    harness.same_pixels(*made, where=tool)
    harness.check_all_ours(ours)
