"""Patches and weight files for tests of baselines."""

from collections import OrderedDict
from pathlib import Path

import cv2
import numpy as np
import torch

FILES = {"tfeat": "tfeat-liberty.params", "hardtfeat": "HardTFeat.pth"} | dict.fromkeys(
    ("mkd-liberty", "mkd-notredame", "mkd-yosemite"), "mkd-concat-64.pth"
)


def made_patches():
    """(200, 65, 65) random textures with some blur."""
    noise = np.random.default_rng(0).uniform(0, 255, (200, 65, 65)).astype(np.float32)
    smooth = np.stack([cv2.GaussianBlur(patch, (0, 0), 2.5) for patch in noise])
    return np.clip((smooth - 127) * 8 + 127, 0, 255).astype(np.uint8)


def filled(generator: np.random.Generator, **shapes: tuple[int, ...]) -> OrderedDict[str, torch.Tensor]:
    """Weights by name, with __ for a dot; their spread follows from the number of inputs."""
    tensors = OrderedDict()
    for name, shape in shapes.items():
        spread = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        tensors[name.replace("__", ".")] = torch.from_numpy(generator.normal(0, spread, shape)).float()
    return tensors


def write_weights(folder: Path) -> None:
    """Random numbers of a trained network's size in the layout of the published files (see test_reference_data.py)."""
    generator = np.random.default_rng(0)

    def whitening() -> dict[str, torch.Tensor]:
        vectors = np.linalg.qr(generator.normal(size=(238, 238)))[0]
        arrays = {"mean": generator.uniform(0, 0.05, 238), "eigvecs": vectors, "eigvals": np.geomspace(0.5, 5e-5, 238)}
        return {name: torch.from_numpy(array).float() for name, array in arrays.items()}

    tfeat = filled(
        generator,
        features__1__weight=(32, 1, 7, 7), features__1__bias=(32,), features__4__weight=(64, 32, 6, 6),
        features__4__bias=(64,), descr__0__weight=(128, 4096), descr__0__bias=(128,),
    )  # fmt: skip
    hardtfeat = filled(
        generator,
        features__0__weight=(32, 1, 7, 7), features__0__bias=(32,), features__3__weight=(64, 32, 6, 6),
        features__3__bias=(64,), classifier__1__weight=(128, 64, 8, 8), classifier__1__bias=(128,),
        SIFT__gx__0__weight=(1, 1, 1, 3), SIFT__gy__0__weight=(1, 1, 3, 1), SIFT__pk__0__weight=(1, 1, 11, 11),
    )  # fmt: skip
    affnet = OrderedDict()
    for layer, (inputs, outputs) in enumerate([(1, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]):
        affnet[f"features.{3 * layer}.weight"] = torch.zeros(outputs, inputs, 3, 3)
        affnet[f"features.{3 * layer + 1}.running_mean"] = torch.zeros(outputs)
        affnet[f"features.{3 * layer + 1}.running_var"] = torch.ones(outputs)
    affnet |= {"features.19.weight": torch.zeros(3, 64, 8, 8), "features.19.bias": torch.zeros(3)}
    for name, content in {
        "tfeat-liberty.params": tfeat,
        "HardTFeat.pth": {"epoch": 2, "state_dict": hardtfeat},
        "mkd-concat-64.pth": {
            scene: {kind: whitening() for kind in ("pca", "lw")} for scene in ("liberty", "notredame", "yosemite")
        },
        "AffNet.pth": {"epoch": 20, "state_dict": affnet},
    }.items():
        path = folder / name
        torch.save(content, path, _use_new_zipfile_serialization=False)
        if not name.startswith("mkd"):  # the published networks were saved on a GPU
            path.write_bytes(path.read_bytes().replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0"))


def hamming(a, b):
    """(K, K) counts of differing bits, by table."""
    ones = np.array([bin(byte).count("1") for byte in range(256)])
    return np.stack([ones[row ^ b].sum(1) for row in a])


def distances(method, a, b):
    if method.distance == "hamming":
        return hamming(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T


def rank_1(method, strips, names):
    """The share of reference patches whose nearest one is their own, for each of these strips."""
    reference = method.describe(strips["ref"])
    found = [distances(method, reference, method.describe(strips[name])).argmin(1) for name in names]
    return [float((nearest == np.arange(len(reference))).mean()) for nearest in found]
