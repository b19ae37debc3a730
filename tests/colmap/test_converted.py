"""The folder of JPEGs and links that COLMAP reads; the photos of the user are never written."""

from helpers import tree
from made_images import save, texture
from PIL import Image

from matchkernel.colmap.converted import readable_photos

NAMES = ["a.jpg", "b.jpg", "c.webp"]


def write_photos(folder):
    folder.mkdir()
    save(texture(0, 20, 30), folder / "a.png")
    with Image.open(folder / "a.png") as image:
        image.save(folder / "a.jpg")
        for name in ("b.jpg", "c.webp"):
            image.save(folder / name, format="WEBP")
    (folder / "a.png").unlink()
    return folder


def test_a_photo_that_was_linked_and_proves_unreadable_is_converted_beside_it(tmp_path):
    """COLMAP does not read b.jpg, whose content is WebP: known only after c.webp has made the folder."""
    images, folder = write_photos(tmp_path / "images"), tmp_path / "photos"
    before = tree(images)
    assert readable_photos(images, folder, NAMES, ["c.webp"])[1]["c.webp"] == "c.webp.jpg"
    readable_photos(images, folder, NAMES, ["b.jpg", "c.webp"])
    assert tree(images) == before
    assert [(folder / name).is_symlink() for name in ("a.jpg", "b.jpg", "c.webp.jpg")] == [True, False, False]
    for name in ("b.jpg", "c.webp.jpg"):
        with Image.open(folder / name) as image:
            assert image.format == "JPEG"


def test_links_follow_photos_that_were_moved_and_nothing_is_written_at_their_old_place(tmp_path):
    images, folder = write_photos(tmp_path / "images"), tmp_path / "photos"
    readable_photos(images, folder, NAMES, ["c.webp"])
    moved = images.rename(tmp_path / "moved")
    readable_photos(moved, folder, NAMES, ["b.jpg", "c.webp"])
    assert not images.exists()
    assert (folder / "a.jpg").samefile(moved / "a.jpg")
    with Image.open(folder / "b.jpg") as image:
        assert image.format == "JPEG"
