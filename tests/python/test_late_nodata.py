"""SPARSE_OK and a nodata value that is set, changed or deleted after pixels were written: what was written stays.
GTiff is the oracle; where the two differ, GTiff has lost a pixel that was written and ours has it. Pixels that nobody
wrote are compared if the nodata value did not change: else GTiff's depend on what its block cache held."""

import os

import harness
import numpy as np
import pytest
from osgeo import gdal

CASES = int(os.environ.get("GPUGTIFF_CASES", 60))
TYPES = {
    gdal.GDT_Byte: np.uint8, gdal.GDT_Int16: np.int16, gdal.GDT_UInt32: np.uint32, gdal.GDT_Float32: np.float32,
    gdal.GDT_Float64: np.float64, gdal.GDT_Int64: np.int64, gdal.GDT_UInt64: np.uint64, gdal.GDT_CInt16: None,
    gdal.GDT_CFloat32: np.complex64,
}  # fmt: skip
VALUES = [0, 0, 7, 9]
LARGE = (1 << 53) + 1


def create(driver, path, size, bands, kind, options):
    return gdal.GetDriverByName(driver).Create(path, *size, bands, kind, options)


def constant(kind, value, count):
    ds = gdal.GetDriverByName("MEM").Create("", count, 1, 1, kind)
    if kind in (gdal.GDT_Int64, gdal.GDT_UInt64):
        ds.WriteRaster(0, 0, count, 1, np.full(count, value, TYPES[kind]).tobytes())
    else:
        ds.GetRasterBand(1).Fill(value)
    return ds.ReadRaster()


def pixels(path, driver="GTiff"):
    ds = gdal.OpenEx(path, allowed_drivers=[driver])
    unit = gdal.GetDataTypeSize(ds.GetRasterBand(1).DataType) // 8
    shape = (ds.RasterCount, ds.RasterYSize, ds.RasterXSize, unit)
    data = ds.ReadRaster()
    return None if data is None else np.frombuffer(data, np.uint8).reshape(shape)


class Sequence:
    """The same calls for any driver, and what must be where something was written."""

    def __init__(self, r):
        self.r = r
        self.kind = r.choice(list(TYPES))
        self.unit = gdal.GetDataTypeSize(self.kind) // 8
        self.size = (r.randrange(20, 120), r.randrange(20, 120))
        self.bands = r.choice([1, 1, 2, 3])
        self.options = [
            "SPARSE_OK=" + r.choice(["YES", "YES", "YES", "NO"]), "COMPRESS=" + r.choice(["NONE", "LZW", "DEFLATE", "ZSTD"]),
            "INTERLEAVE=" + r.choice(["PIXEL", "BAND"]),
        ]  # fmt: skip
        strips = r.randrange(3) == 0
        self.options += ["TILED=NO", "BLOCKYSIZE=16"] if strips else ["TILED=YES", "BLOCKXSIZE=32", "BLOCKYSIZE=32"]
        self.mask = r.randrange(4) == 0
        self.calls = [self.call() for _ in range(r.randrange(3, 12))]

    def call(self):
        what = self.r.choice(["write", "write", "write", "whole", "nodata", "delete", "flush", "read"])
        w, h = self.size
        x, y = (0, 0) if what == "whole" else (self.r.randrange(w), self.r.randrange(h))
        width, height = (w, h) if what == "whole" else (self.r.randrange(1, w - x + 1), self.r.randrange(1, h - y + 1))
        band = self.r.randrange(self.bands + 1)
        return (what, (x, y, width, height), band, self.r.choice(VALUES))

    def changes_nodata(self):
        """After something else."""
        others = [i for i, call in enumerate(self.calls) if call[0] not in ("nodata", "delete")]
        return any(call[0] in ("nodata", "delete") for call in self.calls[min(others, default=0) :])

    def run(self, driver, path):
        ds = create(driver, path, self.size, self.bands, self.kind, self.options)
        if self.mask:
            ds.CreateMaskBand(gdal.GMF_PER_DATASET)
        truth = np.zeros((self.bands, self.size[1], self.size[0], self.unit), np.uint8)
        known = np.zeros(truth.shape[:3], bool)
        for what, rect, band, value in self.calls:
            x, y, width, height = rect
            if what in ("write", "whole"):
                one = constant(self.kind, value, 1)
                data = bytes(one) * (width * height)
                chosen = range(self.bands) if band == 0 else [band - 1]
                if band == 0:
                    ds.WriteRaster(*rect, data * self.bands)
                else:
                    ds.GetRasterBand(band).WriteRaster(*rect, data)
                for b in chosen:
                    truth[b, y : y + height, x : x + width] = np.frombuffer(one, np.uint8)
                    known[b, y : y + height, x : x + width] = True
            elif what == "nodata":
                for b in range(self.bands):
                    ds.GetRasterBand(b + 1).SetNoDataValue(value)
            elif what == "delete":
                for b in range(self.bands):
                    ds.GetRasterBand(b + 1).DeleteNoDataValue()
            elif what == "flush":
                ds.FlushCache()
            else:
                ds.ReadRaster(*rect)
        ds = None
        return truth, known


@pytest.mark.parametrize("case", range(CASES))
def test_random(case):
    sequence = Sequence(harness.rng("late nodata", case))
    got = []
    with harness.Errors():
        for driver in ("GTiff", harness.DRIVER):
            path = "/vsimem/late_%d_%s.tif" % (case, driver)
            truth, known = sequence.run(driver, path)
            got.append(pixels(path))
            gdal.GetDriverByName("GTiff").Delete(path)
    theirs, ours = got
    if theirs is None:
        # GTiff 3.6 writes strips of LZW that it cannot read: those that nobody wrote, of the last row.
        theirs = np.where(known[..., None], truth, ours)
    differs = (theirs != ours).any(axis=3)
    if sequence.changes_nodata():
        differs &= known
    lost_by_gtiff = known & (ours == truth).all(axis=3)
    assert not (differs & ~lost_by_gtiff).any(), (harness.SEED, case, sequence.__dict__)


@pytest.mark.parametrize("codec", ["NONE", "LZW", "DEFLATE", "ZSTD"])
@pytest.mark.parametrize("flush", ["no flush", "flushed", "rewritten"])
def test_zeros_stay(codec, flush):
    """F_sparse_late_nodata: all pixels that were written, where GTiff loses those of a tile that it has left out."""
    zeros = np.zeros((64, 64), np.uint8)
    zeros[:32, :32] = 5
    wrong = []
    for driver in ("GTiff", harness.DRIVER):
        path = "/vsimem/zeros_%s_%s_%s.tif" % (codec, flush[:2], driver)
        options = ["COMPRESS=" + codec, "TILED=YES", "BLOCKXSIZE=32", "BLOCKYSIZE=32", "SPARSE_OK=YES"]
        ds = create(driver, path, (64, 64), 1, gdal.GDT_Byte, options)
        if flush == "rewritten":
            ds.WriteRaster(0, 0, 64, 64, (zeros + 1).tobytes())
            ds.FlushCache()
        ds.WriteRaster(0, 0, 64, 64, zeros.tobytes())
        if flush != "no flush":
            ds.FlushCache()
        ds.GetRasterBand(1).SetNoDataValue(7)
        ds = None
        wrong.append(int(np.count_nonzero(pixels(path)[0, :, :, 0] != zeros)))
        gdal.Unlink(path)
    assert wrong[1] == 0, wrong


def test_written_late_in_the_same_order():
    """A tile that is written after all: bytes that do not depend on threads or the batch size."""
    files = set()
    for options in (["NUM_THREADS=1", "BATCH_MB=1"], ["NUM_THREADS=4"], ["NUM_THREADS=2", "BATCH_MB=2"]):
        path = "/vsimem/late_order.tif"
        options = options + ["COMPRESS=ZSTD", "TILED=YES", "BLOCKXSIZE=128", "BLOCKYSIZE=128", "SPARSE_OK=YES"]
        if harness.SELF_TEST:
            options = options[-5:]
        ds = create(harness.DRIVER, path, (3000, 3000), 1, gdal.GDT_Byte, options)
        block = np.zeros((3000, 3000), np.uint8)
        block[:128, 500:900] = 3
        for y in range(0, 3000, 100):
            ds.WriteRaster(0, y, 3000, 100, block[y : y + 100].tobytes())
        ds.GetRasterBand(1).SetNoDataValue(7)
        ds = None
        assert (pixels(path)[0, :, :, 0] == block).all()
        f = gdal.VSIFOpenL(path, "rb")
        files.add(bytes(gdal.VSIFReadL(1, gdal.VSIStatL(path).size, f)))
        gdal.VSIFCloseL(f)
        gdal.Unlink(path)
    assert len(files) == 1


def test_large_integers():
    """Nodata of 64-bit integers beyond 2**53: sparse tiles that are read, and tiles that nobody wrote."""
    for kind in (gdal.GDT_Int64, gdal.GDT_UInt64):
        for sparse in ("YES", "NO"):
            for bands, interleave in ((1, "PIXEL"), (3, "PIXEL"), (3, "BAND")):
                got = []
                for driver in ("GTiff", harness.DRIVER):
                    path = "/vsimem/large_%s.tif" % driver
                    options = ["COMPRESS=LZW", "SPARSE_OK=" + sparse, "INTERLEAVE=" + interleave, "TILED=YES"]
                    ds = create(driver, path, (600, 300), bands, kind, options + ["BLOCKXSIZE=64", "BLOCKYSIZE=64"])
                    for band in range(bands):
                        b = ds.GetRasterBand(band + 1)
                        set_it = b.SetNoDataValueAsInt64 if kind == gdal.GDT_Int64 else b.SetNoDataValueAsUInt64
                        set_it(LARGE)
                    ds.WriteRaster(0, 0, 64, 64, constant(kind, 1, 64 * 64) * bands)
                    ds = None
                    for reader in ("GTiff", harness.DRIVER):
                        got.append(pixels(path, reader))
                    gdal.Unlink(path)
                assert all((one == got[0]).all() for one in got[1:]), (kind, sparse, bands, interleave)
                assert (got[0][:, 200:, 200:].copy().view(TYPES[kind]) == LARGE).all()
