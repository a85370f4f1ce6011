# make run    use it: makes the environment, brings in this repository's own history and decisions, serves, prints the
#             sign-in link; with MEMORY_HUB_DATABASE_URL the stores are in that PostgreSQL database
# make test   test it: everything, then what PostgreSQL must do too; TESTS=tests.core runs a part
# make test-postgresql  test with stores in PostgreSQL, in a private server
# make torture  attack it for longer: power cuts, failing disks, damage, kills, fuzzing; MEMORY_HUB_TORTURE_SEED repeats a run
# make docs   write the tables of the docs that derive from declarations
# make check  what reviewers need not look for: style, types, layers, all tests with coverage

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8321
PROJECT ?= memory-hub

.PHONY: run test test-postgresql torture check docs lint coverage bench clean

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(BIN)/.installed-postgresql: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[postgresql]'
	touch $@

run: $(BIN)/.installed $(if $(MEMORY_HUB_DATABASE_URL),$(BIN)/.installed-postgresql)
	$(BIN)/python manage.py import git . --project $(PROJECT)
	$(BIN)/python manage.py import adr docs/decisions --project $(PROJECT)
	$(BIN)/python manage.py import markdown . --exclude 'tests/*' --project $(PROJECT)
	$(BIN)/python manage.py serve --port $(PORT)

# Development mode without the allocator's debug hooks: they cost a sixth of the time, and no code here is C.
# More workers than cores, because tests also wait for the disk and for processes.
TEST_MODE := PYTHONDEVMODE=1 PYTHONMALLOC=default
WORKERS ?= 3

# COVERAGE=1 measures every process that a test starts, which takes three quarters more time.
RUNNER := $(TEST_MODE) $(BIN)/$(if $(COVERAGE),coverage run,python) manage.py test --parallel $(WORKERS)
# Without coverage: the same code has been measured on SQLite
IN_POSTGRESQL := $(BIN)/python -m tests.postgresql env $(TEST_MODE) $(BIN)/python manage.py test --parallel $(WORKERS)
# What is not about files of SQLite, or about what no database changes. Fuzzing REST takes minutes; redaction cannot be
# proven while transactions of other tests are open in the server, so tests.postgres has a server for it.
modules_of = $(subst /,.,$(basename $(wildcard tests/$(1)/test_*.py)))
POSTGRESQL_TESTS := tests.core tests.memories tests.decisions tests.sessions_app tests.mcp tests.permissions \
	$(filter-out tests.api.test_fuzz tests.governance.test_redaction% tests.governance.test_retention_killed, \
	$(call modules_of,api) $(call modules_of,governance))

# The last line is the sum of both runs.
test: $(BIN)/.installed-dev
	$(if $(COVERAGE),rm -f .coverage .coverage.*)
ifdef TESTS
	$(RUNNER) $(TESTS)
else
	@export MEMORY_HUB_TEST_COUNTS=$$(mktemp); failed=0; set -x; \
	$(RUNNER) || failed=1; \
	$(IN_POSTGRESQL) $(POSTGRESQL_TESTS) || failed=1; \
	{ set +x; } 2>/dev/null; rm -f $$MEMORY_HUB_TEST_COUNTS; exit $$failed
endif
	$(if $(COVERAGE),@$(BIN)/coverage combine --quiet)

test-postgresql: $(BIN)/.installed-dev
	$(IN_POSTGRESQL) $(or $(TESTS),$(POSTGRESQL_TESTS))

# The long form of the attacks and the fuzzing that `make test` does briefly.
LONG_TESTS := tests.torture tests.api.test_fuzz tests.permissions.test_bodies tests.mcp.test_fuzz \
	tests.test_many_processes tests.postgres.test_killed_machines tests.postgres.test_killed_operations \
	tests.postgres.test_failures tests.transfer.test_moving tests.web.test_hostile_texts

torture: $(BIN)/.installed-dev
	MEMORY_HUB_TORTURE=long $(TEST_MODE) $(BIN)/python manage.py test $(or $(TESTS),$(LONG_TESTS))

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
