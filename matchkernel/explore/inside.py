"""Inside a pair of patches: what each position contributes, and how similarity falls as the second patch is moved."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.explore.cache import Cache
from matchkernel.explore.matching import shown_patches
from matchkernel.explore.photos import Photo
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import extract_patches
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.photos.describers import CUT
from matchkernel.photos.extract import check_frames
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.weights import available, read_card
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import need
from matchkernel.storage.settings import check_ranges, setting, short_repr

if TYPE_CHECKING:
    from torch import Tensor

    from matchkernel.model.descriptors import Descriptor

MODELS = ("light", "tiny", "dual", "fc")  # whose insides are shown, as far as they are shipped
KINDS = {"cartesian": "Cartesian", "polar": "polar", "": "fully connected"}
STEPS = 41
# Name of a change -> the largest, to either side: degrees, pixels of the 32 px patch, octaves.
RANGES = {"turn": 90.0, "right": 12.0, "down": 12.0, "octaves": 1.0}
PIXELS = 32
LEAST_HALF_WIDTH = 0.01


@dataclass(frozen=True)
class Region:
    """A region of a photo: its centre, and its shape row by row, as in Frames."""

    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yx: float = 0.0
    yy: float = 0.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def frames(self) -> Frames:
        """As Frames of one region; one without an area, or absurdly far away, is refused."""
        found = Frames(np.array([[self.x, self.y]]), np.array([[[self.xx, self.xy], [self.yx, self.yy]]]))
        check_frames(found)
        if not float(found.half_widths[0]) >= LEAST_HALF_WIDTH:
            raise ArgumentError(f"a region must have a half side of at least {LEAST_HALF_WIDTH:g} pixels")
        return found


@dataclass(frozen=True)
class Moved:
    """A change of the second patch: turned by degrees, moved by pixels of 32, enlarged by octaves."""

    turn: float = setting(0.0, low=-180, high=180)
    right: float = setting(0.0, low=-32, high=32)
    down: float = setting(0.0, low=-32, high=32)
    octaves: float = setting(0.0, low=-2, high=2)

    def __post_init__(self) -> None:
        check_ranges(self)

    def apply(self, frames: Frames) -> Frames:
        """The regions that are cut instead of these."""
        angle, scale = np.deg2rad(self.turn), 2.0**self.octaves
        turned = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        shift = np.array([self.right, self.down]) * 2 / PIXELS
        return Frames(frames.centers + frames.shapes @ shift, frames.shapes @ turned)


class Inside:
    """Encodings and curves of pairs of patches; models and results are kept in memory.

    Args:
        kept: results of each kind.
    """

    def __init__(self, kept: int) -> None:
        self._models, self._encodings, self._curves = Cache(len(MODELS)), Cache(kept), Cache(kept)

    @property
    def models(self) -> list[str]:
        """Names of the models shown; none without torch, which takes their networks apart."""
        return [name for name in MODELS if name in available()] if _has_torch() else []

    @property
    def receptive_side(self) -> int:
        """Pixels of the patch, along each side, that a position sees; the most of all models shown."""
        return max((_config(name).receptive_side for name in self.models), default=0)

    @property
    def views(self) -> list[dict[str, Any]]:
        """What is shown of these models: a name, and the parts whose encodings sum to it.

        A descriptor with both coordinate systems has three views: each system's half, and their sum, the descriptor.
        """
        found: list[dict[str, Any]] = []
        for name in self.models:
            parts = _parts(name, _config(name).variant)
            if len(parts) > 1:
                found += [{"name": f"{name}, {KINDS[system]} half", "parts": [part]} for part, system in parts.items()]
                found.append({"name": f"{name}, both halves", "parts": list(parts)})
            else:
                [(part, system)] = parts.items()
                found.append({"name": f"{name}, {KINDS[system]}", "parts": [part]})
        return found

    def encodings(self, a: Photo, frame_a: Region, b: Photo, frame_b: Region) -> "dict[str, Tensor]":
        """(2, n * n, D) of each part, without w_p: S_p(q) is the inner product of row p of A and row q of B [M20].

        Args:
            a: photo A.
            frame_a: where in A.
            b: photo B.
            frame_b: where in B.
        """
        first, second = frame_a.frames(), frame_b.frames()

        def compute() -> "dict[str, Tensor]":
            patches = np.concatenate([extract_patches(a.gray, first, CUT), extract_patches(b.gray, second, CUT)])
            return self.of_patches(patches)

        return self._encodings.get((a.id, frame_a, b.id, frame_b), compute)

    def of_patches(self, patches: np.ndarray, *, weighted: bool = False) -> "dict[str, Tensor]":
        """(B, n * n, D) of each part of each model, of (B, 64, 64) uint8 patches."""
        torch = need("torch", "torch", "looking inside descriptors")
        from matchkernel.model.describe import resize_patches
        from matchkernel.model.kernel_view import encodings_by_system, position_encodings

        floats, found = torch.from_numpy(patches)[:, None].float(), {}
        for name in self.models:
            model = self._model(name)
            sized = resize_patches(floats, model.config.patch_size)
            parts = _parts(name, model.config.variant)
            if len(parts) == 1:
                found[name] = position_encodings(model, sized, weighted=weighted)
            else:
                of_systems = encodings_by_system(model, sized, weighted=weighted)
                found |= {part: of_systems[system] for part, system in parts.items()}
        return found

    def _model(self, name: str) -> "Descriptor":
        from matchkernel.model.weights import load

        return self._models.get(name, lambda: load(name).fold())

    def curve(
        self, a: Photo, frame_a: Region, b: Photo, frame_b: Region, along: str, fixed: Moved
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """How similar patch A and the moved patch B are.

        Args:
            a: photo A.
            frame_a: where in A.
            b: photo B.
            frame_b: where in B.
            along: the change that takes all its values: a name of RANGES.
            fixed: the other changes.

        Returns:
            For each view and for RootSIFT, the (41,) cosines of descriptors, NaN without content; the (41,) values; the
            (41, 32, 32) moved patches.
        """
        if along not in RANGES:
            raise ArgumentError(f"along must be one of {', '.join(RANGES)}, got {short_repr(along)}")
        first, second = frame_a.frames(), frame_b.frames()
        others = {name: value for name, value in vars(fixed).items() if name != along}
        key = (a.id, frame_a, b.id, frame_b, along, *others.items())
        return self._curves.get(key, lambda: self._curve(a, first, b, second, along, others))

    def _curve(
        self, a: Photo, first: Frames, b: Photo, second: Frames, along: str, others: dict[str, float]
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        values = np.linspace(-RANGES[along], RANGES[along], STEPS)
        moved = [Moved(**{**others, along: float(value)}).apply(second) for value in values]
        regions = Frames(np.concatenate([m.centers for m in moved]), np.concatenate([m.shapes for m in moved]))
        patches = np.concatenate([extract_patches(a.gray, first, CUT), extract_patches(b.gray, regions, CUT)])
        parts = {name: terms.sum(1).numpy() for name, terms in self.of_patches(patches, weighted=True).items()}
        rows = {view["name"]: np.sum([parts[part] for part in view["parts"]], axis=0) for view in self.views}
        rows["RootSIFT"] = to_rootsift(patch_sift(patches))
        has_content = patches.min((1, 2)) < patches.max((1, 2))
        cosines = {name: _cosines(found, has_content) for name, found in rows.items()}
        return cosines, values.astype(np.float32), shown_patches(b, regions)


@cache
def _has_torch() -> bool:
    try:
        need("torch", "torch", "looking inside descriptors")
    except MissingExtraError:
        return False
    return True


@cache
def _config(name: str) -> DescriptorConfig:
    """The configuration of shipped weights."""
    config = read_card(name).config
    assert config is not None  # of shipped weights
    return config


def _parts(name: str, variant: str) -> dict[str, str]:
    """Names of a model's parts: one for each coordinate system, or one for all of it; and the systems."""
    systems = VARIANTS[variant].systems
    if len(systems) < 2:
        return {name: systems[0] if systems else ""}
    return {f"{name}.{system}": system for system in systems}


def _cosines(rows: np.ndarray, has_content: np.ndarray) -> np.ndarray:
    """(B - 1,) cosines of the first row with the others."""
    units = unit_rows(rows)
    found = units[1:] @ units[0]
    return np.where(has_content[1:] & has_content[0], found, np.nan).astype(np.float32)
