"""Options: bad values are refused with option, value and what is allowed; good ones are taken."""

import os
import subprocess
import sys

import harness
import metafiles
import pytest
from osgeo import gdal


@pytest.fixture
def path(tmp_path):
    if harness.SELF_TEST:
        pytest.skip("about our own options")
    return metafiles.bare(str(tmp_path))


BAD = [("ENGINE", "FOO", "CPU"), ("BATCH_MB", "abc", ""), ("BATCH_MB", "0", ""), ("BATCH_MB", "-1", ""),
       ("BATCH_MB", "99999999999999999999", ""), ("NUM_THREADS", "-3", "ALL_CPUS"), ("NUM_THREADS", "many", "ALL_CPUS"),
       ("NUM_THREADS", "0", "ALL_CPUS")]  # fmt: skip


@pytest.mark.parametrize("name,value,allowed", BAD)
@pytest.mark.parametrize("how", ["open option", "config option"])
def test_bad_value(path, name, value, allowed, how):
    settings = {"GPUGTIFF_" + name: value} if how == "config option" else {}
    with harness.config(**settings), harness.Errors() as errors:
        ds = harness.open_ours(path, [] if settings else ["%s=%s" % (name, value)])
    text = "\n".join(errors.failures())
    assert ds is None, "%s=%s was taken" % (name, value)
    assert name in text and value in text and allowed in text, text


@pytest.mark.parametrize("name,default", [
    ("GPUGTIFF_CLAIM", "AUTO"), ("GPUGTIFF_REPLACE_GTIFF", "NO")])  # fmt: skip
def test_bad_value_of_a_setting_is_told_once_and_not_taken(path, name, default):
    """A mistyped NO must not be a YES."""
    program = "from osgeo import gdal\nfor i in range(3): ds = gdal.Open(%r)\nprint(ds.GetDriver().ShortName, " \
              "ds.GetMetadata('GPUGTIFF'))" % path  # fmt: skip
    done = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                           env={**os.environ, name: value}) for value in ("nope", default)]  # fmt: skip
    said = [line for line in done[0].stderr.splitlines() if name in line]
    assert len(said) == 1 and "nope" in said[0] and "YES" in said[0] and default in said[0], done[0].stderr
    assert done[0].stdout == done[1].stdout and not done[1].stderr


@pytest.mark.parametrize("option", [
    "ENGINE=AUTO", "ENGINE=CPU", "engine=cpu", "NUM_THREADS=1", "NUM_THREADS=ALL_CPUS", "NUM_THREADS=7", "BATCH_MB=1",
    "BATCH_MB=256"])  # fmt: skip
def test_good_value(path, option):
    with harness.Errors() as errors:
        ours = harness.open_ours(path, [option])
        assert ours is not None, errors.text()
        harness.same_pixels(ours, harness.open_gtiff(path))
    assert not errors, errors.text()


def test_cuda_demanded_and_absent_says_why(path):
    with harness.Errors() as errors:
        ds = harness.open_ours(path, ["ENGINE=CUDA"])
    if ds is not None:
        pytest.skip("this machine has a GPU that our build uses")
    text = "\n".join(errors.failures())
    assert "CUDA" in text and len(text) > 20, text


def test_a_bad_option_does_not_stop_others_from_opening(path):
    """GTiff still opens the file when a config option of ours is wrong and nobody named us."""
    with harness.config(GPUGTIFF_BATCH_MB="abc"), harness.Errors():
        assert gdal.OpenEx(path, gdal.OF_RASTER, allowed_drivers=["GTiff"]) is not None


def test_number_of_threads(path):
    """The open option, then our config option, then GDAL's, then all CPUs."""
    cpus = gdal.GetNumCPUs()
    for option, ours, gdals, want in (
        (None, None, None, cpus), (None, None, "3", 3), (None, None, "ALL_CPUS", cpus), (None, "4", "3", 4),
        ("5", "4", "3", 5), ("5", None, "1", 5), ("ALL_CPUS", "4", "3", cpus), (None, None, "1", 1),
    ):  # fmt: skip
        with harness.config(GPUGTIFF_NUM_THREADS=ours, GDAL_NUM_THREADS=gdals):
            pair = harness.open_pair(path, ["NUM_THREADS=" + option] if option else [])
            harness.same_pixels(*pair)
        assert harness.counters(pair[0])[harness.THREADS] == want, (option, ours, gdals)


def test_gdal_num_threads_that_is_no_number(path):
    """It is GDAL's setting, so a bad value of it stops nothing, as with GTiff."""
    with harness.config(GDAL_NUM_THREADS="many"), harness.Errors():
        harness.same_pixels(*harness.open_pair(path))
