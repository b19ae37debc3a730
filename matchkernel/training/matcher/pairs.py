"""Pairs of photos drawn for training, and their candidates with labels, made once before training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import permutations

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
    """Pairs of the three kinds; a kind for which there are no photos is left out, as are photos without keypoints."""
    random = np.random.default_rng([config.seed, len(photos)])
    usable = {place for place, (photo, *_) in photos.items() if len(photo.keypoints) > 1}
    names = {scene.name: [name for name in scene.scene.images if (scene.name, name) in usable] for scene in scenes}
    names = {scene: found for scene, found in names.items() if found}
    posed = [[((s.name, a), (s.name, b)) for a, b in s.scene.pairs] for s in scenes]
    posed = [found for pairs in posed if (found := [pair for pair in pairs if usable.issuperset(pair)])]
    weights = np.sqrt([len(pairs) for pairs in posed])  # of scenes: large ones do not crowd out others
    places = [set(text.split()) for text in config.same_place]
    unrelated = [two for two in permutations(names, 2) if not any(place.issuperset(two) for place in places)]
    enough = [[part for part in parts if len(part.keypoints) >= config.fewest] for parts in photos.values()]
    copies = [parts for parts in enough if len(parts) > 1]

    def draw(kind: str) -> Two:
        if kind == WARP:
            parts = copies[random.integers(len(copies))]
            one, two = random.choice(len(parts), 2, replace=False)
            return parts[one], parts[two]
        if kind == OTHER:
            two_scenes = unrelated[random.integers(len(unrelated))]
            a, b = ((scene, names[scene][random.integers(len(names[scene]))]) for scene in two_scenes)
        else:
            pairs = posed[random.choice(len(posed), p=weights / weights.sum())]
            a, b = pairs[random.integers(len(pairs))][:: random.choice((1, -1))]
        return photos[a][0], photos[b][0]

    def used(photo: MatcherPhoto, count: int) -> Tensor:
        size = photo.keypoints.scale[0].cpu() + torch.from_numpy(
            random.random(len(photo.keypoints)) * random.choice(MIXES)
        )
        return size.topk(min(count, len(size))).indices.to(photo.keypoints.z.device)

    counts = {
        POSE: config.pose_pairs if posed else 0,
        WARP: config.warp_pairs if copies else 0,
        OTHER: config.other_pairs if unrelated else 0,
    }
    drawn = []
    for kind in (kind for kind, count in counts.items() for _ in range(count)):
        two, count = draw(kind), int(random.choice(config.used))
        drawn.append(DrawnPair(kind, two, (used(two[0], count), used(two[1], count))))
    if not drawn:
        raise ArgumentError("no pairs to train on: give photos of several scenes, or pose_pairs or warp_pairs above 0")
    return drawn


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
