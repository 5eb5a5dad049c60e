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

# The URI that this machine's own sources give for its own release, whatever mirror it is.
mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # $(…) is apt's own syntax here
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v release="$codename" '$1 == release && $2 == "main" { uri = $3 } END { print uri }'
}

# Leaves the package's files in $cache/<suite>; the log of a failure in $cache/<suite>.log.
fetch() (
    suite=$1 uri=$2
    work=$cache/.$suite
    rm -rf "$work"
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/out"
    # trixie and sid are signed with bookworm's key too, so the signature is checked.
    echo "deb $uri $suite main" >"$work/sources.list"
    options=(
        -o Dir::State="$work/state" -o Dir::State::status=/dev/null
        -o Dir::Cache="$work/cache"
        -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
        -o Acquire::Check-Valid-Until=false # sid on a mirror may lag; it is still signed
        -o Acquire::http::Timeout=30 -o Acquire::Retries=2
        -o APT::Sandbox::User="$(id -un)" # _apt may not be allowed into the checkout
    )
    cd "$work/out"
    apt-get "${options[@]}" -qq update &&
        apt-get "${options[@]}" -qq download libgdal-dev &&
        dpkg-deb -x libgdal-dev_*.deb "$work/root" &&
        mv "$work/root" "$cache/$suite" &&
        rm -rf "$work"
)

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
        uri=$(mirror)
        if [ -z "$uri" ]; then
            skip "$suite" "apt's sources name no Debian mirror"
            continue
        fi
        if ! fetch "$suite" "$uri" >"$cache/$suite.log" 2>&1; then
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
