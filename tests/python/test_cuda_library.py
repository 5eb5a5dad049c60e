"""Where nvCOMP is sought: each place alone has it, all of them have something else under its name (the
refusal then tells which came first), and the working directory has it, where it is nobody's business."""

import os
import subprocess
import sys

import emulated
import pytest
import test_cuda

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module")
def emulator():
    emulated.require()


WHEEL, CONDA_WHEEL = "nvidia/libnvcomp/lib64", "nvidia/nvcomp"
SITE = "lib/python3.%d/site-packages/"
# In this order; the newest Python first.
PLACES = [
    "loader", "conda/lib",
    "conda/" + SITE % 13 + WHEEL, "conda/" + SITE % 13 + CONDA_WHEEL, "conda/" + SITE % 9 + WHEEL,
    "venv/" + SITE % 12 + WHEEL, "venv/" + SITE % 12 + CONDA_WHEEL,
    "home/.local/" + SITE % 11 + WHEEL, "home/.local/" + SITE % 11 + CONDA_WHEEL,
]  # fmt: skip


class Tree:
    """Directories of a user's, with a driver and no nvCOMP, and an empty working directory."""

    def __init__(self, folder):
        self.folder = folder
        self.path = test_cuda.make(folder / "in.tif", options=test_cuda.options("DEFLATE", 2, 64))
        self.library = os.path.realpath(os.path.join(emulated.DIRECTORY, "libcuda.so.1"))
        self.work = folder / "work"
        self.work.mkdir()
        self.link("loader", "libcuda.so.1")

    def link(self, place, name, target=None):
        place = self.folder / place
        place.mkdir(parents=True, exist_ok=True)
        if (place / name).is_symlink():
            (place / name).unlink()
        (place / name).symlink_to(target or self.library)
        return str(place / name)

    def read(self, **environment):
        """Reads on the device, in the working directory of the tree."""
        env = emulated.environment()
        env.pop("GPUGTIFF_NVCOMP", None)
        env.update(LD_LIBRARY_PATH=str(self.folder / "loader"), HOME=str(self.folder / "home"))
        env.update(CONDA_PREFIX=str(self.folder / "conda"), VIRTUAL_ENV=str(self.folder / "venv"))
        env.update(environment)
        order = '{"do": "read", "path": "%s"}' % self.path
        done = subprocess.run(
            [sys.executable, emulated.WORKER, order], env=env, cwd=self.work,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        return emulated.Outcome(done, None)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def found(outcome):
    emulated.alone(outcome)
    assert outcome.counter("CUDA_TILES_DECODED") > 0, outcome


def refused(outcome, sentence):
    assert outcome.status == 0 and not outcome.answer["same"], outcome
    said = [text for _, _, text in outcome.answer["messages"] if "ENGINE=CUDA" in text]
    assert said and all(sentence in text for text in said), outcome


@pytest.mark.parametrize("name", ["libnvcomp.so.6", "libnvcomp.so.5"])
@pytest.mark.parametrize("place", PLACES)
def test_each_place_alone(place, name, tree):
    refused(tree.read(), "nvCOMP was not found")
    tree.link(place, name)
    found(tree.read())


def test_the_path_that_is_given(tree):
    """Whatever its name is; nothing else is tried then."""
    path = tree.link("elsewhere", "nvcomp-of-mine.so")
    found(tree.read(GPUGTIFF_NVCOMP=path))
    tree.link("loader", "libnvcomp.so.6")
    absent = str(tree.folder / "elsewhere" / "libnvcomp.so.6")
    refused(tree.read(GPUGTIFF_NVCOMP=absent), absent + " is not nvCOMP")
    found(tree.read(GPUGTIFF_NVCOMP=""))


def test_the_order_of_places(tree):
    """Something else bears the name everywhere: the first is told. The last, which is nvCOMP, is found then."""
    other = tree.folder / "other.so"
    subprocess.run(["gcc", "-shared", "-o", other, "-xc", "/dev/null"], check=True)
    links = {place: tree.link(place, "libnvcomp.so.6", other) for place in PLACES}
    for place in PLACES:
        named = "libnvcomp.so.6" if place == "loader" else links[place]
        refused(tree.read(), ": %s is not nvCOMP" % named)
        os.unlink(links[place])
    for place in PLACES[:-1]:
        tree.link(place, "libnvcomp.so.6", other)
    tree.link(PLACES[-1], "libnvcomp.so.6")
    found(tree.read())


def test_never_in_the_working_directory(tree):
    """Nor below it, where a variable holds a relative path."""
    for name in ("libnvcomp.so.6", "libnvcomp.so.5"):
        for place in ("work", "work/lib", "work/" + SITE % 11 + WHEEL, "work/.local/" + SITE % 11 + WHEEL):
            tree.link(place, name)
    for prefix in (".", "", "../work"):
        refused(tree.read(CONDA_PREFIX=prefix, VIRTUAL_ENV=prefix, HOME=prefix), "nvCOMP was not found")
    refused(tree.read(GPUGTIFF_NVCOMP="./libnvcomp.so.6"), "./libnvcomp.so.6 is not nvCOMP")
    refused(tree.read(GPUGTIFF_NVCOMP="libnvcomp.so.6"), "libnvcomp.so.6 is not nvCOMP")
