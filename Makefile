# `make` alone lists what there is.
PYTHON_BIN := .venv/bin/python
# Runs a module of the installed wheel, as a user would, and not the one in this folder.
ON_WHEEL := $(PYTHON_BIN) -m scripts.wheel
PYTEST_ARGS ?=
# One worker runs the tests that share an Airflow, another one the tests that share a Spark (tests/conftest.py). The default
# suits two cores: a worker often waits for processes that it has started.
WORKERS ?= 4

# Tests start hundreds of Pythons. Each would compile the same files again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-approximate test test-all test-rest drill matrix soak faults docs lint style types test-types bench vendor clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything into .venv, and build the wheel into dist (a second run does nothing)
	@scripts/setup.sh --dev

demo: ## Run a real pipeline, break it, watch it recover (KEEP=1 leaves Airflow up, S3A=1 has all data on S3)
	@scripts/setup.sh $(if $(filter-out 0,$(S3A)),--s3a)
	@exec $(PYTHON_BIN) -m scripts.demo $(if $(filter-out 0,$(KEEP)),--keep) $(if $(filter-out 0,$(S3A)),--s3a)

demo-approximate: ## A chain of streams: kill its sink and its scorer, count what is lost, compare with a whole restart
	@scripts/setup.sh --s3a
	@exec $(PYTHON_BIN) -m scripts.demo --streams

lint: setup style ## Style, format, strict types, types in tests; and how many lines each room has
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types test-types

style:
	$(PYTHON_BIN) -m ruff check .
	$(PYTHON_BIN) -m ruff format --check .
	@$(PYTHON_BIN) -m scripts.room_lines

# The two type checks have separate caches. Each takes half a minute of CPU time, and two minutes if its cache is empty.
types:
	$(PYTHON_BIN) -m mypy
test-types:
	$(PYTHON_BIN) -m mypy --config-file tests/mypy.ini

PYTEST = PATH="$(CURDIR)/.venv/bin:$$PATH" $(PYTHON_BIN) -m pytest
PARALLEL := -n $(WORKERS) --dist loadscope

# The tests do not wait for the type checks, which print their findings after the last test.
define pytest_beside_types
@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync types test-types > build/types.txt 2>&1 & types=$$!; \
	trap "kill $$types 2> /dev/null" EXIT; \
	$(PYTEST) $(1); failed=$$?; wait $$types || failed=1; cat build/types.txt; exit $$failed
endef

test: ## Set-up, lint, and the tests that every change needs: ten minutes (PYTEST_ARGS="..." for pytest)
	@scripts/setup.sh --test
	@$(MAKE) --no-print-directory style
	$(call pytest_beside_types,--suite fast $(PARALLEL) $(PYTEST_ARGS))

test-all: ## Set-up, lint, and every test but those of the drill
	@scripts/setup.sh --all
	@$(MAKE) --no-print-directory style
	$(call pytest_beside_types,$(PARALLEL) $(PYTEST_ARGS))

test-rest: # What `make test-all` runs and `make test` does not: the second half of .ci/run
	@scripts/setup.sh --all
	$(PYTEST) --suite rest $(PARALLEL) $(PYTEST_ARGS)

CRASH_KIT := $(ON_WHEEL) airflow_recovery.testing.crash_kit

drill: ## Simulated bad days, processes killed at every point, real kills of Airflow (MINUTES=10; DRILL=10)
	@scripts/setup.sh --drill
	$(PYTHON_BIN) -m scripts.sparks
	$(ON_WHEEL) airflow_recovery.testing.simulation --minutes $(or $(MINUTES),10)
	PYTHONPATH=tests $(ON_WHEEL) simulation --decided --minutes $(or $(MINUTES),10)
	PYTHONPATH=tests $(ON_WHEEL) simulation --pure 1000000
	PYTHONPATH=tests $(ON_WHEEL) channel_simulation --minutes $(or $(MINUTES),10)
	$(CRASH_KIT) --pairs all --minutes $(or $(MINUTES),10)
	PYTHONPATH=tests/support/code $(CRASH_KIT) crash_jobs:ledgers --s3 moto --singles 60 --frozen 20 --pairs 40
	$(CRASH_KIT) --spark --scenario run --singles 3 --frozen 1 --pairs 1
	$(PYTEST) tests --s3-server moto -m "s3 and not (airflow or browser or spark)" $(PYTEST_ARGS)
	$(PYTEST) tests -m control $(PARALLEL) $(PYTEST_ARGS)
	$(PYTEST) tests/kills --drill $(or $(DRILL),10) $(PYTEST_ARGS)
	$(PYTEST) tests --ignore tests/kills --ignore tests/matrix -m drill --drill 1 $(PYTEST_ARGS)

matrix: ## Try the Sparks, executors and clusters that users have, and write docs/where-it-runs.md (ONLY="4.0 connect"; AGAIN=1)
	@scripts/setup.sh --drill
	$(PYTHON_BIN) -m scripts.sparks
	PATH="$(CURDIR)/.venv/bin:$$PATH" $(PYTHON_BIN) -m scripts.matrix $(if $(ONLY),--only $(ONLY)) $(if $(SINCE),--since $(SINCE)) \
		$(if $(filter-out 0,$(AGAIN)),--again)

soak: ## Eleven DAGs in a real Airflow, disturbed for hours and checked at each pause; writes docs/soak.md (HOURS=8; SEED=1)
	@scripts/setup.sh --drill
	@exec $(PYTHON_BIN) -m scripts.soak --hours $(or $(HOURS),8) --seed $(or $(SEED),1)

faults: ## Every fault of docs/faults.md, its tests, and how each ended here last (ONLY="9 121")
	@scripts/setup.sh --test
	@$(PYTHON_BIN) -m scripts.faults $(ONLY)

docs: setup ## Build the documentation into build/site, without a network
	$(PYTHON_BIN) -m scripts.configuration_reference
	$(PYTHON_BIN) -m scripts.error_codes
	$(PYTHON_BIN) -m scripts.rooms_picture
	NO_MKDOCS_2_WARNING=1 $(PYTHON_BIN) -m mkdocs build --strict

bench: setup ## Measure, and write docs/benchmarks.md (an hour; ONLY="peers command_line" measures these parts alone)
	$(PYTHON_BIN) -m benchmarks $(if $(ONLY),--only $(ONLY))

vendor: ## Put the Recovery tab's library into the tree anew, from npm (needed only to change it)
	@scripts/vendor.sh

clean: ## Remove the virtual environment, the demo's folder and caches
	rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
