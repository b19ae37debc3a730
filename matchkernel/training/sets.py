"""The patch sets of a run: opened or rendered, joined with labels that do not collide, and their identity."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from matchkernel.data.patch_set import PatchSet, join_labels, open_patch_set, patches_sha256
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import FileError
from matchkernel.storage.files import json_digest
from matchkernel.training.config import Data, TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.validation import validation_pairs


class TrainingSet:
    """Several patch sets joined in the order given; points of different sets are different points.

    Args:
        sets: to train on.
        mixed: sets that a share of every batch comes from; joined after the others.
    """

    def __init__(self, sets: Sequence[PatchSet], mixed: Sequence[PatchSet] = ()) -> None:
        self.sets = [*sets, *mixed]
        self.labels = join_labels(self.sets)
        self.side = sets[0].patches.shape[-1]
        self.firsts = np.cumsum([0, *(len(patch_set) for patch_set in self.sets)])  # index of each set's first patch
        self.first_mixed = int(self.firsts[len(sets)])

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """Patches (..., S, S) uint8 at these indices, read from the memory maps."""
        flat = index.ravel()
        patches = np.empty((len(flat), self.side, self.side), np.uint8)
        which = np.searchsorted(self.firsts, flat, side="right") - 1
        for number, patch_set in enumerate(self.sets):
            mine = np.flatnonzero(which == number)
            mine = mine[np.argsort(flat[mine])]  # in the order of the file: faster to read
            patches[mine] = patch_set.patches[flat[mine] - self.firsts[number]]
        return patches.reshape(*index.shape, self.side, self.side)


def identity(sets: Sequence[PatchSet]) -> str:
    """sha256 over the recorded hashes of patches and labels of sets, in order; independent of their folders."""
    return json_digest([[s.manifest["sha256"].get(name) for name in ("patches.npy", "labels.npy")] for s in sets])


def open_sets(folders: Sequence[str | Path]) -> list[PatchSet]:
    """Open patch sets."""
    return [open_patch_set(folder) for folder in folders]


def validated_on_training_patches(data: Data) -> list[str]:
    """The validation sets whose patches are also trained on, under whatever name."""
    learned = frozenset[str]().union(*map(patches_sha256, open_sets([*data.train, *data.mix])))
    found = zip(data.validation, open_sets(data.validation), strict=True)
    return [place for place, part in found if not learned.isdisjoint(patches_sha256(part))]


def open_data(config: TrainingConfig, folder: Path, team: Team) -> tuple[TrainingSet, list[PatchSet]]:
    """The training and validation sets of a run; synthetic ones are rendered first, by the first process."""
    data, synthetic = config.data, config.data.synthetic
    train, validation = data.train, data.validation
    if synthetic is not None:
        wanted = {
            folder / "sets" / "train": SyntheticSettings(synthetic.points, synthetic.patches, seed=synthetic.seed)
        }
        if synthetic.validation_points:
            settings = SyntheticSettings(synthetic.validation_points, synthetic.patches, seed=synthetic.seed + 1)
            wanted[folder / "sets" / "validation"] = settings
        if team.is_first:
            _render(wanted)
        team.wait()
        rendered, *others = map(str, wanted)
        train, validation = (rendered,), (*others, *validation)
    training, validation_sets = TrainingSet(open_sets(train), open_sets(data.mix)), open_sets(validation)
    for patch_set in validation_sets:
        validation_pairs(patch_set)  # a set that cannot be used is refused now, not after hours of training
    return training, validation_sets


def _render(wanted: Mapping[Path, SyntheticSettings]) -> None:
    """Render the sets that do not exist yet; a set with other settings or from elsewhere is refused and kept."""
    for place, settings in wanted.items():
        if place.exists():
            source = open_patch_set(place).manifest.get("source")
            if not isinstance(source, dict) or source.get("settings") != asdict(settings):
                raise FileError(f"{place}: a set of another configuration or source; remove it or choose another --out")
    for place, settings in wanted.items():
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            build_synthetic(place, settings)
