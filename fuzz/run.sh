#!/usr/bin/env bash
# make fuzz: half of the time for the Rust targets under libFuzzer, half for the differential fuzzer.
#
#   fuzz/run.sh MINUTES
set -euo pipefail
cd "$(dirname "$0")/.."
half=$(($1 * 30))
failed=0
fuzz/libfuzzer.sh $((half / 10 + 1)) || failed=1
GDAL_DRIVER_PATH=$(tools/plugin-path.sh) "${PYTHON:-/usr/bin/python3}" fuzz/differential/fuzz.py --seconds $half ||
    failed=1
exit $failed
