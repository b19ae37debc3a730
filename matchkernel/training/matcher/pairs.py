"""Pairs of photos drawn for training, and their candidates with labels, made once before training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.poses import relative_pose
from matchkernel.model.context import Keypoints, candidates
from matchkernel.storage.work import Progress, progress_counter
from matchkernel.training.matcher.config import MatcherConfig
from matchkernel.training.matcher.labels import RIGHT, UNKNOWN, WRONG, Ends, homography_labels, pose_labels
from matchkernel.training.matcher.scenes import MatcherPhoto, MatcherScene

MIXES = (0.0, 0.5, 2.0)  # octaves of random sizes added before the largest keypoints are taken
PAIRS_AT_A_TIME = 8  # whose distances of all keypoints are held at once
POSE, WARP, OTHER = "pose", "warp", "other"  # what labels come from: cameras, a homography, two different scenes
NO_PAIRS = "no pairs to train on: give photos of several scenes, or pose_pairs, or warps and warp_pairs above 0"

Photos = Mapping[tuple[str, str], Sequence[MatcherPhoto]]  # by scene and name: a photo, then its warped copies
Two = tuple[MatcherPhoto, MatcherPhoto]


@dataclass(frozen=True)
class DrawnPair:
    """Two photos, what their candidates are labelled by, and the keypoints used of each."""

    kind: str
    photos: Two
    used: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class CandidateSet:
    """Candidates of P pairs of photos (see model.context.Candidates), on the device, with labels (P, C)."""

    f: Tensor
    zi: Tensor
    zj: Tensor
    a: Tensor
    is_real: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def shares(self) -> dict[str, float]:
        """Shares of right, wrong and unknown candidates."""
        labels = self.labels[self.is_real]
        names = {"right": RIGHT, "wrong": WRONG, "unknown": UNKNOWN}
        return {name: round(float((labels == value).float().mean()), 4) for name, value in names.items()}


def draw_pairs(scenes: Sequence[MatcherScene], photos: Photos, config: MatcherConfig) -> list[DrawnPair]:
    """Pairs of the three kinds, each in a random order of the photos; a kind without photos is left out."""
    random = np.random.default_rng([config.seed, len(photos)])
    wanted = {POSE: config.pose_pairs, WARP: config.warp_pairs, OTHER: config.other_pairs}
    drawn = []
    for kind, groups in _groups(scenes, photos, config, random).items():
        weights = np.sqrt([len(group) for group in groups])  # large scenes do not crowd out others
        for _ in range(wanted[kind] if groups else 0):
            group = groups[random.choice(len(groups), p=weights / weights.sum())]
            a, b = group[random.integers(len(group))][:: random.choice((1, -1))]
            count = int(random.choice(config.used))
            drawn.append(DrawnPair(kind, (a, b), (_used(a, count, random), _used(b, count, random))))
    if not drawn:
        raise ArgumentError(NO_PAIRS)
    return drawn


def _groups(
    scenes: Sequence[MatcherScene], photos: Photos, config: MatcherConfig, random: np.random.Generator
) -> dict[str, list[list[Two]]]:
    """The pairs of each kind, by scene, by photo, and by two scenes; a photo without keypoints is in none."""
    own = {part.name: {name: photos[part.name, name][0] for name in part.scene.images} for part in scenes}
    posed = [[(own[part.name][a], own[part.name][b]) for a, b in part.scene.pairs] for part in scenes]
    enough = [[part for part in parts if len(part.keypoints) >= config.fewest] for parts in photos.values()]
    same = [set(text.split()) for text in config.same_place]
    unrelated = [two for two in combinations(own, 2) if not any(place.issuperset(two) for place in same)]
    shuffled = [[random.permutation(np.array([*own[name].values()], object)) for name in two] for two in unrelated]
    groups: dict[str, list[list[Two]]] = {
        POSE: posed,
        WARP: [list(combinations(parts, 2)) for parts in enough],
        OTHER: [list(zip(first, second, strict=False)) for first, second in shuffled],
    }

    def usable(group: list[Two]) -> list[Two]:
        return [two for two in group if min(len(photo.keypoints) for photo in two) > 1]

    return {kind: [kept for group in found if (kept := usable(group))] for kind, found in groups.items()}


def _used(photo: MatcherPhoto, count: int, random: np.random.Generator) -> Tensor:
    """The largest keypoints of a photo, after random changes of size."""
    scale = photo.keypoints.scale[0]
    change = torch.from_numpy(random.random(len(scale)) * random.choice(MIXES)).to(scale)
    return (scale + change).topk(min(count, len(scale))).indices


def make_candidates(
    pairs: Sequence[DrawnPair], config: MatcherConfig, progress: Progress | None = None
) -> CandidateSet:
    """The labelled candidates of these pairs."""
    add, parts = progress_counter(progress, len(pairs)), []
    for kind in (POSE, WARP, OTHER):
        alike = [pair for pair in pairs if pair.kind == kind]
        for start in range(0, len(alike), PAIRS_AT_A_TIME):
            some = alike[start : start + PAIRS_AT_A_TIME]
            parts.append(labelled(some, config.listed, config.top))
            add(len(some))
    return CandidateSet(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(CandidateSet)))


def labelled(pairs: Sequence[DrawnPair], count: int, top: int) -> CandidateSet:
    """Candidates of pairs of one kind, padded to `count`, and their labels."""
    a, b = (Keypoints.joined([pair.photos[side].keypoints.take(pair.used[side]) for pair in pairs]) for side in (0, 1))
    found = candidates(a, b, count, top)
    ends_a, ends_b = _ends(pairs, 0, found.i), _ends(pairs, 1, found.j)
    like = ends_a.theta
    if pairs[0].kind == OTHER:
        labels = torch.full_like(like, WRONG)
    elif pairs[0].kind == POSE:
        cameras = [(first.camera, second.camera) for first, second in (pair.photos for pair in pairs)]
        poses = [relative_pose(one, two) for one, two in cameras if one is not None and two is not None]
        R, t = (torch.from_numpy(np.stack(part)).to(like) for part in zip(*poses, strict=True))
        labels = pose_labels(ends_a, ends_b, R, t)
    else:
        homographies = [two.H @ np.linalg.inv(one.H) for one, two in (pair.photos for pair in pairs)]
        labels = homography_labels(ends_a, ends_b, torch.from_numpy(np.stack(homographies)).to(like))
    labels = labels.masked_fill(~found.is_real, UNKNOWN)

    def padded(tensor: Tensor, value: float = 0) -> Tensor:
        return nnf.pad(tensor, (0, 0) * (tensor.ndim - 2) + (0, count - tensor.shape[1]), value=value)

    places = padded(found.f), padded(found.zi), padded(found.zj), padded(found.a, 1.0)
    return CandidateSet(*places, padded(found.is_real), padded(labels, UNKNOWN))


def _ends(pairs: Sequence[DrawnPair], side: int, index: Tensor) -> Ends:
    """One end of the candidates, which are given by their row among the keypoints used."""
    parts = []
    for pair, rows in zip(pairs, index, strict=True):
        photo, used = pair.photos[side], pair.used[side]
        chosen = used[rows.clamp(max=len(used) - 1)]
        points = photo.keypoints
        u, pixels, depth, middle = torch.view_as_real(points.z[0, chosen]), photo.pixels, points.theta[0, chosen], 1.0
        if pair.kind == POSE and photo.rays is not None and photo.depths is not None:
            u, pixels, depth, middle = photo.rays[chosen], photo.focal, photo.depths[chosen], photo.middle
        sigma = points.scale[0, chosen] + np.log2(photo.pixels * 2 / 1000)
        parts.append((u, points.theta[0, chosen], sigma, u.new_tensor([pixels]), depth, u.new_tensor([middle])))
    return Ends(*(torch.stack(part) for part in zip(*parts, strict=True)))
