"""Training a context matcher: depths and labels against the truth, falling losses, resumed runs, refusals."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import good
from helpers import refuses, tree
from PIL import Image

from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.two_view import essential_matrix, sampson_distances, warp_frames
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.extract import open_describer
from matchkernel.photos.pipeline import match_images
from matchkernel.plots.canvas import new_figure
from matchkernel.plots.training import draw_panel, drawn_panels, training_picture
from matchkernel.storage.settings import read_toml
from matchkernel.training.log import read_log
from matchkernel.training.matcher.config import MatcherConfig
from matchkernel.training.matcher.labels import Ends, homography_labels, pose_labels
from matchkernel.training.matcher.loop import train_matcher
from matchkernel.training.matcher.pairs import OTHER, POSE, WARP, draw_pairs, make_candidates
from matchkernel.training.matcher.scenes import read_matcher_scenes, read_photos

SMALL = MatcherConfig(
    keypoints=150, warps=1, used=(100, 150), fewest=20, pose_pairs=6, warp_pairs=4, other_pairs=2, listed=128,
    candidates=128, d=8, layers=2, dv=2, steps=8, batch=4, warmup=1, rate=0.01, log_every=2, save_every=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def scene(rendered, tmp_path_factory):
    """The rendered scene with only one pair of its photos; read only."""
    folder = tmp_path_factory.mktemp("matcher") / "planes"
    shutil.copytree(rendered, folder)
    (folder / "pairs.txt").write_text("000.png 001.png\n")
    return folder


@pytest.fixture(scope="module")
def whole(scene, tmp_path_factory):
    """The folder of a run that was never interrupted, with matcher.safetensors and matcher.run; read only."""
    folder = tmp_path_factory.mktemp("whole")
    train_matcher([scene], folder / "matcher.safetensors", SMALL, model="tiny", device="cpu")
    return folder


@pytest.fixture(scope="module")
def photos(scene):
    """Scenes and their photos: the scene, and a copy of it under another name."""
    other = scene.with_name("other")
    shutil.copytree(scene, other)
    scenes = read_matcher_scenes([scene, other], shared_points=15)
    return scenes, read_photos(scenes, open_describer("tiny"), SMALL, torch.device("cpu"))


def true_depths(scene, photo):
    """(K,) depth of the scene point under each keypoint that the truth knows, else NaN; and these (K, 3) points."""
    keypoints = np.load(scene / "truth" / photo.name.replace(".png", ".npy"))
    model = read_matcher_scenes([scene], 15)[0].model
    image = next(image for image in model.images.values() if image.name == photo.name)
    places = image.places - 0.5
    centers = torch.view_as_real(photo.keypoints.z[0]).numpy() * photo.pixels + (np.array([400, 300]) - 1) / 2
    distance = np.linalg.norm(centers[:, None] - places, axis=2)
    nearest = distance.argmin(1)
    points = np.where(distance.min(1)[:, None] < 0.01, keypoints[nearest], np.nan)
    return (points @ photo.camera.R.T + photo.camera.t)[:, 2], points


def test_depths_are_those_of_the_scene(scene, photos):
    photo = photos[1]["planes", "001.png"][0]
    truth, _ = true_depths(scene, photo)
    found = photo.depths.numpy()
    both = np.isfinite(truth) & np.isfinite(found)
    assert both.sum() > 40
    assert np.quantile(np.abs(found[both] / truth[both] - 1), 0.95) < 0.02  # planes fitted across an edge are few


def random_ends(random, count, depth):
    u = random.uniform(-0.5, 0.5, (1, count, 2))
    z = np.where(random.random((1, count)) < 0.7, depth + random.normal(0, 0.3, (1, count)), np.nan)
    arrays = u, random.uniform(-3, 3, (1, count)), random.uniform(0, 4, (1, count)), np.full((1, 1), 500.0), z
    return Ends(*(torch.from_numpy(array) for array in arrays), torch.full((1, 1), float(depth), dtype=torch.float64))


def carried(ends, c, move):
    """Place, direction and stretch of a keypoint under a map of places, by finite differences."""
    u, theta, step = ends.u[0, c].numpy(), float(ends.theta[0, c]), 1e-6
    place = move(u)
    change = (move(u + step * np.array([np.cos(theta), np.sin(theta)])) - place) / step
    return place, np.arctan2(change[1], change[0]), np.log2(np.linalg.norm(change))


def slow_label(a, b, c, forth, back, sampson):
    """The definition for one candidate; `forth` and `back` map places and know whether they may."""
    (place_b, theta, stretch), (place_a, _, _) = carried(a, c, forth[0]), carried(b, c, back[0])
    misses = [500 * np.linalg.norm(place_b - b.u[0, c].numpy())] * int(forth[1])
    misses += [500 * np.linalg.norm(place_a - a.u[0, c].numpy())] * int(back[1])
    tolerance = 2 + 0.15 * 2 ** max(float(a.sigma[0, c]), float(b.sigma[0, c]))
    turn = abs((theta - float(b.theta[0, c]) + np.pi) % (2 * np.pi) - np.pi)
    octaves = abs(float(a.sigma[0, c]) + stretch - float(b.sigma[0, c]))
    values = [sampson / tolerance, max(misses, default=-1) / tolerance, turn, octaves]
    if all(value < low for value, low in zip(values, (1, 2, 0.7, 1.2), strict=True)):
        return 1.0
    return 0.0 if any(value > high for value, high in zip(values, (2, 4, 1.2, 2), strict=True)) else -1.0


def nearly_right(random, a, place, theta, sigma):
    """B's keypoints close to where A's lie, so that all labels occur."""
    noise = random.choice([0.002, 0.02], (1, len(place), 1)) * random.normal(size=(1, len(place), 2))
    turned = theta + random.normal(0, 0.6, len(place))
    u, theta = torch.from_numpy(place[None] + noise), torch.from_numpy(turned[None])
    return replace(a, u=u, theta=theta, sigma=torch.from_numpy(sigma[None] + random.normal(0, 0.8, (1, len(place)))))


def test_pose_labels_are_those_of_loops():
    random, count = np.random.default_rng(0), 300
    R, _ = np.linalg.qr(np.eye(3) + 0.1 * random.normal(size=(3, 3)))
    R, t = R * np.sign(np.linalg.det(R)), np.array([0.8, 0.1, -0.2])
    a = random_ends(random, count, 4)
    depth_a = np.nan_to_num(a.depth[0].numpy(), nan=4)

    def through(R, t, z):
        def move(u):
            x = z * np.append(u, 1)
            y = R @ x + t
            return y[:2] / y[2]

        return move

    ends = [carried(a, c, through(R, t, depth_a[c])) for c in range(count)]
    place, theta, stretch = (np.array(part) for part in zip(*ends, strict=True))
    b = nearly_right(random, a, place, theta, a.sigma[0].numpy() + stretch)
    b = replace(b, depth=random_ends(random, count, 4).depth)
    found = pose_labels(a, b, torch.from_numpy(R)[None], torch.from_numpy(t)[None])[0]
    distances = 500 * sampson_distances(essential_matrix(R, t), a.u[0].numpy(), b.u[0].numpy())
    for c in range(count):
        za, zb = float(a.depth[0, c]), float(b.depth[0, c])
        forth = through(R, t, za if np.isfinite(za) else 4), np.isfinite(za)
        back = through(R.T, -R.T @ t, zb if np.isfinite(zb) else 4), np.isfinite(zb)
        assert found[c] == slow_label(a, b, c, forth, back, distances[c]), c
    assert {float(label) for label in found} == {1.0, 0.0, -1.0}
    beyond = replace(b, u=b.u.clone().index_fill_(1, torch.tensor([0]), torch.nan))
    assert pose_labels(a, beyond, torch.from_numpy(R)[None], torch.from_numpy(t)[None])[0, 0] == -1


def test_homography_labels_are_those_of_warped_frames():
    random, count = np.random.default_rng(1), 300
    H = np.array([[0.9, -0.2, 0.05], [0.25, 1.1, -0.1], [0.1, -0.05, 1]])
    a = random_ends(random, count, 4)
    frames = Frames.turned_squares(a.u[0].numpy(), np.ones(count), a.theta[0].numpy())
    warped, _ = warp_frames(H, frames)
    stretch = np.log2(np.linalg.norm(warped.shapes[:, :, 0], axis=1))
    b = nearly_right(random, a, warped.centers, warped.angles, a.sigma[0].numpy() + stretch)
    found = homography_labels(a, b, torch.from_numpy(H)[None])[0]

    def through(H):
        return lambda u: (H @ np.append(u, 1))[:2] / (H @ np.append(u, 1))[2]

    for c in range(count):
        assert found[c] == slow_label(a, b, c, (through(H), True), (through(np.linalg.inv(H)), True), 0), c
    assert {float(label) for label in found} == {1.0, 0.0, -1.0}


def test_right_candidates_of_a_rendered_scene_are_the_same_point(scene, photos):
    scenes, found = photos
    pairs = [
        pair for pair in draw_pairs(scenes, found, SMALL) if pair.kind == POSE and pair.photos[0].scene == "planes"
    ]
    checked = []
    for pair in pairs:
        lists = make_candidates([pair], SMALL)
        right = lists.labels[0] == 1
        ends = []
        for photo, z in zip(pair.photos, (lists.zi, lists.zj), strict=True):
            _, points = true_depths(scene, photo)
            ends.append(points[(photo.keypoints.z[0] == z[0, right][:, None]).int().argmax(1)])
        checked.append(np.linalg.norm(ends[0] - ends[1], axis=1))
    offsets = np.concatenate(checked)
    offsets = offsets[np.isfinite(offsets)]
    assert len(offsets) > 30
    assert (offsets < 0.2).mean() > 0.9  # of a scene 8 wide, where a large keypoint covers 0.5


def test_unrelated_pairs_have_no_right_candidate_and_copies_of_a_photo_many(photos):
    scenes, found = photos
    pairs = draw_pairs(scenes, found, SMALL)
    kinds = {kind: make_candidates([pair for pair in pairs if pair.kind == kind], SMALL) for kind in (WARP, OTHER)}
    assert kinds[OTHER].shares() == {"right": 0.0, "wrong": 1.0, "unknown": 0.0}
    assert kinds[WARP].shares()["right"] > 0.1
    together = replace(SMALL, same_place=("planes other",))
    assert {pair.kind for pair in draw_pairs(scenes, found, together)} == {POSE, WARP}


def test_training_lowers_the_loss_and_writes_weights_with_a_card(whole):
    entries = read_log(whole / "matcher.run" / "log.jsonl")
    losses = [entry["loss"] for entry in entries if entry["event"] == "training"]
    assert len(losses) == 4
    assert losses[-1] < 0.8 * losses[0]
    network = ContextNetwork.load(whole / "matcher.safetensors")
    assert (network.config.descriptor, network.card["trained_on"]) == ("tiny", "planes")
    assert network.config.descriptor_sha256 == open_describer("tiny").settings["weights"]
    assert not (whole / "matcher.run" / "last.safetensors").exists()


class KilledError(Exception):
    """Stands for a kill: nothing is saved after it."""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_run_that_was_stopped_or_killed_ends_as_one_that_was_not(is_killed, scene, whole, tmp_path):
    out, steps = tmp_path / "matcher.safetensors", []

    def stop():
        steps.append(1)
        if is_killed and len(steps) == 5:
            raise KilledError
        return len(steps) == 5

    if is_killed:
        with pytest.raises(KilledError):
            train_matcher([scene], out, SMALL, model="tiny", device="cpu", stop_when=stop)
    else:
        outcome = train_matcher([scene], out, SMALL, model="tiny", device="cpu", stop_when=stop)
        assert (outcome.step, outcome.is_finished) == (5, False)
    assert not out.exists()
    assert train_matcher([scene], out, SMALL, model="tiny", device="cpu").is_finished
    mine, expected = (ContextNetwork.load(folder / "matcher.safetensors") for folder in (tmp_path, whole))
    assert all(torch.equal(mine.state_dict()[name], tensor) for name, tensor in expected.state_dict().items())
    logs = [read_log(folder / "matcher.run" / "log.jsonl") for folder in (tmp_path, whole)]
    losses = [{entry["step"]: entry["loss"] for entry in log if entry["event"] == "training"} for log in logs]
    assert losses[0] == losses[1]


def test_a_checkpoint_of_other_settings_or_of_something_else_is_refused(scene, whole, tmp_path):
    out = tmp_path / "matcher.safetensors"
    train_matcher([scene], out, SMALL, model="tiny", device="cpu", stop_when=lambda: True)
    before = tree(tmp_path)
    for config, model in ((replace(SMALL, rate=0.1), "tiny"), (SMALL, "light")):
        with refuses(ArgumentError):
            train_matcher([scene], out, config, model=model, device="cpu")
    assert tree(tmp_path) == before
    shutil.copy(whole / "matcher.safetensors", tmp_path / "matcher.run" / "last.safetensors")
    with refuses(FileError):
        train_matcher([scene], out, SMALL, model="tiny", device="cpu")


def broken(folder, kind):
    """Damage a copy of a scene."""
    if kind == "no model":
        shutil.rmtree(folder / "sparse")
    elif kind == "no pairs":
        (folder / "pairs.txt").write_text("\n")
    elif kind == "one photo":
        lines = (folder / "sparse" / "images.txt").read_text().splitlines()
        (folder / "sparse" / "images.txt").write_text("\n".join(lines[:2]) + "\n")
    elif kind == "a photo is missing":
        (folder / "images" / "001.png").unlink()


@pytest.mark.parametrize("kind", ["no model", "no pairs", "one photo", "a photo is missing"])
def test_a_scene_that_cannot_be_used_is_refused_and_nothing_is_written(kind, scene, tmp_path):
    folder = tmp_path / "planes"
    shutil.copytree(scene, folder)
    broken(folder, kind)
    with refuses(FileError):
        train_matcher([folder], tmp_path / "new" / "matcher.safetensors", SMALL, model="tiny", device="cpu")
    assert not (tmp_path / "new").exists()


def test_training_on_no_scene_is_refused(tmp_path):
    with refuses(ArgumentError):
        train_matcher([], tmp_path / "matcher.safetensors")


def test_the_command_trains_and_validates(scene, rendered, tmp_path):
    values = {name: value for name, value in vars(SMALL).items() if name not in ("licence", "same_place")}
    settings = [f"--set={name}={json.dumps(value)}" for name, value in values.items()]
    other = tmp_path / "validation"
    shutil.copytree(rendered, other)
    (other / "pairs.txt").write_text("003.png 004.png\n")
    out = tmp_path / "matcher.safetensors"
    good("train-matcher", scene, "-o", out, "--model", "tiny", "--validate", other, "--steps", 1, *settings)
    card = ContextNetwork.load(out).card
    assert (card["step"], card["validation"].keys() > {"maa5", "maa10", "matches"}) == (1, True)


def test_its_log_is_drawn_with_validation_and_without(whole, tmp_path):
    log = whole / "matcher.run" / "log.jsonl"
    training_picture(whole / "matcher.run", tmp_path / "curve.png")
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.width > picture.height
    entries = [{"step": 0, "event": "ratio test", "maa10": 0.6}, {"step": 8, "event": "validation", "maa10": 0.7}]
    panels = drawn_panels([*read_log(log), *entries])
    assert [*panels[1].curves] == ["precision", "recall"]
    assert all(0 <= value <= 100 for curve in panels[1].curves.values() for _, value in curve)
    assert panels[2].curves == {"the matcher": [(8, 70.0)], "ratio test": [(0, 60.0)]}
    axes = new_figure(4, 3).subplots()
    draw_panel(axes, panels[2])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["the matcher", "ratio test"]


def test_a_matcher_for_rootsift_is_trained_and_used(scene, tmp_path):
    out = tmp_path / "own.safetensors"
    train_matcher([scene], out, replace(SMALL, steps=2), model="rootsift", device="cpu")
    photos = sorted((scene / "images").iterdir())[:2]
    found = match_images(*photos, "rootsift", keypoints=100, filter=f"context:{out}:0.01", geometry="none")
    assert len(found.matches) > 20
    with refuses(ArgumentError):
        match_images(*photos, "sift", keypoints=100, filter=f"context:{out}")


def test_the_recipe_in_configs_is_the_default():
    recipe = MatcherConfig.read("configs/context.toml", [])
    assert replace(recipe, same_place=()) == MatcherConfig()
    assert read_toml("configs/context.toml").keys() <= vars(recipe).keys()
