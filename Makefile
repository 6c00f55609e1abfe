# Every target sets itself up: a fresh clone needs make and Python 3.11+ only.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.ready

.PHONY: help setup demo up test lint test-engine lock clean

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(STAMP)  ## make .venv with Axiom, the embedded servers and the tools

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Axiom needs Python 3.11 or later; name one with make PYTHON=python3.x")'
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e '.[embedded,dev]'
	@touch $@

demo: $(STAMP)   ## replay public workload data through three policies; table and HTML report
	@$(VENV)/bin/axiom demo

up: $(STAMP)     ## start the same stack and leave it running until Ctrl-C
	@$(VENV)/bin/axiom up

lint: $(STAMP)   ## ruff, mypy, import contracts
	$(VENV)/bin/ruff check libs services tests
	$(VENV)/bin/ruff format --check libs services tests
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

test: lint       ## lint and the default suite
	$(VENV)/bin/pytest -n 2 --dist loadscope

test-engine: $(STAMP)  ## the contract suite against a real vLLM on CPU (installs it into .venv-engine)
	tests/engine/run

lock: $(STAMP)   ## pin what pyproject.toml asks for
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --all-extras --no-emit-find-links --no-header --no-annotate -o requirements.lock pyproject.toml requirements.in

clean:           ## remove what the targets made
	rm -rf .venv .venv-engine .cache out
