# Everything a developer or a CI machine runs. `make` lists the targets; the first one used sets up .venv by itself.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SOURCES := repro tests .ci
# Test processes side by side; 0 runs everything in one process, which a debugger needs.
JOBS ?= auto
# Tests of one file stay in one process, so that a server or a wheel made once for a file is made once.
PARALLEL := -n $(JOBS) --dist loadfile
# The other Pythons that the unit tests run on, when they are on this machine.
PYTHONS ?= 3.10 3.12 3.13
PYENV_ROOT ?= $(HOME)/.pyenv
find_python = $(firstword $(wildcard $(PYENV_ROOT)/versions/$(1).*/bin/python) $(shell command -v python$(1) 2>/dev/null))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-real test-real-full test-pythons lint bench wheelhouse clean check-python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PYTHON=python3.12 make TARGET   uses that interpreter (3.10 or newer) for a new .venv"

demo: $(STAMP) ## find a planted failure on the simulator, without a GPU
	$(PY) -m repro demo

test: $(STAMP) ## unit and integration tests
	$(PY) -m pytest tests/unit tests/integration $(PARALLEL)

test-real: $(STAMP) ## the same claims on the real vLLM for CPU, within the launch budget of every change
	$(PYTHON) tests/real/bed/install.py
	$(PY) -m pytest tests/real -m 'real and not real_full'

test-real-full: $(STAMP) ## everything there is on the real vLLM for CPU; takes hours
	$(PYTHON) tests/real/bed/install.py
	REPRO_REAL_LAUNCH_BUDGET=$${REPRO_REAL_LAUNCH_BUDGET:-400} $(PY) -m pytest tests/real -m real

test-pythons: $(PYTHONS:%=test-py-%) ## unit tests on every other supported Python found here

# A recursive make, so that the environment is only made when its interpreter exists.
test-py-%:
	@if [ -z "$(call find_python,$*)" ]; then \
	  echo "Python $* is not on this machine: the unit tests were not run on it"; \
	else \
	  $(MAKE) --no-print-directory .venv-py$*/.installed && \
	  echo "unit tests on Python $*" && .venv-py$*/bin/python -m pytest tests/unit $(PARALLEL); \
	fi

lint: $(STAMP) ## ruff and mypy, as CI runs them
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/mypy

# Exit code 5 is pytest's "nothing collected".
bench: $(STAMP) ## ratios of this tool against simpler searches
	@mkdir -p tests/benchmarks
	@$(PY) -m pytest tests/benchmarks -s; code=$$?; \
	if [ $$code -eq 5 ]; then echo "no benchmark is collected in tests/benchmarks"; else exit $$code; fi

wheelhouse: check-python ## one tar that installs on a node without internet and with the same Python
	$(PYTHON) .ci/wheelhouse.py

clean: ## remove environments, builds and caches; the real vLLM (.venv-vllm) and sessions (.repro) stay
	rm -rf $(VENV) .venv-py* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find repro tests .ci -name __pycache__ -type d -prune -exec rm -rf {} +

check-python:
	@$(PYTHON) -c '' >/dev/null 2>&1 || { \
	  echo "$(PYTHON) does not run on this machine. Name another one: PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "repro needs Python 3.10 or newer and $(PYTHON) is `$(PYTHON) -V 2>&1`. Name another one: PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

# The stamp is what keeps a second `make test` from installing again.
$(STAMP): pyproject.toml | check-python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.venv-py%/.installed: pyproject.toml
	$(call find_python,$*) -m venv .venv-py$*
	.venv-py$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@
