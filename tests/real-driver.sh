#!/usr/bin/env bash
# NVIDIA's own libraries on a machine without a GPU: Debian's libcuda (non-free), which says
# that there is no device, and the real libnvcomp 5.x and 6.x on the emulated driver, whose
# functions we must find and whose refusal must be a sentence, never a crash. Nothing is
# installed: packages are unpacked below target/, once. What can't be fetched is skipped, loudly.
#
#   tests/real-driver.sh      after `make plugin emulator`
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/fetch.sh

cache=$PWD/target/nvidia
emulated=$PWD/target/emulated-cuda
python=${PYTHON:-python3}
GDAL_DRIVER_PATH=$(tools/plugin-path.sh)
export GDAL_DRIVER_PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

fail() {
    printf 'real-driver: %s\n' "$@" >&2
    exit 1
}

skip() { # what reason
    printf '\n*** SKIPPED: NOT tried with %s:\n*** %s\n\n' "$1" "$2" >&2
}

[ -e target/gdalplugins/gdal_GPUGTiff.so ] || fail "no plugin: run make plugin"
[ -e "$emulated/libcuda.so.1" ] || fail "no emulated driver: run make emulator"

# For root libcuda makes /dev/nvidiactl where it is missing; it may not.
careful=()
if [ "$(id -u)" = 0 ]; then
    careful=(setpriv --bounding-set=-mknod --inh-caps=-mknod)
fi

# Opens a raster with ENGINE=CUDA: it must say no in this sentence, and exit as programs do.
refused() { # name sentence VARIABLE=value…
    local name=$1 sentence=$2 code=0
    shift 2
    env -u VIRTUAL_ENV -u CONDA_PREFIX -u CUDA_VISIBLE_DEVICES GPUGTIFF_ENGINE=CUDA "$@" \
        "${careful[@]}" gdalinfo -if GPUGTiff "$work/small.tif" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "$name: gdalinfo's exit code is $code" "$(cat "$work/err")"
    grep -qF "GPUGTiff: ENGINE=CUDA: $sentence" "$work/err" ||
        fail "$name: not the sentence \"$sentence\" but" "$(cat "$work/err")"
    echo "real-driver: $name: $(sed -n 's/.*ENGINE=CUDA: //p' "$work/err")"
}

gdal_create -q -of GTiff -outsize 256 256 -ot Byte -burn 7 -co COMPRESS=DEFLATE -co TILED=YES \
    "$work/small.tif"
# Large enough that AUTO asks for CUDA.
gdal_create -q -of GTiff -outsize 16384 17408 -ot Byte -burn 7 -co COMPRESS=ZSTD \
    -co ZSTD_LEVEL=1 -co TILED=YES -co BLOCKXSIZE=512 -co BLOCKYSIZE=512 "$work/large.tif"

nvcomps=()
for pair in 5:5.3.0.16 6:6.0.0.12; do
    major=${pair%%:*} version=${pair#*:}
    if ! fetch_wheel "$cache" nvidia-libnvcomp-cu12 "$version"; then
        skip "the real nvCOMP $version" "nvidia-libnvcomp-cu12 can't be fetched"
        continue
    fi
    nvcomp=$cache/nvidia-libnvcomp-cu12-$version/nvidia/libnvcomp/lib64/libnvcomp.so.$major
    nvcomps+=("$nvcomp")
    # All its functions were found, else it were "not nvCOMP"; the emulated driver has no GPU
    # for its kernels, so the known tiles do not come back.
    refused "nvCOMP $version, emulated driver" "the GPU does not decode and encode known tiles here" \
        LD_LIBRARY_PATH="$emulated" GPUGTIFF_NVCOMP="$nvcomp" EMUCUDA_REPORT="$work/report.json"
    grep -q '"cuGetProcAddress_v2"' "$work/report.json" ||
        fail "nvCOMP $version did not call the emulated driver"
done

if [ ! -d "$cache/libcuda1" ]; then
    if ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
        skip "Debian's libcuda" "no apt-get and dpkg-deb on this machine"
        exit 0
    fi
    read -r uri release < <(mirror) || true
    if [ -z "${uri:-}" ]; then
        skip "Debian's libcuda" "apt's sources name no mirror"
        exit 0
    fi
    if ! fetch_deb "$cache/libcuda1" "$uri" "$release" non-free libcuda1 \
        >"$cache/libcuda1.log" 2>&1; then
        skip "Debian's libcuda" "libcuda1 can't be fetched: $(tail -n 3 "$cache/libcuda1.log")"
        exit 0
    fi
fi
library=$(find "$cache/libcuda1" -name libcuda.so.1 | head -n 1)
[ -n "$library" ] || fail "libcuda1 has no libcuda.so.1"
driver=$(dirname "$library")
if [ -e /proc/driver/nvidia ]; then
    skip "Debian's libcuda" "this machine has an NVIDIA driver of its own"
    exit 0
fi
# Where the wheels can't be had the emulated nvCOMP is good enough.
for nvcomp in "${nvcomps[@]:-$emulated/libnvcomp.so.6}"; do
    refused "$(basename "$(readlink -f "$library")"), $(basename "$nvcomp")" "there is no NVIDIA GPU" \
        LD_LIBRARY_PATH="$driver" GPUGTIFF_NVCOMP="$nvcomp"
    code=0
    env GPUGTIFF_ENGINE=AUTO LD_LIBRARY_PATH="$driver" GPUGTIFF_NVCOMP="$nvcomp" \
        "${careful[@]}" gdalinfo -if GPUGTiff -checksum "$work/large.tif" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 0 ] && [ ! -s "$work/err" ] || fail "AUTO is not silent ($code):" "$(cat "$work/err")"
done
expected=$(gdalinfo -if GTiff -checksum "$work/large.tif" | grep Checksum)
grep -qxF -- "$expected" "$work/out" || fail "AUTO: other pixels than GTiff's"
echo "real-driver: AUTO says nothing and reads on"
