# make run    use it: makes the environment, brings in this repository's own history and decisions, serves, prints the
#             sign-in link
# make test   test it: everything
# make torture  attack it for longer: power cuts, failing disks, damage, kills, fuzzing; MEMORY_HUB_TORTURE_SEED repeats a run
# make docs   write the tables of the docs that derive from declarations
# make check  what reviewers need not look for: style, types, layers, all tests with coverage

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8321
PROJECT ?= memory-hub

.PHONY: run test torture check docs lint coverage bench clean

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
	$(BIN)/python manage.py import adr docs/decisions --project $(PROJECT)
	$(BIN)/python manage.py import markdown . --project $(PROJECT)
	$(BIN)/python manage.py serve --port $(PORT)

# Development mode without the allocator's debug hooks: they cost a sixth of the time, and no code here is C.
# More workers than cores, because tests also wait for the disk and for processes.
TEST_MODE := PYTHONDEVMODE=1 PYTHONMALLOC=default
WORKERS ?= 3

# COVERAGE=1 measures every process that a test starts, which takes three quarters more time.
test: $(BIN)/.installed-dev
ifdef COVERAGE
	rm -f .coverage .coverage.*
	$(TEST_MODE) $(BIN)/coverage run manage.py test --parallel $(WORKERS) $(TESTS)
	@$(BIN)/coverage combine --quiet
else
	$(TEST_MODE) $(BIN)/python manage.py test --parallel $(WORKERS) $(TESTS)
endif

# The long form of the attacks and the fuzzing that `make test` does briefly.
torture: $(BIN)/.installed-dev
	MEMORY_HUB_TORTURE=long $(TEST_MODE) $(BIN)/python manage.py test $(or $(TESTS),tests.torture tests.api.test_fuzz tests.mcp.test_fuzz tests.test_many_processes)

docs: $(BIN)/.installed-dev
	MEMORY_HUB_TEST_WRITE_DOCS=1 $(BIN)/python manage.py test tests.test_docs.DocumentsTests

lint: $(BIN)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

coverage: $(BIN)/.installed-dev
	test -f .coverage || $(MAKE) test COVERAGE=1
	$(BIN)/coverage report

check: lint coverage

bench: $(BIN)/.installed
	$(BIN)/python -m benchmarks speed $(ARGS)

clean:
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache dist
