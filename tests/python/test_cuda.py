"""The CUDA engine on the emulated driver, seen from GDAL: pixels both ways, what is asked of the device,
and what happens where there is none."""

import itertools
import os
import subprocess

import emulated
import harness
import numpy as np
import pytest
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


TYPES = {"u1": gdal.GDT_Byte, "u2": gdal.GDT_UInt16, "i4": gdal.GDT_Int32, "f4": gdal.GDT_Float32, "f8": gdal.GDT_Float64}


def pixels(dtype, bands, height, width, seed=5):
    """Slopes and noise; what is noise in the last bits does not compress, the rest does."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (b + 2) + y * 3) // 5 + rng.integers(0, 9, (height, width)) for b in range(bands)]
    data = np.array(planes)
    return (data % 251 if dtype == "u1" else data * 1.37 if dtype[0] == "f" else data).astype(dtype)


def make(path, dtype="u2", bands=1, size=(300, 217), options=(), seed=5):
    width, height = size
    data = pixels(dtype, bands, height, width, seed)
    ds = gdal.GetDriverByName("GTiff").Create(str(path), width, height, bands, TYPES[dtype], list(options))
    ds.WriteRaster(0, 0, width, height, data.tobytes())
    del ds
    return str(path)


def options(codec, predictor, tile, interleave="PIXEL", endian="LITTLE"):
    made = ["COMPRESS=" + codec, "INTERLEAVE=" + interleave, "ENDIANNESS=" + endian]
    if predictor > 1:
        made.append("PREDICTOR=%d" % predictor)
    if tile:
        return made + ["TILED=YES", "BLOCKXSIZE=%d" % tile, "BLOCKYSIZE=%d" % tile]
    return made + ["TILED=NO", "BLOCKYSIZE=7"]


KINDS = [
    (codec, predictor, dtype, bands, interleave, endian, tile)
    for codec, predictor, dtype in itertools.product(("NONE", "DEFLATE", "ZSTD"), (1, 2, 3), TYPES)
    if not (codec == "NONE" and predictor > 1) and (predictor < 3 or dtype[0] == "f")
    for bands, interleave, endian, tile in [(1, "PIXEL", "LITTLE", 64), (3, "PIXEL", "BIG", 48), (2, "BAND", "LITTLE", 0)]
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k)))
def test_every_kind_both_ways_on_the_device_alone(kind, tmp_path, total):
    """VERIFY=NO, so that the CPU cannot hide a fault of the device."""
    codec, predictor, dtype, bands, interleave, endian, tile = kind
    how = options(codec, predictor, tile, interleave, endian)
    path = make(tmp_path / "in.tif", dtype, bands, options=how)
    done = emulated.work({"do": "read", "path": path}, tmp_path, GPUGTIFF_VERIFY="NO")
    emulated.alone(done)
    assert done.counter("CUDA_TILES_DECODED") == done.counter("TILES_DECODED") > 0, done
    assert done.counter("TILES_GTIFF") == 0 and not done.report["faults"], done
    if codec != "NONE":
        assert done.report["nvcomp"][codec.lower()]["decompressed"] >= done.counter("TILES_DECODED")
    order = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "options": how + ["COPY_TILES=NO"]}
    done = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO"))
    assert done.counter("CUDA_TILES_ENCODED") == done.counter("TILES_ENCODED") > 0, done
    assert not done.report["faults"], done
    total("CUDA tiles both ways", done.counter("CUDA_TILES_ENCODED"))


@pytest.mark.parametrize("seed", range(3))
def test_random_windows_under_adversarial_schedules(seed, tmp_path):
    rng = harness.rng("cuda windows", seed)
    kind = rng.choice([k for k in KINDS if k[0] != "NONE"])
    codec, predictor, dtype, bands, interleave, endian, tile = kind
    how = options(codec, predictor, tile and 32, interleave, endian)
    path = make(tmp_path / "in.tif", dtype, bands, size=(101, 67), options=how)
    order = {"do": "windows", "path": path, "seed": rng.randrange(1 << 30), "count": 12}
    done = emulated.work(order, tmp_path, SCHEDULE="adversarial", RACES=1, SEED=rng.randrange(1 << 30), GPUGTIFF_VERIFY="NO")
    emulated.alone(done)
    assert done.counter("CUDA_TILES_DECODED") > 0 and not done.report["faults"], (kind, done)


def test_gdal_translate_both_ways(tmp_path):
    path = make(tmp_path / "in.tif", "f4", options=options("ZSTD", 3, 64))
    env = emulated.environment(tmp_path / "report.json")
    target = str(tmp_path / "out.tif")
    command = ["gdal_translate", "-q", "-if", "GPUGTiff", "-of", "GPUGTiff", "-co", "PREDICTOR=3", path, target]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done
    harness.same_pixels(gdal.Open(path), gdal.Open(target))


# ---- structure: from the emulator's report, not from our counters --------------------------------


@pytest.fixture(scope="module")
def structure(tmp_path_factory):
    """Five batches of 1024 tiles of 16 KiB, after CUDA was started by another file."""
    where = tmp_path_factory.mktemp("structure")
    small = make(where / "small.tif", "u1", size=(64, 64), options=options("DEFLATE", 2, 32))
    how = options("DEFLATE", 2, 128)
    path = make(where / "in.tif", "u1", size=(4096, 128 * 160), options=how)
    order = {"do": "read", "path": path, "reset": small, "report": True}
    done = emulated.work(order, where, GPUGTIFF_VERIFY="NO")
    emulated.alone(done)
    assert done.counter("CUDA_TILES_DECODED") == 32 * 160
    return path, done, where, small


def test_structure_of_decoding(structure):
    path, done, _, _ = structure
    report, batches = done.report, 5
    up, down = emulated.operations(report, "H2D"), emulated.operations(report, "D2H")
    calls, kernels = emulated.operations(report, "nvcomp"), emulated.operations(report, "kernel")
    assert [len(ops) for ops in (up, calls, down)] == [batches] * 3
    assert len(kernels) <= 3 * batches
    waits = [sync for sync in report["syncs"] if sync["explicit"]]
    third = up[2]["call"]
    assert len(waits) == batches and _explicit_from(report, third), report["syncs"]
    assert not [a for a in report["allocations"] if a["call"] > third], report["allocations"]
    tables = 4 * 8 + 64 + 4
    most = os.path.getsize(path) + 32 * 160 * (16 + tables) + batches * 512
    assert sum(op["bytes"] for op in up) <= most
    assert sum(op["bytes"] for op in down) <= 4096 * 128 * 160 + 32 * 160 * 16 + batches * 256
    for n in range(1, batches - 1):
        before_upload = emulated.ancestors(report, up[n + 1])
        assert down[n - 1]["id"] not in before_upload, n
        assert up[n + 1]["id"] not in emulated.ancestors(report, calls[n]), n


def test_kernels_are_parallel_and_coalesced(structure):
    _, done, _, _ = structure
    for name, kernel in done.report["kernels"].items():
        mean = kernel["instructions"] / kernel["threads"]
        assert kernel["longest_thread"] <= 64 * mean, name
        ideal = (kernel["bytes_loaded"] + kernel["bytes_stored"]) / 32
        if name in ("undo", "apply"):
            pixels = done.report["nvcomp"]["deflate"]["decompressed_bytes"]
            sectors = kernel["sectors_loaded"] + kernel["sectors_stored"]
            assert sectors <= 1.5 * max(ideal, 2 * pixels / 32), (name, sectors, ideal)


@pytest.mark.parametrize(
    "how, settings, together",
    [(["BATCH_MB=768", "DEVICE_MB=4096"], {"MEMORY_MB": 800}, 5), (["BATCH_MB=192"], {}, 2)],
    ids=["one batch of the writer's", "three of them"])  # fmt: skip
def test_structure_of_encoding(structure, how, settings, together):
    """`together`: batches of the device's in one of the writer's. By default that is two; where device memory is short,
    a quarter of the tiles goes at a time."""
    path, _, where, small = structure
    how, target = options("DEFLATE", 2, 128) + ["COPY_TILES=NO"] + how, str(where / "out.tif")
    order = {"do": "write", "path": path, "target": target, "options": how, "reset": small, "report": True}
    done = emulated.alone(emulated.work(order, where, GPUGTIFF_VERIFY="NO", **settings))
    assert done.counter("CUDA_TILES_ENCODED") == 32 * 160
    report = done.report
    batches, third = _encoded(report), emulated.operations(report, "H2D")[2]["call"]
    assert len(batches) == 5
    tiles, tables = 1024, 4 * 8 + 64 + 4
    for batch in batches:
        assert {what: len(found) for what, found in batch.items()} == {
            "up": 1, "nvcomp": 1, "kernel": 4, "report": 1, "packed": 1, "waits": 2}  # fmt: skip
        assert [op["name"] for op in batch["kernel"]] == ["apply", "adler32", "measure", "gather"]
        assert 0 <= batch["up"][0]["bytes"] - tiles * 128 * 128 <= tiles * tables + 512
        assert batch["report"][0]["bytes"] == tiles * 16
    # What comes down besides is what is in the file, to the byte.
    ds = gdal.Open(target)
    sizes = [int(ds.GetRasterBand(1).GetMetadataItem("BLOCK_SIZE_%d_%d" % (x, y), "TIFF")) for y in range(160) for x in range(32)]
    packed = [sum(sizes[n : n + tiles]) for n in range(0, len(sizes), tiles)]
    assert sorted(batch["packed"][0]["bytes"] for batch in batches) == sorted(packed)
    # Nothing else is copied or waited for, and nothing allocated from the third batch on.
    assert len(emulated.operations(report, "H2D")) == 5 and len(emulated.operations(report, "D2H")) == 10
    assert len([sync for sync in report["syncs"] if sync["explicit"]]) == 10 and _explicit_from(report, third)
    assert not [a for a in report["allocations"] if a["call"] > third], report["allocations"]
    # Packed bytes come down as soon as they are known: they do not wait for later batches.
    for batch, later in zip(batches, batches[2:]):
        assert later["nvcomp"][0]["id"] not in emulated.ancestors(report, batch["packed"][0])
    # The first wait for a batch comes when the next one was submitted. Only where a batch of the writer's ends that is
    # not sure: whether the rows of the next one are there by then is not the device's business.
    early = 0
    for thread in {batch["up"][0]["thread"] for batch in batches}:
        own = [batch for batch in batches if batch["up"][0]["thread"] == thread]
        for n, (batch, following) in enumerate(zip(own, own[1:])):
            if n % together != together - 1:
                assert following["report"][0]["call"] < batch["waits"][0]["call"], (thread, n)
                early += 1
    assert early == {5: 4, 2: 2}[together]


def _encoded(report):
    """Batches in the order of their submission, with what each had done, copied and waited for."""
    by_id, compute = {op["id"]: op for op in report["timeline"]}, emulated.operations(report, "nvcomp")[0]["stream"]
    batches, latest, landing, of_copy = [], {}, {}, {}
    syncs = [sync for sync in report["syncs"] if sync["explicit"]]
    for event in sorted(report["timeline"] + syncs, key=lambda event: event["call"]):
        thread, kind = event["thread"], event.get("kind")
        if kind == "H2D":
            latest[thread] = {"up": [event], "nvcomp": [], "kernel": [], "report": [], "packed": [], "waits": []}
            batches.append(latest[thread])
        elif kind in ("nvcomp", "kernel"):
            latest[thread][kind].append(event)
        elif kind == "D2H":
            # What became of the tiles comes in the stream that computes; the rest is asked for by who has waited for it.
            what, batch = ("report", latest[thread]) if event["stream"] == compute else ("packed", landing[thread])
            batch[what].append(event)
            of_copy[event["id"]] = batch
        elif kind is None:
            # An event, behind the copy.
            copies = {before for target in event["targets"] for before in by_id[target]["dependencies"]} & set(of_copy)
            assert len(copies) == 1, event
            landing[thread] = of_copy[copies.pop()]
            landing[thread]["waits"].append(event)
    return batches


def _explicit_from(report, call):
    """Memory that grows is freed first, which waits; in steady state nothing waits unasked."""
    return all(sync["explicit"] for sync in report["syncs"] if sync["call"] > call)


# ---- memory --------------------------------------------------------------------------------------


def test_one_peak_for_many_datasets(tmp_path):
    path = make(tmp_path / "in.tif", "u1", size=(64, 64), options=options("DEFLATE", 2, 32))
    peaks = []
    for count in (1, 500):
        done = emulated.alone(emulated.work({"do": "many", "path": path, "count": count}, tmp_path))
        peaks.append(done.report["peak_device_bytes"])
    assert peaks[0] == peaks[1]


def test_device_mb_bounds_the_device(tmp_path):
    path = make(tmp_path / "in.tif", "f4", size=(1024, 1024), options=options("ZSTD", 1, 128))
    for megabytes in (2, 4, 16):
        how = ["COMPRESS=DEFLATE", "BLOCKXSIZE=128", "BLOCKYSIZE=128", "DEVICE_MB=%d" % megabytes]
        order = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "options": how}
        done = emulated.alone(emulated.work(order, tmp_path))
        assert done.report["peak_device_bytes"][0] <= megabytes << 20, megabytes
        assert done.counter("CUDA_TILES_ENCODED") == 64


def test_too_little_for_one_tile_is_done_on_the_cpu(tmp_path):
    path = make(tmp_path / "in.tif", "f8", size=(1024, 1024), options=options("DEFLATE", 1, 1024))
    done = emulated.right(emulated.work({"do": "read", "path": path, "options": ["DEVICE_MB=1"]}, tmp_path))
    assert done.counter("CUDA_TILES_LEFT_TO_CPU") == 1 and done.counter("CUDA_TILES_DECODED") == 0
    assert any("not one tile fits" in text for _, _, text in done.answer["messages"])


def test_little_free_memory_means_smaller_batches(tmp_path):
    path = make(tmp_path / "in.tif", "f4", size=(2048, 2048), options=options("DEFLATE", 1, 256))
    done = emulated.alone(emulated.work({"do": "read", "path": path}, tmp_path, MEMORY_MB=40))
    assert done.counter("CUDA_BATCHES") > 2
    assert done.report["peak_device_bytes"][0] <= 40 << 20


@pytest.mark.parametrize(
    "codec, predictor, dtype",
    [("DEFLATE", 2, "u2"), ("DEFLATE", 3, "f4"), ("ZSTD", 2, "u2"), ("ZSTD", 3, "f4"), ("NONE", 1, "u2")])  # fmt: skip
def test_the_same_bytes_whatever_the_batches(codec, predictor, dtype, tmp_path):
    # Edge tiles on two sides, and not a whole number of batches.
    path = make(tmp_path / "in.tif", dtype, size=(700, 500), options=options("DEFLATE", predictor, 64))
    shas, batches = set(), []
    for device_mb, batch_mb in [(None, 64), (1, 64), (3, 64), (None, 1), (2, 2)]:
        how = options(codec, predictor, 64) + ["BATCH_MB=%d" % batch_mb, "COPY_TILES=NO"]
        how += ["DEVICE_MB=%d" % device_mb] if device_mb else []
        order = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "options": how}
        done = emulated.alone(emulated.work(order, tmp_path))
        assert done.counter("CUDA_TILES_ENCODED") == 11 * 8
        shas.add(done.answer["sha"])
        batches.append(done.counter("CUDA_BATCHES"))
    assert len(shas) == 1 and len(set(batches)) > 2, batches


# ---- who may use the device, and what others see of it -------------------------------------------


def test_opening_does_not_start_cuda(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.right(emulated.work({"do": "open", "path": path, "report": True}, tmp_path, engine="AUTO"))
    assert done.report is None or done.report["total_calls"] == 0


def test_auto_leaves_small_rasters_to_the_cpu(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.right(emulated.work({"do": "read", "path": path, "report": True}, tmp_path, engine="AUTO"))
    assert done.answer["counters"]["ENGINE"] == "CPU" and not done.answer["messages"]
    assert "less than 256 MB" in done.answer["counters"]["ENGINE_REASON"]
    assert done.report is None or done.report["total_calls"] == 0


def test_the_caller_keeps_its_context(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    order = {"do": "contexts", "path": path, "options": ["DEVICE=1"]}
    done = emulated.alone(emulated.work(order, tmp_path, DEVICES=2))
    assert done.answer["kept"], done
    used = {op["device"] for op in done.report["timeline"]}
    assert used == {1} and done.report["nvcomp"]["calls_without_context"] == 0, used


def test_auto_takes_the_device_with_most_memory(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.alone(emulated.work({"do": "read", "path": path}, tmp_path, DEVICES=3, FREE_MB="500,4000,900"))
    assert {op["device"] for op in done.report["timeline"]} == {1}


def test_threads_share_the_device(tmp_path):
    path = make(tmp_path / "in.tif", options=options("ZSTD", 2, 64))
    done = emulated.right(emulated.work({"do": "threads", "path": path, "count": 6, "rounds": 4}, tmp_path))
    assert done.answer["reads"] == 24 and not done.report["faults"]


def test_a_forked_child_reads_on_without_the_gpu(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.right(emulated.work({"do": "fork", "path": path}, tmp_path))
    child = done.answer["child"]
    assert done.answer["child_status"] == 0 and child["inherited"] and child["auto"] and not child["demanded"], done
    assert any("forked" in text for text in child["messages"]), child


def test_exit_with_datasets_open_is_silent(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.right(emulated.work({"do": "exit", "path": path, "target": str(tmp_path / "out.tif")}, tmp_path))
    assert done.status == 0 and done.stderr == "", done


# ---- where it cannot be had ----------------------------------------------------------------------

REFUSALS = [
    ({"CUINIT": 100}, "there is no NVIDIA GPU"),
    ({"DEVICES": 0}, "there is no NVIDIA GPU"),
    ({"CUDA_VISIBLE_DEVICES": ""}, "there is no NVIDIA GPU"),
    ({"CUINIT": 999}, "does not start"),
    ({"DRIVER": 11080}, "the NVIDIA driver is too old: it knows CUDA 11.8"),
    ({"CAPABILITY": "6.1"}, "is too old: its compute capability is 6.1"),
    ({"NVCOMP": 4200}, "nvCOMP 4.2 was found"),
    ({"NVCOMP_CUDART": 13000}, "nvCOMP was made for CUDA 13"),
    ({"GPUGTIFF_DEVICE": 4}, "there is no device 4"),
    ({"FREE_MB": 5}, "the GPU has no free memory"),
    ({"GPUGTIFF_NVCOMP": "/nowhere/libnvcomp.so.6"}, "/nowhere/libnvcomp.so.6 is not nvCOMP"),
    ({"LD_LIBRARY_PATH": "/nowhere"}, "no NVIDIA driver is installed"),
    ({"COMPUTE_MODE": "prohibited"}, "the GPU is in prohibited mode"),
    ({"COMPUTE_MODE": "exclusive"}, "the GPU is in exclusive mode"),
    ({"COMPUTE_MODE": "busy"}, "it is busy or not available"),
    ({"COMPUTE_MODE": "busy", "NAME": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"}, "its MIG instance NVIDIA A100"),
]


@pytest.mark.parametrize("settings, sentence", REFUSALS, ids=lambda x: str(x)[:40])
def test_each_reason_has_its_sentence(settings, sentence, tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.work({"do": "read", "path": path}, tmp_path, **settings)
    assert not done.answer["same"], done
    assert any("ENGINE=CUDA" in text and sentence in text for _, _, text in done.answer["messages"]), done
    done = emulated.right(emulated.work({"do": "read", "path": path}, tmp_path, engine="AUTO", **settings))
    assert not done.answer["messages"], done


def test_kernels_that_the_driver_does_not_take(tmp_path):
    """A self-check that fails is a reason, not a fault."""
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.work({"do": "read", "path": path, "report": True}, tmp_path)
    loads = done.report["calls"]["cuModuleLoadData"]
    assert loads == 1
    calls = done.report["total_calls"]
    for n in range(1, calls):
        done = emulated.work({"do": "read", "path": path}, tmp_path, FAIL="%d:209" % n)
        if done.report and done.report["injected"] and done.report["injected"][0]["symbol"] == "cuModuleLoadData":
            assert any("does not take our kernels" in text for _, _, text in done.answer["messages"]), done
            return
    pytest.fail("cuModuleLoadData was not reached")


def test_pinning_refused_is_told_once(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    done = emulated.alone(emulated.work({"do": "read", "path": path}, tmp_path, PINNED="refuse"))
    told = [text for _, _, text in done.answer["messages"] if "page-locked" in text]
    assert len(told) == 1, done


def test_zstd_level_is_told_to_have_no_effect(tmp_path):
    path = make(tmp_path / "in.tif", options=options("DEFLATE", 2, 64))
    how = ["COMPRESS=ZSTD", "ZSTD_LEVEL=5"]
    order = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "options": how}
    done = emulated.alone(emulated.work(order, tmp_path))
    assert [text for _, _, text in done.answer["messages"] if "ZSTD_LEVEL has no effect" in text], done


@pytest.mark.parametrize("nvcomp", [6000, 5300, 5000])
def test_both_interfaces_of_nvcomp(nvcomp, tmp_path):
    path = make(tmp_path / "in.tif", options=options("ZSTD", 2, 64))
    done = emulated.alone(emulated.work({"do": "read", "path": path}, tmp_path, NVCOMP=nvcomp))
    assert done.counter("CUDA_TILES_DECODED") > 0


# ---- a device that is wrong -----------------------------------------------------------------------


@pytest.mark.parametrize("verify, wrong", [("ALL", 30), ("FIRST", 100)])
def test_a_device_that_decodes_wrongly(verify, wrong, tmp_path):
    """It says that all is well, and ZSTD has no checksum: the comparison with the CPU notices."""
    path = make(tmp_path / "in.tif", "u2", size=(700, 500), options=options("ZSTD", 2, 32))
    done = emulated.right(emulated.work({"do": "read", "path": path}, tmp_path, WRONG=wrong, GPUGTIFF_VERIFY=verify))
    assert done.counter("CUDA_MISMATCHES") == 1 and done.counter("CUDA_TILES_REDONE") > 0, done
    assert any("gives other results than the CPU" in text for _, _, text in done.answer["messages"]), done


def test_a_checksum_notices_too(tmp_path):
    path = make(tmp_path / "in.tif", "u2", size=(700, 500), options=options("DEFLATE", 2, 32))
    done = emulated.right(emulated.work({"do": "read", "path": path}, tmp_path, WRONG=100, GPUGTIFF_VERIFY="NO"))
    assert done.counter("CUDA_TILES_REDONE") > 0 and done.counter("CUDA_TILES_DECODED") > 0, done
