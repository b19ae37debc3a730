"""Every number of the official HPatches code on the reference descriptors, to 1e-6."""

import json

import numpy as np
import pytest
from slow_metrics import precision_recall_points, roc_points

from matchkernel.data.hpatches import NOISES, read_tasks
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.hpatches.files import read_descriptors
from matchkernel.evaluation.hpatches.retrieval import POOLS, average_precisions
from matchkernel.evaluation.hpatches.verification import verification_distances
from matchkernel.evaluation.hpatches.whitening import pcapl
from matchkernel.photos.nearest import find_nearest

RUNS = ("float-L2", "ties-L2", "const-L2", "ties-L1", "float-L2-pcapl")
CASES = [(run, split) for run in RUNS for split in ("a", "b", "full") if (run, split) != ("float-L2-pcapl", "full")]


def settings(run):
    variant, distance, *rest = run.split("-")
    return variant, distance.lower(), rest[0] if rest else "none"


def stored(golden, variant):
    """The descriptors of a variant, as the official layout would hold them."""
    arrays = np.load(golden / "descriptors.npz")
    keys = sorted(key for key in arrays.files if key.startswith(f"{variant}/"))
    rows = np.concatenate([arrays[key].reshape(-1, arrays[key].shape[-1]) for key in keys])
    return HPatchesDescriptors(variant, rows, {key.split("/")[1]: arrays[key].shape[1] for key in keys})


def official(golden, run, split):
    """The same numbers as in the golden file, by the golden file's paths, from our result."""
    variant, distance, whitening = settings(run)
    descriptors = stored(golden, variant)
    tasks = read_tasks(golden / "tasks", split, descriptors.counts)
    result = score_split(descriptors, tasks, distance=distance, whitening=whitening)
    found = {}
    for noise in NOISES:
        for kind, part in result["verification"]["noise"][noise].items():
            found[f"verification/{noise}/{kind}/balanced/auc"] = part["balanced"]["auc"]
            found[f"verification/{noise}/{kind}/imbalanced/ap"] = part["imbalanced"]["ap_trapezoid"]
        for sequence, part in result["matching"]["per_pair"].items():
            for k, pair in part[noise].items():
                found[f"matching/per_pair/{sequence}/{noise}/{k}/ap"] = pair["ap_trapezoid"]
                found[f"matching/per_pair/{sequence}/{noise}/{k}/sr"] = pair["sr"]
        for pool, value in result["retrieval"]["python"]["noise"][noise].items():
            found[f"retrieval/mAP/{noise}/{pool}"] = value["ap_trapezoid"]
    for noise, value in result["matching"]["mean"].items():
        found[f"matching/mAP/{'mean' if noise == 'all' else noise}"] = value["ap_trapezoid"]
    for pool, value in result["retrieval"]["python"]["mean"].items():
        found[f"retrieval/mAP_mean_over_noise/{pool}"] = value["ap_trapezoid"]
    found["retrieval/n_queries"] = result["retrieval"]["queries"]
    if whitening == "pcapl":
        descriptors = pcapl(descriptors, tasks.train, tasks.test)
    per_query = average_precisions(descriptors, tasks.queries, tasks.distractors, distance)["ap_trapezoid"]
    for level, noise in enumerate(NOISES):
        for pool in (100, 20000):
            for number, value in enumerate(per_query[:, level, POOLS.index(pool)]):
                found[f"retrieval/per_query_ap/{noise}/{pool}/{number}"] = value
    return found


def leaves(part, path=""):
    if isinstance(part, dict | list):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            yield from leaves(value, f"{path}/{key}")
    else:
        yield path.lstrip("/"), part


@pytest.mark.parametrize(("run", "split"), CASES)
def test_every_official_number(run, split, golden):
    wanted = dict(leaves(json.loads((golden / "golden.json").read_text())[run][split]))
    found = official(golden, run, split)
    assert found.keys() == wanted.keys()
    assert len(wanted) > 200
    worst = max(wanted, key=lambda path: abs(found[path] - wanted[path]))
    assert abs(found[worst] - wanted[worst]) < 1e-6, (worst, found[worst], wanted[worst])


@pytest.mark.parametrize("run", ["float-L2", "ties-L2"])
def test_every_official_curve(run, golden):
    variant, distance, _ = settings(run)
    curves = np.load(golden / "golden_curves.npz")
    descriptors = stored(golden, variant)
    lists = read_tasks(golden / "tasks", "a", descriptors.counts).verification
    compared = 0
    for noise in NOISES:
        found = verification_distances(descriptors, lists, noise, distance)
        for kind in ("inter", "intra"):
            distances = np.concatenate([found[kind], found["positives"]])
            labels = np.arange(len(distances)) >= len(lists)
            few = len(lists) * 6 // 5
            curve = dict(zip(("fpr", "tpr"), roc_points(distances, labels), strict=True))
            curve.update(zip(("pr", "rc"), precision_recall_points(distances[:few], labels[:few]), strict=True))
            for name, values in curve.items():
                np.testing.assert_allclose(values, curves[f"{run}/a/verif/{noise}/{kind}/{name}"], rtol=0, atol=1e-9)
                compared += 1
        for sequence in ("i_ash", "i_birch"):
            images = descriptors.sequence(sequence)
            near = find_nearest(images[0], images[1 + 5 * NOISES.index(noise)], distance)
            is_right = near.index == np.arange(len(images[0]))
            points = precision_recall_points(near.first, is_right, positives=len(is_right))
            for name, values in zip(("pr", "rc"), points, strict=True):
                wanted = curves[f"{run}/a/match/{sequence}/{noise}1/{name}"]
                np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-9)
                compared += 1
    assert compared == 36


def test_whitened_descriptors(golden):
    descriptors = stored(golden, "float")
    tasks = read_tasks(golden / "tasks", "a", descriptors.counts)
    whitened = pcapl(descriptors, tasks.train, tasks.test)
    wanted = np.load(golden / "golden_curves.npz")["pcapl_a_descriptors_i_ash"]
    np.testing.assert_allclose(whitened.sequence("i_ash"), wanted, rtol=0, atol=1e-6)  # ours are kept in float32


def test_files_read_as_the_arrays_they_were_written_from(golden):
    read, wanted = read_descriptors(golden / "descriptors" / "ties"), stored(golden, "ties")
    assert read.counts == wanted.counts
    assert np.array_equal(read.rows, wanted.rows)
