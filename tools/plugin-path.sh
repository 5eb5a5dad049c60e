#!/usr/bin/env bash
# Prints the value for GDAL_DRIVER_PATH: the folder that `make build` makes (tools/plugin-folder.sh),
# which has links to the plugins of this GDAL's own directory.
#
#   tools/plugin-path.sh [--gdal]     GDAL's own directory, whether it exists or not
set -euo pipefail

if [ "${1-}" != --gdal ]; then
    echo "$(cd "$(dirname "$0")/.." && pwd)/target/gdalplugins"
    exit
fi

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
echo "$gdals"
