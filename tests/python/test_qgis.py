"""QGIS without a window: raster layers on claimed files, their pixels, statistics and drawing, and QGIS's own
writer with our driver. `make test-qgis` installs QGIS and runs this."""

import json
import os
import subprocess

import harness
import metafiles
import pytest

pytestmark = pytest.mark.skipif(harness.SELF_TEST, reason="about GPUGTiff itself")

PYTHON = os.environ.get("GPUGTIFF_SYSTEM_PYTHON", "/usr/bin/python3")

BEGIN = """
import json, sys
from qgis.core import *
from qgis.PyQt.QtCore import QSize
from osgeo import gdal
application = QgsApplication([], False)
application.initQgis()
"""

READ = """
answers = []
for value in ("YES", "NO"):
    gdal.SetConfigOption("GPUGTIFF_CLAIM", value)
    layer = QgsRasterLayer(sys.argv[1], "layer")
    assert layer.isValid() and bool(gdal.Open(sys.argv[1]).GetMetadata("GPUGTIFF")) == (value == "YES"), value
    provider = layer.dataProvider()
    block = provider.block(1, provider.extent(), provider.xSize(), provider.ySize())
    small = provider.block(1, provider.extent(), 37, 29)
    statistics = provider.bandStatistics(1, QgsRasterBandStats.All)
    settings = QgsMapSettings()
    settings.setLayers([layer]), settings.setOutputSize(QSize(200, 150)), settings.setExtent(layer.extent())
    settings.setDestinationCrs(layer.crs())
    job = QgsMapRendererSequentialJob(settings)
    job.start(), job.waitForFinished()
    image = job.renderedImage()
    drawn = bytes(image.constBits().asarray(image.sizeInBytes())).hex()
    answers.append([layer.bandCount(), layer.crs().authid(), bytes(block.data()).hex(), bytes(small.data()).hex(),
                    statistics.mean, statistics.stdDev, drawn, "GPUGTIFF" in str(layer.htmlMetadata()).upper()])
print(json.dumps([answers[0] == answers[1], answers[0][0]]))
"""

WRITE = """
gdal.SetConfigOption("GPUGTIFF_CLAIM", "YES")
layer = QgsRasterLayer(sys.argv[1], "layer")
pipe = QgsRasterPipe()
pipe.set(layer.dataProvider().clone())
writer = QgsRasterFileWriter(sys.argv[2])
writer.setOutputFormat(sys.argv[3])
writer.setCreateOptions(["COMPRESS=DEFLATE"])
provider = layer.dataProvider()
done = writer.writeRaster(pipe, provider.xSize(), provider.ySize(), provider.extent(), layer.crs())
print(json.dumps(int(done)))
"""


@pytest.fixture(scope="module", autouse=True)
def qgis_is_there():
    done = subprocess.run([PYTHON, "-c", "import qgis.core"], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it does not load"])[-1]
        pytest.skip("QGIS is NOT TESTED (make test-qgis installs it): " + why)


def run(code, *arguments, home):
    env = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    # QGIS's libraries keep the process from ending in order; what it has printed counts.
    code = BEGIN + code + "sys.stdout.flush()\nimport os\nos._exit(0)\n"
    done = subprocess.run([PYTHON, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("kind", ["georeferenced", "overviews_internal", "mask_internal"])
def test_layers_look_the_same(tmp_path, kind):
    same, bands = run(READ, metafiles.MAKERS[kind](str(tmp_path)), home=tmp_path)
    assert same and bands > 0


@pytest.mark.parametrize("driver", ["GTiff", "GPUGTiff"])
def test_saved_layers(tmp_path, driver):
    source, target = metafiles.georeferenced(str(tmp_path)), str(tmp_path / "saved.tif")
    assert run(WRITE, source, target, driver, home=tmp_path) == 0
    saved, original = harness.open_gtiff(target), harness.open_gtiff(source)
    for band in range(1, original.RasterCount + 1):
        harness.same_bytes(saved.GetRasterBand(band).ReadRaster(), original.GetRasterBand(band).ReadRaster(), driver)
