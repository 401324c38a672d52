# Every target sets up .venv itself, once, and again when the pins change.
PYTHON ?= python3
# Machines without a GPU: make TORCH_INDEX=https://download.pytorch.org/whl/cpu demo
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
PINS := pyproject.toml constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: help demo test test-slow cluster-test lint format clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## The whole pipeline on this machine: services, data, sweep, table
	$(BIN)/raise-rpm demo

test: $(VENV)/.installed-dev  ## Unit and integration tests (under 10 minutes on 2 cores)
	$(BIN)/python -m pytest

test-slow: $(VENV)/.installed-dev  ## Tests against real servers, convergence, faults
	$(BIN)/python -m pytest -m slow

cluster-test: $(VENV)/.installed-dev  ## The flow on hosts in network namespaces (root, PostgreSQL 15), and a Slurm job (slurm-wlm, munge)
	$(BIN)/python -m pytest -m cluster tests/cluster

lint: $(VENV)/.installed-dev  ## ruff, pyright and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove .venv (the state of the services in .raise stays)
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(PINS) | $(VENV)/bin/python
	@echo "Installing the pinned packages into $(VENV) (2 to 5 minutes, once) ..."
	$(PIP) -e .
	@# On all cores: pip would compile on one, and not at all where bytecode is switched off.
	@# Some packages ship templates that are no Python; they do not matter.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV) ..."
	$(PIP) -e '.[dev,cluster]'
	touch $@
