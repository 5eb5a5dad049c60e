"""CreateCopy() that is stopped: by a signal it leaves nothing, or the finished file; by its progress function it ends
within a second; and until it is finished what had the target's name is as it was."""

import os
import signal
import stat
import subprocess
import time

import harness
import numpy as np
import pytest
import sinkfault
import written
from osgeo import gdal

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
TILES = dict(TILED="YES", BLOCKXSIZE=128, BLOCKYSIZE=128)
LEFT = dict(COPY_SRC_OVERVIEWS="YES")  # to GTiff
# (source has a mask, options, configuration)
COPIES = {
    "swaths": (False, dict(TILES, COMPRESS="DEFLATE", ZLEVEL=9, COPY_TILES="NO", BATCH_MB=1), {}),
    "recoded": (False, dict(TILES, COMPRESS="ZSTD", ZSTD_LEVEL=9, BATCH_MB=1), {}),
    "copied": (False, dict(TILES, COMPRESS="LZW"), {}),
    "mask and world file beside": (True, dict(TILES, COMPRESS="ZSTD", TFW="YES"), {"GDAL_TIFF_INTERNAL_MASK": "NO"}),
    "by GTiff": (False, dict(TILES, COMPRESS="DEFLATE", COPY_SRC_OVERVIEWS="YES"), {}),
    "by GTiff, with files beside": (
        True, dict(TILES, COMPRESS="LZW", COPY_SRC_OVERVIEWS="YES", TFW="YES", PROFILE="BASELINE"),
        {"GDAL_TIFF_INTERNAL_MASK": "NO"}),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return sinkfault.build(tmp_path_factory.mktemp("lib"))


def fresh(tmp_path, name="out"):
    folder = tmp_path / name
    folder.mkdir()
    return folder / "o.tif"


def start(source, target, options, config):
    command = ["gdal_translate", "-q", "-of", written.DRIVER, *written.flags(options), str(source), str(target)]
    # A background job ignores Ctrl-C, and so would its children.
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=dict(os.environ, **config),
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip


@pytest.mark.parametrize("name", sorted(COPIES))
def test_a_signal_leaves_nothing_or_the_finished_file(name, tmp_path, total):
    """At moments spread by chance over the run of gdal_translate."""
    written.ours_only()
    masked, options, config = COPIES[name]
    make = written.masked_source if masked else written.noise_source
    source = make(os.path.join(str(tmp_path), "s.tif"), 1500, 1400, 3, **dict(TILES, COMPRESS="LZW"))
    target = fresh(tmp_path)
    begun = time.monotonic()
    assert start(source, target, options, config).wait(120) == 0
    whole, left = time.monotonic() - begun, sorted(os.listdir(target.parent))
    want = written.read_gtiff(target)
    rng, moments = harness.rng("signals", name), []
    for n in range(12):
        for file in os.listdir(target.parent):
            os.remove(target.parent / file)
        kind, after = SIGNALS[n % len(SIGNALS)], rng.uniform(0.05, 1.05) * whole
        where = "GPUGTIFF_SEED=%d %s: signal %d after %.3f of %.3f s" % (harness.SEED, name, kind, after, whole)
        process = start(source, target, options, config)
        time.sleep(after)
        process.send_signal(kind)
        code = process.wait(60)
        found = sorted(os.listdir(target.parent))
        total("copies ended by a signal", code != 0)
        if found and not target.exists():
            # Between the names of what belongs beside it and its own there is a moment.
            moments.append(where)
            assert set(found) < set(left) and len(moments) == 1, "%s: %s" % (where, found)
        if target.exists():
            assert found == left, "%s: %s" % (where, found)
            harness.same_bytes(written.read_gtiff(target), want, where)


@pytest.mark.parametrize("by_gtiff", [False, True], ids=["by us", "by GTiff"])
def test_no_name_while_it_is_written(tmp_path, by_gtiff):
    """Nothing is in the folder when the progress function is called, and the mode is that of any new file."""
    written.ours_only()
    target, seen = fresh(tmp_path), []
    source = written.Raster(harness.rng("names"), "uint8", (3, 900, 900)).mem()
    before = os.umask(0o027)
    try:
        ds = written.copy(target, source, callback=lambda *_: seen.append(os.listdir(target.parent)) or 1,
                          COMPRESS="LZW", BATCH_MB=1, **(LEFT if by_gtiff else {}))  # fmt: skip
    finally:
        os.umask(before)
    assert ds is not None and ds.GetDescription() == str(target) and written.counter(ds, written.BY_GTIFF) == by_gtiff
    assert len(seen) > 3 and not any(seen), seen
    assert os.listdir(target.parent) == ["o.tif"] and stat.S_IMODE(target.stat().st_mode) == 0o640


KEEP = "QUIET_DELETE_ON_CREATE_COPY"


@pytest.mark.parametrize("by_gtiff", [False, True], ids=["by us", "by GTiff"])
@pytest.mark.parametrize("kind", ["file", "text", "link", "dangling"])
def test_what_has_the_name_stays_until_the_copy_is_finished(tmp_path, kind, by_gtiff):
    """A file, or a symbolic link: after a stop it is as it was, and a finished copy takes its place."""
    written.ours_only()
    target, other = fresh(tmp_path), tmp_path / "other.tif"
    if kind in ("link", "dangling"):
        target.symlink_to(other)
    if kind != "dangling":
        old = other if kind == "link" else target
        old.write_text("some text") if kind == "text" else written.noise_source(old, 50, 40)
    before = old.read_bytes() if kind != "dangling" else None
    raster = written.Raster(harness.rng("old"), "uint8", (1, 900, 900))
    options = {"COMPRESS": "LZW", "BATCH_MB": 1, KEEP: "NO", **(LEFT if by_gtiff else {})}
    with harness.Errors():
        assert written.copy(target, raster.mem(), callback=lambda p, *_: int(p < 0.5), **options) is None
    assert os.listdir(target.parent) == ["o.tif"] and target.is_symlink() == (kind in ("link", "dangling"))
    assert before is None or target.read_bytes() == before
    assert written.copy(target, raster.mem(), **options) is not None
    assert not target.is_symlink() and os.listdir(target.parent) == ["o.tif"]
    harness.same_bytes(written.read_gtiff(target), raster.whole(), "in its place")
    assert not other.exists() or other.read_bytes() == before


COPY = """
import sys
import harness, written
source = harness.open_gtiff(sys.argv[1])
options = dict(word.split("=") for word in sys.argv[3:])
sys.exit(int(written.copy(sys.argv[2], source, **{"%s": "NO"}, **options) is None))
""" % KEEP


@pytest.mark.parametrize("by_gtiff", [False, True], ids=["by us", "by GTiff"])
@pytest.mark.parametrize("call,errno", [("LINK", sinkfault.ENOSPC), ("RENAME", sinkfault.EIO)])
def test_a_name_that_cannot_be_given_costs_no_older_file(library, tmp_path, call, errno, by_gtiff):
    written.ours_only()
    source, target = written.noise_source(tmp_path / "s.tif", 300, 200), fresh(tmp_path)
    env = sinkfault.env(library, target, **{call: errno})
    if call == "RENAME":
        written.noise_source(target, 50, 40)
    before = target.read_bytes() if target.exists() else None
    done = harness.run_python(COPY, source, target, *written.option_list(LEFT if by_gtiff else {}), env=env)
    assert done.returncode == 1 and "cannot give %s its name" % target in done.stderr, done.stderr
    assert os.listdir(target.parent) == ([] if before is None else ["o.tif"])
    assert before is None or target.read_bytes() == before


@pytest.mark.parametrize("name", sorted(COPIES))
def test_file_systems_without_unnamed_files(library, tmp_path, name):
    """A temporary name beside the target stands in; a stop and a failure remove it."""
    written.ours_only()
    masked, options, config = COPIES[name]
    make = written.masked_source if masked else written.noise_source
    source = make(os.path.join(str(tmp_path), "s.tif"), 700, 600, 3, **dict(TILES, COMPRESS="LZW"))
    files, bytes_ = [], []
    for folder, settings in (("with", {}), ("without", {"NO_TMPFILE": 1})):
        target = fresh(tmp_path, folder)
        env = {**sinkfault.env(library, target, **settings), **config}
        written.succeeded(written.translate(source, target, env=env, **options))
        files.append(sorted(os.listdir(target.parent)))
        bytes_.append([(target.parent / f).read_bytes() for f in files[-1]])
    assert files[0] == files[1] and bytes_[0] == bytes_[1]
    target = fresh(tmp_path, "full")
    env = {**sinkfault.env(library, target, NO_TMPFILE=1, FAIL=3, ERRNO=sinkfault.ENOSPC, STICKY=1), **config}
    done = written.translate(source, target, env=env, **options)
    assert done.returncode > 0 and os.listdir(target.parent) == [], done.stderr


# ---- progress ------------------------------------------------------------------------------

# Slow levels: files of many tiles in one batch, and of one that takes most of the time.
SLOW = {
    "small tiles": (dict(TILES, COMPRESS="ZSTD", ZSTD_LEVEL=22), (1, 2048, 2048)),
    "one thread": (dict(TILES, COMPRESS="ZSTD", ZSTD_LEVEL=22, NUM_THREADS=1), (1, 1536, 2048)),
    "one tile": (dict(TILED="YES", BLOCKXSIZE=2048, BLOCKYSIZE=2048, COMPRESS="DEFLATE", ZLEVEL=12), (1, 2048, 2048)),
    "one strip, one thread": (dict(TILED="NO", BLOCKYSIZE=1024, COMPRESS="ZSTD", ZSTD_LEVEL=22, NUM_THREADS=1),
                              (1, 1024, 1024)),
}  # fmt: skip


def words(shape):
    """Pixels in which slow levels search long."""
    rng = np.random.default_rng(harness.SEED)
    bands, h, w = shape
    picked = rng.integers(0, 40, (500, 6), np.uint8)[rng.integers(0, 500, h * w // 6 + 1)]
    return written.Raster(None, "uint8", shape, [picked.ravel()[: h * w].reshape(h, w)] * bands)


@pytest.mark.parametrize("name", sorted(SLOW))
def test_progress_moves_and_a_stop_acts_whatever_the_level(tmp_path, name):
    """The longest time without a call is small beside the whole, and so is the time from FALSE to the return. Python is
    called where the share has grown by a hundredth."""
    written.ours_only()
    options, shape = SLOW[name]
    target, source, calls = fresh(tmp_path), words(shape).mem(), []
    begun = time.monotonic()
    assert written.copy(target, source, callback=lambda p, *_: calls.append((time.monotonic(), p)) or 1, **options)
    whole = time.monotonic() - begun
    at, shares = [[begun] + [t for t, _ in calls], [p for _, p in calls]]
    gap = max(b - a for a, b in zip(at, at[1:]))
    assert shares == sorted(shares) and shares[-1] == 1 and shares[1] < 0.5, shares
    assert gap < max(1.0, whole / 2), "%.2f s without a call in %.2f s" % (gap, whole)
    target.unlink()
    stopped = []

    def stop(p, *_):
        if p > 0:
            stopped.append(time.monotonic())
        return int(p == 0)

    with harness.Errors() as errors:
        assert written.copy(target, source, callback=stop, **options) is None
    took = time.monotonic() - stopped[0]
    assert [n for _, n, _ in errors if n == gdal.CPLE_UserInterrupt] and len(stopped) == 1, (errors, stopped)
    assert took < max(1.0, whole / 2), "%.2f s from FALSE to the return, of %.2f s" % (took, whole)
    assert os.listdir(target.parent) == []


def test_an_exception_in_the_progress_function_stops_it(tmp_path, capfd):
    """As with GTiff GDAL prints it and takes it for FALSE."""
    target = fresh(tmp_path)

    def callback(p, *_):
        if p > 0.3:
            raise KeyboardInterrupt

    raster = written.Raster(harness.rng("raise"), "uint8", (1, 900, 900))
    with harness.Errors() as errors:
        assert written.copy(target, raster.mem(), callback=callback, COMPRESS="LZW", BATCH_MB=1) is None
    assert errors.failures() and os.listdir(target.parent) == []
    assert "KeyboardInterrupt" in capfd.readouterr().err


def test_gtiff_says_the_targets_name(tmp_path):
    """It writes under another one, which no message mentions; and what it reports is the caller's to see."""
    written.ours_only()
    target, pixels = fresh(tmp_path), written.Raster(harness.rng("seven"), "uint8", (7, 100, 90))
    with harness.Errors() as errors:
        assert written.copy(target, pixels.mem(), COMPRESS="JPEG", NBITS=99, **LEFT) is None
        last = gdal.GetLastErrorMsg()
    assert errors.failures() and last == errors.failures()[-1], list(errors)
    assert "vsigpugtiff" not in errors.text() and str(target) in errors.text(), list(errors)
    assert os.listdir(target.parent) == []
