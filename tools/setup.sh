#!/usr/bin/env bash
# Makes sure of what the build needs: GDAL with headers, tools and Python bindings, a C++
# compiler, a recent Rust. Missing packages are installed with apt-get. Looks for the
# things themselves, not for packages, so that a GDAL from elsewhere will do; installs
# nothing when nothing is missing.
#
#   tools/setup.sh [test|qgis]     with what the tests, or those with QGIS, need beyond that
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
purpose=${1:-build}

die() { printf 'setup: %s\n' "$@" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
imports() { "$python" -c "import $1" >/dev/null 2>&1; }

# Debian packages whose purpose is not served yet.
missing() {
    have g++ || echo g++
    have pkg-config || echo pkg-config
    { have pkg-config && pkg-config --exists gdal; } || echo libgdal-dev
    { have gdal_translate && have gdalinfo; } || echo gdal-bin
    [ -x "$python" ] || echo python3
    imports ensurepip || echo python3-venv
    imports numpy || echo python3-numpy
    imports osgeo.gdal_array || echo python3-gdal
    # A second opinion on what we write, for the tests.
    [ "$purpose" != test ] || have tiffinfo || echo libtiff-tools
    [ "$purpose" != qgis ] || imports qgis.core || echo python3-qgis
}

# What can be done without, and what it means to do without it. ISA-L inflates imagery faster
# than libdeflate; rasterio is a program to be tried; the others try out the installed C API
# (tests/installed.sh).
wished() {
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libisal\.so\.2' ||
        echo libisal2 Deflate is decoded by libdeflate alone
    [ "$purpose" = test ] || return 0
    imports rasterio || echo python3-rasterio rasterio is NOT tested
    have cmake || echo cmake the installed C API is NOT tested
    have clang || echo clang the C API is NOT tried with clang
    have valgrind || echo valgrind the C examples run under gcc\'s sanitizer instead
}

install_packages() {
    have apt-get || die "missing: $*" \
        "there is no apt-get here: install them (Debian's names) with your own package manager"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || die "missing: $*" "as root: apt-get install $*"
        sudo=(sudo)
    fi
    echo "setup: installing $*"
    local install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get install -y --no-install-recommends "$@")
    # Package lists may be absent or stale: refresh them once, only if needed.
    "${install[@]}" >/dev/null 2>&1 || {
        "${sudo[@]}" apt-get update || die "apt-get update failed; missing: $*"
        "${install[@]}" || die "apt-get can't install: $*"
    }
}

# Asked of rustc, not of cargo: an old cargo can't even parse our Cargo.toml.
check_rust() {
    local wanted found hint="install the current stable Rust with rustup, or 'rustup update stable'"
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    { have rustc && have cargo; } ||
        die "no Rust compiler found: rustc $wanted or newer is needed" "$hint"
    found=$(rustc --version | awk '{ print $2 }')
    [ "$(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" = "$wanted" ] ||
        die "rustc $found ($(command -v rustc)) is too old: $wanted or newer is needed" "$hint"
}

check_rust
mapfile -t packages < <(missing)
if [ ${#packages[@]} -gt 0 ]; then
    install_packages "${packages[@]}"
    mapfile -t packages < <(missing)
    [ ${#packages[@]} -eq 0 ] || die "still not usable after installing: ${packages[*]}"
fi
if have apt-get; then
    # One by one: a package that cannot be had keeps none of the others away.
    while read -r package consequence; do
        (install_packages "$package" </dev/null) || echo "setup: without $package: $consequence" >&2
    done < <(wished)
fi
