"""TIFFs of JPEG 2000 tiles, made by tifffile and imagecodecs, and changed on purpose."""

import os

import harness
import imagecodecs
import numpy
import tifffile
import tiffpatch

FIXTURES = os.path.join(harness.REPO, "tests", "jpeg2000")
JPEG2000, APERIO_YCBCR, APERIO_RGB = 34712, 33003, 33005


def pixels(shape, dtype, rng):
    """Rows, columns, samples of something between noise and slopes, all of the type's range."""
    info = numpy.iinfo(dtype)
    rows, columns, samples = shape
    y, x, s = numpy.mgrid[0:rows, 0:columns, 0:samples]
    slopes = (x * rng.randrange(1, 9) + y * rng.randrange(1, 9) + s * 77) * (1 + (info.max > 255) * 150)
    noise = numpy.random.default_rng(rng.randrange(1 << 30)).integers(0, 5, shape)
    return ((slopes + noise) % (int(info.max) - int(info.min) + 1) + int(info.min)).astype(dtype)


def fixture(name):
    with open(os.path.join(FIXTURES, name + ".j2k"), "rb") as f:
        return f.read()


def fixture_samples(width, height, component, bits=8):
    """The formula of tests/jpeg2000/make.c, for unsigned samples."""
    y, x = numpy.mgrid[0:height, 0:width]
    return ((5 * x + 3 * y + 40 * component + x * y // 8) * (199 if bits == 16 else 1)) % (1 << bits)


def photometric_of(array):
    return "rgb" if array.shape[-1] >= 3 else "minisblack"


def write(path, array, tile=(64, 64), planar=False, lossy=False, boxed=False, compression=None, **kw):
    """Writes rows x columns x samples; the file named like it with .plain holds the same uncompressed."""
    kw.setdefault("photometric", photometric_of(array))
    if tile:
        kw["tile"] = tile
    data = numpy.moveaxis(array, -1, 0) if planar else array
    if array.shape[-1] == 1:
        data = array[..., 0]
    else:
        kw["planarconfig"] = "separate" if planar else "contig"
    if array.shape[-1] in (2, 4):
        kw["extrasamples"] = ["unspecified"]
    kw["metadata"] = None
    args = {"level": 40 if lossy else 0, "reversible": not lossy, "codecformat": "jp2" if boxed else "j2k"}
    tifffile.imwrite(path + ".plain", data, **kw)
    if kw.get("byteorder") == ">":
        # It hands the encoder samples in the file's byte order, which codestreams do not have.
        data = data.byteswap()
    tifffile.imwrite(path, data, compression="jpeg2000", compressionargs=args, **kw)
    if compression:
        patch(path, 259, compression)
    return path


def patch(path, tag, value, directory=0):
    tiff = tiffpatch.Tiff(path)
    tiff.set(tag, value, directory=directory)
    tiff.save()


def replace_tile(path, index, blob):
    tiff = tiffpatch.Tiff(path)
    tiff.append_data(blob, index)
    tiff.save()


def trimmed(stream):
    """A codestream of one tile-part without what imagecodecs leaves behind it."""
    start = stream.index(b"\xff\x90")
    return stream[: start + int.from_bytes(stream[start + 6 : start + 10], "big") + 2]


def tile_bytes(path, index):
    tiff = tiffpatch.Tiff(path)
    offset, count = tiff.striles()[index]
    return bytes(tiff.data[offset : offset + count])


def decoded(path):
    """Rows, columns, samples as tifffile has them."""
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[0]
        array = page.asarray()
        if array.ndim == 2:
            return array[..., None]
        return numpy.moveaxis(array, 0, -1) if page.planarconfig == 2 else array


def encode(array, **kw):
    kw = {"level": 0, "reversible": True, "codecformat": "j2k", "mct": False, **kw}
    return imagecodecs.jpeg2k_encode(array, **kw)


def to_rgb(y, cb, cr):
    """JFIF's, in 16 binary digits as libjpeg has it."""
    digits = {k: round(k * 65536) for k in (1.402, 0.34414, 0.71414, 1.772)}
    y, cb, cr = y.astype(int) * 65536 + 32768, cb.astype(int) - 128, cr.astype(int) - 128
    rgb = [y + digits[1.402] * cr, y - digits[0.34414] * cb - digits[0.71414] * cr, y + digits[1.772] * cb]
    return numpy.clip(numpy.stack(rgb, -1) >> 16, 0, 255).astype("uint8")
