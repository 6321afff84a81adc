# Every target sets itself up: the environment is made on first use and again when its inputs change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Peers that tests compare with need PyTorch, which is large, and so have an environment of their own.
ORACLE_VENV := .venv-oracle
ORACLE_INSTALLED := $(ORACLE_VENV)/.installed
# TensorFlow, which tfds's own builders prepare with, is large too.
PREPARE_VENV := .venv-prepare
PREPARE_INSTALLED := $(PREPARE_VENV)/.installed
# The examples show the library in other people's, each of which is large.
EXAMPLES_VENV := .venv-examples
EXAMPLES_INSTALLED := $(EXAMPLES_VENV)/.installed
# Sphinx, its theme and what they need, beside the library alone.
DOCS_VENV := .venv-docs
DOCS_INSTALLED := $(DOCS_VENV)/.installed
# The compilers for TPUs (0.7 GB) and for NVIDIA's GPUs (4.5 GB) cannot stand in one environment.
TPU_VENV := .venv-tpu
TPU_INSTALLED := $(TPU_VENV)/.installed
CUDA_VENV := .venv-cuda
CUDA_INSTALLED := $(CUDA_VENV)/.installed
# The npm package that runs classifiers in browsers, unpacked.
WEB_RUNTIME := build/onnxruntime-web/package
WANTED := --quiet --constraint constraints.txt
# Some machines set it. Every start would then compile all that it imports: three seconds of JAX.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-long test-rounding test-oracle test-networks test-networks-fast test-prepare test-browser test-examples test-compiled web-demo check docs format clean python-version

help:
	@echo "make demo          train a small network on real handwritten digits (about a minute)"
	@echo "make web-demo      make pages that read digits and names of places in the browser (needs npm)"
	@echo "make test          run every test but the long ones (about ten minutes)"
	@echo "make test-fast     run the quick selection of tests"
	@echo "make test-long     kill and damage runs in many ways and at random, install the wheel (some minutes)"
	@echo "make test-rounding run the tests of make test with other roundings and another seed"
	@echo "make test-oracle   compare with other people's code (installs PyTorch)"
	@echo "make test-networks compare every network with torchvision's or timm's (installs PyTorch)"
	@echo "make test-networks-fast  the same for one network of each kind"
	@echo "make test-prepare  prepare CIFAR-100 and ImageNet from tiny archives (installs TensorFlow)"
	@echo "make test-browser  look at the pages in Chromium (Debian's packages chromium and npm)"
	@echo "make test-examples run every example and the notebook (installs Equinox, Keras, Optuna and Jupyter)"
	@echo "make test-compiled compile functions and steps for TPUs and H100s (installs their compilers, takes hours)"
	@echo "make check         lint, formatting and types"
	@echo "make docs          build the documentation into docs/_build (read docs/_build/index.html)"
	@echo "make format        rewrite the sources in the project's format"
	@echo "make install       create $(VENV) with everything the other targets need"
	@echo "make clean         remove the environments and caches"

install: $(INSTALLED)

$(INSTALLED): EXTRAS := train,place-names,test
$(PREPARE_INSTALLED): EXTRAS := train,test,prepare
$(DOCS_INSTALLED): EXTRAS := docs
$(EXAMPLES_INSTALLED): EXTRAS := train,test,examples
$(TPU_INSTALLED): EXTRAS := train,test,tpu
$(CUDA_INSTALLED): EXTRAS := train,test,cuda13

# uv takes a tenth of pip's time. It does not read pip's settings: where these name an index of their
# own, pip installs. What uv said then is of use only if pip fails, too. pip trusts the certificates of
# the system; uv has to be told.
$(INSTALLED) $(PREPARE_INSTALLED) $(DOCS_INSTALLED) $(EXAMPLES_INSTALLED) $(TPU_INSTALLED) $(CUDA_INSTALLED): \
		pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv --clear $(@D)
	@echo "installing into $(@D): half a minute or more"
	@$(@D)/bin/python -m pip install $(WANTED) uv
	@said=$$($(@D)/bin/python -m uv pip install $(WANTED) --system-certs --python $(@D)/bin/python \
		--editable '.[$(EXTRAS)]' 2>&1) || \
		$(@D)/bin/python -m pip install $(WANTED) --editable '.[$(EXTRAS)]' || \
		{ echo "$$said" >&2; exit 1; }
	@touch $@

# By pip alone: its settings may name a build of PyTorch without CUDA, where uv would take gigabytes.
# Of PyTorch's many files few are imported, and need be compiled. The last two packages depend on
# others that are built with PyTorch, and that the tests do not reach.
$(ORACLE_INSTALLED): pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv --clear $(@D)
	@echo "installing into $(@D): a minute or more"
	@$(@D)/bin/python -m pip install $(WANTED) --no-compile --editable '.[test,oracle]'
	@$(@D)/bin/python -m pip install $(WANTED) --no-compile --no-deps torchcp setvaluedprediction
	@touch $@

python-version:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }

demo: $(INSTALLED)
	$(BIN)/python -m train.main --config=configs/digits.py

# In the order of the files: pytest-xdist's own puts those of few long tests last. The time of each
# test is in build/tests.xml.
test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder -m "not long" \
		--durations=25 --junit-xml=build/tests.xml

test-fast: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder -m "not slow and not long"

test-long: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal -m long tests/parts/program tests/parts/library

# A bound that holds by luck fails with another rounding or another run. AVX has no fused
# multiply-add, so that most sums are rounded otherwise; AVX2 gives the same bits as AVX-512 on some
# processors, and with SSE4_2 XLA (JAX 0.10.2) cannot convert float16. Every day has another seed.
INSTRUCTION_SET ?= AVX
RUN_SEED ?= $(shell date +%Y%m%d)
test-rounding: $(INSTALLED)
	XLA_FLAGS="$$XLA_FLAGS --xla_cpu_max_isa=$(INSTRUCTION_SET)" $(BIN)/python -m pytest \
		--numprocesses=2 --dist=loadfile --no-loadscope-reorder -m "not long" --run-seed=$(RUN_SEED)

test-oracle: $(ORACLE_INSTALLED)
	$(ORACLE_VENV)/bin/python -m pytest tests/peers/oracle

test-networks: $(ORACLE_INSTALLED)
	$(ORACLE_VENV)/bin/python -m pytest tests/peers/networks

test-networks-fast: $(ORACLE_INSTALLED)
	$(ORACLE_VENV)/bin/python -m pytest -m "not long" tests/peers/networks

test-prepare: $(PREPARE_INSTALLED)
	$(PREPARE_VENV)/bin/python -m pytest tests/peers/tensorflow

# Without npm, or without its registry, the tests of that page say that they are skipped.
test-browser: $(INSTALLED)
	@$(MAKE) --no-print-directory $(WEB_RUNTIME) || echo "no ONNX Runtime for browsers: the tests of train.export --format=web are skipped"
	$(BIN)/python -m pytest tests/peers/browser

# ONNX Runtime for browsers, of the version that train/prediction/web_page/runtime.py knows by its digests.
$(WEB_RUNTIME): train/prediction/web_page/runtime.py
	@command -v npm > /dev/null || { echo "npm is needed, Debian's package npm: it gets ONNX Runtime for browsers" >&2; exit 1; }
	@rm -rf $(dir $@) && mkdir -p $(dir $@)
	cd $(dir $@) && npm pack --loglevel=error --fetch-retries=1 --fetch-timeout=60000 onnxruntime-web@$$(sed -n 's/^VERSION = "\(.*\)"/\1/p' $(CURDIR)/$<)
	@cd $(dir $@) && tar xzf *.tgz && rm *.tgz && touch $(CURDIR)/$@

# The classifiers of the README as pages: digits to draw, and names of places to type.
web-demo: $(INSTALLED) $(WEB_RUNTIME)
	@test -f build/web-demo/runs/digits/results.json || \
		$(BIN)/python -m train.main --config=configs/digits.py --workdir=build/web-demo/runs/digits
	@test -f build/web-demo/runs/places/results.json || \
		$(BIN)/python -m train.main --config=configs/place_names.py --workdir=build/web-demo/runs/places
	@rm -rf build/web-demo/site && mkdir build/web-demo/site
	$(BIN)/python -m train.export --workdir=build/web-demo/runs/digits --coverage=0.95 --format=web \
		--onnxruntime_web=$(WEB_RUNTIME) --out=build/web-demo/site/digits
	$(BIN)/python -m train.export --workdir=build/web-demo/runs/places --coverage=0.9 --format=web \
		--onnxruntime_web=$(WEB_RUNTIME) --out=build/web-demo/site/places
	@echo "both pages: $(BIN)/python -m http.server --directory=build/web-demo/site"
	@echo "then open http://localhost:8000/digits/ and http://localhost:8000/places/"

test-examples: $(EXAMPLES_INSTALLED)
	$(EXAMPLES_VENV)/bin/python -m pytest tests/peers/examples

# Nothing runs. It fails if a program has more sorts, loops, messages or memory than in the committed
# results.
test-compiled: $(TPU_INSTALLED) $(CUDA_INSTALLED)
	$(TPU_VENV)/bin/python -m benchmarks.compiled --device=v5e --classes=1000 --ranks=5 \
		--against=benchmarks/results/compiled-v5e.json
	$(TPU_VENV)/bin/python -m benchmarks.compiled_steps --device=v5e \
		--against=benchmarks/results/compiled_steps-v5e.json
	$(CUDA_VENV)/bin/python -m benchmarks.compiled --device=h100 --classes=1000 --ranks=5 \
		--against=benchmarks/results/compiled-h100.json
	$(CUDA_VENV)/bin/python -m benchmarks.compiled_steps --device=h100 \
		--against=benchmarks/results/compiled_steps-h100.json

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A warning is an error, and every link inside has to lead somewhere; from scratch, so that none is missed.
docs: $(DOCS_INSTALLED)
	$(DOCS_VENV)/bin/python -m sphinx --builder html --fresh-env --fail-on-warning --quiet docs docs/_build
	@echo "open docs/_build/index.html"

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(ORACLE_VENV) $(PREPARE_VENV) $(EXAMPLES_VENV) $(DOCS_VENV) $(TPU_VENV) $(CUDA_VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
