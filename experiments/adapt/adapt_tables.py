"""Tables of leave_one_out.py as Markdown, and the way that its rule takes: python adapt_tables.py [--results FOLDER]"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import leave_one_out as study
import numpy as np

from matchkernel.adapt.judge import HARD, MATCHING, RETRIEVAL
from matchkernel.cli.console import run_script

NEEDS_MORE = ("mixed", "mixed fast", "scratch")  # not ways of adapting with the user's photos alone
SHOWN = ("adapted", "remembering", "mixed", "scratch", study.LAPTOP)  # on the page
WITHIN = 0.2  # points of validation that do not decide


def changes(results: dict[str, Any], domain: str, way: str) -> dict[str, np.ndarray] | None:
    """Per seed, in percent: `before` and `after` of retrieval on the test parts, and what changed of everything."""
    found = [results[name] for seed in study.SEEDS if (name := f"{domain} {seed} {way}") in results]
    if not found:
        return None
    own = [f"{scene}, test" for scene in study.DOMAINS[domain]]
    values = {
        name: np.array([_mean(run["scores"], own, name) for run in found]) for name in (RETRIEVAL, MATCHING, HARD)
    }
    elsewhere = np.array([_mean(run["scores"], study.VALIDATION, RETRIEVAL) for run in found])
    validation = 100 * np.array([run["validation"] for run in found])
    return {
        "before": values[RETRIEVAL][:, 0],
        "after": values[RETRIEVAL][:, 1],
        **{name: np.diff(pairs)[:, 0] for name, pairs in values.items()},
        "validation": np.diff(validation)[:, 0],
        "forgotten": np.diff(elsewhere)[:, 0],
    }


def chosen(results: dict[str, Any]) -> str | None:
    """The way that the rule of leave_one_out.py takes; None until every way of every domain and seed is there."""
    gains, kept = {}, {}
    for way in study.WAYS:
        parts = [changes(results, domain, way) for domain in study.DOMAINS]
        if any(part is None or len(part["before"]) < len(study.SEEDS) for part in parts):
            return None
        gains[way] = float(np.mean([part["validation"].mean() for part in parts if part]))
        kept[way] = float(np.mean([part["forgotten"].mean() for part in parts if part]))
    best = max(gain for way, gain in gains.items() if way not in NEEDS_MORE)
    near = [way for way, gain in gains.items() if way not in NEEDS_MORE and gain >= best - WITHIN]
    return max(near, key=lambda way: kept[way])


def choice_table(results: dict[str, Any]) -> list[str]:
    """What the rule looks at: means over all domains and seeds of the ways that need only the user's photos."""
    lines = ["| way | validation | elsewhere |", "|---|---|---|"]
    for way in (way for way in study.WAYS if way not in NEEDS_MORE):
        parts = [part for domain in study.DOMAINS if (part := changes(results, domain, way))]
        means = [np.mean([part[name].mean() for part in parts]) for name in ("validation", "forgotten")]
        lines.append(f"| {way} | {means[0]:+.2f} | {means[1]:+.2f} |")
    return lines


def table(results: dict[str, Any], ways: Sequence[str]) -> list[str]:
    """Means over scenes and seeds; ± over seeds."""
    lines = [
        "| domain | way | validation | test: before | after | retrieval | found first | FPR@95, hard | elsewhere |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for domain in study.DOMAINS:
        for way in ways:
            part = changes(results, domain, way)
            if part is None:
                continue
            cells = [_spread(part["validation"]), f"{part['before'].mean():.1f}", f"{part['after'].mean():.1f}"]
            cells += [_spread(part[name]) for name in (RETRIEVAL, MATCHING, HARD, "forgotten")]
            lines.append(f"| {domain} | {way} | {' | '.join(cells)} |")
    return lines


def scene_table(results: dict[str, Any], ways: Sequence[str]) -> list[str]:
    """Retrieval on the test part of each scene: mean change, and how many seeds are better or worse beyond chance."""
    lines = [f"| scene | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    for domain, scenes in study.DOMAINS.items():
        for scene in scenes:
            cells = []
            for way in ways:
                names = [f"{domain} {seed} {way}" for seed in study.SEEDS]
                runs = [results[name]["scores"][f"{scene}, test"] for name in names if name in results]
                cells.append(_counted([gain for run in runs for gain in run if gain["measure"] == RETRIEVAL]))
            lines.append(f"| {scene} | {' | '.join(cells)} |")
    return lines


def _counted(gains: Sequence[dict[str, Any]]) -> str:
    if not gains:
        return ""
    mean = 100 * float(np.mean([gain["after"] - gain["before"] for gain in gains]))
    counts = [(word, sum(gain["verdict"] == word for gain in gains)) for word in ("better", "worse")]
    return ", ".join([f"{mean:+.2f}", *(f"{count} {word}" for word, count in counts if count)])


def _mean(scores: dict[str, Any], places: Any, measure: str) -> np.ndarray:
    """(2,) before and after, mean over places, in percent."""
    gains = [gain for place in places for gain in scores[place] if gain["measure"] == measure]
    return 100 * np.mean([(gain["before"], gain["after"]) for gain in gains] or [(np.nan, np.nan)], axis=0)


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():+.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


def main() -> None:
    """Print the table and the choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=study.RESULTS)
    results = study.read_results(parser.parse_args().results / "adapt.json")
    print(*table(results, (*study.WAYS, study.LAPTOP)), sep="\n")
    print(*scene_table(results, SHOWN), sep="\n")
    print(*choice_table(results), sep="\n")
    print(f"chosen by the rule: {chosen(results) or 'not all results are there'}")


if __name__ == "__main__":
    run_script(main)
