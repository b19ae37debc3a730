"""Tiny sets and weights to evaluate, made once."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import write_sequence
from made_images import save, texture

import matchkernel
from matchkernel.data.from_homographies import HomographySettings, build_from_homographies
from matchkernel.data.hpatches import draw_verification, write_tasks
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Three patch sets with pairs, an HPatches-layout set of two sequences with a split of its own, weights."""
    folder = tmp_path_factory.mktemp("evaluate")
    for seed, name in enumerate(("one", "two", "three")):
        build_synthetic(folder / name, SyntheticSettings(points=20, patches=3, size=32, seed=seed))
        labels = open_patch_set(folder / name).labels
        a, b = np.random.default_rng(seed).integers(len(labels), size=(2, 800))
        a[:100], b[:100] = np.repeat(np.arange(0, 60, 3), 5), np.repeat(np.arange(1, 60, 3), 5)
        pairs = np.column_stack([a, b, labels[a] == labels[b]]).astype(np.int64)
        (folder / name / "pairs").mkdir()
        np.save(folder / name / "pairs" / "m50_100_700_0.npy", pairs)
    for seed, name in enumerate(("i_light", "v_turn")):
        write_sequence(folder / "sequences" / name, seed=seed)
    build_from_homographies(folder / "sequences", folder / "strips", HomographySettings(most=25, verification=200))
    for seed in (0, 1):
        model = matchkernel.build(
            "cartesian", s=1, d=4, D=8, patch_size=8, generator=torch.Generator().manual_seed(seed)
        )
        card = {"trained_on": "one", "training": json.dumps({"seed": 7 + seed})}
        matchkernel.save(model, folder / f"seed{seed}.safetensors", card)
        matchkernel.save(model, folder / f"untold{seed}.safetensors")
    matchkernel.save(matchkernel.build("sum", d=4), folder / "sum.safetensors")
    (folder / "lists").mkdir()
    pairs = draw_verification({"i_light": 25}, ["i_light"], 60)
    write_tasks(folder / "lists", "mine", pairs, pairs.first, pairs.first)
    for path in (folder / "lists").glob("retr_*"):
        path.unlink()
    (folder / "lists" / "splits.json").write_text(json.dumps({"mine": {"test": ["i_light"], "train": ["v_turn"]}}))
    return folder


@pytest.fixture
def here(place, monkeypatch):
    """The same, as the folder a command is run in."""
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Three small photos, in the folder `photos` of the folder a command is run in."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for seed in range(3):
        save(texture(seed, 90, 110), Path(f"photos/{seed}.png"))
    return Path("photos")
