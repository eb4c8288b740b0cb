# Every target does its own set-up: `make demo` and `make test` need nothing before them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ONE_CONVERSATION := --evaluation.tasks locomo --evaluation.conversations conv-26
FINDER ?= outputs/reference/final

# tests never wait for a hub, an account or a progress bar
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_PROGRESS_BARS=1 \
	WANDB_MODE=disabled TOKENIZERS_PARALLELISM=false TQDM_DISABLE=1

.DEFAULT_GOAL := help
.PHONY: help install base-model demo reference test lint types imports unit test-slow recall-benchmark bench read-benchmark addressing-benchmark cogmem-benchmark cognis-benchmark results format clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

install: $(INSTALLED) ## create .venv with mlmf and its development tools

$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "mlmf needs Python 3.10 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

base-model: $(INSTALLED) ## fetch SmolLM2-135M into the cache, once
	@$(BIN)/python -m mlmf.base_model smollm2-135m >/dev/null

demo: base-model ## train on LOCCO, compare with no memory, answer from the checkpoint
	$(BIN)/python train.py --config configs/train/demo_cloze.yaml
	$(BIN)/python train.py --config configs/train/demo.yaml
	$(BIN)/python evaluate.py --config configs/eval/demo.yaml
	$(BIN)/python -m mlmf.demo outputs/demo/final

reference: base-model ## train the checkpoint that RESULTS.md is about (an hour of CPU time; MLMF_DATA must hold MSC)
	$(BIN)/python train.py --config configs/train/reference_cloze.yaml
	$(BIN)/python train.py --config configs/train/reference.yaml

test: lint types imports unit ## lint, types, import order, unit tests: what CI runs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports --no-logo

unit: base-model
	$(OFFLINE) $(BIN)/python -m pytest -n 2 -q

test-slow: base-model ## the slow tests too: scripts end to end, the notebook
	$(OFFLINE) $(BIN)/python -m pytest -q -m "not network and not gpu"

recall-benchmark: $(INSTALLED) ## score recall of tiny memories and peers (hours; RECALL="--variants full --seeds 0 --report_dir outputs/recall_report": minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	# its requirements name a CUDA build of faiss; the extra brings faiss-cpu and the rest
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps memorizing-transformers-pytorch==0.4.1
	$(BIN)/python -m benchmarks.recall $(RECALL)

bench: base-model ## measure the speed of memory against the model without it, into results/bench.json
	$(BIN)/python -m benchmarks.bench

read-benchmark: base-model ## ask the demo's checkpoint with the evidence in memory alone, into results/read.json
	$(BIN)/python -m benchmarks.read

addressing-benchmark: base-model ## score who finds the evidence, into results/addressing.json; make reference first
	$(BIN)/python -m benchmarks.addressing
	$(BIN)/python -m benchmarks.addressing --base_model smollm2-135m
	$(BIN)/python -m benchmarks.addressing --checkpoint $(FINDER) --ablations --capacity
	$(BIN)/python -m benchmarks.addressing --checkpoint $(FINDER) --tasks locomo --folds 5

cogmem-benchmark: base-model ## count the tokens of a turn with CogMem and without, and score its parts on one conversation, into results/cogmem*.json
	$(BIN)/python -m benchmarks.cogmem_tokens
	$(BIN)/python -m benchmarks.variants --config configs/systems/cogmem_parts.yaml $(ONE_CONVERSATION) --evaluation.limit 40

cognis-benchmark: base-model ## grow a Cognis memory to 100,000 entries, and score its stages on one conversation, into results/cognis*.json
	$(BIN)/python -m benchmarks.cognis_scale
	$(BIN)/python -m benchmarks.variants --config configs/systems/cognis_stages.yaml $(ONE_CONVERSATION)
	$(BIN)/python -m benchmarks.variants --config configs/systems/cognis_weights.yaml $(ONE_CONVERSATION)

results: $(INSTALLED) ## write RESULTS.md and results/reference.json from the finished runs that configs/results/reference.yaml names
	$(BIN)/python -m mlmf.evaluation.reference --config configs/results/reference.yaml

format: $(INSTALLED) ## format and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv, caches and build files; outputs/ stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find mlmf tests -name __pycache__ -type d -prune -exec rm -rf {} +
