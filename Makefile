.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYTHONDONTWRITEBYTECODE :=  # each worker of pytest would compile all tests anew, 6 s of processor time a piece

.PHONY: help demo test test-slow test-containers test-all check format proto lock docs pictures sim torture mutants bench clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# pip installs the uv of the lock, and uv all else, for half of the processor time. It reads none of pip's settings:
# where it reaches no registry, pip goes on. To compress a wheel of Spark would take as long as all the others.
STORED := --build-option=--compression=stored
uv_of = awk '/^[^ ]/ { own = /^uv==/ } own' ops/dev.lock \
	| $(1)/python -m pip install -q --disable-pip-version-check --require-hashes -r /dev/stdin
install = $(1)/uv pip install --system-certs --python $(1)/python -C=$(STORED) $(2) \
	|| { echo "odradek: uv could not install them, pip tries"; \
	$(1)/python -m pip install --disable-pip-version-check --config-settings=$(STORED) $(2); }

$(STAMP): pyproject.toml ops/dev.lock
	@test -x $(BIN)/python || { echo "odradek: making a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "odradek: installing packages (the first time takes a minute or two; Spark alone is 490 MB)"
	@$(call uv_of,$(BIN))
	@$(call install,$(BIN),--require-hashes -r ops/dev.lock)
	@$(call install,$(BIN),-q --no-deps -e .)
	@$(BIN)/python -m compileall -q proto client broker chaos audit  # or the first start of every process pays for it
	@touch $@

demo: $(STAMP)  ## three brokers, a workload, a killed leader, an audit on Spark, a verdict
	@$(BIN)/odradek demo

test: $(STAMP)  ## everything of every day, a minute on two idle cores
	@$(BIN)/python -m pytest -m "not slow" --forks 6  # most of six wait for something

test-slow: $(STAMP)  ## what takes longer: real processes, killed for minutes
	@$(BIN)/python -m pytest -m slow --forks 6 --durations 15 --ignore tests/containers

test-containers: $(STAMP)  ## the images and docker-compose.yml; needs Docker
	@$(BIN)/python -m pytest -m slow --durations 15 tests/containers

test-all: test test-slow test-containers  ## everything

check: $(STAMP)  ## format, lint, strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy proto client broker chaos audit tests bench examples
	@$(BIN)/python -m pip check --disable-pip-version-check

format: $(STAMP)  ## format and sort imports
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

TYPED := broker quorum  # used as Google's library has them
VALUES := admin controller groups metadata  # used as values: odradek_proto.messages
proto: $(STAMP)  ## generate code from the .proto files, and odradek.sync's Admin from odradek's
	@$(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto proto/odradek_proto/v1/*.proto
	@$(BIN)/python -m grpc_tools.protoc -I proto --pyi_out=proto $(TYPED:%=proto/odradek_proto/v1/%.proto)
	@$(BIN)/python ops/proto/values.py proto $(VALUES:%=odradek_proto/v1/%.proto)
	@$(BIN)/python ops/proto/blocking.py client/odradek/sync/admin_methods.py

LOCK = $(BIN)/uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --upgrade
lock: $(STAMP)  ## pin what is installed by CI and the images, with hashes
	@$(LOCK) --extra dev -o ops/dev.lock
	@$(LOCK) --extra fast --extra compression --extra metrics --extra security -o ops/docker/broker.lock
	@$(LOCK) --extra fast --extra compression --extra metrics --extra security --extra audit -o ops/docker/audit.lock \
		$$(sed -n 's/^\([^ =]*\)==.*/--no-emit-package \1/p' ops/docker/broker.lock)  # its image has them
	@$(LOCK:pyproject.toml=ops/docs/requirements.in) -o ops/docs/requirements.lock

DOCS := $(VENV)/docs
docs: $(DOCS)/.installed  ## the documents as a site with search and API, in .venv/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build -q --strict
	@echo "odradek: the site is $(VENV)/site/index.html"

$(DOCS)/.installed: ops/docs/requirements.lock
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(call uv_of,$(DOCS)/bin)
	@$(call install,$(DOCS)/bin,-q --require-hashes -r ops/docs/requirements.lock)
	@touch $@

pictures: $(STAMP)  ## draw the lesson of the README anew
	@$(BIN)/python ops/docs/picture.py lost-write > docs/images/lost-write.svg

SEED ?= 7
SIM_OPTIONS ?=
sim: $(STAMP)  ## one seed of the simulated world: make sim SEED=7 SIM_OPTIONS="--faults 5"
	@$(BIN)/odradek chaos trace $(SEED) $(SIM_OPTIONS) > /dev/null

HOURS ?= 2
torture: $(STAMP)  ## what takes hours: long campaigns, each a row in docs/torture.md
	@$(BIN)/python -m tests.simulation.torture --hours $(HOURS)
	@$(BIN)/python -m tests.cluster.test_fuzz_grpc --minutes 60
	@$(BIN)/python -m tests.kafka.fuzz --minutes 60
	@ODRADEK_TORTURE=1 $(MAKE) test-all  # with all seeds and rounds
	@$(BIN)/python -m tests.interop.suites
	@$(BIN)/python -m tests.interop.kills.audited --minutes 60

mutants: $(STAMP)  ## break the protocol on purpose, 111 times by hand and 100 times by machine: which check notices?
	@rm -f $(VENV)/reach.json
	@$(BIN)/python -m tests.mutants --reach $(VENV)/reach.json
	@$(BIN)/python -m tests.mutants --generated 100 --reach $(VENV)/reach.json

bench: $(STAMP)  ## all measurements, one table each
	@$(BIN)/python -m bench

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
