"""Pairs that look alike: what two photos could see decides, not what was matched."""

from pathlib import Path

import numpy as np
import pytest

from experiments.look_alikes import MARGIN, SceneGeometry

SIZE, FOCAL = (1000, 800), 800.0
BACK = np.diag([-1.0, 1.0, -1.0])  # turned about the vertical by 180 degrees


def pose(R: np.ndarray, centre: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    return R, -R @ np.array(centre)


def write(folder: Path, poses: dict[str, tuple[np.ndarray, np.ndarray]], observed: dict[str, np.ndarray]) -> None:
    """A model whose points are those observed, each with its own number."""
    (folder / "sparse").mkdir(parents=True)
    points = np.unique(np.concatenate(list(observed.values())), axis=0)
    numbers = {tuple(point): number for number, point in enumerate(points.tolist(), 1)}
    cameras = f"1 SIMPLE_PINHOLE {SIZE[0]} {SIZE[1]} {FOCAL} {SIZE[0] / 2} {SIZE[1] / 2}\n"
    images = ""
    for number, (name, (R, t)) in enumerate(poses.items(), 1):
        quaternion = "1 0 0 0" if R[0, 0] > 0 else "0 0 1 0"
        seen = observed[name] @ R.T + t
        places = FOCAL * seen[:, :2] / seen[:, 2:] + np.array(SIZE) / 2
        rows = [
            f"{x} {y} {numbers[tuple(point)]}" for (x, y), point in zip(places, observed[name].tolist(), strict=True)
        ]
        images += f"{number} {quaternion} {t[0]} {t[1]} {t[2]} 1 {name}\n{' '.join(rows)}\n"
    lines = [f"{number} {x} {y} {z} 0 0 0 1\n" for (x, y, z), number in numbers.items()]
    for name, text in (("cameras", cameras), ("images", images), ("points3D", "".join(lines))):
        (folder / "sparse" / f"{name}.txt").write_text(text, encoding="ascii")


def wall(z: float, left: float = -4, right: float = 4) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(left, right, 33), np.linspace(-3, 3, 25))
    return np.column_stack([x.ravel(), y.ravel(), np.full(x.size, z)])


@pytest.fixture
def house(tmp_path):
    """Two photos of the front, which observe no common point, and one of the back."""
    front, half = wall(0.0), len(wall(0.0)) // 2
    poses = {
        "left.png": pose(np.eye(3), (-0.5, 0, -8)),
        "right.png": pose(np.eye(3), (0.5, 0, -8)),
        "behind.png": pose(BACK, (0, 0, 12)),
    }
    folder = tmp_path / "castle"
    write(folder, poses, {"left.png": front[:half], "right.png": front[half:], "behind.png": wall(4.0)})
    return SceneGeometry(folder)


def test_photos_of_one_side_are_no_look_alikes_even_if_no_point_was_matched(house):
    found = {(a.name, b.name): kind for kind, a, b in house.other_sides(10)}
    assert found == {("behind.png", "left.png"): "other side", ("behind.png", "right.png"): "other side"}


def test_crops_that_show_different_parts_have_no_point_in_common_and_others_have(house):
    found = list(house.crops(6))
    assert {kind for kind, _, _ in found} == {"other crop"}  # "same crop" needs points that both observe
    camera = {image.name: image for image in house.images}
    facade = [(a, b) for _, a, b in found if "behind.png" not in (a.photo, b.photo)]
    assert facade
    for a, b in facade:
        inside = []
        for piece in (a, b):
            R, t = camera[piece.photo].R, camera[piece.photo].t
            seen = wall(0.0) @ R.T + t
            places = FOCAL * seen[:, :2] / np.abs(seen[:, 2:]) + np.array(SIZE) / 2
            low, high = np.array(piece.box[:2]), np.array(piece.box[2:])
            grown = MARGIN * (high - low)
            inside.append(((places > low - grown) & (places < high + grown)).all(1) & (seen[:, 2] > 0))
        assert inside[0].any()
        assert inside[1].any()
        assert not (inside[0] & inside[1]).any()
