"""The sentences with which a report on photos begins: is it fair, who is too close to tell, who finds how much more."""

from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scores import difference, pairs_with
from matchkernel.evaluation.tables import SHOWN
from matchkernel.evaluation.uncertainty import too_few

FASTER = 1.5  # times as fast: worth a word
FOUND = {"poses": "camera poses", "homographies": "homographies"}
WITHIN = {"poses": "1° to 10°", "homographies": "3 px"}
MOST_NAMES, MOST_GAINS = 5, 3  # in a sentence

Results = Mapping[str, Mapping[str, Any]]  # by label, all on the same scenes


def headline(kind: str, results: Results) -> str:
    """What was found by results on the same scenes, in words for everybody; `kind` is poses or homographies."""
    name, said = SHOWN[kind], _fairness(kind, results)
    what = FOUND[kind]
    best, *others = ordered(kind, results)
    try:
        gains = {label: difference(results[best], results[label], name) for label in others}
    except ArgumentError:  # scored on other pairs
        return " ".join(said)
    pairs, scenes = pairs_with(results[best], name), list(scenes_of(kind, results))
    few = too_few(pairs)
    close = [best, *(label for label in others if gains[label].low <= 0)]
    ahead = [label for label in others if gains[label].low > 0]
    ahead.sort(key=lambda label: results[label]["descriptor"] != "rootsift")  # which most people know
    if few:
        asked = f"Which finds more {what}" if others else f"How many {what} {best} finds"
        said += [f"{asked}: {few}.", *_faster(results, [best, *others])]
    elif not others:
        said.append(f"{best} finds {100 * results[best]['mean'][name]['mean']:.0f} % of the {what}.")
    if len(close) > 1:
        said += [f"{listed(close)} are too close to tell apart in finding {what}.", *_faster(results, close)]
    if ahead:
        told = [
            f"{_points(gains[x].mean)} more than {x}{_pace(_longer(results, best, x))} "
            f"(95 % interval: {_points(gains[x].low)} to {_points(gains[x].high)})"
            for x in ahead
        ]
        more = [f"more than {counted(len(told) - MOST_GAINS, 'other')}"] if len(told) > MOST_GAINS else []
        said.append(f"Of 100 {what}, {best} finds {listed([*told[:MOST_GAINS], *more])}.")
    where = f"one scene ({scenes[0]})" if len(scenes) == 1 else f"{len(scenes)} scenes"
    measured = f"Measured on {counted(pairs, 'pair')} of photos of {where}; found means right to within {WITHIN[kind]}."
    return " ".join([*said, measured])


def _fairness(kind: str, results: Results) -> list[str]:
    """A warning where methods were trained on what they are scored on."""
    names = list(scenes_of(kind, results))
    seen = {
        label: [name for name in names if name in result.get("trained_on", ())] for label, result in results.items()
    }
    known = [label for label, found in seen.items() if found]
    places = [name for name in names if any(name in found for found in seen.values())]
    were = f"{listed(known)} {'were' if len(known) > 1 else 'was'} trained on" if known else ""
    if known and all(len(seen[label]) == len(names) for label in known):
        what = "comparison" if len(results) > 1 else "score"
        return [f"No fair {what}: {were} these photos ({listed(places)}); measure on other photos."]
    share = f"{len(places)} of {len(names)} scenes"
    return [f"Not quite fair: {were} {listed(places)}, {share}, and scores there are too high."] if known else []


def _faster(results: Results, labels: Sequence[str]) -> list[str]:
    """How much faster the fastest of these is than the slowest, if that is worth a word."""
    by_seconds = sorted(timed(results, labels), key=lambda label: results[label]["seconds"]["per_image"])
    if not by_seconds:
        return []
    fastest, slowest = by_seconds[0], by_seconds[-1]
    times = _longer(results, slowest, fastest)
    return [f"{fastest} is {times:.1f} times as fast as {slowest}."] if times >= FASTER else []


def _pace(longer: float) -> str:
    """At what cost in time more is found, if that is worth a word."""
    if longer >= FASTER:
        return f" at {longer:.1f} times the time"
    return f" at {1 / longer:.1f} times the speed" if longer <= 1 / FASTER else ""


def _longer(results: Results, one: str, other: str) -> float:
    """How many times as long as another a method takes for a photo; 1 if this was not measured alike."""
    both = results[one], results[other]
    where = {(str(result.get("machine")), result["seconds"].get("threads")) for result in both}
    if len(where) > 1 or len(timed(results, (one, other))) < 2:
        return 1.0
    mine, theirs = (max(result["seconds"]["per_image"], 1e-5) for result in both)
    return float(mine / theirs)


def timed(results: Results, labels: Sequence[str]) -> list[str]:
    """Those whose seconds for a photo were measured."""
    return [label for label in labels if results[label]["seconds"]["per_image"] is not None]


def ordered(kind: str, results: Results) -> list[str]:
    """Labels, the best first."""
    return sorted(results, key=lambda label: (-results[label]["mean"][SHOWN[kind]]["mean"], label))


def scenes_of(kind: str, results: Results) -> dict[str, Any]:
    """The scenes of this kind, which are the same in all results."""
    return {name: scene for name, scene in next(iter(results.values()))["scenes"].items() if scene["kind"] == kind}


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; of many the first ones and how many others."""
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} others"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def counted(count: int, what: str) -> str:
    """`1 pair`, `12 pairs`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def _points(share: float) -> str:
    """In percent, rounded, with a decimal where nothing else is left."""
    text = f"{100 * share:.0f}"
    return text if text.strip("-0") else f"{100 * share:.1f}"
