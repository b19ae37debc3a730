"""matchkernel data, as a user meets it."""

import json

import numpy as np
import pytest
from helpers import write_sequence
from made_scene import render_scene
from PIL import Image
from typer.testing import CliRunner

from matchkernel.cli.app import app
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import write_mosaics, write_tables


def run(*arguments):
    return CliRunner().invoke(app, ["data", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "set"
    assert run("synthetic", "-o", folder, "--points", 30, "--patches", 3).exit_code == 0
    return folder


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "scene"
    render_scene(folder, photos=4, seed=2, width=320, height=240)
    return folder


def test_synthetic_info_verify_show(synthetic, tmp_path):
    facts = json.loads(run("info", synthetic, "--json").stdout)
    assert (facts["patches"], facts["points"], facts["side"]) == (90, 30, 64)
    assert "patches: 90" in run("info", synthetic).stdout
    result = run("verify", synthetic)
    assert result.exit_code == 0
    assert result.stderr.startswith("intact: 90 patches of 30 points")
    assert run("show", synthetic, "-o", tmp_path / "sheet.png", "--points", 5).exit_code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 5 * 64
        assert sheet.width > 3 * 64


def test_from_colmap(scene, tmp_path):
    arguments = (scene / "images", scene / "sparse", scene / "database.db", "-o", tmp_path / "set", "--pairs", 50)
    result = run("from-colmap", *arguments)
    assert result.exit_code == 0, result.stderr
    built = open_patch_set(tmp_path / "set")
    chosen = built.manifest["selection"]
    assert f"{chosen['from tracks']} from tracks and {chosen['from geometry']} from geometry" in result.stderr
    assert run("show", tmp_path / "set", "-o", tmp_path / "g.png", "--geometric").exit_code == 0
    assert run("verify", tmp_path / "set").exit_code == 0
    again = run("from-colmap", *arguments)
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_pack(tmp_path):
    patches = np.random.default_rng(0).integers(0, 256, (300, 64, 64), dtype=np.uint8)
    labels = np.repeat(np.arange(100), 3)
    (tmp_path / "source").mkdir()
    write_mosaics(tmp_path / "source", patches)
    write_tables(tmp_path / "source", labels, np.zeros((300, 5)), {"m50_2_2_0": np.array([[0, 1, 1], [0, 5, 0]])})
    result = run("pack", tmp_path / "source", "-o", tmp_path / "set")
    assert result.exit_code == 0, result.stderr
    assert np.array_equal(open_patch_set(tmp_path / "set").patches, patches)
    assert "300 patches of 100 points" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("pack", "absent", "-o", "set"),
        ("verify", "absent"),
        ("info", "absent"),
        ("show", "absent", "-o", "x.png"),
        ("from-colmap", "absent", "absent", "absent", "-o", "set"),
        ("from-homographies", "absent", "-o", "set"),
        ("synthetic", "-o", "nowhere/set"),
        ("synthetic", "-o", "."),
        ("synthetic", "-o", "/"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_from_homographies(tmp_path):
    write_sequence(tmp_path / "source" / "v_texture")
    (tmp_path / "source" / "v_texture" / "notes").mkdir()  # a folder among the files is no matter
    arguments = ("from-homographies", tmp_path / "source", "-o", tmp_path / "set", "--most", 20, "--verification", 50)
    result = run(*arguments, "--sequence", "v_texture", "--sequence", "v_texture")
    assert result.exit_code == 0, result.stderr
    assert "1 sequences, 20 patches" in result.stderr
    assert run("verify", tmp_path / "set").exit_code == 0
    assert "v_texture" in run("info", tmp_path / "set").stdout
    (tmp_path / "set" / "v_texture" / "e1.png").write_bytes(b"")
    assert "e1.png is damaged" in run("verify", tmp_path / "set").stderr


def test_a_foreign_folder_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "set.part").mkdir()
    (tmp_path / "set.part" / "thesis.doc").write_text("years of work")
    result = run("synthetic", "-o", tmp_path / "set", "--points", 2)
    assert result.exit_code == 2
    assert "is in the way" in result.stderr
    assert (tmp_path / "set.part" / "thesis.doc").read_text() == "years of work"


def test_damage_is_told(synthetic, tmp_path):
    import shutil

    shutil.copytree(synthetic, tmp_path / "set")
    with (tmp_path / "set" / "patches.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x00\x01"[:1] if file.read(1) != b"\x00" else b"\x01")
    result = run("verify", tmp_path / "set")
    assert result.exit_code == 2
    assert "patches.npy is damaged" in result.stderr
