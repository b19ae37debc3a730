"""What several tests need."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.model import NO_POINT, read_reconstruction
from matchkernel.data.synthetic import random_texture, sample_linear
from matchkernel.errors import MatchKernelError
from matchkernel.geometry.cameras import project

needs_colmap = pytest.mark.skipif(
    shutil.which("colmap") is None, reason="COLMAP is not installed (apt-get install colmap)"
)

on_each_colmap = pytest.mark.usefixtures("each_colmap")  # the package and the program


@contextmanager
def refuses(error: type[MatchKernelError]) -> Iterator[None]:
    """The block raises `error`, with a message of one line; what the message says is free to change."""
    with pytest.raises(error) as raised:
        yield
    assert str(raised.value).strip(), "the message is empty"
    assert len(str(raised.value).splitlines()) == 1, f"not one line: {raised.value}"


def attempt(function, *arguments, expected=MatchKernelError):
    """What a function returns and "", or None and the message of the error that is expected."""
    try:
        return function(*arguments), ""
    except expected as error:
        return None, str(error)


def wait_until(is_so, process=None, seconds=240):
    """Wait for a condition; the test fails if it is not met in time, or if the process that should meet it ends."""
    until = time.monotonic() + seconds
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"did not happen within {seconds} seconds"
        time.sleep(0.01)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def copied_from_scene(patch_set: Path, target: Path, scene: str) -> Path:
    """A copy of a patch set that says it was cut from this scene."""
    manifest = shutil.copytree(patch_set, target) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "source": {"name": scene}}))
    return target


def textures(count: int, size: int = 32, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """(count, 1, size, size) smooth random patches from 0 to 255."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, 9, 9, generator=generator, dtype=dtype)
    smooth = torch.nn.functional.interpolate(coarse, size, mode="bicubic", align_corners=True)
    return 255 * smooth.clamp(0, 1)


def trained_like(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give a model BatchNorm statistics and an m as if it had been trained.

    A fresh model is positively homogeneous (it maps a constant patch to zero and ignores the scale of its input all by
    itself), so that it hides mistakes which a trained one would show.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.running_mean.copy_(0.2 * torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
        if isinstance(module, torch.nn.Linear) and module.bias is not None:
            module.bias.data.copy_(0.1 * torch.randn(module.out_features, generator=generator))
    return model.eval()


HOMOGRAPHIES = [
    np.array([[1, 0, 5], [0, 1, -3], [0, 0, 1]], float),
    np.array([[0.9, -0.2, 40], [0.2, 0.9, -20], [0, 0, 1]], float),
    np.array([[1.1, 0.1, -20], [-0.05, 1.05, 5], [1e-4, 5e-5, 1]], float),
    np.array([[0.8, 0, 30], [0, 0.8, 30], [0, 0, 1]], float),
    np.eye(3),
]


def write_sequence(folder: Path, homographies: list[np.ndarray] = HOMOGRAPHIES, seed: int = 0, side: int = 300) -> Path:
    """Image 1 is a texture; image k is the same texture seen through H_1_k, sampled exactly."""
    folder.mkdir(parents=True)
    texture = random_texture(side, np.random.default_rng(seed))
    Image.fromarray(texture.astype(np.uint8)).save(folder / "1.png")
    y, x = np.mgrid[:side, :side].astype(float)
    for number, H in enumerate(homographies, 2):
        back = np.linalg.pinv(H) @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
        seen = sample_linear(texture, *(back[:2] / np.where(np.abs(back[2]) > 1e-9, back[2], 1e-9))).reshape(side, side)
        Image.fromarray(seen.astype(np.uint8)).save(folder / f"{number}.png")
        (folder / f"H_1_{number}").write_text("\n".join(" ".join(f"{value:.9g}" for value in row) for row in H))
    return folder


def write_hpatches(folder: Path, photo: Path) -> None:
    """Strips of 100 patches of a photo, each turned, scaled and moved at random: little in e, more in h, most in t.

    The images 1 to 5 are ever darker and noisier.
    """
    folder.mkdir()
    generator = np.random.default_rng(0)
    with Image.open(photo) as image:
        gray = image.convert("L")
    x, y = np.meshgrid(np.linspace(80, gray.width - 80, 10), np.linspace(80, gray.height - 80, 10))
    for level, amount in {"ref": 0, "e": 1, "h": 2, "t": 4}.items():
        for number in [0] if level == "ref" else range(1, 6):
            strip = []
            for centre in zip(x.flat, y.flat, strict=True):
                angle, scale, *shift = amount * generator.uniform(-1, 1, 4) * (0.1, 0.05, 1.5, 1.5)
                a, b = np.exp(scale) * np.cos(angle), np.exp(scale) * np.sin(angle)
                left, top = np.add(centre, shift) - 32.5 * np.array([a - b, a + b])
                place = (a, -b, left, b, a, top)
                strip.append(gray.transform((65, 65), Image.Transform.AFFINE, place, Image.Resampling.BILINEAR))
            pixels = np.concatenate([np.asarray(patch) for patch in strip]) * (1 - 0.1 * number)
            pixels += generator.normal(0, 3, pixels.shape) * number
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
                folder / ("ref.png" if level == "ref" else f"{level}{number}.png")
            )


def projection_errors(scene: Path) -> np.ndarray:
    """Pixels from each keypoint with a 3-D point to that point's projection; the database has the same keypoints."""
    model = read_reconstruction(scene / "sparse")
    keypoints = read_database_keypoints(scene / "database.db")
    errors = []
    for image in model.images.values():
        camera, tracked = model.cameras[image.camera], image.points != NO_POINT
        X = np.array([model.points[number] for number in image.points[tracked]])
        places, visible = project(camera.model, camera.parameters, X @ image.R.T + image.t)
        assert visible.all()
        errors.append(np.linalg.norm(places - image.places[tracked], axis=1))
        assert keypoints[image.name].shape == (len(image.places), 6)
        assert np.abs(keypoints[image.name][:, :2] - image.places).max() < 1e-3
    return np.concatenate(errors)


def count_parameters(model):
    """Number of learned parameters of a live model."""
    return sum(parameter.numel() for parameter in model.parameters())
