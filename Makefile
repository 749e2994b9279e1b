# Everything runs in .venv, which the first command makes; needs Python 3.11 or newer.
#
#   make demo    fit real terrain out of core, predict held-out heights, draw, trace; output in demo-output/
#   make test    the tests that start nothing, and one of each dear kind for each system; `make test WORKERS=8` where there are cores
#   make test-affected  of these the ones that a change since main can reach; `SINCE=HEAD~3`, `TIER=all` for all of them
#   make test-all       all tests that can run here, and those of dense plans and runs again with tiles of order 4 and least memory
#   make test-thorough  all combinations of parameters besides, long fuzzing, kills and soak
#   make test-oldest    the tests of `make test` with the oldest packages that pyproject.toml allows, in $(OLDEST)
#   make test-gpu  the tests that need a GPU, with the python3 that has CuPy; no set-up, no network
#   make check   format, lint, types, layers, docstrings, pages and their figures
#   make docs    the documentation site, in docs/_build; a warning is an error
#   make clean   remove all that make made

VENV ?= .venv
OLDEST ?= .venv-oldest
# First of these that is Python 3.11 or newer; `make PYTHON=...` names another.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
# Folder of shared data; without it the tests that need it are deselected and counted.
DATA ?= $(wildcard ../shared/data)
# Processes that run the tests, one thread of BLAS each: one more than the cores, since some tests wait.
WORKERS ?= $(shell expr $$(nproc) + 1)
TIER ?= commit
SINCE ?= main

bin := $(VENV)/bin
ready := $(VENV)/.ready
# The same for the site's own packages, so that tests and demo do without them.
ready-docs := $(VENV)/.ready-docs
ready-oldest := $(OLDEST)/.ready
# Named one by one: the links schedulers, kernels and apps at the top lead into ooc_chol.
code := ooc_chol ooc_chol_command.py docs/conf.py docs/versions.py tests $(wildcard examples benchmarks)

.PHONY: demo test test-affected test-all test-thorough test-oldest test-gpu check docs clean

demo: $(ready)
	@$(bin)/ooc-chol geostat demo --output demo-output --force

run-tests = $(bin)/python -m tests.run --processes $(WORKERS) $(if $(DATA),--data="$(DATA)")

test: $(ready)
	@$(run-tests) --tier commit

test-affected: $(ready)
	@files=$$($(bin)/python -m tests.affected --since $(SINCE)); \
	    if [ -n "$$files" ]; then $(run-tests) --tier $(TIER) $$files; else echo "no test reaches what differs from $(SINCE)"; fi

test-all: $(ready)
	@$(run-tests) --tier all
	@$(run-tests) --tier commit --granularity=hostile $$($(bin)/python -m tests.hostile)

test-thorough: $(ready)
	@$(run-tests) --tier all --thorough --hypothesis-profile=thorough
	@$(bin)/python -m tests.fuzz --minutes 30

# Of old packages: what they call in newer ones beneath them is deprecated, and NumPy ignores that its array has grown since.
of-old := -Wignore::DeprecationWarning "-Wignore:numpy.ndarray size changed:RuntimeWarning"
test-oldest: bin = $(OLDEST)/bin
test-oldest: $(ready-oldest)
	@$(run-tests) --tier commit $(of-old)

# The machine's own python3: a GPU machine has CuPy there. Needs CuPy, nvmath-python, perfetto, pytest and hypothesis; with
# pytest-xdist a process a GPU. What measures rates and free memory comes behind, one after the other.
GPUS ?= $(or $(shell nvidia-smi -L 2>/dev/null | grep -c GPU),1)
gpu-files = tests/cuda $$(grep -rlE 'mark\.(cuda|multigpu)' --include='test_*.py' tests/apps tests/host)
gpu-tests = PYTHONPATH=".$${PYTHONPATH:+:$$PYTHONPATH}" python3 -m pytest -q $(gpu-files) --require-cuda 1 -p no:benchmark
test-gpu:
	@processes=; if python3 -c 'import xdist' 2>/dev/null; then processes="-n $(GPUS) --dist loadfile"; fi; \
	    $(gpu-tests) $$processes -m "(cuda or multigpu) and not alone"
	@$(gpu-tests) -m "(cuda or multigpu) and alone"

check: $(ready)
	@$(bin)/ruff format --check $(code)
	@$(bin)/ruff check $(code)
	@$(bin)/mypy
	@$(bin)/lint-imports
	@$(bin)/python -m tests.docstrings
	@$(bin)/python -m tests.prose
	@$(bin)/python -m benchmarks quote --check
	@$(bin)/python -m benchmarks stale | tail -n 1

docs: $(ready-docs)
	@version=$$($(bin)/python -c 'import ooc_chol; print(ooc_chol.__version__)') && \
	    $(bin)/python -m sphinx --fail-on-warning --fresh-env --quiet -d docs/_build/doctrees -b html docs docs/_build/$$version
	@$(bin)/python docs/versions.py docs/_build
	@echo "the site is in docs/_build, a folder for each version: open index.html there"

clean:
	@rm -rf $(VENV) $(OLDEST) demo-output build dist ooc_chol.egg-info docs/_build
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(code) -name __pycache__ -type d -prune -exec rm -rf {} +

# A virtual environment in the folder of the target.
define set-up
	@for python in $(PYTHON); do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "ooc_chol needs Python 3.11 or newer, but none of these is: $(PYTHON); install one, or name yours: make PYTHON=..." >&2; \
	    exit 1; \
	fi; \
	echo "setting up $(@D) with $$($$python --version), once: a minute or two"; \
	$$python -m venv $(@D)
endef

# Once, and again when pyproject.toml changes. The mark comes last: an interrupted set-up is done again.
$(ready): pyproject.toml
	$(set-up)
	@$(bin)/python -m pip install -qq --disable-pip-version-check -e '.[dev,plots]'
	@touch $@

$(ready-oldest): pyproject.toml
	$(set-up)
	@$(@D)/bin/python -m tests.oldest > $(@D)/oldest.txt
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check -e . -r $(@D)/oldest.txt
	@touch $@

$(ready-docs): $(ready)
	@$(bin)/python -m pip install -qq --disable-pip-version-check -e '.[docs]'
	@touch $@
