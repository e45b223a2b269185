# Two commands for a fresh machine: `make demo` and `make test`. Needed: Python 3.11 or newer, make and a
# package index. Everything is installed into .venv, and again only when what is installed changes.

PYTHON ?= python3
# Test processes that run at the same time.
JOBS ?= 2
# Extras that are installed beside the core, separated by commas. `make demo EXTRAS=` goes without torch: the
# demo then runs on the simulator, and the engine's tests are left out.
EXTRAS ?= engine
# More for pytest or for the demo: `make test ARGS=--long`.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
INPUTS := pyproject.toml setup.py constraints.txt
comma := ,
# $(call stamp,test): the file that says "`.[test]` and EXTRAS are installed".
stamp = $(VENV)/.installed-$(1)$(if $(EXTRAS),-$(subst $(comma),-,$(EXTRAS)))
# $(call extras,test): `[test,engine]`, `[test]`, or nothing.
extras = $(addprefix [,$(addsuffix ],$(subst $(eval ) ,$(comma),$(strip $(1) $(subst $(comma), ,$(EXTRAS))))))

.PHONY: help demo test check lint format-check format types wheel docs clean
.NOTPARALLEL:

help:
	@echo "make demo          run the main job: a production workload, scheduled, recorded and checked"
	@echo "make test          run the tests; make test ARGS=--long runs the long ones too"
	@echo "make check         lint, format check, strict types; make format mends the format"
	@echo "make wheel         build the wheel and use it from an empty folder"
	@echo "make docs          build the documentation site into build/site; a warning is an error"
	@echo "make clean         remove .venv and everything else that make made"

demo: $(call stamp,core)
	@$(BIN)/batchspec demo $(ARGS)

test: $(call stamp,test)
	@$(BIN)/pytest -n $(JOBS) $(ARGS)

check: lint format-check types

lint: $(call stamp,dev)
	@$(BIN)/ruff check .

format-check: $(call stamp,dev)
	@$(BIN)/ruff format --check .

format: $(call stamp,dev)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

types: $(call stamp,dev)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/types

wheel: $(call stamp,dev)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/wheel

docs: $(call stamp,docs)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

clean:
	@rm -rf $(VENV) .types build dist batchspec.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "$(PYTHON) was not found: install Python 3.11 or newer, or name one with PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed and $(PYTHON) is older: name one with PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { \
	  echo "no virtual environment could be made: on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	@touch $@

# setuptools comes first and pinned, so that building our own package needs nothing else from the index.
define install
	@echo "installing batchspec$(call extras,$(1)) into $(VENV) (the first time takes a minute or two)"
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable '.$(call extras,$(1))'
	@touch $@
endef

$(call stamp,core): $(VENV)/.made $(INPUTS)
	$(call install,)

$(call stamp,test): $(VENV)/.made $(INPUTS)
	$(call install,test)

$(call stamp,docs): $(VENV)/.made $(INPUTS)
	$(call install,docs)

$(call stamp,dev): $(VENV)/.made $(INPUTS)
	$(call install,test dev)
