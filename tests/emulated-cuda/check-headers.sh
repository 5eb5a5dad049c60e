#!/usr/bin/env bash
# Holds the emulated libraries against NVIDIA's own headers, against the symbols of the real ones
# and, for calls that need no GPU, against the answers of the real nvCOMP and nvJPEG2000. The
# wheels are fetched from PyPI into target/nvidia, once; nothing of them is kept in the repository. What can't be fetched is skipped, loudly.
#
#   check-headers.sh [libemulated_cuda.so]    default: cargo builds it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${NVIDIA_CACHE:-$root/target/nvidia}
python=${PYTHON:-python3}
. "$root/tests/fetch.sh"
library=${1:-}

if [ -z "$library" ]; then
	cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "$root/target"
	library=$root/target/release/libemulated_cuda.so
fi

skip() { # what reason
	printf '\n*** SKIPPED: the emulated library was NOT held against %s:\n*** %s\n\n' "$1" "$2" >&2
}

"$here/link.sh" "$library" "$cache/emulated"
# Only where it is wanted: the real library's name is among the links.
emulated() { LD_LIBRARY_PATH=$cache/emulated "$@"; }
flags=(-std=gnu11 -Wall -Wextra -Werror)

cuda=nvidia-cuda-runtime-cu12 cuda_version=12.9.79
driver_header=no
if fetch_wheel "$cache" "$cuda" "$cuda_version"; then
	# Only the driver's header: the runtime's would want a compiler's headers as well.
	mkdir -p "$cache/cuda"
	ln -sfn "$cache/$cuda-$cuda_version/nvidia/cuda_runtime/include/cuda.h" "$cache/cuda/cuda.h"
	driver_header=yes
else
	skip "cuda.h" "$cuda $cuda_version can't be fetched"
fi

for pair in 5:5.3.0.16 6:6.0.0.12; do
	major=${pair%%:*} version=${pair#*:} package=nvidia-libnvcomp-cu12
	if ! fetch_wheel "$cache" "$package" "$version"; then
		skip "nvCOMP $version" "$package can't be fetched"
		continue
	fi
	wheel=$cache/$package-$version/nvidia/libnvcomp
	include=(-I"$here/headers" -isystem "$wheel/include")
	real=$wheel/lib64/libnvcomp.so.$major
	export EMUCUDA_NVCOMP=${major}000

	gcc "${flags[@]}" "${include[@]}" "$here/headers/answers.c" -o "$cache/answers-emulated-$major" \
		"$cache/emulated/libcuda.so.1"
	gcc "${flags[@]}" "${include[@]}" "$here/headers/answers.c" -o "$cache/answers-real-$major" \
		"$real" -Wl,-rpath,"$(dirname "$real")" -Wl,--allow-shlib-undefined
	diff <(emulated "$cache/answers-emulated-$major") <("$cache/answers-real-$major" 2>&-)
	if [ "$driver_header" = yes ]; then
		gcc "${flags[@]}" "${include[@]}" -isystem "$cache/cuda" "$here/headers/roundtrip.c" \
			-o "$cache/roundtrip-$major" "$cache/emulated/libcuda.so.1"
		emulated "$cache/roundtrip-$major"
	fi
	echo "nvCOMP $version: declarations agree, answers are the same"
done

# own_symbols prefix real: every name that is ours is the real library's as well.
own_symbols() {
	names() { nm -D --defined-only "$1" | awk -v prefix="$prefix" 'index($3, prefix) == 1 { sub(/@.*/, "", $3); print $3 }' | sort; }
	local prefix=$1 unknown
	unknown=$(comm -23 <(names "$library") <(names "$2"))
	[ -n "$(names "$library")" ] || { echo "no symbol begins with $prefix" >&2; return 1; }
	[ -z "$unknown" ] || { echo "not in $2: $unknown" >&2; return 1; }
}

cufile=nvidia-cufile-cu12 cufile_version=1.14.1.1
if [ "$driver_header" = yes ] && fetch_wheel "$cache" "$cufile" "$cufile_version"; then
	wheel=$cache/$cufile-$cufile_version/nvidia/cufile
	gcc "${flags[@]}" -isystem "$wheel/include" -isystem "$cache/cuda" "$here/headers/cufile.c" \
		-o "$cache/cufile" "$cache/emulated/libcuda.so.1"
	CUFILE_LOGFILE_PATH=/dev/null emulated "$cache/cufile"
	own_symbols cuFile "$wheel/lib/libcufile.so.0"
	echo "cuFile $cufile_version: declarations and symbols agree"
else
	skip "cuFile" "$cufile $cufile_version can't be fetched"
fi

nvjpeg2k=nvidia-nvjpeg2k-cu12 nvjpeg2k_version=0.11.0.51
if [ "$driver_header" = yes ] && fetch_wheel "$cache" "$nvjpeg2k" "$nvjpeg2k_version"; then
	wheel=$cache/$nvjpeg2k-$nvjpeg2k_version/nvidia/nvjpeg2k
	real=$wheel/lib/libnvjpeg2k.so.0
	include=(-I"$here/headers" -isystem "$wheel/include" -isystem "$cache/cuda")
	gcc "${flags[@]}" "${include[@]}" "$here/headers/nvjpeg2k-roundtrip.c" \
		-o "$cache/nvjpeg2k-roundtrip" "$cache/emulated/libcuda.so.1"
	emulated "$cache/nvjpeg2k-roundtrip"
	gcc "${flags[@]}" "${include[@]}" "$here/headers/nvjpeg2k-answers.c" \
		-o "$cache/nvjpeg2k-answers-emulated" "$cache/emulated/libcuda.so.1"
	gcc "${flags[@]}" "${include[@]}" "$here/headers/nvjpeg2k-answers.c" \
		-o "$cache/nvjpeg2k-answers-real" "$real" -Wl,-rpath,"$(dirname "$real")"
	# Headers without samples are corrupt to OpenJPEG: the emulated parser is not to care.
	diff <(EMUCUDA_J2K_CORRUPT=decode emulated "$cache/nvjpeg2k-answers-emulated") <("$cache/nvjpeg2k-answers-real")
	own_symbols nvjpeg2k "$real"
	echo "nvJPEG2000 $nvjpeg2k_version: declarations and symbols agree, answers are the same"
else
	skip "nvJPEG2000" "$nvjpeg2k $nvjpeg2k_version can't be fetched"
fi
