"""The paper's figures drawn by command: what they show, and what cannot be drawn."""

import shutil

import numpy as np
import pytest
import torch
from helpers import refuses
from PIL import Image

from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.model.descriptors import build
from matchkernel.model.kernel_view import display_map, encodings_by_system, similarity_map
from matchkernel.model.weights import load, save
from matchkernel.plots import overview
from matchkernel.plots.canvas import mathtext
from matchkernel.plots.example_patches import SIDE, two_patches
from matchkernel.plots.overview import draw_overview, overview_picture, trace
from matchkernel.plots.scores import Bar, ReportedMethod, draw_scores
from matchkernel.plots.similarity import (
    POSITIONS,
    MapColumn,
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
        files[variant] = folder / f"small$5_$-{variant}.safetensors"  # no formula
        save(model, files[variant])
    return files


def test_a_map_is_the_similarity_map_of_its_position(weights, textures):
    pair = textures(2)
    for variant, file in weights.items():
        column = MapColumn.open(str(file))
        assert column.title.endswith(f"\nsmall\\$5_\\$-{variant}")
        for position, found in zip(POSITIONS, column.maps(pair, POSITIONS), strict=True):
            expected = display_map(similarity_map(load(file), pair[0], pair[1], *column.cell(position)))
            assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_position_lies_in_the_cell_that_contains_it():
    small, large = (MapColumn(build("polar", patch_size=size), "") for size in (32, 64))
    assert [small.cell((share, 0.0))[1] for share in (0, 0.124, 0.126, 0.9, 1)] == [0, 0, 1, 7, 7]
    assert large.cell((0.1, 0.6)) == (9, 1)
    assert [small.cell(position) for position in POSITIONS] == [(1, 1), (2, 6), (4, 4), (6, 2)]


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


def test_rows_are_positions_and_columns_are_models(textures):
    columns = [MapColumn(build("polar", d=4, patch_size=size), name) for size, name in ((32, "one"), (64, "two"))]
    figure = draw_similarity_maps(columns, textures(2), [(0, 0), (0.7, 0.4), (1, 1)])
    panels = np.array([axes for axes in figure.axes if axes.get_label() != "<colorbar>"]).reshape(4, 3)
    assert [axes.get_title() for axes in panels[0]] == ["", "one", "two"]
    assert all(len(axes.images) == 1 for axes in panels.flat[1:])
    for column, place in ((1, [20, 12]), (2, [44, 24])):  # p is marked where its field is centred, in each model's map
        (mark,) = panels[2, column].lines
        assert mark.get_xydata().tolist() == [place]
    assert [axes.get_ylabel() for axes in panels[1:, 0]] == ["row 1, column 1", "row 4, column 6", "row 8, column 8"]
    (box,) = panels[1, 0].lines
    assert box.get_xydata().min() == -0.5
    assert box.get_xydata().max() < 31


def test_patches_and_columns_that_cannot_be_drawn(weights, textures, tmp_path):
    """What no command line leads to; the others are in the table of refusals."""
    a, b = textures(2)[:, 0]
    columns = [MapColumn.open(str(weights["dual"]))]
    for arguments in ((columns, a, b[:16]), (columns, a, torch.full((32, 32), torch.nan)), ([], a, b)):
        with refuses(ArgumentError):
            similarity_picture(tmp_path / "t.png", *arguments)


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
    a, b = two_patches(photos, match=2)
    assert a.shape == b.shape == (SIDE, SIDE)
    assert np.corrcoef(a.flatten(), b.flatten())[0, 1] > 0.8  # the same place of the scene
    with refuses(ArgumentError):
        two_patches(photos, match=99_999)


@pytest.mark.parametrize("variant", ["cartesian", "polar", "combined", "dual"])
def test_the_parts_of_an_overview_make_the_descriptor(variant, weights, textures):
    """M times the drawn products, plus m, is the drawn descriptor; each product is the drawn map times the codes."""
    model, patch = load(weights[variant]), textures(1)
    branches, descriptor = trace(model, patch)
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


def test_an_overview_of_a_half_is_that_of_one_coordinate_system(weights, textures, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(overview, "draw_overview", lambda *parts, **look: drawn.append(parts) or draw_overview(*parts))
    model, patch = load(weights["dual"]), textures(1)[0, 0]
    for system in (None, "cartesian", "polar"):
        overview_picture(tmp_path / "o.png", model, patch, system=system)
    (_, both, whole, _), *halves = drawn
    assert [[branch.system for branch in branches] for _, branches, _, _ in halves] == [["cartesian"], ["polar"]]
    sums = [encodings_by_system(model, patch[None, None])[name][0].sum(0).numpy() for name in ("cartesian", "polar")]
    for (_, branches, descriptor, title), own, branch in zip(halves, sums, both, strict=True):
        assert np.allclose(descriptor, own / np.linalg.norm(own), atol=1e-6)
        assert np.array_equal(branches[0].product, branch.product)
        assert f"{branch.system} half" in title
    assert np.allclose(whole, sum(sums) / np.linalg.norm(sum(sums)), atol=1e-5)


def test_bars_are_sorted_by_parameters_with_others_apart():
    bars = [
        Bar(ReportedMethod("large", 900, is_ours=True), [Spread((60.0, 64.0))]),
        Bar(ReportedMethod("unknown"), [Spread((5.0,))]),
        Bar(ReportedMethod("small", 30, is_ours=True), [Spread((50.0,))]),
        Bar(ReportedMethod("crafted", 0, hand_crafted=True), [Spread((20.0,))]),
        Bar(ReportedMethod("half", 10), [None]),
    ]
    figure = draw_scores(bars, ["matching"], "title")
    (axes,) = figure.axes
    labels = [label.get_text().split("   ") for label in axes.get_yticklabels()]
    assert labels == [["crafted", "0"], ["half", "10"], ["unknown", "–"], ["small", "30"], ["large", "900"]]
    drawn = [bar for bar in axes.patches if bar.get_width()]  # those of the legend have no width
    assert [bar.get_width() for bar in drawn] == [20, 5, 50, 62]  # none for what has no score
    assert [bool(bar.get_hatch()) for bar in drawn] == [True, False, False, False]
    (marked,) = draw_scores([Bar(ReportedMethod("orb", 0), [Spread((5.0,))], is_tie_safe=True)], ["matching"]).axes
    assert "‡" in marked.get_yticklabels()[0].get_text()
    gaps = np.diff(axes.get_yticks())
    assert gaps.tolist() == pytest.approx([1, 1, 1.8, 1])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the least demanding on top
    assert sum("Errorbar" in type(part).__name__ for part in axes.containers) == 1  # of the one with two runs


def test_our_descriptors_have_the_papers_symbols():
    names = {"cartesian-s1-n32": "psi^{xy}", "dual-s2-n64": "star", "fc-n32": "HardNet+", "cartesian-s0-n32": ""}
    bars = [Bar(ReportedMethod("a", 1, configuration=name), [Spread((5.0,))]) for name in names]
    (axes,) = draw_scores(bars, ["matching"]).axes
    for label, symbol in zip(axes.get_yticklabels(), names.values(), strict=True):
        assert symbol in label.get_text()
        assert bool(symbol) == ("psi" in label.get_text() or "ψ" in label.get_text())


def test_zoom_spreads_close_scores():
    a, b, c = ReportedMethod("a", 1, is_ours=True), ReportedMethod("b", 2), ReportedMethod("c", 3)
    bars = [Bar(a, [Spread((88.0, 88.2))]), Bar(b, [Spread((89.0,))]), Bar(c, [None])]
    (axes,) = draw_scores(bars, ["matching"], zoom=True).axes
    low, high = axes.get_xlim()
    assert 87.5 < low < 88.0
    assert 89.0 < high < 89.5
    points = {line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"}
    assert sorted(points) == pytest.approx([88.1, 89.0])
    assert not [bar for bar in axes.patches if bar.get_width()]
    (alone,) = draw_scores([Bar(a, [Spread((50.0,))])], ["matching"], zoom=True).axes
    assert alone.get_xlim()[0] < 50 < alone.get_xlim()[1]
    draw_scores([Bar(a, [None])], ["matching"], zoom=True)  # nothing to show is no error


@pytest.mark.parametrize("count", [0, 61])
def test_no_bars_and_too_many_are_refused(count):
    with refuses(ArgumentError):
        draw_scores([Bar(ReportedMethod("x", 1), [None])] * count, ["matching"])


def test_symbols_of_the_paper():
    assert [mathtext(symbol) for symbol in ("ψ^xy", "⋆ψ^c", "ψ (HardNet+)")] == [
        r"$\psi^{xy}$",
        r"$^{\bigstar}\psi^{c}$",
        "ψ (HardNet+)",
    ]
