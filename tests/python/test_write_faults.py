"""The n-th call on the target, or on the files beside it, fails, for every n: each failure gives an error and leaves
nothing that opens with wrong pixels; and the programs say so by their exit."""

import signal

import harness
import pytest
import sinkfault
import written


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return written.noise_source(tmp_path_factory.mktemp("s") / "s.tif", 700, 600, 3, INTERLEAVE="PIXEL")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return sinkfault.build(tmp_path_factory.mktemp("lib"))


SWEEPS = [("copy", dict(COMPRESS="LZW", TILED="YES", BLOCKXSIZE=128, BLOCKYSIZE=128)),
          ("copy", dict(COMPRESS="NONE", TILED="NO", BLOCKYSIZE=64, BIGTIFF="YES")),
          ("rows", dict(COMPRESS="ZSTD", TILED="YES", BLOCKXSIZE=128, BLOCKYSIZE=128)),
          ("bands", dict(COMPRESS="DEFLATE", ZLEVEL=1, TILED="YES", BLOCKXSIZE=256, BLOCKYSIZE=256)),
          ("flushed", dict(COMPRESS="LZW", TILED="YES", INTERLEAVE="BAND"))]  # fmt: skip
MOST = 60  # calls of one sweep; of more than that the first, the last and some between


def calls_to_fail(rng, n):
    if n <= MOST:
        return list(range(1, n + 1))
    ends = MOST // 3
    return list(range(1, ends + 1)) + sorted(rng.sample(range(ends + 1, n - ends), ends)) + list(range(n - ends, n + 1))


def must_be_told(log, n):
    """Whether bytes of the target hang on the n-th call: on a close only if something was written before it."""
    call, place = log[n - 1] if n <= len(log) else ("?", "?")
    if call != "close":
        return place == "target" and call in ("write", "flush", "sync")
    before = [c for c, p in log[: n - 1] if p == "target"]
    since = before[len(before) - before[::-1].index("close") :] if "close" in before else before
    return place == "target" and "write" in since


def sweep(worker, way, name, fault, total, beside=()):
    """Every call on the target and on the files beside it (what does not fit the budget is put there), for every n.
    `beside`: what may stay there. -> how the whole of it went."""
    error, sticky = fault
    whole = worker.run(way=way)
    assert whole["code"] == 0 and whole["right"] and whole["calls"] > 3, whole
    log = whole["log"]
    for n in calls_to_fail(harness.rng("sweep", way, error), whole["calls"]):
        after = worker.run(way=way, fail=n, error=error, sticky=sticky)
        call, place = log[n - 1] if n <= len(log) else ("?", "?")
        where = "%s, call %d of %d (%s of %s): %s" % (name, n, whole["calls"], call, place, after)
        # libtiff 4.5 crashes where the places of tiles in a .msk file cannot be read back, whoever has it written.
        by_libtiff = (call, place) == ("seek", "other") and after["code"] == -signal.SIGSEGV
        assert after["code"] in (0, 1) or by_libtiff, "crash or hang: " + where
        assert not after["opens"] or after["right"], "wrong pixels: " + where
        if after["code"] == 0:
            assert after["opens"] and after["right"], "called a success: " + where
            assert after["faults"] == 0 or not must_be_told(log, n), "not told: " + where
        elif way == "copy" and not after["done"] and not by_libtiff:
            assert after["left"] == [], "left behind: " + where
        assert [f for f in after["left"] if f != "out.tif" and f not in beside] == [], "file left: " + where
        total("calls failed on purpose", 1)
        total("of them reported", after["code"] == 1)
    return whole


FAULTS = pytest.mark.parametrize(
    "fault", [(sinkfault.ENOSPC, 1), (sinkfault.EIO, 0)], ids=["ENOSPC from then on", "EIO once"])


@FAULTS
@pytest.mark.parametrize("way,options", SWEEPS, ids=["copy-LZW", "copy-NONE", "rows", "bands", "flushed"])
def test_the_nth_call_fails(way, options, fault, library, source, tmp_path, total):
    written.ours_only()
    options = written.option_list(dict(options, BATCH_MB=1, COPY_TILES="NO", PHOTOMETRIC="MINISBLACK"))
    with sinkfault.Worker(library, tmp_path / "out", source, written.DRIVER, options) as worker:
        whole = sweep(worker, way, way, fault, total)
        if way == "bands":
            assert ["write", "other"] in whole["log"], "nothing was put beside: the budget was not met"


@FAULTS
@pytest.mark.parametrize("name", sorted(sinkfault.COPIES))
def test_the_nth_call_of_a_copy_of_tiles_fails(name, fault, library, tmp_path, total):
    """Nothing of what was made beside the target stays where the copy fails."""
    written.ours_only()
    masked, options, config = sinkfault.COPIES[name]
    path = sinkfault.copy_source(tmp_path, masked)
    options = written.option_list(options)
    beside = ["out.tif.msk", "out.tfw"] if name == "mask beside" else []
    with sinkfault.Worker(library, tmp_path / "out", path, written.DRIVER, options, config) as worker:
        sinkfault.check_way(name, sweep(worker, "copy", name, fault, total, beside))


@pytest.mark.parametrize("tool", ["gdal_translate", "gdalwarp"])
def test_exit_codes_when_a_call_fails(tool, library, source, tmp_path, total):
    """The programs themselves: a non-zero exit wherever the target could not be written. gdalwarp looks at errors for
    the last time at its own flush, gdal_translate at what CreateCopy returns: later ones may cost nothing."""
    written.ours_only()
    target = tmp_path / "out" / "o.tif"
    target.parent.mkdir()
    command = [tool, "-q", "-of", written.DRIVER, "-co", "COMPRESS=LZW", "-co", "BATCH_MB=1", "-co", "COPY_TILES=NO"]
    if tool == "gdalwarp":
        command += ["-to", "SRC_METHOD=NO_GEOTRANSFORM", "-to", "DST_METHOD=NO_GEOTRANSFORM"]
    log = tmp_path / "log"
    env = sinkfault.env(library, target, LOG=log, ONLY=sinkfault.TARGET)
    written.succeeded(written.run(*command, source, target, env=env))
    want = written.read_gtiff(target)
    calls = [line.split()[1] for line in log.read_text().splitlines()]
    picked = sorted({1, 2, 3, len(calls) // 2, *range(len(calls) - 6, len(calls) + 1)})
    for n in (n for n in picked if 0 < n <= len(calls)):
        target.unlink(missing_ok=True)
        env = sinkfault.env(library, target, FAIL=n, ERRNO=sinkfault.ENOSPC, STICKY=1, ONLY=sinkfault.TARGET)
        done = written.run(*command, source, target, env=env)
        where = "%s, call %d of %d (%s): exit %d %s" % (tool, n, len(calls), calls[n - 1], done.returncode, done.stderr)
        if done.returncode == 0:
            assert tool == "gdalwarp" or n > calls.index("close") + 1, where
            assert target.exists(), "lost, and exit 0: " + where
            harness.same_bytes(written.read_gtiff(target), want, "lost, and exit 0: " + where)
        else:
            assert done.returncode > 0 and "ERROR" in done.stderr, where
            assert not target.exists() or written.read_gtiff(target) in (None, want), where
            assert tool == "gdalwarp" or not target.exists(), where
        total("programs failed on purpose", 1)
