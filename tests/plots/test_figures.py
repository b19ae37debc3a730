"""The paper's figures drawn by command: what is in them, and what cannot be drawn."""

import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.model.descriptors import build
from matchkernel.model.kernel_view import display_map, encodings_by_system, similarity_map
from matchkernel.model.weights import load, save
from matchkernel.plots.canvas import mathtext
from matchkernel.plots.example_patches import SIDE, one_patch, two_patches
from matchkernel.plots.overview import draw_overview, follow, overview_picture
from matchkernel.plots.scores import Bar, draw_scores
from matchkernel.plots.similarity import (
    POSITIONS,
    MapColumn,
    cell_at,
    draw_similarity_maps,
    shown_name,
    similarity_picture,
)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Small models with random weights, by variant."""
    folder, files = tmp_path_factory.mktemp("weights"), {}
    for variant in ("cartesian", "polar", "combined", "dual", "fc"):
        model = build(variant, d=4, generator=torch.Generator().manual_seed(0))
        files[variant] = folder / f"small-{variant}.safetensors"
        save(model, files[variant])
    return files


def test_a_map_is_the_similarity_map_of_its_position(weights, textures):
    pair = textures(2)
    for variant, file in weights.items():
        column = MapColumn.open(str(file))
        assert column.title.endswith(f"\nsmall-{variant}")
        for position, found in zip(POSITIONS, column.maps(pair, POSITIONS), strict=True):
            expected = display_map(similarity_map(load(file), pair[0], pair[1], *cell_at(position, 8)))
            assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_position_lies_in_the_cell_that_contains_it():
    assert [cell_at((share, 0.0), 8) for share in (0, 0.124, 0.126, 0.9, 1)] == [(0, 0), (0, 0), (0, 1), (0, 7), (0, 7)]
    assert cell_at((0.1, 0.6), 16) == (9, 1)
    assert [cell_at(position, 8) for position in POSITIONS] == [(1, 1), (2, 6), (4, 4), (6, 2)]


def test_a_half_has_the_map_of_its_coordinate_system(weights, textures):
    pair = textures(2)
    column = MapColumn.open(f"{weights['dual']}:polar")
    assert "polar half" in column.title
    a, b = encodings_by_system(load(weights["dual"]), pair, weighted=False)["polar"]
    (found,) = column.maps(pair, [(1.0, 0.0)])
    assert found == pytest.approx(display_map((b @ a[7]).reshape(8, 8)).numpy(), abs=1e-5)


def test_a_run_is_called_by_its_folder(weights, tmp_path, monkeypatch):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    file = shutil.copy(weights["polar"], tmp_path / "runs" / "mine" / "final.safetensors")
    assert MapColumn.open(str(file)).title == "$\\psi^{ρθ}$, s = 2\nmine"
    monkeypatch.chdir(file.parent)
    assert shown_name("final.safetensors", load("final.safetensors")) == "mine"
    long = shutil.copy(file, tmp_path / f"{'x' * 40}.safetensors")
    assert MapColumn.open(str(long)).title.endswith(f"\n{'x' * 29}…")


def test_rows_are_positions_and_columns_are_models():
    maps = [("one", [np.eye(32)] * 3), ("two", [np.eye(16)] * 3)]
    cells = [[(0, 0), (3, 5), (7, 7)], [(0, 0), (1, 2), (3, 3)]]
    figure = draw_similarity_maps(np.eye(32), np.eye(32), maps, [(0, 0, 9, 9)] * 3, cells)
    panels = np.array([axes for axes in figure.axes if axes.get_label() != "<colorbar>"]).reshape(4, 3)
    assert [axes.get_title() for axes in panels[0]] == ["", "one", "two"]
    assert all(len(axes.images) == 1 for axes in panels.flat[1:])
    for column, place in (
        (1, [20, 12]),
        (2, [8, 4]),
    ):  # p is marked where its field is centred, in each model's own map
        (mark,) = panels[2, column].lines
        assert mark.get_xydata().tolist() == [place]
    assert [axes.get_ylabel() for axes in panels[1:, 0]] == ["row 1, column 1", "row 4, column 6", "row 8, column 8"]
    (box,) = panels[1, 0].lines
    assert box.get_xydata().min() == -0.5
    assert box.get_xydata().max() == 9.5


def test_what_has_no_maps(weights, textures, tmp_path):
    a, b = textures(2)[:, 0]
    columns = [MapColumn.open(str(weights["dual"]))]
    out = tmp_path / "t.png"
    for wrong, words in (
        (lambda: similarity_picture(out, columns, a, b[:16]), "of the same size"),
        (lambda: similarity_picture(out, columns, a, torch.ones(32, 32)), "finite and not constant"),
        (lambda: similarity_picture(out, columns, a, torch.full((32, 32), torch.nan)), "finite and not constant"),
        (lambda: similarity_picture(out, [], a, b), "1 to 12 models"),
        (lambda: similarity_picture(out, columns, a, b, [(0.5, 1.5)]), "both from 0 to 1"),
        (lambda: similarity_picture(out, columns, a, b, [(0.5, float("nan"))]), "both from 0 to 1"),
        (lambda: MapColumn.open(f"{weights['cartesian']}:polar"), "has no polar half, it is 'cartesian'"),
        (lambda: MapColumn.open(f"{weights['fc']}:polar"), "has no polar half, it is 'fc'"),
    ):
        with pytest.raises(ArgumentError, match=words):
            wrong()
    assert not out.exists()


def test_patches_of_a_stack_of_pictures_and_of_photos(tmp_path):
    random = np.random.default_rng(0)
    stack = random.integers(0, 256, (3, 32, 32), np.uint8)
    np.save(tmp_path / "stack.npy", stack)
    a, b = two_patches([tmp_path / "stack.npy"], 2, 0)
    assert (a == torch.from_numpy(stack[2])).all()
    assert (b == torch.from_numpy(stack[0])).all()
    for number, patch in enumerate(stack):
        Image.fromarray(patch).save(tmp_path / f"{number}.png")
    a, b = two_patches([tmp_path / "1.png", tmp_path / "2.png"])
    assert (b == torch.from_numpy(stack[2])).all()
    for number, photo in enumerate(load_motorcycle()[:2]):
        Image.fromarray(photo).save(tmp_path / f"photo{number}.png")
    photos = [tmp_path / f"photo{number}.png" for number in range(2)]
    said = []
    a, b = two_patches(photos, match=2, say=said.append)
    assert re.fullmatch(
        r"match 2 of \d+ among the strongest 1,000 keypoints, at \(\d+, \d+\) and \(\d+, \d+\)", said[0]
    )
    assert a.shape == b.shape == (SIDE, SIDE)
    assert np.corrcoef(a.flatten(), b.flatten())[0, 1] > 0.8  # the same place of the scene
    with pytest.raises(ArgumentError, match=r"matches that agree, cannot draw match 99999"):
        two_patches(photos, match=99_999)


def test_files_without_two_patches(tmp_path):
    np.save(tmp_path / "stack.npy", np.zeros((3, 32, 32), np.uint8))
    for side in (32, 40):
        Image.fromarray(np.zeros((side, side), np.uint8)).save(tmp_path / f"{side}.png")
    with pytest.raises(ArgumentError, match="has only 3 patches, cannot draw 0 and 3"):
        two_patches([tmp_path / "stack.npy"], 0, 3)
    with pytest.raises(ArgumentError, match=r"has only 3 patches, cannot draw 77$"):
        one_patch(tmp_path / "stack.npy", 77)
    with pytest.raises(ArgumentError, match="patches of 32 and 40 px"):
        two_patches([tmp_path / "32.png", tmp_path / "40.png"])
    with pytest.raises(ArgumentError, match="got 3 files"):
        two_patches([tmp_path / "32.png"] * 3)
    with pytest.raises(FileError, match="missing"):
        two_patches([tmp_path / "32.png", tmp_path / "missing.png"])
    for patches in ([tmp_path / "stack.npy"], [tmp_path / "32.png"] * 2):
        with pytest.raises(ArgumentError, match="holds patches; --match is for two photos"):
            two_patches(patches, match=1)
    for index in ({"a": 0}, {"b": 1}):
        for files in ([], [tmp_path / "32.png"] * 2):
            with pytest.raises(ArgumentError, match="--a and --b choose patches of one"):
                two_patches(files, **index)


@pytest.mark.parametrize("name", ["photo.jpg", "photo.png"])
def test_one_photo_is_not_enough(name, tmp_path):
    Image.fromarray(np.zeros((48, 64), np.uint8)).save(tmp_path / name)
    with pytest.raises(FileError, match=r"; give two photos$"):
        two_patches([tmp_path / name])
    with pytest.raises(FileError, match=r"; give patches, not a photo$"):
        one_patch(tmp_path / name)


@pytest.mark.parametrize("variant", ["cartesian", "polar", "combined", "dual"])
def test_the_parts_of_an_overview_make_the_descriptor(variant, weights, textures):
    """M times the drawn products, plus m, is the drawn descriptor; each product is the drawn map times the codes."""
    model, patch = load(weights[variant]), textures(1)
    branches, descriptor = follow(model, patch)
    assert [branch.system for branch in branches] == (
        [variant] if variant in ("cartesian", "polar") else ["cartesian", "polar"]
    )
    for branch in branches:
        assert branch.product == pytest.approx(np.einsum("dij,pij->dp", branch.phi, branch.codes), abs=1e-4)
    projection = model.fold().projection
    whole = torch.from_numpy(np.concatenate([branch.product.ravel() for branch in branches])).float()
    expected = torch.nn.functional.normalize(projection(whole), dim=0).numpy()
    assert descriptor == pytest.approx(expected, abs=1e-4)
    assert descriptor == pytest.approx(model(patch)[0].detach().numpy(), abs=1e-5)
    figure = draw_overview(patch[0, 0].numpy(), branches, descriptor, "title")
    assert len(figure.axes) == 2 + 3 * len(branches)
    titles = [axes.get_title() for axes in figure.axes]
    assert ("map Φ = φ̃(a)" in titles) == (variant == "dual")
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    arrows = [text for text in texts if text in ("φ", "φ̃")]
    assert arrows == (["φ", "φ̃"] if variant == "dual" else ["φ"] * len(branches))
    assert sum("M, m" in text for text in texts) == 1  # one matrix, also for two systems


def test_an_overview_says_when_products_are_normalised_before_the_matrix(weights, textures):
    patch = textures(1)
    parts = patch[0, 0].numpy(), *follow(load(weights["polar"]), patch), "title"
    for norm in (False, True):
        texts = [text.get_text() for axes in draw_overview(*parts, norm=norm).axes for text in axes.texts]
        assert ("M, m,\nℓ2" in texts, "ℓ2,\nM, m,\nℓ2" in texts) == (not norm, norm)


def test_an_overview_needs_positions(weights, textures, tmp_path):
    overview_picture(tmp_path / "o.png", load(weights["polar"]), textures(1)[0, 0])
    assert (tmp_path / "o.png").stat().st_size > 10_000
    with pytest.raises(ArgumentError, match="small-fc is 'fc', which encodes no positions"):
        overview_picture(tmp_path / "p.png", load(weights["fc"]), textures(1)[0, 0])
    for value in (torch.nan, 3.0):
        with pytest.raises(ArgumentError, match="constant, or has pixels that are not finite"):
            overview_picture(tmp_path / "p.png", load(weights["polar"]), torch.full((32, 32), value))
    assert not (tmp_path / "p.png").exists()


def test_bars_are_sorted_by_parameters_with_others_apart():
    bars = [
        Bar("large", 900, [Spread((60.0, 64.0))], is_ours=True),
        Bar("unknown", None, [Spread((5.0,))]),
        Bar("small", 30, [Spread((50.0,))], is_ours=True),
        Bar("crafted", 0, [Spread((20.0,))], is_hand_crafted=True),
        Bar("half", 10, [None]),
    ]
    figure = draw_scores(bars, ["matching"], "title")
    (axes,) = figure.axes
    labels = [label.get_text().split("   ") for label in axes.get_yticklabels()]
    assert labels == [["crafted", "0"], ["half", "10"], ["unknown", "–"], ["small", "30"], ["large", "900"]]
    drawn = [bar for bar in axes.patches if bar.get_width()]  # those of the legend have no width
    assert [bar.get_width() for bar in drawn] == [20, 5, 50, 62]  # none for what has no score
    assert [bool(bar.get_hatch()) for bar in drawn] == [True, False, False, False]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "hand-crafted", "others, learned", "descriptor files", "this package",
    ]  # fmt: skip
    assert axes.get_xlabel() == "mAP (%)"
    (marked,) = draw_scores([Bar("orb", 0, [Spread((5.0,))], is_tie_safe=True)], ["matching"]).axes
    assert marked.get_xlabel() == "mAP (%; ‡: ties as errors)"
    assert marked.get_yticklabels()[0].get_text() == "orb ‡   0"
    gaps = np.diff(axes.get_yticks())
    assert gaps.tolist() == pytest.approx([1, 1, 1.8, 1])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the least demanding on top
    assert sum("Errorbar" in type(part).__name__ for part in axes.containers) == 1  # of the one with two runs


def test_close_scores_are_told_apart_with_zoom():
    bars = [Bar("a", 1, [Spread((88.0, 88.2))], is_ours=True), Bar("b", 2, [Spread((89.0,))]), Bar("c", 3, [None])]
    (axes,) = draw_scores(bars, ["matching"], zoom=True).axes
    low, high = axes.get_xlim()
    assert 87.5 < low < 88.0
    assert 89.0 < high < 89.5
    points = {line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"}
    assert sorted(points) == pytest.approx([88.1, 89.0])
    assert not [bar for bar in axes.patches if bar.get_width()]
    assert axes.get_xlabel() == "mAP (%; not from 0)"
    (alone,) = draw_scores([Bar("a", 1, [Spread((50.0,))])], ["matching"], zoom=True).axes
    assert alone.get_xlim()[0] < 50 < alone.get_xlim()[1]
    draw_scores([Bar("a", 1, [None])], ["matching"], zoom=True)  # nothing to show is no error


def test_too_many_bars_are_refused():
    for count in (0, 61):
        with pytest.raises(ArgumentError, match=rf"1 to 60 methods, got {count}"):
            draw_scores([Bar("x", 1, [None])] * count, ["matching"])


def test_symbols_of_the_paper():
    assert [mathtext(symbol) for symbol in ("ψ^xy", "⋆ψ^c", "ψ (HardNet+)")] == [
        r"$\psi^{xy}$",
        r"${}^\star\psi^{c}$",
        "ψ (HardNet+)",
    ]
