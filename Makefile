# Everything a fresh machine needs is Python 3.11 or newer and make: each target below sets up .venv if it is missing.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := outputs/demo
SENTENCE := da hunde alte heut ei katzin seht .

.DEFAULT_GOAL := help
.PHONY: help setup demo train test test-slow test-chaos test-cluster lint docs package notebook bench soak audit comet clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@echo "Setting up .venv (once, two to three minutes)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev,docs,loggers,dashboard,sweeps,playground]'
	@touch $@

setup: $(READY)  ## make .venv and install into it

demo: $(READY)  ## train on generated text, decode, report on one page (under 10 minutes on 2 cores)
	rm -rf $(DEMO)
	$(BIN)/python train.py hydra.run.dir=$(DEMO)
	$(BIN)/python evaluate.py -m ckpt=$(DEMO) decoding=vanilla,rdm decoding.steps=2,4,10 schedule=linear
	$(BIN)/python generate.py -m ckpt=$(DEMO) trace=true sentences=3 decoding=rdm,vanilla decoding.steps=10 schedule=linear
	$(BIN)/python -m rdm.report $(DEMO)
	@echo
	@echo "Open $(CURDIR)/$(DEMO)/report.html in a browser: the table, the figures, and three"
	@echo "sentences decoded iteration by iteration with both decodings, on one page."
	@echo "Try next:"
	@echo "  source .venv/bin/activate"
	@echo "  python generate.py ckpt=$(DEMO) text=\"$(SENTENCE)\""
	@echo "  python evaluate.py -m ckpt=$(DEMO) decoding=rdm,rdm_commit decoding.steps=4"
	@echo "  python train.py diffusion=rdm_multinomial hydra.run.dir=outputs/multinomial"

train: $(READY)  ## train with the defaults; ARGS="diffusion=rdm_multinomial ..." overrides them
	$(BIN)/python train.py $(ARGS)

test: $(READY)  ## run the tests (a few minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-slow: $(READY)  ## run the long tests
	$(BIN)/python -m pytest -m slow

test-chaos: $(READY)  ## kill training at random moments, resume, compare with an untouched run (a few minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos $(ARGS)

test-cluster: $(READY)  ## train in a SLURM queue and on two hosts of this machine, interrupt and resume (root on Debian)
	$(BIN)/python -m pytest -m cluster tests/cluster -rs -s $(ARGS)

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## build the documentation into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

package: $(READY)  ## build the wheel and the source distribution into dist/, check them, use the wheel outside the clone
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow or not slow' tests/test_package.py

notebook: $(READY)  ## execute examples/quickstart.ipynb (about two minutes)
	OMP_NUM_THREADS=1 $(BIN)/python examples/execute.py

bench: $(READY)  ## measure training and decoding speed; ARGS="--quick" for small models
	$(BIN)/python -m rdm.bench $(ARGS)

soak: $(READY)  ## train, validate, decode and evaluate for 30 minutes; fails if memory grows by 2% or files stay open
	OMP_NUM_THREADS=1 $(BIN)/python scripts/soak.py $(ARGS)

audit: $(READY)  ## look up the installed packages in the list of known vulnerabilities; needs a network
	test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --disable-pip-version-check -q pip-audit
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//' > .venv-audit/installed.txt
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip -r .venv-audit/installed.txt

comet:  ## COMET of saved hypotheses, in an environment of its own: make comet FILE=outputs/<run>/hypotheses/<name>.jsonl
	@test -f "$(FILE)" || { echo "FILE: name a file of <run>/hypotheses, e.g. make comet FILE=outputs/<run>/hypotheses/<name>.jsonl"; exit 2; }
	test -x .venv-comet/bin/python || $(PYTHON) -m venv .venv-comet
	.venv-comet/bin/pip install --disable-pip-version-check -q unbabel-comet==2.2.7
	.venv-comet/bin/python scripts/comet_score.py $(FILE) $(ARGS)

clean:  ## remove caches and outputs, keep .venv
	rm -rf outputs dist site data/cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
