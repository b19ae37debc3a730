"""Results for the report's tests: a real one of the evaluation's tests under other names, and small made ones."""

import json
from pathlib import Path

from matchkernel.evaluation.photos.scores import SCORES, mean_score, score_of
from matchkernel.evaluation.results import write_result
from matchkernel.report.blocks import Grid
from matchkernel.report.write import gather

GOLDEN = Path(__file__).parents[1] / "golden" / "our_hpatches_results"


def hpatches(name="float", **more):
    result = json.loads((GOLDEN / "float-l2.json").read_text())
    return result | {"descriptor": name} | more


def pairs(name, test_set, fpr95, **more):
    """A result on a patch set."""
    content = {"format": 1, "kind": "phototourism", "descriptor": name, "dimension": 128, "test_set": test_set}
    return content | {"distance": "l2", "pairs": {"m50_1_1_0": {"fpr95": fpr95}}, "warnings": []} | more


def written(folder, *results):
    folder.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results):
        write_result(folder / f"{number}.json", result)
    return folder


def grids(report, title):
    return [b for section in report.sections for b in section.blocks if isinstance(b, Grid) and b.title == title]


def row(grid, name):
    return next(scores for method, scores in grid.methods.items() if method.name == name)


def a_full_set(folder):
    curve = {"fpr": [k / 50 for k in range(51)], "tpr": [(k / 50) ** 0.3 for k in range(51)]}
    results = [hpatches('net <b>&"x"', seed=seed, configuration="x", parameters=9) for seed in range(3)]
    results += [hpatches("sift", hand_crafted=True, parameters=0, warnings=["ties <here>"], settings={"call": "a & b"})]
    results += [pairs('net <b>&"x"', "A", 0.1, seed=seed, configuration="x", parameters=9) for seed in range(3)]
    for result in results[4:]:
        result["pairs"]["m50_1_1_0"]["roc"] = curve
    return written(folder, *results)


def photos(name, errors=(0.5, 3.0, None), **more):
    """A result on a scene with so many pairs and on a sequence of one, with errors in degrees and in pixels."""
    rows = [
        {"images": ["a", f"b{k}"], "keypoints": [9, 9], "matches": 8, "inliers": [7], "rotation": [e], "direction": [e]}
        for k, e in enumerate(errors)
    ]
    sequence = [{"images": ["1", "2"], "keypoints": [9, 9], "matches": 8, "right": 6, "inliers": [7], "corners": [2.5]}]
    scenes = {
        "castle": {"kind": "poses", "images": 4, "matches": 8.0, "inliers": 7.0, "pairs": rows},
        "v_wall": {
            "kind": "homographies",
            "images": 2,
            "matches": 8.0,
            "inliers": 7.0,
            "right": 6.0,
            "pairs": sequence,
        },
    }
    for scene in scenes.values():
        scene |= {score: float(score_of(scene["pairs"], score).mean()) for score in SCORES[scene["kind"]]}
    means = {score: mean_score(scenes, score) for scores in SCORES.values() for score in scores}
    content = {"format": 1, "kind": "photos", "descriptor": name, "licence": "MIT", "keypoints": 9, "filter": "ratio"}
    facts = {"settings": {"contrast": 0.04}, "protocol": {"pixels": 0.5}, "data_sha256": "12", "warnings": []}
    return content | facts | {"scenes": scenes, "mean": means, "seconds": {"per_image": 0.5}} | more


def gathered(folder, *results):
    """The report of these results, which are written to the folder."""
    return gather([written(folder, *results)])
