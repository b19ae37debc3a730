"""Turn the second photo of every pair of a scene, so that `matchkernel evaluate photos` shows what turning costs.

    python experiments/photos/turned_scene.py SCENES/sceaux OUT --angles 0 45 90 180
    matchkernel evaluate photos OUT/sceaux@* --model light-wide --matcher ratio --matcher context

Writes a scene for each angle, with the photos, turned copies of them, a COLMAP model in text files and the pairs (A, B
turned). Only the second photo is turned. A camera turned about its axis keeps its focal length and its radial
distortion, and its principal point turns with the photo, so that the true poses stay exact.
"""

import argparse
import shutil
from pathlib import Path

import cv2
import numpy as np

from matchkernel.cli.console import run_script
from matchkernel.colmap.model import Camera, RegisteredImage, read_reconstruction
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scenes import read_scene

MODELS = {"SIMPLE_PINHOLE": (1, 2), "SIMPLE_RADIAL": (1, 2), "RADIAL": (1, 2)}  # places of the principal point


def main() -> None:
    """Write the scenes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", type=Path, help="folder with images/ and sparse/")
    parser.add_argument("out", type=Path)
    parser.add_argument("--angles", type=float, nargs="+", default=[0, 45, 90, 180], help="degrees, clockwise")
    options = parser.parse_args()
    scene, model = read_scene(options.scene), read_reconstruction(options.scene / "sparse")
    poses = {pose.name: pose for pose in model.images.values()}
    for angle in options.angles:
        folder = options.out / f"{scene.name}@{angle:g}"
        (folder / "images").mkdir(parents=True, exist_ok=True)
        (folder / "sparse").mkdir(exist_ok=True)
        cameras, images = [], []
        for name, path in scene.images.items():
            pixels, camera = cv2.imread(str(path)), model.cameras[poses[name].camera]
            shutil.copyfile(path, folder / "images" / name)
            for degrees, title in ((0.0, name), (angle, turned_name(name))):
                picture, matrix = turned(pixels, degrees)
                if title != name:
                    cv2.imwrite(str(folder / "images" / title), picture)
                cameras.append(camera_line(len(cameras) + 1, camera, picture.shape, pixels.shape, matrix))
                images.append(image_line(len(images) + 1, title, poses[name], np.deg2rad(degrees)))
        (folder / "sparse" / "cameras.txt").write_text("".join(cameras), encoding="ascii")
        (folder / "sparse" / "images.txt").write_text("".join(images), encoding="ascii")
        (folder / "sparse" / "points3D.txt").write_text("", encoding="ascii")
        pairs = "".join(f"{a} {turned_name(b)}\n" for a, b in scene.pairs)
        (folder / "pairs.txt").write_text(pairs, encoding="utf-8")
        print(f"{len(scene.pairs)} pairs -> {folder}")


def turned_name(name: str) -> str:
    """Of the turned copy; PNG, so that it is compressed only once."""
    return f"{Path(name).stem}-turned.png"


def turned(pixels: np.ndarray, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """The photo turned clockwise on a canvas that holds all of it, and the (2, 3) map of its pixels."""
    height, width = pixels.shape[:2]
    angle = np.deg2rad(degrees)
    R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    size = np.round(np.abs(R) @ [width, height]).astype(int)
    shift = (size - 1) / 2 - R @ ((np.array([width, height]) - 1) / 2)
    matrix = np.column_stack([R, shift])
    if degrees == 0:
        return pixels, matrix
    return cv2.warpAffine(pixels, matrix, tuple(size.tolist()), flags=cv2.INTER_CUBIC), matrix


def camera_line(
    number: int, camera: Camera, shape: tuple[int, ...], before: tuple[int, ...], matrix: np.ndarray
) -> str:
    """A camera of the size of the turned file."""
    if camera.model not in MODELS:
        raise ArgumentError(f"a camera {camera.model} is not the same when it is turned")
    scale = np.array([before[1] / camera.width, before[0] / camera.height])
    parameters, places = camera.parameters.copy(), list(MODELS[camera.model])
    parameters[0] *= scale.mean()
    centre = parameters[places] * scale - 0.5  # COLMAP's origin is the corner of the first pixel
    parameters[places] = matrix[:, :2] @ centre + matrix[:, 2] + 0.5
    return f"{number} {camera.model} {shape[1]} {shape[0]} {' '.join(map(repr, parameters.tolist()))}\n"


def image_line(number: int, name: str, pose: RegisteredImage, angle: float) -> str:
    """The pose of a camera turned about its axis; the second line, of its keypoints, is empty."""
    Z = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    vector = cv2.Rodrigues(Z @ pose.R)[0].ravel()
    half = np.linalg.norm(vector) / 2
    quaternion = [np.cos(half), *(np.sinc(half / np.pi) / 2 * vector)]
    return f"{number} {' '.join(repr(float(value)) for value in (*quaternion, *(Z @ pose.t)))} {number} {name}\n\n"


if __name__ == "__main__":
    run_script(main)
