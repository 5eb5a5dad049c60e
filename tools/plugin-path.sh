#!/usr/bin/env bash
# Prints the value for GDAL_DRIVER_PATH: our plugin's directory, then GDAL's own. The
# variable replaces GDAL's default directory, so leaving that out would lose its plugins.
#
#   tools/plugin-path.sh [--gdal]     GDAL's own directory alone, whether it exists or not
set -euo pipefail

ours=$(cd "$(dirname "$0")/.." && pwd)/target/gdalplugins

# A directory for which GDAL was configured, else gdalplugins beside the library: the one that
# pkg-config links, unless that is the system's.
gdals=$(pkg-config --variable=plugindir gdal 2>/dev/null || true)
if [ -z "$gdals" ]; then
    library=$(pkg-config --libs-only-L gdal 2>/dev/null | sed -n 's/^-L\([^ ]*\).*/\1/p' || true)/libgdal.so
    [ -e "$library" ] || library=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
        awk '/libgdal\.so/ { print $NF; exit }' || true)
    [ -n "$library" ] || library=$(pkg-config --variable=libdir gdal 2>/dev/null || true)/libgdal.so
    gdals=$(dirname "$(readlink -f "$library")")/gdalplugins
fi

if [ "${1-}" = --gdal ]; then
    echo "$gdals"
elif [ -d "$gdals" ]; then
    echo "$ours:$gdals"
else
    echo "$ours"
fi
