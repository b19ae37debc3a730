"""Networks that find keypoints (Key.Net), their shapes (AffNet) and orientations (OriNet), with weights from files.

Barroso-Laguna et al., ICCV 2019; Mishkin et al., ECCV 2018. The networks are kornia's; how patches are cut and how
frames are composed is ours, so that none of kornia's conventions for angles enters.
"""

import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchkernel.errors import WeightsError
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.storage.extras import need
from matchkernel.storage.files import file_hash
from matchkernel.storage.tensors import fill, read_state

Kind = Literal["keynet", "affnet", "orinet"]
CLASSES = {"keynet": "KeyNet", "affnet": "LAFAffNetShapeEstimator", "orinet": "OriNet"}
NAMES = {"keynet": "Key.Net", "affnet": "AffNet", "orinet": "OriNet"}
MAX_BYTES = 2**24  # of a weight file; the published ones have at most 340 kB
SIDE = 32  # of the patches that AffNet and OriNet see
REGION = 6.0  # their half side / sigma
PATCHES_AT_A_TIME = 4096
# Key.Net as published: maxima of 15 x 15 pixels, not within 15 pixels of the border, in levels sqrt(2) apart, one of
# them above the image's own resolution. A keypoint's region has a half side of 22 pixels of its level.
WINDOW, BORDER, STEP, LEVELS = 15, 15, 2**0.5, range(-1, 5)
KEYNET_SIGMA = 22 / 8
# AffNet's shapes are refused where the longer axis is more than this many times the shorter one, as its authors do.
MAX_STRETCH = 6.0


def open_network(kind: Kind, path: str, device: str | torch.device | None = None) -> nn.Module:
    """A network with the weights of a file, ready to run; opened once while the file stays the same.

    Args:
        kind: keynet, affnet or orinet.
        path: file of torch.save: its state_dict, or a checkpoint that contains one as `state_dict`.
        device: where to run it (default: CPU).
    """
    return _open_cached(kind, path, _stamp(path), torch.device(device or "cpu"))


def weights_digest(path: str) -> str:
    """sha256 of a weight file."""
    return _hashed(path, _stamp(path))


def library() -> str:
    """The package the networks are from, with its version."""
    return f"kornia {need('kornia', 'kornia', 'Key.Net, AffNet and OriNet').__version__}"


def keynet_points(gray: np.ndarray, network: nn.Module) -> np.ndarray:
    """(K, 4) x, y, sigma and response of Key.Net's keypoints in (H, W) uint8 gray.

    The maxima of a level are refined by a parabola, and their places follow from the centres of the level's pixels;
    kornia's detector does neither, and is up to 2 pixels off in the coarsest level.
    """
    transform = need("kornia.geometry.transform", "kornia", "finding keypoints with Key.Net")
    device = next(network.parameters()).device
    image = torch.tensor(gray, dtype=torch.float32, device=device)[None, None] / 255
    height, width = gray.shape
    level, found = image, [np.zeros((0, 4))]
    is_blank = gray.min() == gray.max()  # where the network has maxima of rounding errors
    for number in () if is_blank else LEVELS:
        if number < 0:
            shown = transform.resize(image, (int(height * STEP), int(width * STEP)), align_corners=False)
        elif number == 0:
            shown = image
        elif min(level.shape[-2:]) <= 2 * BORDER:
            break  # too small to be halved, and so are all that follow
        else:
            level = shown = transform.pyrdown(level, factor=STEP)
        if min(shown.shape[-2:]) <= 2 * BORDER:
            continue
        with torch.inference_mode():
            places, responses = _maxima(network(shown)[0, 0])
        factors = np.array([width / shown.shape[-1], height / shown.shape[-2]])
        centers = (places + 0.5) * factors - 0.5
        sigmas = np.full(len(places), KEYNET_SIGMA * factors.mean())
        found.append(np.column_stack([centers, sigmas, responses]))
    return np.concatenate(found)


def affine_shapes(gray: np.ndarray, centers: np.ndarray, sigmas: np.ndarray, network: nn.Module) -> np.ndarray:
    """(K, 2, 2) AffNet's shapes of area 1, that is of determinant 1, measured in upright squares.

    They are lower triangular: the vertical direction of a patch stays vertical in the image, as it does in photos of
    upright things by cameras that are held upright. A degenerate shape becomes the square.
    """
    squares = Frames.turned_squares(centers, REGION * sigmas, np.zeros(len(sigmas)))
    numbers = _outputs(gray, squares, getattr(network, "features"), 3)  # noqa: B009 (mypy: a Tensor or a Module)
    shapes = np.zeros((len(numbers), 2, 2))
    shapes[:, 0, 0], shapes[:, 1, 0], shapes[:, 1, 1] = 1 + numbers[:, 0], numbers[:, 1], 1 + numbers[:, 2]
    areas = np.linalg.det(shapes)
    axes = np.linalg.svd(shapes, compute_uv=False)
    is_good = (areas > 1e-6) & (axes[:, 0] <= MAX_STRETCH * axes[:, 1])
    return np.where(is_good[:, None, None], shapes / np.sqrt(np.where(is_good, areas, 1))[:, None, None], np.eye(2))


def network_angles(gray: np.ndarray, frames: Frames, network: nn.Module) -> np.ndarray:
    """(K,) OriNet's orientations in radians from the patch's x axis towards its y axis.

    Args:
        gray: (H, W) uint8.
        frames: regions of half side sigma, turned or stretched or not.
        network: OriNet.
    """
    regions = Frames(frames.centers, REGION * frames.shapes)
    xy = _outputs(gray, regions, getattr(network, "features"), 2)  # noqa: B009
    return -np.arctan2(xy[:, 0], xy[:, 1])  # OriNet counts from +x towards -y


def _outputs(gray: np.ndarray, frames: Frames, layers: Any, width: int) -> np.ndarray:
    """(K, width) outputs of a network's layers for patches of mean 0 and standard deviation 1, as it was trained."""
    device = next(layers.parameters()).device
    rows = np.zeros((len(frames), width))
    for start in range(0, len(frames), PATCHES_AT_A_TIME):
        part = slice(start, start + PATCHES_AT_A_TIME)
        patches = torch.from_numpy(extract_patches(gray, frames[part], SIDE)).to(device, torch.float32)[:, None]
        mean, deviation = patches.mean((1, 2, 3), keepdim=True), patches.std((1, 2, 3), keepdim=True)
        with torch.inference_mode():
            rows[part] = layers((patches - mean) / (deviation + 1e-6)).flatten(1).double().cpu().numpy()
    return rows


def _maxima(response: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """(K, 2) places x, y of the maxima of an (H, W) response, with a subpixel step, and (K,) responses."""
    highest = F.max_pool2d(response[None, None], WINDOW, 1, WINDOW // 2)[0, 0]
    is_highest = (response == highest) & (response > 0)
    equals = F.avg_pool2d(is_highest[None, None].float(), WINDOW, 1, WINDOW // 2)[0, 0] * WINDOW**2
    is_maximum = is_highest & (equals < 1.5)  # not one of several, as on a plateau
    y, x = torch.nonzero(is_maximum[BORDER:-BORDER, BORDER:-BORDER], as_tuple=True)
    y, x = y + BORDER, x + BORDER
    middle = response[y, x]
    steps = []
    for before, after in ((response[y, x - 1], response[y, x + 1]), (response[y - 1, x], response[y + 1, x])):
        curvature = 2 * middle - before - after
        steps.append(torch.where(curvature > 0, (after - before) / (2 * curvature), 0).clamp(-0.5, 0.5))
    places = torch.stack([x + steps[0], y + steps[1]], 1)
    return places.double().cpu().numpy(), middle.double().cpu().numpy()


def _stamp(path: str) -> tuple[int, int]:
    """Changes whenever the file is written; its size is checked here, before anything is read."""
    try:
        found = Path(path).stat()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})") from None
    if found.st_size > MAX_BYTES:
        raise WeightsError(f"{path}: {found.st_size:,} bytes are too many for Key.Net, AffNet or OriNet")
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=8)
def _open_cached(kind: Kind, path: str, stamp: tuple[int, int], device: torch.device) -> nn.Module:
    features = need("kornia.feature", "kornia", NAMES[kind])
    network = getattr(features, CLASSES[kind])(pretrained=False)
    own, state = network.state_dict(), read_state(Path(path))
    # The files of AffNet and OriNet are older than BatchNorm's counter of batches, which inference does not need.
    counters = {name: tensor for name, tensor in own.items() if name.endswith("num_batches_tracked")}
    return fill(network, {**counters, **state}, Path(path), NAMES[kind]).to(device)


@functools.lru_cache(maxsize=8)
def _hashed(path: str, stamp: tuple[int, int]) -> str:
    return file_hash(Path(path))
