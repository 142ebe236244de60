# make test   everything that must hold: lint, formatting, types, tests
# make demo   a small training run and its report
#
# The default torch is pinned to a version whose plain wheel is small here; for a GPU choose your own:
#   make .venv TORCH="torch --index-url https://download.pytorch.org/whl/cu128"

PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: test lint types format docs demo clean .venv

.venv: $(STAMP)

# torch first and on its own: resolved together with the rest, pip may pick a build with gigabytes of CUDA
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $(STAMP)

test: lint types
	$(BIN)/python -m pytest -rs -q
	@echo "Skipped tests are listed above with their reasons. Those marked alfworld compare with the real ALFWorld:"
	@echo "  $(BIN)/pip install -e '.[alfworld]'"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright --project pyproject.toml

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m isentrope.config.docs

demo: $(STAMP)
	$(BIN)/python -m isentrope train --out runs/demo --set run.steps=10
	$(BIN)/python -m isentrope report runs/demo

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
