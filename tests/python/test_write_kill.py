"""kill -9 at chosen bytes of what is written: what is left is no TIFF to anybody, or holds the right pixels. At least
200 kills in a run; the count of leftovers holding more than half of the data is printed with the totals."""

import os
import signal
import subprocess
import time

import harness
import pytest
import sinkfault
import written

OPTIONS = {
    "tiles": dict(TILED="YES", COMPRESS="ZSTD", INTERLEAVE="PIXEL", BLOCKXSIZE=128, BLOCKYSIZE=128),
    "planes": dict(TILED="YES", COMPRESS="LZW", INTERLEAVE="BAND", BLOCKXSIZE=128, BLOCKYSIZE=128),
    "strips": dict(TILED="NO", COMPRESS="NONE", INTERLEAVE="PIXEL", BLOCKYSIZE=32),
}
RUNS = [("copy", "tiles"), ("copy", "planes"), ("copy", "strips"), ("rows", "tiles"), ("rows", "strips"),
        ("bands", "tiles"), ("upwards", "planes"), ("flushed", "tiles"), ("again", "strips")]  # fmt: skip
KILLS = 40  # a run of each of the above: 360 together


def points(rng, total, kills=KILLS):
    """Bytes at which to kill: spread over the whole, and every few of the last ones, where directory and header are."""
    spread = [1 + (total - 1) * k // (kills // 2) for k in range(kills // 2)]
    late = [total - k for k in (0, 1, 2, 4, 7, 8, 9, 12, 15, 16, 17, 20, 40)]
    chance = [rng.randint(1, total) for _ in range(kills - len(spread) - len(late))]
    return [p for p in spread + late + chance if 0 < p <= total]


def kill_at_bytes(worker, way, only, name, kills, total):
    """-> how the whole of it went, and the kills."""
    whole = worker.run(way=way, only=only)
    assert whole["code"] == 0 and whole["right"], whole
    rng = harness.rng("kill", way, name)
    for n, at in enumerate(points(rng, whole["bytes"], kills)):
        # Every other kill loses what stdio still held, as a real one does.
        after = worker.run(way=way, only=only, kill=at, flush=n % 2)
        where = "GPUGTIFF_SEED=%d %s %s killed at byte %d of %d: %s" % (
            harness.SEED, way, name, at, whole["bytes"], after)  # fmt: skip
        assert after["code"] == -signal.SIGKILL, where
        assert not after["opens"] or after["right"], where
        assert not after["opens"] or after["left"] == whole["left"], "opens before all is beside it: " + where
        total("kills", 1)
        total("leftovers with more than half of the data", after["size"] > whole["size"] // 2)
        total("leftovers that open", after["opens"])
    return whole


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return sinkfault.build(tmp_path_factory.mktemp("lib"))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return written.noise_source(tmp_path_factory.mktemp("s") / "s.tif", 700, 600, 3, INTERLEAVE="PIXEL")


@pytest.mark.parametrize("way,layout", RUNS, ids=lambda v: v)
def test_killed_at_a_byte(way, layout, library, source, tmp_path, total):
    written.ours_only()
    options = written.option_list(dict(OPTIONS[layout], COPY_TILES="NO", BATCH_MB=1, PHOTOMETRIC="MINISBLACK"))
    with sinkfault.Worker(library, tmp_path / "out", source, written.DRIVER, options) as worker:
        kill_at_bytes(worker, way, sinkfault.TARGET, layout, KILLS, total)


@pytest.mark.parametrize("name", sorted(sinkfault.COPIES))
def test_copy_of_tiles_killed_at_a_byte(name, library, tmp_path, total):
    """A mask beside the target is there before the target opens: killed at bytes of either."""
    written.ours_only()
    masked, options, config = sinkfault.COPIES[name]
    path = sinkfault.copy_source(tmp_path, masked)
    files = [sinkfault.TARGET] + [sinkfault.BESIDE] * (name == "mask beside")
    options = written.option_list(options)
    with sinkfault.Worker(library, tmp_path / "out", path, written.DRIVER, options, config) as worker:
        for only in files:
            sinkfault.check_way(name, kill_at_bytes(worker, "copy", only, name, KILLS // 2, total))


@pytest.mark.parametrize("way", ["masked", "masked_flushed", "masked_overviews"])
@pytest.mark.parametrize("inside", ["YES", "NO"])
def test_created_with_a_mask_killed_at_a_byte(inside, way, library, tmp_path, total):
    written.ours_only()
    path = sinkfault.copy_source(tmp_path, True)
    options = written.option_list(dict(OPTIONS["tiles"], BATCH_MB=1, PHOTOMETRIC="MINISBLACK"))
    config = {"GDAL_TIFF_INTERNAL_MASK": inside}
    with sinkfault.Worker(library, tmp_path / "out", path, written.DRIVER, options, config) as worker:
        for only in [sinkfault.TARGET] + [sinkfault.BESIDE] * (inside == "NO"):
            whole = kill_at_bytes(worker, way, only, "mask " + inside, KILLS // 2, total)
            assert ("out.tif.msk" in whole["left"]) == (inside == "NO"), whole


def test_zero_header_until_the_end(library, tmp_path):
    """Of a file that Create() made nothing of the signature is there while it is written, and overwriting such a
    leftover raises no error."""
    written.ours_only()
    target = tmp_path / "out" / "out.tif"
    target.parent.mkdir()
    env = sinkfault.env(library, target, KILL=200_000, FLUSH=1, ONLY=sinkfault.TARGET)
    create = ["gdal_create", "-q", "-of", written.DRIVER, "-outsize", "700", "600", "-bands", "3", "-burn", "7"]
    assert written.run(*create, "-co", "COMPRESS=NONE", target, env=env).returncode == -signal.SIGKILL
    with open(target, "rb") as f:
        assert f.read(16) == bytes(16)
    assert target.stat().st_size > 100_000
    again = written.succeeded(written.run(*create, "-co", "COMPRESS=NONE", target))
    assert again.stderr == ""
    harness.same_bytes(written.read_gtiff(target), bytes([7]) * (700 * 600 * 3), "written over a leftover")


def slow_source(tmp_path):
    """A VRT that shows a file of noise many times: seconds of work, in little space."""
    tile = written.noise_source(tmp_path / "t.tif", 1024, 1024)
    parts = "".join(
        "<SimpleSource><SourceFilename>%s</SourceFilename><SourceBand>1</SourceBand>"
        '<SrcRect xOff="0" yOff="0" xSize="1024" ySize="1024"/>'
        '<DstRect xOff="%d" yOff="%d" xSize="1024" ySize="1024"/></SimpleSource>' % (tile, x * 1024, y * 1024)
        for y in range(60) for x in range(8))  # fmt: skip
    vrt = tmp_path / "slow.vrt"
    vrt.write_text('<VRTDataset rasterXSize="8192" rasterYSize="61440"><VRTRasterBand dataType="Byte" band="1">'
                   "%s</VRTRasterBand></VRTDataset>" % parts)  # fmt: skip
    return vrt


def size_so_far(process, target):
    """Of the target: gdalwarp's has its name at once, gdal_translate's has none."""
    if target.exists():
        return target.stat().st_size
    files = ["/proc/%d/fd/%s" % (process.pid, f) for f in os.listdir("/proc/%d/fd" % process.pid)]
    unnamed = str(target.parent / "#")
    return max([os.stat(f).st_size for f in files if os.readlink(f).startswith(unnamed)], default=0)


@pytest.mark.parametrize("tool", ["gdal_translate", "gdalwarp"])
def test_ctrl_c_leaves_no_file_that_opens(tmp_path, tool):
    """And gdal_translate, which uses CreateCopy(), leaves no file at all."""
    written.ours_only()
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "o.tif"
    options = written.flags(dict(COMPRESS="DEFLATE", ZLEVEL=9, BATCH_MB=4))
    more = ["-to", "SRC_METHOD=NO_GEOTRANSFORM", "-to", "DST_METHOD=NO_GEOTRANSFORM"] if tool == "gdalwarp" else []
    command = [tool, "-q", "-of", written.DRIVER, *options, *more, str(slow_source(tmp_path)), str(target)]
    # A background job ignores Ctrl-C, and so would its children.
    process = subprocess.Popen(command, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    end = time.monotonic() + 40
    while time.monotonic() < end and process.poll() is None:
        try:
            if size_so_far(process, target) > 3_000_000:
                break
        except OSError:  # closed meanwhile
            pass
        time.sleep(0.02)
    assert process.poll() is None, "over before it could be stopped: %s" % process.stderr.read()
    process.send_signal(signal.SIGINT)
    code = process.wait(20)
    process.stderr.close()
    assert code != 0
    assert written.read_gtiff(target) is None if target.exists() else True
    left = [f for f in os.listdir(folder) if tool == "gdal_translate" or f != "o.tif"]
    assert left == [], "temporary files left: %s" % left
