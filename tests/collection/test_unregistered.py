"""Photos that get into no model, each for its own reason, and the sentence that says so."""

import dataclasses
import itertools
import shutil
import sys

import numpy as np
from helpers import on_each_colmap
from made_collection import SETTINGS
from made_images import texture
from PIL import Image

from matchkernel.collection.reconstruct import reconstruct
from matchkernel.storage.images import read_gray, write_png

SENTENCES = {  # photo -> the words that its sentence has to have
    "empty.png": ("the file is empty", "copy it again"),
    "cut.png": ("truncated", "copy it again"),
    "huge.png": ("100,000,000 pixels", "make it smaller"),
    "heic.heic": ("pip install 'matchkernel[heic]'",),
    "blank.png": ("no keypoints", "blank, dark or blurred"),
    "hidden.png": ("no keypoints", "outside its mask", "inverted"),
    "untried.png": ("no pair with it was tried", "--pairs all"),
    "noise.png": ("does not seem to show what the others show", "small steps"),
    "tiles.png": ("too few agree on one position", "move or repeat"),
    "shuffled.png": ("points of the model", "no position of the camera agrees"),
    "far.png": ("at most", "matches", "small steps"),
    "island1.png": ("agrees only with island2.png", "not in a model either", "on the way"),
    "island2.png": ("agrees only with island1.png", "not in a model either", "on the way"),
    "corner.png": ("points of the model", "30 are needed", "take a photo between"),
}


def write_failing(folder, scene, masks):
    """Photos of every kind beside those of the scene."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (300, 400), dtype=np.uint8)
    first = read_gray(scene / "002.png")
    (folder / "empty.png").write_bytes(b"")
    (folder / "cut.png").write_bytes((scene / "000.png").read_bytes()[:500])
    Image.new("1", (20000, 10000)).save(folder / "huge.png")
    (folder / "heic.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    write_png(folder / "blank.png", np.full((300, 400), 120, np.uint8))
    shutil.copy(scene / "000.png", folder / "hidden.png")
    masks.mkdir()
    write_png(masks / "hidden.png.png", np.zeros((300, 400), np.uint8))
    shutil.copy(scene / "001.png", folder / "untried.png")
    write_png(folder / "noise.png", noise)
    tiles = [first[y : y + 50, x : x + 50] for y in range(0, 300, 50) for x in range(0, 400, 50)]
    order = random.permutation(len(tiles))
    rows = [np.hstack([np.rot90(tiles[k], k) for k in order[8 * r : 8 * r + 8]]) for r in range(6)]
    write_png(folder / "shuffled.png", np.vstack(rows))
    random, few = np.random.default_rng(0), np.full((300, 400), 120, np.uint8)
    for k, cell in enumerate(random.permutation(48)[:20]):
        (y, x), (top, left) = (50 * (cell // 8) + 5, 50 * (cell % 8) + 5), random.integers(0, (268, 368))
        few[y : y + 32, x : x + 32] = np.rot90(first[top : top + 32, left : left + 32], k)
    write_png(folder / "tiles.png", few)
    other = texture(5, 340, 440)
    write_png(folder / "island1.png", other[:300, :400])
    write_png(folder / "island2.png", other[30:330, 20:420])
    corner = np.full((300, 400), 120, np.uint8)
    corner[100:180, 100:190] = first[100:180, 100:190]
    write_png(folder / "corner.png", corner)
    far = np.full((300, 400), 120, np.uint8)
    far[100:150, 100:150] = first[100:150, 100:150]
    write_png(folder / "far.png", np.where(far == 120, random.integers(0, 99, far.shape, np.uint8), far))


@on_each_colmap
def test_photos_that_fail_for_different_reasons_get_different_sentences(scene, tmp_path, monkeypatch):
    images, masks, pairs = tmp_path / "images", tmp_path / "masks", tmp_path / "pairs.txt"
    shutil.copytree(scene, images)
    write_failing(images, scene, masks)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    own, failing = sorted(path.name for path in scene.iterdir()), sorted(SENTENCES.keys() - {"untried.png"})
    tried = [*itertools.combinations(own, 2), *itertools.product(own, failing), ("island1.png", "island2.png")]
    pairs.write_text("".join(f"{a} {b}\n" for a, b in tried))
    how = dataclasses.replace(SETTINGS, pairs=str(pairs))
    summary = reconstruct(images, tmp_path / "ws", "rootsift", how, masks=masks)
    assert summary.registered == 6, SENTENCES.keys() - summary.reasons.keys()
    assert summary.reasons.keys() == SENTENCES.keys()
    for name, words in SENTENCES.items():
        assert all(word in summary.reasons[name] for word in words), (name, summary.reasons[name])
    assert all(len(why.splitlines()) == 1 for why in summary.reasons.values())
    again = reconstruct(images, tmp_path / "ws", "rootsift", how, masks=masks)
    assert again.reasons == summary.reasons
