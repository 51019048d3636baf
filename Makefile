# Gangline: every task of a developer or of CI. `make help` prints the lines marked with two hashes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := constraints/locked.txt

# The checkout's path is in the stamp's name: a moved or copied checkout sets itself up again.
STAMP := $(VENV)/.ready-$(shell printf %s "$(CURDIR)" | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
export PIP_DISABLE_PIP_VERSION_CHECK := 1

##@ Start here
.PHONY: help setup
setup: $(STAMP) ## Make .venv with the pinned packages and the command .venv/bin/gangline

$(STAMP): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: $(PYTHON) is not Python 3.11 or newer. On Debian 12: apt-get install python3 python3-venv make git;" \
	       "or name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "setup: $(PYTHON) cannot make virtual environments. On Debian: apt-get install python3-venv make git" >&2; exit 1; }
	@echo "setup: installing pinned packages into $(VENV)" >&2
	@# An older .venv of this very folder is kept and brought up to date; anything else is made anew.
	@if ! { [ -e $@ ] && $(BIN)/python -c 'import pip'; } 2>/dev/null; then $(PYTHON) -m venv --clear $(VENV); fi
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo test test-fast
demo: setup ## Run the demo: 4 local nodes with 8 emulated GPUs each, two gangs, a ring all-reduce
	@$(BIN)/gangline demo $(ARGS)

# `make test ARGS='-k ledger'` passes ARGS on to pytest, whose last lines end the output.
PYTEST := $(BIN)/python -m pytest
test: setup lint type arch ## Check everything: lint, types, layers, then every test that this machine can run
	@PYTHONHASHSEED=0 $(PYTEST) -n auto -m "not bench and not cloud" $(ARGS)

# Files of unit tests lie in memory where a gigabyte is free there: ledgers are flushed hundreds of times.
ROOM = $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')
IN_MEMORY = $(if $(shell [ -w /dev/shm ] && [ "$(ROOM)" -gt 1000000 ] && echo yes),PYTEST_DEBUG_TEMPROOT=/dev/shm)
test-fast: setup ## Run the unit and property tests only, with a third of the examples and mutants of `make test`
	@$(IN_MEMORY) PYTHONHASHSEED=0 HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} \
	  $(PYTEST) -n auto -q -o tmp_path_retention_policy=failed \
	  -m "not system and not testbed and not bench and not cloud" $(ARGS)

##@ While writing
.PHONY: fmt lint type arch schemas docs
fmt: setup ## Format the code and repair what the linter can
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

lint: setup ## Check style and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

# The agent's rooms must type under the nodes' own Python 3.10 as well.
NODE_ROOMS := $(wildcard orchestrator/model orchestrator/agent orchestrator/telemetry)
type: setup ## Check types (mypy strict), the agent's rooms for Python 3.10 as well
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/mypy --no-error-summary --python-version 3.10 $(NODE_ROOMS)

arch: setup ## Check that imports between rooms go downwards only
	@$(BIN)/lint-imports > $(VENV)/arch.log || { cat $(VENV)/arch.log; exit 1; }

schemas: setup ## Write schemas/ and docs/reference/ again from the code
	@$(BIN)/python -m orchestrator.wire.schemas
	@$(BIN)/python -m orchestrator.api.openapi
	@$(BIN)/python -m orchestrator.cli.reference

docs: setup ## Check that the documentation names only what exists
	@$(PYTEST) -q tests/test_docs.py $(ARGS)

.PHONY: engine aws
engine: ## Build the Pulumi engine that tests/aws needs, if there is none (Go; 8 to 18 minutes the first time)
	@$(PYTHON) -m tests.aws.engine build

aws: setup ## Run the tests' own AWS account by hand: prints its endpoint, ends with Ctrl-C
	@$(BIN)/python -m tests.aws.moto_server

##@ Measuring: options are make variables, as in `make bench-rate JOBS=1000 CLIENTS=8`
# Each variable NAME=value of the command line reaches the benchmark as the environment variable BENCH_NAME.
.PHONY: bench-rate bench-cli bench-agents bench-store bench-plan bench-up bench-scale bench-openb bench-kueue
QUOTE := '
quoted = $(QUOTE)$(subst $(QUOTE),'\'',$(1))$(QUOTE)
options = $(foreach v,$(filter-out PYTHON ARGS,$(.VARIABLES)),$(if \
  $(filter command,$(firstword $(origin $(v)))),BENCH_$(v)=$(call quoted,$($(v)))))
bench = @env $(options) $(BIN)/python -m tests.bench.$(@:bench-%=%)

bench-rate: setup ## Jobs a second, from submit to acknowledged start and to recorded end
	$(bench)

bench-cli: setup ## How long the command takes to answer
	$(bench)

bench-agents: setup ## What beating agents cost the controller
	$(bench)

bench-store: setup ## Events a second into the ledger on this disk
	$(bench)

.PHONY: bench-simulate bench-gavel bench-truth
bench-simulate: setup ## How long the simulator takes for a million jobs on a thousand nodes
	$(bench)

bench-gavel: setup ## Mean completion times on Gavel's continuous traces, beside the published ones
	$(bench)

bench-truth: setup ## Whether the simulator predicts waits that are then measured on a local cluster
	$(bench)

bench-plan: setup ## How long a plan over thousands of hosts takes
	$(bench)

bench-up: setup ## From bare hosts to ready, and a second `up` against a plain ping by Ansible (root, boots its own hosts)
	$(bench)

bench-scale: setup ## How long decisions take, on KAI's scenarios and on 10,000 nodes (CASES=kai-fill,own NODES=1000,10000)
	$(bench)

bench-openb: setup ## Placement on the openb traces against FGD (GANGLINE_DATA names their folder): TRACES, SEEDS, CHURN=1
	$(bench)

bench-kueue: setup ## Kueue's baseline of 15,000 workloads in real time (CASE=large-scale, SHARE=0.1 of the workloads)
	$(bench)

##@ Looking for faults
.PHONY: fuzz
fuzz: setup ## Hold ROUNDS random passes of the scheduler against all that they promise (SEED=N: from that story on)
	@env $(options) PYTHONHASHSEED=0 $(BIN)/python -m tests.scheduler.fuzzing

##@ Releasing and tidying
.PHONY: package lock clean distclean
package: setup ## Build the wheel and the source archive into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build --directory dist

lock: setup ## Resolve pyproject.toml again into constraints/locked.txt (UPGRADE=1 takes newer versions)
	@$(PYTHON) -m venv build/resolver
	@build/resolver/bin/python -m pip install --quiet uv
	@UV=build/resolver/bin/uv constraints/update.sh $(if $(UPGRADE),--upgrade)

clean: ## Remove what tools and builds left, but not .venv
	@rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## Remove .venv too
	@rm -rf .venv

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
