#!/usr/bin/env bash
# Compiles the shim, warnings denied, against the headers of the installed GDAL and of
# those in Debian trixie (3.10) and sid (3.13). Nothing is installed: the packages are
# fetched with apt in a state directory of our own and unpacked below target/headers,
# once. What can't be fetched is skipped, loudly.
#
#   tests/headers.sh [file.cpp…]     default: src/shim/*.cpp
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."
. tests/fetch.sh

cache=$PWD/target/headers
sources=("$@")
[ ${#sources[@]} -gt 0 ] || sources=(src/shim/*.cpp)
[ ${#sources[@]} -gt 0 ] || { echo "headers: no source in src/shim" >&2; exit 1; }

# GDAL's headers come by -I, not -isystem: -Woverloaded-virtual reports at the hidden
# base function, and g++ keeps quiet about system headers.
flags=(-std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Woverloaded-virtual -Werror
    -Isrc/shim -Iinclude)

skipped=()
skip() { # suite reason…
    skipped+=("$1")
    printf '\n*** SKIPPED: the shim was NOT compiled against the GDAL headers of %s:\n*** %s\n\n' \
        "$1" "${*:2}" >&2
}

compile() { # name include-dir…
    local name=$1 includes=("${@:2}") version source
    version=$(sed -n 's/^# *define GDAL_RELEASE_NAME *"\(.*\)".*/\1/p' \
        "${includes[@]/%//gdal_version.h}" 2>/dev/null | head -n 1)
    for source in "${sources[@]}"; do
        g++ "${flags[@]}" "${includes[@]/#/-I}" "$source"
    done
    echo "headers: GDAL ${version:-?} ($name): ${#sources[@]} file(s), no warning"
}

read -ra installed <<<"$(pkg-config --cflags-only-I gdal | sed 's/-I//g')"
[ ${#installed[@]} -gt 0 ] || installed=(/usr/include)
compile installed "${installed[@]}"

for suite in trixie sid; do
    if [ ! -d "$cache/$suite" ]; then
        mkdir -p "$cache"
        if ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
            skip "$suite" "no apt-get and dpkg-deb on this machine"
            continue
        fi
        read -r uri _ < <(mirror) || true
        if [ -z "${uri:-}" ]; then
            skip "$suite" "apt's sources name no Debian mirror"
            continue
        fi
        if ! fetch_deb "$cache/$suite" "$uri" "$suite" main libgdal-dev \
            >"$cache/$suite.log" 2>&1; then
            skip "$suite" "libgdal-dev can't be fetched: $(tail -n 3 "$cache/$suite.log")"
            continue
        fi
    fi
    # cpl_config.h may lie in an architecture's directory.
    mapfile -t found < <(find "$cache/$suite" \( -name gdal.h -o -name cpl_config.h \) \
        -printf '%h\n' | sort -u)
    compile "$suite" "${found[@]}"
done
[ ${#skipped[@]} -eq 0 ] || echo "headers: SKIPPED: ${skipped[*]}" >&2
