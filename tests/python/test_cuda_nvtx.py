"""Ranges for NVIDIA's profilers: a libnvToolsExt of our own (nvtx.c) notes them."""

import collections
import os
import subprocess

import emulated
import harness
import pytest
import test_cuda

pytestmark = pytest.mark.usefixtures("emulator")
SOURCE = os.path.join(harness.HERE, "nvtx.c")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """-> the directory that it is in."""
    folder = tmp_path_factory.mktemp("nvtx")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / "libnvToolsExt.so.1"), SOURCE], check=True)
    return str(folder)


def ranges(order, library, tmp_path):
    """Runs a worker -> its outcome, how often each range was; each has ended, in its thread and inside of those that
    began before."""
    log = tmp_path / "ranges"
    log.unlink(missing_ok=True)
    done = emulated.work(
        order, tmp_path, LD_LIBRARY_PATH=library + ":" + emulated.DIRECTORY, NVTX_LOG=log, GPUGTIFF_VERIFY="NO"
    )
    seen, threads = collections.Counter(), collections.defaultdict(list)
    for line in log.read_text().splitlines():
        thread, mark, name = line.split(" ", 2)
        if mark == "+":
            seen[name] += 1
            threads[thread].append(name)
        else:
            assert threads[thread], "%s ended a range that it had not begun" % thread
            threads[thread].pop()
    assert not any(threads.values()), threads
    return emulated.right(done), seen


@pytest.mark.parametrize(
    "do, names", [("read", ("read", "wait", "deliver")), ("write", ("fetch", "pack"))], ids=["read", "write"])  # fmt: skip
def test_each_step_of_a_batch_is_a_range(do, names, library, tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", size=(1000, 900), options=test_cuda.options("DEFLATE", 2, 64))
    # Known tiles go through the device when CUDA starts.
    _, started = ranges({"do": "open", "path": path}, library, tmp_path)
    how = ["DEVICE_MB=2"] + ([] if do == "read" else ["COPY_TILES=NO", "BLOCKXSIZE=64", "BLOCKYSIZE=64"])
    order = {"do": do, "path": path, "target": str(tmp_path / "out.tif"), "options": how}
    done, seen = ranges(order, library, tmp_path)
    emulated.alone(done)
    batches = done.counter("CUDA_BATCHES")
    assert batches > 3
    assert seen - started == {"GPUGTiff " + name: batches for name in names}
