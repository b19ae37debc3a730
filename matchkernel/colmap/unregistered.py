"""Why a photo is in no model, in one sentence each, with what to try next."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from matchkernel.colmap.converted import name_in_model, photo_names
from matchkernel.colmap.database import (
    MatchedPair,
    count_keypoints,
    read_image_names,
    read_inliers,
    read_matched_pairs,
)
from matchkernel.colmap.model import NO_POINT, read_reconstruction
from matchkernel.storage.photo_folders import first_names

ENOUGH_MATCHES = 15  # COLMAP's limit for a pair of photos
ENOUGH_POINTS = 30  # COLMAP's limit for the pose of a photo
ENOUGH_KEYPOINTS = 50


@dataclass(frozen=True)
class Outcome:
    """The database and the models that COLMAP made of photos."""

    database: Path
    models: Sequence[Path]
    tried: Collection[tuple[str, str]]  # pairs that were chosen for matching
    # For some of these, the names of both photos and (M, 2) rows; COLMAP's database forgets them if there are few.
    matches: Callable[[Sequence[tuple[str, str]]], Iterable[tuple[str, str, np.ndarray]]]
    photos: Collection[str]
    masked: Collection[str] = ()  # photos that have a mask

    def why(self, name: str) -> str:
        """A sentence about a photo that was given to COLMAP and is in no model."""
        if (count := self._keypoints.get(name, 0)) < ENOUGH_KEYPOINTS:
            found = f"only {count} keypoints were found" if count else "no keypoints were found"
            if name in self.masked:
                return f"{found} outside its mask: is the mask inverted? 0 hides"
            return f"{found}: is it blank, dark or blurred? try --contrast 0.005, or take it again"
        tried = [pair for pair in self.tried if name in pair]
        if not tried:
            return "no pair with it was tried; add pairs with --pairs, such as --pairs all"
        counts = {a if b == name else b: len(rows) for a, b, rows in self.matches(tried)}
        most = max(counts, key=lambda other: counts[other], default="")
        best = f"{counts[most]} matches (with {most})" if most else "0 matches"
        if not most or counts[most] < ENOUGH_MATCHES:
            return (
                f"at most {best}: it does not seem to show what the others show; photograph the way to it in small"
                " steps, or leave it out"
            )
        verified = [pair for pair in self._pairs[name] if pair.inliers]
        if not verified:
            return (
                f"{best}, but too few agree on one position of the camera; things that move or repeat"
                " look alike: photograph what stands still, from nearer, or leave it out"
            )
        return self._why_not_placed(name, verified)

    @cached_property
    def _pairs(self) -> dict[str, list[MatchedPair]]:
        """The pairs with matches of each photo, most inliers first."""
        found, pairs = defaultdict(list), read_matched_pairs(self.database)
        named = photo_names({name for pair in pairs for name in pair.images}, self.photos)
        for pair in sorted(pairs, key=lambda pair: -pair.inliers):
            images = (named[pair.images[0]], named[pair.images[1]])
            for name in images:
                found[name].append(replace(pair, images=images))
        return found

    @cached_property
    def _points(self) -> dict[str, np.ndarray]:
        """The 3-D points of the keypoints of each photo that is in a model."""
        read = (read_reconstruction(folder) for folder in self.models)
        found = {image.name: image.points for model in read for image in model.images.values()}
        named = photo_names(found, self.photos)
        return {named[name]: points for name, points in found.items()}

    @cached_property
    def _keypoints(self) -> dict[str, int]:
        found = count_keypoints(self.database)
        named = photo_names(found, self.photos)
        return {named[name]: count for name, count in found.items()}

    def _why_not_placed(self, name: str, verified: Sequence[MatchedPair]) -> str:
        """Why a photo that agrees with others has no pose."""
        others = [_other(pair, name) for pair in verified]
        placed = [other for other in others if other in self._points]
        if not placed:
            group = sorted(self._group(name) - {name})
            more = "take more photos there, from several places, and on the way to the others"
            return f"it agrees only with {first_names(group)}, not in a model either: {more}"
        points = self._points_seen(name, placed)
        if points < ENOUGH_POINTS:
            return (
                f"it shows {points} points of the model (with {first_names(placed)}), {ENOUGH_POINTS} are needed; take"
                " a photo between, or try --keypoints 16000 or --pairs all"
            )
        return (
            f"it shows {points} points of the model (with {first_names(placed)}), but no position of the camera agrees"
            " with them; is it mirrored, cropped or zoomed? give its camera, or take it again"
        )

    def _points_seen(self, name: str, placed: Sequence[str]) -> int:
        """The number of keypoints of a photo that match a 3-D point of another one."""
        seen = set()
        known = read_image_names(self.database)
        others = {name_in_model(other, known): other for other in placed}
        for other, rows in read_inliers(self.database, name_in_model(name, known), others).items():
            seen.update(rows[self._points[others[other]][rows[:, 1]] != NO_POINT, 0].tolist())
        return len(seen)

    def _group(self, name: str) -> set[str]:
        """The photos in no model that agree with a photo, or with one of these."""
        found, waiting = {name}, [name]
        while waiting:
            one = waiting.pop()
            new = {_other(pair, one) for pair in self._pairs[one] if pair.inliers} - found - self._points.keys()
            found |= new
            waiting += new
        return found


def _other(pair: MatchedPair, name: str) -> str:
    return pair.images[1] if pair.images[0] == name else pair.images[0]


def why_skipped(reason: str) -> str:
    """What to do about a photo that could not be used, after the reason that its error names."""
    advice = {
        "pip install": "",
        "mask": "; mend its mask, or remove it",
        "100,000,000": "; make it smaller",
    }
    return reason + next((text for part, text in advice.items() if part in reason), "; copy it again, or leave it out")
