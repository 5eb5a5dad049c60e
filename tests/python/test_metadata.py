"""Everything GTiff shows, shown the same: each kind of metadata is written to a file, which is then
described through ours and through GTiff by every getter that GDAL's bindings have."""

import json
import os
import shutil

import harness
import metafiles
import pytest
from osgeo import gdal

MAKERS = sorted(metafiles.MAKERS)


def _plain(value):
    """Bindings' objects and NaN as text, so that == compares them."""
    return repr(value)


def describe_object(o):
    """Metadata of a dataset or band, every listed domain."""
    out = {"description": os.path.basename(o.GetDescription()), "domains": sorted(o.GetMetadataDomainList() or [])}
    for d in out["domains"] + ["", "RPC", "IMAGE_STRUCTURE", "SUBDATASETS", "xml:XMP", "COLOR_PROFILE"]:
        out["md:" + d] = sorted(o.GetMetadata_List(d) or [])
    out["item"] = o.GetMetadataItem("AREA_OR_POINT")
    return out


def describe_colours(band):
    table = band.GetColorTable()
    rat = band.GetDefaultRAT()
    return {
        "interpretation": band.GetColorInterpretation(),
        "table": table and [table.GetColorEntry(i) for i in range(table.GetCount())],
        "rat": rat and [
            [rat.GetNameOfCol(c), rat.GetUsageOfCol(c), [rat.GetValueAsString(r, c) for r in range(rat.GetRowCount())]]
            for c in range(rat.GetColumnCount())],
        "categories": band.GetCategoryNames(),
    }  # fmt: skip


def describe_band(band, deep=True):
    out = describe_object(band)
    out.update(
        size=(band.XSize, band.YSize), type=band.DataType, block=band.GetBlockSize(), number=band.GetBand(),
        actual=band.GetActualBlockSize(0, 0), nodata=_plain(band.GetNoDataValue()), scale=_plain(band.GetScale()),
        offset=_plain(band.GetOffset()), unit=band.GetUnitType(), minimum=_plain(band.GetMinimum()),
        maximum=_plain(band.GetMaximum()), flags=band.GetMaskFlags(), is_mask=band.IsMaskBand(),
        arbitrary=band.HasArbitraryOverviews(), coverage=band.GetDataCoverageStatus(0, 0, band.XSize, band.YSize),
        statistics=_plain(band.GetStatistics(False, False)), checksum=band.Checksum(),
        sizes=[(band.GetOverview(k).XSize, band.GetOverview(k).YSize) for k in range(band.GetOverviewCount())],
        no_overview=band.GetOverview(99) is None, colours=describe_colours(band),
    )  # fmt: skip
    if band.DataType == gdal.GDT_Int64:
        out["nodata64"] = band.GetNoDataValueAsInt64()
    if band.DataType == gdal.GDT_UInt64:
        out["nodata64"] = band.GetNoDataValueAsUInt64()
    if deep:
        out["mask"] = describe_band(band.GetMaskBand(), False)
        out["overviews"] = []
        for k in range(band.GetOverviewCount()):
            level = describe_band(band.GetOverview(k), False)
            level["mask"] = describe_band(band.GetOverview(k).GetMaskBand(), False)
            out["overviews"].append(level)
    return out


def describe(ds):
    out = describe_object(ds)
    srs, gcp_srs = ds.GetSpatialRef(), ds.GetGCPSpatialRef()
    out.update(
        size=(ds.RasterXSize, ds.RasterYSize, ds.RasterCount), wkt=ds.GetProjectionRef(),
        srs=srs and (srs.ExportToWkt(), srs.GetDataAxisToSRSAxisMapping()),
        gcp_srs=gcp_srs and (gcp_srs.ExportToWkt(), gcp_srs.GetDataAxisToSRSAxisMapping()),
        transform=_plain(ds.GetGeoTransform(can_return_null=True)), gcp_count=ds.GetGCPCount(),
        gcps=[(g.Id, g.Info, g.GCPPixel, g.GCPLine, g.GCPX, g.GCPY, g.GCPZ) for g in ds.GetGCPs()],
        gcp_wkt=ds.GetGCPProjection(), files=[os.path.basename(f) for f in ds.GetFileList()],
        subdatasets=[(os.path.basename(n), os.path.basename(d)) for n, d in ds.GetSubDatasets()],
        layers=ds.GetLayerCount(), bands=[describe_band(ds.GetRasterBand(i + 1)) for i in range(ds.RasterCount)],
    )  # fmt: skip
    return without_folder(out, os.path.dirname(ds.GetDescription()))


def without_folder(value, folder):
    """The same description with the dataset's own folder cut out of every text."""
    if isinstance(value, dict):
        return {k: without_folder(v, folder) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folder(v, folder) for v in value]
    return value.replace(folder, "") if isinstance(value, str) else value


def differences(a, b, where=""):
    """What differs, named by its path inside the description."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for k in sorted(set(a) | set(b)) for d in differences(a.get(k), b.get(k), "%s/%s" % (where, k))]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b)) for d in differences(x, y, "%s[%d]" % (where, i))]
    return [] if a == b else ["%s: %r, GTiff %r" % (where, a, b)]


def copies(tmp_path, name):
    """Two copies of one file, sidecars included: statistics written beside one must not reach the other."""
    first = tmp_path / "ours"
    first.mkdir()
    file = os.path.basename(metafiles.MAKERS[name](str(first)))
    shutil.copytree(first, tmp_path / "theirs")
    return str(first / file), str(tmp_path / "theirs" / file)


@pytest.fixture(params=MAKERS)
def pair(request, tmp_path):
    a, b = copies(tmp_path, request.param)
    both = [harness.open_ours(a), harness.open_gtiff(b)]
    yield both
    both.clear()  # closed here: what is written at close finds its folder


def test_every_getter(pair):
    with harness.Errors():
        found = differences(describe(pair[0]), describe(pair[1]))
    assert not found, "\n".join(found)


def test_pixels_masks_overviews(pair):
    harness.same_pixels(*pair)


def test_statistics_histograms_and_what_they_leave_behind(pair):
    ours, theirs = (ds.GetRasterBand(1) for ds in pair)
    with harness.Errors():
        for call in (
            lambda b: b.ComputeRasterMinMax(False), lambda b: b.ComputeRasterMinMax(True),
            lambda b: b.GetStatistics(True, True), lambda b: b.ComputeStatistics(False),
            lambda b: b.GetStatistics(False, False), lambda b: b.GetMetadata(),
            lambda b: b.GetHistogram(-0.5, 255.5, 64, 1, 0), lambda b: b.GetHistogram(0, 99, 7, 0, 1),
            lambda b: b.GetDefaultHistogram(force=1), lambda b: b.GetMinimum(), lambda b: b.GetMaximum(),
            lambda b: (b.GetMaskBand().ComputeRasterMinMax(False), b.GetMaskBand().Checksum()),
        ):  # fmt: skip
            assert _plain(call(ours)) == _plain(call(theirs))
    names = [sorted(os.path.basename(f) for f in ds.GetFileList()) for ds in pair]
    assert names[0] == names[1]


def test_statistics_are_found_again(tmp_path):
    """Ours writes the .aux.xml that GTiff would, and both read it."""
    a, b = copies(tmp_path, "georeferenced")
    for ds in (harness.open_ours(a), harness.open_gtiff(b)):
        ds.GetRasterBand(1).ComputeStatistics(False)
        ds = None
    assert os.path.exists(a + ".aux.xml") == os.path.exists(b + ".aux.xml")
    again = [harness.open_ours(a), harness.open_gtiff(a), harness.open_gtiff(b)]
    stats = [ds.GetRasterBand(1).GetStatistics(False, False) for ds in again]
    assert stats[0] == stats[1] == stats[2] and stats[0][3] != 0


def _info(ds):
    text = gdal.Info(ds, format="json", listMDD=True, showRAT=True, computeMinMax=True, computeChecksum=True,
                     stats=True, reportHistograms=True, extraMDDomains=["all"])  # fmt: skip
    out = text if isinstance(text, dict) else json.loads(text)
    out.pop("driverShortName"), out.pop("driverLongName")
    return without_folder(out, os.path.dirname(ds.GetDescription()))


def test_gdalinfo_json(pair):
    with harness.Errors():
        found = differences(_info(pair[0]), _info(pair[1]))
    assert not found, "\n".join(found)


def test_our_domain_is_answered_not_listed(pair):
    harness.skip_count_if_self_test()
    ds = pair[0]
    assert harness.DOMAIN not in (ds.GetMetadataDomainList() or [])
    assert harness.DOMAIN not in (ds.GetRasterBand(1).GetMetadataDomainList() or [])
    assert harness.ENGINE in ds.GetMetadata_Dict(harness.DOMAIN)
    assert ds.GetMetadataItem(harness.ENGINE, harness.DOMAIN) == ds.GetMetadata_Dict(harness.DOMAIN)[harness.ENGINE]


def test_fits_formats_without_an_engine_too(tmp_path):
    """Metadata does not depend on who decodes: a JPEG file is described the same."""
    path = str(tmp_path / "j.tif")
    source = harness.open_gtiff(metafiles.MAKERS["georeferenced"](str(tmp_path)))
    gdal.GetDriverByName("GTiff").CreateCopy(path, source, options=["COMPRESS=JPEG", "TILED=YES"])
    ours, theirs = harness.open_pair(path)
    assert not differences(describe(ours), describe(theirs))
