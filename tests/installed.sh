#!/usr/bin/env bash
# The library as programs outside see it: built and installed by CMake, found by find_package and
# by pkg-config, in a tree that was moved; the examples compiled by gcc and clang, warnings denied,
# their results held against GTiff's, under valgrind, and on the emulated CUDA driver if that is
# built (`make emulator`); the plugin and the library one instance; uninstalled without a trace.
# Cargo's target directory is shared, so that nothing is built twice.
#
#   tests/installed.sh
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix moved=$work/moved
target=${CARGO_TARGET_DIR:-$repo/target}
emulated=$target/emulated-cuda
# Nobody's settings but ours.
unset GDAL_DRIVER_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH DESTDIR LD_LIBRARY_PATH MAKEFLAGS
unset GPUGTIFF_LIBRARY CUDA_VISIBLE_DEVICES "${!GPUGTIFF_@}" "${!EMUCUDA_@}"

fail() {
    printf 'installed: %s\n' "$@" >&2
    exit 1
}

skip() { # what reason
    printf '\n*** SKIPPED: %s:\n*** %s\n\n' "$1" "$2" >&2
}

# Runs a command, which says something only if it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || fail "$*" "$(cat "$work/log")"
}

command -v cmake >/dev/null || {
    skip "the installed library was NOT tested" "there is no cmake"
    exit 0
}

# What is below a directory, directories left out.
files() { # directory
    (cd "$1" && find . ! -type d | sort)
}

builds() {
    echo "installed: build"
    quietly cmake -S . -B "$work/build" -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
        -DGPUGTIFF_CARGO_TARGET_DIR="$target"
    quietly cmake --build "$work/build"
    local before
    before=$(stat -c '%Y %i' "$work"/build/lib/libgpugtiff.so.*.*)
    sleep 1.1
    cmake --build "$work/build" >"$work/log" 2>&1
    [ "$before" = "$(stat -c '%Y %i' "$work"/build/lib/libgpugtiff.so.*.*)" ] &&
        ! grep -q Compiling "$work/log" || fail "a second build builds again" "$(cat "$work/log")"
}

installs() {
    echo "installed: install"
    # A directory that is there before stays.
    mkdir -p "$prefix/lib"
    quietly cmake --install "$work/build"
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
    driver=libgpugtiff-gdal$(gdal-config --version | cut -d. -f1,2).so
    local expected="./include/gpugtiff.h
./lib/cmake/GPUGTiff/GPUGTiffConfig.cmake
./lib/cmake/GPUGTiff/GPUGTiffConfigVersion.cmake
./lib/gdalplugins/gdal_GPUGTiff.so
./lib/gdalplugins/$driver
./lib/libgpugtiff.so
./lib/libgpugtiff.so.${version%%.*}
./lib/libgpugtiff.so.$version
./lib/pkgconfig/gpugtiff.pc"
    [ "$(files "$prefix")" = "$expected" ] || fail "other files are installed:" "$(files "$prefix")"
    readelf -d "$prefix/lib/libgpugtiff.so" | grep -qF "soname: [libgpugtiff.so.${version%%.*}]" ||
        fail "the library has another soname"
    quietly cmake --install "$work/build" # a second time
}

# For packages: below DESTDIR, with the plugin in GDAL's own directory, beside the library or not.
stages() {
    local gdals link
    gdals=$(tools/plugin-path.sh --gdal)
    for where in "$(gdal-config --prefix)" /usr/local; do
        echo "installed: DESTDIR, prefix $where"
        DESTDIR=$work/stage quietly cmake --install "$work/build" --prefix "$where"
        link=$work/stage$gdals/$driver
        [ -L "$link" ] && [ -f "$work/stage$gdals/gdal_GPUGTiff.so" ] || fail "no plugin in GDAL's directory:" "$(files "$work/stage")"
        ! readlink "$link" | grep -qF "$work" || fail "the plugin points to the stage: $(readlink "$link")"
        case $(readlink "$link") in
        /*) [ "$(readlink "$link")" = "$where/lib/libgpugtiff.so.${version%%.*}" ] ;;
        *) [ "$(readlink -f "$link")" = "$work/stage$where/lib/libgpugtiff.so.$version" ] ;;
        esac || fail "the plugin points to $(readlink "$link")"
        DESTDIR=$work/stage quietly cmake --build "$work/build" --target uninstall
        [ ! -d "$work/stage" ] || [ -z "$(ls -A "$work/stage")" ] ||
            fail "uninstall leaves" "$(find "$work/stage")"
    done
}

# The plugin where the user says, below the prefix or elsewhere.
chooses() {
    local asked link
    for asked in plugins/here "$work/elsewhere"; do
        echo "installed: GPUGTIFF_PLUGIN_DIR"
        quietly cmake -S . -B "$work/chosen-build" -DCMAKE_INSTALL_PREFIX="$work/chosen" \
            -DGPUGTIFF_CARGO_TARGET_DIR="$target" -DGPUGTIFF_PLUGIN_DIR="$asked"
        quietly cmake --build "$work/chosen-build"
        quietly cmake --install "$work/chosen-build"
        link=$(cd "$work/chosen" && cd "$asked" && pwd)/gdal_GPUGTiff.so
        [ "$(find "$work/chosen" "$work/elsewhere" -name gdal_GPUGTiff.so 2>/dev/null)" = "$link" ] ||
            fail "the plugin is not where GPUGTIFF_PLUGIN_DIR says: $asked"
        # A list on its own: grep -q would hang up on gdalinfo.
        GDAL_DRIVER_PATH=$(dirname "$link") gdalinfo --formats >"$work/log"
        grep -q GPUGTiff "$work/log" || fail "GDAL does not load the plugin from $asked"
        quietly cmake --build "$work/chosen-build" --target uninstall
        [ -z "$(find "$work/chosen" "$work/elsewhere" ! -type d 2>/dev/null)" ] || fail "uninstall leaves a file"
    done
}

warnings=(-Wall -Wextra -Wpedantic -Werror)

# Compiles the examples into $work/<name>-pkg-config and $work/<name>-cmake.
compiles() { # name cc cxx
    local name=$1 cc=$2 cxx=$3 flags program
    echo "installed: examples with $name"
    mkdir "$work/$name-pkg-config"
    export PKG_CONFIG_PATH=$moved/lib/pkgconfig
    pkg-config --exact-version="$version" gpugtiff || fail "pkg-config does not find it"
    read -ra flags <<<"$(pkg-config --cflags --libs gpugtiff) -Wl,-rpath,$moved/lib"
    for program in read_window read_device; do
        quietly "$cc" -std=c11 -g -O1 "${warnings[@]}" "examples/$program.c" \
            -o "$work/$name-pkg-config/$program" "${flags[@]}" -lm -ldl
    done
    quietly "$cxx" -std=c++17 -g -O1 "${warnings[@]}" examples/convert.cpp \
        -o "$work/$name-pkg-config/convert" "${flags[@]}"
    # The header alone, with nothing before it, and once more.
    printf '#include <gpugtiff.h>\n#include <gpugtiff.h>\n' >"$work/alone.c"
    quietly "$cc" -x c -std=c11 "${warnings[@]}" -fsyntax-only -I"$moved/include" "$work/alone.c"
    quietly "$cxx" -x c++ -std=c++17 "${warnings[@]}" -fsyntax-only -I"$moved/include" "$work/alone.c"
    unset PKG_CONFIG_PATH
    quietly cmake -S examples -B "$work/$name-cmake" -DCMAKE_PREFIX_PATH="$moved" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
        -DCMAKE_C_FLAGS="${warnings[*]}" -DCMAKE_CXX_FLAGS="${warnings[*]}"
    quietly cmake --build "$work/$name-cmake"
}

windows=('0' '1' '0 3 2 260 170' '1 100 50 64 64' '0 406 1200 1 1')

# What read_window or read_device says about windows of a raster.
says() { # program raster window…
    local window level rest
    for window in "${@:3}"; do
        read -r level rest <<<"$window"
        echo "= $2 $window"
        # shellcheck disable=SC2086  # numbers
        "$1" -l "$level" "$work/rasters/$2.tif" $rest || return
    done
}

# What the examples say about each raster, into <answers>/<raster>.txt, and a copy of it,
# <answers>/<raster>.tif.
runs() { # directory-of-programs answers raster…
    local raster
    mkdir "$2"
    for raster in "${@:3}"; do
        says "$1/read_window" "$raster" "${windows[@]}" >"$2/$raster.txt"
        "$1/convert" -mb 1 -co COMPRESS=ZSTD -co BLOCKXSIZE=128 -co BLOCKYSIZE=128 \
            "$work/rasters/$raster.tif" "$2/$raster.tif"
    done
}

# The same words and bytes as those that were held against GTiff.
agrees() { # answers
    local file
    for file in "$1"/*; do
        cmp "$file" "$work/answers/$(basename "$file")" || fail "$1 differs"
    done
}

# A call that must fail: with this exit code and this in its message.
refuses() { # code text command…
    local code=0
    "${@:3}" >"$work/log" 2>&1 || code=$?
    [ "$code" = "$1" ] && grep -qF -- "$2" "$work/log" ||
        fail "exit code $code, expected $1 with '$2': ${*:3}" "$(cat "$work/log")"
}

# The examples' own errors: said, counted, and nothing left behind.
refusals() { # directory-of-programs [wrapper…]
    local programs=$1 with=("${@:2}") byte=$work/rasters/byte.tif
    refuses 1 GPUGTIFF_OUT_OF_IMAGE "${with[@]}" "$programs/read_window" "$byte" 400 0 8 1
    refuses 1 GPUGTIFF_ "${with[@]}" "$programs/convert" "$work/damaged.tif" "$work/no.tif"
    [ ! -e "$work/no.tif" ] || fail "a conversion that failed leaves a file"
}

more_refusals() { # directory-of-programs
    local byte=$work/rasters/byte.tif
    refuses 2 usage: "$1/read_window"
    refuses 2 usage: "$1/convert" "$byte"
    refuses 1 GPUGTIFF_OPEN_FAILED "$1/read_window" "$work/none.tif"
    refuses 1 GPUGTIFF_BAD_ARGUMENT "$1/read_window" -l 7 "$byte"
    refuses 1 GPUGTIFF_BAD_ARGUMENT "$1/convert" -co LEVEL=none "$byte" "$work/no.tif"
    [ ! -e "$work/no.tif" ] || fail "a conversion that failed leaves a file"
}

# Into device memory: the same words as read_window's.
runs_on_device() { # directory-of-programs raster window…
    says "$1/read_window" "${@:2}" >"$work/words"
    LD_LIBRARY_PATH=$emulated says "$1/read_device" "${@:2}" >"$work/device-words" ||
        fail "$1/read_device fails: $2"
    cmp "$work/words" "$work/device-words" || fail "$1/read_device differs: $2"
}

# What read_device must refuse where there is a GPU.
device_refusals() { # directory-of-programs
    local byte=$work/rasters/byte.tif
    export LD_LIBRARY_PATH=$emulated
    refuses 1 GPUGTIFF_OUT_OF_IMAGE "$1/read_device" "$byte" 400 0 8 1
    refuses 1 GPUGTIFF_CORRUPT "$1/read_device" "$work/damaged.tif"
    refuses 1 "cuDeviceGet: invalid device" "$1/read_device" -d 7 "$byte"
    local call n=0
    for call in Init DeviceGet DevicePrimaryCtxRetain CtxSetCurrent StreamCreate MemAlloc; do
        n=$((n + 1))
        EMUCUDA_FAIL=$n:2 refuses 1 "read_device: cu$call: out of memory (2)" "$1/read_device" "$byte"
    done
    unset LD_LIBRARY_PATH
}

# read_device, everywhere it was compiled.
uses_devices() {
    local byte=$work/rasters/byte.tif raster programs
    echo "installed: read_device without a GPU"
    refuses 2 usage: "$work/gcc-cmake/read_device"
    refuses 2 usage: "$work/gcc-cmake/read_device" -x 1 "$byte"
    refuses 1 GPUGTIFF_OPEN_FAILED "$work/gcc-cmake/read_device" "$work/none.tif"
    mkdir "$work/no-driver"
    : >"$work/no-driver/libcuda.so.1"
    LD_LIBRARY_PATH=$work/no-driver refuses 1 "no NVIDIA driver can be used: " "$work/gcc-cmake/read_device" "$byte"
    "$python" -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null ||
        refuses 1 "no NVIDIA driver can be used: libcuda.so.1" "$work/gcc-cmake/read_device" "$byte"
    [ -e "$emulated/libcuda.so.1" ] || {
        skip "read_device was NOT run on a device" "there is no emulated driver: make emulator"
        return
    }
    echo "installed: read_device on the emulated driver"
    runs_on_device "$work/gcc-pkg-config" byte "${windows[@]:1}"
    for raster in float int lzma; do
        runs_on_device "$work/gcc-pkg-config" "$raster" "${windows[2]}"
    done
    EMUCUDA_REPORT=$work/report.json runs_on_device "$work/gcc-cmake" byte "${windows[0]}"
    "$python" tests/installed/rasters.py device "$byte" "$work/report.json"
    for programs in "$work"/clang-{cmake,pkg-config}; do
        [ ! -d "$programs" ] || runs_on_device "$programs" byte "${windows[3]}"
    done
}

# The program in the README.
shows_the_shortest() {
    local flags said expected
    echo "installed: README's program"
    sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d' >"$work/mean.c"
    read -ra flags <<<"$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --cflags --libs gpugtiff)"
    quietly gcc -std=c11 "${warnings[@]}" "$work/mean.c" -o "$work/mean" "${flags[@]}" -Wl,-rpath,"$moved/lib"
    said=$("$work/mean" "$work/rasters/float.tif")
    expected=$("$python" tests/installed/rasters.py mean "$work/rasters/float.tif" 256)
    [ "${said##* }" = "$expected" ] || fail "README's program says '$said', expected $expected"
    refuses 1 "$work/none.tif" "$work/mean" "$work/none.tif"
}

# Memory, by valgrind where it is there, and by gcc's sanitizers.
checks_memory() {
    local flags source compiler
    if command -v valgrind >/dev/null; then
        echo "installed: under valgrind"
        local with=(valgrind --quiet --error-exitcode=99 --leak-check=full
            --show-leak-kinds=definite --errors-for-leak-kinds=definite)
        quietly "${with[@]}" "$work/gcc-cmake/read_window" "$work/rasters/byte.tif" 3 2 260 170
        quietly "${with[@]}" "$work/gcc-cmake/convert" -mb 1 "$work/rasters/float.tif" "$work/valgrind.tif"
        refusals "$work/gcc-cmake" "${with[@]}"
    else
        skip "the examples were NOT run under valgrind" "there is no valgrind"
    fi
    echo "installed: under the address sanitizer"
    mkdir "$work/asan"
    read -ra flags <<<"$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --cflags --libs gpugtiff)"
    for source in read_window.c read_device.c convert.cpp; do
        compiler=gcc
        [ "${source##*.}" = c ] || compiler=g++
        quietly "$compiler" -g -fsanitize=address,undefined -fno-sanitize-recover=all \
            "examples/$source" -o "$work/asan/${source%.*}" "${flags[@]}" -Wl,-rpath,"$moved/lib" -lm -ldl
    done
    runs "$work/asan" "$work/asan/answers" byte float
    agrees "$work/asan/answers"
    refusals "$work/asan"
    [ ! -e "$emulated/libcuda.so.1" ] || {
        runs_on_device "$work/asan" float "${windows[3]}"
        device_refusals "$work/asan"
    }
}

# A program that links the library and lets GDAL load the plugin; with a copy for a plugin instead
# of the link there are two, and the library says so.
is_one_instance() {
    local flags
    echo "installed: one instance"
    read -ra flags <<<"$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --cflags --libs gpugtiff gdal)"
    # Not pedantic: GDAL's headers are not.
    quietly gcc -std=c11 -Wall -Wextra -Werror tests/installed/one_instance.c -o "$work/one_instance" \
        "${flags[@]}" -Wl,-rpath,"$moved/lib"
    GDAL_DRIVER_PATH=$moved/lib/gdalplugins quietly "$work/one_instance" "$work/rasters/byte.tif" 1
    mkdir "$work/copied"
    cp -L "$moved/lib/gdalplugins/"{gdal_GPUGTiff.so,"$driver"} "$work/copied"
    GDAL_DRIVER_PATH=$work/copied quietly "$work/one_instance" "$work/rasters/byte.tif" 2
}

uninstalls() {
    echo "installed: uninstall"
    touch "$prefix/include/other.h"
    quietly cmake --install "$work/build" # what stages() installed last is forgotten
    quietly cmake --build "$work/build" --target uninstall
    [ "$(cd "$prefix" && find . -mindepth 1 | sort | xargs)" = "./include ./include/other.h ./lib" ] ||
        fail "uninstall leaves, or takes too much:" "$(find "$prefix")"
    refuses 2 "Nothing is installed" cmake --build "$work/build" --target uninstall
}

builds
installs
mv "$prefix" "$moved"
mkdir "$work/rasters"
"$python" tests/installed/rasters.py make "$work/rasters"
head -c 700000 "$work/rasters/int.tif" >"$work/damaged.tif"

compiles gcc gcc g++
if command -v clang >/dev/null && command -v clang++ >/dev/null; then
    compiles clang clang clang++
else
    skip "the examples were NOT compiled by clang" "there is no clang"
fi

echo "installed: running the examples"
runs "$work/gcc-pkg-config" "$work/answers" byte float int lzma
"$python" tests/installed/rasters.py statistics "$work/rasters" "$work"/answers/*.txt
"$python" tests/installed/rasters.py same "$work/rasters" "$work/answers"
refusals "$work/gcc-pkg-config"
more_refusals "$work/gcc-pkg-config"
for programs in "$work"/{gcc,clang}-cmake "$work/clang-pkg-config"; do
    [ -d "$programs" ] || continue
    runs "$programs" "$programs/answers" byte float
    agrees "$programs/answers"
done

echo "installed: tensor.py"
export GPUGTIFF_LIBRARY=$moved/lib/libgpugtiff.so.${version%%.*}
for raster in "$work"/rasters/*.tif; do
    for window in '0' '1 100 50 64 64'; do
        read -r level rest <<<"$window"
        echo "= $(basename "$raster" .tif) $window"
        # shellcheck disable=SC2086  # numbers
        "$python" examples/tensor.py -l "$level" "$raster" $rest
    done
done >"$work/tensors"
"$python" tests/installed/rasters.py tensors "$work/rasters" "$work/tensors"
refuses 2 usage: "$python" examples/tensor.py
refuses 1 GPUGTIFF_OPEN_FAILED "$python" examples/tensor.py "$work/none.tif"
unset GPUGTIFF_LIBRARY

uses_devices
shows_the_shortest
checks_memory
is_one_instance
mv "$moved" "$prefix"
stages
chooses
uninstalls
echo "installed: fine"
