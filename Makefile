# GPUGTiff: build, run, test, bench. `make help` lists the targets.

# The interpreter that has GDAL's bindings: the system's own, whatever python3 is on PATH.
PYTHON ?= /usr/bin/python3
VENV := .venv
PLUGIN := target/gdalplugins/gdal_GPUGTiff.so
export PYTHON
# Where rustup puts cargo, for a shell that has not read its profile since.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Given on the command line: make run IN=… OUT=…; passed on by the environment, so that
# spaces survive.
export IN OUT
# How long make fuzz and make fuzz-asan run.
MINUTES ?= 60
# No make below us: cargo must not look for a jobserver that it was not given.
unexport MAKEFLAGS MFLAGS

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup setup-test plugin build run test lint fmt test-rust test-headers \
	test-python test-memory test-installed test-fuzz test-qgis fuzz fuzz-asan emulator kernels \
	check-kernels header bench clean

help: ## list the targets
	@echo 'make run                        build, convert a sample raster, compare with GTiff'
	@echo 'make run IN=a.tif OUT=b.tif     the same with a file of yours'
	@echo 'make bench ARGS=--quick         a short benchmark (benches/bench.py --help)'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 32

setup: ## install what the build needs and is missing (apt-get), check rustc
	@tools/setup.sh

setup-test: ## the same for the tests: libtiff-tools, clang, cmake, valgrind, rustfmt, clippy, .venv
	@tools/setup-test.sh $(VENV)

# cargo decides what is stale.
build: setup
	cargo build --release
	@tools/plugin-folder.sh target/release $(dir $(PLUGIN))

plugin: build ## build the plugin and print the line that lets GDAL find it
	@echo "$(PLUGIN) is ready. To let programs find it that use the GDAL $$(pkg-config --modversion gdal) it was built for:"
	@printf 'export GDAL_DRIVER_PATH=%q\n' "$$(tools/plugin-path.sh)"

run: build ## convert a raster through GPUGTiff (IN=a.tif OUT=b.tif) and compare
	@GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" $(PYTHON) tools/run.py "$${IN-}" "$${OUT-}"

test: lint test-rust test-headers check-kernels test-python test-installed test-fuzz ## set up and run every test

lint: setup-test ## rustfmt, clippy and rustdoc, warnings denied
	cargo fmt --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --release --no-deps --document-private-items

fmt: setup-test ## format the Rust sources
	cargo fmt

# In release mode: the dependencies (two C libraries among them) are compiled once for the
# plugin and the tests, and the tests run the code that is shipped.
test-rust: setup-test ## cargo test: units, the engine suite, the emulated driver, kernels, faults
	cargo test --release --workspace
	GPUGTIFF_HARDWARE_SMALL=1 GPUGTIFF_EMULATED_CUDA=$(CURDIR)/target/release/deps/libemulated_cuda.so \
		cargo test --release --test hardware -- --ignored --test-threads=1

# libcuda and nvCOMP for the tests, under the names that programs ask for.
emulator: setup ## build the emulated CUDA driver
	cargo build --release -p emulated-cuda
	@tests/emulated-cuda/link.sh target/release/libemulated_cuda.so target/emulated-cuda

kernels: setup-test ## compile the CUDA kernels to PTX with the pinned NVRTC
	$(PYTHON) tools/kernels.py
	$(PYTHON) tools/kernels.py --docs

check-kernels: setup-test ## the PTX is the kernels', ptxas takes it, our FFI is nvCOMP's
	$(PYTHON) tools/kernels.py --check --assemble
	PYTHON=$(VENV)/bin/python tests/emulated-cuda/check-headers.sh

header: setup ## make include/gpugtiff.h from src/api
	GPUGTIFF_HEADER=write cargo test --release --test header

test-headers: setup ## compile the shim against the headers of GDAL 3.6, 3.10 and 3.13
	tests/headers.sh

test-python: build emulator setup-test ## pytest with the built plugin (PYTEST_ARGS='-k name')
	PYTHON=$(VENV)/bin/python tests/real-driver.sh
	PYTHON=$(VENV)/bin/python tests/foreign-gdal.sh
	GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" $(VENV)/bin/python -m pytest \
		$$(grep -qi '^pytest-xdist' tests/requirements.txt && echo --numprocesses=2) \
		tests/python $(PYTEST_ARGS)
	@echo 'Random files and requests once more, on the CUDA engine and the emulated driver:'
	@# Fewer of them: the LZW and PackBits kernels are interpreted.
	GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" LD_LIBRARY_PATH=$(CURDIR)/target/emulated-cuda \
		GPUGTIFF_ENGINE=CUDA GPUGTIFF_VERIFY=NO GPUGTIFF_CASES=$${GPUGTIFF_CASES:-2000} \
		$(VENV)/bin/python -m pytest \
		$$(grep -qi '^pytest-xdist' tests/requirements.txt && echo --numprocesses=2) \
		tests/python/test_random.py tests/python/test_walks.py tests/python/test_masks.py \
		tests/python/test_jpeg2000.py \
		$(PYTEST_ARGS) || [ $$? -eq 5 ] # 5: none was picked

# `make test` has a sample of these.
test-memory: build setup-test ## read, write and recode out of memory, 280 times (GPUGTIFF_MEMORY_RUNS=…)
	GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" GPUGTIFF_MEMORY_RUNS=$${GPUGTIFF_MEMORY_RUNS:-280} \
		$(VENV)/bin/python -m pytest tests/python/test_no_memory.py -k test_no_memory -s $(PYTEST_ARGS)

# After the build, in whose target directory CMake finds everything done.
test-installed: build emulator setup-test ## install by CMake into a temporary prefix, build and run the examples
	tests/installed.sh

test-qgis: build setup-test ## install QGIS if it is missing (apt-get), and try the driver in it
	@tools/setup.sh qgis
	GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" $(VENV)/bin/python -m pytest tests/python/test_qgis.py

# Two minutes: ten targets for four seconds each, then the differential fuzzer.
test-fuzz: build setup-test ## fuzz for two minutes (GPUGTIFF_SEED repeats a run)
	cargo run --release -p gpugtiff-fuzz -- --seconds 4
	GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" $(VENV)/bin/python fuzz/differential/fuzz.py --seconds 78

fuzz: build setup-test ## fuzz with libFuzzer, and differentially (MINUTES=60)
	PYTHON=$(VENV)/bin/python fuzz/run.sh $(MINUTES)

fuzz-asan: build setup-test ## the differential fuzzer under AddressSanitizer, a sample under valgrind (MINUTES=60)
	PYTHON=$(VENV)/bin/python fuzz/asan-run.sh $(MINUTES)

bench: build ## measure against GTiff, write docs/benchmarks (ARGS='--quick')
	@if [ -e examples/limit.rs ]; then cargo build --release --example limit; fi
	@mkdir -p target/bench
	@ln -sf ../release/libgpugtiff.so target/bench/libgpugtiff.so.0
	for program in read write threads; do \
		gcc -O2 -Wall -Wextra -pthread -Iinclude -o target/bench/$$program benches/$$program.c \
			$$(pkg-config --cflags --libs gdal) -Wl,--as-needed -Ltarget/release \
			-lgpugtiff '-Wl,-rpath,$$ORIGIN'; \
	done
	GDAL_DRIVER_PATH="$$(tools/plugin-path.sh)" $(PYTHON) benches/bench.py $(ARGS)

clean: ## remove everything built, the .venv too
	rm -rf target $(VENV)
