"""What an experiment measures of a trained model, as JSON keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchkernel.data.hpatches import HPatchesSet, open_hpatches
from matchkernel.data.patch_set import PatchSet
from matchkernel.evaluation.hpatches.evaluate import evaluate_hpatches
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.methods import configuration_name
from matchkernel.evaluation.patch_sets import score_patch_set
from matchkernel.evaluation.uncertainty import fpr95_by_points
from matchkernel.model.describe import describe, resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.kernel_view import pairwise_terms, position_encodings
from matchkernel.model.precision import open_device

NOISES = ("e", "h", "t")
MAPPED_PAIRS = 300  # matching patches whose similarity maps are measured
CHANGES = ("shift", "rotation", "scale")  # of known amounts, see data.py --tolerance
AUC_UNITS = 10_000
DRAWS = 200  # bootstrap samples of points
LISTS = {"m50": "ordinary", "m50hard": "hard"}


def method_of(model: Descriptor, device: str) -> Method:
    """A model in memory as a method to score, at its own patch size."""
    return Method(
        configuration_name(model.config),
        "l2",
        {},
        lambda patches, progress: describe(patches, model, resize=True, device=device, progress=progress),
    )


@dataclass(frozen=True)
class StripsInMemory(HPatchesSet):
    """A set whose strips are decoded once for all models of a process: decoding takes longer than describing."""

    strips: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def read(self, sequence: str, image: str = "ref") -> np.ndarray:
        """As HPatchesSet.read."""
        if (sequence, image) not in self.strips:
            self.strips[sequence, image] = super().read(sequence, image)
        return self.strips[sequence, image]


@cache
def in_memory(folder: Path) -> StripsInMemory:
    """The set of a folder, opened once."""
    found = open_hpatches(folder)
    return StripsInMemory(found.root, found.counts)


def score_sets(method: Method, sets: Mapping[str, PatchSet], device: str = "cpu") -> dict[str, Any]:
    """Set -> FPR@95 of its ordinary and of its hard pairs, and retrieval mAP, as shares."""
    scores = {}
    for name, patches in sets.items():
        rows = torch.from_numpy(method.describe(np.asarray(patches.patches))).to(device)
        result = score_patch_set(method.name, rows, patches, distance=method.distance)
        fpr95 = {LISTS[name.split("_")[0]]: part["fpr95"] for name, part in result["pairs"].items()}
        scores[name] = {"fpr95": fpr95, "map": result["retrieval_map"], "data_sha256": result["data_sha256"]}
    return scores


def score_sequences(method: Method, folder: Path) -> dict[str, Any]:
    """The three HPatches tasks on a set of sequences: means, by noise, and by sequence, as shares."""
    (result,) = evaluate_hpatches(method, in_memory(folder))
    return short_hpatches(result)


def score_strips(method: Method, folder: Path) -> dict[str, float]:
    """Matching mAP of a single sequence of strips, by noise and in all (the other tasks need several sequences)."""
    (result,) = evaluate_hpatches(method, in_memory(folder), only=("matching",))
    return {noise: part["ap_trapezoid"] for noise, part in result["matching"]["mean"].items()}


def short_hpatches(result: dict[str, Any]) -> dict[str, Any]:
    """The numbers the experiments keep of an HPatches result: trapezoid APs, all distractors."""
    verification, matching, retrieval = result["verification"], result["matching"], result["retrieval"]
    ap = "ap_trapezoid"
    by_sequence = {}
    for name in result["sequences"]:
        parts = verification["per_sequence"][name]
        six = [parts[noise][kind]["imbalanced"][ap] for noise in NOISES for kind in ("inter", "intra")]
        pairs = [pair[ap] for noise in NOISES for pair in matching["per_pair"][name][noise].values()]
        queries = retrieval["per_sequence"].get(name)  # none where no query is of this sequence
        found = float(np.mean([queries[noise][ap] for noise in NOISES])) if queries else None
        by_sequence[name] = {"verification": float(np.mean(six)), "matching": float(np.mean(pairs)), "retrieval": found}
    return {
        "verification": verification["mean"][ap],
        "matching": matching["mean"]["all"][ap],
        "retrieval": retrieval["python"]["mean"]["20000"][ap],
        "by_noise": {
            "verification": {
                noise: float(np.mean([part["imbalanced"][ap] for part in verification["noise"][noise].values()]))
                for noise in NOISES
            },
            "matching": {noise: matching["mean"][noise][ap] for noise in NOISES},
            "retrieval": {noise: retrieval["python"]["noise"][noise]["20000"][ap] for noise in NOISES},
        },
        "by_sequence": by_sequence,
        "data_sha256": result["data_sha256"],
    }


@torch.no_grad()
def score_tolerance(model: Descriptor, path: Path, device: str) -> dict[str, Any]:
    """Kind of change -> amounts, mean similarity of matching patches, and share whose match is the most similar.

    Args:
        model: the descriptor.
        path: by data.py --tolerance: `reference` (K, 64, 64), and `<kind>` (T, K, 64, 64) with `<kind>_amounts` (T,).
        device: where to compute.
    """
    with np.load(path) as file:
        reference = torch.from_numpy(describe(file["reference"], model, resize=True, device=device)).to(device)
        curves = {}
        for kind in CHANGES:
            rows = [
                torch.from_numpy(describe(patches, model, resize=True, device=device)).to(device)
                for patches in file[kind]
            ]
            similarity = [float((reference * changed).sum(1).mean()) for changed in rows]
            own = torch.arange(len(reference), device=device)
            first = [float(((changed @ reference.t()).argmax(1) == own).float().mean()) for changed in rows]
            curves[kind] = {"amounts": file[f"{kind}_amounts"].tolist(), "similarity": similarity, "first": first}
    return curves


def score_geometry(method: Method, folder: Path, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Group -> FPR@95 of positives that geometry found against ordinary and hard negatives, with samples of points.

    Args:
        method: the descriptor.
        folder: <scene>.npz by data.py --geometry.
        groups: group -> scenes; all pairs of a group share a threshold.
    """
    found: dict[str, Any] = {}
    for group, scenes in groups.items():
        parts: dict[str, list[np.ndarray]] = {key: [] for key in ("positives", "ordinary", "hard")}
        points: dict[str, list[np.ndarray]] = {key: [] for key in parts}
        before = 0
        for scene in scenes:
            with np.load(folder / f"{scene}.npz") as file:
                rows = method.describe(file["patches"], None).astype(np.float32)
                for key in parts:
                    pairs = file[key]
                    parts[key].append(_row_distances(rows, pairs))
                    points[key].append(file["labels"][pairs] + before)
                before += int(file["labels"].max()) + 1
        joined = {key: (np.concatenate(parts[key]), np.concatenate(points[key])) for key in parts}
        _, labels = np.unique(np.concatenate([joined[key][1].ravel() for key in joined]), return_inverse=True)
        sizes = np.cumsum([joined[key][1].size for key in joined])[:-1]
        numbers = dict(zip(joined, np.split(labels, sizes), strict=True))
        matches, own = joined["positives"][0], numbers["positives"].reshape(-1, 2)[:, 0]
        found[group] = {"positives": len(matches), "points": int(labels.max()) + 1}
        for key in ("ordinary", "hard"):
            values = fpr95_by_points(matches, own, joined[key][0], numbers[key].reshape(-1, 2), DRAWS)
            draws = [round(float(value), 6) for value in values[1:]]
            found[group][key] = {"fpr95": float(values[0]), "negatives": len(joined[key][0]), "draws": draws}
    return found


def _row_distances(rows: np.ndarray, pairs: np.ndarray, piece: int = 2**16) -> np.ndarray:
    """(M,) distances of pairs of unit rows."""
    parts = [pairs[k : k + piece] for k in range(0, len(pairs), piece)]
    return np.concatenate([np.linalg.norm(rows[part[:, 0]] - rows[part[:, 1]], axis=1) for part in parts])


@torch.no_grad()
def score_separability(
    model: Descriptor, path: Path, device: str, kinds: Sequence[str] = tuple(CHANGES)
) -> dict[str, Any]:
    """Kind of change -> how well changed patches are told from non-matches; a model that sees no change gains nothing.

    Args:
        model: the descriptor.
        path: as for score_tolerance.
        device: where to compute.
        kinds: of change.

    Returns:
        By kind: `amounts`; `auc`, the share of references of other patches that are less similar than the own one, and
        `first`, the share of patches whose own reference is the most similar, both by amount. To compare two models
        patch by patch, over the amounts that are not 0: `auc_missing_by_patch`, what the mean lacks to 1 in units of
        1 / AUC_UNITS, and `first_by_patch`, the number of amounts; each as one string, because a list would take a line
        of JSON per patch.
    """
    with np.load(path) as file:
        reference = torch.from_numpy(describe(file["reference"], model, resize=True, device=device)).to(device)
        found = {}
        for kind in kinds:
            less, first = [], []
            for patches in file[kind]:
                rows = torch.from_numpy(describe(patches, model, resize=True, device=device)).to(device)
                shares = shares_below(rows @ reference.t())
                less.append(shares)
                first.append(shares == 1)
            auc, is_first = torch.stack(less).double().cpu(), torch.stack(first).cpu()
            amounts = file[f"{kind}_amounts"].tolist()
            changed = torch.tensor(amounts) != 0
            found[kind] = {
                "amounts": amounts,
                "auc": auc.mean(1).tolist(),
                "first": is_first.double().mean(1).tolist(),
                "auc_missing_by_patch": _words((1 - auc[changed].mean(0)) * AUC_UNITS),
                "first_by_patch": _words(is_first[changed].sum(0)),
            }
    return found


def _words(numbers: torch.Tensor) -> str:
    return " ".join(map(str, numbers.round().int().tolist()))


def shares_below(similarity: torch.Tensor) -> torch.Tensor:
    """(K,) share of the other columns of each row of (K, K) below its diagonal element; ties count half."""
    own = similarity.diagonal()[:, None]
    below, equal = (similarity < own).sum(1), (similarity == own).sum(1) - 1
    return (below + equal / 2) / (len(similarity) - 1)


@torch.no_grad()
def score_maps(model: Descriptor, path: Path, device: str, most: int = MAPPED_PAIRS) -> dict[str, Any]:
    """Where the similarity maps of matching patches are high: S_p(q) of every position p by the distance from p.

    Args:
        model: a descriptor whose positions are projected or encoded (or `sum`, to compare with).
        path: by data.py --tolerance; pairs of `reference` and the unshifted match, taken evenly from all.
        device: where to compute.
        most: pairs.

    Returns:
        `near`, the share of maps whose maximum lies within one cell of p, `near_chance`, that of a maximum anywhere,
        `mean`, of S scaled to [0, 1] map by map, `by_distance`, the same by |p - q| rounded to cells, and `pairs`.
    """
    with np.load(path) as file:
        unchanged = int(np.flatnonzero(file["shift_amounts"] == 0)[0])
        both = np.stack([file["reference"], file["shift"][unchanged]])
    chosen = np.unique(np.linspace(0, both.shape[1] - 1, most).round().astype(int))
    patches = torch.from_numpy(both[:, chosen]).to(device).float()[:, :, None]
    model = model.fold(device=open_device(device))
    one, two = (position_encodings(model, resize_patches(p, model.config.patch_size), weighted=False) for p in patches)
    return map_statistics(pairwise_terms(one.double(), two.double()), model.config.n)


@torch.no_grad()
def score_places(model: Descriptor, path: Path, device: str, most: int = MAPPED_PAIRS) -> dict[str, Any]:
    """What features tell of their place, with the zeros that convolutions see around a patch and without.

    Args:
        model: any descriptor; of two networks the first is read.
        path: by data.py --tolerance; patches are taken evenly from `reference`.
        device: where to compute.
        most: patches.

    Returns:
        `decoded`, the share of cells whose place a linear map of phi^p tells to within one cell, learned on half of the
        patches and tested on the others, with `decoded_chance`; `decoded_around`, the same where convolutions see the
        opposite side of the patch instead of zeros; `patches`, their number.
    """
    with np.load(path) as file:
        reference = file["reference"]
    chosen = np.unique(np.linspace(0, len(reference) - 1, most).round().astype(int))
    patches = torch.from_numpy(reference[chosen]).to(device).float()[:, None]
    resized, folded = resize_patches(patches, model.config.patch_size), model.fold(device=open_device(device))
    found = decoded_places(folded.feature_maps(resized)[0])
    for module in folded.modules():
        if isinstance(module, torch.nn.Conv2d) and module.padding == (1, 1):
            module.padding_mode = "circular"
    around = decoded_places(folded.feature_maps(resized)[0])
    return {**found, "decoded_around": around["decoded"], "patches": len(chosen)}


def decoded_places(phi: torch.Tensor) -> dict[str, float]:
    """How well a linear map tells the cell of a feature: (B, d, n, n), learned on every second patch."""
    n = phi.shape[-1]
    features = phi.double().flatten(2).mT  # (B, n * n, d)
    cells = torch.cartesian_prod(torch.arange(n), torch.arange(n)).to(features).expand(len(phi), -1, -1)
    train, test = (
        (torch.nn.functional.pad(features[k::2].flatten(0, 1), (0, 1), value=1.0), cells[k::2].flatten(0, 1))
        for k in (0, 1)
    )
    ridge = 1e-3 * len(train[0]) * torch.eye(train[0].shape[1]).to(features)
    ridge[-1, -1] = 0
    weights = torch.linalg.solve(train[0].T @ train[0] + ridge, train[0].T @ train[1])
    told = (test[0] @ weights).round().clamp(0, n - 1)
    near = ((told - test[1]).abs().amax(1) <= 1).double().mean()
    middle = torch.full_like(test[1], (n - 1) / 2).floor()  # the best answer of features that know nothing
    chance = ((middle - test[1]).abs().amax(1) <= 1).double().mean()
    return {"decoded": float(near), "decoded_chance": float(chance)}


def map_statistics(maps: torch.Tensor, n: int) -> dict[str, Any]:
    """The numbers of score_maps.

    Args:
        maps: (B, n * n, n * n), row p of one patch, column q of the other.
        n: side of the feature map.
    """
    cells = torch.cartesian_prod(torch.arange(n), torch.arange(n)).to(maps)  # row, column
    steps = (cells[:, None] - cells).abs()
    is_near = steps.amax(-1) <= 1
    distance = steps.square().sum(-1).sqrt().round().long()
    low, high = maps.amin(-1, keepdim=True), maps.amax(-1, keepdim=True)
    scaled = (maps - low) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny)
    hits = is_near[torch.arange(n * n, device=maps.device), maps.argmax(-1)]
    mean_map = scaled.mean(0)
    return {
        "near": float(hits.double().mean()),
        "near_chance": float(is_near.double().mean()),
        "mean": float(mean_map.mean()),
        "by_distance": [float(mean_map[distance == k].mean()) for k in range(int(distance.max()) + 1)],
        "pairs": len(maps),
    }
