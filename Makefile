# Everything runs in .venv, which is made on first use. EXTRAS=viz,dev,mp4,gpu,optimal,bfloat16
# adds PyAV, CuPy, OR-tools and ml_dtypes.
PYTHON ?= python3
EXTRAS ?= viz,dev
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := .venv/.installed-$(EXTRAS)
# The demo runs in whatever environment there is; a new one gets no more than it needs.
DEMO_STAMP := $(or $(firstword $(wildcard .venv/.installed-*)),.venv/.installed-viz)
# What checks the scripts of pages: with the Node of a wheel in .venv, from package-lock.json.
NODE := $(BIN)/node
SCRIPT_CHECKS := node_modules/.installed
BIOME := $(NODE) node_modules/@biomejs/biome/bin/biome

# Each of pytest's processes takes one processor: threads of BLAS would only be in their way.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

.PHONY: demo test test-all nightly newcomer wheel-test check house test-deep gpu-test format images docs site \
        notebooks notebook-files graphs text dist clean

demo: $(DEMO_STAMP)
	$(BIN)/tinyckpt demo

# In CI all of them, the newcomer's path too; elsewhere without pages in browsers and what takes long.
test: $(STAMP)
	$(PYTEST) -m "$(if $(CI),not nightly,not newcomer and not long and not browser and not nightly)"

test-all: $(STAMP)
	$(PYTEST)

# All tests, those too that take minutes, with more generated graphs. The widget is tried in
# applications that no extra has, and the grader's files in Otter.
nightly: $(STAMP)
	$(BIN)/python -m pip install --quiet $(PIPFLAGS) anywidget jupyterlab marimo otter-grader
	$(MAKE) test-deep

test-deep: $(STAMP)
	HYPOTHESIS_PROFILE=deep $(PYTEST) -m ""

gpu-test: $(STAMP)
	$(BIN)/pytest -m gpu

# Clone, demo, its next steps and every line of the README, in an environment made from nothing.
newcomer: $(STAMP)
	$(BIN)/pytest -m newcomer

# The wheel alone, in environments made from nothing, without the source.
wheel-test: $(STAMP)
	$(BIN)/pytest -m newcomer tests/test_package.py

check: $(STAMP) $(SCRIPT_CHECKS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIOME) ci --error-on-warnings
	$(NODE) node_modules/typescript/bin/tsc
	$(NODE) .ci/lint_workflows.mjs

# Rooms, floors and arrows of the layout; lines of each part.
house: $(STAMP)
	$(BIN)/python -m tests.house

format: $(STAMP) $(SCRIPT_CHECKS)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIOME) check --write

# The pictures of the README.
images: $(STAMP)
	$(BIN)/python docs/images.py

# The site, in docs/_build: static files, to be opened from there or copied to any host. Executes
# all lessons.
docs:
	$(MAKE) EXTRAS=$(EXTRAS),docs site

site: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -d build/doctrees -b html docs docs/_build

# Lessons and parts of the course as executed notebooks, in build/notebooks; make docs has them too.
notebooks:
	$(MAKE) EXTRAS=$(EXTRAS),docs notebook-files

notebook-files: $(STAMP)
	$(BIN)/python docs/notebooks.py build/notebooks

# The graphs of well-known networks that ship as JSON documents.
graphs: $(STAMP)
	for name in vgg16 vgg16_bn resnet50 mobilenet unet; do \
	    $(BIN)/tinyckpt graph $$name -o tinyckpt/data/graphs/$$name.json || exit 1; done

# The text that ships for language models to learn: the lessons as they stand.
text:
	cat lessons/*.py > tinyckpt/data/lessons.txt

# Wheel and sdist, in dist: of this tree, with the builder of .venv.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m hatchling build

.venv/.installed-%: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(PIPFLAGS) --editable '.[$*]'
	rm -f .venv/.installed-*
	touch $@

$(SCRIPT_CHECKS): package.json package-lock.json $(STAMP)
	$(BIN)/npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

clean:
	rm -rf .venv node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis lessons/out demo-out
