# make run    use it: makes the environment, brings in this repository's own history and decisions, serves, prints the
#             sign-in link
# make test   test it: everything, with coverage
# make torture  attack it for longer: power cuts, failing disks, damage, kills, fuzzing; MEMORY_HUB_TORTURE_SEED repeats a run
# make check  what reviewers need not look for: style, types, layers, coverage

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8321
PROJECT ?= memory-hub

.PHONY: run test torture check lint coverage bench clean

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

run: $(BIN)/.installed
	$(BIN)/python manage.py import git . --project $(PROJECT)
	$(BIN)/python manage.py import markdown . --project $(PROJECT)
	$(BIN)/python manage.py import adr docs/decisions --project $(PROJECT)
	$(BIN)/python manage.py serve --port $(PORT)

test: $(BIN)/.installed-dev
	rm -f .coverage .coverage.*
	PYTHONDEVMODE=1 $(BIN)/coverage run manage.py test --parallel 2 $(TESTS)
	@$(BIN)/coverage combine --quiet

# The long form of the attacks and the fuzzing that `make test` does briefly.
torture: $(BIN)/.installed-dev
	MEMORY_HUB_TORTURE=long PYTHONDEVMODE=1 $(BIN)/python manage.py test $(or $(TESTS),tests.torture tests.api.test_fuzz tests.mcp.test_fuzz tests.test_many_processes)

lint: $(BIN)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

coverage: $(BIN)/.installed-dev
	test -f .coverage || $(MAKE) test
	$(BIN)/coverage report

check: lint coverage

bench: $(BIN)/.installed
	$(BIN)/python -m benchmarks speed $(ARGS)

clean:
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache dist
