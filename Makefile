# Two commands: `make demo` runs it, `make test` proves it. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test lint unit test-peers bench bench-peers clean help

help:
	@echo "make demo   start a broker on 127.0.0.1:9092, generate orders, watch them flow (Ctrl-C ends it)"
	@echo "make test   lint, types, import contracts and every test"
	@echo "make setup  only prepare $(VENV) with the tidelog command in it"
	@echo "make bench  measure this machine: ratios to its own limits"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@
	@echo "ready: $(BIN)/tidelog --help"
