#!/usr/bin/env bash
# link.sh <libemulated_cuda.so> <directory>: the names under which the library is asked for.
# With the directory in LD_LIBRARY_PATH a process sees an NVIDIA driver and nvCOMP 6 and 5.
# They are links to one file: the loader maps it once, so that all names share their state.
set -euo pipefail
library=$(realpath "$1")
mkdir -p "$2"
for name in libcuda.so libcuda.so.1 libnvcomp.so.6 libnvcomp.so.5; do
	ln -sfn "$library" "$2/$name"
done
