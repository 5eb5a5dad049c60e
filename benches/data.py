"""The rasters the benchmark reads and writes: generated once, kept in target/bench-data.

Terrain is midpoint-displacement relief; imagery is the same with a rougher spectrum,
three correlated bands and sensor noise, so that codecs meet about the redundancy of real
files: neither pure noise nor plain ramps. The same bytes on every machine.
"""

import os
from pathlib import Path

import numpy as np
from osgeo import gdal

CODECS = ("LZW", "DEFLATE", "ZSTD", "NONE")
# Codecs that only GDAL has, each with a raster that is stored so.
GDAL_CODECS = {"JPEG": "imagery-rgb", "WEBP": "imagery-rgb", "LERC_ZSTD": "terrain-float32",
               "LZMA": "terrain-int16"}  # fmt: skip
LOSSY = ("JPEG", "WEBP", "LERC_ZSTD")
PREDICTED = ("LZW", "DEFLATE", "ZSTD")
# codec → creation options of its own
SPECIAL = {"JPEG": ["PHOTOMETRIC=YCBCR", "JPEG_QUALITY=85"], "LERC_ZSTD": ["MAX_Z_ERROR=0.01"]}
TYPES = {"float32": gdal.GDT_Float32, "int16": gdal.GDT_Int16, "uint8": gdal.GDT_Byte}
# raster → (side in pixels, side in a quick run, PREDICTOR). All above 250 MB.
RASTERS = {
    "terrain-float32": (8192, 2048, 3),
    "terrain-int16": (11520, 2048, 2),
    "imagery-rgb": (9472, 2048, 2),
}


def relief(size, roughness, seed):
    """A fractal surface of about unit height; roughness is the gain from octave to octave."""
    sides = [size]
    while sides[-1] > 4:
        sides.append(sides[-1] // 2 + 1)
    rng = np.random.Generator(np.random.PCG64(seed))
    surface = rng.standard_normal((sides[-1], sides[-1]), dtype=np.float32)
    gain = np.float32(1)
    for side in reversed(sides[:-1]):
        n = surface.shape[0]
        finer = np.empty((2 * n - 1, 2 * n - 1), np.float32)
        finer[::2, ::2] = surface
        finer[1::2, ::2] = (surface[:-1] + surface[1:]) / 2
        finer[:, 1::2] = (finer[:, :-1:2] + finer[:, 2::2]) / 2
        surface = finer[:side, :side]
        gain *= np.float32(roughness)
        surface += gain * rng.standard_normal(surface.shape, dtype=np.float32)
    return (surface - surface.mean()) / surface.std()


def bands(raster, size):
    """One array per band."""
    if raster == "terrain-float32":
        return [1200 + 400 * relief(size, 0.47, 1)]
    if raster == "terrain-int16":
        return [np.rint(1200 + 400 * relief(size, 0.66, 2)).astype(np.int16)]
    light = 110 + 38 * relief(size, 0.84, 3)
    rng = np.random.Generator(np.random.PCG64(4))
    colours = []
    for band in range(3):
        tint = 12 * relief(size, 0.7, 5 + band)
        noise = rng.standard_normal((size, size), dtype=np.float32) * np.float32(2)
        colours.append(np.clip(np.rint(light + tint + noise), 0, 255).astype(np.uint8))
    return colours


def finished(path, make):
    """path, made by make(temporary path) if it is not there yet: never half a file."""
    if not path.exists():
        print(f"making {path.name}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part.tif")
        make(str(temporary))
        os.replace(temporary, path)
    return path


def creation_options(raster, codec):
    """What a raster is written with, by either driver."""
    options = ["TILED=YES", f"COMPRESS={codec}", "INTERLEAVE=PIXEL"]
    predictor = [f"PREDICTOR={RASTERS[raster][2]}"] if codec in PREDICTED else []
    return options + predictor + SPECIAL.get(codec, [])


class Data:
    def __init__(self, directory, quick=False):
        self.directory = Path(directory) / ("quick" if quick else "full")
        self.quick = quick

    def raster(self, raster, codec):
        """The file of a raster in a codec of CODECS, in PACKBITS, or in one of GDAL_CODECS."""
        path = self.directory / f"{raster}-{codec.lower()}.tif"
        if codec == "NONE":
            return finished(path, lambda to: self._write(raster, to))
        options = [*creation_options(raster, codec), "NUM_THREADS=ALL_CPUS"]
        source = str(self.raster(raster, "NONE")) if not path.exists() else ""
        return finished(path, lambda to: gdal.Translate(to, source, creationOptions=options))

    def mosaic(self, raster, across, down):
        """A VRT that repeats a raster of one band."""
        tile = self.raster(raster, "NONE")
        ds = gdal.OpenEx(str(tile), gdal.OF_RASTER, ["GTiff"])
        width, height = ds.RasterXSize, ds.RasterYSize
        kind = gdal.GetDataTypeName(ds.GetRasterBand(1).DataType)
        properties = f'RasterXSize="{width}" RasterYSize="{height}" DataType="{kind}"'
        size = f'xSize="{width}" ySize="{height}"'
        sources = "\n".join(
            f'<SimpleSource><SourceFilename relativeToVRT="1">{tile.name}</SourceFilename>'
            f'<SourceProperties {properties} BlockXSize="256" BlockYSize="256"/>'
            f'<SrcRect xOff="0" yOff="0" {size}/>'
            f'<DstRect xOff="{x * width}" yOff="{y * height}" {size}/></SimpleSource>'
            for y in range(down) for x in range(across))  # fmt: skip
        xml = (f'<VRTDataset rasterXSize="{width * across}" rasterYSize="{height * down}">\n'
               f'<VRTRasterBand dataType="{kind}" band="1">\n{sources}\n'
               "</VRTRasterBand>\n</VRTDataset>\n")  # fmt: skip
        path = self.directory / f"{raster}-{across}x{down}.vrt"
        return finished(path, lambda to: Path(to).write_text(xml))

    def _write(self, raster, to):
        size = RASTERS[raster][1 if self.quick else 0]
        arrays = bands(raster, size)
        ds = gdal.GetDriverByName("GTiff").Create(
            to, size, size, len(arrays), TYPES[arrays[0].dtype.name],
            ["TILED=YES", "INTERLEAVE=PIXEL"],
        )  # fmt: skip
        for number, array in enumerate(arrays, 1):
            ds.GetRasterBand(number).WriteArray(array)

    def million_tiles(self):
        """1,048,576 tiles of 16 × 16."""
        side = 2048 if self.quick else 16384

        def make(to):
            options = ["TILED=YES", "BLOCKXSIZE=16", "BLOCKYSIZE=16", "COMPRESS=DEFLATE", "ZLEVEL=1"]
            ds = gdal.GetDriverByName("GTiff").Create(to, side, side, 1, gdal.GDT_Byte, options)
            noise = np.random.RandomState(9).randint(0, 16, (side // 4, side), np.uint8)
            ds.GetRasterBand(1).WriteArray(np.repeat(noise, 4, axis=0))

        return finished(self.directory / "million-tiles.tif", make)
