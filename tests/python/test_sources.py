"""Where files come from: every file system of GDAL, files that change or vanish under us, and how
much is read and held."""

import gzip
import os
import shutil
import zipfile

import harness
import metafiles
import numpy as np
import pytest
import rangeserver
import test_batching
import written
from osgeo import gdal


@pytest.fixture
def path(tmp_path):
    return metafiles.mask_internal(str(tmp_path))


def check(name, **kw):
    ours, theirs = harness.open_pair(name, **kw)
    harness.same_pixels(ours, theirs, name)
    harness.check_all_ours(ours, name)


def test_vsimem(path):
    with open(path, "rb") as f:
        gdal.FileFromMemBuffer("/vsimem/a.tif", f.read())
    try:
        check("/vsimem/a.tif")
    finally:
        gdal.Unlink("/vsimem/a.tif")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_vsizip(path, tmp_path, method):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as z:
        z.write(path, "in/a.tif")
    check("/vsizip/%s/in/a.tif" % (tmp_path / "a.zip"))


def test_vsigzip(path, tmp_path):
    with open(path, "rb") as f, gzip.open(tmp_path / "a.tif.gz", "wb") as g:
        shutil.copyfileobj(f, g)
    check("/vsigzip/%s" % (tmp_path / "a.tif.gz"))


def test_vsisubfile(path, tmp_path):
    with open(path, "rb") as f:
        body = f.read()
    outer = tmp_path / "outer.bin"
    outer.write_bytes(b"x" * 1234 + body + b"y" * 99)
    check("/vsisubfile/1234_%d,%s" % (len(body), outer))


def test_odd_names(path, tmp_path):
    for name in ("with space.tif", "ümläut ☃.tif", "no_extension", "a:b.tif", "%41.tif", "quote'\".tif"):
        shutil.copy(path, tmp_path / name)
        check(str(tmp_path / name))


def test_pipe_like_and_special_files(tmp_path):
    with harness.Errors():
        assert harness.open_ours("/dev/null") is None
        assert harness.open_ours("/dev/zero") is None


# ---- over HTTP -----------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    with rangeserver.serve(str(tmp_path)) as s:
        yield s


def _over_http(server, name, opener, window=None, read=None):
    """-> (pixels, requests, bytes sent) of one fresh read: of a window, of all, or by `read`."""
    gdal.VSICurlClearCache()
    server.forget()
    with harness.config(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"):
        ds = opener("/vsicurl/%s/%s" % (server.url, name))
        assert ds is not None, gdal.GetLastErrorMsg()
        if read:
            data = read(ds)
        else:
            data = ds.ReadRaster(*window) if window else ds.ReadRaster()
        ds = None  # closing waits for what is being read ahead, so that it counts
    return data, server.requests, server.sent


@pytest.mark.parametrize("window", [None, (700, 600, 300, 200), (0, 0, 1, 1), (1999, 1499, 1, 1), (0, 700, 2000, 10)])
@pytest.mark.parametrize("interleave", ["PIXEL", "BAND"])
def test_vsicurl_asks_no_more_than_gtiff(server, tmp_path, window, interleave):
    test_batching.make(tmp_path / "w.tif", 2000, 1500, bands=2, INTERLEAVE=interleave, COMPRESS="DEFLATE")
    theirs = _over_http(server, "w.tif", harness.open_gtiff, window)
    ours = _over_http(server, "w.tif", harness.open_ours, window)
    harness.same_bytes(ours[0], theirs[0], "over HTTP")
    assert ours[1] <= theirs[1], "%d requests, GTiff %d" % (ours[1], theirs[1])


WALKS = {
    "rows": lambda ds: [ds.ReadRaster(0, y, 1200, 1) for y in range(900)],
    "rows of tiles": lambda ds: [ds.ReadRaster(0, y, 1200, min(256, 900 - y)) for y in range(0, 900, 256)],
    "blocks": lambda ds: [bytes(ds.GetRasterBand(1).ReadBlock(x, y)) for y in range(3) for x in range(5)],
    "some columns": lambda ds: [bytes(ds.GetRasterBand(1).ReadBlock(x, y)) for y in range(3) for x in (1, 2, 3)],
    "windows": lambda ds: [ds.ReadRaster(x, y, 200, 100) for x, y in ((0, 0), (900, 700), (300, 300), (50, 800))],
    "level": lambda ds: ds.ReadRaster(0, 0, 1200, 900, 300, 225),
    "pixels": lambda ds: [ds.GetRasterBand(2).ReadRaster(k * 97 % 1200, k * 61 % 900, 1, 1) for k in range(50)],
}


@pytest.mark.parametrize("walk", sorted(WALKS))
@pytest.mark.parametrize("codec", ["NONE", "DEFLATE"])
def test_vsicurl_walk_asks_no_more_than_gtiff(server, tmp_path, walk, codec):
    file = test_batching.make(tmp_path / "w.tif", 1200, 900, bands=2, COMPRESS=codec)
    gdal.OpenEx(file, gdal.OF_UPDATE, allowed_drivers=["GTiff"]).BuildOverviews("NEAREST", [2, 4])
    theirs = _over_http(server, "w.tif", harness.open_gtiff, read=WALKS[walk])
    ours = _over_http(server, "w.tif", harness.open_ours, read=WALKS[walk])
    assert harness.digests(ours[0]) == harness.digests(theirs[0])
    assert ours[1] <= theirs[1], "%d requests, GTiff %d" % (ours[1], theirs[1])


COGS = {
    # 4096 tiles, whose arrays are larger than what opening brings; and few.
    "plain": (False, dict(COMPRESS="LZW", BLOCKXSIZE=16, BLOCKYSIZE=16)),
    "masked": (True, dict(COMPRESS="LZW", BLOCKXSIZE=16, BLOCKYSIZE=16)),
    "masked, BigTIFF": (True, dict(COMPRESS="DEFLATE", BLOCKXSIZE=16, BLOCKYSIZE=16, BIGTIFF="YES")),
    "masked, few tiles": (True, dict(COMPRESS="DEFLATE", BLOCKXSIZE=128, BLOCKYSIZE=128)),
    "masked, sparse": (True, dict(COMPRESS="LZW", BLOCKXSIZE=32, BLOCKYSIZE=32, SPARSE_OK="YES")),
    "masked, JPEG": (True, dict(COMPRESS="JPEG", BLOCKXSIZE=64, BLOCKYSIZE=64)),
}


@pytest.fixture(scope="module", params=sorted(COGS))
def cog(request, tmp_path_factory):
    """-> (a COG made by GDAL, with a mask (interleaved) or without; noise, with a hole; its name in COGS)."""
    masked, options = COGS[request.param]
    folder = tmp_path_factory.mktemp("cog")
    rng = np.random.default_rng(harness.SEED)
    with harness.config(GDAL_TIFF_INTERNAL_MASK="YES"):
        source = gdal.GetDriverByName("GTiff").Create(str(folder / "s.tif"), 1024, 1024, 3, options=["TILED=YES"])
        pixels = rng.integers(0, 255, (3, 1024, 1024), dtype=np.uint8)
        pixels[:, :256, 512:768] = 0
        source.WriteArray(pixels)
        if masked:
            source.CreateMaskBand(gdal.GMF_PER_DATASET)
            mask = (rng.integers(0, 9, (1024, 1024)) > 0).astype(np.uint8) * 255
            source.GetRasterBand(1).GetMaskBand().WriteArray(mask)
        source.BuildOverviews("NEAREST", [2, 4])
        options = dict(options, COPY_SRC_OVERVIEWS="YES", TILED="YES")
        written.copy(folder / "c.tif", source, driver="GTiff", **options)
    return folder / "c.tif", request.param


def _image_and_mask(*windows, level=None, first="image"):
    def read(ds):
        out = []
        for window in windows:
            band = ds.GetRasterBand(1) if level is None else ds.GetRasterBand(1).GetOverview(level)
            image = (lambda: ds.ReadRaster(*window)) if level is None else (lambda: band.ReadRaster(*window))
            mask = lambda: band.GetMaskBand().ReadRaster(*window)  # noqa: E731
            order = {"image": [image, mask], "mask": [mask, image], "image only": [image], "mask only": [mask]}[first]
            out.append([bytes(part()) for part in order])
        return out

    return read


COG_READS = {
    "image": _image_and_mask((250, 370, 150, 150), first="image only"),
    "image, mask": _image_and_mask((250, 370, 150, 150)),
    "mask, image": _image_and_mask((250, 370, 150, 150), first="mask"),
    "mask": _image_and_mask((250, 370, 150, 150), first="mask only"),
    "level": _image_and_mask((100, 150, 90, 90), level=0),
    "windows": _image_and_mask((0, 0, 80, 80), (760, 50, 80, 80), (30, 820, 80, 80), (500, 500, 80, 80)),
    "last tiles": _image_and_mask((900, 900, 124, 124)),
    "holes": _image_and_mask((450, 80, 150, 80)),
    "row of tiles": _image_and_mask((0, 512, 1024, 16)),
    "column of tiles": _image_and_mask((512, 0, 16, 1024)),
    "rows": lambda ds: [ds.ReadRaster(0, y, 1024, 1) for y in range(120, 140)],
    "blocks": lambda ds: [bytes(ds.GetRasterBand(1).ReadBlock(x, y)) for y in range(2) for x in range(6)],
    "pixels": lambda ds: [ds.GetRasterBand(2).ReadRaster(k * 97 % 1024, k * 61 % 1024, 1, 1) for k in range(20)],
}


@pytest.mark.parametrize("read", sorted(COG_READS))
def test_vsicurl_cog_asks_no_more_than_gtiff(cog, read):
    """A COG's tiles have a length before them, and the mask's tiles between them: neighbours are one request, and an
    image's tiles bring the mask's."""
    path, name = cog
    # Asked for the mask first, GTiff 3.6 fails to read the image.
    backwards = read == "mask, image"
    with rangeserver.serve(str(path.parent)) as server:
        theirs = _over_http(server, path.name, harness.open_gtiff, read=COG_READS["image, mask" if backwards else read])
        ours = _over_http(server, path.name, harness.open_ours, read=COG_READS[read])
    want = [pair[::-1] for pair in theirs[0]] if backwards else theirs[0]
    assert ours[0] == want, "other pixels"
    if backwards and "JPEG" in name:
        return  # the image is GTiff's to read, and what the mask brought of it is ours
    # For single blocks /vsicurl/ reads ahead, twice as much each time: less if it began with a tile alone (GTiff) than
    # with a tile and its mask, more if that reached over what is skipped.
    more = 1 if read == "blocks" and name.startswith("masked") else 0
    assert ours[1] <= theirs[1] + more, "%d requests, GTiff %d" % (ours[1], theirs[1])
    assert ours[1] < theirs[1] or ours[2] <= theirs[2] * 1.1 + 65536, "%d bytes, GTiff %d" % (ours[2], theirs[2])


def test_vsicurl_with_thread_local_credentials(server, tmp_path):
    """Workers that read through VSI must carry the caller's thread-local options."""
    test_batching.make(tmp_path / "s.tif", 2000, 1500)
    server.secret = "open sesame"
    gdal.VSICurlClearCache()
    gdal.SetThreadLocalConfigOption("GDAL_HTTP_HEADERS", "X-Secret: open sesame")
    gdal.SetThreadLocalConfigOption("GDAL_DISABLE_READDIR_ON_OPEN", "EMPTY_DIR")
    try:
        ours = harness.open_ours("/vsicurl/%s/s.tif" % server.url)
        assert ours is not None, gdal.GetLastErrorMsg()
        data = ours.ReadRaster()
        for y in range(0, 6):
            for x in range(0, 8):
                assert ours.GetRasterBand(1).ReadBlock(x, y) is not None
    finally:
        gdal.SetThreadLocalConfigOption("GDAL_HTTP_HEADERS", None)
        gdal.SetThreadLocalConfigOption("GDAL_DISABLE_READDIR_ON_OPEN", None)
    harness.same_bytes(data, harness.open_gtiff(str(tmp_path / "s.tif")).ReadRaster(), "with a header")
    assert server.refused == 0
    harness.check_all_ours(ours)


def test_server_that_fails_midway(server, tmp_path):
    test_batching.make(tmp_path / "f.tif", 2000, 1500)
    gdal.VSICurlClearCache()
    with harness.config(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"), harness.Errors() as errors:
        ds = harness.open_ours("/vsicurl/%s/f.tif" % server.url)
        server.broken = True
        assert ds.ReadRaster() is None
        assert errors.failures()
        server.broken = False
        gdal.VSICurlClearCache()


# ---- files that change ---------------------------------------------------------------------


def test_unlinked_after_open(path):
    want = harness.open_gtiff(path).ReadRaster()
    ds = harness.open_ours(path)
    os.unlink(path)
    harness.same_bytes(ds.ReadRaster(), want, "after unlink")


def test_shrinking_while_read(tmp_path):
    """No SIGBUS, no stale pixels: what is gone fails, what is there reads, as with GTiff."""
    file = test_batching.make(tmp_path / "s.tif", 1500, 1500, COMPRESS="NONE")
    size = os.path.getsize(file)
    ours, theirs = harness.open_pair(file)
    harness.same_bytes(ours.ReadRaster(0, 0, 256, 256), theirs.ReadRaster(0, 0, 256, 256), "before")
    os.truncate(file, size // 2)
    for y in range(0, 1500, 250):
        with harness.Errors():
            a, b = (ds.ReadRaster(0, y, 1500, 250) for ds in (ours, theirs))
        harness.same_bytes(a, b, "row %d after the cut" % y)
    with harness.Errors():
        assert ours.ReadRaster() is None


def test_permission_removed(path):
    if os.geteuid() == 0:
        # Root reads anything: be somebody else in a child.
        os.chmod(path, 0)
        code = ("import os, sys\nos.setuid(65534)\nimport harness\nwith harness.Errors() as e:\n"
                "    ds = harness.open_ours(sys.argv[1])\nassert ds is None and e, e\nprint('[]')")  # fmt: skip
        for folder in (os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
            os.chmod(folder, 0o755)
        done = harness.run_python(code, path)
        if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr:
            pytest.skip("another user cannot run this Python")
        assert done.returncode == 0, done.stderr
    else:
        os.chmod(path, 0)
        with harness.Errors() as errors:
            assert harness.open_ours(path) is None and errors


# ---- how much ------------------------------------------------------------------------------


def _million_tiles(path):
    """16,000 × 16,000 pixels in 16 × 16 tiles, all of them holes but a few."""
    ds = gdal.GetDriverByName("GTiff").Create(
        str(path), 16000, 16000, 1, gdal.GDT_Byte,
        ["TILED=YES", "BLOCKXSIZE=16", "BLOCKYSIZE=16", "SPARSE_OK=YES", "COMPRESS=DEFLATE"])  # fmt: skip
    for x, y in ((0, 0), (8000, 8000), (15900, 15900)):
        ds.GetRasterBand(1).WriteRaster(x, y, 100, 100, bytes(range(100)) * 100)
    ds = None
    return str(path)


def test_million_tiles_read_only_the_offsets_needed(tmp_path):
    file = _million_tiles(tmp_path / "m.tif")
    assert os.path.getsize(file) > 5_000_000
    for window in ((8000, 8000, 100, 100), (15900, 15900, 100, 100), (4000, 123, 50, 50)):
        ours, theirs = harness.open_pair(file)
        harness.same_bytes(ours.ReadRaster(*window), theirs.ReadRaster(*window), str(window))
        if not harness.SELF_TEST:
            c = harness.check_all_ours(ours)
            assert c[harness.BYTES_READ] < 1_000_000, c


def test_million_tiles_over_http(server, tmp_path):
    _million_tiles(tmp_path / "m.tif")
    window = (8000, 8000, 100, 100)
    theirs = _over_http(server, "m.tif", harness.open_gtiff, window)
    ours = _over_http(server, "m.tif", harness.open_ours, window)
    harness.same_bytes(ours[0], theirs[0], "one window")
    assert ours[1] <= theirs[1] and ours[2] <= theirs[2] * 1.1 + 32768, (ours[1:], theirs[1:])


MEMORY = """
import json, sys
import harness
from osgeo import gdal
path, options, way = sys.argv[1], sys.argv[2].split(','), sys.argv[3]
ds = harness.open_ours(path, [] if harness.SELF_TEST else options)
ds.ReadRaster(0, 0, 16, 16)
buf = bytearray(ds.RasterXSize * ds.RasterYSize * 2) if way == 'whole' else None
base = harness.peak_kb()
if way == 'whole': ds.ReadRaster(buf_obj=buf)
else:
    for y in range(0, ds.RasterYSize, 256): ds.ReadRaster(0, y, ds.RasterXSize, min(256, ds.RasterYSize - y))
print(json.dumps([base, harness.peak_kb()]))
"""


@pytest.mark.parametrize("batch", [2, 16])
@pytest.mark.parametrize("way", ["whole", "rows"])
def test_peak_memory(tmp_path, batch, way):
    """Within BATCH_MB × 3 + 64 MB above the caller's own buffer, at GDAL_CACHEMAX=64."""
    file = test_batching.make(tmp_path / "m.tif", 12000, 8000)  # 192 MB of pixels
    base, peak = harness.run_json(MEMORY, file, "BATCH_MB=%d" % batch, way, env={"GDAL_CACHEMAX": "64"})
    own = 12000 * 256 * 2 // 1024 if way == "rows" else 0
    assert peak - base - own <= (batch * 3 + 64) * 1024, "%d MB above the buffer" % ((peak - base) // 1024)


VRT = """
import hashlib, json, sys
import harness
from osgeo import gdal
vrt = gdal.Open(sys.argv[1])
vrt.ReadRaster(0, 0, 16, 16)
base = harness.peak_kb()
h = hashlib.sha1()
for y in range(0, vrt.RasterYSize, 512): h.update(vrt.ReadRaster(0, y, vrt.RasterXSize, min(512, vrt.RasterYSize - y)))
print(json.dumps([base, harness.peak_kb(), h.hexdigest()]))
"""


def test_200_sources_under_a_vrt(tmp_path):
    """Pool and budget belong to the process: 200 open sources stay within the bound of one."""
    first = test_batching.make(tmp_path / "0.tif", 1024, 512)
    names = []
    for k in range(200):
        name = str(tmp_path / ("%d.tif" % k))
        if k:
            os.link(first, name)
        names.append(name)
    vrt = _mosaic(tmp_path / "m.vrt", names)
    want = harness.run_json(VRT, vrt, env={"GDAL_CACHEMAX": "64"})
    env = {"GDAL_CACHEMAX": "64", "GPUGTIFF_CLAIM": "YES", "GPUGTIFF_BATCH_MB": "16"}
    base, peak, digest = harness.run_json(VRT, vrt, env=env)
    assert digest == want[2]
    window = 20 * 1024 * 512 * 2 // 1024
    assert peak - base <= (16 * 3 + 64) * 1024 + 2 * window, "%d MB" % ((peak - base) // 1024)


def _mosaic(path, names):
    """20 × 10 sources of 1024 × 512."""
    source = ('<SimpleSource><SourceFilename>%s</SourceFilename><SourceBand>1</SourceBand>'
              '<SourceProperties RasterXSize="1024" RasterYSize="512" DataType="UInt16" BlockXSize="256" BlockYSize="256"/>'
              '<SrcRect xOff="0" yOff="0" xSize="1024" ySize="512"/>'
              '<DstRect xOff="%d" yOff="%d" xSize="1024" ySize="512"/></SimpleSource>')  # fmt: skip
    body = "".join(source % (n, k % 20 * 1024, k // 20 * 512) for k, n in enumerate(names))
    path.write_text('<VRTDataset rasterXSize="20480" rasterYSize="5120"><VRTRasterBand dataType="UInt16" band="1">'
                    "%s</VRTRasterBand></VRTDataset>" % body)  # fmt: skip
    return str(path)
