"""Describers turn regions of an image into unit rows: our descriptors, and OpenCV's SIFT for comparison."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Union

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError, MissingExtraError, WeightsError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import DEVICE_SAMPLER, SAMPLER, Pyramid
from matchkernel.geometry.sift import frame_sift, to_rootsift
from matchkernel.photos.devices import CPU, open_place
from matchkernel.photos.features import label_of
from matchkernel.photos.filters import LEARNED_RATIO, RATIO, THRESHOLD
from matchkernel.runtime.config import VARIANTS
from matchkernel.runtime.describe import describe_patches
from matchkernel.runtime.engine import AUTO, CUDA_HALF, ENGINE, TORCH, Engine, check_name, runs_on_cpu
from matchkernel.runtime.onnx_engine import OnnxEngine, open_onnx
from matchkernel.runtime.weights import Weights, read_weights
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import need, need_opencv
from matchkernel.storage.progress import Progress, adding
from matchkernel.storage.stages import stage
from matchkernel.storage.threads import in_threads, process_threads, spare_threads

if TYPE_CHECKING:
    import torch

    from matchkernel.model.descriptors import Descriptor

CUT = 64  # side of the patches cut, as in the training sets; then resized to the model's size
FRAMES_AT_A_TIME = 8192  # at most, on a GPU: 32 MiB of patches
# Calibrated distances (docs/match.md) and ratios of nearest to second-nearest distance (docs/photos.md).
SIFTS = {"sift": (0.369, 0.85), "rootsift": (0.342, 0.9)}


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
    device: str = CPU
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
        model: weights of a file, a Descriptor, or "sift" or "rootsift".
        device: where to compute, as of `open_describer`.
        engine: what to compute with, as of `open_describer`.
    """

    model: "Weights | Descriptor | str" = field(repr=False)
    device: str | None = None
    engine: str = AUTO

    def open(self) -> Describer:
        """Make the describer."""
        if isinstance(self.model, str):
            made = _of_sift(self.model, open_place(self.device))
        else:
            made = _of_network(self.model, self.device, self.engine)
        return replace(made, recipe=self)


Model = Union["Descriptor", Describer, str, Path]


def open_describer(
    model: Model, *, untrained: bool = False, device: "str | torch.device | None" = None, engine: str = "auto"
) -> Describer:
    """Make a describer, to be used for many images.

    Args:
        model: a Descriptor; a name from `matchkernel.available()`; a .safetensors file; "sift" or "rootsift"; or a
            describer, which is returned unchanged.
        untrained: take `model` as the name of a descriptor, with random weights (seed 0), for trying things out.
        device: where to compute (default: the model's device). SIFT itself always runs on the CPU.
        engine: what to compute with (see runtime.engine.ENGINES); SIFT has none.
    """
    check_name(engine)
    if isinstance(model, Describer):
        _check_runs_on(model, device, engine)
        return model
    return open_recipe(model, untrained=untrained, device=device, engine=engine).open()


def open_recipe(
    model: "Descriptor | str | Path",
    *,
    untrained: bool = False,
    device: "str | torch.device | None" = None,
    engine: str = "auto",
) -> Recipe:
    """Read the weights of a describer, which is then opened elsewhere; the arguments are those of `open_describer`."""
    check_name(engine)
    place = None if device is None else str(device)
    if _is_descriptor(model):
        return Recipe(model, place, engine)
    if not isinstance(model, str | Path):
        raise ArgumentTypeError(f"model must be a Descriptor, a name or a weight file, got {type(model).__name__}")
    if str(model) in SIFTS:
        return Recipe(str(model), place, engine)
    if untrained:
        if str(model) not in VARIANTS:
            raise ArgumentError(f"an untrained model must be one of {', '.join(VARIANTS)}, got {str(model)!r}")
        return Recipe(_untrained(str(model)), place, engine)
    try:
        return Recipe(read_weights(model), place, engine)
    except WeightsError as error:
        if Path(model).exists():
            raise
        raise WeightsError(f"{error}; sift and rootsift need no weights") from None


def _is_descriptor(model: object) -> "TypeGuard[Descriptor]":
    """Whether this is a module of torch, which then is loaded."""
    loaded = sys.modules.get("matchkernel.model.descriptors")
    return loaded is not None and isinstance(model, loaded.Descriptor)


def _untrained(variant: str) -> "Descriptor":
    need("torch", "torch", "a model with random weights")
    import torch

    from matchkernel.model.descriptors import build

    network = build(variant, generator=torch.Generator().manual_seed(0))
    network.name = f"{variant}, untrained"
    return network


def _check_runs_on(describer: Describer, device: "str | torch.device | None", engine: str) -> None:
    own = describer.settings.get(ENGINE)
    if device not in (None, "auto") and open_place(device) != describer.device:
        raise ArgumentError(f"this describer runs on {describer.device}: open it for {device} instead")
    if engine not in (AUTO, own):
        raise ArgumentError(f"this describer runs on {own}: open it for {engine} instead")


def _open_engine(model: "Weights | Descriptor", device: str | None, engine: str) -> Engine:
    """The engine of weights without torch if it can be had; of anything else with it."""
    problem: MatchKernelError | None = None
    if isinstance(model, Weights) and engine not in (TORCH, CUDA_HALF):
        place = CPU if device == "auto" and runs_on_cpu(engine) else open_place(device)
        if place == CPU:
            try:
                return open_onnx(model, engine, model.config.patch_size)
            except MatchKernelError as error:
                if engine != AUTO:
                    raise
                problem = error
    try:
        need("torch", "torch", f"engine {TORCH if engine == AUTO else engine}")
    except MissingExtraError as missing:
        raise (problem or missing) from None
    from matchkernel.model.engines.choose import open_engine
    from matchkernel.model.weights import to_descriptor

    network = to_descriptor(model) if isinstance(model, Weights) else model
    return open_engine(network, TORCH if problem else engine, device=device)


def _of_network(model: "Weights | Descriptor", device: str | None, engine: str) -> Describer:
    config, card = model.config, model.card
    runner = _open_engine(model, device, engine)  # has copies, so that the digest stays valid if these change
    settings: dict[str, Any] = {
        "weights": _state_sha256(model),
        "patch_size": config.patch_size,
        "cut": CUT,
        "sampler": DEVICE_SAMPLER if runner.device.startswith("cuda") else SAMPLER,
        **runner.settings,
    }
    settings[RATIO] = card.match_ratio or LEARNED_RATIO
    if card.match_threshold is not None:
        settings[THRESHOLD] = card.match_threshold

    def compute(image: np.ndarray, frames: Frames, _: float, progress: Progress | None = None) -> np.ndarray:
        (cut, rows_of), add = _cutting_and_describing(image, runner), adding(progress, len(frames))
        step = max(1, min(FRAMES_AT_A_TIME, runner.batch_pixels // runner.size**2))
        starts = range(0, len(frames), step)

        def described(start: int) -> np.ndarray:  # patches stay in the cache until they are described
            with stage("cut"):
                patches = cut(frames[start : start + step])
            with stage("describe"):
                return rows_of(patches)

        rows = np.zeros((len(frames), config.D or 0), np.float32)
        alone = runner.takes_one_core or (runner.device == CPU and process_threads() == 1)
        threads = min(spare_threads(), len(starts)) if alone else 1
        for start, some in zip(starts, in_threads(described, starts, threads), strict=True):
            rows[start : start + step] = some
            add(len(some))
        return rows

    return Describer(model.name, config.D or 0, settings, compute, runner.device, runner.takes_one_core)


def _state_sha256(model: "Weights | Descriptor") -> str:
    if isinstance(model, Weights):
        return model.state_sha256
    from matchkernel.model.weights import state_digest

    return state_digest(model)


def _cutting_and_describing(
    image: np.ndarray, runner: Engine
) -> tuple[Callable[[Frames], Any], Callable[[Any], np.ndarray]]:
    """Two functions: frames of the image to patches, and patches to rows."""
    if isinstance(runner, OnnxEngine):
        pyramid = Pyramid(image)

        def rows_of(patches: np.ndarray) -> np.ndarray:
            return describe_patches(patches, runner.size, runner.dtype, runner)[0]

        return lambda frames: pyramid.cut(frames, CUT)[:, None], rows_of
    from matchkernel.photos.torch_describer import cutter_on, rows_on

    return cutter_on(image, runner.device, CUT), lambda patches: rows_on(patches, runner)


def _of_sift(name: str, device: str) -> Describer:
    def compute(
        image: np.ndarray, frames: Frames, magnification: float, progress: Progress | None = None
    ) -> np.ndarray:
        with stage("describe"):
            rows = frame_sift(image, frames, magnification)
            rows = to_rootsift(rows) if name == "rootsift" else rows
            return unit_rows(rows)

    weights = f"OpenCV {need_opencv().__version__} SIFT.compute, octaves told from sizes"
    distance, ratio = SIFTS[name]
    settings = {"weights": weights, "cut": None, THRESHOLD: distance, RATIO: ratio}
    return Describer(name, 128, settings, compute, device, takes_one_core=True)
