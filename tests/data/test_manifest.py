import json

import pytest

from matchkernel.data.patch_set import check_hashes, content_hashes, read_manifest
from matchkernel.errors import FileError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("x")
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "sha256": content_hashes(tmp_path)}))
    return tmp_path


def test_a_whole_folder_passes(folder):
    assert list(check_hashes(folder)["sha256"]) == ["a/x.txt"]


def test_damage_is_named(folder):
    (folder / "a" / "x.txt").write_text("y")
    with pytest.raises(FileError, match=r"a/x\.txt is damaged"):
        check_hashes(folder)
    (folder / "a" / "x.txt").unlink()
    with pytest.raises(FileError, match=r"a/x\.txt is missing"):
        check_hashes(folder)


def test_a_file_too_many_is_named(folder):
    (folder / "extra").touch()
    with pytest.raises(FileError, match="extra is not in the manifest"):
        check_hashes(folder)


def test_a_folder_without_manifest(tmp_path):
    with pytest.raises(FileError, match=r"has no manifest\.json"):
        read_manifest(tmp_path)
