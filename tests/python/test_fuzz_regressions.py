"""What the differential fuzzer found: files and sequences that were read or written otherwise than by
GTiff. fuzz/regressions/open.txt lists those that still are, with the reason."""

import os
import sys

import harness
import pytest

sys.path.insert(0, os.path.join(harness.REPO, "fuzz", "differential"))

import fuzz  # noqa: E402
import judge as judges  # noqa: E402
import paths  # noqa: E402

OPEN = os.path.join(harness.REPO, "fuzz", "regressions", "open.txt")


def known_open():
    """{name: reason} of what is not mended yet."""
    with open(OPEN) as f:
        lines = [line.split(None, 1) for line in f if line.strip() and not line.startswith("#")]
    return {name: reason.strip() for name, reason in lines}


def regressions():
    found = sorted(os.listdir(paths.REGRESSIONS)) if os.path.isdir(paths.REGRESSIONS) else []
    reasons = known_open()
    for name in found:
        mark = pytest.mark.xfail(reason=reasons[name], strict=False) if name in reasons else ()
        yield pytest.param(name, marks=mark)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    j = judges.Judge(str(tmp_path_factory.mktemp("fuzz")))
    yield j
    j.stop()


@pytest.mark.parametrize("name", regressions())
def test_regression(judge, name):
    with open(os.path.join(paths.REGRESSIONS, name), "rb") as f:
        data = f.read()
    verdict = fuzz.replay(judge, name, data)
    assert verdict is None, "%s: %s" % verdict


def test_open_findings_exist():
    missing = set(known_open()) - set(os.listdir(paths.REGRESSIONS) if os.path.isdir(paths.REGRESSIONS) else [])
    assert not missing, missing
