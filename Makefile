# `make demo` and `make test` set up everything they need in .venv on a machine that has only Python.

PYTHON ?= python3
# Test processes; each computes on one thread.
JOBS ?= auto
# LONG=1 adds the long grids.
LONG ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench clean

BIN := .venv/bin
# A new name whenever the requirements, the interpreter asked for or the place of the checkout change.
KEY := $(shell { cat pyproject.toml constraints.txt; echo "$(PYTHON) $(CURDIR)"; } | cksum | cut -d' ' -f1)
INSTALLED := $(BIN)/.installed-$(KEY)
MARKERS := $(if $(LONG),-m "long or not long")

help:
	@echo "make demo    a Vision Transformer through the kernels on this machine's CPU, start to end"
	@echo "make setup   only sets up .venv, which the others do too"
	@echo "make test    the tests (LONG=1 adds the long grids, JOBS=n sets the processes)"
	@echo "make bench   the benchmark's default table"
	@echo "make lint    read-only style check        make format   apply what it suggests"
	@echo "make clean   remove everything generated"

setup: $(INSTALLED)

# timm comes without what it depends on, see tests/models/timm_blocks.py; diffusers too, whose
# dependencies are in constraints.txt with those of transformers.
$(INSTALLED):
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: $(PYTHON) was not found; install Python 3.11 or newer, or say PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); the pinned set in constraints.txt needs Python 3.11 or newer." >&2; \
	  echo "      Say PYTHON=/path/to/newer/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --no-build-isolation --editable '.[hub,models,test]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps timm diffusers
	@touch $@

demo: $(INSTALLED)
	$(BIN)/python -m bench.demo

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --durations=15 $(MARKERS) $(PYTEST_ARGS)

bench: $(INSTALLED)
	$(BIN)/python -m bench

lint: $(INSTALLED)
	$(BIN)/ruff check

format: $(INSTALLED)
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv .wheel build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
