"""README.md tells the figures that `make bench` wrote last."""

import os
import sys

import harness

sys.path.insert(0, os.path.join(harness.REPO, "benches"))

import readme  # noqa: E402


def test_figures_are_of_the_last_benchmark():
    with open(os.path.join(harness.REPO, "README.md")) as f:
        text = f.read()
    assert readme.filled_in(text, readme.load()) == text
