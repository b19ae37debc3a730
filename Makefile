PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow lint bench bench-gpu pictures results clean

demo: $(READY)  ## the paper's Table 1 from live models, the kernel pictures, and two matched pairs of photos
	$(BIN)/matchkernel params
	$(BIN)/matchkernel plot kernels -o out/demo
	$(BIN)/matchkernel demo -o out/demo

test: $(READY)  ## the test suite
	$(BIN)/python -m pytest -n auto

test-slow: $(READY)  ## the tests that take longer
	$(BIN)/python -m pytest -n auto -m slow

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-gpu: $(READY)  ## measure training on a GPU
	$(BIN)/python benchmarks/training.py

bench: $(READY)  ## measure, and write benchmarks/results/
	$(BIN)/python benchmarks/aggregation_memory.py
	$(BIN)/python benchmarks/describe_speed.py
	$(BIN)/python benchmarks/patch_cutting.py
	$(BIN)/python benchmarks/random_reads.py
	$(BIN)/python benchmarks/label_noise.py
	$(BIN)/python benchmarks/hpatches_tasks.py

pictures: $(READY)  ## draw the pictures of README and docs again
	$(BIN)/matchkernel plot kernels -o docs/images
	$(BIN)/matchkernel plot conventions -o docs/images/conventions.png
	$(BIN)/matchkernel plot augmentation configs/tiny.toml --set model.patch_size=64 -o docs/images/augmentation.png
	$(BIN)/matchkernel plot training experiments/2026-11-15-training-on-a-gpu/log.jsonl -o docs/images/training_curve.png
	$(BIN)/matchkernel demo -o out/demo
	$(BIN)/python -c "from PIL import Image; Image.open('out/demo/turned-copy-dual.png').convert('RGB').resize((1152, 503)).save('docs/images/matches.jpg', quality=85)"

results: $(READY)  ## write docs/results.md and its charts from the results of the experiments
	$(BIN)/python experiments/paper/page.py

clean:  ## remove everything that was made
	rm -rf .venv out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Set-up: once, and again when the dependencies change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
