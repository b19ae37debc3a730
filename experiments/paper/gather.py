"""The committed results as numbers: models that differ in their seed put together, mean and spread of each score."""

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jobs import EXPERIMENTS

from matchkernel.model.descriptors import build
from matchkernel.model.table_1 import count_parameters

Result = dict[str, Any]  # what run.py writes of one model
Results = dict[str, Result]  # model -> result, one file
Everything = Mapping[str, Results]  # experiment -> results

TASKS = ("verification", "matching", "retrieval")
NOISES = {"e": "easy", "h": "hard", "t": "tough"}
SEED = re.compile(r"-seed(\d+)$")


@dataclass(frozen=True)
class Spread:
    """A score of models that differ in their seed alone."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; none of a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        """In percent: 48.33 ± 0.27."""
        return self.shown()

    def shown(self, decimals: int = 2) -> str:
        """In percent with so many decimals."""
        return percent(self.mean, decimals) + ("" if self.std is None else f" ± {percent(self.std, decimals)}")


def percent(share: float, decimals: int = 2) -> str:
    """A share in percent."""
    return f"{100 * share:.{decimals}f}"


def signed(share: float) -> str:
    """A difference in percent with its sign."""
    return f"{100 * share:+.2f}".replace("-", "−")


def read_results(folder: Path) -> dict[str, Results]:
    """Experiment -> its models with scores, in the order of its jobs; files that are not there are left out."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        written = json.loads(path.read_text(encoding="utf-8"))
        results = {name: {**result, "file": path.stem} for name, result in written.items() if "scores" in result}
        order = [job.name for job in EXPERIMENTS.get(path.stem, [])]
        places = {name: place for place, name in enumerate([*order, *(n for n in results if n not in order)])}
        found[path.stem] = {name: results[name] for name in sorted(results, key=places.__getitem__)}
    return found


def without_seed(name: str) -> str:
    """The name of a model without its seed: `fc-n32-seed1` -> `fc-n32`."""
    return SEED.sub("", name)


def by_name(results: Results) -> dict[str, list[Result]]:
    """Models that differ in their seed, under the name they share."""
    groups: dict[str, list[Result]] = {}
    for name, result in results.items():
        groups.setdefault(without_seed(name), []).append(result)
    return groups


def look(result: Result, *keys: str) -> Any:
    """What stands under `scores` at these keys, None if nothing does."""
    found: Any = result["scores"]
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean, None where one is missing or there are none."""
    known = list(values)
    return statistics.fmean(v for v in known if v is not None) if known and None not in known else None


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """The spread of those that are there."""
    known = tuple(value for value in values if value is not None)
    return Spread(known) if known else None


def score(results: Iterable[Result], *keys: str) -> Spread | None:
    """One score over seeds."""
    return spread_of(look(result, *keys) for result in results)


def tasks_of(results: list[Result], split: str) -> list[Spread | None]:
    """Verification, matching and retrieval on the sequences of a split."""
    return [score(results, split, task) for task in TASKS]


def kind_score(results: list[Result], split: str, sequences: tuple[str, ...], task: str = "matching") -> Spread | None:
    """Mean over the sequences of a kind of change."""
    return spread_of(mean_of(look(r, split, "by_sequence", name, task) for name in sequences) for r in results)


def scene_score(results: list[Result], *keys: str) -> Spread | None:
    """Mean over the validation scenes."""
    return spread_of(
        mean_of(look(r, "scenes", scene, *keys) for scene in r["scores"].get("scenes", {})) for r in results
    )


def parameters(result: Result) -> int | None:
    """Learned numbers of a model, counted from one built by its configuration; a baseline says them."""
    configuration = result.get("configuration")
    return _count(json.dumps(configuration)) if configuration else result.get("parameters")


@cache
def _count(configuration: str) -> int:
    with torch.device("meta"):  # shapes are enough to count
        return count_parameters(build(**json.loads(configuration)))


def seed_of(result: Result) -> int | None:
    """The seed a model was trained with."""
    return result.get("settings", {}).get("seed")


def sampling(result: Result) -> tuple[int, int] | None:
    """Steps and pairs a step."""
    found = result.get("settings", {}).get("sampling")
    return (found["steps"], found["pairs"]) if found else None


def same_data(results: Iterable[Result], *parts: str) -> bool:
    """Whether all were scored on the same patches and lists, as far as they say."""
    found = {json.dumps(look(r, *parts, "data_sha256")) for r in results if look(r, *parts, "data_sha256")}
    return len(found) < 2
