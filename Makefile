# Two commands set up everything from nothing: `make train` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXPERIMENT ?= CartPole-v1:ppo
FAMILIES := box2d,atari,objects,vizdoom,retro,mujoco,dmc,minigrid,crafter,brax
GL := libegl1 libgl1 libgl1-mesa-dri libosmesa6
SCREEN := chromium xvfb xdotool
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 30000

.PHONY: train test same verify verify-long install-all lint bench docs clean

train: $(VENV)/.core ## set up and train the default experiment
	$(BIN)/gymlab train $(EXPERIMENT)

test: $(VENV)/.dev ## set up, lint, and run the tests
	$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

same: $(VENV)/.dev ## train every workflow briefly from the commit BASE and from this tree: the numbers must be equal
	$(BIN)/python -m benchmarks.same $(or $(BASE),HEAD)

verify: $(VENV)/.dev ## train every shipped experiment briefly, then every documented result, and rewrite docs/results.md (an hour)
	$(BIN)/gymlab smoke --out runs/verify/smoke.json
	$(BIN)/python -m benchmarks.learning --jobs 2

verify-long: $(VENV)/.dev ## the same for what takes hours
	$(BIN)/python -m benchmarks.learning --jobs 2 --long

install-all: $(VENV)/.families ## set up with every family of environments
	$(BIN)/gymlab doctor

lint: $(VENV)/.dev ## format, lint, types
	$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/mypy

bench: $(VENV)/.dev ## speed against the installed peers, written to docs/benchmarks.md
	$(BIN)/gymlab bench ppo --markdown docs/benchmarks.md
	$(BIN)/gymlab bench envs --section native --markdown docs/benchmarks.md
	$(BIN)/gymlab bench atari --markdown docs/benchmarks.md
	$(BIN)/gymlab bench dreamer --markdown docs/benchmarks.md
	$(BIN)/gymlab bench dreams --markdown docs/benchmarks.md
	$(BIN)/gymlab bench convolutions --markdown docs/benchmarks.md

docs: $(VENV)/.dev ## rewrite the generated pages and pictures of docs/
	$(BIN)/python -m benchmarks.pages

clean: ## remove the virtual environment and caches; runs stay
	rm -rf $(VENV) .venv-sheeprl .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.core: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable .
	touch $@

# ocatari asks for numpy<2 and another OpenCV, and runs without; what it does need is in the extra `objects`.
$(VENV)/.families: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[$(FAMILIES)]'
	$(BIN)/pip install --quiet --no-deps ocatari
	@ldconfig -p 2>/dev/null | grep -q libEGL.so \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install --yes --quiet $(GL); } \
	|| echo "MuJoCo and DM Control render with the libraries of: sudo apt-get install $(GL)"
	touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml $(VENV)/.families | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[$(FAMILIES),offline,tensorboard,wandb,peers,dev]'
	@{ command -v chromium && command -v Xvfb && command -v xdotool; } >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update --quiet && apt-get install --yes --quiet $(SCREEN); } \
	|| echo "Tests in a browser and on a screen need: sudo apt-get install $(SCREEN)"
	touch $@
