"""The CUDA engine on the emulated driver: processes of their own that find it in the place of libcuda
and nvCOMP, and the report that the emulator writes of everything that happened."""

import json
import os
import subprocess
import sys

import harness
import pytest

WORKER = os.path.join(harness.HERE, "emulated_worker.py")
DIRECTORY = os.environ.get("GPUGTIFF_EMULATED_DIR", os.path.join(harness.REPO, "target", "emulated-cuda"))


def require():
    if harness.SELF_TEST:
        pytest.skip("GTiff has no CUDA engine")
    if not os.path.exists(os.path.join(DIRECTORY, "libcuda.so.1")):
        pytest.fail("the emulated driver is not in %s: run the tests with `make test`" % DIRECTORY)


def environment(report=None, engine="CUDA", **settings):
    """Settings in capitals without EMUCUDA_ are the emulator's; others go as they are."""
    env = dict(os.environ, LD_LIBRARY_PATH=DIRECTORY)
    env.pop("CUDA_VISIBLE_DEVICES", None)
    if engine:
        env["GPUGTIFF_ENGINE"] = engine
    if report:
        env["EMUCUDA_REPORT"] = str(report)
    for name, value in settings.items():
        known = name.startswith(("GPUGTIFF_", "CUDA_", "GDAL_", "CPL_", "LD_", "NVTX_", "HOME"))
        env[name if known else "EMUCUDA_" + name] = str(value)
    return env


class Outcome:
    """What a worker said: its answer, its messages, the emulator's report."""

    def __init__(self, done, report):
        self.status, self.stderr = done.returncode, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        self.answer = json.loads(lines[-1]) if lines else {}
        self.report = None
        if report and os.path.exists(report):
            with open(report) as file:
                self.report = json.load(file)

    def counter(self, name):
        return int(self.answer["counters"][name])

    def __repr__(self):
        return "status %s\n%s\n%s" % (self.status, self.answer, self.stderr[-2000:])


def work(order, tmp_path=None, timeout=300, worker=WORKER, **settings):
    """Runs a worker on an order (a dict); see emulated_worker.py and device_worker.py."""
    require()
    report = str(tmp_path / "report.json") if tmp_path is not None else None
    if report and os.path.exists(report):
        os.unlink(report)
    done = subprocess.run(
        [sys.executable, worker, json.dumps(order)], env=environment(report, **settings),
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    return Outcome(done, report)


def right(outcome):
    assert outcome.status == 0 and outcome.answer.get("same"), outcome
    return outcome


def alone(outcome):
    """The device did it all."""
    right(outcome)
    for name in ("REDONE", "LEFT_TO_CPU", "BUSY"):
        assert outcome.counter("CUDA_TILES_" + name) == 0, (name, outcome)
    for name in ("CUDA_FAULTS", "CUDA_MISMATCHES"):
        assert outcome.counter(name) == 0, (name, outcome)
    return outcome


# ---- the report ----------------------------------------------------------------------------


def operations(report, kind):
    return [op for op in report["timeline"] if op["kind"] == kind]


def ancestors(report, operation):
    """Everything that must have happened before the operation may run: through streams and events,
    and through the host, which submitted it after it had waited for something."""
    by_id = {op["id"]: op for op in report["timeline"]}
    syncs = {sync["id"]: sync for sync in report["syncs"]}
    seen, seen_syncs = set(), set()
    todo = [operation["id"]]
    while todo:
        op = by_id.get(todo.pop())
        if op is None:
            continue
        sync = syncs.get(op["after_sync"]) if op["after_sync"] is not None else None
        while sync is not None and sync["id"] not in seen_syncs:
            seen_syncs.add(sync["id"])
            todo.extend(t for t in sync["targets"] if t not in seen)
            seen.update(sync["targets"])
            sync = syncs.get(sync["after_sync"]) if sync["after_sync"] is not None else None
        for dependency in op["dependencies"]:
            if dependency not in seen:
                seen.add(dependency)
                todo.append(dependency)
    return seen
