#!/usr/bin/env bash
# Runs GDAL's own test suites with the built-in GTiff and with ours, and prints what passes
# only with the built-in. Fails if one of those is not listed, with a reason, in
# tests/gdal-suites-<mode>.expected.
#
#   tests/gdal-suites.sh [--mode replace|claim] <GDAL's autotest directory> [suite…]
#
# Modes, one after the other unless one is named: replace, ours in the built-in's place
# (GPUGTIFF_REPLACE_GTIFF=YES); claim, plain files opened by ours under the built-in's name
# (GPUGTIFF_CLAIM=YES), which nothing but speed may show.
# A suite is a file below that directory, such as gcore/tiff_read.py (default: all those
# that lean on GTiff). autotest must be of the installed GDAL's version:
#   OSGeo/gdal at the tag v$(gdal-config --version)
#
# PYTHON needs GDAL's bindings and pytest (default: .venv, which `make setup-test` makes).
# GDAL_DRIVER_PATH says where the plugin is (default: where `make plugin` puts it). A run
# of a suite is given up after SUITE_TIMEOUT seconds (default: 900). The logs are left in
# target/gdal-suites.
set -euo pipefail
cd "$(dirname "$0")/.."

modes=(replace claim)
if [ "${1:-}" = --mode ]; then
    modes=("${2:-}")
    shift 2
fi
if [ ! -f "${1:-}/conftest.py" ] || [ ! -f "tests/gdal-suites-${modes[0]}.expected" ]; then
    sed -n '6s/^# *//p' "$0" >&2
    exit 2
fi
autotest=$(cd "$1" && pwd)
shift

python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || python=/usr/bin/python3
python=$(command -v "$python")
case $python in /*) ;; *) python=$PWD/$python ;; esac
plugins=${GDAL_DRIVER_PATH:-$(tools/plugin-path.sh)}
timeout=${SUITE_TIMEOUT:-900}
logs=$PWD/target/gdal-suites
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$logs"

suites=("$@")
if [ ${#suites[@]} -eq 0 ]; then
    for suite in \
        gcore/{tiff_{read,read_subifds,write,ovr,srs},gtiff_write,cog,mask,rasterio}.py \
        gcore/{overviewds,basic_test,colortable,gdal_stats,histogram,identify,misc}.py \
        gcore/{nodatamaskband,numpy_rw,pam,pamproxydb,pixfun,rat,rfc30,thread_test}.py \
        gcore/{asyncreader,transformer,geoloc,virtualmem,vrt_read,vrtmisc,multidim}.py \
        gcore/{test_driver_metadata,testnonboundtoswig,vsifile,vsizip,vsicurl}.py \
        alg/{warp,cutline,fillnodata,proximity,sieve,polygonize,rasterize,contour}.py \
        alg/{applyverticalshiftgrid,reproject,dither,transformgeoloc}.py \
        gdrivers/{derived,vrt{derived,filt,lut,mask,ovr,pansharpen,rawlink,warp}}.py \
        gdrivers/{dimap,jpeg,mbtiles,mem,nitf,png,stacit,stacta,tiff_profile,til}.py \
        utilities/test_gdal{_translate,_rasterize,_grid,buildvrt,dem,info,warp}{,_lib}.py \
        utilities/test_gdal{_contour,_create,_viewshed,addo,locationinfo,tindex}.py \
        utilities/test_nearblack{,_lib}.py \
        pyscripts/{test_gdal_calc,test_gdal_merge,test_gdal_retile,test_gdalcompare}.py; do
        # Not every version of GDAL has every suite.
        if [ -f "$autotest/$suite" ]; then suites+=("$suite"); fi
    done
fi

unset GPUGTIFF_REPLACE_GTIFF GPUGTIFF_CLAIM
run_python() { # mode argument…
    case $1 in
    replace) GDAL_DRIVER_PATH=$plugins GPUGTIFF_REPLACE_GTIFF=YES "$python" "${@:2}" ;;
    claim) GDAL_DRIVER_PATH=$plugins GPUGTIFF_CLAIM=YES "$python" "${@:2}" ;;
    *) env -u GDAL_DRIVER_PATH "$python" "${@:2}" ;;
    esac
}

# GDAL's tests look for its sample scripts in its source tree.
samples=$("$python" -c 'import os, osgeo_utils
print(os.path.join(os.path.dirname(osgeo_utils.__file__), "samples"))' 2>/dev/null || true)

# What is compared must be what it is called.
for mode in builtin "${modes[@]}"; do
    run_python "$mode" - "$mode" <<'EOF'
import sys
from osgeo import gdal
import pytest
gtiff = gdal.GetDriverByName('GTiff')
path = '/vsimem/whose.tif'
gtiff.Create(path, 1, 1)
ours = ('ENGINE' in gtiff.GetMetadataItem('DMD_OPENOPTIONLIST'), bool(gdal.Open(path).GetMetadata('GPUGTIFF')))
if ours != {'builtin': (False, False), 'replace': (True, True), 'claim': (False, True)}[sys.argv[1]]:
    sys.exit('gdal-suites: not what the %s run should be: GTiff, the datasets are ours: %s' % (sys.argv[1], ours))
EOF
done

# A line when a test starts and one when it ends, at once: a crash loses none of them.
cat >"$work/suite_results.py" <<'EOF'
import os
log = open(os.environ['SUITE_RESULTS'], 'a', buffering=1)
outcomes = {}

def pytest_runtest_logstart(nodeid, location):
    outcomes[nodeid] = 'passed'
    print('started', nodeid, sep='\t', file=log)

def pytest_runtest_logreport(report):
    if report.outcome != 'passed' and outcomes[report.nodeid] == 'passed':
        outcomes[report.nodeid] = report.outcome

def pytest_runtest_logfinish(nodeid, location):
    print(outcomes[nodeid], nodeid, sep='\t', file=log)
EOF

# One suite one way, in a copy of its own: tests change their data. A test that takes the
# process down is left out when the others are run again.
run_suite() { # mode suite
    local mode=$1 suite=$2 name=${2//\//-} copy status running without=()
    local results=$logs/$name.$mode.results log=$logs/$name.$mode.log
    copy=$work/$mode
    : >"$log"
    : >"$results.fatal"
    while true; do
        rm -rf "$copy"
        cp -R "$autotest" "$copy"
        : >"$results"
        status=0
        (cd "$copy" &&
            export SUITE_RESULTS=$results PYTHONPATH=$work:$samples${PYTHONPATH:+:$PYTHONPATH} &&
            run_python "$mode" - "$timeout" -p suite_results -p no:cacheprovider \
                -o addopts= -rfE --tb=short "${without[@]}" "$suite" <<'EOF'
# The time limit, for a run that hangs: SIGALRM's default action ends it anywhere.
import signal
import sys
import pytest
signal.alarm(int(sys.argv[1]))
sys.exit(pytest.main(sys.argv[2:]))
EOF
        ) >>"$log" 2>&1 </dev/null || status=$?
        [ "$status" -ge 128 ] || break
        running=$(tail -n 1 "$results" | sed -n 's/^started\t//p')
        if [ -z "$running" ] || [ ${#without[@]} -ge 40 ]; then break; fi
        [ "$status" -eq 142 ] && status=hung || status=crashed
        printf '%s\t%s\n' "$status" "$running" >>"$results.fatal"
        without+=(--deselect "$running")
    done
    cat "$results.fatal" >>"$results"
    rm -rf "$copy" "$results.fatal"
}

for suite in "${suites[@]}"; do
    run_suite builtin "$suite" &
    run_suite "${modes[0]}" "$suite"
    [ ${#modes[@]} -eq 1 ] || run_suite "${modes[1]}" "$suite"
    wait
done

compare() { # mode
    "$python" - "$logs" "tests/gdal-suites-$1.expected" "$1" "${suites[@]}" <<'EOF'
import os
import sys
logs, expected, mode, suites = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]

listed = {}
for line in open(expected):
    test, sharp, reason = line.strip().partition(' # ')
    if test and not test.startswith('#'):
        if not sharp:
            sys.exit('%s: no reason given for %s' % (expected, test))
        listed[test.strip()] = reason.strip()

def results(suite, mode):
    path = os.path.join(logs, '%s.%s.results' % (suite.replace('/', '-'), mode))
    lines = (line.rstrip('\n').split('\t', 1) for line in open(path))
    return {test: outcome for outcome, test in lines}

print('%-40s %9s %9s' % ('passed', 'built-in', mode))
lost, seen = [], set()
for suite in suites:
    builtin, ours = results(suite, 'builtin'), results(suite, mode)
    seen.update(builtin)
    count = [list(r.values()).count('passed') for r in (builtin, ours)]
    print('%-40s %9d %9d' % (suite, *count))
    for test, outcome in builtin.items():
        if outcome == 'passed' and ours.get(test) != 'passed':
            lost.append((test, ours.get(test, 'not run')))

for test, outcome in lost:
    if test in listed:
        print('expected: %s: %s: %s' % (test, outcome, listed[test]))
for test in sorted(seen.intersection(listed).difference(test for test, _ in lost)):
    print('listed, but fails no longer (or not with ours alone): %s' % test)
unexpected = [(test, outcome) for test, outcome in lost if test not in listed]
for test, outcome in unexpected:
    print('UNEXPECTED: %s: %s' % (test, outcome))
print('gdal-suites: %d only with the built-in, %d of them unexpected' % (len(lost), len(unexpected)))
sys.exit(1 if unexpected else 0)
EOF
}

status=0
for mode in "${modes[@]}"; do
    compare "$mode" || status=1
done
exit "$status"
