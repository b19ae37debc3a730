"""Inside a pair of patches: similarity maps of positions, and how similarity falls as the second patch is changed."""

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.explore.matching import shown_patches
from matchkernel.explore.memo import Memo
from matchkernel.explore.photos import PagePhoto
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.photos.extract import CUT, check_frames
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.weights import available, read_card
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import need
from matchkernel.storage.settings import check_ranges, setting, short_repr

if TYPE_CHECKING:
    from matchkernel.model.descriptors import Descriptor

MODELS = ("light", "tiny", "dual", "fc")  # whose insides are shown, as far as they are shipped
KINDS = {"cartesian": "Cartesian", "polar": "polar", "": "fully connected"}
STEPS = 41
# Name of a change -> the largest, to either side: degrees, pixels of the 32 px patch, octaves.
RANGES = {"turn": 90.0, "right": 12.0, "down": 12.0, "octaves": 1.0}
PIXELS = 32
MIN_HALF_WIDTH = 0.01


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
        if not float(found.half_widths[0]) >= MIN_HALF_WIDTH:
            raise ArgumentError(f"a region must have a half side of at least {MIN_HALF_WIDTH:g} pixels")
        return found


@dataclass(frozen=True)
class PatchChange:
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


class PatchInspector:
    """Similarity maps and curves of pairs of patches, see _map and _curve; models and results are kept in memory."""

    def __init__(self, kept: int) -> None:
        self.map, self.curve = Memo(self._map, kept), Memo(self._curve, kept)
        self._model = Memo(_open, len(MODELS))

    @property
    def models(self) -> list[str]:
        """Names of the models shown; none without torch, which takes their networks apart."""
        return [name for name in MODELS if name in available()] if _has_torch() else []

    @property
    def receptive_side(self) -> int:
        """Pixels of the patch, along each side, that a position sees; the maximum over the models shown."""
        return max((_config(name).receptive_side for name in self.models), default=0)

    @property
    def views(self) -> dict[str, tuple[str, list[str]]]:
        """Name of each view -> its model, and the coordinate systems whose encodings sum to it (none: all of it).

        A descriptor with both coordinate systems has three views: each system's half, and their sum, the descriptor.
        """
        found: dict[str, tuple[str, list[str]]] = {}
        for name in self.models:
            systems = VARIANTS[_config(name).variant].systems
            if len(systems) > 1:
                found |= {f"{name}, {KINDS[system]} half": (name, [system]) for system in systems}
                found[f"{name}, both halves"] = name, list(systems)
            else:
                found[f"{name}, {KINDS[systems[0] if systems else '']}"] = name, []
        return found

    def _map(self, a: PagePhoto, frame_a: Region, b: PagePhoto, frame_b: Region) -> dict[str, np.ndarray]:
        """For each view (n * n, n * n): row p is S_p(q), the similarity of position p of A to each q of B [M20]."""
        patches = [extract_patches(photo.gray, at.frames(), CUT) for photo, at in ((a, frame_a), (b, frame_b))]
        return {view: maps[0] for view, maps in self.maps(*patches).items()}

    def maps(self, first: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
        """For each view (M, n * n, n * n) similarity maps of M pairs of (M, 64, 64) uint8 patches."""
        a, b = self._encodings(first), self._encodings(second)
        return {view: a[view] @ b[view].transpose(0, 2, 1) for view in a}

    def _encodings(self, patches: np.ndarray, *, weighted: bool = False) -> dict[str, np.ndarray]:
        """For each view (B, n * n, D), what each position contributes, of (B, 64, 64) uint8 patches."""
        torch = need("torch", "torch", "looking inside descriptors")
        from matchkernel.model.describe import resize_patches
        from matchkernel.model.kernel_view import encodings_by_system, position_encodings

        floats, found = torch.from_numpy(patches)[:, None].float(), {}
        by_system: dict[str, dict[str, np.ndarray]] = {}
        for view, (name, systems) in self.views.items():
            model = self._model(name)
            sized = resize_patches(floats, model.config.patch_size)
            if not systems:
                found[view] = position_encodings(model, sized, weighted=weighted).numpy()
                continue
            if name not in by_system:
                parts = encodings_by_system(model, sized, weighted=weighted)
                by_system[name] = {system: rows.numpy() for system, rows in parts.items()}
            found[view] = np.sum([by_system[name][system] for system in systems], axis=0)
        return found

    def _curve(
        self, a: PagePhoto, frame_a: Region, b: PagePhoto, frame_b: Region, along: str, fixed: PatchChange
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """How similar patch A and patch B are, if B is changed along one of RANGES and by the fixed changes.

        For each view and for RootSIFT, the (41,) cosines of descriptors, NaN without content; the (41,) values; the
        (41, 32, 32) changed patches.
        """
        if along not in RANGES:
            raise ArgumentError(f"along must be one of {', '.join(RANGES)}, got {short_repr(along)}")
        first, second = frame_a.frames(), frame_b.frames()
        values = np.linspace(-RANGES[along], RANGES[along], STEPS)
        changed = [replace(fixed, **{along: float(value)}).apply(second) for value in values]
        regions = Frames(np.concatenate([f.centers for f in changed]), np.concatenate([f.shapes for f in changed]))
        patches = np.concatenate([extract_patches(a.gray, first, CUT), extract_patches(b.gray, regions, CUT)])
        rows = {view: terms.sum(1) for view, terms in self._encodings(patches, weighted=True).items()}
        rows["RootSIFT"] = to_rootsift(patch_sift(patches))
        has_content = patches.min((1, 2)) < patches.max((1, 2))
        cosines = {name: _cosines(found, has_content) for name, found in rows.items()}
        return cosines, values.astype(np.float32), shown_patches(b, regions)


def _open(name: str) -> "Descriptor":
    from matchkernel.model.weights import load

    return load(name).fold()


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


def _cosines(rows: np.ndarray, has_content: np.ndarray) -> np.ndarray:
    """(B - 1,) cosines of the first row with the others."""
    units = unit_rows(rows)
    found = units[1:] @ units[0]
    return np.where(has_content[1:] & has_content[0], found, np.nan).astype(np.float32)
