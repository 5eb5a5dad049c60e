#!/usr/bin/env python3
"""make kernels: compile src/engine/cuda/kernels.cu to kernels.ptx, without a GPU, and what the tests
measure it against.

    kernels.py              write kernels.ptx
    kernels.py --check      fail if kernels.ptx is not what would be written
    kernels.py --assemble   fail if a GPU would have to spill registers; print what each needs
    kernels.py --docs       the same, and write the table into docs/cuda.md

NVRTC and ptxas are those of tools/kernels-requirements.txt, installed into target/kernels-venv
when first needed.
"""

import argparse
import ctypes
import difflib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/engine/cuda/kernels.cu"
PTX = SOURCE.with_suffix(".ptx")
SOURCES = [SOURCE, ROOT / "tests/kernels/serial.cu"]
DOCS = ROOT / "docs/cuda.md"
REQUIREMENTS = ROOT / "tools/kernels-requirements.txt"
TOOLS = ROOT / "target/kernels-venv"
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17"]
GPUS = ["sm_70", "sm_80", "sm_90", "sm_100", "sm_120"]
BEGIN, END = "<!-- registers -->", "<!-- /registers -->"


class Failure(Exception):
    """Something the user is to be told, without a traceback."""


def tool(pattern):
    """The one file of the installed wheels that matches."""
    installed = TOOLS / REQUIREMENTS.name
    if not installed.exists() or installed.read_bytes() != REQUIREMENTS.read_bytes():
        print(f"kernels: installing {REQUIREMENTS.name} into {TOOLS.relative_to(ROOT)}")
        venv.create(TOOLS, clear=True, with_pip=True)
        pip = [TOOLS / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--disable-pip-version-check", "-r", REQUIREMENTS], check=True)
        shutil.copy(REQUIREMENTS, installed)
    found = sorted(TOOLS.glob(f"lib/python*/site-packages/nvidia/{pattern}"))
    if len(found) != 1:
        raise Failure(f"{len(found)} files nvidia/{pattern} in {TOOLS}")
    return found[0]


class Nvrtc:
    """The compiler, by its C interface."""

    def __init__(self):
        self.library = ctypes.CDLL(str(tool("cuda_nvrtc/lib/libnvrtc.so.12")))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise Failure(f"{name}: {self.library.nvrtcGetErrorString(code).decode()}")

    def text(self, kind, program):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, buffer)
        return buffer.value.decode()

    def compile(self, source):
        program = ctypes.c_void_p()
        options = (ctypes.c_char_p * len(OPTIONS))(*(o.encode() for o in OPTIONS))
        text, name = source.read_bytes(), source.name.encode()
        parts = sorted(source.parent.glob("*.cuh"))
        strings = ctypes.c_char_p * len(parts)
        texts, names = strings(*(p.read_bytes() for p in parts)), strings(*(p.name.encode() for p in parts))
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), text, name, len(parts), texts, names
        )
        try:
            self.call("nvrtcCompileProgram", program, len(OPTIONS), options)
            return self.text("PTX", program)
        except Failure as failure:
            raise Failure(f"{failure}\n{self.text('ProgramLog', program)}") from None
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))


def generate(source):
    """The PTX without the compiler's header and the constants of its own that no kernel uses."""
    body = re.sub(r"\A(\s*//[^\n]*\n|\s*\n)*", "", Nvrtc().compile(source))
    for line, name in re.findall(r"^(\.global (?:\.\S+ (?:\d+ )?)+(\w+)[^\n]*;\n)", body, re.M):
        if len(re.findall(rf"\b{name}\b", body)) == 1:
            body = body.replace(line, "")
    pin = re.search(r"^nvidia-cuda-nvrtc-cu12==(\S+)", REQUIREMENTS.read_text(), re.M)[1]
    return f"// Made from {source.name} by tools/kernels.py with NVRTC {pin}; do not edit.\n\n{body}"


def check():
    for source in SOURCES:
        ptx = source.with_suffix(".ptx")
        old, new = ptx.read_text() if ptx.exists() else "", generate(source)
        if old != new:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "committed", "made", n=1)
            shown = "\n".join(list(lines)[:40])
            raise Failure(f"{ptx.relative_to(ROOT)} is stale; run make kernels\n{shown}")


def usage(ptxas, gpu):
    """What each kernel needs on a GPU: {name: (registers, static shared bytes)}."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as out:
        command = [ptxas, "-v", f"-arch={gpu}", PTX, "-o", out.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"ptxas for {gpu}: {done.stdout}{done.stderr}")
    entry = re.compile(
        r"Compiling entry function '(\w+)'.*?"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
        r"Used (\d+) registers([^\n]*)",
        re.S,
    )
    found = {}
    for name, *memory, registers, rest in entry.findall(done.stderr):
        if any(map(int, memory)):
            raise Failure(f"{name} on {gpu}: stack, spill stores, spill loads: {memory} bytes")
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = int(registers), int(shared[1]) if shared else 0
    expected = set(re.findall(r"^\.visible \.entry (\w+)", PTX.read_text(), re.M))
    if not expected or set(found) != expected:
        raise Failure(f"ptxas for {gpu} told of {sorted(found)} instead of {sorted(expected)}")
    return found


def assemble():
    """A table in Markdown: registers a thread and static shared memory a block."""
    ptxas = tool("cuda_nvcc/bin/ptxas")
    on = {gpu: usage(ptxas, gpu) for gpu in GPUS}
    lines = [f"| kernel | shared | {' | '.join(GPUS)} |", f"|---|--:|{'--:|' * len(GPUS)}"]
    for name in sorted(on[GPUS[0]]):
        shared = max(on[gpu][name][1] for gpu in GPUS)
        registers = " | ".join(str(on[gpu][name][0]) for gpu in GPUS)
        lines.append(f"| `{name}` | {shared} | {registers} |")
    return "\n".join(lines)


def document(table):
    text = DOCS.read_text() if DOCS.exists() else f"# The CUDA engine\n\n{BEGIN}\n{END}\n"
    marked = re.compile(f"{BEGIN}.*?{END}", re.S)
    if not marked.search(text):
        raise Failure(f"{DOCS.relative_to(ROOT)} has no place marked {BEGIN} … {END}")
    DOCS.write_text(marked.sub(lambda _: f"{BEGIN}\n{table}\n{END}", text, count=1))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in ("--check", "--assemble", "--docs"):
        parser.add_argument(option, action="store_true")
    wanted = parser.parse_args()
    if wanted.check:
        check()
    if wanted.assemble or wanted.docs:
        table = assemble()
        print(table)
        if wanted.docs:
            document(table)
    if not (wanted.check or wanted.assemble or wanted.docs):
        for source in SOURCES:
            source.with_suffix(".ptx").write_text(generate(source))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"kernels: {failure}")
