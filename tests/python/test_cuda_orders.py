"""The CUDA engine where the device does things in another order than one would think: independent
streams newest first or at random, warps that split. Several batches are on their way at once, VERIFY
is off, and the device does every tile: a buffer that is reused too early shows in the pixels."""

import emulated
import harness
import pytest
import test_cuda

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


ORDERS = [
    {"ORDER": "contrary"},
    {"ORDER": "mixed"},
    {"SCHEDULE": "adversarial"},
    {"ORDER": "contrary", "SCHEDULE": "adversarial"},
    {"ORDER": "mixed", "SCHEDULE": "adversarial"},
]
SEEDS = 2
# Of pixels. A batch is at most half of BATCH_MB, so that there are more of them than lanes.
PIXEL_BYTES = {"converged": 6_000_000, "adversarial": 3_000_000}
MOST_BATCH_MB = {"converged": 2, "adversarial": 1}


def case(order, seed, direction, tmp_path):
    """A random file and what it is made of; -> (rng, path, creation options, settings)."""
    rng = harness.rng("cuda orders", direction, sorted(order.items()), seed)
    codec, predictor, dtype, bands, interleave, endian, tile = kind = rng.choice(test_cuda.KINDS)
    how = test_cuda.options(codec, predictor, tile and rng.choice([48, 64, 80]), interleave, endian)
    pixels = PIXEL_BYTES[order.get("SCHEDULE", "converged")] // (int(dtype[1]) * bands)
    width = rng.randint(500, 1500)
    size = width, pixels // width
    path = test_cuda.make(tmp_path / "in.tif", dtype, bands, size, how, seed=rng.randrange(1 << 30))
    settings = dict(order, SEED=rng.randrange(1 << 30), GPUGTIFF_VERIFY="NO")
    print("seed %d, case %d: %s, %s, %s, %s" % (harness.SEED, seed, direction, kind, size, settings))
    return rng, path, how, settings


def batch_mb(order, rng):
    return rng.randint(1, MOST_BATCH_MB[order.get("SCHEDULE", "converged")])


def on_the_device(done, tiles, batches=4):
    """All of it, in more batches than there are lanes."""
    emulated.alone(done)
    assert done.counter("CUDA_" + tiles) == done.counter(tiles) > 0, done
    assert done.counter("CUDA_TILES_LEFT_TO_CPU") == 0 and done.counter("TILES_GTIFF") == 0, done
    assert done.counter("CUDA_BATCHES") >= batches, done
    assert not done.report["faults"] and not done.report["errors"], (done.report["faults"], done.report["errors"])


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("order", ORDERS, ids=lambda o: "-".join(o.values()))
def test_reading(order, seed, tmp_path, total):
    rng, path, _, settings = case(order, seed, "reading", tmp_path)
    batches = ["BATCH_MB=%d" % batch_mb(order, rng), "DEVICE_MB=%d" % rng.randint(3, 8)]
    done = emulated.work({"do": "read", "path": path, "options": batches}, tmp_path, **settings)
    on_the_device(done, "TILES_DECODED")
    total("CUDA tiles in a contrary order", done.counter("CUDA_TILES_DECODED"))
    work = {"do": "windows", "path": path, "options": batches, "seed": rng.randrange(1 << 30), "count": 3}
    on_the_device(emulated.work(work, tmp_path, **settings), "TILES_DECODED", batches=1)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("order", ORDERS, ids=lambda o: "-".join(o.values()))
def test_writing(order, seed, tmp_path, total):
    rng, path, how, settings = case(order, seed, "writing", tmp_path)
    batches = ["BATCH_MB=%d" % batch_mb(order, rng), "DEVICE_MB=%d" % rng.randint(4, 12), "COPY_TILES=NO"]
    work = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "options": how + batches}
    done = emulated.work(work, tmp_path, **settings)
    on_the_device(done, "TILES_ENCODED")
    total("CUDA tiles in a contrary order", done.counter("CUDA_TILES_ENCODED"))
