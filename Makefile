# make demo · make test · make bench · make check     (each sets up what it needs in .venv)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench bench-peers clean

demo: $(VENV)/.demo
	@$(BIN)/python -m examples.demo

test: $(VENV)/.dev check
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.luacheck

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.peers $(ARGS)

$(VENV)/.demo: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
