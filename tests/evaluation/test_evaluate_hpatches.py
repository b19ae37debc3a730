"""The three tasks against definitions written out query by query and pair by pair, and against closed forms."""

import json

import numpy as np
import pytest
from helpers import refuses
from made_hpatches import COUNTS, GOLDEN, RUNS, made_descriptors, made_result, made_tasks
from slow_metrics import average_precision, roc_area

from matchkernel.data.hpatches import PatchList, VerificationLists, read_tasks, write_tasks
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.hpatches.matching import matching
from matchkernel.evaluation.hpatches.retrieval import average_precisions, distractor_warnings, retrieval
from matchkernel.evaluation.hpatches.verification import verification

NOISES = "eht"
SAFE = ("", "_tie_safe")


def distance_of(a, b, distance):
    """(...) between the last axes of two arrays."""
    if distance == "hamming":
        return (np.unpackbits(a, axis=-1) != np.unpackbits(b, axis=-1)).sum(-1)
    difference = a.astype(np.float64) - b
    return np.abs(difference).sum(-1) if distance == "l1" else np.sqrt((difference**2).sum(-1))


def image(descriptors, sequence, noise, k):
    return descriptors.sequence(sequence)[0 if k == 0 else 1 + 5 * NOISES.index(noise) + k - 1]


def listed(patches):
    return list(zip(patches.sequences.tolist(), patches.images.tolist(), patches.indices.tolist(), strict=True))


@pytest.mark.parametrize(("kind", "distance"), RUNS)
def test_our_own_golden_values(kind, distance):
    wanted = json.loads((GOLDEN / f"{kind}-{distance}.json").read_text())
    found = json.loads(json.dumps(made_result(kind, distance)))

    def compare(a, b, path):
        assert type(a) is type(b), path
        if isinstance(a, dict):
            assert a.keys() == b.keys(), path
            for key in a:
                compare(a[key], b[key], f"{path}/{key}")
        else:
            assert a == (pytest.approx(b, abs=1e-9) if isinstance(b, float) else b), path

    compare(found, wanted, "")


@pytest.mark.parametrize(("kind", "distance"), RUNS)
def test_verification_pair_by_pair(kind, distance):
    descriptors, lists = made_descriptors(kind), made_tasks().verification
    result = verification(descriptors, lists, distance)
    collected = []
    for noise in NOISES:

        def pairs(part, noise=noise):
            return np.array(
                [
                    distance_of(image(descriptors, s, noise, t)[i], image(descriptors, u, noise, v)[j], distance)
                    for (s, t, i), (u, v, j) in zip(listed(lists.first), listed(part), strict=True)
                ],
                np.float32,
            )

        positives = pairs(lists.positives)
        for name, negatives in {"intra": pairs(lists.intra), "inter": pairs(lists.inter)}.items():
            found = result["noise"][noise][name]
            labels = np.repeat([0, 1], [60, 60])
            distances = np.concatenate([negatives, positives])
            assert found["balanced"]["auc"] == pytest.approx(roc_area(distances, labels))
            few, few_labels = distances[:72], labels[:72]
            imbalanced = found["imbalanced"]
            assert imbalanced["ap_trapezoid"] == pytest.approx(average_precision(few, few_labels))
            for key, ties in (("ap_step", "optimistic"), ("ap_step_tie_safe", "pessimistic")):
                assert imbalanced[key] == pytest.approx(average_precision(few, few_labels, form="step", ties=ties))
            collected.append(imbalanced["ap_trapezoid"])
            own = np.array(lists.first.sequences) == "v_one"
            part = result["per_sequence"]["v_one"][noise]
            assert part["pairs"] == own.sum()
            assert part[name]["balanced"]["auc"] == pytest.approx(
                roc_area(np.concatenate([negatives[own], positives[own]]), np.repeat([0, 1], [own.sum()] * 2))
            )
    assert result["mean"]["ap_trapezoid"] == pytest.approx(np.mean(collected))


@pytest.mark.parametrize(("kind", "distance"), RUNS)
def test_matching_patch_by_patch(kind, distance):
    descriptors = made_descriptors(kind)
    result = matching(descriptors, list(COUNTS), distance)
    means = {noise: [] for noise in NOISES}
    for sequence, count in COUNTS.items():
        for noise in NOISES:
            for k in range(1, 6):
                reference, other = image(descriptors, sequence, noise, 0), image(descriptors, sequence, noise, k)
                matrix = distance_of(reference[:, None], other[None], distance)
                index, least = matrix.argmin(1), matrix.min(1)
                right = index == np.arange(count)
                safe = right & ((matrix <= least[:, None] + 1e-9).sum(1) == 1)
                found = result["per_pair"][sequence][noise][str(k)]
                assert found["sr"] == pytest.approx(right.mean())
                assert found["sr_tie_safe"] == pytest.approx(safe.mean())
                for form in ("trapezoid", "step"):
                    official = average_precision(least, right, form=form, positives=count)
                    assert found[f"ap_{form}"] == pytest.approx(official)
                    pessimistic = average_precision(least, safe, form=form, ties="pessimistic", positives=count)
                    assert found[f"ap_{form}_tie_safe"] == pytest.approx(pessimistic)
                    assert found[f"ap_{form}_tie_safe"] <= found[f"ap_{form}"] + 1e-12
                means[noise].append((sequence[0], found["ap_trapezoid"]))
    for noise in NOISES:
        assert result["mean"][noise]["ap_trapezoid"] == pytest.approx(np.mean([ap for _, ap in means[noise]]))
    groups = [np.mean([ap for group, ap in means[noise] if group == which]) for which in "iv" for noise in NOISES]
    assert result["article"]["ap_trapezoid"] == pytest.approx(np.mean(groups))
    overall = np.mean([[ap for _, ap in means[noise]] for noise in NOISES])
    assert result["mean"]["all"]["ap_trapezoid"] == pytest.approx(overall)


@pytest.mark.parametrize(("kind", "distance"), RUNS)
def test_retrieval_query_by_query(kind, distance):
    descriptors, tasks = made_descriptors(kind), made_tasks()
    result = average_precisions(
        descriptors, tasks.queries, tasks.distractors, distance, pools=(10, 15, 20000), negatives=("7", "all")
    )
    distractors = listed(tasks.distractors)
    for number, (sequence, _, index) in enumerate(listed(tasks.queries)):
        query = image(descriptors, sequence, "e", 0)[index]
        for level, noise in enumerate(NOISES):
            near = [distance_of(query, image(descriptors, sequence, noise, k)[index], distance) for k in range(1, 6)]
            far = [
                (distance_of(query, image(descriptors, name, "e", 0)[i], distance), name == sequence)
                for name, _, i in distractors
            ]
            others = [d for d, is_own in far if not is_own]
            first_seven = [d for d, is_own in far[:7] if not is_own]
            for pool, negatives in enumerate((others[:5], others[:10], others, first_seven, others)):
                distances = np.array(near + negatives, np.float64)
                labels = np.arange(len(distances)) < 5
                for form in ("trapezoid", "step"):
                    for suffix, ties in (("", "given"), ("_tie_safe", "pessimistic")):
                        wanted = average_precision(np.round(distances, 9), labels, form=form, ties=ties)
                        found = result[f"ap_{form}{suffix}"][number, level, pool]
                        assert found == pytest.approx(wanted), (number, noise, pool, form, ties)


def test_a_task_at_a_time_gives_the_same():
    descriptors, tasks = made_descriptors("ties"), made_tasks()
    whole = score_split(descriptors, tasks)
    for task in ("verification", "matching", "retrieval"):
        stages: list[str] = []
        counts: list[tuple[int, int]] = []
        alone = score_split(
            descriptors,
            tasks,
            only=[task],
            say=stages.append,
            progress=lambda done, total, to=counts: to.append((done, total)),
        )
        assert alone[task] == whole[task]
        assert stages == [task]
        assert counts[-1:] == {"verification": [], "matching": [(3, 3)], "retrieval": [(12, 12)]}[task]
        assert len({"verification", "matching", "retrieval"} & alone.keys()) == 1


def constant(value=0.3):
    return stack_descriptors("constant", {name: np.full((16, n, 4), value) for name, n in COUNTS.items()})


@pytest.mark.parametrize("value", [0.0, 0.3, 1e-30, 1e14])
def test_a_constant_descriptor(value):
    """By tie order alone: ROC area 0, retrieval 1 officially; the tie-safe values show it and a warning says it."""
    result = score_split(constant(value), made_tasks())
    assert result["verification"]["mean"]["auc"] == 0
    n, p = 60, 12
    safe = [(i / (i + n) + max(i - 1, 1e-10) / (i - 1 + n)) / 2 for i in range(1, p + 1)]
    assert result["verification"]["mean"]["ap_trapezoid"] == pytest.approx(np.mean(safe))
    assert result["verification"]["mean"]["ap_step"] == 1
    for name, count in COUNTS.items():
        pair = result["matching"]["per_pair"][name]["h"]["3"]
        assert pair["ap_trapezoid"] == pytest.approx(1 / count)
        assert pair["sr"] == pytest.approx(1 / count)
        assert pair["sr_tie_safe"] == pair["ap_trapezoid_tie_safe"] == 0
    for convention, key in (("python", "ap_trapezoid"), ("matlab", "ap_step")):
        for noise in NOISES:
            for pool in result["retrieval"][convention]["noise"][noise].values():
                assert pool[key] == 1
                assert pool[f"{key}_tie_safe"] < 0.25
    assert len(result["warnings"]) == 3 + (value == 0)
    assert result["blank"] == (576 if value == 0 else 0)


def test_a_perfect_descriptor():
    rows = np.split(np.eye(36), np.cumsum(list(COUNTS.values()))[:-1])
    descriptors = stack_descriptors(
        "perfect", {name: np.tile(part, (16, 1, 1)) for name, part in zip(COUNTS, rows, strict=True)}
    )
    result = score_split(descriptors, made_tasks())
    assert result["matching"]["mean"]["all"] == dict.fromkeys(result["matching"]["mean"]["all"], 1)
    assert result["retrieval"]["python"]["mean"]["20000"] == {"ap_trapezoid": 1, "ap_trapezoid_tie_safe": 1}
    assert result["retrieval"]["matlab"]["mean"]["2000"] == {"ap_step": 1, "ap_step_tie_safe": 1}
    for noise in NOISES:
        intra = result["verification"]["noise"][noise]["intra"]
        assert {*intra["balanced"].values(), *intra["imbalanced"].values()} == {1}
    # By the official rules an "inter" negative may be the very patch: a tie with the positives, and a warning.
    assert len(result["warnings"]) == 1


def test_retrieval_without_distractors_from_other_sequences_is_a_warning():
    """The pool is then the positives alone."""
    descriptors, tasks = made_descriptors("float"), made_tasks(test=["i_one"])
    result = score_split(descriptors, tasks)
    assert result["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid"] == 1
    assert len(result["warnings"]) == 2  # and one about ties
    assert score_split(descriptors, tasks, only=["matching"])["warnings"] == []
    assert "4 of 12 queries" in distractor_warnings(made_tasks().queries, tasks.distractors)[0]
    assert distractor_warnings(made_tasks().queries, made_tasks().distractors) == []


def test_lists_and_settings_that_do_not_fit_are_refused():
    descriptors, tasks = made_descriptors("float"), made_tasks()
    lists = tasks.verification

    def changed(part, row, **columns):
        arrays = {key: getattr(part, key).copy() for key in ("sequences", "images", "indices")}
        for key, value in columns.items():
            arrays[key][row] = value
        return PatchList(**arrays)

    def with_inter(inter):
        return VerificationLists(lists.first, lists.positives, lists.intra, inter)

    none = PatchList(np.array([], str), np.array([], np.int64), np.array([], np.int64))
    short = PatchList(lists.inter.sequences[:9], lists.inter.images[:9], lists.inter.indices[:9])
    for error, function, *arguments in [
        (FileError, verification, with_inter(changed(lists.inter, 6, indices=99))),
        (FileError, verification, with_inter(changed(lists.inter, 6, indices=-1))),
        (FileError, verification, with_inter(changed(lists.inter, 0, sequences="v_no"))),
        (FileError, verification, with_inter(changed(lists.inter, 2, images=6))),
        (ArgumentError, verification, with_inter(short)),
        (ArgumentError, verification, VerificationLists(none, none, none, none)),
        (FileError, retrieval, tasks.queries, changed(tasks.distractors, 1, indices=50)),
        (ArgumentError, retrieval, tasks.queries, changed(tasks.distractors, 2, images=1)),
        (ArgumentError, retrieval, none, tasks.distractors),
        (FileError, matching, ["v_no"]),
        (ArgumentError, matching, []),
    ]:
        with refuses(error):
            function(descriptors, *arguments)
    for error, options in [
        (ArgumentError, {"only": ["detection"]}),
        (ArgumentError, {"whitening": "zca"}),
        (ArgumentError, {"distance": "cosine"}),
        (ArgumentTypeError, {"distance": "hamming"}),
    ]:
        with refuses(error):
            score_split(descriptors, tasks, **options)


def test_a_split_read_from_its_folder(tmp_path):
    tasks = made_tasks(test=["i_one", "v_one"])
    write_tasks(tmp_path, "mine", tasks.verification, tasks.queries, tasks.distractors)
    (tmp_path / "splits.json").write_text(json.dumps({"mine": {"test": tasks.test, "train": ["i_two"]}}))
    read = read_tasks(tmp_path, "mine", COUNTS)
    assert (read.test, read.train) == (["i_one", "v_one"], ["i_two"])
    descriptors = made_descriptors("float")
    found, wanted = (score_split(descriptors, part) for part in (read, tasks))
    assert {**found, "split": "", "lists": {}} == {**wanted, "split": ""}
    assert score_split(descriptors, read, whitening="pcapl")["whitening"] == "pcapl"
    with refuses(ArgumentError):
        read_tasks(tmp_path, "other", COUNTS)
    with refuses(FileError):
        read_tasks(tmp_path, "mine", {"i_one": 12})
