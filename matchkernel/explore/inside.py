"""Inside a pair of patches: similarity maps of positions, and how similarity falls as the second patch is changed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.explore.matching import shown_patches
from matchkernel.explore.photos import PagePhoto, by_id
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.photos.extract import CUT, check_frames
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.weights import available, read_card
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import need
from matchkernel.storage.memo import Memo
from matchkernel.storage.settings import Checked, setting, short_repr

if TYPE_CHECKING:
    from matchkernel.model.descriptors import Descriptor

COMPARED = ("dual", "light", "fc")  # whose insides are shown beside those of the model that matched
KINDS = {"cartesian": "Cartesian", "polar": "polar", "": "fully connected"}
ROOTSIFT = "RootSIFT"  # a curve without a network
STEPS = 41
# Name of a change -> the largest, to either side: degrees, pixels of the 32 px patch, octaves.
RANGES = {"turn": 90.0, "right": 12.0, "down": 12.0, "octaves": 1.0}
PIXELS = 32
MIN_HALF_WIDTH = 0.01


@dataclass(frozen=True)
class Region(Checked):
    """A region of a photo: its centre, and its shape row by row, as in Frames."""

    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yx: float = 0.0
    yy: float = 0.0

    def frames(self) -> Frames:
        """As Frames of one region; one without an area, or absurdly far away, is refused."""
        found = Frames(np.array([[self.x, self.y]]), np.array([[[self.xx, self.xy], [self.yx, self.yy]]]))
        check_frames(found)
        if not float(found.half_widths[0]) >= MIN_HALF_WIDTH:
            raise ArgumentError(f"a region must have a half side of at least {MIN_HALF_WIDTH:g} pixels")
        return found


@dataclass(frozen=True)
class PatchChange(Checked):
    """A change of the second patch: turned by degrees, moved by pixels of 32, enlarged by octaves."""

    turn: float = setting(0.0, low=-180, high=180)
    right: float = setting(0.0, low=-32, high=32)
    down: float = setting(0.0, low=-32, high=32)
    octaves: float = setting(0.0, low=-2, high=2)

    def apply(self, frames: Frames) -> Frames:
        """The regions that are cut instead of these."""
        angle, scale = np.deg2rad(self.turn), 2.0**self.octaves
        turned = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        shift = np.array([self.right, self.down]) * 2 / PIXELS
        return Frames(frames.centers + frames.shapes @ shift, frames.shapes @ turned)


class PatchInspector:
    """Similarity maps and curves of pairs of patches, see _map and _curve; models and results are kept in memory.

    Args:
        kept: number of results of each kind.
        own: name -> path of weight files that are not shipped; those whose maps are as large can be looked into, too.
    """

    def __init__(self, kept: int, own: Mapping[str, str] | None = None) -> None:
        self.map, self.curve = Memo(self._map, kept, by_id), Memo(self._curve, kept, by_id)
        self._cut = Memo(self._cut_changed, 2, by_id)
        paths = {name: name for name in available()} | dict(own or {})
        self._paths = {name: path for name, path in paths.items() if _config(path).patch_size == PIXELS}
        self._model = Memo(self._open, len(self._paths) or 1)

    @property
    def models(self) -> list[str]:
        """Names of the models that can be shown; none without torch, which takes their networks apart."""
        return list(self._paths) if _has_torch() else []

    @staticmethod
    def works() -> bool:
        """Whether torch can be imported, too."""
        try:
            need("torch", "torch", "looking inside descriptors")
        except MissingExtraError:
            return False
        return True

    @property
    def receptive_side(self) -> int:
        """Pixels of the patch, along each side, that a position sees; the maximum over the models shown."""
        return max((self._config(name).receptive_side for name in self.models), default=0)

    def views_of(self, model: str) -> dict[str, list[str]]:
        """Name of each view of a model -> the coordinate systems whose encodings sum to it (none: all of it).

        A descriptor with both coordinate systems has three views: each system's half, and their sum, the descriptor.
        """
        systems = VARIANTS[self._config(model).variant].systems
        if len(systems) < 2:
            return {f"{model}, {KINDS[systems[0] if systems else '']}": []}
        halves = {f"{model}, {KINDS[system]} half": [system] for system in systems}
        return halves | {f"{model}, both halves": list(systems)}

    @property
    def views(self) -> dict[str, str]:
        """Name of each view of all models -> its model."""
        return {view: model for model in self.models for view in self.views_of(model)}

    def _map(
        self, a: PagePhoto, frame_a: Region, b: PagePhoto, frame_b: Region, fixed: PatchChange, model: str
    ) -> dict[str, np.ndarray]:
        """For each view (n * n, n * n): row p is S_p(q), the similarity of position p of A to each q of B [M20]."""
        ends = ((a, frame_a.frames()), (b, fixed.apply(frame_b.frames())))
        patches = [extract_patches(photo.gray, frames, CUT) for photo, frames in ends]
        return {view: maps[0] for view, maps in self.maps(model, *patches).items()}

    def maps(self, model: str, first: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
        """For each view (M, n * n, n * n) similarity maps of M pairs of (M, 64, 64) uint8 patches."""
        count, found = len(first), self._encodings(np.concatenate([first, second]), model)
        return {view: rows[:count] @ rows[count:].transpose(0, 2, 1) for view, rows in found.items()}

    def _encodings(self, patches: np.ndarray, name: str, *, weighted: bool = False) -> dict[str, np.ndarray]:
        """For each view (B, n * n, D), what each position contributes, of (B, 64, 64) uint8 patches."""
        torch = need("torch", "torch", "looking inside descriptors")
        from matchkernel.model.describe import resize_patches
        from matchkernel.model.kernel_view import encodings_by_system, position_encodings

        if name not in self.models:
            raise ArgumentError(f"model must be one of {', '.join(self.models)}, got {short_repr(name)}")
        model, views = self._model(name), self.views_of(name)
        sized = resize_patches(torch.from_numpy(patches)[:, None].float(), model.config.patch_size)
        if len(views) == 1:
            return dict.fromkeys(views, position_encodings(model, sized, weighted=weighted).numpy())
        parts = encodings_by_system(model, sized, weighted=weighted)
        return {view: np.sum([parts[system].numpy() for system in systems], axis=0) for view, systems in views.items()}

    def _curve(
        self, a: PagePhoto, frame_a: Region, b: PagePhoto, frame_b: Region, along: str, fixed: PatchChange, model: str
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """How similar patch A and patch B are, if B is changed along one of RANGES and by the fixed changes.

        For each view of the model, or for RootSIFT, the (41,) cosines of descriptors, NaN without content; the (41,)
        values; the (41, 32, 32) changed patches.
        """
        if along not in RANGES:
            raise ArgumentError(f"along must be one of {', '.join(RANGES)}, got {short_repr(along)}")
        values, patches, shown = self._cut(a, frame_a, b, frame_b, along, fixed)
        if model == ROOTSIFT:
            rows = {ROOTSIFT: to_rootsift(patch_sift(patches))}
        else:
            rows = {view: terms.sum(1) for view, terms in self._encodings(patches, model, weighted=True).items()}
        has_content = patches.min((1, 2)) < patches.max((1, 2))
        return {name: _cosines(found, has_content) for name, found in rows.items()}, values, shown

    def _cut_changed(
        self, a: PagePhoto, frame_a: Region, b: PagePhoto, frame_b: Region, along: str, fixed: PatchChange
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(41,) values; (42, 64, 64) patch A and the changed patches B; these as they are shown."""
        first, second = frame_a.frames(), frame_b.frames()
        values = np.linspace(-RANGES[along], RANGES[along], STEPS)
        changed = [replace(fixed, **{along: float(value)}).apply(second) for value in values]
        regions = Frames(np.concatenate([f.centers for f in changed]), np.concatenate([f.shapes for f in changed]))
        patches = np.concatenate([extract_patches(a.gray, first, CUT), extract_patches(b.gray, regions, CUT)])
        return values.astype(np.float32), patches, shown_patches(b, regions)

    def _config(self, name: str) -> DescriptorConfig:
        return _config(self._paths[name])

    def _open(self, name: str) -> "Descriptor":
        from matchkernel.model.weights import load

        return load(self._paths[name]).fold()


def _has_torch() -> bool:
    """Whether torch is installed; it is not imported, which takes seconds that the first page would wait for."""
    return find_spec("torch") is not None


@cache
def _config(weights: str) -> DescriptorConfig:
    """The configuration of a descriptor's weights."""
    config = read_card(weights).config
    assert config is not None  # of a descriptor
    return config


def _cosines(rows: np.ndarray, has_content: np.ndarray) -> np.ndarray:
    """(B - 1,) cosines of the first row with the others."""
    units = unit_rows(rows)
    found = units[1:] @ units[0]
    return np.where(has_content[1:] & has_content[0], found, np.nan).astype(np.float32)
