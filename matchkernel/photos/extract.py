"""Extract features from an image: keypoints, the regions around them, descriptors.

Describers turn regions of an image into unit rows: our descriptors, and OpenCV's SIFT for comparison.
"""

import json
import sys
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError, MissingExtraError, WeightsError
from matchkernel.geometry.detect import Detection, Detector
from matchkernel.geometry.frames import DEVICE_SAMPLER, SAMPLER, Frames, Pyramid
from matchkernel.geometry.sift import frame_sift, to_rootsift
from matchkernel.photos.features import LEARNED_RATIO, RATIO, STORE, THRESHOLD, Features, Store, label_of
from matchkernel.runtime.config import AUTO, CUDA_HALF, PHOTO_MODEL, TORCH, VARIANTS
from matchkernel.runtime.onnx import ENGINE, Engine, OnnxEngine, check_name, describe_patches, open_onnx, runs_on_cpu
from matchkernel.runtime.weights import Weights, read_weights
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import need, need_opencv
from matchkernel.storage.pixels import ImageLike, as_gray
from matchkernel.storage.settings import with_options
from matchkernel.storage.work import Progress, Say, in_threads, process_threads, spare_threads, stage

if TYPE_CHECKING:
    import torch

    from matchkernel.model.descriptors import Descriptor

CPU = "cpu"
DRIVERS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")  # NVIDIA, its boards, Windows' Linux, AMD
CUT = 64  # side of the patches cut, as in the training sets; then resized to the model's size
FRAMES_AT_A_TIME = 8192  # at most, on a GPU: 32 MiB of patches
FARTHEST = 1e6  # pixels; OpenCV's fixed-point sampling overflows beyond this
# Calibrated distances (docs/match.md) and ratios of nearest to second-nearest distance (docs/photos.md).
SIFTS = {"sift": (0.369, 0.85), "rootsift": (0.342, 0.9)}


@dataclass(eq=False)
class Describer:
    """A descriptor of image regions.

    A network is opened when it is first needed, so that a describer can be pickled and opened in another process.
    """

    model: "Weights | Descriptor | str" = field(repr=False)  # weights of a file, a Descriptor, "sift" or "rootsift"
    wanted_device: str | None = None  # see open_describer; `device` is where it runs, and where descriptors are matched
    wanted_engine: str = AUTO  # see open_describer

    @property
    def name(self) -> str:
        """Of the descriptor."""
        return self.model if isinstance(self.model, str) else self.model.name

    @property
    def label(self) -> str:
        """Its name and its engine, for messages."""
        return label_of(self.name, self.settings)

    @property
    def D(self) -> int:
        """Dimension of a descriptor."""
        return 128 if isinstance(self.model, str) else self.model.config.D or 0

    @cached_property
    def runner(self) -> Engine | None:
        """What computes the network; None for SIFT."""
        if isinstance(self.model, str):
            return None
        return _open_engine(self.model, self.wanted_device, self.wanted_engine)

    @cached_property
    def device(self) -> str:
        """Where it runs."""
        return open_place(self.wanted_device) if self.runner is None else self.runner.device

    @cached_property
    def takes_one_core(self) -> bool:
        """True if describing several images in threads is faster than one after the other."""
        return self.runner is None or self.runner.takes_one_core

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that determines the descriptors (weights, patch size, sampler), JSON values."""
        if isinstance(self.model, str):
            weights = f"OpenCV {need_opencv().__version__} SIFT.compute, octaves told from sizes"
            distance, ratio = SIFTS[self.model]
            return {"weights": weights, "cut": None, THRESHOLD: distance, RATIO: ratio}
        card, runner = self.model.card, self.runner
        assert runner is not None  # it has copies of the weights, so that the digest stays valid if these change
        threshold = {} if card.match_threshold is None else {THRESHOLD: card.match_threshold}
        if isinstance(self.model, Weights):
            weights = self.model.state_sha256
        else:
            from matchkernel.model.weights import state_digest

            weights = state_digest(self.model)
        return {
            "weights": weights,
            "patch_size": self.model.config.patch_size,
            "cut": CUT,
            "sampler": DEVICE_SAMPLER if runner.device.startswith("cuda") else SAMPLER,
            **runner.settings,
            RATIO: card.match_ratio or LEARNED_RATIO,
            **threshold,
        }

    def compute(
        self, image: np.ndarray, frames: Frames, magnification: float, progress: Progress | None = None
    ) -> np.ndarray:
        """(K, D) float32 unit rows of K regions of (H, W) uint8 gray, zeros without content.

        SIFT needs the magnification: half width of a region / sigma of its keypoint.
        """
        runner = self.runner
        if runner is None:
            with stage("describe"):
                rows = frame_sift(image, frames, magnification)
                return unit_rows(to_rootsift(rows) if self.model == "rootsift" else rows)
        cut, describe = _cutting_and_describing(image, runner)
        step = max(1, min(FRAMES_AT_A_TIME, runner.batch_pixels // runner.size**2))
        starts = range(0, len(frames), step)

        def described(start: int) -> np.ndarray:  # patches stay in the cache until they are described
            with stage("cut"):
                patches = cut(frames[start : start + step])
            with stage("describe"):
                return describe(patches)

        rows = np.zeros((len(frames), self.D), np.float32)
        alone = runner.takes_one_core or (runner.device == CPU and process_threads() == 1)
        threads = min(spare_threads(), len(starts)) if alone else 1
        for start, some in zip(starts, in_threads(described, starts, threads), strict=True):
            rows[start : start + step] = some
            if progress is not None:
                progress(start + len(some), len(frames))
        return rows

    def __getstate__(self) -> dict[str, Any]:  # what is opened stays in this process
        opened = ("runner", "device", "settings", "takes_one_core")
        return {name: value for name, value in vars(self).items() if name not in opened}


Image = ImageLike
Model = Union["Descriptor", Describer, str, Path]


def open_describer(
    model: Model,
    *,
    untrained: bool = False,
    device: "str | torch.device | None" = None,
    engine: str = "auto",
    later: bool = False,
) -> Describer:
    """Open a describer, to be used for many images.

    Args:
        model: a Descriptor; a name from `matchkernel.available()`; a .safetensors file; "sift" or "rootsift"; or a
            describer, which is returned unchanged.
        untrained: take `model` as the name of a descriptor, with random weights (seed 0), for trying things out.
        device: where to compute (default: the model's device). SIFT itself always runs on the CPU.
        engine: what to compute with (see runtime.onnx.ENGINES); SIFT has none.
        later: only read the weights; the engine is opened where the describer is used, such as in another process.

    Example:
        >>> describer = open_describer("small-wide")
        >>> describer.name, describer.D, describer.device
        ('small-wide', 128, 'cpu')
    """
    check_name(engine)
    if isinstance(model, Describer):
        own = model.settings.get(ENGINE)
        if device not in (None, "auto") and open_place(device) != model.device:
            raise ArgumentError(f"this describer runs on {model.device}: open it for {device} instead")
        if engine not in (AUTO, own):
            raise ArgumentError(f"this describer runs on {own}: open it for {engine} instead")
        return model
    found = Describer(_read_model(model, untrained), None if device is None else str(device), engine)
    if not later:
        _ = found.device, found.settings
    return found


def _read_model(model: "Descriptor | str | Path", untrained: bool) -> "Weights | Descriptor | str":
    if not isinstance(model, str | Path):
        loaded = sys.modules.get("matchkernel.model.descriptors")  # torch is not imported to find out
        if loaded is None or not isinstance(model, loaded.Descriptor):
            raise ArgumentTypeError(f"model must be a Descriptor, a name or a weight file, got {type(model).__name__}")
        return model
    if str(model) in SIFTS:
        return str(model)
    if untrained:
        if str(model) not in VARIANTS:
            raise ArgumentError(f"an untrained model must be one of {', '.join(VARIANTS)}, got {str(model)!r}")
        need("torch", "torch", "a model with random weights")
        import torch

        from matchkernel.model.descriptors import build

        network = build(str(model), generator=torch.Generator().manual_seed(0))
        network.name = f"{model}, untrained"
        return network
    try:
        return read_weights(model)
    except WeightsError as error:
        if Path(model).exists():
            raise
        raise WeightsError(f"{error}; sift and rootsift need no weights") from None


def open_place(device: "str | torch.device | None") -> str:
    """The name of a usable device ("cpu", "cuda:0", ...), or a one-line error.

    Args:
        device: None is the CPU; "auto" a GPU if torch is installed and finds one, otherwise the CPU. Torch is imported
            only for other devices than the CPU.
    """
    if device is None or str(device).partition(":")[0] == CPU or (device == "auto" and not _may_have_gpu()):
        return CPU
    try:
        need("torch", "torch", f"device {device}")
    except MissingExtraError:
        if device == "auto":
            return CPU  # photos are matched even if torch is broken
        raise
    from matchkernel.model.precision import open_device

    return str(open_device(device))


def _may_have_gpu() -> bool:
    """True if torch is installed and a GPU driver is loaded; otherwise importing torch would only cost seconds."""
    if find_spec("torch") is None:
        return False
    if sys.platform == "win32":
        return find_library("nvcuda") is not None
    return any(Path(driver).exists() for driver in DRIVERS)


def _open_engine(model: "Weights | Descriptor", device: str | None, engine: str) -> Engine:
    """An engine without torch for weights, if there is one; otherwise an engine of torch."""
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


def _cutting_and_describing(
    image: np.ndarray, runner: Engine
) -> tuple[Callable[[Frames], Any], Callable[[Any], np.ndarray]]:
    """Two functions: frames of the image to (b, 1, CUT, CUT) bytes on the engine's device, and these to (b, D) rows."""
    if isinstance(runner, OnnxEngine):
        pyramid = Pyramid(image)
        return (
            lambda frames: pyramid.cut(frames, CUT)[:, None],
            lambda patches: describe_patches(patches, runner.size, runner.dtype, runner)[0],
        )
    import torch

    from matchkernel.geometry.device_sampling import extract_patches_on
    from matchkernel.model.describe import describe_piece

    def describe(patches: torch.Tensor) -> np.ndarray:
        return describe_piece(patches, runner)[0].cpu().numpy()

    if runner.device.startswith("cuda"):
        pixels = torch.tensor(image, device=runner.device)
        return lambda frames: extract_patches_on(pixels, frames, CUT)[:, None], describe
    pyramid = Pyramid(image)
    return lambda frames: torch.from_numpy(pyramid.cut(frames, CUT)[:, None]).to(runner.device), describe


def extract(
    image: Image,
    model: Model = PHOTO_MODEL,
    detector: Detector | None = None,
    *,
    frames: Frames | None = None,
    device: "str | torch.device | None" = None,
    engine: str = "auto",
    **options: Any,
) -> Features:
    """Find keypoints in an image and describe the regions around them.

    Args:
        image: a file, its bytes, a PIL image, an array or a tensor (see as_gray).
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift" (see open_describer).
        detector: how keypoints are found (default: Detector()).
        frames: regions to describe instead of detected ones; only the detector's `magnification` and `pooling` are then
            used.
        device: where to run the network (default: the model's device).
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        options: fields of Detector, such as keypoints=1000, instead of `detector`.

    Returns:
        K features, strongest first, or in the order of the given frames. K = 0 gives (0, D) descriptors. A region
        without content (of one gray value, or outside the image) keeps its place, with a row of zeros that matches
        nothing.

    Example:
        >>> from matchkernel import extract
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> features = extract(FOLDER / "left.png", keypoints=100)
        >>> features.keypoints.shape, features.descriptors.shape
        ((100, 2), (100, 128))
    """
    chosen = with_options(detector or Detector(), options)
    describer = open_describer(model, device=device, engine=engine)
    if frames is None:
        return extract_with(image, describer, chosen)
    check_frames(frames)
    gray = as_gray(image)
    height, width = gray.shape
    corners = frames.corners()
    is_seen = (corners.max(1) > -0.5).all(1) & (corners.min(1) < [width - 0.5, height - 0.5]).all(1)
    rows = describe_frames(gray, frames, describer, chosen)
    rows[~is_seen] = 0  # outside the image, patches repeat its border
    regions = {"magnification": chosen.magnification, "pooling": chosen.pooling}
    settings = {"detector": "frames given", **regions, **describer.settings}
    return Features(frames, rows, np.ones(len(frames), np.float32), (width, height), describer.name, settings)


def extract_with(
    image: Image,
    describer: Describer,
    detector: Detector,
    *,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> Features:
    """Features of an image; `say` and `progress` as in match_images."""
    say("reading")
    with stage("read"):
        gray = as_gray(image)
    say("detecting")
    with stage("detect"):
        found = detector.detect(gray, device=describer.device)
    say("describing")
    return describe_detection(gray, found, describer, detector, progress)


def describe_detection(
    gray: np.ndarray, found: Detection, describer: Describer, detector: Detector, progress: Progress | None = None
) -> Features:
    """The features of detected keypoints; `progress` is called with the number of keypoints described and of all."""
    rows = describe_frames(gray, found.frames, describer, detector, progress)
    size = (gray.shape[1], gray.shape[0])
    settings = recorded_settings(describer, detector)
    return Features(found.frames, rows, found.scores.astype(np.float32), size, describer.name, settings)


def describe_frames(
    gray: np.ndarray, frames: Frames, describer: Describer, detector: Detector, progress: Progress | None = None
) -> np.ndarray:
    """(K, D) unit rows of the regions, zeros without content.

    With pooling, a keypoint's row is the mean of the rows of regions of several sizes, scaled to length 1. SIFT, whose
    region is given by sigma alone, is computed as if sigma were larger or smaller by the same factor.
    """
    if not detector.pooled_magnifications:
        return describer.compute(gray, frames, detector.magnification, progress)
    factors = [number / detector.magnification for number in detector.pooled_magnifications]
    pooled = [Frames(frames.centers, frames.shapes * factor) for factor in factors]
    rows = [describer.compute(gray, regions, detector.magnification, progress) for regions in pooled]
    total = np.asarray(np.sum(rows, axis=0, dtype=np.float64))
    return unit_rows(total).astype(np.float32)


def recorded_settings(describer: Describer, detector: Detector) -> dict[str, Any]:
    """The settings that are stored with features."""
    return {**detector.settings(describer.device), **describer.settings}


def feature_facts(describer: Describer, detector: Detector, store: Store) -> dict[str, Any]:
    """What identifies features, as JSON values: name and dimension `D` of the descriptor, and all settings."""
    settings = recorded_settings(describer, detector) | ({} if store == "float32" else {STORE: store})
    return dict(json.loads(json.dumps({"name": describer.name, "D": describer.D, "settings": settings})))


def check_frames(frames: Frames) -> None:
    """Refuse frames that are not finite or absurdly far away; the message gives the index of the first."""
    if not isinstance(frames, Frames):
        raise ArgumentTypeError(f"frames must be Frames (see geometry.conventions), got {type(frames).__name__}")
    numbers = np.concatenate([frames.centers, frames.shapes.reshape(-1, 4)], 1)
    is_bad = ~(np.abs(numbers) <= FARTHEST).all(1)
    if is_bad.any():
        problem = f"keypoint {int(is_bad.argmax())} is not finite or extends beyond {FARTHEST:,.0f} pixels"
        raise ArgumentError(f"{problem} ({int(is_bad.sum())} of {len(frames)} do); leave it out")
