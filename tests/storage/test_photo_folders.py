"""Which files of folders, lists and patterns are photos."""

import os

import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.photo_folders import Photos, photos_at, photos_in


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "photos"
    for name in (
        "b.JPG", "IMG (2).jpg", "left/1.png", "left/deep/2.webp", "._b.JPG", "film.MOV", "a.mov", "notes",
        ".git/x.jpg", "masks/b.JPG.png",
    ):  # fmt: skip
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"x")
    return place


def test_a_folder_holds_photos_and_what_is_ignored(folder):
    found = photos_in(folder, without=folder / "masks")
    assert list(found.paths) == ["IMG (2).jpg", "b.JPG", "left/1.png", "left/deep/2.webp"]
    assert all(path == folder / name for name, path in found.paths.items())
    assert found.ignored == {".mov": 2, "hidden": 2, "without suffix": 1}
    assert found.what_was_ignored() == "ignored 5 files (2 .mov, 2 hidden, 1 without suffix)"
    assert "masks/b.JPG.png" in photos_in(folder).paths
    assert Photos({}).what_was_ignored() == ""
    many = Photos({}, {f".{letter}": 1 for letter in "abcdefgh"}).what_was_ignored()
    assert many.endswith("1 .f, 2 others)")


def test_patterns_and_lists_choose(folder, tmp_path):
    assert list(photos_in(folder, only=["*.png"]).paths) == ["left/1.png", "masks/b.JPG.png"]
    assert list(photos_in(folder, only=["left/*.png", "*(2)*"]).paths) == ["IMG (2).jpg", "left/1.png"]
    listed = tmp_path / "names.txt"
    listed.write_bytes(b"\xef\xbb\xbfleft/1.png\r\n\nIMG (2).jpg")  # as Windows writes it
    found = photos_in(folder, listed=listed)
    assert list(found.paths) == ["IMG (2).jpg", "left/1.png"]
    assert found.ignored["not chosen"] == 3


def test_patterns_choose_among_files_and_matches_too(folder):
    found = photos_at([folder / "b.JPG", folder / "IMG (2).jpg", folder / "left"], only=["*.jpg", "*.png"])
    assert list(found.paths) == ["1.png", "IMG (2).jpg"]
    assert found.ignored == {"not chosen": 2}
    found = photos_at([f"{folder}/**/*.[Jjmp]*"], only=["left/*"])
    assert list(found.paths) == ["left/1.png"]
    assert found.ignored == {".mov": 1, "not chosen": 3}


def test_places_of_several_kinds(folder):
    found = photos_at([folder / "left", folder / "b.JPG", folder / "absent.jpg"])
    assert list(found.paths) == ["1.png", "absent.jpg", "b.JPG", "deep/2.webp"]
    found = photos_at([f"{folder}/**/*.[Jjmp]*"])
    assert list(found.paths) == ["IMG (2).jpg", "b.JPG", "left/1.png", "masks/b.JPG.png"]
    assert found.ignored == {".mov": 1}  # a.mov; film.MOV has other letters
    masked = photos_at([f"{folder}/**/*.[Jjmp]*"], without=folder / "masks")
    assert list(masked.paths) == ["IMG (2).jpg", "b.JPG", "left/1.png"]
    assert list(photos_at([folder], without=folder / "masks").paths) == [*masked.paths, "left/deep/2.webp"]
    (folder / "[1].jpg").write_bytes(b"x")
    assert list(photos_at([folder / "[1].jpg"]).paths) == ["[1].jpg"]  # a file that looks like a pattern


def test_masks_beside_the_photos_are_left_out(folder):
    """Only what is the mask of a photo, by COLMAP's name of it."""
    for name in ("b.JPG.png", "left/1.png.png", "lone.jpg.png"):
        (folder / name).write_bytes(b"x")
    masks = {"b.JPG.png", "left/1.png.png"}
    for place in (folder, f"{folder}/**/*"):
        everything = photos_at([place]).paths.keys()
        assert everything >= masks | {"lone.jpg.png", "masks/b.JPG.png"}
        assert photos_at([place], without=folder).paths.keys() == everything - masks
    assert list(photos_in(folder / "left", without=folder / "left").paths) == ["1.png", "deep/2.webp"]


def test_what_is_refused(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "unknown.txt").write_text("left/1.png\nfilm.MOV\n")
    (tmp_path / "blank.txt").write_text("\n")
    for find, place, options, error in [
        (photos_in, folder, {"listed": tmp_path / "unknown.txt"}, FileError),
        (photos_in, folder, {"listed": tmp_path / "blank.txt"}, FileError),
        (photos_in, folder, {"only": ["*.tif"]}, ArgumentError),
        (photos_in, tmp_path / "absent", {}, FileError),
        (photos_in, folder / "b.JPG", {}, FileError),
        (photos_at, [folder / "b.JPG"], {"only": ["*.tif"]}, ArgumentError),
        (photos_at, [folder, tmp_path / "b.JPG"], {}, ArgumentError),
        (photos_at, [f"{folder}/*.tif"], {}, FileError),
        (photos_at, [tmp_path / "empty"], {}, FileError),
        (photos_at, [folder, folder / "left"], {"listed": "names.txt"}, ArgumentError),
    ]:
        with refuses(error):
            find(place, **options)


def test_links_to_folders_are_not_followed(folder):
    """They may lead in a circle."""
    before = photos_in(folder)
    (folder / "left" / "again").symlink_to(folder)
    found = photos_in(folder)
    assert (found.paths, found.ignored) == (before.paths, {**before.ignored, "linked folder": 1})
    assert photos_at([f"{folder}/**/*"]).paths.keys() == found.paths.keys()


def test_photos_of_a_linked_folder_match_a_pattern_once(folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "3.jpg").write_bytes(b"x")
    for name in ("one", "two"):
        (folder / name).symlink_to(tmp_path / "disk")
    assert photos_at([f"{folder}/**/3.jpg"]).paths == {"one/3.jpg": folder / "one" / "3.jpg"}


def test_what_cannot_be_opened_is_counted(folder, monkeypatch):
    before = photos_in(folder)
    (folder / "lost.jpg").symlink_to(folder / "absent.jpg")
    os.mkfifo(folder / "pipe.jpg")
    (folder / "locked").mkdir()
    scandir = os.scandir

    def refuse(place):
        if str(place).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    more = {"broken link": 1, "pipe or device": 1, "unreadable folder": 1}
    found = photos_in(folder)
    assert (found.paths, found.ignored) == (before.paths, {**before.ignored, **more})


def test_a_photo_that_is_named_twice_is_taken_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert list(photos_at([folder / "b.JPG", "b.JPG"]).paths) == ["b.JPG"]
    again = photos_at([folder, f"{folder}/**/*", folder / "left" / ".." / "b.JPG"])
    assert (again.paths.keys(), again.ignored) == (photos_in(folder).paths.keys(), photos_in(folder).ignored)
