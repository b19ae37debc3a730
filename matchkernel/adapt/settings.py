"""How weights are adapted."""

from dataclasses import dataclass

from matchkernel.storage.settings import check_ranges, setting


@dataclass(frozen=True)
class AdaptSettings:
    """What is adapted, for how long, and how.

    Attributes:
        base: weights to adapt, a file or a name of the package's.
        minutes: of training; reconstructing, cutting and scoring come on top.
        layers: what goes on learning: "all", "last" (the last convolution and the head), or "head".
        rate: learning rate after a warm-up of a tenth of the updates; it falls to 0.
        pairs: pairs of patches per update; fewer where there are fewer points.
        remember: weight of the distance of each row to the one that the base gives the same patch; 0 disables it.
        mix: patch sets that half of the pairs come from, such as those the base was trained on.
        check: patch sets on which to measure what is forgotten.
        keep: write the adapted weights even if they are no better.
        geometric: look for positives that no track contains, which takes longer to cut.
        seed: of everything random.
    """

    base: str = "light"
    minutes: float = setting(10.0, above=0, high=10_000, about="minutes of training")
    layers: str = setting("all", choices=("all", "last", "head"))
    rate: float = setting(0.1, above=0, high=1e6, about="highest learning rate")
    pairs: int = setting(512, low=2, high=2**16, about="pairs of patches per update")
    remember: float = setting(1.0, low=0, high=1e6, about="weight of staying near the base; 0 for none")
    mix: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    keep: bool = False
    geometric: bool = True
    seed: int = setting(0, low=0, high=2**62)

    def __post_init__(self) -> None:
        check_ranges(self)
