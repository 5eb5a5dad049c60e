#!/usr/bin/env bash
# Reads and copies mutated files with gdal_translate under valgrind, and replays seeds of the C API.
# A file for which the built-in GTiff makes valgrind complain too is passed over.
#
#   fuzz/valgrind.sh [FILES]     so many mutated files, 8 by default
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GDAL_DRIVER_PATH
GDAL_DRIVER_PATH=$(tools/plugin-path.sh)
# 99: valgrind complained; a translation that fails is not our concern here.
check() {
    valgrind -q --error-exitcode=99 --log-file="$folder/log" "$@" >/dev/null 2>&1 || [ $? -ne 99 ]
}
failed=0
"$python" fuzz/differential/fuzz.py --emit "$folder" --count "${1:-8}"
for file in "$folder"/*.tif; do
    for options in '' '-co COMPRESS=LZW -co PREDICTOR=2'; do
        # shellcheck disable=SC2086
        check gdal_translate -q $options -of GPUGTiff "GPUGTIFF:$file" "$folder/out" && continue
        cp "$folder/log" "$folder/ours"
        # shellcheck disable=SC2086
        check gdal_translate -q $options -of GTiff "$file" "$folder/out" || continue
        failed=1
        mkdir -p target/fuzz/findings
        cp "$file" "target/fuzz/findings/valgrind-$(basename "$file")"
        echo "valgrind: target/fuzz/findings/valgrind-$(basename "$file")"
        cat "$folder/ours"
    done
done
cargo build --quiet --release -p gpugtiff-fuzz
target/release/gpugtiff-fuzz --target capi --seeds "$folder/capi"
check target/release/gpugtiff-fuzz --target capi "$folder"/capi/seed-{1,2,3,4,5} ||
    { failed=1; cat "$folder/log"; }
echo "valgrind: ${1:-8} files, each copied twice, and 5 sequences of C API calls"
exit $failed
