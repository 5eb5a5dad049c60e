"""Written by us, read by GTiff, by ourselves and by tifffile: equal to the bit, and the count that no pixel of it was
GTiff's work. GPUGTIFF_WRITE_CASES=n writes n random files (default 400); GPUGTIFF_SEED repeats a run."""

import os
import struct
import subprocess

import harness
import numpy as np
import pytest
import writers
import written
from osgeo import gdal

CASES = int(os.environ.get("GPUGTIFF_WRITE_CASES", "400"))
PER_TEST = 20


def fits(dtype, predictor):
    return not ((predictor == 3 and not dtype.startswith("float")) or (predictor == 2 and dtype in writers.PARTS))


# ---- every combination ---------------------------------------------------------------------


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("codec,predictor", written.CODECS_AND_PREDICTORS)
def test_every_combination(codec, predictor, order, tmp_path, total):
    """Codec × predictor × type × layout × byte order, by CreateCopy and by Create() in turn."""
    rng = harness.rng("write every", codec, predictor, order)
    n = 0
    for dtype in filter(lambda d: fits(d, predictor), writers.GDAL_TYPES):
        raster = written.Raster(rng, dtype, (3, 53, 75))
        for interleave in ("PIXEL", "BAND"):
            for layout in (dict(TILED="YES", BLOCKXSIZE=48, BLOCKYSIZE=32), dict(TILED="NO", BLOCKYSIZE=7)):
                o = dict(COMPRESS=codec, ENDIANNESS=order, INTERLEAVE=interleave, **layout)
                if codec in writers.PREDICTABLE:
                    o["PREDICTOR"] = predictor
                n += 1
                _write_and_read(rng, tmp_path / ("%d.tif" % n), raster, o, n % 2)
                total("combinations written", 1)


def _write_and_read(rng, path, raster, options, by_copy):
    where = "%s %s %s %s" % (raster.dtype, raster.shape, options, "CreateCopy" if by_copy else "Create")
    if by_copy:
        ds = written.copy(path, raster.mem(), **options)
        assert ds is not None, "%s: %s" % (where, gdal.GetLastErrorMsg())
    else:
        ds = raster.create(path, **options)
        assert ds is not None, "%s: %s" % (where, gdal.GetLastErrorMsg())
        rng.choice(written.ORDERS)(rng, raster, ds)
    written.check_by_us(ds, where)
    ds = None
    # libtiff 4.5 itself writes big-endian files with predictor 3 byte-swapped on this machine.
    if written.SELF_TEST and options.get("ENDIANNESS") == "BIG" and options.get("PREDICTOR") == 3:
        return 0
    read = written.check_readers(path, raster, where, _tifffile_reads(raster, options))
    _check_made_as_asked(path, options, raster, where)
    os.remove(path)
    return read


def _tifffile_reads(raster, options):
    """It fills holes with a nodata of its own reading."""
    return options.get("SPARSE_OK") != "YES"


def _check_made_as_asked(path, options, raster, where):
    """What the options say is what the file is: a driver that drops one reads back all the same."""
    order, version = written.header(path)
    assert order == ("MM" if options.get("ENDIANNESS") == "BIG" else "II"), where
    if options.get("BIGTIFF") in ("YES", "NO", "IF_NEEDED"):
        assert version == (43 if options["BIGTIFF"] == "YES" else 42), "%s: version %d" % (where, version)
    ds = harness.open_gtiff(str(path))
    band, again = ds.GetRasterBand(1), ds.GetMetadata_Dict("IMAGE_STRUCTURE")
    assert again.get("COMPRESSION", "NONE") == options["COMPRESS"], where
    assert again.get("PREDICTOR", "1") == str(options.get("PREDICTOR", 1)), where
    if raster.shape[0] > 1:
        assert again["INTERLEAVE"] == options["INTERLEAVE"], where
    if options.get("TILED") != "NO":
        assert band.GetBlockSize() == [options["BLOCKXSIZE"], options["BLOCKYSIZE"]], where
    else:
        # The tag itself: libtiff reads a lone uncompressed strip as many.
        assert written.tags(path)[0][278] == [min(options["BLOCKYSIZE"], raster.shape[1])], where
    if raster.dtype == "int8":
        assert band.GetMetadataItem("PIXELTYPE", "IMAGE_STRUCTURE") == "SIGNEDBYTE", where


# ---- random files --------------------------------------------------------------------------


def random_options(rng, dtype, h):
    o = {"COMPRESS": rng.choice(writers.CODECS), "INTERLEAVE": rng.choice(["PIXEL", "BAND"]),
         "ENDIANNESS": rng.choice(["LITTLE", "LITTLE", "BIG"]),
         "BIGTIFF": rng.choice(["YES", "NO", "IF_NEEDED", "IF_SAFER"]),
         "BATCH_MB": rng.choice([1, 1, 2, 64]), "NUM_THREADS": rng.choice([1, 2, 3, "ALL_CPUS"])}  # fmt: skip
    if rng.random() < 0.6:
        o.update(TILED="YES", BLOCKXSIZE=16 * rng.randint(1, 10), BLOCKYSIZE=16 * rng.randint(1, 10))
    else:
        o.update(TILED="NO", BLOCKYSIZE=rng.choice([1, 2, 3, rng.randint(1, h), h]))
    if o["COMPRESS"] in writers.PREDICTABLE and rng.random() < 0.7:
        o["PREDICTOR"] = rng.choice([p for p in (1, 2, 3) if fits(dtype, p)])
    if rng.random() < 0.3:
        o["SPARSE_OK"] = "YES"
    if o["COMPRESS"] == "DEFLATE" and rng.random() < 0.3:
        o["ZLEVEL"] = rng.choice([1, 9])
    if o["COMPRESS"] == "ZSTD" and rng.random() < 0.3:
        o["ZSTD_LEVEL"] = rng.choice([1, 15])
    return o


def _with_holes(rng, raster, options, nodata):
    """With SPARSE_OK some regions hold nothing but the nodata value (zero without one): they become holes."""
    if options.get("SPARSE_OK") != "YES" or raster.shape[1] < 4:
        return
    value = np.zeros(raster.size, np.uint8)
    if nodata is not None:
        base = np.dtype({"int8": "int8"}.get(raster.dtype, raster.dtype))
        value = np.frombuffer(np.array([nodata], base).tobytes(), np.uint8)
    h = raster.shape[1] // 2
    raster.bytes[:, h:] = np.tile(value, raster.shape[2])


def _set_nodata(rng, raster, band):
    """A nodata value of the type's kind, now and then; -> it."""
    if rng.random() > 0.4 or raster.dtype in writers.PARTS:
        return None
    if raster.dtype == "int64":
        value = rng.choice([-(1 << 63), (1 << 53) + 1, -1])
        band.SetNoDataValueAsInt64(value)
    elif raster.dtype == "uint64":
        value = rng.choice([(1 << 64) - 1, (1 << 53) + 1, 0])
        band.SetNoDataValueAsUInt64(value)
    else:
        value = rng.choice([0, 1, float("nan")]) if raster.dtype.startswith("float") else rng.choice([0, 1, 99])
        band.SetNoDataValue(value)
    return value


def _nodata_of(raster, ds):
    band = ds.GetRasterBand(1)
    if raster.dtype == "int64":
        return band.GetNoDataValueAsInt64()
    return band.GetNoDataValueAsUInt64() if raster.dtype == "uint64" else band.GetNoDataValue()


def random_file(rng, folder):
    dtype = rng.choice(sorted(writers.GDAL_TYPES))
    h, w = writers.random_size(rng)
    raster = written.Raster(rng, dtype, (rng.randint(1, 5), h, w))
    options = random_options(rng, dtype, h)
    path = folder / "r.tif"
    by_copy = rng.random() < 0.5
    where = "%s %s %s %s" % (dtype, raster.shape, options, "CreateCopy" if by_copy else "Create")
    source = raster.mem()
    nodata = _set_nodata(rng, raster, source.GetRasterBand(1))
    _with_holes(rng, raster, options, nodata)
    source.WriteRaster(0, 0, w, h, raster.whole(), buf_type=raster.kind)
    if by_copy:
        ds = written.copy(path, source, **options)
    else:
        ds = raster.create(path, **options)
        if nodata is not None and ds is not None:
            set_ = {"int64": "SetNoDataValueAsInt64", "uint64": "SetNoDataValueAsUInt64"}
            getattr(ds.GetRasterBand(1), set_.get(dtype, "SetNoDataValue"))(nodata)
    assert ds is not None, "%s: %s" % (where, gdal.GetLastErrorMsg())
    if not by_copy:
        order = rng.choice(written.ORDERS)
        where += " " + order.__name__
        order(rng, raster, ds)
    if rng.random() < 0.5:  # before close, from the dataset that wrote
        harness.same_bytes(ds.ReadRaster(), raster.whole(), where + " read back before close")
    written.check_by_us(ds, where)
    ds = None
    if written.SELF_TEST and options["ENDIANNESS"] == "BIG" and options.get("PREDICTOR") == 3:
        return 0
    read = written.check_readers(path, raster, where, _tifffile_reads(raster, options))
    again = harness.open_gtiff(str(path))
    assert repr(_nodata_of(raster, again)) == repr(_nodata_of(raster, source)), where
    _check_made_as_asked(path, options, raster, where)
    return read


@pytest.mark.parametrize("n", range(max(1, CASES // PER_TEST)))
def test_random_files(n, tmp_path, total):
    for k in range(PER_TEST):
        folder = tmp_path / str(k)
        folder.mkdir()
        gdal.SetCacheMax(64 << 20)
        rng = harness.rng("write random", n, k)
        if k % 3 == 0:  # a block cache so small that it throws dirty blocks out while others are written
            gdal.SetCacheMax(300_000)
        try:
            read = random_file(rng, folder)
        except AssertionError as e:
            raise AssertionError("GPUGTIFF_SEED=%d, file %d of test %d: %s" % (harness.SEED, k, n, e)) from None
        total("files written at random", 1)
        total("of them read by tifffile", read)


# ---- special bits --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype,code", [("float32", "I"), ("float64", "Q")])
@pytest.mark.parametrize("predictor", [1, 2, 3])
@pytest.mark.parametrize("by_copy", [True, False])
def test_bits_of_nan_and_minus_zero(tmp_path, dtype, code, predictor, by_copy):
    """Quiet and signalling NaNs with payloads, -0.0 next to the nodata value 0, subnormals: all exact."""
    high = 0x7F800000 if code == "I" else 0x7FF0000000000000
    top = 1 << (struct.calcsize(code) * 8 - 1)
    quiet = high | (1 << 22 if code == "I" else 1 << 51)
    odd = [0, top, 1, top | 1, high, top | high, high | 1, quiet | 0x1234, top | quiet | 0x55, high | 0x3FF] * 30
    plane = np.frombuffer(struct.pack("=%d%s" % (len(odd), code), *odd), dtype).reshape(15, 20)
    raster = written.Raster(None, dtype, (2, 15, 20), [plane, plane[::-1].copy()])
    for interleave in ("PIXEL", "BAND"):
        path = tmp_path / (interleave + ".tif")
        options = dict(COMPRESS="DEFLATE", PREDICTOR=predictor, INTERLEAVE=interleave, BLOCKXSIZE=16, BLOCKYSIZE=16)
        source = raster.mem()
        source.GetRasterBand(1).SetNoDataValue(0)
        if by_copy:
            ds = written.copy(path, source, TILED="YES", **options)
        else:
            ds = raster.create(path, TILED="YES", **options)
            ds.GetRasterBand(1).SetNoDataValue(0)
            written.bands(None, raster, ds)
        written.check_by_us(ds)
        ds = None
        written.check_readers(path, raster, "%s %s" % (dtype, options))


# ---- what GTiff encodes or writes for us ---------------------------------------------------

BY_GTIFF = [
    dict(COMPRESS="JPEG"), dict(NBITS=1), dict(NBITS=7), dict(COMPRESS="LERC", MAX_Z_ERROR=0), dict(COMPRESS="LZMA"),
    dict(COMPRESS="WEBP", WEBP_LOSSLESS="YES"), dict(COMPRESS="CCITTFAX4", NBITS=1), dict(STREAMABLE_OUTPUT="YES"),
]  # fmt: skip


@pytest.mark.parametrize("options", BY_GTIFF, ids=lambda o: ",".join(written.option_list(o)))
@pytest.mark.parametrize("by_copy", [True, False])
def test_what_no_engine_of_ours_has(tmp_path, options, by_copy):
    """The same pixels as a file of GTiff's with the same options; counted where GTiff wrote the file as a whole."""
    written.ours_only()
    codecs = gdal.GetDriverByName("GTiff").GetMetadataItem("DMD_CREATIONOPTIONLIST")
    if options.get("COMPRESS", "LZW") not in codecs:
        pytest.skip("this libtiff has no %s" % options["COMPRESS"])
    if "STREAMABLE_OUTPUT" in options and not by_copy:
        pytest.skip("nothing streams out of order")
    bands = 3 if options.get("COMPRESS") in ("JPEG", "WEBP") else 1
    values = np.random.default_rng(1).integers(0, 2 if options.get("NBITS") == 1 else 120, (bands, 90, 110), np.uint8)
    raster = written.Raster(None, "uint8", values.shape, list(values))
    made = []
    for driver in (written.DRIVER, "GTiff"):
        path = tmp_path / (driver + ".tif")
        o = {"TILED": "NO", **({"COMPRESS": "NONE"} if "COMPRESS" not in options else {}), **options}
        if by_copy:
            ds = written.copy(path, raster.mem(), driver, **o)
        else:
            ds = written.create(path, raster.shape, raster.kind, driver, **o)
            written.whole_raster(None, raster, ds)
        assert ds is not None, gdal.GetLastErrorMsg()
        if driver != "GTiff":
            assert written.counter(ds, written.BY_GTIFF) == ("STREAMABLE_OUTPUT" in options)
        ds = None
        made.append(path)
    harness.same_bytes(written.read_gtiff(made[0]), written.read_gtiff(made[1]), str(options))
    assert written.tags(made[0]) == written.tags(made[1])


DEBUGGED = [(dict(COPY_SRC_OVERVIEWS="YES"), "written by GTiff: COPY_SRC_OVERVIEWS=YES"), (dict(COMPRESS="JPEG"), None),
            (dict(NBITS=7), None), (dict(COMPRESS="LZW"), None)]  # fmt: skip


@pytest.mark.parametrize("options,line", DEBUGGED, ids=["an option", "a codec", "a depth", "ours"])
def test_a_debug_line_says_that_gtiff_writes(tmp_path, options, line):
    written.ours_only()
    source = written.noise_source(tmp_path / "s.tif", 60, 50)
    done = written.translate(source, tmp_path / "o.tif", env={"CPL_DEBUG": "GPUGTIFF"}, **options)
    assert done.returncode == 0, done.stderr
    said = [text for text in done.stderr.splitlines() if text.startswith("GPUGTIFF: ") and "written by GTiff" in text]
    assert len(said) == (line is not None) and all(line in text for text in said), done.stderr


def test_defaults_are_tiled_deflate(tmp_path):
    written.ours_only()
    raster = written.Raster(harness.rng("default"), "uint16", (2, 300, 400))
    for path in (tmp_path / "copied.tif", tmp_path / "created.tif"):
        if path.name == "copied.tif":
            ds = written.copy(path, raster.mem())
        else:
            ds = raster.create(path)
            written.whole_raster(None, raster, ds)
        ds = None
        info = harness.open_gtiff(str(path))
        assert info.GetMetadata_Dict("IMAGE_STRUCTURE")["COMPRESSION"] == "DEFLATE"
        assert info.GetRasterBand(1).GetBlockSize() == [256, 256]
        written.check_readers(path, raster, path.name)


@pytest.mark.parametrize("word,number", [("NO", "1"), ("YES", "2"), ("STANDARD", "2"), ("FLOATING_POINT", "3")])
def test_predictors_by_name(tmp_path, word, number):
    """The words of the COG driver; YES means 3 for floating point."""
    written.ours_only()
    kinds = ["float32"] if number == "3" else ["uint16", "float32"]
    for dtype in kinds:
        raster = written.Raster(harness.rng(word, dtype), dtype, (1, 60, 70))
        path = tmp_path / (dtype + ".tif")
        ds = written.copy(path, raster.mem(), PREDICTOR=word, COMPRESS="ZSTD")
        written.check_by_us(ds)
        ds = None
        want = "3" if (word, dtype) == ("YES", "float32") else number
        assert harness.open_gtiff(str(path)).GetMetadata_Dict("IMAGE_STRUCTURE").get("PREDICTOR", "1") == want
        written.check_readers(path, raster, word)


@pytest.mark.parametrize("by_copy", [True, False])
@pytest.mark.parametrize("dtype,bits", [("uint8", "2"), ("uint16", "5"), ("float32", "8"), ("uint8", "2,0,3")])
def test_discard_lsb_as_gtiff(tmp_path, dtype, bits, by_copy):
    """Lossy on purpose: the same loss as GTiff's."""
    raster = written.Raster(harness.rng("lsb", dtype, bits), dtype, (3, 70, 90))
    made = []
    for driver in (written.DRIVER, "GTiff"):
        path = tmp_path / (driver + "_.tif")
        o = dict(written.SAME_AS_GTIFF, DISCARD_LSB=bits, PHOTOMETRIC="MINISBLACK")
        if by_copy:
            ds = written.copy(path, raster.mem(), driver, **o)
        else:
            ds = written.create(path, raster.shape, raster.kind, driver, **o)
            written.whole_raster(None, raster, ds)
        assert ds is not None, gdal.GetLastErrorMsg()
        ds = None
        made.append(written.read_gtiff(path))
    harness.same_bytes(made[0], made[1], "DISCARD_LSB=%s" % bits)
    assert made[0] != raster.whole(), "nothing was discarded: nothing is shown"


@pytest.mark.parametrize("target", ["/vsimem/%s/a.tif", "file"])
@pytest.mark.parametrize("by_copy", [True, False])
def test_where_it_writes(tmp_path, target, by_copy):
    raster = written.Raster(harness.rng("target"), "int16", (2, 200, 150))
    folder = tmp_path.name + str(os.getpid())
    path = target % folder if "%" in target else str(tmp_path / "a.tif")
    ds = written.copy(path, raster.mem(), COMPRESS="LZW") if by_copy else raster.create(path, COMPRESS="LZW")
    if not by_copy:
        written.shuffled_blocks(harness.rng("s"), raster, ds)
    written.check_by_us(ds)
    ds = None
    harness.same_bytes(harness.open_gtiff(path).ReadRaster(), raster.whole(), path)
    if path.startswith("/vsimem/"):
        assert gdal.ReadDirRecursive("/vsimem/" + folder) == ["a.tif"] and written.in_vsimem() == []
        gdal.GetDriverByName("GTiff").Delete(path)


def test_standard_output(tmp_path):
    """GTiff streams it, uncompressed."""
    source = written.noise_source(tmp_path / "s.tif", 100, 80, 3)
    args = ["gdal_translate", "-q", "-of", written.DRIVER, "-co", "TILED=NO", source, "/vsistdout/"]
    with open(tmp_path / "out.tif", "wb") as f:
        done = subprocess.run(args, stdout=f, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    harness.same_bytes(written.read_gtiff(tmp_path / "out.tif"), written.read_gtiff(source), "stdout")
    assert "COMPRESSION" not in harness.open_gtiff(str(tmp_path / "out.tif")).GetMetadata_Dict("IMAGE_STRUCTURE")


def test_streamed_write_is_refused_as_by_gtiff(tmp_path):
    """A target without random write gets GTiff's error."""
    source = written.noise_source(tmp_path / "s.tif", 50, 40)
    codes = [written.translate(source, "/vsigzip/%s/%s.tif.gz" % (tmp_path, d), driver=d, **written.SAME_AS_GTIFF)
             for d in (written.DRIVER, "GTiff")]  # fmt: skip
    assert codes[1].returncode != 0 and codes[0].returncode != 0, codes[0].stderr
    assert "ERROR" in codes[0].stderr


# ---- BigTIFF, subdatasets, overviews of the source -----------------------------------------


@pytest.mark.parametrize("bigtiff,version", [("IF_NEEDED", 42), ("IF_SAFER", 43), ("YES", 43), ("NO", 42)])
def test_bigtiff_of_a_large_raster_of_holes(tmp_path, bigtiff, version):
    """3.6 GB of pixels in a file of few bytes: IF_SAFER goes by the size of the raster, IF_NEEDED by what is there."""
    path = tmp_path / "b.tif"
    ds = written.create(path, (1, 60000, 60000), COMPRESS="DEFLATE", TILED="YES", SPARSE_OK="YES", BIGTIFF=bigtiff)
    assert ds is not None, gdal.GetLastErrorMsg()
    ds = None
    assert written.header(path) == ("II", version)


def test_overviews_of_the_source_are_copied(tmp_path):
    """COPY_SRC_OVERVIEWS=YES is GTiff's work: the overviews are there, and they are the source's."""
    source = str(tmp_path / "s.tif")
    raster = written.Raster(harness.rng("levels"), "uint8", (1, 400, 500))
    ds = written.copy(source, raster.mem(), "GTiff", TILED="YES", COMPRESS="LZW")
    ds.BuildOverviews("AVERAGE", [2, 4])
    ds = None
    path = tmp_path / "o.tif"
    ds = written.copy(path, harness.open_gtiff(source), COPY_SRC_OVERVIEWS="YES", **written.SAME_AS_GTIFF)
    assert ds is not None, gdal.GetLastErrorMsg()
    assert written.SELF_TEST or written.counter(ds, written.BY_GTIFF) == 1
    ds = None
    again = harness.open_gtiff(str(path))
    assert again.GetRasterBand(1).GetOverviewCount() == 2
    harness.same_pixels(again, harness.open_gtiff(source), "levels")


def test_subdataset_is_appended(tmp_path):
    """APPEND_SUBDATASET=YES must not remove what is there."""
    path, first = str(tmp_path / "a.tif"), written.Raster(harness.rng("one"), "uint16", (1, 90, 80))
    ds = written.copy(path, first.mem(), COMPRESS="LZW")
    ds = None
    second = written.Raster(harness.rng("two"), "uint16", (1, 70, 60))
    ds = written.copy(path, second.mem(), COMPRESS="LZW", APPEND_SUBDATASET="YES")
    assert ds is not None, gdal.GetLastErrorMsg()
    assert written.SELF_TEST or written.counter(ds, written.BY_GTIFF) == 1
    ds = None
    for n, raster in ((1, first), (2, second)):
        ds = gdal.Open("GTIFF_DIR:%d:%s" % (n, path))
        harness.same_bytes(ds.ReadRaster(), raster.whole(), "directory %d" % n)
