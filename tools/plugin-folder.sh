#!/usr/bin/env bash
# Makes the folder for GDAL_DRIVER_PATH. GDAL 3.6 looks into <folder>/3.6 if that is there, else
# into <folder>, and so does every other GDAL with its own number:
#
#   <folder>/gdal_GPUGTiff.so          the loader; in a GDAL of another version it registers nothing
#   <folder>/libgpugtiff-gdal3.6.so    the driver for the GDAL that it was built for
#   <folder>/3.6/                      links to the loader and to that GDAL's own plugins: the
#                                      variable replaces GDAL's default directory
#
#   tools/plugin-folder.sh <directory of cargo's output> <folder>
set -euo pipefail

release=$1 folder=$2
tools=$(cd "$(dirname "$0")" && pwd)
version=$(pkg-config --modversion gdal | sed -n 's/^\([0-9]*\.[0-9]*\).*/\1/p')
[ -n "$version" ] || { echo "plugin-folder: pkg-config does not tell GDAL's version" >&2; exit 1; }

# The copy is renamed into place: a process that has the old file loaded keeps it.
place() { # file target
    cmp -s "$1" "$2" || { cp "$1" "$2.$$" && mv -f "$2.$$" "$2"; }
}

mkdir -p "$folder/$version"
place "$release/libgpugtiff_loader.so" "$folder/gdal_GPUGTiff.so"
place "$release/libgpugtiff.so" "$folder/libgpugtiff-gdal$version.so"

own=$("$tools/plugin-path.sh" --gdal)
if [ -d "$own/$version" ]; then own=$own/$version; fi
# name -> target of every link that there has to be
declare -A wanted=([gdal_GPUGTiff.so]=../gdal_GPUGTiff.so)
for file in "$own"/*; do
    name=$(basename "$file")
    # An installed GPUGTiff is not the one that was built here.
    case $name in *GPUGTiff* | libgpugtiff*) continue ;; esac
    if [ -f "$file" ]; then wanted[$name]=$file; fi
done
for link in "$folder/$version"/*; do
    name=$(basename "$link")
    if [ -L "$link" ] && [ -z "${wanted[$name]-}" ]; then rm -f "$link"; fi
done
for name in "${!wanted[@]}"; do
    link=$folder/$version/$name
    [ "$(readlink "$link" || true)" = "${wanted[$name]}" ] || {
        ln -sfn "${wanted[$name]}" "$link.$$" && mv -fT "$link.$$" "$link"; }
done
