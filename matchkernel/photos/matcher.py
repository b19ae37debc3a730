"""An opened matcher, for applications that match many images or the frames of a stream."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.photos.extract import Describer, Image, Model, extract_with, open_describer
from matchkernel.photos.features import Features
from matchkernel.photos.pipeline import ImageMatches, MatchSettings, match_features, photos_at_once, photos_to_align
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.memo import Memo
from matchkernel.storage.pixels import as_gray
from matchkernel.storage.settings import with_options
from matchkernel.storage.work import in_threads, recording, stage

if TYPE_CHECKING:
    import torch

KEPT = 8  # images whose features are kept


@dataclass(frozen=True)
class TrackedFrame:
    """A frame of a stream.

    Attributes:
        features: of the frame.
        tracks: (K,) int64, a number for each keypoint: that of the keypoint of the frame before which it agrees with,
            and a new one otherwise. No two keypoints of a frame have the same.
        found: the matches with the frame before; None for the first frame.
    """

    features: Features
    tracks: np.ndarray
    found: ImageMatches | None


class Matcher:
    """What match_images does, opened once: the network stays in memory, and the features of the last images are kept.

    Several threads may use one matcher. An image that changes on disk, or an array that changes in place, is recognised
    as another one.

    Args:
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        settings: how to match (default: MatchSettings()).
        device: where to run the network and to match (default: the model's device).
        engine: what computes the descriptors (see match_images).
        keep: number of images whose features are kept.
        options: fields of MatchSettings or of its Detector to change, such as keypoints=1000.

    Example:
        >>> import matchkernel
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> with matchkernel.Matcher("tiny", keypoints=300) as matcher:
        ...     found = matcher(FOLDER / "left.png", FOLDER / "right.png")
        ...     frames = list(matcher.track([FOLDER / "left.png", FOLDER / "right.png"]))  # already extracted
        >>> found.geometry, len(frames)
        ('fundamental', 2)
        >>> shared = set(frames[0].tracks) & set(frames[1].tracks)
        >>> len(shared) == found.inliers.sum()
        True
    """

    def __init__(
        self,
        model: Model = PHOTO_MODEL,
        settings: MatchSettings | None = None,
        *,
        device: "str | torch.device | None" = None,
        engine: str = "auto",
        keep: int = KEPT,
        **options: Any,
    ) -> None:
        self.settings = with_options(settings or MatchSettings(), options)
        self._describer: Describer | None = open_describer(model, device=device, engine=engine)
        self.settings.filter.check_recorded(self._describer.name, self._describer.settings)
        self._features = Memo(self._extract, keep)

    def extract(self, image: Image | Features) -> Features:
        """The features of an image, which are kept; Features are returned as they are."""
        self._opened()
        if isinstance(image, Features):
            return image
        if isinstance(image, str | PathLike):
            try:
                facts = Path(image).stat()
            except (OSError, ValueError):
                return self._extract(image)  # which says why it cannot be read
            key = str(image), facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
            return self._features(image, key=key)
        with stage("read"):
            gray = as_gray(image)
            digest = gray.shape, hashlib.sha256(gray.data).digest()
        return self._features(gray, key=digest)

    def __call__(self, a: Image | Features, b: Image | Features, *, align: bool = False) -> ImageMatches:
        """Match two images, as match_images does; with `align` the points of B are aligned with those of A."""
        with recording() as stages:
            with stage("read"):
                images = photos_to_align(a, b, self.settings) if align else None
            threads = photos_at_once(2, self._opened(), self.settings.detector)
            features_a, features_b = in_threads(self.extract, (a, b), threads)
        found = match_features(features_a, features_b, self.settings, device=self._opened().device, align=images)
        return replace(found, seconds=found.seconds | stages.seconds)

    def track(self, frames: Iterable[Image | Features]) -> Iterator[TrackedFrame]:
        """Match each frame with the one before it, and number the keypoints that they share.

        Args:
            frames: images in their order; any number, such as a generator that reads a camera. Each is read when the
                one before it is done, and none is kept longer than `keep` says.
        """
        before: TrackedFrame | None = None
        count = 0
        for image in frames:
            features, found = self.extract(image), None
            tracks = np.full(len(features), -1, np.int64)
            if before is not None:
                found = match_features(before.features, features, self.settings, device=self._opened().device)
                ends_a, ends_b = found.matches.indices[found.inliers].T
                tracks[ends_b] = before.tracks[ends_a]
            is_new = tracks < 0
            tracks[is_new] = np.arange(count, count + is_new.sum())
            count += int(is_new.sum())
            before = TrackedFrame(features, tracks, found)
            yield before

    def close(self) -> None:
        """Release the network and the features; a closed matcher refuses to match."""
        self._describer = None
        self._features = Memo(self._extract, 0)

    def __enter__(self) -> "Matcher":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _opened(self) -> Describer:
        if self._describer is None:
            raise ArgumentError("this matcher is closed: open another one")
        return self._describer

    def _extract(self, image: Image) -> Features:
        return extract_with(image, self._opened(), self.settings.detector)
