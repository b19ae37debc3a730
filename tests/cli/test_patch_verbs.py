"""The verbs for models, patches and patch sets do their work on tiny data."""

import json

import numpy as np
import pytest
import torch
from commands import good, run
from helpers import write_sequence
from PIL import Image

import matchkernel
from matchkernel.cli.console import stdout
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import write_mosaics, write_tables


@pytest.fixture
def patches(tmp_path):
    stack = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    stack[4] = 100
    np.save(tmp_path / "patches.npy", stack)
    return tmp_path / "patches.npy"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "small.safetensors"
    matchkernel.save(matchkernel.build("dual", d=4, generator=torch.Generator().manual_seed(0)), path)
    return path


def test_params_prints_table_1_beside_the_papers():
    shown = good("params").stdout
    for count in ("433,568", "695,712", "581,024", "1,105,312", "867,008", "1,391,296", "1,334,560", "4,480,288"):
        assert shown.count(count) >= 2
    assert len(json.loads(good("params", "--json").stdout)) == 10


def test_info_lists_every_descriptor_and_cuts_nothing_in_a_narrow_window(monkeypatch):
    shown = good("info").stdout
    rows = json.loads(good("info", "--json").stdout)
    assert [row["variant"] for row in rows] == list(matchkernel.VARIANTS)
    for row in rows:
        assert row["variant"] in shown
        assert f"{row['parameters']:,}" in shown
    assert sorted(name for row in rows for name in row["weights"]) == matchkernel.available()
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in good("info").stdout


def test_info_shows_any_card(weights, tmp_path):
    """Keys nobody foresaw, markup and long texts among them, are shown as they are, folded and not cut."""
    deep = json.dumps({"loss": {"of": {"many": {"levels": 1}}}, "seed": 3, "data": {"train": ["x"], "validation": []}})
    card = {"training": deep, "mood": "good", "[b]": "[red]" + "w" * 150, "parameters": "a few"}
    matchkernel.save(matchkernel.build("sum", d=4), tmp_path / "odd.safetensors", card)
    result = good("info", tmp_path / "odd.safetensors")
    text = " ".join(result.stdout.split())
    for expected in ("seed 3 loss of many ...", "train x", "mood good", "[b] [red]www", "a few"):
        assert expected in text
    assert text.count("w") >= 150
    assert max(map(len, result.stdout.splitlines())) <= stdout.width
    assert "levels" in good("info", tmp_path / "odd.safetensors", "--json").stdout
    assert "parameters 1,391,296" in " ".join(good("info", "dual").stdout.split())
    assert json.loads(good("info", weights, "--json").stdout)["config"]["variant"] == "dual"


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_describe_writes_one_row_per_patch(suffix, patches, weights, tmp_path):
    out = tmp_path / f"rows{suffix}"
    summary = json.loads(good("describe", patches, "-o", out, "--model", weights, "--json").stdout)
    rows = np.load(out) if suffix == ".npy" else np.loadtxt(out, delimiter=",", dtype=np.float32)
    assert np.abs(rows - matchkernel.describe(np.load(patches), matchkernel.load(weights))).max() < 1e-6
    assert (summary["patches"], summary["D"], summary["invalid"]) == (20, 128, [4])
    assert "small.safetensors" in summary["weights"]


@pytest.mark.parametrize(("engine", "name"), [("auto", "onnx-int8"), ("torch", "torch"), ("onnx", "onnx")])
def test_describe_names_its_engine(engine, name, patches, tmp_path):
    words = ("describe", patches, "-o", tmp_path / "rows.npy", "--model", "light", "--engine", engine, "--json")
    result = good(*words)
    assert json.loads(result.stdout)["engine"] == name
    assert f"light, {name})" in result.stderr


def test_describe_resizes_a_strip_for_untrained_weights_and_warns_of_another_size(weights, tmp_path):
    strip = np.random.default_rng(0).integers(0, 256, (3 * 64, 64), dtype=np.uint8)
    Image.fromarray(strip).save(tmp_path / "ref.png")
    for name in ("a.npy", "b.npy"):
        words = ("describe", tmp_path / "ref.png", "-o", tmp_path / name, "--model", "cartesian", "--untrained")
        assert "random weights" in good(*words, "--resize").stderr
    assert np.load(tmp_path / "a.npy").shape == (3, 128)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    words = ("describe", tmp_path / "ref.png", "-o", tmp_path / "c.npy", "--model", weights)
    assert "--resize" in good(*words).stderr
    assert good(*words, "--resize").stderr.count("\n") == 1


def test_plots_are_drawn(patches, weights, tmp_path):
    good("plot", "kernels", "-o", tmp_path / "new")
    assert len(list((tmp_path / "new").iterdir())) == 3
    for name, *words in (
        ("conventions",),
        ("maps", patches, "--model", weights),
        ("maps", patches, "--model", weights, "--model", weights, "--at", "0.5,0.5"),
        ("overview", patches, "--patch", "3"),
    ):
        (tmp_path / "p.png").unlink(missing_ok=True)
        good("plot", name, *words, "-o", tmp_path / "p.png")
        assert (tmp_path / "p.png").stat().st_size > 5_000


def test_data_synthetic_info_verify_and_show(tmp_path):
    made = tmp_path / "sets" / "new"  # missing folders are made
    good("data", "synthetic", "-o", made, "--points", 30, "--patches", 3)
    facts = json.loads(good("data", "info", made, "--json").stdout)
    assert (facts["patches"], facts["points"], facts["side"]) == (90, 30, 64)
    assert "patches: 90" in good("data", "info", made).stdout
    assert good("data", "verify", made).stdout.startswith("intact: ")
    good("data", "show", made, "-o", tmp_path / "sheets" / "sheet.png", "--points", 5)
    with Image.open(tmp_path / "sheets" / "sheet.png") as sheet:
        assert sheet.height > 5 * 64
        assert sheet.width > 3 * 64
    with (made / "patches.npy").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    assert run("data", "verify", made).exit_code == 2


def test_data_from_colmap_cuts_a_set_once(rendered, tmp_path):
    sources = (rendered / "images", rendered / "sparse", rendered / "database.db")
    result = good("data", "from-colmap", *sources, "-o", tmp_path / "set", "--pairs", 50)
    chosen = open_patch_set(tmp_path / "set").manifest["selection"]
    assert str(chosen["from geometry"]) in result.stderr
    good("data", "show", tmp_path / "set", "-o", tmp_path / "g.png", "--geometric")
    assert run("data", "from-colmap", *sources, "-o", tmp_path / "set", "--pairs", 50).exit_code == 2


def test_data_from_homographies(tmp_path):
    write_sequence(tmp_path / "source" / "v_texture")
    options = ("--most", 20, "--verification", 50, "--sequence", "v_texture")
    good("data", "from-homographies", tmp_path / "source", "-o", tmp_path / "set", *options)
    good("data", "verify", tmp_path / "set")
    assert "v_texture" in good("data", "info", tmp_path / "set").stdout


def test_data_pack(tmp_path):
    patches = np.random.default_rng(0).integers(0, 256, (300, 64, 64), dtype=np.uint8)
    (tmp_path / "source").mkdir()
    write_mosaics(tmp_path / "source", patches)
    pairs = {"m50_2_2_0": np.array([[0, 1, 1], [0, 5, 0]])}
    write_tables(tmp_path / "source", np.repeat(np.arange(100), 3), np.zeros((300, 5)), pairs)
    good("data", "pack", tmp_path / "source", "-o", tmp_path / "set")
    assert np.array_equal(open_patch_set(tmp_path / "set").patches, patches)
