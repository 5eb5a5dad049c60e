"""GPUDirect Storage on the emulated driver, seen from GDAL: what is read straight to the device, what the
emulator reports of it, and what is said where it cannot be had."""

import os
import subprocess

import emulated
import harness
import pytest
import test_cuda
import test_capi_device
from osgeo import gdal

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


def read(path, tmp_path, do="read", gds="YES", **settings):
    settings.setdefault("GPUGTIFF_VERIFY", "NO")
    return emulated.work({"do": do, "path": path}, tmp_path, GPUGTIFF_GDS=gds, **settings)


def direct(done):
    """Every tile came past the host and was decoded on the device."""
    emulated.alone(done)
    assert done.counter("CUDA_TILES_DECODED") == done.counter("TILES_DECODED") > 0, done
    assert done.counter("CUDA_GDS_READS") == len(done.report["cufile"]["reads"]) > 0, done
    assert done.counter("CUDA_GDS_BYTES") == done.report["cufile"]["bytes"] > 0, done
    assert done.counter("CUDA_GDS_FALLBACKS") == 0 and done.report["cufile"]["unregistered"] == 0, done
    assert not done.report["faults"] and not done.report["errors"], done.report["errors"]
    assert not done.answer["messages"], done
    return done


# codec, predictor, type, bands, interleave, byte order, tile (0: strips)
KINDS = [
    ("NONE", 1, "u2", 3, "PIXEL", "BIG", 0),
    ("DEFLATE", 2, "u1", 3, "PIXEL", "LITTLE", 64),
    ("DEFLATE", 3, "f8", 2, "BAND", "BIG", 48),
    ("ZSTD", 3, "f4", 1, "PIXEL", "LITTLE", 64),
    ("ZSTD", 2, "i4", 2, "PIXEL", "BIG", 0),
    ("LZW", 2, "u2", 1, "PIXEL", "LITTLE", 64),
    ("PACKBITS", 1, "i4", 2, "BAND", "BIG", 64),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind)))
def test_every_kind_on_the_device_alone(kind, tmp_path):
    codec, predictor, dtype, bands, interleave, endian, tile = kind
    how = test_cuda.options(codec, predictor, tile, interleave, endian)
    path = test_cuda.make(tmp_path / "in.tif", dtype, bands, options=how)
    done = direct(read(path, tmp_path, SCHEDULE="adversarial", RACES=1, SEED=harness.SEED, ORDER="contrary"))
    # The file was written from front to back: its tiles are neighbours.
    assert done.counter("CUDA_GDS_TILES_MERGED") == done.counter("CUDA_TILES_DECODED")
    leaks = done.report["leaks"]
    assert leaks["cufile_handles"] == 0 and leaks["cufile_batches"] == 0, leaks


@pytest.mark.parametrize("verify", ["FIRST", "ALL"])
def test_random_windows(verify, tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", "u2", 3, (401, 307), test_cuda.options("ZSTD", 2, 32))
    order = {"do": "windows", "path": path, "seed": harness.SEED, "count": 20, "options": ["GDS=YES", "BATCH_MB=1"]}
    done = emulated.alone(emulated.work(order, tmp_path, GPUGTIFF_VERIFY=verify))
    assert done.counter("CUDA_GDS_READS") > 0 and done.counter("CUDA_GDS_FALLBACKS") == 0
    assert done.counter("CUDA_TILES_VERIFIED") > 0


def test_structure(tmp_path):
    """Five batches of 160 tiles of 16 KiB: one buffer, and reads of the next batch before one is asked
    for."""
    small = test_cuda.make(tmp_path / "small.tif", "u1", size=(64, 64), options=test_cuda.options("DEFLATE", 2, 32))
    path = test_cuda.make(tmp_path / "in.tif", "u1", size=(4096, 128 * 25), options=test_cuda.options("DEFLATE", 2, 128))
    order = {"do": "read", "path": path, "reset": small, "report": True, "options": ["BATCH_MB=8"]}
    done = direct(emulated.work(order, tmp_path, GPUGTIFF_VERIFY="NO", GPUGTIFF_GDS="YES"))
    report, batches = done.report, 5
    up, down = emulated.operations(report, "H2D"), emulated.operations(report, "D2H")
    assert [len(up), len(down), len(emulated.operations(report, "nvcomp"))] == [batches] * 3
    assert len(emulated.operations(report, "kernel")) == 3 * batches
    # Tables alone go up.
    assert sum(op["bytes"] for op in up) <= 32 * 25 * (4 * 8 + 64 + 32 + 4) + batches * 512
    reads = report["cufile"]["reads"]
    asked = sorted({read["asked"] for read in reads})
    submitted = [max(r["submitted"] for r in reads if r["asked"] == call) for call in asked]
    assert len(asked) == batches
    for n in range(batches - 1):
        assert submitted[n + 1] < asked[n], (submitted, asked)
    assert len([b for b in report["cufile"]["buffers"] if not b["deregistered"]]) == 1, report["cufile"]["buffers"]
    third = up[2]["call"]
    assert not [a for a in report["allocations"] if a["call"] > third], report["allocations"]


def test_pixels_that_stay_on_the_device(tmp_path):
    path = test_capi_device.raster(tmp_path, test_capi_device.KINDS[0])
    order = {"do": "windows", "path": path, "seed": harness.SEED, "count": 6}
    done = test_capi_device.work(order, tmp_path, GPUGTIFF_GDS="YES", GPUGTIFF_VERIFY="FIRST")
    assert not done.report["faults"] and not done.report["errors"], done.report["errors"]
    assert done.counter("CUDA_TILES_REDONE") == 0 and done.counter("CUDA_GDS_READS") > 0
    assert done.counter("CUDA_TILES_VERIFIED") > 0 and done.counter("CUDA_MISMATCHES") == 0


def test_gdal_translate_leaves_no_log_behind(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", "f4", options=test_cuda.options("ZSTD", 3, 64))
    env = emulated.environment(tmp_path / "report.json")
    env.pop("CUFILE_LOGFILE_PATH", None)
    os.mkdir(tmp_path / "here")
    command = ["gdal_translate", "-q", "-if", "GPUGTiff", "-oo", "GDS=YES", path, "../out.tif"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path / "here")
    assert done.returncode == 0 and done.stderr == "", done
    harness.same_pixels(gdal.Open(path), gdal.Open(str(tmp_path / "out.tif")))
    assert os.listdir(tmp_path / "here") == []
    with open(tmp_path / "report.json") as file:
        assert '"log":"/dev/null"' in file.read().replace(" ", "")


def test_auto_only_without_compatibility_mode(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    direct(read(path, tmp_path, gds="AUTO"))
    for settings in ({"CUFILE": "compat"}, {"CUFILE": "refused"}, {"CUFILE_FILES": "none"}, {"GPUGTIFF_CUFILE": "/nowhere"}):
        done = emulated.alone(read(path, tmp_path, gds="AUTO", **settings))
        assert done.counter("CUDA_GDS_READS") == 0 and not done.answer["messages"], (settings, done)
    # Who demands it has it.
    direct(read(path, tmp_path, CUFILE="compat"))
    # And where nobody asked, nobody looked.
    done = emulated.alone(read(path, tmp_path, gds="NO"))
    assert not [name for name in done.report["calls"] if name.startswith("cuFile")]


def test_a_read_that_fails_is_told_once(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", size=(700, 500), options=test_cuda.options("DEFLATE", 2, 64))
    for what in ("2:short", "*:5"):
        order = {"do": "windows", "path": path, "seed": 3, "count": 10, "options": ["GDS=YES"]}
        done = emulated.alone(emulated.work(order, tmp_path, CUFILE_READ=what, GPUGTIFF_VERIFY="NO"))
        assert done.counter("CUDA_GDS_FALLBACKS") >= 1
        assert len(done.answer["messages"]) == 1, done
        assert "GPUDirect Storage" in done.answer["messages"][0][2], done


REFUSALS = [
    ({"GPUGTIFF_CUFILE": "/nowhere/libcufile.so.0"}, "cuFile was not found"),
    ({"CUFILE": "refused"}, "nvidia-fs does not start"),
    ({"CUFILE_FILES": "none"}, "not supported on this file"),
    ({"engine": "CPU"}, "ENGINE=CPU"),
    ({"engine": "AUTO", "DEVICES": 0}, "there is no NVIDIA GPU"),
    ({"LD_LIBRARY_PATH": "/nowhere"}, "no NVIDIA driver is installed"),
]


@pytest.mark.parametrize("settings, sentence", REFUSALS, ids=lambda x: str(x)[:40])
def test_each_reason_has_its_sentence(settings, sentence, tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    done = read(path, tmp_path, do="open", **settings)
    assert not done.answer["same"], done
    assert any("GDS=YES" in text and sentence in text for _, _, text in done.answer["messages"]), done


def test_only_local_files(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    elsewhere = "/vsisubfile/0_%d,%s" % (os.path.getsize(path), path)
    done = read(elsewhere, tmp_path, do="open")
    assert not done.answer["same"], done
    assert any("GDS=YES" in text and "not a local file" in text for _, _, text in done.answer["messages"]), done
    done = emulated.right(read(elsewhere, tmp_path, gds="AUTO"))
    assert done.counter("CUDA_GDS_READS") == 0 and done.counter("CUDA_TILES_DECODED") > 0 and not done.answer["messages"]


def test_engine_auto_means_cuda(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    done = direct(read(path, tmp_path, engine="AUTO"))
    assert done.answer["counters"]["ENGINE_REASON"].startswith("GDS=YES")


def test_a_forked_child_is_told(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    done = read(path, tmp_path, do="fork")
    child = done.answer["child"]
    assert done.answer["same"] and child["inherited"] and not child["demanded"], done
    assert any("GDS=YES" in text and "forked" in text for text in child["messages"]), child
    assert not os.path.exists(str(tmp_path / "report.json") + ".forked"), "cuFile or CUDA was called"


def test_exit_with_datasets_open_is_silent(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    order = {"do": "exit", "path": path, "target": str(tmp_path / "out.tif")}
    done = emulated.right(emulated.work(order, tmp_path, GPUGTIFF_GDS="YES"))
    assert done.status == 0 and done.stderr == "", done
    assert not done.report["calls_after_exit"], done.report["calls_after_exit"]


def test_files_that_are_made_are_not_read(tmp_path):
    path = test_cuda.make(tmp_path / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
    order = {"do": "write", "path": path, "target": str(tmp_path / "out.tif"), "options": ["ENGINE=CPU"]}
    done = emulated.right(emulated.work(order, tmp_path, GPUGTIFF_GDS="YES"))
    assert done.answer["counters"]["ENGINE"] == "CPU", done
