"""Guided matching as a method of evaluate_photos: matches by ratio, an epipolar geometry, and matching again."""

from dataclasses import dataclass, replace

from matchkernel.evaluation.photos.methods import PhotoMethod
from matchkernel.evaluation.photos.work import MethodSpec
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.guided import guided_matches
from matchkernel.photos.verify import verify

GUIDED = "guided:"


@dataclass(frozen=True)
class GuidedSpec(MethodSpec):
    """A method whose filter finds the first matches."""

    def open(self) -> PhotoMethod:
        """The method; its features are those of the plain one."""
        plain = super().open()

        def match_pair(a: Features, b: Features) -> Matches:
            first = plain.match(a, b)
            ends = a.keypoints[first.indices[:, 0]], b.keypoints[first.indices[:, 1]]
            found = verify(*ends, "fundamental", size_b=b.image_size)
            return first if found.model is None else guided_matches(a, b, found.model, "fundamental", first=first)

        settings = {**plain.settings, "filter": f"guided, first {plain.settings['filter']}"}
        return replace(plain, settings=settings, match=match_pair)
