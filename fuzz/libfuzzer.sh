#!/usr/bin/env bash
# Runs the Rust fuzz targets under libFuzzer and AddressSanitizer.
#
#   fuzz/libfuzzer.sh SECONDS [TARGET…]     each target, or those named, for SECONDS
#
# Stable rustc has sanitizers and coverage behind RUSTC_BOOTSTRAP. What is found is in
# target/fuzz/findings; what covers more than the inputs before stays in target/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
host=$(rustc -vV | sed -n 's/^host: //p')
flags='-fsanitize=address -fno-omit-frame-pointer -g1'

cargo build --quiet --release -p gpugtiff-fuzz
# With --target, build scripts are not instrumented.
RUSTC_BOOTSTRAP=1 CFLAGS=$flags CXXFLAGS=$flags RUSTFLAGS='-Zsanitizer=address --cfg fuzzing
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares' \
    cargo build --quiet --release --manifest-path fuzz/libfuzzer/Cargo.toml --target "$host" --target-dir target/libfuzzer
program=target/libfuzzer/$host/release/gpugtiff-libfuzzer

targets=("$@")
[ $# -gt 0 ] || targets=(directory lzw packbits deflate zstd predictors tile jpeg2000 options capi)
mkdir -p target/fuzz/findings
failed=0
for target in "${targets[@]}"; do
    corpus=target/fuzz/corpus/$target
    target/release/gpugtiff-fuzz --target "$target" --seeds "$corpus"
    echo "== $target"
    log=target/fuzz/$target.log
    # Leaks are valgrind's to find: GDAL keeps what it registers until the process ends.
    GPUGTIFF_FUZZ_TARGET=$target ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0 \
        "$program" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=3000 -malloc_limit_mb=1500 \
        -max_len=65536 -use_value_profile=1 -print_final_stats=1 ${GPUGTIFF_SEED:+-seed=$GPUGTIFF_SEED} \
        -artifact_prefix="target/fuzz/findings/$target-" "$corpus" >"$log" 2>&1 ||
        { failed=1; echo "FAILED: $target"; grep -v '^#' "$log" | tail -n 60; }
    grep -E 'stat::number_of_executed_units|^INFO: Seed|^Done|^#[0-9]+.*DONE' "$log" || true
done
exit $failed
