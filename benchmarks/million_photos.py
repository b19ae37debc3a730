"""What a million photos on 64 machines cost, from unit costs that were measured on one: prints the table of the report.

    python benchmarks/million_photos.py

Unit costs: experiments/results/collection_costs.json and collection_speed.json (workers simulated on Ray), and
retrieval_scale.json of retrieval_scale.py. Nothing is measured here.
"""

import json

from timing import ROOT, read_result

RESULTS = ROOT / "experiments" / "results"
PHOTOS, PARTNERS, WORKERS = 1_000_000, 20, 64 * 16


def main() -> None:
    """Print the steps: what one core needs, and what passes."""
    costs = json.loads((RESULTS / "collection_costs.json").read_text())["costs"]
    speed = json.loads((RESULTS / "collection_speed.json").read_text())
    search = read_result("retrieval_scale")["recall"]["processor_seconds"]
    pairs, share = PHOTOS * PARTNERS, speed["simulated"][-1]["share"]
    shards = (PHOTOS / 16 + pairs / 256) * speed["shard_ms"]["ray"] / 1000
    steps = {  # seconds of one core, and how many workers divide them
        "extract, 12 megapixels": (PHOTOS * costs["extract_large_seconds"], WORKERS * share),
        "vectors of photos": (PHOTOS * costs["vector_seconds"], 1),
        "partners, exact": (PHOTOS**2 * costs["compare_seconds"], 1),
        "partners by candidates: codes, index": (PHOTOS * search["codes_and_index"], 1),
        "partners by candidates: search, rescoring": (PHOTOS * search["search_and_rescoring"], 1),
        "match pairs": (pairs * costs["match_seconds"], WORKERS * share),
        "verify them": (pairs * costs["verify_seconds"], WORKERS * share),
        "hand out shards": (shards, 1),
        "merge into matches.h5": (pairs * costs["merge_seconds"], 1),
    }
    print("| step | one core | passes |\n|---|---:|---:|")
    for name, (seconds, workers) in steps.items():
        print(f"| {name} | {duration(seconds)} | {duration(seconds / workers)} |")


def duration(seconds: float) -> str:
    """A time in the largest unit that it fills."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
