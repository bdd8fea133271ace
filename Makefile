# The first two commands of the README are `make run` and `make test`; both start from a bare clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PYTHONSAFEPATH := 1
# cython-lint starts pycodestyle by its name.
export PATH := $(abspath $(BIN)):$(PATH)

SOURCES := $(wildcard */*.pyx */*.pxd io_backends/*.[ch] records/*.[ch] engine/*.[ch] remoting/*.[ch])

.PHONY: build run test lint bench soak bench-spark clean

build: $(VENV)/.built

# Dependencies, by what asks for them; a second call finds the stamp and is quick.
$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "setuptools>=77" "Cython>=3.1,<4"
	touch $@

# The C library of the io_uring backend, where this machine lets us; the build goes on without it.
$(VENV)/.liburing: | $(VENV)/.base
	test -e /usr/include/liburing.h || ! test -w /usr/include || ! command -v apt-get >/dev/null || \
		apt-get install -qq --no-install-recommends liburing-dev >/dev/null || \
		{ apt-get update -qq && apt-get install -qq --no-install-recommends liburing-dev; } \
		>/dev/null || echo "liburing-dev could not be installed: ioBackend=uring is left out"
	touch $@

# Spark looks for pyspark_* in folders, which --editable does not show: hence the link.
$(VENV)/.built: $(VENV)/.base $(VENV)/.liburing setup.py $(SOURCES)
	$(BIN)/pip install --quiet --no-build-isolation --editable .
	ln -sf $(CURDIR)/pyspark_congreve.py \
		"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	touch $@

# By its name, because --editable would compile again: it is installed, only what it needs is not.
$(VENV)/.demo: $(VENV)/.built
	$(BIN)/pip install --quiet "congreve[demo,spark]"
	touch $@

$(VENV)/.dev: $(VENV)/.built
	$(BIN)/pip install --quiet "congreve[dev,bench,demo,spark]"
	touch $@

# The main job: a broker, real messages through it, read back by a group and by Spark.
# ONCE=1 ends by itself; without it the broker stays up until Ctrl-C.
run: $(VENV)/.demo
	$(BIN)/congreve demo $(if $(ONCE),--once)

test: $(VENV)/.dev lint
	$(BIN)/pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/cython-lint $(wildcard */*.pyx */*.pxd)
	$(BIN)/mypy

# The crash tests, for as long as ROUNDS says; ends with the table of docs/reliability.md. 1000, of
# which interop takes the most: some hours; of tests/crash alone: less than one.
soak: $(VENV)/.dev
	$(BIN)/pytest tests -m crash --kill-rounds=$(or $(ROUNDS),1000)

bench: $(VENV)/.dev
	PYTHONPATH=bench:tests/interop $(BIN)/python -m sidebyside $(if $(SIZE),--size $(SIZE))
	PYTHONPATH=bench:tests/interop $(BIN)/python -m clientspeed
	PYTHONPATH=bench:tests/interop $(BIN)/python -m clientspeed.consuming
	mkdir -p bench/results
	$(BIN)/pip install --quiet liburing || echo "no PyPI liburing here: it is not compared"
	$(BIN)/pytest bench --benchmark-only --benchmark-json=bench/results/parts.json

# Spark over 5 million messages; some minutes.
bench-spark: $(VENV)/.dev
	PYTHONPATH=bench $(BIN)/python -m sparkspeed

clean:
	rm -rf build dist *.egg-info $(VENV)/.built $(VENV)/.demo $(VENV)/.dev
	find . -path ./$(VENV) -prune -o \( -name '*.so' -o -name __pycache__ \) -print0 | xargs -0 rm -rf
