"""What homographies of photo pairs tell of descriptors, and what they do not: both trainings of the shipped models."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import numpy as np
from gather import percent, signed
from image_pairs import PAIRS, RIVALS, machine, means_of_sequences
from jobs import AGAIN
from tables import markdown

TRAINED_AGAIN = PAIRS.with_name("matching_test_again.json")  # second trainings of the package's models
OURS, THEIRS = "dual", "fc"  # the default, and what it is compared with pair by pair
COLUMN = "H 3 px"
FEW = 50  # right matches
DRAWS = 10_000  # of as many sequences as there are, with replacement

TABLE = "A second training of each (seed 1), with its own calibrated distance:"
WORDS = """Homographies hardly tell descriptors apart. {outcomes}; the published homographies of bark and wall, of
which there are some among these, are about 1 px off, that of boat 1–6 about 2. {differing}. {differing_again}.
Means of both trainings within 3 px: {means}. Over {draws:,} draws of the sequences with replacement, 95 of 100
differences of `dual` lie {intervals}. Within 1 and 5 px the order is another (table above). The size of regions
was chosen by right matches; by homographies of the validation sequences a smaller one would have been
([match.md](match.md#choices))."""

Pairs = dict[tuple[str, int], dict[str, dict]]  # (sequence, image) -> descriptor -> what was measured


def homographies_section(path: Path, again: Path) -> list[str]:
    """The table of both trainings, and what it means; nothing where they are not both there."""
    if not (path.exists() and again.exists()):
        return []
    first, second = read_pairs(path), read_pairs(again)
    both = {place: [first[place], second[place]] for place in first}
    means = {name: fmean(per_sequence(both, name).values()) for name in (OURS, *RIVALS)}
    found = {rival: interval(both, rival) for rival in RIVALS}
    words = WORDS.format(
        draws=DRAWS,
        outcomes=outcomes(first),
        differing=differing(first, "Seed 0"),
        differing_again=differing(second, "Seed 1"),
        means=", ".join(f"`{name}` {percent(mean, 1)}" for name, mean in means.items()),
        intervals=", ".join(f"from {signed(low)} to {signed(high)} to `{name}`" for name, (low, high) in found.items()),
    )
    return [TABLE, trained_twice(path, again), f"*{machine(again)}*", words]


def read_pairs(path: Path) -> Pairs:
    """All pairs of a file, descriptors by their names without a seed."""
    found: Pairs = defaultdict(dict)
    for pair in json.loads(path.read_text(encoding="utf-8"))["pairs"]:
        found[pair["sequence"], pair["image"]][pair["model"].removesuffix(AGAIN)] = pair
    return dict(found)


def trained_twice(path: Path, again: Path) -> str:
    """Right matches and homographies within 3 px of both trainings."""
    first, second = means_of_sequences(path), means_of_sequences(again)
    rows = []
    for model, mean in first.items():
        if (other := second.get(f"{model}{AGAIN}")) is not None:
            right = [f"{m['right']:.1f}" for m in (mean, other)]
            rows.append([f"`{model}`", *right, *(percent(m[COLUMN], 1) for m in (mean, other))])
    head = ["descriptor", "right matches", "trained again", "homography within 3 px, %", "trained again"]
    return markdown(head, rows)


def outcomes(pairs: Pairs) -> str:
    """How many pairs come out right whatever the order of the matches, and how many never do."""
    always = [place for place, of in pairs.items() if of[OURS][COLUMN] == 1]
    never = {name: {place for place, of in pairs.items() if of[name][COLUMN] == 0} for name in (OURS, THEIRS)}
    right = sorted(pairs[place][OURS]["right"] for place in never[OURS])
    few, many = [n for n in right if n < FEW], [n for n in right if n >= FEW]
    rest = f", the other {len(many)} have {many[0]} to {many[-1]}" if many else ""
    return (
        f"Of {len(pairs)} pairs `{OURS}` is within 3 px in {len(always)} for each order of the matches and in"
        f" {len(never[OURS])} for none; `{THEIRS}` fails in {len(never[OURS] & never[THEIRS])} of these too."
        f" {len(few)} of them have fewer than {FEW} right matches{rest}"
    )


def differing(pairs: Pairs, which: str) -> str:
    """Which pairs tell two descriptors apart, in words."""
    won = [f"{name} 1–{k}" for (name, k), of in pairs.items() if of[OURS][COLUMN] > of[THEIRS][COLUMN]]
    lost = [f"{name} 1–{k}" for (name, k), of in pairs.items() if of[OURS][COLUMN] < of[THEIRS][COLUMN]]
    words = [f"`{who}` is better in {', '.join(names) or 'none'}" for who, names in ((OURS, won), (THEIRS, lost))]
    return f"{which}: {', '.join(words)}"


def per_sequence(both: dict[tuple[str, int], list[dict[str, dict]]], name: str) -> dict[str, float]:
    """The mean of each sequence over its pairs and the trainings there are."""
    cells: dict[str, list[float]] = defaultdict(list)
    for (sequence, _), trainings in both.items():
        cells[sequence].append(fmean(of[name][COLUMN] for of in trainings if name in of))
    return {sequence: fmean(values) for sequence, values in cells.items()}


def interval(both: dict[tuple[str, int], list[dict[str, dict]]], theirs: str) -> tuple[float, float]:
    """Between what ours less theirs lies for 95 of 100 draws of the sequences."""
    a, b = (per_sequence(both, name) for name in (OURS, theirs))
    draws = np.random.default_rng(0).choice([a[name] - b[name] for name in a], (DRAWS, len(a))).mean(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
