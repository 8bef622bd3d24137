# Every routine is one short command. `make demo` and `make test` set up all they need.

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# More than there are cores: most tests that take long wait, for sessions to end and processes to start.
WORKERS ?= 5
KILLS ?= 50
ROUNDS ?= 10
FUZZ_SECONDS ?= 60
SEEDS ?= 100

# Tests start hundreds of Python processes: each would compile all modules again if nobody wrote down what came of it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

.PHONY: help setup demo test test-peers test-kill test-cluster test-transactions test-pipelines check format fuzz sim sim-transactions lock clean
.PHONY: bench bench-compaction bench-groups bench-failover bench-replication bench-transactions bench-client bench-pipelines

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: .venv/ready ## Make the virtual environment

.venv/ready: pyproject.toml requirements/dev.lock scripts/setup hatch_build.py $(wildcard src/tidelog/records/*.p[xy][xd])
	scripts/setup python
	@touch $@

demo: .venv/ready ## Start a broker and a pipeline on Spark, send a shop's events through them, check what came of it
	.venv/bin/tidelog demo

test: .venv/ready ## Run the tests that need PyPI and Debian packages only
	scripts/setup kcat
	scripts/setup openssl
	scripts/setup java
	$(PYTEST) -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

test-peers: .venv/ready ## Run the tests with clients in other languages (Maven Central, Go proxy, npm)
	scripts/setup peers
	$(PYTEST) -n $(WORKERS) --dist loadgroup --no-loadscope-reorder -m peers

test-kill: .venv/ready ## Kill the broker under load KILLS times and look for lost, repeated or reordered records
	$(PYTEST) tests/broker/test_kill_nine.py --kills $(KILLS) -s --timeout 3600

test-cluster: .venv/ready ## Break a cluster under load, each way ROUNDS times, brokers in network namespaces (root) included
	scripts/setup java
	CLUSTER_ROUNDS=$(ROUNDS) $(PYTEST) tests/cluster -m "not peers" -s --timeout 7200

test-transactions: .venv/ready ## End brokers at every step of transactions in every role, each way ROUNDS times
	scripts/setup java
	TRANSACTION_ROUNDS=$(ROUNDS) $(PYTEST) tests/transactions/test_crash_matrix.py \
		tests/transactions/test_cluster_transactions.py -s --timeout 7200

test-pipelines: .venv/ready ## Kill Spark's drivers KILLS times, and executors and brokers beside, and look for lost or repeated rows
	scripts/setup java
	PIPELINE_KILLS=$(KILLS) $(PYTEST) tests/pipelines/test_chaos.py -s --timeout 14400

check: .venv/ready ## Lint, check formatting, types and the walls between the rooms
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: .venv/ready ## Format the code
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

bench: .venv/ready ## Measure speed and memory against references on this machine
	$(PYTHON) -m bench

bench-compaction: .venv/ready ## Compact ten million updates while they are written and read and the broker is killed
	$(PYTHON) -m bench.compaction

bench-groups: .venv/ready ## Measure very many consumer groups on one broker, and rebalances of large ones
	$(PYTHON) -m bench.groups

bench-failover: .venv/ready ## Kill and stop brokers that lead thousands of partitions, and measure how long clients wait
	$(PYTHON) -m bench.failover

bench-replication: .venv/ready ## Measure what three replicas cost: throughput and latency
	$(PYTHON) -m bench.replication

bench-transactions: .venv/ready ## Measure what transactions cost, and how many there can be
	$(PYTHON) -m bench.transactions

bench-client: .venv/ready ## Compare the Python client with kafka-python, aiokafka and confluent-kafka
	$(PYTHON) -m bench.client

bench-pipelines: .venv/ready ## Compare source and sink for Spark with Spark's own Kafka connector (Maven Central)
	scripts/setup java
	$(PYTHON) -m bench.pipelines

fuzz: .venv/ready ## Fuzz the decoders for FUZZ_SECONDS each
	scripts/setup fuzz
	for target in fuzz/fuzz_*.py; do $(PYTHON) $$target -max_total_time=$(FUZZ_SECONDS) || exit 1; done

sim: .venv/ready ## Simulate a cluster under faults for SEEDS seeds, or replay one: make sim SEED=17
	$(PYTHON) -m tidelog.testing.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

sim-transactions: .venv/ready ## Simulate transactions with lost, late and repeated messages for SEEDS seeds, or replay one: SEED=17
	$(PYTHON) -m tidelog.testing.transaction_sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

lock: ## Pin the newest allowed versions of all dependencies
	scripts/lock

clean: ## Remove everything that was built or installed here
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
