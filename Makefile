# Two commands for newcomers: `make demo` and `make test`. Each sets up its own virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread for each process of tests: those of several processes would wait for each other. And what one process has
# compiled, tests included, the others need not compile again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help demo test test-bench test-all test-processors test-haswell test-nehalem coverage test-torch test-federation test-browser test-long lint docs bench nightly clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[plot,report]'
	@touch $@

# What hardly anybody imports is compiled when somebody does.
UNUSED = '/(tests|pip|setuptools|pkg_resources|mypyc?|lexers|devtools|sqlalchemy|trio|onnx/backend)/'

$(VENV)/dev.stamp: pyproject.toml bench/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --editable '.[dev]' --editable './bench[data]'
	@$(BIN)/python -m compileall -qq -j 0 -x $(UNUSED) $(VENV)/lib || true  # as pip would, and on all cores
	@touch $@ $(VENV)/demo.stamp

# PyTorch has an environment of its own, which sees all that is in the other one: FLARE's processes are slower where
# PyTorch is installed, and its tests can run beside all others.
$(VENV)/torch/stamp: $(VENV)/dev.stamp
	$(BIN)/python -m venv --clear --without-pip $(VENV)/torch
	@$(BIN)/python -c "import site; print('import site; site.addsitedir(%r)' % site.getsitepackages()[0])" \
		>"$$($(VENV)/torch/bin/python -c 'import site; print(site.getsitepackages()[0])')/others.pth"
	$(subst pip install,pip --python $(VENV)/torch/bin/python install,$(PIP)) --no-compile 'fmtc[gpu]'
	@$(VENV)/torch/bin/python -c 'import torch'  # which compiles what it needs
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
# Of whole fits those where a last bit could come to decide: on borders, between equal clusters, where the view is chosen.
FITS = $(addprefix tests/test_estimator.py::test_, shapes_of_the_textbooks a_large_cluster_beside_small_ones \
	predict_on_the_training_rows_is_labels predict_is_labels_where_rows_repeat_and_clusters_stay_empty \
	a_row_does_not_care_about_its_batch probabilities_agree_with_predict_up_to_the_border \
	numbers_are_canonical \
	one_client_numbers_its_clusters_by_size same_seed_same_bytes_whatever_n_jobs rounded_messages_change_next_to_nothing \
	one_silo_is_spectral_clustering_with_predict missing_cells_are_no_shapes the_graph_view_is_the_same_whoever_chose_it)

test-bench: $(VENV)/dev.stamp ## the laboratory: baselines, data sets, comparisons, audits
	$(PYTEST) bench/tests bench/src --numprocesses=auto --dist=worksteal $(ARGS)

test-processors: $(VENV)/dev.stamp ## tests of numbers again, as two older processors would compute
	$(MAKE) --jobs=2 --output-sync test-haswell test-nehalem

# The first with the threads that the libraries start themselves: all other tests have one in each process.
test-haswell:
	OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES='$(filter X86_V4 AVX512%,$(DISPATCHED))' \
		$(BIN)/python -m pytest -q -k 'not import' $(ARGS) $(KERNELS)

test-nehalem:
	OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES='$(DISPATCHED)' \
		$(PYTEST) -q -k 'not import' $(ARGS) $(KERNELS) bench/tests/baselines $(FITS)

coverage: override ARGS += --cov --cov-report=term --cov-fail-under=95
coverage: test ## the same tests, and how much of the code they run: 95 % at least

test-torch: $(VENV)/torch/stamp ## the same kernels on PyTorch's tensors, which it installs
	$(subst $(BIN),$(VENV)/torch/bin,$(PYTEST)) $$(grep -rl mark.torch --include='*.py' tests bench/tests) -m torch --numprocesses=auto -q $(ARGS)

test-federation: $(VENV)/dev.stamp ## federations of real processes
	$(PYTEST) tests/federation bench/tests/federation -m 'federation and not long' --numprocesses=4 --dist=loadfile $(ARGS)

test-browser: $(VENV)/dev.stamp ## the report page in Chromium, which it installs where it can
	scripts/install-browser
	$(PYTEST) tests/browser bench/tests/browser -m browser $(ARGS)

test-long: $(VENV)/dev.stamp ## what other tests cover, too, on real data or by real processes; not in CI
	$(PYTEST) tests src bench/tests -m long --numprocesses=2 $(ARGS)

test-all: lint coverage test-bench test-processors test-federation test-browser test-long docs test-torch demo ## everything, one after the other

lint: $(VENV)/dev.stamp ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev.stamp ## the documentation, warnings are errors; docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html $(SPHINXOPTS) docs docs/_build/html

bench: $(VENV)/dev.stamp ## all numbers of README and docs (needs FMTC_DATA; many hours)
	@test -f bench/results/protocol.md || $(BIN)/fmtc-bench freeze --out bench/results  # commit it before the run
	$(BIN)/fmtc-bench paper --out bench/results
	$(BIN)/python bench/benchmarks/views.py
	$(BIN)/python bench/benchmarks/signals.py
	$(BIN)/python bench/benchmarks/mixture.py
	$(BIN)/python bench/benchmarks/choices.py
	$(BIN)/python bench/benchmarks/speed.py
	$(BIN)/python bench/benchmarks/growth.py
	$(BIN)/python bench/benchmarks/rounds.py
	$(BIN)/python bench/benchmarks/server.py
	$(BIN)/python bench/benchmarks/text.py
	$(BIN)/python bench/benchmarks/scale.py --clients 10 --rows 100000
	$(BIN)/python bench/benchmarks/flame.py after
	$(BIN)/python bench/benchmarks/performance.py
	$(BIN)/python bench/benchmarks/baselines.py
	$(BIN)/python bench/benchmarks/federation.py
	$(BIN)/python bench/benchmarks/readme.py

nightly: $(VENV)/dev.stamp ## stored fits of the comparison again: a fixed few, then 200 drawn ones (needs FMTC_DATA)
	$(BIN)/fmtc-bench reproduce bench/results
	$(BIN)/fmtc-bench reproduce bench/results --cells 200

clean: ## everything these commands made
	rm -rf $(VENV) build dist demo docs/_build docs/tutorials/gallery docs/api/generated .pytest_cache .mypy_cache .ruff_cache .coverage*
