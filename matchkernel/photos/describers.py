"""Describers turn regions of an image into unit rows: our descriptors, and OpenCV's SIFT for comparison."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchkernel.errors import ArgumentError, ArgumentTypeError, WeightsError
from matchkernel.geometry.device_sampling import DEVICE_SAMPLER, extract_patches_on
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import SAMPLER, Pyramid
from matchkernel.geometry.sift import frame_sift, to_rootsift
from matchkernel.model.config import VARIANTS
from matchkernel.model.describe import describe_piece
from matchkernel.model.descriptors import Descriptor, build
from matchkernel.model.devices import open_device
from matchkernel.model.engines.choose import open_engine
from matchkernel.model.engines.engine import AUTO, ENGINE, check_name
from matchkernel.model.weights import load, state_digest
from matchkernel.photos.features import label_of
from matchkernel.photos.filters import LEARNED_RATIO, RATIO, THRESHOLD
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.progress import Progress, adding
from matchkernel.storage.stages import stage
from matchkernel.storage.threads import in_threads, spare_threads

CUT = 64  # side of the patches cut, as in the training sets; then resized to the model's size
FRAMES_AT_A_TIME = 8192  # at most, on a GPU: 32 MiB of patches
# Calibrated distances (docs/match.md) and ratios of nearest to second-nearest distance (docs/photos.md).
SIFTS = {"sift": (0.369, 0.85), "rootsift": (0.342, 0.9)}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Describer:
    """A descriptor of image regions, ready to run.

    Attributes:
        name: of the descriptor.
        D: dimension of a descriptor.
        settings: everything that determines the descriptors (weights, patch size, sampler), JSON values.
        compute: (H, W) uint8 gray, K frames, magnification -> (K, D) float32 unit rows, zeros without content; it may
            be given a `progress` too.
        device: where it runs, and where descriptors are matched.
        takes_one_core: whether images can be described in several threads at once, and faster so.
        recipe: how to make it again in another process; None for one that was made by hand.
    """

    name: str
    D: int
    settings: dict[str, Any]
    compute: Callable[..., np.ndarray] = field(repr=False)
    device: torch.device = CPU
    takes_one_core: bool = False
    recipe: "Recipe | None" = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """Its name, and the engine it runs on, for messages."""
        return label_of(self.name, self.settings)


@dataclass(frozen=True)
class Recipe:
    """What a describer is made from. It can be pickled, weights and all, and opened in another process.

    Attributes:
        model: a Descriptor, or "sift" or "rootsift".
        device: where to compute, as of `open_describer`.
        engine: what to compute with, as of `open_describer`.
    """

    model: Descriptor | str = field(repr=False)
    device: str | None = None
    engine: str = AUTO

    def open(self) -> Describer:
        """Make the describer."""
        if isinstance(self.model, str):
            made = _of_sift(self.model, open_device(self.device))
        else:
            made = _of_descriptor(self.model, self.device, self.engine)
        return replace(made, recipe=self)


Model = Descriptor | Describer | str | Path


def open_describer(
    model: Model, *, untrained: bool = False, device: str | torch.device | None = None, engine: str = "auto"
) -> Describer:
    """Make a describer, to be used for many images.

    Args:
        model: a Descriptor; a name from `matchkernel.available()`; a .safetensors file; "sift" or "rootsift"; or a
            describer, which is returned unchanged.
        untrained: take `model` as the name of a descriptor, with random weights (seed 0), for trying things out.
        device: where to compute (default: the model's device). SIFT itself always runs on the CPU.
        engine: what to compute with (see model.engines.choose.open_engine); SIFT has none.
    """
    check_name(engine)
    if isinstance(model, Describer):
        _check_runs_on(model, device, engine)
        return model
    return open_recipe(model, untrained=untrained, device=device, engine=engine).open()


def open_recipe(
    model: Descriptor | str | Path,
    *,
    untrained: bool = False,
    device: str | torch.device | None = None,
    engine: str = "auto",
) -> Recipe:
    """Read the weights of a describer, which is then opened elsewhere; the arguments are those of `open_describer`."""
    check_name(engine)
    place = None if device is None else str(device)
    if isinstance(model, Descriptor):
        return Recipe(model, place, engine)
    if not isinstance(model, str | Path):
        raise ArgumentTypeError(f"model must be a Descriptor, a name or a weight file, got {type(model).__name__}")
    if str(model) in SIFTS:
        return Recipe(str(model), place, engine)
    if untrained:
        if str(model) not in VARIANTS:
            raise ArgumentError(f"an untrained model must be one of {', '.join(VARIANTS)}, got {str(model)!r}")
        network = build(str(model), generator=torch.Generator().manual_seed(0))
        network.name = f"{model}, untrained"
        return Recipe(network, place, engine)
    try:
        return Recipe(load(model), place, engine)
    except WeightsError as error:
        if Path(model).exists():
            raise
        raise WeightsError(f"{error}; sift and rootsift need no weights") from None


def _check_runs_on(describer: Describer, device: str | torch.device | None, engine: str) -> None:
    own = describer.settings.get(ENGINE)
    if device not in (None, "auto") and open_device(device) != describer.device:
        raise ArgumentError(f"this describer runs on {describer.device}: open it for {device} instead")
    if engine not in (AUTO, own):
        raise ArgumentError(f"this describer runs on {own}: open it for {engine} instead")


def _of_descriptor(network: Descriptor, device: str | torch.device | None, engine: str) -> Describer:
    config = network.config
    runner = open_engine(network, engine, device=device)  # has copies, so that the digest stays valid if these change
    settings: dict[str, Any] = {
        "weights": state_digest(network),
        "patch_size": config.patch_size,
        "cut": CUT,
        "sampler": DEVICE_SAMPLER if runner.device.type == "cuda" else SAMPLER,
        **runner.settings,
    }
    settings[RATIO] = network.card.match_ratio or LEARNED_RATIO
    if network.card.match_threshold is not None:
        settings[THRESHOLD] = network.card.match_threshold

    def compute(image: np.ndarray, frames: Frames, _: float, progress: Progress | None = None) -> np.ndarray:
        cut, add = _cutter(image, runner.device), adding(progress, len(frames))
        step = max(1, min(FRAMES_AT_A_TIME, runner.batch_pixels // runner.size**2))
        starts = range(0, len(frames), step)

        def described(start: int) -> np.ndarray:  # patches stay in the cache until they are described
            with stage("cut"):
                patches = cut(frames[start : start + step])
            with stage("describe"):
                return describe_piece(patches[:, None], runner)[0].cpu().numpy()

        rows = np.zeros((len(frames), config.D or 0), np.float32)
        alone = runner.takes_one_core or (runner.device.type == "cpu" and torch.get_num_threads() == 1)
        threads = min(spare_threads(), len(starts)) if alone else 1
        for start, some in zip(starts, in_threads(described, starts, threads), strict=True):
            rows[start : start + step] = some
            add(len(some))
        return rows

    return Describer(network.name, config.D or 0, settings, compute, runner.device, runner.takes_one_core)


def _cutter(image: np.ndarray, device: torch.device) -> Callable[[Frames], torch.Tensor]:
    """A function that cuts (b, CUT, CUT) bytes at frames, on the device; a GPU gets the image and cuts them itself."""
    if device.type == "cuda":
        return _device_cutter(image, device)
    pyramid = Pyramid(image)
    return lambda frames: torch.from_numpy(pyramid.cut(frames, CUT)).to(device)


def _device_cutter(image: np.ndarray, device: torch.device) -> Callable[[Frames], torch.Tensor]:
    pixels = torch.tensor(image, device=device)
    return lambda frames: extract_patches_on(pixels, frames, CUT)


def _of_sift(name: str, device: torch.device) -> Describer:
    def compute(
        image: np.ndarray, frames: Frames, magnification: float, progress: Progress | None = None
    ) -> np.ndarray:
        with stage("describe"):
            rows = frame_sift(image, frames, magnification)
            rows = to_rootsift(rows) if name == "rootsift" else rows
            return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    weights = f"OpenCV {need_opencv().__version__} SIFT.compute, octaves told from sizes"
    distance, ratio = SIFTS[name]
    settings = {"weights": weights, "cut": None, THRESHOLD: distance, RATIO: ratio}
    return Describer(name, 128, settings, compute, device, takes_one_core=True)
