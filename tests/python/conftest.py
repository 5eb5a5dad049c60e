"""Fixtures and the run's totals. Seeds and counts are shown whether the run passes or not."""

import os
import random

import pytest

# Fixed before xdist starts its workers, so that all of them draw from one seed.
os.environ.setdefault("GPUGTIFF_SEED", str(random.SystemRandom().randrange(1 << 30)))

import harness  # noqa: E402  (reads the seed and finds the plugin before osgeo is imported)

TOTALS = {}


def pytest_configure(config):
    harness.require_driver()


def pytest_report_header(config):
    return [
        "driver under test: %s (GDAL_DRIVER_PATH=%s)" % (harness.DRIVER, os.environ["GDAL_DRIVER_PATH"]),
        "GPUGTIFF_SEED=%s GPUGTIFF_CASES=%s" % (harness.SEED, os.environ.get("GPUGTIFF_CASES", "default")),
    ]


def pytest_runtest_logreport(report):
    """Adds up what tests recorded with record_property('total:NAME', n); works under xdist too."""
    if report.when != "call":
        return
    for name, value in report.user_properties:
        if name.startswith("total:"):
            TOTALS[name[6:]] = TOTALS.get(name[6:], 0) + value


def pytest_terminal_summary(terminalreporter):
    if TOTALS:
        terminalreporter.section("totals (seed %s)" % harness.SEED)
        for name in sorted(TOTALS):
            terminalreporter.write_line("%-40s %d" % (name, TOTALS[name]))


@pytest.fixture
def total(record_property):
    """total(name, n): adds n to the figure of that name in the run's summary."""

    def add(name, n):
        record_property("total:" + name, n)

    return add


@pytest.fixture(autouse=True)
def no_leftover_config():
    """A test may set config options freely: they are gone afterwards, in any order of tests."""
    with harness.restored_config():
        yield
