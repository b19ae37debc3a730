"""What docs/photos.md compares, as tables: the scenes, and for each step the methods, keypoints and filters tried."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))

from data import GROUPS, NON_COMMERCIAL, SHIPPED  # of experiments/paper

from matchkernel.geometry.detect import Detector

BUDGET = 2000
MOST_PAIRS = 30  # of a training scene
RENDERED = "street"  # the rendered scene of the test
SCENES = {"training": SHIPPED, "validation": GROUPS["validation"], "test": (*NON_COMMERCIAL, RENDERED)}

DESDIS = "desdis-32"
SMALLER_DESDIS = ("desdis-8", "desdis-16")
OURS = ("light-wide", "dual", "light", "tiny", "dual-paper", "fc")
RATIO = 0.85  # of every descriptor in step 1
RATIOS = (0.75, 0.8, 0.85, 0.9, 0.93, 0.96)
# The keypoints before any choice of this page, whatever the defaults of the package are by now.
BEFORE: dict[str, Any] = {"choice": "strongest", "orientations": "all", "contrast": 0.04}
BASE = Detector(keypoints=BUDGET, edge=10.0, upright=False, magnification=8.0, **BEFORE)


@dataclass(frozen=True)
class Candidate:
    """A method with its keypoints and filter, and the groups of SCENES it is scored on."""

    method: str
    changes: dict[str, Any] = field(default_factory=dict)  # of BASE
    filter: str = "none"
    groups: tuple[str, ...] = ("validation",)

    @property
    def key(self) -> str:
        """The name of its results."""
        changes = " ".join(f"{name}={value}" for name, value in sorted(self.changes.items()))
        return " | ".join(part for part in (self.method, changes, self.filter) if part)

    @property
    def budget(self) -> int:
        """Keypoints per photo."""
        return int(self.changes.get("keypoints", BUDGET))

    @property
    def detector(self) -> Detector:
        """How it finds keypoints."""
        return replace(BASE, **self.changes)


# Step 1

CHOICES = ("strongest", "largest", "spread", "cells")
CONTRAST = 0.01  # at which the choices are compared
CONTRASTS = (0.04, 0.02, 0.005)  # tried with the best of them
ON_TRAINING, ON_VALIDATION = ("rootsift", DESDIS), ("rootsift", DESDIS, "light")


def keypoint_settings() -> dict[tuple[str, str, float], dict[str, Any]]:
    """(Choice, orientations, contrast) -> fields of Detector."""
    tried = [("strongest", "all", 0.04), *((c, o, CONTRAST) for c, o in product(CHOICES, ("one", "all")))]
    tried.remove(("strongest", "all", CONTRAST))  # not measured on training scenes
    tried += [("largest", "one", contrast) for contrast in CONTRASTS]
    return {(c, o, t): {"choice": c, "orientations": o, "contrast": t} for c, o, t in tried}


def keypoints() -> list[Candidate]:
    """Every way to fill the budget, with the descriptors that decide it."""
    return [
        Candidate(method, changes, f"ratio:{RATIO}", groups_of(method))
        for changes in keypoint_settings().values()
        for method in ON_VALIDATION
    ]


def groups_of(method: str) -> tuple[str, ...]:
    """Our weights were trained on the training scenes, the others were not."""
    return ("training", "validation") if method in ("sift", "rootsift", DESDIS) else ("validation",)


# Step 2

# Steps 2 and 3 were measured at these keypoints, the best of step 1, before detection had been timed.
MEASURED_AT: dict[str, Any] = {"choice": "largest", "orientations": "one", "contrast": 0.01}
DECIDE_FILTERS = ("dual", "light")
WIDE_AT_HALF = "light-half-x6-to-x12"  # the weights whose calibrated ratio `light-wide` gets
FILTERED = ("sift", "rootsift", DESDIS, *DECIDE_FILTERS, WIDE_AT_HALF)
LATER = ("tiny",)  # made when the kind of filter had been decided: only its ratio is calibrated
SIMPLEST_FIRST = ("ratio", "distance", "both", "either", "adalam", "guided")


def filters(taken: dict[str, Any]) -> list[Candidate]:
    """Filters that need no calibrated ratio, and every ratio, at the keypoints taken."""
    ratios = tuple(f"ratio:{ratio}" for ratio in RATIOS)
    plain = ("none", *ratios, "distance", "adalam")
    return [Candidate(method, taken, name) for method in LATER for name in ratios] + [
        Candidate(method, taken, name)
        for method in FILTERED
        for name in plain
        if (method, name) != (DESDIS, "distance")  # nobody calibrated one
    ]


def combined_filters(taken: dict[str, Any], ratios: dict[str, float], distances: dict[str, float]) -> list[Candidate]:
    """Ratio and distance together, with the ratios calibrated on the filters above."""
    found = []
    for method in FILTERED:
        if method in distances:
            limits = f"{ratios[method]},{distances[method]}"
            names = [f"both:{limits}", f"either:{limits}"]
            found += [Candidate(method, taken, name) for name in names]
        found.append(Candidate(method, taken, f"guided:{ratios[method]}"))
    return found


# Step 3

MAGNIFICATIONS = (6.0, 8.0, 10.0, 12.0)
RATIO_OF_MODELS = 0.9


def models(weights: Sequence[str]) -> list[Candidate]:
    """Models and magnifications, all with the same ratio: those of new weights were not calibrated yet.

    Args:
        weights: further weight files, by the names that they have in the folder of weights.
    """
    return [
        Candidate(name, {**MEASURED_AT, "magnification": size}, f"ratio:{RATIO_OF_MODELS}")
        for name in ("dual", "light", *weights)
        for size in MAGNIFICATIONS
    ]


def family(name: str) -> str:
    """The model of the package with the architecture of a weight file of ours; any other name as it is."""
    return next((known for known in ("light", "dual-paper", "dual") if name.startswith(known)), name)


# Small networks

RATIOS_OF_STUDENTS = (0.9, 0.93)


def students(taken: dict[str, Any], weights: Sequence[str]) -> list[Candidate]:
    """Small networks that are not in the package, at the keypoints taken."""
    return [Candidate(name, taken, f"ratio:{ratio}") for name in weights for ratio in RATIOS_OF_STUDENTS]


# Step 4

FRAMES: dict[str, dict[str, Any]] = {
    "Key.Net": {"keynet": "keynet.pth"},
    "AffNet": {"affnet": "AffNet.pth"},
    "OriNet": {"orinet": "OriNet.pth"},
    "AffNet, OriNet": {"affnet": "AffNet.pth", "orinet": "OriNet.pth"},
    "Key.Net, AffNet, OriNet": {"keynet": "keynet.pth", "affnet": "AffNet.pth", "orinet": "OriNet.pth"},
    "upright": {"upright": True},
    "AffNet, upright": {"affnet": "AffNet.pth", "upright": True},
    "mean over 6, 8, 10 σ": {"pooling": "6,8,10"},
}


def frames(default: Candidate) -> list[Candidate]:
    """Other frames for the model taken."""
    return [replace(default, changes={**default.changes, **changes}) for changes in ({}, *FRAMES.values())]


# Test, and the same rows on validation

PEERS = ("aliked-n16", "aliked-n16+lightglue", "disk", "disk+lightglue", "xfeat", "xfeat+lighterglue")
BUDGETS = (1000, 2000, 8000)
# Filters of the peers that are matched by nearest neighbours: the best of the ratios 0.85, 0.9 and 0.95 on validation.
PEER_FILTERS = {"aliked-n16": "ratio:0.9", "disk": "ratio:0.9", "xfeat": "ratio:0.95"}


def final(default: Candidate, filter_of: dict[str, str]) -> list[Candidate]:
    """All rows of the table of the test.

    Args:
        default: the model, keypoints and filter that were taken.
        filter_of: the filter of every other method, with calibrated limits.
    """
    now = {name: value for name, value in default.changes.items() if name != "magnification"}
    rows = [Candidate("dual", BEFORE, "distance"), default]
    rows += [
        Candidate(name, changes, filter_of[name]) for name in ("sift", "rootsift", DESDIS) for changes in (BEFORE, now)
    ]
    rows += [Candidate(name, now, filter_of[DESDIS]) for name in SMALLER_DESDIS]  # with the ratio of the largest
    rows += [Candidate(name, default.changes, filter_of[name]) for name in OURS if name != default.method]
    others = ("none", "adalam", default.filter.replace("ratio", "guided"))
    rows += [replace(default, filter=kept) for kept in others]
    rows += frames(default)
    rows += [Candidate(name, {}, PEER_FILTERS.get(name, "none")) for name in PEERS]
    for budget in BUDGETS:
        changes = {"keypoints": budget} if budget != BUDGET else {}
        rows += [replace(default, changes={**default.changes, **changes})]
        rows += [Candidate("rootsift", {**now, **changes}, filter_of["rootsift"])]
        rows += [Candidate("dual", {**BEFORE, **changes}, "distance")]
        rows += [Candidate("aliked-n16", changes, PEER_FILTERS["aliked-n16"])]
    unique = {row.key: row for row in rows}
    return list(unique.values())
