"""Random sequences of Create() or CreateCopy(), writes and settings, as plain data; and carrying them
out with a driver. The file is then read by GTiff: the same sequence by GTiff must give the same."""

import hashlib
import os
import random

import paths  # noqa: F401
import harness  # noqa: I001
import numpy as np
from osgeo import gdal

TYPES = {
    "Byte": np.uint8, "UInt16": np.uint16, "Int16": np.int16, "UInt32": np.uint32, "Int32": np.int32,
    "Float32": np.float32, "Float64": np.float64, "Int64": np.int64, "UInt64": np.uint64,
    "CFloat32": np.complex64, "CInt16": None,
}  # fmt: skip
OURS = ["NONE", "LZW", "DEFLATE", "ZSTD", "PACKBITS"]
GTIFFS = ["JPEG", "WEBP", "LERC", "LERC_DEFLATE", "LERC_ZSTD", "LZMA"]
COLOURS = [gdal.GCI_RedBand, gdal.GCI_GreenBand, gdal.GCI_AlphaBand, gdal.GCI_GrayIndex, gdal.GCI_Undefined]


# ---- cases -----------------------------------------------------------------------------------


def random_case(rng, codecs):
    """A case; `codecs`: which of COMPRESS are tried."""
    codec = rng.choice(codecs)
    dtype = rng.choice(sorted(TYPES))
    bands = rng.choice([1, 1, 2, 3, 4])
    if codec in ("JPEG", "WEBP"):
        dtype, bands = "Byte", rng.choice([3, 4] if codec == "WEBP" else [1, 3])
    if codec.startswith("LERC") and dtype in ("Int64", "UInt64", "CFloat32", "CInt16"):
        dtype = "Float32"
    case = {
        "how": rng.choice(["Create", "Create", "CreateCopy"]),
        "size": [rng.randint(1, 130), rng.randint(1, 100)],
        "bands": bands,
        "type": dtype,
        "options": random_options(rng, codec, dtype),
        "vsimem": rng.random() < 0.3,
        "threads": rng.choice(["1", "2", "ALL_CPUS"]),
        "internal_mask": rng.random() < 0.7,
        "ops": [],
    }
    if is_lossy(case) or rng.random() < 0.3:
        bands = list(range(1, bands + 1))
        case["ops"].append(["write", [0, 0, *case["size"]], bands, dtype, pattern(rng)])
    for _ in range(rng.randint(0, 9)):
        case["ops"].append(random_op(rng, case))
    return case


def is_lossy(case):
    """Whether pixels change each other: then those that nobody wrote count too."""
    # WEBP without loss still changes the colours of transparent pixels.
    return "COMPRESS=JPEG" in case["options"] or "COMPRESS=WEBP" in case["options"]


def is_encoded_again(case):
    """Whether a lossy codec shows what GTiff's block cache holds: after a flush, GTiff goes on with blocks that are
    still there and decodes the others; Fill() fills the padding of those too. Ours decodes what it wrote."""
    kinds = [op[0] for op in case["ops"]]
    later = kinds[kinds.index("flush") :] if "flush" in kinds else []
    again = bool({"write", "block", "mask", "fill"} & set(later))
    return is_lossy(case) and case["how"] == "Create" and ("fill" in kinds or again)


def is_left_out_late(case):
    """Whether GTiff leaves out a lossy block for a nodata value that came after its pixels, or, copying, makes nodata
    of a source's zeros; where it does not, the codec changes the pixels."""
    return is_lossy(case) and "SPARSE_OK=YES" in case["options"] and any(op[0] == "nodata" for op in case["ops"])


def is_fill_refused(case):
    """Whether GTiff 3.6 fails to fill blocks that nobody wrote, of bits that do not fill bytes ("Illegal nXBlockOff")."""
    odd = any(option.startswith("NBITS=") for option in case["options"])
    return odd and any(op[0] == "nodata" for op in case["ops"])


def is_colour_late(case):
    """Whether a colour interpretation comes after pixels, in a file that keeps none in GDAL's metadata: GTiff takes it
    if its block cache has written nothing yet."""
    kinds = [op[0] for op in case["ops"]]
    pixels = [i for i, kind in enumerate(kinds) if kind in ("write", "block", "fill", "read", "mask")]
    late = pixels and "colour" in kinds[pixels[0] :]
    return bool(late) and any(o.startswith("PROFILE=") and o != "PROFILE=GDALGeoTIFF" for o in case["options"])


def random_options(rng, codec, dtype):
    options = ["COMPRESS=" + codec]
    if rng.random() < 0.6:
        options += ["TILED=YES"]
        if rng.random() < 0.8:
            options += ["BLOCKXSIZE=%d" % rng.choice([16, 32, 48]), "BLOCKYSIZE=%d" % rng.choice([16, 32, 64])]
    else:
        options += ["TILED=NO"]
        if rng.random() < 0.8:
            # JPEG's strips are of whole MCUs.
            options += ["BLOCKYSIZE=%d" % rng.choice([16, 32] if codec == "JPEG" else [1, 7, 16, 33, 1000])]
    options += ["INTERLEAVE=%s" % ("PIXEL" if codec == "WEBP" else rng.choice(["PIXEL", "BAND"]))]
    if codec in ("LZW", "DEFLATE", "ZSTD") and rng.random() < 0.5:
        options += ["PREDICTOR=%d" % (rng.choice([2, 3]) if dtype in ("Float32", "Float64") else 2)]
    if rng.random() < 0.3:
        options += ["SPARSE_OK=YES"]
    if rng.random() < 0.2:
        options += ["BIGTIFF=YES"]
    # libtiff 4.5 writes predictor 3 byte-swapped in big-endian files.
    if rng.random() < 0.2 and "PREDICTOR=3" not in options:
        options += ["ENDIANNESS=BIG"]
    if dtype == "Byte" and codec in OURS + ["LZMA"] and rng.random() < 0.15:
        options += ["NBITS=%d" % rng.choice([1, 2, 4, 7])]
    if codec == "JPEG" and rng.random() < 0.5:
        options += ["JPEG_QUALITY=%d" % rng.choice([10, 75, 95])]
    if codec == "WEBP":
        options += rng.choice([["WEBP_LOSSLESS=YES"], ["WEBP_LEVEL=50"]])
    if codec == "LZMA":
        options += ["LZMA_PRESET=1"]  # more takes hundreds of megabytes for every tile; Create() takes 0 for 6
    if rng.random() < 0.1:
        options += ["PROFILE=%s" % rng.choice(["BASELINE", "GeoTIFF"])]
    return options


def random_op(rng, case):
    w, h = case["size"]
    kind = rng.choice(["write"] * 8 + ["nodata", "nodata", "flush", "colour", "read", "fill", "mask", "meta",
                                       "clear_nodata", "block"])  # fmt: skip
    band = rng.randint(1, case["bands"])
    # GTiff 3.6 does not delete nodata of 64-bit integers once the directory is written.
    if kind == "clear_nodata" and case["type"] in ("Int64", "UInt64"):
        kind = "flush"
    if kind in ("write", "read"):
        n, m = rng.randint(1, w), rng.randint(1, h)
        if rng.random() < 0.4:
            n, m = w, h
        window = [rng.randint(0, w - n), rng.randint(0, h - m), n, m]
        bands = [band] if rng.random() < 0.4 else rng.sample(range(1, case["bands"] + 1), rng.randint(1, case["bands"]))
        return [kind, window, bands, rng.choice([case["type"]] * 4 + ["Byte", "Float32"]), pattern(rng)]
    if kind == "block":
        return [kind, band, rng.random(), rng.random(), pattern(rng)]
    if kind == "nodata":
        return [kind, band, rng.choice([0, 1, 7, 255])]
    if kind == "fill":
        return [kind, band, rng.choice([0, 1, 7])]
    if kind == "colour":
        return [kind, band, rng.choice(COLOURS)]
    if kind == "mask":
        return [kind, rng.choice([0, 255]), pattern(rng)]
    if kind == "meta":
        return [kind, rng.choice(["A", "B"]), rng.choice(["", "text"])]
    return [kind, band]


def pattern(rng):
    return [rng.choice(["zero", "one", "seven", "ramp", "noise", "half"]), rng.randrange(1 << 20)]


# ---- pixels ----------------------------------------------------------------------------------


def samples(how, count, width, dtype):
    """Bytes of `count` samples of a type."""
    kind, seed = how
    i = np.arange(count)
    if kind == "noise":
        values = np.random.RandomState(seed).randint(0, 255, count)
    elif kind == "ramp":
        values = (i % width + i // width) % 251
    elif kind == "half":
        values = np.where(i % width < width // 2, 0, i % 13)
    else:
        values = np.full(count, {"zero": 0, "one": 1, "seven": 7}[kind])
    if TYPES[dtype] is None:
        return np.stack([values, values], axis=-1).astype(np.int16).tobytes()
    return values.astype(TYPES[dtype]).tobytes()


# ---- carrying out ----------------------------------------------------------------------------


class Run:
    """A sequence under way: what each step gave."""

    def __init__(self, driver, folder, case):
        self.case, self.log = case, []
        self.driver = gdal.GetDriverByName(driver)
        name = "%s-%d.tif" % (driver, os.getpid())
        self.folder = "/vsimem/fuzz/" if case["vsimem"] else folder + "/"
        self.path = self.folder + name
        self.options = list(case["options"])
        self.options += ["NUM_THREADS=" + (case["threads"] if driver != "GTiff" else "1")]
        w, h = case["size"]
        self.covered = np.zeros((case["bands"], h, w), bool)
        # What a file that keeps everything would hold.
        dtype = gdal.GetDataTypeByName(case["type"])
        self.shadow = gdal.GetDriverByName("MEM").Create("", w, h, case["bands"], dtype)

    def cover(self, done, bands, x, y, n, m):
        """Notes what was written; after a failure too, as both drivers must fail."""
        for band in bands:
            self.covered[band - 1, y : y + m, x : x + n] = True
        return done

    def create(self):
        w, h = self.case["size"]
        dtype = gdal.GetDataTypeByName(self.case["type"])
        if self.case["how"] == "Create":
            return self.driver.Create(self.path, w, h, self.case["bands"], dtype, self.options)
        source = gdal.GetDriverByName("MEM").Create("", w, h, self.case["bands"], dtype)
        self.steps(source)
        self.covered[:] = True
        return self.driver.CreateCopy(self.path, source, options=self.options)

    def truth(self):
        """Hashes of what was written to each band."""
        bands = [self.shadow.GetRasterBand(i + 1) for i in range(self.case["bands"])]
        return [hashed(band.ReadRaster(), covered) for band, covered in zip(bands, self.covered)]

    def steps(self, ds):
        for op in self.case["ops"]:
            with harness.Errors() as errors:
                value = getattr(self, "do_" + op[0])(ds, *op[1:])
            self.log.append([op[0], value, bool(errors.failures())])

    def do_write(self, ds, window, bands, dtype, how):
        x, y, n, m = window
        data = samples(how, n * m * len(bands), n, dtype)
        write = [x, y, n, m, data, n, m, gdal.GetDataTypeByName(dtype), bands]
        self.shadow.WriteRaster(*write)
        done = ds.WriteRaster(*write)
        return self.cover(done, bands, x, y, n, m)

    def do_read(self, ds, window, bands, dtype, how):
        x, y, n, m = window
        data = ds.ReadRaster(*window, band_list=bands, buf_type=gdal.GetDataTypeByName(dtype))
        if is_encoded_again(self.case):
            return data is not None
        covered = self.covered[[band - 1 for band in bands], y : y + m, x : x + n]
        true = self.shadow.ReadRaster(*window, band_list=bands, buf_type=gdal.GetDataTypeByName(dtype))
        return [hashed(data, covered), "right" if hashed(true, covered) == hashed(data, covered) else "wrong"]

    def do_block(self, ds, band, across, down, how):
        band = ds.GetRasterBand(band)
        bw, bh = band.GetBlockSize()
        x, y = int(across * -(-band.XSize // bw)), int(down * -(-band.YSize // bh))
        n, m = min(bw, band.XSize - x * bw), min(bh, band.YSize - y * bh)
        write = [x * bw, y * bh, n, m, samples(how, n * m, n, self.case["type"])]
        self.shadow.GetRasterBand(band.GetBand()).WriteRaster(*write, buf_type=band.DataType)
        done = band.WriteRaster(*write, buf_type=band.DataType)
        return self.cover(done, [band.GetBand()], x * bw, y * bh, n, m)

    def do_nodata(self, ds, band, value):
        return ds.GetRasterBand(band).SetNoDataValue(value)

    def do_clear_nodata(self, ds, band):
        return ds.GetRasterBand(band).DeleteNoDataValue()

    def do_fill(self, ds, band, value):
        self.shadow.GetRasterBand(band).Fill(value)
        done = ds.GetRasterBand(band).Fill(value)
        return self.cover(done, [band], 0, 0, *self.case["size"])

    def do_colour(self, ds, band, value):
        return ds.GetRasterBand(band).SetColorInterpretation(value)

    def do_flush(self, ds, band):
        ds.FlushCache()
        return 0

    def do_meta(self, ds, name, value):
        return ds.SetMetadataItem(name, value)

    def do_mask(self, ds, value, how):
        if ds.GetRasterBand(1).GetMaskFlags() & gdal.GMF_PER_DATASET == 0:
            if ds.CreateMaskBand(gdal.GMF_PER_DATASET) != 0:
                return None
        w, h = self.case["size"]
        data = samples(how, w * h, w, "Byte") if value else bytes(w * h)
        if ds.GetRasterBand(1).GetMaskFlags() & gdal.GMF_ALPHA:
            alpha = self.shadow.GetRasterBand(alpha_band(ds))
            alpha.WriteRaster(0, 0, w, h, data, buf_type=gdal.GDT_Byte)
            self.covered[alpha.GetBand() - 1] = True
        return ds.GetRasterBand(1).GetMaskBand().WriteRaster(0, 0, w, h, data)


def alpha_band(ds):
    """The number of the alpha band."""
    kinds = [ds.GetRasterBand(i + 1).GetColorInterpretation() for i in range(ds.RasterCount)]
    return kinds.index(gdal.GCI_AlphaBand) + 1


def carry_out(driver, folder, case):
    """-> what happened, and what GTiff finds in the file."""
    run = Run(driver, folder, case)
    internal = "YES" if case["internal_mask"] else "NO"
    with harness.config(GDAL_TIFF_INTERNAL_MASK=internal):
        with harness.Errors() as errors:
            ds = run.create()
        out = {"created": ds is not None, "create_failed": bool(errors.failures())}
        if ds is not None and case["how"] == "Create":
            run.steps(ds)
        with harness.Errors() as errors:
            ds = None
        out["close_failed"] = bool(errors.failures())
    with harness.Errors():
        out["file"] = found(run) if out["created"] else None
        out["log"], out["truth"] = run.log, run.truth()
        for name in (run.path, run.path + ".msk", run.path + ".aux.xml"):
            gdal.Unlink(name)
    return out


def hashed(data, covered):
    """The hash of samples, zeros in place of those that nobody wrote."""
    if data is None:
        return None
    samples = np.frombuffer(data, np.uint8).reshape(*covered.shape, -1)
    return hashlib.sha1(np.where(covered[..., None], samples, 0).tobytes()).hexdigest()[:12]


def found(run):
    """What GTiff reads."""
    ds = gdal.OpenEx(run.path, gdal.OF_RASTER, allowed_drivers=["GTiff"])
    if ds is None:
        return None
    out = {"metadata": ds.GetMetadata_Dict(), "structure": ds.GetMetadata_Dict("IMAGE_STRUCTURE")}
    if "COMPRESS=WEBP" in run.case["options"] and ds.RasterCount == 4:
        # WEBP keeps no colours of what is transparent, with or without loss.
        alpha = ds.GetRasterBand(4).ReadRaster()
        run.covered[:3] &= np.frombuffer(alpha or bytes(run.covered[3].size), np.uint8).reshape(run.covered[3].shape) != 0
    for i in range(1, ds.RasterCount + 1):
        band, covered = ds.GetRasterBand(i), run.covered[i - 1]
        # A read of nothing but pixels that nobody wrote may fail.
        data = band.ReadRaster() if covered.any() else bytes(covered.size * harness.sample_bytes(band.DataType))
        of_nodata = band.GetMaskFlags() & (gdal.GMF_NODATA | gdal.GMF_ALPHA)
        seen = np.ones_like(covered)
        if of_nodata:
            seen = run.covered[alpha_band(ds) - 1] if of_nodata & gdal.GMF_ALPHA else covered
        if is_encoded_again(run.case) or is_left_out_late(run.case):
            data, seen = data and bytes(len(data)), seen & (not of_nodata)
        mask = hashed(band.GetMaskBand().ReadRaster(), seen)
        out["band %d" % i] = [hashed(data, covered), mask, gdal.GetDataTypeName(band.DataType),
                              repr(band.GetNoDataValue()),
                              None if is_colour_late(run.case) else band.GetColorInterpretation(), band.GetMaskFlags(),
                              band.GetBlockSize()]  # fmt: skip
    return out


def shrink(case):
    """Smaller cases, each with one thing less."""
    for i in range(is_lossy(case), len(case["ops"])):
        yield dict(case, ops=case["ops"][:i] + case["ops"][i + 1 :])
    for i, option in enumerate(case["options"]):
        # Without these the two drivers have different defaults.
        if not option.startswith(("COMPRESS", "TILED", "LZMA_PRESET", "WEBP")):
            yield dict(case, options=case["options"][:i] + case["options"][i + 1 :])
    for change in ({"vsimem": True}, {"threads": "1"}, {"internal_mask": True}):
        if any(case[k] != v for k, v in change.items()):
            yield dict(case, **change)


def case_of(seed, codecs):
    return random_case(random.Random(seed), codecs)
