"""Life of a process: forks, threads, exits, drivers destroyed and registered again. Each in a process
of its own with a time limit, so that a crash or a hang is a failure and not the end of the run."""

import os
import subprocess
import sysconfig

import harness
import pytest
import test_batching

SETUP = """
import hashlib, json, os, sys, threading
import harness
from osgeo import gdal
path = sys.argv[1]
def digest(ds): return hashlib.sha1(ds.ReadRaster()).hexdigest()
want = digest(harness.open_gtiff(path))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = test_batching.make(tmp_path_factory.mktemp("p") / "p.tif", 2000, 1500, bands=3, COMPRESS="LZW", PREDICTOR=2)
    yield file
    os.remove(file)


def run(code, *args, **kw):
    return harness.run_json(SETUP + code, *args, **kw)


def test_child_forked_after_reading_reads_on(path):
    """The worker threads are not there in the child: the pool has to notice. One child at a time, as
    they share the file position that GTiff moves."""
    code = """
ds = harness.open_ours(path)
digest(ds)
codes = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        gdal.SetCacheMax(1 << 20)
        same = digest(ds) == want and digest(harness.open_ours(path)) == want
        os._exit(0 if same else 7)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps([codes, digest(harness.open_ours(path)) == want]))
"""
    assert run(code, path) == [[0, 0, 0], True]


def test_child_forked_after_threads_read_forks_again(path):
    """A grandchild of a process whose threads have read, each generation with a pool of its own."""
    code = """
readers = [threading.Thread(target=lambda: digest(harness.open_ours(path))) for _ in range(3)]
for t in readers: t.start()
for t in readers: t.join()
def generation(n):
    if digest(harness.open_ours(path)) != want: return 7
    if n == 0: return 0
    pid = os.fork()
    if pid == 0: os._exit(generation(n - 1))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(generation(3)))
"""
    assert run(code, path) == 0


def test_multiprocessing_pool(path, tmp_path):
    script = tmp_path / "pool.py"
    script.write_text("""
import hashlib, json, multiprocessing, sys
import harness
path = sys.argv[1]
whole = harness.open_ours(path)
want = hashlib.sha1(whole.ReadRaster()).hexdigest()
def job(k):
    ds = harness.open_ours(path)
    part = hashlib.sha1(ds.ReadRaster(k * 10, k * 20, 700, 500)).hexdigest()
    return part, hashlib.sha1(whole.ReadRaster()).hexdigest() == want
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(3) as pool:
        got = pool.map(job, range(12))
    gtiff = harness.open_gtiff(path)
    parts = [hashlib.sha1(gtiff.ReadRaster(k * 10, k * 20, 700, 500)).hexdigest() for k in range(12)]
    print(json.dumps([p == q and ok for (p, ok), q in zip(got, parts)]))
""")
    code = "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    assert harness.run_json(code, script, path) == [True] * 12


def test_many_threads_with_datasets_of_their_own(path):
    code = """
import random
gtiff = harness.open_gtiff(path)
rng = random.Random(harness.SEED)
jobs = [(rng.randrange(1000), rng.randrange(900), rng.randint(1, 999), rng.randint(1, 599)) for _ in range(160)]
wants = [hashlib.sha1(gtiff.ReadRaster(*j)).hexdigest() for j in jobs]
bad = []
def read(k):
    ds = harness.open_ours(path, [] if harness.SELF_TEST else ['NUM_THREADS=%d' % (k % 3 + 1), 'BATCH_MB=1'])
    for j, w in list(zip(jobs, wants))[k::16]:
        if hashlib.sha1(ds.ReadRaster(*j)).hexdigest() != w: bad.append(j)
threads = [threading.Thread(target=read, args=(k,)) for k in range(16)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(bad))
"""
    assert run(code, path) == []


@pytest.mark.parametrize("threads", ["1", "ALL_CPUS", "9"])
def test_many_threads_under_gdal_num_threads(path, threads):
    """Each with a dataset of its own, every way of reading at once, and the drivers' own threads beside."""
    code = """
gdal.SetCacheMax(4 << 20)
bad = []
def read(k):
    ds, gtiff = harness.open_ours(path), harness.open_gtiff(path)
    for n in range(3):
        x, y = (k * 131 + n * 97) % 1400, (k * 71 + n * 53) % 1000
        asks = [lambda d: d.ReadRaster(x, y, 500, 300), lambda d: d.GetRasterBand(2).ReadRaster(x, y, 300, 2),
                lambda d: bytes(d.GetRasterBand(n % 3 + 1).ReadBlock(n % 7, k % 5)),
                lambda d: d.ReadRaster(x, y, 500, 400, 50, 40, resample_alg=gdal.GRIORA_Average)]
        if any(ask(ds) != ask(gtiff) for ask in asks): bad.append((k, n))
threads = [threading.Thread(target=read, args=(k,)) for k in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(bad))
"""
    assert run(code, path, env={"GDAL_NUM_THREADS": threads}) == []


@pytest.mark.parametrize("shared", [False, True])
def test_opened_twice(path, shared):
    """Two datasets of one file read in turn; one goes, the other reads on."""
    code = """
flags = gdal.OF_SHARED if 'True' in sys.argv else 0
a, b = (harness.open_ours(path, flags=flags) for _ in range(2))
same = []
for y in range(0, 1500, 250):
    same.append(a.ReadRaster(0, y, 2000, 250) == b.ReadRaster(0, y, 2000, 250))
    same.append(bytes(a.GetRasterBand(1).ReadBlock(y // 250, 0)) == bytes(b.GetRasterBand(1).ReadBlock(y // 250, 0)))
a = None
same += [digest(b) == want, digest(harness.open_ours(path, flags=flags)) == want]
print(json.dumps(same))
"""
    assert run(code, path, str(shared)) == [True] * 14


@pytest.mark.parametrize("way", ["blocks", "rows", "whole"])
def test_an_idle_dataset_holds_no_buffers(path, tmp_path, way):
    """The dataset stays open; what was read ahead of it is given back within two seconds. Every tile's buffer is made
    a mapping of its own, so that the process's size shows what is held and not what malloc keeps for later."""
    harness.skip_count_if_self_test()
    code = """
import time
gdal.SetCacheMax(1 << 20)
def rss():
    with open('/proc/self/status') as f: return next(int(l.split()[1]) for l in f if l.startswith('VmRSS'))
harness.open_ours(path).ReadRaster(0, 0, 16, 16)
ds, way, base = harness.open_ours(path, ['NUM_THREADS=2']), sys.argv[2], rss()
if way == 'blocks':
    for k in range(150): ds.GetRasterBand(1).ReadBlock(k % 32, k // 32)
elif way == 'rows':
    for y in range(0, 1024, 256): ds.ReadRaster(0, y, 8192, 256)
else: ds.ReadRaster()
time.sleep(0.4)
held = rss() - base
time.sleep(2)
idle = rss() - base
ok = len(ds.ReadRaster(0, 4000, 8192, 100)) == 8192 * 200
print(json.dumps([held, idle, ok]))
"""
    file = test_batching.make(tmp_path / "i.tif", 8192, 8192)
    start = "import harness, json, sys\nfrom osgeo import gdal\npath = sys.argv[1]"
    held, idle, ok = harness.run_json(start + code, file, way, env={"MALLOC_MMAP_THRESHOLD_": "65536"})
    assert way == "whole" or held > 16_000, "nothing was held ahead (%d kB): nothing is shown" % held
    assert idle < 8_000 and ok, "%d kB held after two idle seconds, %d kB before" % (idle, held)


def test_closing_from_another_thread(path):
    code = """
import ctypes, asks
ok = []
for n in range(10):
    box = [harness.open_ours(path)]
    box[0].ReadRaster(0, 0, 500, 500)
    box[0].GetRasterBand(1).ReadBlock(0, 0); box[0].GetRasterBand(1).ReadBlock(1, 0)  # something may be under way ahead
    t = threading.Thread(target=box.clear)
    t.start(); t.join()
    ok.append(digest(harness.open_ours(path)) == want)
print(json.dumps(ok))
"""
    assert run(code, path) == [True] * 10


@pytest.mark.parametrize("how", ["sys.exit(0)", "os._exit(0)", "raise SystemExit(0)", "pass"])
def test_exit_with_datasets_open(path, how):
    code = SETUP + """
keep = [harness.open_ours(path) for _ in range(5)]
for ds in keep:
    ds.ReadRaster(0, 0, 900, 900)
    for x in range(4): ds.GetRasterBand(1).ReadBlock(x, 0)
threading.Thread(target=lambda: keep[0].ReadRaster(), daemon=True).start() if 'daemon' in sys.argv else None
import builtins; builtins.keep = keep
print('[]', flush=True)
""" + how
    done = harness.run_python(code, path)
    assert done.returncode == 0, done.stderr


C_PROGRAM = r"""
#include <gdal.h>
#include <cpl_conv.h>
#include <stdio.h>
#include <stdlib.h>
/* Reads, destroys the driver manager, registers everything again, reads again; three times over. */
int main(int argc, char **argv) {
    const char *drivers[] = {argv[2], NULL};
    unsigned long first = 0;
    for (int round = 0; round < 3; round++) {
        GDALAllRegister();
        GDALDatasetH ds = GDALOpenEx(argv[1], GDAL_OF_RASTER, drivers, NULL, NULL);
        if (!ds) return 2;
        int w = GDALGetRasterXSize(ds), h = GDALGetRasterYSize(ds);
        unsigned char *buf = malloc((size_t)w * h * 2);
        if (GDALRasterIO(GDALGetRasterBand(ds, 1), GF_Read, 0, 0, w, h, buf, w, h, GDT_UInt16, 0, 0) != CE_None) return 3;
        unsigned long sum = 5381;
        for (size_t i = 0; i < (size_t)w * h * 2; i++) sum = sum * 33 + buf[i];
        if (round && sum != first) return 4;
        first = sum;
        free(buf);
        if (argc > 3) { /* left open: destroying the manager closes what is left */ } else GDALClose(ds);
        GDALDestroyDriverManager();
    }
    printf("done\n");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    source = folder / "destroy.c"
    source.write_text(C_PROGRAM)
    out = str(folder / "destroy")
    cc = (sysconfig.get_config_var("CC") or "gcc").split()[0]
    ask = lambda what: subprocess.run(["gdal-config", what], capture_output=True, text=True, check=True).stdout.split()  # noqa: E731
    subprocess.run([cc, *ask("--cflags"), str(source), "-o", out, *ask("--libs")], check=True)
    return out


@pytest.mark.parametrize("left_open", [[], ["left-open"]])
def test_drivers_destroyed_and_registered_again(path, program, left_open):
    done = subprocess.run([program, path, harness.DRIVER, *left_open], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr)


def test_drivers_destroyed_in_replace_mode(path, program):
    env = dict(os.environ, GPUGTIFF_REPLACE_GTIFF="YES")
    done = subprocess.run([program, path, "GTiff"], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_dataset_used_after_its_bands_were_kept(path):
    """Overviews and masks handed out live as long as the dataset, whatever order they are asked in."""
    code = """
ds = harness.open_ours(path)
masks = [ds.GetRasterBand(i).GetMaskBand() for i in (3, 1, 2)]
bands = [ds.GetRasterBand(i) for i in (2, 3, 1)]
print(json.dumps([len(m.ReadRaster()) for m in masks] + [len(b.ReadRaster()) for b in bands]))
"""
    assert run(code, path) == [3_000_000] * 3 + [6_000_000] * 3


def test_progress_callback_reads_the_same_dataset(path):
    """GDAL's callbacks may do what they like with the dataset that they are told of."""
    ds = harness.open_ours(path)
    band, seen = ds.GetRasterBand(1), []

    def told(done, text, data):
        seen.append(band.ReadRaster(0, 0, 10, 10))
        return 1

    whole = ds.ReadRaster(callback=told)
    want = harness.open_gtiff(path)
    harness.same_bytes(whole, want.ReadRaster(), "while the callback read")
    assert seen and set(map(bytes, seen)) == {bytes(want.GetRasterBand(1).ReadRaster(0, 0, 10, 10))}
