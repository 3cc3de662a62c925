# Every target installs what it needs on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TOOLS  := $(VENV)/.ready-tools
COMPAT := .venv-compat
TRITON := .venv-triton
ARM    := .venv-arm
VERSION ?=
TORCH  := .venv-torch-$(VERSION)
TESTS  ?=
STUDY  ?=
OPTIONS ?=
# Instruction sets that the kernels are checked for under sanitizers: those that this machine has.
WIDE   := avx2 $(shell grep -qsw avx512vl /proc/cpuinfo && echo avx512)

.DEFAULT_GOAL := help
.PHONY: help run test test-full test-compat test-triton test-torch test-native-asan test-native-tsan test-arm test-gpu test-faults lint bench reproduce docs dist setup clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY)  ## compare eight norms on digits, clean and with broken samples: two minutes
	$(BIN)/geonorm compare

test: $(TOOLS)  ## the quick tests, under five minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(TESTS)
	GEONORM_BACKEND=torch $(BIN)/python -m pytest -q -m "not slow" tests/functional/test_aug.py

test-full: $(TOOLS)  ## all tests, slow ones included, on the kernels and on torch
	GEONORM_BACKEND=native $(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=full $(TESTS)
	GEONORM_BACKEND=torch $(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=full $(TESTS)

test-compat: $(COMPAT)/.ready  ## tests with timm, torchvision, torchattacks, transformers and Lightning, in a separate environment
	$(COMPAT)/bin/python -m pytest tests/third_party -p no:cacheprovider $(TESTS)

test-triton: $(TRITON)/.ready  ## the Triton kernels in Triton's interpreter, and compiled, without a GPU; in a separate environment
	TRITON_INTERPRET=1 TRITON_CACHE_DIR=$(TRITON)/cache $(TRITON)/bin/python -m pytest -n 2 --dist worksteal -p no:cacheprovider tests/with_triton $(TESTS)
	TRITON_CACHE_DIR=$(TRITON)/cache $(TRITON)/bin/python -m benchmarks.gpu --check

test-torch: $(if $(VERSION),$(TORCH)/.ready)  ## the quick tests with another torch, in a separate environment: VERSION=2.9.1 PYTHON=python3.12
	@test -n "$(VERSION)" || { echo "test-torch: expected a version of torch, such as VERSION=2.9.1 (got none)" >&2; exit 2; }
	$(TORCH)/bin/python -m benchmarks.torch_versions $(TESTS)

test-native-asan: $(TOOLS)  ## 20,000 native calls by two threads at once under AddressSanitizer and UBSan
	@for isa in $(WIDE); do \
		$(BIN)/python src/geonorm/csrc/build.py --sanitize address --only $$isa --out build/libgeonorm-asan.so && \
		LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=src \
		$(BIN)/python tests/helpers/native_fuzz.py build/libgeonorm-asan.so 20000 --threads 2 || exit 1; \
	done

# Without random addresses, which ThreadSanitizer does not take everywhere. It sees the kernels, and not Python and torch.
test-native-tsan: $(TOOLS)  ## 20,000 native calls by two threads at once under ThreadSanitizer
	@for isa in $(WIDE); do \
		$(BIN)/python src/geonorm/csrc/build.py --sanitize thread --only $$isa --out build/libgeonorm-tsan.so && \
		LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libtsan.so)" TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
		PYTHONPATH=src setarch -R \
		$(BIN)/python tests/helpers/native_fuzz.py build/libgeonorm-tsan.so 20000 --threads 2 --own-pool || exit 1; \
	done

test-arm: $(ARM)/.ready  ## the kernels for 64-bit ARM, cross-compiled, in an emulator; on Debian, ten minutes
	OMP_NUM_THREADS=1 $(ARM)/python -m pytest -p no:cacheprovider -m "not slow" $(or $(TESTS),tests/ops/cpu/test_normalize.py tests/ops/cpu/test_statistics.py tests/functional/test_center.py)
	PYTHONPATH=src $(ARM)/python tests/helpers/native_fuzz.py $(ARM)/site/geonorm/ops/cpu/libgeonorm.so 2000

test-gpu: $(TOOLS)  ## check the layers and the lab on the GPU of this machine: a few minutes; writes out/gpu/check.txt
	PYTHONPATH=tests $(BIN)/python -m tests.gpu

test-faults: $(TOOLS)  ## kill, fill the disk, flip bits: what survives is counted, and written into docs/lab.md; ten minutes
	PYTHONPATH=. $(BIN)/python -m tests.faults

lint: $(TOOLS)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## measure speed relative to torch's layers, under 20 minutes; writes the tables of the docs
	$(BIN)/python src/geonorm/csrc/build.py # for all instruction sets: AVX2 is measured beside AVX-512
	$(BIN)/python -m benchmarks.run

reproduce: $(READY)  ## run a table or figure of the papers: STUDY=NAME (no STUDY: list them); OPTIONS="--preset paper"
	$(BIN)/geonorm reproduce $(or $(STUDY),--list) $(OPTIONS)

docs: $(VENV)/.ready-docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.ready-dist  ## build wheel, sdist and a bill of materials (CycloneDX) into dist/
	$(BIN)/python -m build --outdir dist
	@for wheel in dist/*-linux_*.whl; do \
		if [ -e "$$wheel" ]; then \
			PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel repair --wheel-dir dist "$$wheel" && rm "$$wheel" || exit 1; \
		fi; \
	done
	$(BIN)/python -m benchmarks.bill_of_materials dist/geonorm.cdx.json

setup: $(TOOLS)  ## create .venv and install what the other targets need, except test-compat

clean:  ## remove the environment and everything built
	rm -rf $(VENV) $(COMPAT) $(TRITON) $(ARM) .venv-torch-* build dist site out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/geonorm/csrc/*)
	@echo "Setting up $(VENV) and compiling the kernels (once; about two minutes) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,plots]"
	@touch $@

$(TOOLS): $(READY)
	@echo "Installing the tools for tests and checks (once; about a minute) ..."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[plots,lab,test,compat,lint,docs,dist]"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps pytorchcv # it depends on torchvision, which the models in the tests do not need
	@touch $@

# A separate environment, because a partly working torchvision breaks other packages.
$(COMPAT)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(COMPAT) (once; about two minutes) ..."
	$(PYTHON) -m venv $(COMPAT)
	$(COMPAT)/bin/pip install --quiet --constraint constraints.txt torch
	$(COMPAT)/bin/pip install --quiet --constraint constraints.txt --editable ".[test]" timm torchvision torchattacks transformers accelerate lightning
	@touch $@

# A separate environment: on a machine without a GPU torch does not bring triton, and takes other ways where it is there.
$(TRITON)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(TRITON) (once; about three minutes) ..."
	$(PYTHON) -m venv $(TRITON)
	$(TRITON)/bin/pip install --quiet --constraint constraints.txt torch
	$(TRITON)/bin/pip install --quiet --constraint constraints.txt --editable ".[test]"
	$(TRITON)/bin/pip install --quiet --no-deps triton==3.9.0
	@touch $@

# Without the constraints, which are those of one torch only.
.venv-torch-%/.ready: pyproject.toml
	@echo "Setting up .venv-torch-$* (once; about four minutes, 7 GB if this torch has no build for CPUs) ..."
	$(PYTHON) -m venv .venv-torch-$*
	echo "torch==$*" > .venv-torch-$*/constraints.txt
	.venv-torch-$*/bin/pip install --quiet --constraint .venv-torch-$*/constraints.txt torch
	.venv-torch-$*/bin/pip install --quiet --constraint .venv-torch-$*/constraints.txt --editable ".[plots,lab,test,compat]"
	.venv-torch-$*/bin/pip install --quiet --no-deps pytorchcv
	@touch $@

$(ARM)/.ready: tests/on_arm/environment.sh $(wildcard src/geonorm/csrc/*)
	@echo "Setting up $(ARM) (once; about five minutes) ..."
	tests/on_arm/environment.sh $(ARM)
	@touch $@

$(VENV)/.ready-docs: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	@touch $@

$(VENV)/.ready-dist: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dist]"
	@touch $@
