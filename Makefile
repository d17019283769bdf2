# The habits of this house; `make help` lists them. Needs Linux with glibc, Python ≥ 3.10 (with venv and headers), a JDK 17
# or 21, a C++20 compiler, make; and Maven where a Kafka broker is run. Everything else comes from PyPI into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# One more than cores where these are few: tests wait a third of their time, for a JVM to start or a broker to elect.
TEST_JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
BENCH ?= keyed_sum
PART ?= commit
KILLS ?= 2
SEED ?= $(shell date +%Y%m%d)
BENCHES := keyed_sum long_run core_ops small_batch growth upload recovery savepoint rescale read memory ttl timers low_latency evolution pressure storage load kafka_source eos exactly_once
KAFKA_BENCHES := load kafka_source eos exactly_once
ARGS ?=

CPP_SOURCES := $(shell find cpp tests/cpp benchmarks -name '*.cc' -o -name '*.h' 2>/dev/null)
CORE_SOURCES := $(filter cpp/%,$(CPP_SOURCES))
CLANG_TIDY := $(shell command -v clang-tidy clang-tidy-19 clang-tidy-18 clang-tidy-17 clang-tidy-16 2>/dev/null | head -1)

export PATH := $(BIN):$(PATH)
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python
# Who works with Spark often has another one set up: these would run it instead of .venv's, or with its settings. The last
# one makes every process compile all that it imports anew.
unexport SPARK_HOME SPARK_CONF_DIR PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.PHONY: help dev demo demo-kafka test test-fast python-test file-times cpp-test lint format tidy bench bench-parts bench-short beside figures faults nightly mutants asan tsan azurite wheel wheels oldest docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# --- the environment ----------------------------------------------------------------------------------------------
dev: $(VENV)/built.stamp  ## make .venv and install Holdfast into it, editable; rebuilds what changed

# Dependencies are installed apart from Holdfast: .ci/requirements.py says why. A distribution that is called holdfast is
# another project, or this one under its first name: it would stand in the way of `import holdfast`.
$(VENV)/environment.stamp: pyproject.toml .ci/requirements.py
	@$(PYTHON) .ci/check_machine.py
	@echo "installing what is needed into .venv: about 1 GB from PyPI, some minutes the first time"
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip 'tomli>=2; python_version < "3.11"'
	$(BIN)/python .ci/requirements.py core test demo lint bench >$(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/requirements.txt
	@! $(BIN)/python -m pip show --quiet holdfast 2>/dev/null || $(BIN)/python -m pip uninstall --quiet --yes holdfast
	@touch $@

# Asked before anything is built: a broker's jars come by Maven, and a machine often has none.
.PHONY: maven
maven:
	@$(PYTHON) .ci/check_machine.py maven

$(VENV)/built.stamp: $(VENV)/environment.stamp CMakeLists.txt $(CORE_SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

# How the tests' Spark starts: tests/spark_jvm.py.
$(VENV)/spark-classes.stamp: $(VENV)/environment.stamp tests/spark_jvm.py tests/java/QuietLocalFs.java | $(VENV)/built.stamp
	$(BIN)/python -m tests.spark_jvm
	@touch $@

# How their brokers start: tests/kafka_jvm.py.
$(VENV)/kafka-classes.stamp: $(VENV)/environment.stamp tests/kafka_jvm.py $(wildcard python/holdfast/testing/kafka_locks/*.json) | $(VENV)/built.stamp
	$(BIN)/python -m tests.kafka_jvm
	@touch $@

FAST_JVMS := $(VENV)/spark-classes.stamp $(VENV)/kafka-classes.stamp

# Files of tests side by side, each process with a JVM and a broker of its own where it needs them. The longest come first
# (tests/file_times.py), where xdist would begin with the files that have many tests, and end with one process at work.
PYTEST = $(BIN)/python -m pytest -p no:benchmark -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
# Their files lie in memory where that is large, and wait for no disk: what a disk forgets, tests/forgetful_files.py says.
IN_MEMORY = $(BIN)/python -m tests.in_memory

# Folders whose tests start no JVM, but for those that are marked.
JVM_FREE := tests/contract tests/golden tests/model tests/unit tests/tidy

# --- the two commands of the README ---------------------------------------------------------------------------------
demo: dev  ## a year of flights through a stateful job that is killed half-way; leaves demo-output/
	$(BIN)/python examples/flights/demo.py --output demo-output $(ARGS)

demo-kafka: maven dev  ## flights through a real Kafka broker, exactly once, with two kill -9; leaves demo-output-kafka/
	$(BIN)/python examples/flights/kafka_demo.py --output demo-output-kafka $(ARGS)

test: maven dev $(FAST_JVMS)  ## the tests, short forms: C++ (where GoogleTest is installed), then Python
	@if printf '#include <gtest/gtest.h>\n' | $${CXX:-c++} -E -x c++ - >/dev/null 2>&1; then $(MAKE) --no-print-directory cpp-test; \
	 else echo "C++ tests left out: GoogleTest is not installed (Debian: apt-get install libgtest-dev)"; fi
	$(IN_MEMORY) $(PYTEST) -m "not slow" $(ARGS)

# --- checks -------------------------------------------------------------------------------------------------------
python-test: maven dev $(FAST_JVMS)  ## the Python tests alone; ARGS="tests/unit -k handle" for some, TEST_JOBS=0 for one at a time
	$(IN_MEMORY) $(PYTEST) -m "not slow" $(ARGS)

file-times: maven dev $(FAST_JVMS)  ## the Python tests, and how long each file took, by which `make test` begins with the longest
	$(IN_MEMORY) $(PYTEST) -m "not slow" --record-file-times $(ARGS)

# For the loop of edit and run: without what takes seconds by itself, and with a fifth of hypothesis' examples.
test-fast: dev  ## the short ones of the Python tests that start no JVM, below two minutes on two cores
	HOLDFAST_EXAMPLES=0.2 $(IN_MEMORY) $(PYTEST) -m "not slow and not long and not spark" $(JVM_FREE) $(ARGS)

cpp-test: dev  ## the C++ tests, release
	$(call ctest,release)

asan: dev  ## the C++ tests under the address and undefined behaviour sanitizers
	$(call ctest,asan)

tsan: dev  ## the C++ tests under the thread sanitizer
	$(call ctest,tsan)

# The tests of cpp/rocksdb are told where RocksDB is: the core does not look for it. The thread sanitizer of older compilers
# cannot bear much address space randomisation: setarch -R turns it off.
ROCKSDB = $$($(BIN)/python -c 'from holdfast import rocksdb_library; print(rocksdb_library.locate().path)')
define ctest
@mkdir -p build
cmake --preset $(1) >build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }
cmake --build --preset $(1) --parallel $(JOBS) >build/$(1).log 2>&1 || { tail -80 build/$(1).log; exit 1; }
HOLDFAST_ROCKSDB_LIBRARY="$(ROCKSDB)" TSAN_OPTIONS="suppressions=$(CURDIR)/tests/cpp/tsan.supp" $(if $(filter tsan,$(1)),$$(command -v setarch >/dev/null && echo setarch -R)) \
 ctest --preset $(1) --parallel $(JOBS) >build/$(1)-tests.log 2>&1 || { tail -200 build/$(1)-tests.log; exit 1; }
@grep 'tests passed' build/$(1)-tests.log
endef

lint: dev  ## ruff, mypy (--strict for the package), clang-format
	ruff check .
	ruff format --check .
	mypy
	clang-format --dry-run -Werror $(CPP_SOURCES)

tidy: $(VENV)/environment.stamp  ## clang-tidy, where it is installed
	@if [ -z "$(CLANG_TIDY)" ]; then echo "clang-tidy left out: not installed (Debian: apt-get install clang-tidy)"; else \
	 cmake --preset release >/dev/null && echo "$(CLANG_TIDY)" && \
	 find cpp -name '*.cc' -not -path 'cpp/bindings/*' -print0 | \
	 xargs -0 -n 4 -P $(JOBS) $(CLANG_TIDY) -p build/release --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option 2>/dev/null; fi

format: $(VENV)/environment.stamp  ## rewrite the sources as lint wants them
	ruff check --fix .
	ruff format .
	clang-format -i $(CPP_SOURCES)

# --- figures, faults, packages --------------------------------------------------------------------------------------
bench: $(if $(filter $(KAFKA_BENCHES),$(BENCH)),maven) dev  ## figures: BENCH=keyed_sum ARGS="--short"; benchmarks/README.md lists them
	@found=$$(ls benchmarks/*/$(BENCH).py 2>/dev/null) || \
	 { echo "no benchmark $(BENCH); there are: $(BENCHES)"; exit 1; }; \
	 PYTHONPATH=$(CURDIR) $(BIN)/python -m $$(echo $${found%.py} | tr / .) $(ARGS)

bench-short: $(if $(filter $(KAFKA_BENCHES),$(BENCHES)),maven) dev  ## every benchmark in its small form: that they run, not how fast
	@for bench in $(BENCHES); do echo "--- $$bench"; $(MAKE) --no-print-directory bench BENCH=$$bench ARGS=--short || exit 1; done

beside: dev  ## processor time ÷ that of an earlier commit, by pairs: COMMIT=f4e47a1 ARGS="--only query"
	PYTHONPATH=$(CURDIR) $(BIN)/python -m benchmarks.beside.earlier $(COMMIT) $(ARGS)

figures: dev  ## README.md's table and docs/figures.md, from the records of benchmarks/recorded
	PYTHONPATH=$(CURDIR) $(BIN)/python -m benchmarks.pages

bench-parts: dev  ## the parts by themselves, under pytest-benchmark
	$(BIN)/python -m pytest benchmarks/core/test_parts.py --benchmark-columns=min,median,iqr,rounds --benchmark-sort=name $(ARGS)

faults: maven dev $(FAST_JVMS)  ## the crash harnesses: KILLS=20 kills of each pair of step and who dies
	HOLDFAST_SEED=$(SEED) HOLDFAST_KILLS=$(KILLS) $(PYTEST) tests/faults -m "slow or not slow" --timeout 36000 $(ARGS)

# Hours. Kills every pair of step and who dies, then does what production does at night: three brokers that roll, brokers that
# are away or years old, containers that run one batch. The seed is said first, so that SEED= repeats what a night has found.
nightly: maven dev $(FAST_JVMS)  ## every long form of every test, ten times hypothesis' examples; ARGS="-k three_brokers" for one, SEED=1 for another night
	@echo "nightly: SEED=$(SEED) KILLS=$(KILLS) $(ARGS)"
	HOLDFAST_PLAIN_SPARK=1 HOLDFAST_EXAMPLES=10 HOLDFAST_SEED=$(SEED) HOLDFAST_KILLS=$(KILLS) $(PYTEST) tests -m "slow or hypothesis" -rP --timeout 36000 $(ARGS)

# About an hour for commit/ on two cores. The tree stays as it is: mutants live in memory (tests/mutants.py).
mutants: $(VENV)/mutants.stamp  ## small changes in a room, and those that no test notices: PART=commit/record.py ARGS="--only decided"
	PYTHONPATH=$(CURDIR) $(BIN)/python -m tests.mutants $(PART) $(ARGS)

$(VENV)/mutants.stamp: $(VENV)/built.stamp
	$(BIN)/python .ci/requirements.py mutants >$(VENV)/mutants-requirements.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/mutants-requirements.txt
	@touch $@

# Links and names that lead nowhere are errors. MkDocs' theme would say in each run that it has a successor.
docs: $(VENV)/docs.stamp  ## the pages and the reference made from docstrings, as a site in build/site
	$(BIN)/python .ci/pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file build/mkdocs.yml
	@echo "open build/site/index.html"

$(VENV)/docs.stamp: $(VENV)/built.stamp
	$(BIN)/python .ci/requirements.py docs >$(VENV)/docs-requirements.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/docs-requirements.txt
	@touch $@

azurite: $(VENV)/azurite.stamp  ## Azure's emulator from npm into .venv: without it the tests of Azure's store are left out

$(VENV)/azurite.stamp: $(VENV)/environment.stamp
	npm install --loglevel=error --no-audit --no-fund --ignore-scripts --prefix $(VENV)/azurite azurite@3
	@touch $@

wheel: maven $(VENV)/wheel.stamp  ## a manylinux wheel in dist/ for .venv's Python, installed and run in a fresh environment
	$(BIN)/python tests/wheel/build_wheel.py --output dist
	$(BIN)/python tests/wheel/try_wheel.py dist

# Each Python of this machine, and for each both architectures. aarch64 is tried under qemu, where it is installed.
wheels: maven dev $(VENV)/wheel.stamp  ## wheels of all Pythons here, for x86-64 and aarch64, and an sdist; those that run here are tried
	rm -rf dist
	$(BIN)/python -m build --quiet --sdist --outdir dist
	@$(PYTHON) .ci/pythons.py | while read -r version python; do \
	 $(BIN)/python tests/wheel/build_wheel.py --output dist --python "$$python" --architecture x86_64 --architecture aarch64 </dev/null && \
	 $(BIN)/python tests/wheel/try_wheel.py dist --python "$$python" </dev/null || exit 1; \
	done
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/wheel/try_aarch64.py dist

# The wheels' own tools, a compiler among them, are large: only who builds wheels gets them.
$(VENV)/wheel.stamp: $(VENV)/environment.stamp
	$(BIN)/python .ci/requirements.py wheel >$(VENV)/wheel-requirements.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/wheel-requirements.txt
	@touch $@

# The oldest releases that pyproject.toml allows, and a plain install. Needs a Python that they have wheels for (3.11).
OLDEST := build/oldest
OLDEST_TESTS ?= tests/unit tests/integration/test_totals.py \
 tests/integration/test_exactly_once.py tests/integration/kafka/test_spark_connector.py tests/faults/test_recovery_ways.py \
 tests/integration/kafka/test_kafka_source_in_spark.py tests/integration/kafka/test_kafka_plans.py \
 tests/integration/test_query_errors.py tests/integration/test_side_outputs_in_spark.py tests/integration/test_connect.py \
 tests/integration/test_metrics_in_spark.py
oldest: maven $(OLDEST)/environment.stamp  ## a core of the tests on the oldest supported pyspark, pyarrow and pandas
	HOLDFAST_PLAIN_SPARK=1 PATH=$(CURDIR)/$(OLDEST)/bin:$$PATH PYSPARK_PYTHON=$(CURDIR)/$(OLDEST)/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/$(OLDEST)/bin/python \
	 $(OLDEST)/bin/python -m pytest -p no:benchmark -m "not slow" $(OLDEST_TESTS)

$(OLDEST)/environment.stamp: pyproject.toml CMakeLists.txt $(CORE_SOURCES) $(shell find python -name '*.py' 2>/dev/null)
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --constraint .ci/oldest.txt --config-settings=build-dir=build/oldest-cmake '.[test]'
	@touch $@

clean:  ## remove what was built, but .venv
	rm -rf build dist demo-output demo-output-kafka .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks spark-warehouse
	rm -f $(VENV)/built.stamp
