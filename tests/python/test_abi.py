"""What programs that were compiled before rely on: exported names, numbers, and a program with an old header."""

import os
import re
import shutil
import subprocess

import capi
import harness
import numpy as np
import pytest
from osgeo import gdal

ABI = os.path.join(harness.REPO, "tests", "abi")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
COMPILERS = [(cc, std, language) for language, std, names in (("c", "c11", ("gcc", "clang")), ("c++", "c++17", ("g++", "clang++")))
             for cc in names if shutil.which(cc)]  # fmt: skip


def functions(header):
    with open(header) as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    return set(re.findall(r"\b(gpugtiff_\w+)\(", re.sub(r"static inline.*?\n}", "", text, flags=re.S)))


@pytest.mark.parametrize("path", [capi.PLUGIN_PATH, capi.COPY_PATH])
def test_exported_names_are_the_listed_ones(path):
    done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    exported = [line.split()[2] for line in done.stdout.splitlines()]
    with open(os.path.join(ABI, "exports.txt")) as f:
        assert sorted(exported) == f.read().split()


def test_the_header_declares_what_is_exported():
    with open(os.path.join(ABI, "exports.txt")) as f:
        listed = set(f.read().split()) - {"GDALRegister_GPUGTiff"}
    assert functions(capi.HEADER) == listed
    assert listed == {"gpugtiff_" + name for name in [*capi.RESULTS, *capi.OTHERS, "result_name"]}


def test_old_numbers_are_the_same():
    old = capi.constants(os.path.join(ABI, "gpugtiff.h"))
    lasting = {name: value for name, value in old.items() if not name.startswith("VERSION_M") and name != "VERSION_PATCH"}
    assert lasting and lasting.items() <= capi.C.items()
    assert functions(os.path.join(ABI, "gpugtiff.h")) <= functions(capi.HEADER)


USER = """
#include "gpugtiff.h"
#include "gpugtiff.h"
int main(void)
{
    gpugtiff_selection selection = gpugtiff_selection_init();
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    gpugtiff_spec spec = gpugtiff_spec_init();
    gpugtiff_raster_facts facts = gpugtiff_raster_facts_init();
    gpugtiff_device_facts device = gpugtiff_device_facts_init();
    return (int)(selection.level + buffer.memory + spec.bands + facts.levels + device.is_usable);
}
"""


@pytest.mark.parametrize("compiler, standard, language", COMPILERS)
@pytest.mark.parametrize("before", ["", "#define GPUGTIFF_NO_DLPACK 1"])
def test_the_header_compiles_without_a_warning(tmp_path, compiler, standard, language, before):
    source = tmp_path / "user.c"
    source.write_text(before + USER)
    subprocess.run([compiler, "-x", language, "-std=" + standard, *STRICT, "-I", os.path.dirname(capi.HEADER),
                    "-fsyntax-only", str(source)], check=True)  # fmt: skip


DLPACK = """
#define DLPACK_DLPACK_H_
#include <stdint.h>
typedef struct DLManagedTensor { int theirs; } DLManagedTensor;
typedef struct DLManagedTensorVersioned { int theirs; } DLManagedTensorVersioned;
"""


# As before DLPack 1.0.
OLD_DLPACK = "".join(line for line in DLPACK.splitlines(True) if "Versioned" not in line)


@pytest.mark.parametrize("dlpack", [DLPACK, OLD_DLPACK], ids=["new", "old"])
@pytest.mark.parametrize("compiler, standard, language", COMPILERS)
def test_a_dlpack_that_came_first_is_left_alone(tmp_path, compiler, standard, language, dlpack):
    source = tmp_path / "user.c"
    source.write_text(dlpack + USER)
    subprocess.run([compiler, "-x", language, "-std=" + standard, *STRICT, "-I", os.path.dirname(capi.HEADER),
                    "-fsyntax-only", str(source)], check=True)  # fmt: skip


@pytest.mark.parametrize("header", [ABI, os.path.dirname(capi.HEADER)], ids=["old", "new"])
def test_a_program_with_an_old_header_runs(tmp_path, header):
    pixels = np.random.default_rng(3).integers(0, 99, (3, 300, 280), np.uint8)
    ds = gdal.GetDriverByName("GTiff").Create(str(tmp_path / "in.tif"), 280, 300, 3, gdal.GDT_Byte, ["COMPRESS=DEFLATE", "TILED=YES"])
    ds.WriteRaster(0, 0, 280, 300, pixels.tobytes())
    del ds
    for name in ("libgpugtiff.so", "libgpugtiff.so.%d" % capi.C["VERSION_MAJOR"]):
        os.symlink(capi.COPY_PATH, tmp_path / name)
    # Not from tests/abi: the header there would be found first.
    source = shutil.copy(os.path.join(ABI, "program.c"), tmp_path)
    program = str(tmp_path / "program")
    subprocess.run(["gcc", "-std=c11", *STRICT, "-I", header, source, "-o", program, "-L", str(tmp_path), "-lgpugtiff"], check=True)
    done = subprocess.run([program, tmp_path / "in.tif", tmp_path / "out.tif"], capture_output=True, text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(tmp_path)))  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    harness.same_bytes(harness.open_gtiff(str(tmp_path / "out.tif")).ReadRaster(), pixels.tobytes(), "copied")
