#!/usr/bin/env bash
# link.sh <libemulated_cuda.so> <directory> [--without <name>]…: the names under which the library
# is asked for. With the directory in LD_LIBRARY_PATH a process sees an NVIDIA driver, nvCOMP 6
# and 5, cuFile and nvJPEG2000; a name that is left out is not installed there.
# They are links to one file: the loader maps it once, so that all names share their state.
set -euo pipefail
library=$(realpath "$1") directory=$2
shift 2
mkdir -p "$directory"
for name in libcuda.so libcuda.so.1 libnvcomp.so.6 libnvcomp.so.5 libcufile.so.0 libnvjpeg2k.so.0; do
	case " $* " in
	*" --without $name "*) rm -f "$directory/$name" ;;
	*) ln -sfn "$library" "$directory/$name" ;;
	esac
done
