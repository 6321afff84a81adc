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
# Sphinx and its theme, beside the program, whose fields and networks are in tables of the pages.
DOCS_VENV := .venv-docs
DOCS_INSTALLED := $(DOCS_VENV)/.installed
# The npm package that runs classifiers in browsers, unpacked.
WEB_RUNTIME := build/onnxruntime-web/package
WANTED := --quiet --constraint constraints.txt
# Some machines set it. Every start would then compile all that it imports: three seconds of JAX.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-parts test-peers peers-oracle peers-networks peers-tensorflow peers-examples peers-browser test-endurance test-mutations check docs format clean python-version

help:
	@echo "make demo          train on real handwritten digits and show sets (half a minute)"
	@echo "make test          run a test of every promise (one and a half minutes)"
	@echo "make test-all      and of what the promises rest on, with the examples in docstrings"
	@echo "make test-peers    compare with other people's code (installs PyTorch, TensorFlow and more)"
	@echo "                   PEERS=oracle takes one of them: $(PEERS)"
	@echo "make test-endurance  kill runs, damage files, try devices, processes and roundings (hours)"
	@echo "make test-mutations  break the code in known ways and see a test fail (ten minutes)"
	@echo "make check         lint, formatting and types"
	@echo "make docs          build the documentation into docs/_build (read docs/_build/index.html)"
	@echo "make format        rewrite the sources in the project's format"
	@echo "make install       create $(VENV) with everything the other targets need"
	@echo "make clean         remove the environments and caches"

install: $(INSTALLED)

$(INSTALLED): EXTRAS := train,test
$(PREPARE_INSTALLED): EXTRAS := train,test,prepare
$(DOCS_INSTALLED): EXTRAS := train,docs
$(EXAMPLES_INSTALLED): EXTRAS := train,test,examples

# uv takes a tenth of pip's time. It does not read pip's settings: where these name an index of their
# own, pip installs. What uv said then is of use only if pip fails, too. pip trusts the certificates of
# the system; uv has to be told.
$(INSTALLED) $(PREPARE_INSTALLED) $(DOCS_INSTALLED) $(EXAMPLES_INSTALLED): \
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

# A linear classifier is often in doubt: its sets have one to three digits.
demo: $(INSTALLED)
	$(BIN)/python -m train.main --config=digits --config.model.name=linear --workdir=runs/digits
	$(BIN)/python -m train.evaluate --workdir=runs/digits --coverage=0.9
	$(BIN)/python -m train.predict --workdir=runs/digits --split=test --coverage=0.9 --html=runs/digits/sets.html
	@echo
	@echo "Open runs/digits/sets.html. Next, photographs of yours with published weights (README):"
	@echo "    source $(BIN)/activate"
	@echo "    python -m train.embed --weights=resnet50.pth --images=photos --out=features.npz"

# In the order of the files: pytest-xdist's own puts those of few long tests last. A worker that dies
# ends the tests: pytest-xdist (3.8) would start its file again and again.
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --max-worker-restart=0 --dist=loadfile --no-loadscope-reorder

test: $(INSTALLED)
	$(PYTEST)

test-all: test test-parts

test-parts: $(INSTALLED)
	$(PYTEST) --durations=20 --doctest-modules tests/parts topk_jax

# A folder of tests/peers each.
PEERS := oracle networks tensorflow examples browser
test-peers: $(addprefix peers-,$(PEERS))

peers-oracle peers-networks: $(ORACLE_INSTALLED)
	$(ORACLE_VENV)/bin/python -m pytest tests/peers/$(@:peers-%=%)

peers-tensorflow: $(PREPARE_INSTALLED)
	$(PREPARE_VENV)/bin/python -m pytest tests/peers/tensorflow

peers-examples: $(EXAMPLES_INSTALLED)
	$(EXAMPLES_VENV)/bin/python -m pytest tests/peers/examples

# Without npm, or without its registry, the tests of that page say that they are skipped.
peers-browser: $(INSTALLED)
	@$(MAKE) --no-print-directory $(WEB_RUNTIME) || echo "no ONNX Runtime for browsers: the tests of train.export --format=web are skipped"
	$(BIN)/python -m pytest tests/peers/browser

# A bound that holds by luck fails with another rounding or another run. AVX has no fused
# multiply-add, so that most sums are rounded otherwise; AVX2 gives the same bits as AVX-512 on some
# processors, and with SSE4_2 XLA (JAX 0.10.2) cannot convert float16. Every day has another seed.
INSTRUCTION_SET ?= AVX
RUN_SEED ?= $(shell date +%Y%m%d)
test-endurance: $(INSTALLED)
	$(PYTEST) -o faulthandler_timeout=7200 tests/endurance
	TOPK_JAX_EVERY_ROW=1 XLA_FLAGS="$$XLA_FLAGS --xla_cpu_max_isa=$(INSTRUCTION_SET)" \
		$(PYTEST) --run-seed=$(RUN_SEED) tests/promises tests/parts

test-mutations: $(INSTALLED)
	$(BIN)/python -m tests.mutations

# ONNX Runtime for browsers, of the version that train/package/web/web.py knows by its digests.
$(WEB_RUNTIME): train/package/web/web.py
	@command -v npm > /dev/null || { echo "npm is needed, Debian's package npm: it gets ONNX Runtime for browsers" >&2; exit 1; }
	@rm -rf $(dir $@) && mkdir -p $(dir $@)
	cd $(dir $@) && npm pack --loglevel=error --fetch-retries=1 --fetch-timeout=60000 onnxruntime-web@$$(sed -n 's/^VERSION = "\(.*\)"/\1/p' $(CURDIR)/$<)
	@cd $(dir $@) && tar xzf *.tgz && rm *.tgz && touch $(CURDIR)/$@

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
	rm -rf $(VENV) $(ORACLE_VENV) $(PREPARE_VENV) $(EXAMPLES_VENV) $(DOCS_VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
