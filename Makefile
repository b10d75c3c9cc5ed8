# make demo, make test: each makes its own environment in .venv, once, with the versions of constraints.txt.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

# Whatever the caller's shell has set up for other projects stays out of this one.
unexport PYTHONPATH PYTHONHOME

.PHONY: help demo test lint docs clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    label, train and answer on a 57-bus grid, in about two minutes"
	@echo "make test    lint, types, import contract, docs, tests"
	@echo "make lint    the first three of these"
	@echo "make docs    the documentation, in site/"
	@echo "make clean   remove the environment and everything generated"
	@echo "Another interpreter: make test PYTHON=python3.12. More processes: make test JOBS=8."

demo: $(VENV)/.demo
	@$(BIN)/feasibly demo

# Two processes with one thread each beat one process with two, and never fight for a core.
test: export OMP_NUM_THREADS := 1
test: export OPENBLAS_NUM_THREADS := 1
# Compiling is most of the time; what it is spent on here is not worth making faster.
test: export XLA_FLAGS := --xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0 \
  --xla_llvm_disable_expensive_passes=true
# What one process has compiled, the other and the commands that tests start need not compile again.
test: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/$(VENV)/compiled
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.2
test: lint
	@echo "docs" && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || echo "no browser here, so the" \
	  "page of feasibly serve is not tested; on Debian: apt install chromium chromium-driver"
	@echo "tests" && $(BIN)/pytest -n $(JOBS) --dist worksteal

lint: $(VENV)/.dev
	@echo "ruff" && $(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet .
	@echo "mypy" && $(BIN)/mypy --no-error-summary
	@echo "import contract" && $(BIN)/lint-imports > $(VENV)/contract.txt || { cat $(VENV)/contract.txt; exit 1; }

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis feasibly-demo

# The stamps: a second call finds them newer than what they depend on, and installs nothing.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing feasibly and what it needs into $(VENV) (a minute or two, once)"
	@$(INSTALL) -e ".[pglib,report,serve]"
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing feasibly, its extras and the test tools into $(VENV) (a few minutes, once)"
	@$(INSTALL) -e ".[dev]"
	@touch $@

$(VENV)/.made:
	@command -v "$(PYTHON)" > /dev/null || { \
	  echo "There is no $(PYTHON) here; name a Python 3.11, 3.12 or 3.13 with: make PYTHON=/path/to/python" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "feasibly needs Python 3.11, 3.12 or 3.13 and $(PYTHON) is $$("$(PYTHON)" --version 2>&1);" \
	       "name another with: make PYTHON=python3.12" >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo "$(PYTHON) comes without its venv module; install it (on Debian and Ubuntu: apt install python3-venv)" \
	       "and run make again" >&2; exit 2; }
	@rm -rf $(VENV) && "$(PYTHON)" -m venv $(VENV) && touch $@
