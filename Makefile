# Two commands for newcomers: `make demo` and `make test`. Each sets up its own virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread for each process of tests: those of several processes would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help demo test test-all test-processors coverage test-torch test-federation test-browser lint docs bench clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[plot,report]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --editable '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x /tests/ $(VENV)/lib || true  # as pip would, and on all cores
	@touch $@ $(VENV)/demo.stamp

$(VENV)/torch.stamp: $(VENV)/dev.stamp
	$(PIP) --no-compile --editable '.[gpu]'
	@$(BIN)/python -m compileall -qq -j 0 -x /tests/ $(VENV)/lib || true
	@touch $@

demo: $(VENV)/demo.stamp ## the tables of four hospitals, from files to a page in your browser; all in demo/
	@if [ -t 1 ] && [ -n "$$DISPLAY$$WAYLAND_DISPLAY" -o "$$(uname)" = Darwin ]; then show=--open; fi; \
	$(BIN)/fmtc demo --out demo --force $$show

test: $(VENV)/dev.stamp ## all tests but those below
	$(PYTEST) --numprocesses=auto --dist=worksteal $(ARGS)

# OpenBLAS and NumPy can be told to compute as older processors do; NumPy knows what it can leave out.
DISPATCHED = $(shell $(BIN)/python -c \
	"from numpy._core._multiarray_umath import __cpu_dispatch__ as found; print(*found)")
KERNELS = tests/linalg tests/kernels tests/mixture tests/conformance/test_couplings.py
METHODS = tests/baselines tests/test_estimator.py
# With the threads that the libraries start themselves: all other tests have one in each process.
NUMERICAL = $(BIN)/python -m pytest -k 'not test_scikit_learn and not import' -q --numprocesses=auto --dist=worksteal $(ARGS)

test-processors: $(VENV)/dev.stamp ## tests of numbers again, as two older processors would compute
	OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES='$(filter X86_V4 AVX512%,$(DISPATCHED))' $(NUMERICAL) $(KERNELS)
	OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES='$(DISPATCHED)' $(NUMERICAL) $(KERNELS) $(METHODS)

coverage: ARGS += --cov --cov-report=term --cov-fail-under=95
coverage: test ## the same tests, and how much of the code they run: 95 % at least

test-torch: $(VENV)/torch.stamp ## the same kernels on PyTorch's tensors, which it installs
	$(PYTEST) $$(grep -rl mark.torch --include='*.py' tests) -m torch --numprocesses=auto -q $(ARGS)

test-federation: $(VENV)/dev.stamp ## federations of real processes
	$(PYTEST) tests/federation -m federation --numprocesses=4 --dist=loadfile $(ARGS)

test-browser: $(VENV)/dev.stamp ## the report page in Chromium, which it installs where it can
	scripts/install-browser
	$(PYTEST) tests/browser -m browser $(ARGS)

test-all: lint coverage test-processors test-federation test-browser docs test-torch demo ## everything, one after the other

lint: $(VENV)/dev.stamp ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev.stamp ## the documentation, warnings are errors; docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html $(SPHINXOPTS) docs docs/_build/html

bench: $(VENV)/dev.stamp ## all numbers of README and docs (needs FMTC_DATA; many hours)
	$(BIN)/fmtc bench paper --out results --splits 5
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/signals.py
	$(BIN)/python benchmarks/mixture.py
	$(BIN)/python benchmarks/choices.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/text.py
	$(BIN)/python benchmarks/scale.py --clients 10 --rows 100000
	$(BIN)/python benchmarks/flame.py after
	$(BIN)/python benchmarks/performance.py
	$(BIN)/python benchmarks/baselines.py
	$(BIN)/python benchmarks/federation.py
	$(BIN)/python benchmarks/readme.py

clean: ## everything these commands made
	rm -rf $(VENV) build dist demo docs/_build docs/tutorials/gallery docs/api/generated .pytest_cache .mypy_cache .ruff_cache .coverage*
