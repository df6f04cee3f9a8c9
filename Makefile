# Builds, tests and installs Cairn: 'make help' lists the targets. Everything that is built lies in
# build/ and .venv/.

.DEFAULT_GOAL := all
SHELL  := /bin/bash
PYTHON ?= python3
PREFIX ?= $(HOME)/.local
JOBS   ?= $(shell nproc)
PY     := .venv/bin/python
NATIVE := CMakeLists.txt $(wildcard */CMakeLists.txt */*/CMakeLists.txt include/cairn/* \
  src/*/*.in src/*/*.[ch] src/*/*.map workloads/*.c workloads/*/*.[ch])
SOURCE := pyproject.toml README.md $(wildcard cairn/*.py cairn/*/*.py cairn/*/*.toml \
  cairn/page/page.* cairn/page/templates/* cairn/report/schema/* cairn/bench/*.xz \
  cairn/bench/ill/* cairn/bench/plans/*)

.PHONY: help all demo test fresh mutants check-long check bench results man golden format install \
  uninstall clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 19

all: build/installed ## set up and build; the command is then .venv/bin/cairn

# Ends a recipe with a sentence if PYTHON is missing or too old.
NEW_PYTHON := "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
  { echo "cairn needs Python 3.11 or newer;" \
    "make PYTHON=/path/to/python3.11 chooses another" >&2; exit 1; }

# Checks for the tools that the build needs, and reports a missing tool in one sentence.
build/tools:
	@for tool in gcc g++ make git "$(PYTHON)"; do command -v "$$tool" >/dev/null || \
	  { echo "cairn needs $$tool, which is not installed;" \
	    "on Debian: apt-get install gcc g++ make git python3-venv" >&2; exit 1; }; done
	@$(NEW_PYTHON)
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "cairn needs Python's venv, which is not installed;" \
	    "on Debian: apt-get install python3-venv" >&2; exit 1; }
	@mkdir -p build && touch $@

# Two rules may install at the same time, and pip does not expect that.
PIP := flock build/tools $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

# An interrupted setup leaves a .venv without pip, which is then set up again.
.venv/ready: constraints.txt | build/tools
	@$(PY) -m pip --version >/dev/null 2>&1 || \
	  { echo "setting up .venv"; "$(PYTHON)" -m venv --clear .venv; }
	@$(PIP) scikit-build-core
	@cmake --version 2>/dev/null | grep -qE 'version (3\.2[1-9]|3\.[3-9][0-9]|[4-9])' || $(PIP) cmake
	@command -v ninja >/dev/null || $(PIP) ninja
	@touch $@

# Most modules of these packages are never imported, so they are not compiled in advance.
.venv/tested: tests/requirements.txt .venv/ready
	@$(PIP) --no-compile -r tests/requirements.txt
	@touch $@

.venv/tested-long: tests/requirements-long.txt .venv/tested
	@$(PIP) -r tests/requirements-long.txt
	@touch $@

# The wheel is built in the folder build/wheel (pyproject.toml). A failed build leaves this folder,
# so another file shows that the build has succeeded.
build/wheel-made: .venv/ready $(NATIVE) $(SOURCE)
	@echo "building cairn"
	@rm -rf build/dist
	@env -u DESTDIR PATH="$$PWD/.venv/bin:$$PATH" $(PY) -m pip wheel --quiet \
	  --disable-pip-version-check --no-build-isolation --no-deps -w build/dist .
	@touch $@

build/installed: build/wheel-made
	@$(PIP) build/dist/*.whl
	@$(PIP) --force-reinstall --no-deps build/dist/*.whl
	@touch $@

demo: all ## compare allocators on a real program, in about two minutes
	@PATH="$$PWD/.venv/bin:$$PATH" examples/demo

test: build/tools ## run the tests that together take about ten minutes
	@$(MAKE) --no-print-directory --jobs=2 all .venv/tested
	@PATH="$$PWD/.venv/bin:$$PATH" tests/run

check-long: all .venv/tested-long ## run the long tests: A/A comparisons, planted differences, make fresh
	@PATH="$$PWD/.venv/bin:$$PATH" tests/run --long

fresh: ## test on bare Debian 12 and 13, as root and as a user: RELEASES=13 USERS=user
	@$(PYTHON) tests/fresh/run $(RELEASES) $(USERS)

mutants: all .venv/tested ## plant faults, report those no test notices: SEED=n COUNT=100 ONLY=file
	@PATH="$$PWD/.venv/bin:$$PATH" PYTHONPATH=tests $(PY) -m mutants \
	  $(SEED:%=--seed %) $(COUNT:%=--count %) $(ONLY:%=--only %)

bench: all ## measure what the launcher and the witness cost
	@PATH="$$PWD/.venv/bin:$$PATH" $(PY) tests/perf/launch_cost.py

results: all ## write a page for each run of docs/results, and an index, to build/results
	$(PY) -P tools/results_pages.py docs/results build/results

man: all ## regenerate man/, the JSON Schema, and the tables of workloads and size classes in docs/
	$(PY) -P -m cairn.cli.manual man docs/workloads.md docs/allocator-reference.md
	$(PY) -P -m cairn.cli.json_schema cairn/report/schema

golden: all .venv/tested ## regenerate tests/golden from the current output; review the diff
	@PATH="$$PWD/.venv/bin:$$PATH" .venv/bin/pytest -q -m "not long" -k golden --golden tests/python

format: .venv/tested ## format all C and Python files
	$(PY) -m ruff check --fix --quiet . ; $(PY) -m ruff format --quiet .
	.venv/bin/clang-format -i include/cairn/* examples/arena/* examples/heap/* \
	  src/*/*.[ch] workloads/*.c workloads/*/*.[ch] tools/*.c cairn/bench/ill/* \
	  tests/*/*.[ch] tests/*/*.cpp tests/support/*/*.[ch] tests/support/*/*.cpp

install: build/installed ## install for this user, or under PREFIX=…; DESTDIR=… is for packagers
	@"$$($(PY) -c 'import sys; print(sys._base_executable)')" tools/install.py install

uninstall: ## remove the files that make install wrote under PREFIX
	@$(NEW_PYTHON)
	@"$(PYTHON)" tools/install.py uninstall

install uninstall: export PREFIX := $(PREFIX)
install uninstall: export DESTDIR := $(DESTDIR)

clean: ## remove everything that was built
	rm -rf build .venv dist
