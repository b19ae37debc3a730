"""Print the tables of docs/collections.md from the stored results.

python experiments/collections/collection_tables.py
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
SHOWN = {  # of vectors.json, in the order of the page
    "16 centres; cells of length 1": "16 centres, cells of length 1",
    "64 centres; plain": "64 centres, sums as they are",
    "64 centres; square roots": "64 centres, square roots",
    "64 centres; cells of length 1": "64 centres, cells of length 1",
    "64 centres; selective, power 2": "64 centres, selective, power 2",
    "64 centres, shared by 3; selective, power 2": "the same, a descriptor shared by 3 centres",
    "64 centres, 1,000 largest; selective, power 2": "the same, the 1,000 largest keypoints",
    "64 centres, 1,000 strongest; selective, power 2": "the same, the 1,000 strongest keypoints",
    "128 centres; selective, power 2": "128 centres, selective, power 2",
    "256 centres; cells of length 1": "256 centres, cells of length 1",
    "256 centres; selective, power 3": "256 centres, selective, power 3",
    "256 centres; selective, power 2": "**256 centres, selective, power 2**",
}


def read(name: str) -> Any:
    """A stored result."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def percent(value: float) -> str:
    """`97.3`."""
    return f"{100 * value:.1f}"


def vectors() -> list[str]:
    """Ways to make a vector, with both descriptors: recall at 10 and 20 on validation and training scenes."""
    found = read("vectors.json")
    keys = [f"{kind}, recall at {k}" for kind in ("validation", "training") for k in (10, 20)]
    rows = []
    for name, shown in SHOWN.items():
        cells = [" / ".join(percent(part[key]) for part in found[name].values()) for key in [*keys, "score"]]
        rows.append([shown, *cells])
    head = ["vector", "validation at 10", "at 20", "training at 10", "at 20", "score"]
    return table(head, rows)


def recall() -> list[str]:
    """Recall by group of scenes, for our vectors and RootSIFT's."""
    rows = []
    for group, found in read("recall.json")["groups"].items():
        for key in ("recall at 10", "recall at 20", "best 5 at 20"):
            cells = [f"{percent(part['mean'])} ± {percent(part['std'])}" for part in found[key].values()]
            rows.append([f"{group} ({len(found['scenes'])})", key, *cells])
    return table(["scenes", "", "`light-wide`", "RootSIFT", "difference"], rows)


def models() -> list[str]:
    """Photos registered by scene."""
    rows = []
    for scene, row in read("collection_models.json")["scenes"].items():
        alone = f"{row['alone']}" if "alone" in row else ""
        rows.append([scene, str(row["photos"]), str(row["largest"]), str(row["any"]), str(row["models"]), alone])
    head = ["scene", "photos", "in its largest model", "in any", "models", "alone, all pairs"]
    return table(head, rows)


def storage() -> list[str]:
    """What float16 and bytes lose."""
    rows = []
    for model, kinds in read("storage.json").items():
        for store, row in kinds.items():
            change = (
                "" if store == "float32" else f"{100 * row['change']:+.2f} ± {100 * row['spread of the change']:.2f}"
            )
            cells = [percent(row["size of files"]), f"{row['matches']:,}", f"{100 * row['same']:.2f}"]
            rows.append([f"`{model}`", f"`{store}`", *cells, percent(row["mAA"]), change])
    head = ["model", "store", "size, %", "matches", "same, %", "mAA at 10°", "change"]
    return table(head, rows)


def main() -> None:
    """Print those tables whose results are there."""
    for name, lines in (("vectors", vectors), ("recall", recall), ("collection_models", models), ("storage", storage)):
        if (RESULTS / f"{name}.json").exists():
            print(f"{name}.json\n" + "\n".join(lines()) + "\n")


if __name__ == "__main__":
    main()
