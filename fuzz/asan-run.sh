#!/usr/bin/env bash
# make fuzz-asan: the differential fuzzer with our driver under AddressSanitizer; then a few of its
# cases with the plain plugin under valgrind, where that is installed.
#
#   fuzz/asan-run.sh MINUTES
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
plugins=$(fuzz/asan-build.sh)
runtime=$(gcc -print-file-name=libasan.so)
export GPUGTIFF_FUZZ_OURS="LD_PRELOAD=$(readlink -f "$runtime") $(readlink -f "$(gcc -print-file-name=libstdc++.so.6)")
ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1:max_allocation_size_mb=4000
GDAL_DRIVER_PATH=$plugins
MALLOC_PERTURB_=0
GPUGTIFF_FUZZ_MB=0
PYTHONMALLOC=malloc"
# The sanitizer takes two to five times as long, and memory of its own.
export GPUGTIFF_FUZZ_TIMEOUT=120 GPUGTIFF_FUZZ_NO_MEMORY=1
failed=0
GDAL_DRIVER_PATH=$(tools/plugin-path.sh) "$python" fuzz/differential/fuzz.py --seconds $(($1 * 60)) || failed=1
if command -v valgrind >/dev/null; then
    fuzz/valgrind.sh || failed=1
fi
exit $failed
