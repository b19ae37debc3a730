"""Which candidate matches are right: by the cameras and depths of a COLMAP model, or by a known homography."""

from dataclasses import dataclass

import torch
from torch import Tensor

RIGHT, WRONG, UNKNOWN = 1.0, 0.0, -1.0
PIXELS, PER_SIGMA = 2.0, 0.15  # tolerance: large keypoints are placed less exactly
# A right candidate has at most the first value of each, a wrong one more than the second of at least one.
EPIPOLAR = (1.0, 2.0)  # Sampson distance, in tolerances
TRANSFER = (2.0, 4.0)  # distance from where depth or homography carries the keypoint, in tolerances
TURN = (0.7, 1.2)  # radians
OCTAVES = (1.2, 2.0)  # of scale
BEHIND = 1e6  # place of a point behind the camera


@dataclass(frozen=True)
class Ends:
    """The keypoints of candidates in one photo, (B, C) each.

    Attributes:
        u: (B, C, 2) rays x / z, y / z, or places for a homography; NaN where a camera has none.
        theta: orientation.
        sigma: log2 of the scale in pixels.
        pixels: (B, 1) pixels per unit of u.
        depth: NaN where not known; not used by homographies, nor is `middle`.
        middle: (B, 1) a typical depth of the photo, to carry directions where the depth is not known.
    """

    u: Tensor
    theta: Tensor
    sigma: Tensor
    pixels: Tensor
    depth: Tensor
    middle: Tensor


@dataclass(frozen=True)
class Carried:
    """Keypoints of one photo carried to the other: places u, orientation, and log2 of the factor of lengths in u."""

    u: Tensor
    theta: Tensor
    stretch: Tensor
    is_known: Tensor  # False where u is only a guess


def through_pose(ends: Ends, R: Tensor, t: Tensor) -> Carried:
    """Keypoints at their depths, seen by the other camera: x' = R x + t, with R (B, 3, 3) and t (B, 3)."""
    is_known = ends.depth.isfinite()
    z = torch.where(is_known, ends.depth, ends.middle)
    x = torch.cat([ends.u.nan_to_num(), torch.ones_like(z)[..., None]], -1) * z[..., None]
    direction = torch.stack([ends.theta.cos(), ends.theta.sin(), torch.zeros_like(z)], -1) * z[..., None]
    moved = x @ R.transpose(-1, -2) + t[:, None]
    return _projected(moved, direction @ R.transpose(-1, -2), moved[..., 2] > 1e-3 * z.abs(), is_known)


def through_homography(ends: Ends, H: Tensor) -> Carried:
    """Keypoints carried by H (B, 3, 3), whose third coordinate is positive on the photo."""
    x = torch.cat([ends.u, torch.ones_like(ends.u[..., :1])], -1) @ H.transpose(-1, -2)
    direction = torch.stack([ends.theta.cos(), ends.theta.sin()], -1) @ H[:, :, :2].transpose(-1, -2)
    is_in_front = x[..., 2] > 1e-6
    return _projected(x, direction, is_in_front, is_in_front)


def _projected(x: Tensor, direction: Tensor, is_in_front: Tensor, is_known: Tensor) -> Carried:
    """Divide by the third coordinate: u = x / w, du = (dx - u dw) / w."""
    w = torch.where(is_in_front, x[..., 2], torch.ones_like(x[..., 2]))[..., None]
    u = x[..., :2] / w
    du = (direction[..., :2] - u * direction[..., 2:]) / w
    stretch = du.norm(dim=-1).clamp(min=1e-6).log2()
    u = torch.where(is_in_front[..., None], u, torch.full_like(u, BEHIND))
    return Carried(u, torch.atan2(du[..., 1], du[..., 0]), stretch, is_known)


def pose_labels(a: Ends, b: Ends, R: Tensor, t: Tensor) -> Tensor:
    """(B, C) labels of candidates between two photos with x_b = R x_a + t.

    A candidate is right if it lies near its epipolar line, is where the known depths carry it, and has the orientation
    and scale that they predict; wrong if one of these is clearly violated; otherwise unknown.
    """
    back = R.transpose(-1, -2)
    carried = through_pose(a, R, t), through_pose(b, back, -(back @ t[..., None])[..., 0])
    labels = _judged(a, b, *carried, _sampson(a, b, R, t))
    return torch.where((a.u + b.u).isfinite().all(-1), labels, UNKNOWN)


def homography_labels(a: Ends, b: Ends, H: Tensor) -> Tensor:
    """(B, C) labels of candidates between two views of a plane; those carried behind it are wrong."""
    ab, ba = through_homography(a, H), through_homography(b, torch.linalg.inv(H))
    return _judged(a, b, ab, ba, torch.where(ab.is_known & ba.is_known, 0.0, torch.inf))


def _judged(a: Ends, b: Ends, ab: Carried, ba: Carried, sampson: Tensor) -> Tensor:
    """Labels from the places that both keypoints are carried to, and the distance to the epipolar line in pixels."""
    misses = [
        torch.where(carried.is_known, (carried.u - ends.u).norm(dim=-1) * ends.pixels, -torch.inf)
        for carried, ends in ((ab, b), (ba, a))
    ]
    miss = torch.maximum(*misses)  # -inf where neither depth is known
    turn = torch.remainder(ab.theta - b.theta + torch.pi, 2 * torch.pi) - torch.pi
    octaves = a.sigma + ab.stretch + (b.pixels / a.pixels).log2() - b.sigma
    tolerance = PIXELS + PER_SIGMA * torch.maximum(a.sigma, b.sigma).exp2()
    measures = (
        (sampson / tolerance, EPIPOLAR),
        (miss / tolerance, TRANSFER),
        (turn.abs(), TURN),
        (octaves.abs(), OCTAVES),
    )
    is_right = torch.stack([value < low for value, (low, _) in measures]).all(0)
    is_wrong = torch.stack([value > high for value, (_, high) in measures]).any(0)
    labels = torch.full_like(sampson, UNKNOWN)
    return labels.masked_fill(is_right, RIGHT).masked_fill(is_wrong, WRONG)


def _sampson(a: Ends, b: Ends, R: Tensor, t: Tensor) -> Tensor:
    """(B, C) Sampson distances of rays, in pixels of the mean focal length (see geometry.two_view)."""
    E = torch.linalg.cross(t[:, :, None].expand_as(R), R, dim=1)  # [t]x R
    ones = torch.ones_like(a.theta)[..., None]
    x, y = torch.cat([a.u.nan_to_num(), ones], -1), torch.cat([b.u.nan_to_num(), ones], -1)
    lines_b, lines_a = x @ E.transpose(-1, -2), y @ E
    gradient = (lines_b[..., :2] ** 2).sum(-1) + (lines_a[..., :2] ** 2).sum(-1)
    return (lines_b * y).sum(-1).abs() / gradient.clamp(min=1e-20).sqrt() * (a.pixels + b.pixels) / 2
