# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The variable silences an announcement of the theme's makers.
BUILD_DOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: demo test lint docs format clean

demo: $(VENV)/installed-report
	$(BIN)/knoi demo

# Two test processes share two cores: one BLAS thread in each.
test: $(VENV)/installed-test $(VENV)/browser
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --durations=25

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BUILD_DOCS) --quiet

# The site, in build/site/index.html. Nothing is fetched, and whatever is off is an error.
docs: $(VENV)/installed-test
	$(BUILD_DOCS)

format: $(VENV)/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) knoi-demo build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "knoi needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A marker is written only after pip has succeeded, so a broken install is tried again.
# Python compiles the few modules that the demo imports faster than pip compiles them all.
$(VENV)/installed-report: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[report]'
	touch $@

# Reports are tested in a real browser. Where there is none and none can be had, the tests go on and
# skip what needs it.
$(VENV)/browser: | $(BIN)/python
	@if ! command -v chromium && command -v apt-get && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; \
	fi >/dev/null; \
	if command -v chromium >/dev/null; then touch $@; \
	else echo "no chromium could be installed: reports are not tested in a browser"; fi

$(VENV)/installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ $(VENV)/installed-report
