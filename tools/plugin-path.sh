#!/usr/bin/env bash
# Prints the value for GDAL_DRIVER_PATH: our plugin's directory, then GDAL's own. The
# variable replaces GDAL's default directory, so leaving that out would lose its plugins.
set -euo pipefail

ours=$(cd "$(dirname "$0")/.." && pwd)/target/gdalplugins

# A directory for which GDAL was configured, else gdalplugins beside the library.
gdals=$(pkg-config --variable=plugindir gdal 2>/dev/null || true)
if [ -z "$gdals" ]; then
    library=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
        awk '/libgdal\.so/ { print $NF; exit }' || true)
    [ -n "$library" ] || library=$(pkg-config --variable=libdir gdal 2>/dev/null || true)/libgdal.so
    gdals=$(dirname "$(readlink -f "$library")")/gdalplugins
fi

if [ -d "$gdals" ]; then
    echo "$ours:$gdals"
else
    echo "$ours"
fi
