"""How many pixels of their photos the regions of group A have: why larger patches need not hold more.

python experiments/paper/regions.py SETS
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from data import GROUPS

from matchkernel.cli.console import run_script
from matchkernel.storage.files import replacing

REGIONS = Path(__file__).parents[1] / "results" / "regions.json"
SIZES = (32, 64)  # those the descriptors of the HPatches experiment are trained at


def sides_of(folder: Path) -> np.ndarray:
    """Sides of the regions a set was cut from, in pixels of their photos: (N,)."""
    shapes = np.load(folder / "frame.npy")[:, 2:].reshape(-1, 2, 2)
    return 2 * np.sqrt(np.abs(np.linalg.det(shapes)))


def words(path: Path) -> str:
    """What this says of the sizes; nothing where there is no file."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    small, large = (f"{100 * found['share below'][str(size)]:.0f} %" for size in SIZES)
    return (
        f"The regions of group A are {found['median side']:.0f} px across in the median; {small} of them are less\n"
        f"than 32 px across in their photo, {large} less than 64. A patch of 64 px is mostly an enlargement and\n"
        f"shows what one of 32 px does (from `experiments/{path.parent.name}/{path.name}`)."
    )


def measured(sets: Path) -> dict[str, Any]:
    """What words() reads, of all regions of group A."""
    sides = np.concatenate([sides_of(sets / scene) for scene in GROUPS["A"]])
    return {
        "scenes": GROUPS["A"],
        "regions": len(sides),
        "median side": float(np.median(sides)),
        "share below": {str(size): float((sides < size).mean()) for size in SIZES},
    }


def main() -> None:
    """Write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    found = measured(parser.parse_args().sets)
    with replacing(REGIONS) as part:
        part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
