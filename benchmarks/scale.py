"""Works out a million photos on 64 machines from the stored unit costs, for docs/scale.md.

    python benchmarks/scale.py [--write]

Nothing is measured here: benchmarks/collection_costs.py and benchmarks/collection_speed.py have done that. With --write
the table in docs/scale.md is replaced.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import read_result

PAGE = Path(__file__).parents[1] / "experiments" / "reports" / "2026-11-16-scale.md"
PAIR_BYTES = 450  # that the process that leads holds for each pair; a test counts them
MARKS = ("<!-- scale -->\n", "<!-- /scale -->")


@dataclass(frozen=True)
class Plan:
    """What is to be done, and with what."""

    photos: int = 1_000_000
    nodes: int = 64
    cores: int = 16  # of a node, one worker each
    partners: int = 20  # of each photo; a pair that is chosen from both sides counts twice here
    images_per_shard: int = 16
    pairs_per_shard: int = 256


@dataclass(frozen=True)
class Step:
    """A row of the table."""

    name: str
    formula: str
    core_seconds: float
    seconds: float


def steps(plan: Plan, costs: dict[str, float], speed: dict[str, Any]) -> list[Step]:
    """The steps in their order: seconds of one core, and seconds that pass."""
    n, p, workers = plan.photos, plan.photos * plan.partners, plan.nodes * plan.cores
    share = speed["simulated"][-1]["share"]  # of the ideal, with the most workers that were simulated
    shards = n / plan.images_per_shard + p / plan.pairs_per_shard

    def spread(name: str, formula: str, seconds: float) -> Step:
        return Step(name, formula, seconds, seconds / (workers * share))

    def alone(name: str, formula: str, seconds: float) -> Step:
        return Step(name, formula, seconds, seconds)

    return [
        spread("extract, photos as measured", "n x / (W e)", n * costs["extract_seconds"]),
        spread("extract, photos of 12 megapixels", "n X / (W e)", n * costs["extract_large_seconds"]),
        alone("gather into one .h5 (a folder needs none)", "n g", n * costs["gather_seconds"]),
        alone("vectors of photos, in one process", "n v", n * costs["vector_seconds"]),
        alone("most similar photos, exact, in one process", "n² c", n**2 * costs["compare_seconds"]),
        spread("match pairs", "p m / (W e)", p * costs["match_seconds"]),
        spread("verify them (--geometry auto)", "p q / (W e)", p * costs["verify_seconds"]),
        alone("hand out shards", "(n / 16 + p / 256) s", shards * speed["shard_ms"]["ray"] / 1000),
        alone("merge into matches.h5", "p w", p * costs["merge_seconds"]),
    ]


def table(plan: Plan | None = None) -> str:
    """The table and the sizes, as Markdown."""
    plan = plan or Plan()
    result, speed = read_result("collection_costs"), read_result("collection_speed")
    costs = result["costs"]
    lines = ["| step | formula | one core | passes |", "|---|---|---|---|"]
    for step in steps(plan, costs, speed):
        lines.append(f"| {step.name} | {step.formula} | {duration(step.core_seconds)} | {duration(step.seconds)} |")
    units = {
        "n": f"{plan.photos:,} photos", "p": f"{plan.photos * plan.partners:,} pairs",
        "W": f"{plan.nodes} × {plan.cores} workers", "e": f"{speed['simulated'][-1]['share']:.3f}",
        **unit_costs(costs), "s": f"{speed['shard_ms']['ray']:.2f} ms",
    }  # fmt: skip
    sizes = {
        "features": plan.photos * costs["feature_bytes"],
        "matches": plan.photos * plan.partners * costs["match_bytes"],
        "vectors in memory": plan.photos * costs["vector_bytes"],
        "pairs in the memory of the process that leads": plan.photos * plan.partners * PAIR_BYTES,
    }
    told = "; ".join(f"{name} = {value}" for name, value in units.items())
    bytes_told = ", ".join(f"{name} {value / 1e9:,.0f} GB" for name, value in sizes.items())
    measured = (
        f"Measured on photos of {costs['photo_pixels'] / 1e6:.2f} megapixels with {costs['keypoints']:,.0f} keypoints "
        "on average"
    )
    parts = [*lines, "", f"{measured}: {told}.", ""]
    return "\n".join([*parts, spread_told(costs, result["run_before"]), "", f"Sizes: {bytes_told}.", ""])


UNITS = {
    "x": ("extract_seconds", 1, 2, "s"), "X": ("extract_large_seconds", 1, 2, "s"),
    "g": ("gather_seconds", 1e3, 1, "ms"), "v": ("vector_seconds", 1e3, 1, "ms"),
    "c": ("compare_seconds", 1e6, 3, "µs"), "m": ("match_seconds", 1, 3, "s"), "q": ("verify_seconds", 1, 3, "s"),
    "w": ("merge_seconds", 1e3, 2, "ms"),
}  # fmt: skip

OF_OTHER_VECTORS = ("v", "c")  # that the run before measured in another way


def unit_costs(costs: dict[str, float]) -> dict[str, str]:
    """Each unit cost by its letter, in its unit."""
    return {
        letter: f"{costs[name] * factor:.{digits}f} {unit}" for letter, (name, factor, digits, unit) in UNITS.items()
    }


def spread_told(costs: dict[str, float], before: dict[str, float]) -> str:
    """How far the unit costs of two runs are apart."""
    letters = [letter for letter in UNITS if letter not in OF_OTHER_VECTORS]
    told = ", ".join(f"{letter} = {unit_costs(before)[letter]}" for letter in letters)
    ratios = {letter: costs[UNITS[letter][0]] / before[UNITS[letter][0]] for letter in letters}
    most = max(letters, key=lambda letter: max(ratios[letter], 1 / ratios[letter]))
    return (
        f"The machine was busy. The run before gave {told}: up to {max(ratios[most], 1 / ratios[most]):.1f} times "
        f"apart ({most}); trust the first digit at most. It made shorter vectors, so that its "
        f"{' and '.join(OF_OTHER_VECTORS)} say nothing about these."
    )


def speed_told() -> str:
    """What docs/collections.md says about the speed of workers."""
    speed = read_result("collection_speed")
    images, pairs, start = (speed[name] for name in ("images_per_second", "pairs_per_second", "seconds_to_start"))
    most = speed["simulated"][-1]
    return (
        f"With two workers on two cores, in turns, {speed['images']} photos ({speed['size'][0]} × {speed['size'][1]} "
        f"pixels, {speed['keypoints']} keypoints): {images['local']:.2f} images/s by processes, {images['ray']:.2f} by "
        f"Ray ({speed['ray_over_local']:.0%}); {pairs['local']:.1f} and {pairs['ray']:.1f} verified pairs/s "
        f"({speed['pairs_ray_over_local']:.0%}). The first worker is ready after {start['local']:.0f} s and "
        f"{start['ray']:.0f} s. Handing out a shard costs {speed['shard_ms']['local']:.2f} ms and "
        f"{speed['shard_ms']['ray']:.2f} ms. With {most['workers']} simulated workers on Ray (shards that wait two "
        f"seconds, in actors that share processes as threads) throughput is {most['share']:.1%} of "
        f"{most['workers']} times one worker's ideal."
    )


def memory_told() -> str:
    """What docs/collections.md says about measured memory."""
    memory = read_result("collection_memory")
    rows = {stage: [row for row in memory["rows"] if row["stage"] == stage] for stage in ("extract", "match-pairs")}
    first, last = rows["extract"][0], rows["extract"][-1]
    most = max(row["worker_mb"] for row in rows["extract"])
    matching = [row["worker_mb"] for row in rows["match-pairs"] if "note" not in row]
    half = rows["match-pairs"][len(matching) // 2]
    return (
        f"Measured over {memory['images']:,} small photos, cut and warped from those of {len(memory['photos_of'])} "
        f"scenes ({memory['keypoints']} keypoints, {memory['model']}): the process that leads takes "
        f"{first['leader_mb']} MB after {first['images']} photos and {last['leader_mb']} MB after all of them and "
        f"their .h5; a worker {first['worker_mb']} MB and at most {most} MB. While {memory['pairs']:,} pairs are "
        f"matched, a worker takes {matching[0]} MB at first, {half['worker_mb']} MB after {half['pairs']:,} pairs and "
        f"{matching[-1]} MB at last: it keeps features until its share is full (all of them are "
        f"{memory['features_mb']} MB). A photo of {memory['largest_photo']['pixels'] / 1e6:.0f} megapixels "
        f"takes {memory['largest_photo']['worker_mb'] / 1000:.1f} GB."
    )


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for limit, size, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 86_400:,.1f} days"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        text = PAGE.read_text(encoding="utf-8")
        inside = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
        PAGE.write_text(
            re.sub(inside, lambda _: MARKS[0] + table() + MARKS[1], text, flags=re.DOTALL), encoding="utf-8"
        )
    else:
        print(table())


if __name__ == "__main__":
    main()
