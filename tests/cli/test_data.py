"""matchkernel data, as a user meets it."""

import json
import shutil

import commands
import numpy as np
import pytest
from helpers import write_sequence
from PIL import Image

from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import write_mosaics, write_tables


def run(*arguments):
    return commands.run("data", *arguments)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "set"
    assert run("synthetic", "-o", folder, "--points", 30, "--patches", 3).exit_code == 0
    return folder


def test_synthetic_info_verify_show(synthetic, tmp_path):
    facts = json.loads(run("info", synthetic, "--json").stdout)
    assert (facts["patches"], facts["points"], facts["side"]) == (90, 30, 64)
    assert "patches: 90" in run("info", synthetic).stdout
    result = run("verify", synthetic)
    assert result.exit_code == 0
    assert result.stdout.startswith("intact: 90 patches of 30 points")
    assert run("show", synthetic, "-o", tmp_path / "sheet.png", "--points", 5).exit_code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 5 * 64
        assert sheet.width > 3 * 64


def test_from_colmap(rendered, tmp_path):
    arguments = (
        rendered / "images",
        rendered / "sparse",
        rendered / "database.db",
        "-o",
        tmp_path / "set",
        "--pairs",
        50,
    )
    result = run("from-colmap", *arguments)
    assert result.exit_code == 0, result.stderr
    built = open_patch_set(tmp_path / "set")
    chosen = built.manifest["selection"]
    assert f"{chosen['from tracks']} from tracks and {chosen['from geometry']} from geometry" in result.stderr
    assert run("show", tmp_path / "set", "-o", tmp_path / "g.png", "--geometric").exit_code == 0
    assert run("verify", tmp_path / "set").exit_code == 0
    again = run("from-colmap", *arguments)
    assert again.exit_code == 2
    assert "already exists" in again.stderr


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


def test_mistakes_are_one_line_and_exit_2(synthetic, sequence_set, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    before = [(path, path.read_bytes()) for path in (*synthetic.rglob("*.*"), *sequence_set.rglob("*.*"))]
    for arguments, message in (
        (("pack", "absent", "-o", "set"), "absent: no such folder"),
        (("verify", "absent"), "absent: no such folder"),
        (("info", "absent"), "absent: no such folder"),
        (("show", "absent", "-o", "x.png"), "absent: no such folder"),
        (("from-colmap", "absent", "absent", "absent", "-o", "set"), "no such file"),
        (("from-homographies", "absent", "-o", "set"), "absent: no such folder"),
        (("synthetic", "-o", "."), "already exists"),
        (("synthetic", "-o", "/"), "already exists"),
        (("synthetic", "-o", "file/set"), "file is not a folder"),
        (("synthetic", "-o", "set", "--points", 10**10), "GB of disk"),
        (("synthetic", "-o", "set", "--points", 10**18), "GB of disk"),
        (("synthetic", "-o", "set", "--size", 1_000_000), "size must be from 8 to 1,024"),
        (("show", synthetic, "-o", synthetic / "patches.npy"), "must end in .png"),
        (("show", synthetic, "-o", "sheet.jpg"), "must end in .png"),
        (("show", synthetic, "-o", synthetic / "sheet.png"), "is inside the input"),
        (("show", sequence_set, "-o", sequence_set / "v_texture" / "ref.png"), "is inside the input"),
        (("from-homographies", sequence_set, "-o", sequence_set / "v_texture" / "set"), "is inside the input"),
        (("pack", synthetic, "-o", synthetic / "set"), "is inside the input"),
        (("from-colmap", synthetic, synthetic, "file", "-o", synthetic / "set"), "is inside the input"),
        (("from-photos", synthetic, "-o", synthetic / "set"), "is inside the input"),
    ):
        result = run(*arguments)
        assert message in result.stderr, (arguments, result.stderr)
        assert result.exit_code == (1 if "GB" in message else 2), arguments
        assert result.stderr.startswith("error: "), arguments
        assert result.stderr.count("\n") == 1, arguments
        assert [path.name for path in tmp_path.iterdir()] == ["file"], arguments
    assert all(path.read_bytes() == content for path, content in before)


def test_missing_folders_are_made(tmp_path):
    assert run("synthetic", "-o", tmp_path / "sets" / "new" / "mine", "--points", 2, "--size", 8).exit_code == 0
    assert run("verify", tmp_path / "sets" / "new" / "mine").exit_code == 0
    assert run("show", tmp_path / "sets" / "new" / "mine", "-o", tmp_path / "sheets" / "a.png").exit_code == 0


@pytest.fixture(scope="module")
def sequence_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    write_sequence(folder / "source" / "v_texture")
    (folder / "source" / "v_texture" / "notes").mkdir()  # a folder among the files is no matter
    options = ("--most", 20, "--verification", 50, "--sequence", "v_texture", "--sequence", "v_texture")
    result = run("from-homographies", folder / "source", "-o", folder / "set", *options)
    assert result.exit_code == 0, result.stderr
    assert "1 sequence, 20 patches" in result.stderr
    return folder / "set"


def test_from_homographies(sequence_set, tmp_path):
    assert run("verify", sequence_set).exit_code == 0
    assert "v_texture" in run("info", sequence_set).stdout
    shutil.copytree(sequence_set, tmp_path / "set")
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
    shutil.copytree(synthetic, tmp_path / "set")
    with (tmp_path / "set" / "patches.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x00\x01"[:1] if file.read(1) != b"\x00" else b"\x01")
    result = run("verify", tmp_path / "set")
    assert result.exit_code == 2
    assert "patches.npy is damaged" in result.stderr
