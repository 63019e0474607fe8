# make setup | demo | test | bench | readme | clean.  Everything but `setup` sets up first when it has to.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
PIP    := $(PY) -m pip install --quiet -c constraints.txt

# What cannot be found on this machine must not be asked of the network while tests and demos run.
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: setup demo test lint bench readme clean

setup: $(READY)

# torch goes first and alone: a pinned torch is then already there when the other packages ask for a range, so that
# pip never weighs a GPU build of several gigabytes.  The samples' packages go last, without what they ask for.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed: make setup PYTHON=..."'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) torch
	$(PIP) --editable '.[tpu]' --group dev
	$(PIP) --no-deps --group samples
	touch $@

demo: $(READY)
	$(PY) samples/demo.py

test: lint
	$(PY) -m pytest

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: $(READY)
	$(PY) benchmarks/bench_export.py

# Puts a real run of the demo between the markers of README.md.
readme: $(READY)
	$(PY) samples/demo.py --readme README.md

clean:
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
