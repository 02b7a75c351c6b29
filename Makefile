# Two commands set up everything from nothing: `make train` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXPERIMENT ?= CartPole-v1:ppo
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: train test verify lint bench docs clean

train: $(VENV)/.core ## set up and train the default experiment
	$(BIN)/gymlab train $(EXPERIMENT)

test: $(VENV)/.dev ## set up, lint, and run the tests
	$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

verify: $(VENV)/.dev ## train every documented result and rewrite docs/results.md (an hour)
	$(BIN)/python -m benchmarks.learning --jobs 2

lint: $(VENV)/.dev ## format, lint, types
	$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/mypy

bench: $(VENV)/.dev ## speed against the installed peers, written to docs/benchmarks.md
	$(BIN)/gymlab bench ppo --markdown docs/benchmarks.md
	$(BIN)/gymlab bench envs --section native --markdown docs/benchmarks.md

docs: $(VENV)/.dev ## rewrite the generated pages and pictures of docs/
	$(BIN)/python -m benchmarks.pages

clean: ## remove the virtual environment and caches; runs stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.core: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[box2d,tensorboard,wandb,peers,dev]'
	touch $@ $(VENV)/.core
