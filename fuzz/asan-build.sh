#!/usr/bin/env bash
# Builds the plugin with AddressSanitizer (Rust, the C++ shim, the C codecs) into target/asan, and
# prints the folder for GDAL_DRIVER_PATH, made as that of `make build` is. Stable rustc has the sanitizer behind RUSTC_BOOTSTRAP; the
# library has no runtime of its own, so whoever loads it preloads one: fuzz/asan-run.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS='-Zsanitizer=address'
flags='-fsanitize=address -fno-omit-frame-pointer -g1'
export CFLAGS=$flags CXXFLAGS=$flags
# With --target, build scripts are not instrumented.
cargo build --release --target "$host" --target-dir target/asan >&2
folder=target/asan/gdalplugins
tools/plugin-folder.sh "target/asan/$host/release" "$folder"
echo "$PWD/$folder"
