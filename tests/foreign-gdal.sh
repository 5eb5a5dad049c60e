#!/usr/bin/env bash
# A process with a GDAL that is not ours: rasterio's wheel from PyPI, which carries its own libgdal,
# with GDAL_DRIVER_PATH set. It must work as without us, register nothing and map no second libgdal;
# and with GDAL's own bindings in the same process, those must have the driver. Nothing is installed:
# wheels are unpacked below target/, once (36 MB, which is why they are no test requirement). What
# can't be fetched is skipped, loudly.
#
#   tests/foreign-gdal.sh      after `make plugin`
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/fetch.sh

cache=$PWD/target/foreign
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
[ -e target/gdalplugins/gdal_GPUGTiff.so ] || { echo "foreign-gdal: no plugin: run make plugin" >&2; exit 1; }

paths=
for pair in rasterio:1.4.4 affine:2.4.0 attrs:24.2.0 click:8.1.7 cligj:0.7.2 certifi:2024.8.30 pyparsing:3.1.4; do
    if ! fetch_wheel "$cache" "${pair%:*}" "${pair#*:}"; then
        printf '\n*** SKIPPED: NOT tried in a foreign GDAL:\n*** %s can'\''t be fetched\n\n' "$pair" >&2
        exit 0
    fi
    paths+=$cache/${pair%:*}-${pair#*:}:
done

# GPUGTIFF_REPLACE_GTIFF would show at once if the driver were registered.
GDAL_DRIVER_PATH=$(tools/plugin-path.sh) GPUGTIFF_REPLACE_GTIFF=YES PYTHONPATH=$paths \
    timeout 120 "$python" tests/foreign-gdal.py "$work"
