"""What `make` runs around the build: tools/setup.sh says what is missing and installs it, tools/plugin-folder.sh keeps
GDAL's own plugins, tools/run.py converts and compares. No cargo, and nothing of the machine's is installed."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import harness
import numpy as np
import pytest
from osgeo import gdal

SETUP = os.path.join(harness.REPO, "tools", "setup.sh")
PATHS = os.path.join(harness.REPO, "tools", "plugin-path.sh")
FOLDER = os.path.join(harness.REPO, "tools", "plugin-folder.sh")
BASH = shutil.which("bash")
REAL = ("bash", "dirname", "sed", "awk", "sort", "head", "grep", "env", "chmod", "readlink")
# What setup.sh looks for, by the Debian package that brings it.
BRINGS = {"g++": ["g++"], "pkg-config": ["pkg-config"], "gdal-bin": ["gdal_translate", "gdalinfo"]}
with open(os.path.join(harness.REPO, "Cargo.toml")) as f:
    WANTED = re.search(r'^rust-version *= *"(.*)"', f.read(), re.M).group(1)


class Machine:
    """A PATH of its own: real tools by symlink, the rest scripts, so that anything can be missing or old. What is
    called to install is written down, and apt-get brings what it is asked for."""

    def __init__(self, folder):
        self.bin, self.log = folder / "bin", folder / "log"
        self.bin.mkdir(parents=True)
        self.log.touch()
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name))
        self.script("rustc", "echo 'rustc %s.0 (0123456789 2024-01-01)'" % WANTED)
        self.script("id", "echo 0")
        # Whatever /sbin has must not matter: ISA-L is there.
        self.script("ldconfig", "echo libisal.so.2")
        for name in ["cargo", "python3", *sum(BRINGS.values(), [])]:
            self.script(name, ":")
        cases = "".join("%s) files='%s';; " % (package, " ".join(files)) for package, files in BRINGS.items())
        self.script("apt-get", """echo "apt-get $*" >>"$LOG"; cd '%s'
for word; do
    files=; case $word in %s esac
    for file in $files; do echo '#!%s' >$file; chmod +x $file; done
done""" % (self.bin, cases, BASH))  # fmt: skip

    def script(self, name, body):
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text("#!%s\n%s\n" % (BASH, body))
        path.chmod(0o755)

    def lose(self, *names):
        for name in names:
            (self.bin / name).unlink()
        return self

    def setup(self, *args):
        env = {"PATH": str(self.bin), "LOG": str(self.log), "PYTHON": str(self.bin / "python3")}
        return subprocess.run([BASH, SETUP, *args], env=env, capture_output=True, text=True, timeout=30)

    def called(self):
        return self.log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "m")


def refused(done, *parts):
    assert done.returncode != 0, done
    for part in parts:
        assert part in done.stderr, "no %r in: %s" % (part, done.stderr)


# ---- setup.sh ------------------------------------------------------------------------------


def test_nothing_missing_nothing_installed(machine):
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    assert machine.called() == []


@pytest.mark.parametrize("found", ["1.63.0", "1.9.0", "1.63.0-nightly"])
def test_rustc_too_old(machine, found):
    machine.script("rustc", "echo 'rustc %s (0123456789 2022-08-08)'" % found)
    machine.lose("g++")
    done = machine.setup()
    refused(done, "rustc %s " % found, "too old", "%s or newer" % WANTED, str(machine.bin / "rustc"), "rustup")
    assert machine.called() == [], "installed before Rust was looked at"


@pytest.mark.parametrize("found", [WANTED + ".0-nightly", "1.1000.0", "2.0.0"])
def test_rustc_new_enough(machine, found):
    machine.script("rustc", "echo 'rustc %s (0123456789 2030-01-01)'" % found)
    assert machine.setup().returncode == 0


@pytest.mark.parametrize("missing", [["rustc"], ["cargo"], ["rustc", "cargo"]])
def test_no_rustc(machine, missing):
    refused(machine.lose(*missing).setup(), "no Rust compiler found", "rustc %s or newer" % WANTED, "rustup")


def test_no_apt_get(machine):
    """The packages are named even where nothing can install them."""
    done = machine.lose("g++", "gdalinfo", "apt-get").setup()
    refused(done, "missing: g++ gdal-bin\n", "no apt-get", "your own package manager")


def test_neither_root_nor_sudo(machine):
    machine.script("id", "echo 1000")
    done = machine.lose("g++", "pkg-config").setup()
    refused(done, "missing: g++ pkg-config libgdal-dev\n", "as root: apt-get install g++ pkg-config libgdal-dev\n")
    assert machine.called() == []


@pytest.mark.parametrize("uid", [0, 1000])
def test_sudo_only_where_needed(machine, uid):
    machine.script("id", "echo %d" % uid)
    machine.script("sudo", 'echo "sudo $1" >>"$LOG"; "$@"')
    done = machine.lose("g++", "gdal_translate").setup()
    assert done.returncode == 0 and "installing g++ gdal-bin\n" in done.stdout, done
    install = ["apt-get install -y --no-install-recommends g++ gdal-bin"]
    assert machine.called() == (["sudo env"] if uid else []) + install


def test_lists_are_refreshed_once(machine):
    """An install that fails is tried again after `apt-get update`; what still fails is named."""
    machine.script("apt-get", 'echo "apt-get $1" >>"$LOG"; [ "$1" = update ]')
    refused(machine.lose("g++").setup(), "apt-get can't install: g++")
    assert machine.called() == ["apt-get install", "apt-get update", "apt-get install"]


def test_installed_and_still_missing(machine):
    machine.script("apt-get", ":")
    refused(machine.lose("g++").setup(), "still not usable after installing: g++")


def test_python_modules_are_looked_for(machine):
    machine.script("python3", 'case "$2" in *numpy*|*gdal_array*) exit 1;; esac')
    done = machine.lose("apt-get").setup()
    refused(done, "missing: python3-numpy python3-gdal\n")


def test_what_can_be_done_without(machine):
    """Asked for, but its absence fails nothing and says what it costs."""
    machine.script("ldconfig", ":")
    machine.script("apt-get", 'echo "apt-get $*" >>"$LOG"; exit 1')
    done = machine.setup()
    assert done.returncode == 0 and "without libisal2: Deflate is decoded by libdeflate alone" in done.stderr, done
    assert "apt-get install -y --no-install-recommends libisal2" in machine.called()


def test_more_for_the_tests(machine):
    done = machine.lose("apt-get").setup("test")
    refused(done, "missing: libtiff-tools\n")


# ---- GDAL_DRIVER_PATH ----------------------------------------------------------------------


def clean_env(**more):
    """Without what a make above us would hand down."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}, **more}


def make(*args):
    return subprocess.run(["make", "--no-print-directory", *args], cwd=harness.REPO, env=clean_env(),
                          capture_output=True, text=True, timeout=60)  # fmt: skip


def run(*command, **env):
    done = subprocess.run(list(command), cwd=harness.REPO, env=clean_env(**env), capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout.rstrip("\n")


def test_the_line_that_is_printed():
    """One folder: no other GDAL of the shell is sent to the plugins of this one."""
    last = make("-n", "plugin").stdout.splitlines()[-1]
    line = run(BASH, "-c", last)
    shown = run(BASH, "-c", line + '; printf %s "$GDAL_DRIVER_PATH"')
    assert shown == run(PATHS) == harness.PLUGIN_DIR


def test_gdals_own_directory():
    with open("/proc/self/maps") as f:
        library = next(os.path.realpath(line.split()[-1]) for line in f if "/libgdal.so" in line)
    assert run(PATHS, "--gdal") == os.path.join(os.path.dirname(library), "gdalplugins")


@pytest.fixture
def made(machine, tmp_path):
    """Makes a plugin folder for a GDAL 3.99 whose own plugins are in a directory of this test."""
    own, release, folder = (tmp_path / name for name in ("its own plugins", "release", "the folder"))
    own.mkdir()
    release.mkdir()
    for name in ("libgpugtiff.so", "libgpugtiff_loader.so"):
        (release / name).write_text(name)
    machine.script("pkg-config", "case $1 in --variable=plugindir) echo '%s';; --modversion) echo 3.99.1;; esac" % own)
    env = {"PATH": "%s:%s" % (machine.bin, os.environ["PATH"])}

    def make_folder():
        run(FOLDER, str(release), str(folder), **env)
        # Files of nobody's, such as temporary ones, would show.
        assert sorted(os.listdir(folder)) == ["3.99", "gdal_GPUGTiff.so", "libgpugtiff-gdal3.99.so"]
        return folder

    make_folder.own, make_folder.release, make_folder.env = own, release, env
    return make_folder


def test_gdals_own_plugins_are_linked(made):
    """GDAL 3.99 looks into 3.99 and nowhere else, every other GDAL not there: the variable replaces its directory."""
    for name in ("gdal_PDF.so", "ogr_x y.so", "drivers.ini", "gdal_GPUGTiff.so", "libgpugtiff-gdal3.99.so"):
        (made.own / name).write_text("theirs")
    folder = made()
    assert run(PATHS, "--gdal", **made.env) == str(made.own)
    links = {name: os.readlink(folder / "3.99" / name) for name in os.listdir(folder / "3.99")}
    assert links == {"gdal_GPUGTiff.so": "../gdal_GPUGTiff.so",
                     **{name: str(made.own / name) for name in ("gdal_PDF.so", "ogr_x y.so", "drivers.ini")}}  # fmt: skip
    assert (folder / "3.99" / "gdal_GPUGTiff.so").read_text() == "libgpugtiff_loader.so"
    assert (folder / "libgpugtiff-gdal3.99.so").read_text() == "libgpugtiff.so"


def test_the_folder_follows_what_changed(made):
    (made.own / "gdal_PDF.so").write_text("theirs")
    folder = made()
    before = {path: os.lstat(path).st_ino for path in [*folder.iterdir(), *(folder / "3.99").iterdir()]}
    made()
    assert before == {path: os.lstat(path).st_ino for path in before}, "what is there already is made again"
    (made.own / "gdal_PDF.so").rename(made.own / "gdal_HDF5.so")
    (made.release / "libgpugtiff.so").write_text("newer")
    made()
    assert sorted(os.listdir(folder / "3.99")) == ["gdal_GPUGTiff.so", "gdal_HDF5.so"]
    assert (folder / "libgpugtiff-gdal3.99.so").read_text() == "newer"
    assert os.stat(folder / "libgpugtiff-gdal3.99.so").st_ino != before[folder / "libgpugtiff-gdal3.99.so"], "written over"


def test_a_gdal_without_plugins(made):
    made.own.rmdir()
    assert os.listdir(made() / "3.99") == ["gdal_GPUGTiff.so"]


# ---- make run ------------------------------------------------------------------------------


def tool(*args, script=os.path.join(harness.REPO, "tools", "run.py")):
    return subprocess.run([sys.executable, script, *map(str, args)], capture_output=True, text=True, timeout=60)


def raster(path, size=300):
    ds = gdal.GetDriverByName("GTiff").Create(str(path), size, size, 2, gdal.GDT_Int16, ["TILED=YES", "COMPRESS=LZW"])
    y, x = np.mgrid[0:size, 0:size]
    for i in (1, 2):
        ds.GetRasterBand(i).WriteArray((x * i - y).astype(np.int16))
    return str(path)


def check_said(done, samples):
    """Engine, why that one, and that the pixels are GTiff's."""
    assert done.returncode == 0, done
    assert re.search(r"^engine +\w+: \S.*$", done.stdout, re.M), done.stdout
    assert re.search(r"^pixels +equal to GTiff's: %s samples" % format(samples, ","), done.stdout, re.M), done.stdout
    assert re.search(r"^gpu +\S", done.stdout, re.M), done.stdout


needs_ours = pytest.mark.skipif(harness.SELF_TEST, reason="about our own driver")


@needs_ours
def test_run_without_a_file(tmp_path):
    """A copy of the script, so that its sample lands in a tree of its own."""
    script = tmp_path / "tools" / "run.py"
    script.parent.mkdir()
    shutil.copy(os.path.join(harness.REPO, "tools", "run.py"), script)
    done = tool(script=str(script))
    check_said(done, 2048 * 2048 * 3)
    made = sorted(p.name for p in (tmp_path / "target" / "run").iterdir())
    assert made == ["converted.tif", "sample.tif"] and "sample.tif: 2048" in done.stdout, (made, done.stdout)


@needs_ours
def test_make_run_with_names_of_several_words(tmp_path):
    """`-o build`: all of `make run` but the build."""
    source, target = raster(tmp_path / "in  it's one.tif"), str(tmp_path / "out two.tif")
    done = make("-o", "build", "run", "IN=" + source, "OUT=" + target)
    check_said(done, 300 * 300 * 2)
    assert source in done.stdout and target in done.stdout, done.stdout
    a, b = harness.open_gtiff(source), harness.open_gtiff(target)
    harness.same_bytes(b.ReadRaster(), a.ReadRaster(), "OUT")
    assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, (source, target)))


@needs_ours
@pytest.mark.parametrize("bad", ["missing", "no raster", "empty"])
def test_run_says_what_is_wrong_with_its_file(tmp_path, bad):
    source, target = tmp_path / "in one.tif", tmp_path / "out.tif"
    if bad != "missing":
        source.write_bytes(b"II*\0 is all" if bad == "no raster" else b"")
    target.write_bytes(b"of yesterday")
    done = tool(source, target)
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr.startswith("make run: ") and str(source) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and target.read_bytes() == b"of yesterday", done.stderr


@needs_ours
def test_run_says_what_is_wrong_with_its_arguments(tmp_path):
    source = raster(tmp_path / "a b.tif")
    cases = {("x.tif",): "OUT is missing", (source, str(tmp_path)): "OUT is a directory", (source, source): "same file",
             (source, str(tmp_path / "no" / "b.tif")): "does not exist"}  # fmt: skip
    before = open(source, "rb").read()
    for args, reason in cases.items():
        done = tool(*args)
        assert done.returncode == 1 and reason in done.stderr and "Traceback" not in done.stderr, (args, done)
    assert open(source, "rb").read() == before


@needs_ours
def test_run_that_fails_keeps_what_was_there(tmp_path):
    """A driver that is not there, and a tile that cannot be decoded: OUT is as it was."""
    source, target = raster(tmp_path / "a.tif"), tmp_path / "b.tif"
    target.write_bytes(b"of yesterday")
    assert "did not load the driver Nobody" in tool("--driver", "Nobody", source, target).stderr
    with open(source, "r+b") as f:
        f.truncate(os.path.getsize(source) - 50)
    done = tool(source, target)
    assert done.returncode == 1 and "gdal_translate failed" in done.stderr, done
    assert target.read_bytes() == b"of yesterday" and sorted(os.listdir(tmp_path)) == ["a.tif", "b.tif"]


def test_run_finds_the_window_that_differs(tmp_path):
    spec = importlib.util.spec_from_file_location("run", os.path.join(harness.REPO, "tools", "run.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WINDOW_BYTES = 1 << 18
    paths = [raster(tmp_path / name) for name in ("a.tif", "b.tif")]
    a, b = map(harness.open_gtiff, paths)
    assert module.compare(a, {"OUT": b}) == 300 * 300 * 2
    ds = gdal.Open(paths[1], gdal.GA_Update)
    ds.GetRasterBand(2).WriteRaster(280, 290, 1, 1, b"\x77\x77")
    ds = None
    with pytest.raises(module.Failure, match="OUT differs from GTiff's pixels in the window .* at column 256, row 256"):
        module.compare(a, {"OUT": harness.open_gtiff(paths[1])})
