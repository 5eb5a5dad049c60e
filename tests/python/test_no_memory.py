"""Out of memory is an error that the caller gets: reading, writing, recoding and the C API under limits on the address
space, several processes at once. None hangs, none ends by a signal, and what claims success has the right pixels.

GPUGTIFF_MEMORY_RUNS sets how many (`make test-memory`: 280)."""

import collections
import json
import os
import subprocess
import sys

import harness
import written

RUNS = int(os.environ.get("GPUGTIFF_MEMORY_RUNS") or 42)
KINDS = ["read", "rows", "create", "copy", "recode", "capi_read", "capi_write"]
CODECS = ["DEFLATE", "ZSTD", "LZW", "PACKBITS", "NONE"]
ABREAST, SECONDS = 3, 60
# Bytes beyond what the process has, as powers of two: from next to nothing to nearly enough.
LEAST, MOST = 16, 27.3


def run(folder, driver, cases):
    """-> [case, how it ended, errors, the end of standard error] for each."""
    worker = os.path.join(harness.HERE, "memory_worker.py")
    done = subprocess.run([sys.executable, worker, str(folder), driver, str(ABREAST), str(SECONDS)],
                          input=json.dumps(cases), capture_output=True, text=True,
                          timeout=120 + len(cases) * SECONDS)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def draw(what, kinds):
    rng = harness.rng("no memory", what)
    room = lambda: int(2 ** rng.uniform(LEAST, MOST))  # noqa: E731
    return [[kinds[i % len(kinds)], rng.choice(CODECS), rng.randrange(1000), room()] for i in range(RUNS)]


def test_no_memory(tmp_path, total):
    written.ours_only()
    cases = draw("ours", KINDS)
    ended = run(tmp_path, harness.DRIVER, cases)
    assert len(ended) == len(cases)
    figures = collections.Counter((case[0], end) for case, end, _, _ in ended)
    print("seed %d" % harness.SEED, sorted(figures.items()))
    for (_, end), n in figures.items():
        total("short of memory: " + end, n)
    bad = [e for e in ended if e[1] not in ("right", "error")]
    assert not bad, "\n".join(map(str, bad))
    # The limits mean something: not all is refused, and not all goes well.
    assert {end for _, end in figures} == {"right", "error"}, figures


def test_enough_memory(tmp_path):
    """The same work without a limit that matters: the cases themselves are sound."""
    written.ours_only()
    cases = [[kind, CODECS[i % len(CODECS)], i, 1 << 40] for i, kind in enumerate(KINDS)]
    assert [end for _, end, _, _ in run(tmp_path, harness.DRIVER, cases)] == ["right"] * len(cases)
