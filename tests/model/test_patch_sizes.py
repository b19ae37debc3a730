"""A model trained at several patch sizes has BatchNorm statistics of each: whichever way patches are described, those
of their size are used."""

import numpy as np
import pytest
import torch
from helpers import textures, trained_like
from typer.testing import CliRunner

import matchkernel
from matchkernel.cli.app import app
from matchkernel.errors import ArgumentError
from matchkernel.model.describe import describe_file

SIZES = (32, 64)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A weight file with statistics of 32 and 64 px, far apart."""
    model = trained_like(matchkernel.build("polar", d=8, generator=torch.Generator().manual_seed(0)))
    for size in reversed(SIZES):
        trained_like(model, seed=size)
        model.size_statistics[size] = {name: tensor.clone() for name, tensor in model.statistics().items()}
    path = tmp_path_factory.mktemp("weights") / "sizes.safetensors"
    matchkernel.save(model, path)
    return path


def by_describe(patches, weights, folder):
    return matchkernel.describe(patches, matchkernel.load(weights))


def by_file(patches, weights, folder):
    describe_file(patches, matchkernel.load(weights), folder / "rows.npy")
    return np.load(folder / "rows.npy")


def by_verb(patches, weights, folder):
    np.save(folder / "patches.npy", patches)
    out = folder / "rows.npy"
    result = CliRunner().invoke(app, ["describe", str(folder / "patches.npy"), "--model", str(weights), "-o", str(out)])
    assert result.exit_code == 0, result.output
    return np.load(out)


@pytest.mark.parametrize("way", [by_describe, by_file, by_verb])
@pytest.mark.parametrize("size", SIZES)
def test_the_statistics_of_the_patches_size_are_used(way, size, weights, tmp_path):
    patches = textures(6, size)[:, 0].numpy()
    model = matchkernel.load(weights)
    model.use_statistics(size)
    with torch.no_grad():
        wanted = model(torch.from_numpy(patches)[:, None]).numpy()
    cosine = (way(patches, weights, tmp_path) * wanted).sum(1).min()
    assert cosine > 1 - 1e-6, f"cosine {cosine:.2f} to the rows with the statistics of {size} px"


def test_a_folded_copy_is_for_the_size_it_was_folded_for(weights):
    model = matchkernel.load(weights)
    for own, other in (SIZES, SIZES[::-1]):
        folded = model.fold(own)
        rows = matchkernel.describe(textures(3, own), folded)
        assert (rows - matchkernel.describe(textures(3, own), model)).abs().max() == 0
        for use in (folded, lambda patches, folded=folded: matchkernel.describe(patches, folded)):
            with pytest.raises(ArgumentError, match=f"folded for {own} px .* fold\\({other}\\)"):
                use(textures(3, other))
        assert folded(textures(3, 48)).shape == (3, 128)  # no size it was trained at: as good as any
