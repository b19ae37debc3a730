"""Reconstruct one scene with COLMAP from several features, and with COLMAP's own SIFT, side by side.

python experiments/colmap_scene.py fountain/images OUT rootsift untrained:dual
"""

import argparse
import json
import time
from pathlib import Path

from matchkernel.colmap.database import read_database_keypoints
from matchkernel.data.from_photos import reconstruct_with_sift
from matchkernel.photos.describers import open_describer
from matchkernel.photos.reconstruct import analyze, reconstruct

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("images", type=Path)
parser.add_argument("out", type=Path, help="folder for the workspaces and result.json")
parser.add_argument("models", nargs="+", help="name, weight file, rootsift, or untrained:VARIANT")
arguments = parser.parse_args()

arguments.out.mkdir(parents=True, exist_ok=True)
SIFT = "COLMAP's own SIFT"
results = {}
start = time.perf_counter()
workspace = arguments.out / "colmap-sift"
if not workspace.exists():
    reconstruct_with_sift(arguments.images, workspace)
images = len(json.loads((workspace / "photos.json").read_text()))
results[SIFT] = {"images": images, **analyze(workspace / "sparse")}
results[SIFT]["seconds"] = round(time.perf_counter() - start)
for name in arguments.models:
    untrained = name.startswith("untrained:")
    describer = open_describer(name.removeprefix("untrained:"), untrained=untrained)
    start = time.perf_counter()
    workspace = arguments.out / name.replace(":", "-").replace("/", "-")
    found = vars(reconstruct(arguments.images, workspace, describer, say=print))
    results[name] = {**found, "seconds": round(time.perf_counter() - start)}

for name, row in results.items():
    folder = "colmap-sift" if name == SIFT else name.replace(":", "-").replace("/", "-")
    row["keypoints"] = sum(map(len, read_database_keypoints(arguments.out / folder / "database.db").values()))
columns = ("images", "keypoints", "registered", "points", "observations", "track_length", "error", "seconds")
print(f"{'features':<22}" + "".join(f"{column:>14}" for column in columns))
for name, row in results.items():
    print(f"{name:<22}" + "".join(f"{row[column]:>14}" for column in columns))
(arguments.out / "result.json").write_text(json.dumps(results, indent=1) + "\n")
