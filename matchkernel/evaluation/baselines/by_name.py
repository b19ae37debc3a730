"""Baselines by name, each at its best documented setting."""

from pathlib import Path

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.baselines.baseline import Baseline
from matchkernel.evaluation.baselines.binboost import binboost
from matchkernel.evaluation.baselines.deepdesc import deepdesc
from matchkernel.evaluation.baselines.desdis import WIDTHS, desdis
from matchkernel.evaluation.baselines.kornia import MKD_SETS, hard_tfeat, mkd, mkd_published, network
from matchkernel.evaluation.baselines.opencv import beblid, brief, orb, rootsift, sift, teblid, vgg

WITHOUT_FILES = {
    "sift": sift, "rootsift": rootsift, "orb": orb, "brief": brief, "vgg": vgg, "beblid": beblid, "teblid": teblid,
}  # fmt: skip
WITH_FILES = {"deepdesc": deepdesc, "binboost": binboost, "hardtfeat": hard_tfeat}
PUBLISHED_MKD = {f"mkd-{name}": name for name in MKD_SETS}
BASELINES = (*WITHOUT_FILES, "mkd", *PUBLISHED_MKD, "tfeat", *WITH_FILES, *WIDTHS)
# Training sets of learned numbers that are the same in every copy of a method.
TRAINED_ON = {**PUBLISHED_MKD, "vgg": "liberty, notredame", "beblid": "liberty", "teblid": "liberty"}
ANY_CLASS = "kornia:"


def baseline(name: str, *, weights: Path | None = None, training_patches: np.ndarray | None = None) -> Baseline:
    """A third-party descriptor by name. Nothing is downloaded, and no code in a weight file is executed.

    Args:
        name: one of BASELINES, or `kornia:` followed by a patch network of kornia.feature, such as `kornia:HardNet`.
        weights: its weight file, for all but mkd and those of OpenCV: `tfeat-liberty.params` for tfeat,
            `HardTFeat.pth` for hardtfeat, `CNN3_p8_n8_split4_073000.t7` for deepdesc, `binboost_256.bin` for binboost,
            `DesDis-32.pth` for desdis-32, `mkd-concat-64.pth` (the published whitening) for mkd-liberty, -notredame and
            -yosemite, a checkpoint of the class for kornia:...
        training_patches: (K, N, N) uint8, for mkd only: the set to learn its whitening on.
    """
    _check(name, weights, training_patches)
    if name in WITHOUT_FILES:
        return WITHOUT_FILES[name]()
    if training_patches is not None:
        return mkd(training_patches)
    path = Path(weights or "")
    if name in PUBLISHED_MKD:
        return mkd_published(PUBLISHED_MKD[name], path)
    if name in WIDTHS:
        return desdis(name, path)
    if name in WITH_FILES:
        return WITH_FILES[name](path)
    return network(name, "TFeat" if name == "tfeat" else name.removeprefix(ANY_CLASS), path)


def _check(name: str, weights: Path | None, training_patches: np.ndarray | None) -> None:
    if name not in BASELINES and not name.startswith(ANY_CLASS):
        raise ArgumentError(f"no baseline {name!r}; there are {', '.join(BASELINES)} and {ANY_CLASS}<class>")
    wants_training, wants_weights = name == "mkd", name not in WITHOUT_FILES and name != "mkd"
    if wants_training and training_patches is None:
        raise ArgumentError(
            "mkd learns its whitening: give training_patches (--training-set), or use mkd-liberty with its file"
        )
    if wants_weights and weights is None:
        raise ArgumentError(f"{name} needs a weight file: give its path as weights (--baseline-weights)")
    if not wants_training and training_patches is not None:
        raise ArgumentError(f"{name} learns nothing: training_patches (--training-set) are for mkd only")
    if not wants_weights and weights is not None:
        raise ArgumentError(f"{name} takes no weight file (--baseline-weights), got {weights}")
