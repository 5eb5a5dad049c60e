"""Where things are: the repository, the tests' modules, and what fuzzing leaves behind."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
TESTS = os.path.join(REPO, "tests", "python")
REGRESSIONS = os.path.join(REPO, "fuzz", "regressions", "differential")
# Findings, seeds and what else a run makes: not in the repository.
WORK = os.path.join(REPO, "target", "fuzz")
SEEDS = os.path.join(WORK, "seeds")
FINDINGS = os.path.join(WORK, "findings")
# Files of others, used where they are present.
CORPUS = os.path.join(REPO, "..", "shared", "corpus")
SHARED_FINDINGS = os.path.join(REPO, "..", "shared", "findings")

sys.path.insert(0, TESTS)
