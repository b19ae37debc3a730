"""The defaults of the package, what was tried beside each, and what was decided: a table of docs/results.md."""

from dataclasses import dataclass

from ablations import POSITIVES_BASE
from choices import BASE, ENOUGH, differences, seed_spread
from gather import Everything, Results, by_name, percent, signed
from jobs import KAPPAS
from tables import markdown

NO_NORM = "the paper has none; our shipped models have it, on the hint that each try was above, none beyond the limit"

DEFAULTS = """### Defaults, and why

Differences are of matching on the validation sequences, to the default; `base` has two seeds, the others one. A default
is changed for a gain of more than {limit}, {times} standard deviations of `base`: the luckiest of a dozen others is
about two above their mean by chance alone, and what `base` itself is off by, all its rows share (most lie above it).
The half side of regions is 6 σ in patch sets and 8 σ in images, chosen by matching images
([there](#magnification-of-the-region), [match.md](match.md#choices)); training on more than 6 σ was tried with the
[recipe of the shipped models](#larger-regions)."""


@dataclass(frozen=True)
class Default:
    """A switch, its default, and the ablations that tried others.

    Attributes:
        switch: in words.
        value: the default.
        base: the ablation that has the default.
        others: ablations that differ from it in this switch alone.
        kept: why it stays where no other gains enough.
        changed: what was done where one does.
    """

    switch: str
    value: str
    base: str
    others: tuple[str, ...]
    kept: str
    changed: str = "not settled"


def kappa(s: int, default: int) -> Default:
    """The default kappa for s frequencies."""
    names = {k: BASE if (s, k) == (2, 8) else f"kappa-s{s}-{k}" for k in KAPPAS}
    others = tuple(name for k, name in names.items() if k != default)
    kept = (
        "a wide kernel, which one frequency can follow"
        if default == 1
        else "that of MKD, the hand-crafted kernel descriptor before it"
    )
    return Default(f"κ, s = {s}", str(default), names[default], others, kept)


SWITCHES = (
    kappa(1, 1),
    kappa(2, 8),
    kappa(3, 8),
    Default("s of `dual`", "2", BASE, ("kappa-s1-1", "kappa-s3-8"), "the paper's best"),
    Default("norm before M, s = 1", "none", "kappa-s1-1", ("encoding-norm-s1",), NO_NORM),
    Default("norm before M, s = 2", "none", BASE, ("encoding-norm-s2",), NO_NORM),
    Default("BatchNorm after M", "yes", BASE, ("output-norm-none",), "HardNet has it"),
    Default("dropout", "0", BASE, ("dropout-0.1", "dropout-0.3"), "simpler without"),
    Default("BatchNorm statistics of anchors and positives", "separate", BASE, ("statistics-joint",), "HardNet's way"),
    Default(
        "geometric augmentation",
        "the preset's",
        BASE,
        ("geometry-none", "geometry-half", "geometry-double"),
        "a guess that stood",
    ),
    Default(
        "photometric augmentation",
        "none",
        BASE,
        ("photometric-half", "photometric-whole", "photometric-double"),
        "the paper has none",
    ),
    Default(
        "pairs a batch",
        "512",
        BASE,
        ("pairs-1024", "pairs-2048", "pairs-4096"),
        "the paper's",
        "the preset `paper` stays the paper's; the recipe of our shipped models takes more",
    ),
    Default("positives", "geometric ones too", POSITIVES_BASE, ("positives-tracks",), "more patches"),
)


def defaults_section(everything: Everything) -> list[str]:
    """The table, with what was measured so far; nothing while `base` has no spread."""
    results = everything.get("ablation", {})
    spread = seed_spread(results)
    if spread is None:
        return []
    rows = [row for default in SWITCHES if (row := _row(default, results, ENOUGH * spread))]
    words = DEFAULTS.format(limit=percent(ENOUGH * spread), times=ENOUGH)
    return [words, markdown(["switch", "default", "others tried", "decided"], rows)]


def _row(default: Default, results: Results, enough: float) -> list[str] | None:
    if default.base not in by_name(results):
        return None
    gains = differences(results, default.base)
    tried = {name: gains[name] for name in default.others if name in gains}
    if not tried:
        return None
    left = len(default.others) - len(tried)
    words = [f"`{name}` {signed(gain)}" for name, gain in tried.items()] + ([f"{left} not run yet"] if left else [])
    is_beaten = max(tried.values()) > enough
    decided = default.changed if is_beaten else f"{'so far ' if left else ''}kept: {default.kept}"
    return [default.switch, default.value, ", ".join(words), decided]
