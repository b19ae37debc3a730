"""Compare the tables of the reports, of the docs and of the README with the stored results.

python experiments/check_reports.py

A checked table lies between `<!-- table: NAME -->` and `<!-- end -->` in a page of experiments/reports or docs, or in
the README.
`reports/tables.json` says how its cells follow from the files of experiments/results: a row has a source `FILE/JOB`,
all trainings of a model, and a column a formula, the name of a function below with its arguments; "{}" in them is the
source of the row. Cells of a column without a formula are not checked, such as names. Exits with 1 if a cell differs.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "paper"))
import verdict_rates
import verdicts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
BLOCK = re.compile(r"<!-- table: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)
TASKS = ("verification", "matching", "retrieval")
SEQUENCES, DRAWS = 6, 10_000  # validation sequences with known changes; bootstrap samples


@cache
def read(name: str) -> dict[str, Any]:
    """A file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@cache
def trainings(source: str) -> list[dict[str, Any]]:
    """The scores of all trainings of FILE/JOB, by seed."""
    file, job = source.split("/", 1)
    found = [job] if job in read(file) else []
    found += sorted(name for name in read(file) if re.fullmatch(re.escape(job) + r"-seed\d+", name))
    if not found:
        raise KeyError(f"{file}.json has no results of {job}")
    return [read(file)[name].get("scores", read(file)[name]) for name in found]


def look(found: Any, path: str) -> float:
    """The number at a path of keys, `a/b`; `*` stands for the mean over all keys."""
    key, _, rest = path.partition("/")
    if key == "*":
        return fmean(look(part, rest) for part in found.values())
    return look(found[key], rest) if rest else found[key]


def values(source: str, path: str) -> list[float]:
    """A score of every training, in percent."""
    return [100 * look(scores, path) for scores in trainings(source)]


def signed(difference: float, digits: int = 2) -> str:
    """A difference with its sign."""
    return f"{difference:+.{digits}f}".replace("-", "−")


# Formulas of cells: scores of models


def mean(source: str, path: str, digits: int = 2, scale: float = 1.0) -> str:
    """The mean over trainings."""
    return f"{scale * fmean(values(source, path)):.{digits}f}"


def first(source: str, path: str) -> str:
    """The score of the first training."""
    return f"{values(source, path)[0]:.2f}"


def every(source: str, path: str) -> str:
    """The scores of all trainings."""
    return " / ".join(f"{value:.2f}" for value in values(source, path))


def spread(source: str, *paths: str) -> str:
    """Mean ± sample standard deviation over trainings; of several scores, of their mean."""
    found = [fmean(of_one) for of_one in zip(*(values(source, path) for path in paths), strict=True)]
    return f"{fmean(found):.2f}" + (f" ± {stdev(found):.2f}" if len(found) > 1 else "")


def two(source: str, one: str, other: str, between: str) -> str:
    """Two scores of a model."""
    return f"{mean(source, one)}{between}{mean(source, other)}"


def minus(source: str, other: str, path: str) -> str:
    """A difference of means."""
    return signed(fmean(values(source, path)) - fmean(values(other, path)))


@cache
def largest_deviation() -> float:
    """The largest standard deviation over trainings on test among all descriptors."""
    files = ("descriptors", "full", "full_64", "confirmed")
    models = {f"{file}/{name.rpartition('-seed')[0]}" for file in files for name in read(file)}
    tested = [model for model in models if all("test" in scores for scores in trainings(model))]
    found = [values(model, f"test/{task}") for model, task in product(tested, TASKS)]
    return max(stdev(several) for several in found if len(several) > 1)


def gap(source: str, other: str, path: str) -> str:
    """A difference of means (the larger deviation); on test with a star if samples of sequences keep its sign."""
    ours, theirs = values(source, path), values(other, path)
    few = min(len(ours), len(theirs)) == 1
    deviation = max([stdev(part) for part in (ours, theirs) if len(part) > 1] + [largest_deviation()] * few)
    difference, star = fmean(ours) - fmean(theirs), ""
    split, _, task = path.partition("/")
    if split == "test":
        names = sorted(trainings(source)[0]["test"]["by_sequence"])
        paths = [f"test/by_sequence/{name}/{task}" for name in names]
        gaps = [fmean(values(source, part)) - fmean(values(other, part)) for part in paths]
        drawn = np.random.default_rng(0).choice(gaps, (DRAWS, len(gaps))).mean(1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        star = "*" * bool(low > 0 if difference > 0 else high < 0)
    return f"{signed(difference)}{star} ({deviation:.2f})"


def gaps(source: str, other: str) -> str:
    """Differences in the three tasks on test."""
    return " / ".join(gap(source, other, f"test/{task}") for task in TASKS)


# FPR@95 of matches that geometry found


def _by_group(name: str, groups: str, pairs: str, draw: int = 0) -> list[list[float]]:
    """By group that a model was trained on, and by training: the mean over the others; `draw` from 1 is a sample."""
    found = []
    for group in groups:
        source = f"full/{name}-n32" if group == "A" else f"full_transfer/{name}-on-{group}"
        parts = [[part[pairs] for part in scores["geometry"].values()] for scores in trainings(source)]
        found.append([fmean(p["draws"][draw - 1] if draw else p["fpr95"] for p in part) for part in parts])
    return found


def fpr(name: str, pairs: str) -> str:
    """The mean over groups, and the deviation of one training on each."""
    groups = [[100 * value for value in part] for part in _by_group(name, "ABC", pairs)]
    return f"{fmean(map(fmean, groups)):.2f} ± {sum(map(variance, groups)) ** 0.5 / len(groups):.2f}"


def fpr_gap(name: str, other: str, groups: str, pairs: str) -> str:
    """A difference, over samples of points and of the trainings on each group."""
    random, drawn = np.random.default_rng(0), []
    for draw in range(1, 201):
        sides = [
            fmean(fmean(random.choice(part, len(part))) for part in _by_group(model, groups, pairs, draw))
            for model in (name, other)
        ]
        drawn.append(100 * (sides[0] - sides[1]))
    ours, theirs = (100 * fmean(map(fmean, _by_group(model, groups, pairs))) for model in (name, other))
    return _interval(ours - theirs, drawn)


def _interval(difference: float, drawn: Any) -> str:
    """A difference with the middle 95 % of its samples."""
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{signed(difference)} [{signed(low)}, {signed(high)}]"


# Tolerance of changes of known amounts


def tolerance(source: str, other: str, change: str, what: str) -> str:
    """How much better changed patches are told from others, over samples of sequences, patches and trainings."""
    sides = [_by_patch(model, change, what) for model in (source, other)]
    weights, random, means = _weights(sides[0].shape[1]), np.random.default_rng(1), []
    for part in sides:
        drawn = random.integers(len(part), size=(DRAWS, len(part)))
        scores = np.broadcast_to(weights @ part.T.astype(np.float32), drawn.shape)
        means.append(np.take_along_axis(scores, drawn, 1).mean(1))
    return _interval(float(sides[0].mean() - sides[1].mean()), means[0] - means[1])


def _by_patch(source: str, change: str, what: str) -> np.ndarray:
    """(trainings, patches) in percent."""
    curves = [scores["pole" if change == "pole" else "separability"][change] for scores in trainings(source)]
    if what == "auc":
        return 100 - np.array([curve["auc_missing_by_patch"].split() for curve in curves], np.float64) / 100
    changes = sum(amount != 0 for amount in curves[0]["amounts"])
    return 100 / changes * np.array([curve["first_by_patch"].split() for curve in curves], np.float64)


@cache
def _weights(patches: int) -> np.ndarray:
    """(DRAWS, patches) weights of patches in samples of sequences and of their patches."""
    random = np.random.default_rng(0)
    rows, weights = np.arange(patches).reshape(SEQUENCES, -1), np.empty((DRAWS, patches), np.float32)
    for sample in weights:
        chosen = rows[random.integers(SEQUENCES, size=SEQUENCES)]
        drawn = np.take_along_axis(chosen, random.integers(rows.shape[1], size=rows.shape), 1)
        sample[:] = np.bincount(drawn.ravel(), minlength=patches) / patches
    return weights


# Verdicts on the paper's claims


def loss(source: str) -> str:
    """The mean training loss at the end."""
    file, job = source.split("/", 1)
    return f"{fmean(entry['loss'] for name, entry in read(file).items() if name.rpartition('-seed')[0] == job):.3f}"


def verdict(claim: str) -> str:
    """What the rules say of a claim."""
    return verdicts.decided(claim)[0]


def decides(claim: str) -> str:
    """The comparison that decided, with its interval."""
    return verdicts.deciding(claim)


def needed(claim: str) -> str:
    """What every interval of a claim has to show."""
    return verdicts.CLAIMS[claim].needed


def _share(claim: str, scenario: str, said: Sequence[str]) -> float:
    """How often models of a scenario get one of these verdicts, in percent."""
    found = read("verdict_rates")["rates"][claim][scenario]
    return 100 * sum(found.get(one, 0.0) for one in said)


def wrong(claim: str, scenario: str = "equal") -> str:
    """How often models of a scenario get a verdict that is wrong."""
    return f"{100 - _share(claim, scenario, verdict_rates.right_verdicts(verdicts.CLAIMS[claim], scenario)):.0f}"


def found(claim: str, *scenarios: str) -> str:
    """How often a difference of each scenario is found: the claim holds, or does not where it claims no gain."""
    wanted = verdicts.FAILS if "worse" in scenarios[0] or verdicts.CLAIMS[claim].rule == "no gain" else verdicts.HOLDS
    return " / ".join(f"{_share(claim, scenario, [wanted]):.0f}" for scenario in scenarios)


def rate(claim: str, scenario: str, said: str) -> str:
    """How often models of a scenario get this verdict."""
    return f"{_share(claim, scenario, [said]):.0f}"


def edge(claim: str) -> str:
    """How often a claim of no gain, or of being about as good, holds with the truth at its margin."""
    scenario = "a margin better" if verdicts.CLAIMS[claim].rule == "no gain" else "a margin worse"
    return rate(claim, scenario, verdicts.HOLDS)


def precise(claim: str) -> str:
    """How often the verdict is the right one with a hundredth of the noise, in the worst scenario."""
    rules, scenarios = verdicts.CLAIMS[claim], verdict_rates.clear_scenarios(verdicts.CLAIMS[claim])
    right = {name: set(verdict_rates.right_verdicts(rules, name)) - {verdicts.OPEN} for name in scenarios}
    return f"{min(_share(claim, f'{name}, precise', sorted(said)) for name, said in right.items()):.0f}"


# Pairs of photos


@cache
def homographies(file: str) -> dict[str, dict[str, float]]:
    """Descriptor -> column -> mean over the pairs of a sequence, then over sequences."""
    cells: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for pair in read(file)["pairs"]:
        cells[pair["model"]][pair["sequence"]].append(pair)
    columns = ("matches", "right", "accuracy 3 px", "H 1 px", "H 3 px", "H 5 px")
    return {
        model: {c: fmean(fmean(row[c] for row in rows) for rows in parts.values()) for c in columns}
        for model, parts in cells.items()
    }


def photos(sources: str, column: str, scale: float) -> str:
    """A mean of FILE/DESCRIPTOR; several, separated by spaces, get a slash."""
    pairs = [source.split("/") for source in sources.split()]
    return " / ".join(f"{scale * homographies(file)[name][column]:.1f}" for file, name in pairs)


def poses(
    source: str | list[str],
    scenes: list[str],
    limit: int = 10,
    other: str = "",
    others: Sequence[str] | None = None,
) -> str:
    """mAA in percent ± its deviation over samples of pairs; of several trainings, the mean of each pair.

    With `other`, the difference to it on the same pairs; with `others`, on the pairs of these scenes in their order.
    """
    several = [_accuracy(one, scenes, limit) for one in ([source] if isinstance(source, str) else source)]
    scores = [np.mean(parts, axis=0) for parts in zip(*several, strict=True)]
    if other:
        scores = [ours - theirs for ours, theirs in zip(scores, _accuracy(other, others or scenes, limit), strict=True)]
    random, total = np.random.default_rng(0), np.zeros(2000)
    for _, part in sorted(zip(scenes, scores, strict=True), key=lambda both: both[0]):
        total += part[random.integers(0, len(part), (2000, len(part)))].mean(1)
    value = 100 * fmean(part.mean() for part in scores)
    text = signed(value, 1) if other else f"{value:.1f}"
    return f"{text} ± {100 * (total / len(scores)).std():.1f}"


def _accuracy(source: str, scenes: list[str], limit: int) -> list[np.ndarray]:
    """mAA of the pairs of each scene; photos/measured.py explains the characters of an error."""
    file, key = source.split("/", 1)
    found = []
    for scene in (read(file)["rows"][key]["scenes"][name] for name in scenes):
        shares = [max(0, limit - "123456789a".index(c)) / limit if c != "-" else 0.0 for c in scene["poses"]]
        found.append(np.array(shares).reshape(-1, scene["orders"]).mean(1))
    return found


def seconds(source: str, stages: list[str]) -> str:
    """Processor time of stages of FILE/ROW."""
    file, key = source.split("/", 1)
    return f"{sum(read(file)['rows'][key][stage] for stage in stages):.2f}"


def measured(source: str, what: str) -> str:
    """Of FILE/METHOD of benchmarks/results: seconds per `photo` or `pair`, `megabytes`, or ms to `describe` 2,000."""
    file, method = source.split("/", 1)
    path = ROOT / "benchmarks" / "results" / f"{file}.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    if what == "describe":
        return f"{2e6 / rows[method]['patches_per_s']['cuda-half, host array']:.1f}"
    row = next(row for row in rows if row["method"] == method)
    if what == "photo":
        return f"{sum(row['stages'][stage] for stage in ('read', 'detect', 'cut', 'describe')) / 2:.2f}"
    return f"{row['seconds']:.2f}" if what == "pair" else f"{row['megabytes']:.0f}"


FORMULAS = {
    formula.__name__: formula
    for formula in (
        *(mean, first, every, spread, two, minus, gap, gaps, fpr, fpr_gap, tolerance, photos, poses),
        *(loss, verdict, decides, needed, wrong, found, rate, edge, precise, seconds, measured),
    )
}


def wrong_cells(name: str, text: str, table: dict[str, Any]) -> list[str]:
    """What of a table does not agree with the results."""
    head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    found, label = [], head.index(table["label"]) if "label" in table else 0
    missing = set(table["rows"]) - {row[label] for row in rows}
    found += [f"{name}: no row {row}" for row in sorted(missing)]
    for row in (row for row in rows if row[label] in table["rows"]):
        source = table["rows"][row[label]]
        columns = source if isinstance(source, dict) else table["columns"]
        for column, formulas in columns.items():
            cell = row[head.index(column)].replace("**", "")
            if cell == "–":
                continue
            for formula, *arguments in formulas if isinstance(formulas[0], list) else [formulas]:
                filled = [part.replace("{}", str(source)) if isinstance(part, str) else part for part in arguments]
                wanted = FORMULAS[formula](*filled)
                if not re.search(rf"(?<![\d.]){re.escape(wanted)}(?![\d.]*\d)", cell):
                    found.append(f"{name}, {row[label]}, {column}: {cell} instead of {wanted}")
    return found


def main() -> None:
    """Check all pages."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    tables = json.loads((ROOT / "experiments" / "reports" / "tables.json").read_text(encoding="utf-8"))
    pages = [ROOT / "README.md", *sorted((ROOT / "experiments" / "reports").glob("*.md"))]
    pages += sorted((ROOT / "docs").glob("*.md"))
    blocks = [block.groups() for page in pages for block in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    found = [f"{name}: in no page" for name in sorted(tables.keys() - {name for name, _ in blocks})]
    for name, text in blocks:
        found += wrong_cells(name, text, tables[name]) if name in tables else [f"{name}: not in tables.json"]
    print("\n".join(found) or f"{len(tables)} tables agree with the results")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
