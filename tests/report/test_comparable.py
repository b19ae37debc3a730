"""Results that must not share a row, a column or a file are refused in one line, or shown in separate sections."""

import json

import pytest
from helpers import refuses
from made_results import gathered, grids, hpatches, pairs, photos, row, written

from matchkernel.errors import ArgumentError
from matchkernel.report.write import gather, report_results


def ranked(name, **more):
    return pairs(name, "A", 0.1) | {"retrieval_map": 0.5, "retrieval_queries": 100, "retrieval_seed": 0, **more}


def on_pairs(name, **more):
    return pairs(name, "A", 0.1, **more)


CONFLICTS = {
    "the same result twice": (hpatches("x"), hpatches("x")),
    "two results on one test set": (on_pairs("x"), pairs("x", "A", 0.2)),
    "one name, two networks": (hpatches("x", split="a", parameters=1), hpatches("x", split="b", parameters=2)),
    "two test sets of one name": (on_pairs("x", data_sha256="1"), on_pairs("y", data_sha256="2")),
    "the same photos twice": (photos("x"), photos("x")),
    "more queries": (ranked("x"), ranked("y", retrieval_queries=1000)),
    "all queries": (ranked("x"), ranked("y", retrieval_queries=None)),
    "queries of another draw": (ranked("x"), ranked("y", retrieval_seed=1)),
    "queries of another draw on another set": (ranked("x"), ranked("y", test_set="B", retrieval_seed=1)),
    "queries that are not recorded": (ranked("x"), on_pairs("y", retrieval_map=0.5)),
    "with and without a training set": (on_pairs("net", seed=0), on_pairs("net", seed=1, train_set="B")),
    **{
        f"two recipes, {made.__name__}": (
            made("net", seed=0, recipe={"optimizer": {"rate": 10.0}}),
            made("net", seed=1, recipe={"optimizer": {"rate": 0.1}}),
        )
        for made in (hpatches, on_pairs)
    },
    **{
        f"two configurations, {made.__name__}, {other}": (
            made("net", configuration="polar, s=2", seed=0),
            made("net", seed=1, **other),
        )
        for made in (hpatches, on_pairs)
        for other in ({"configuration": "cart, s=2"}, {})
    },
}


@pytest.mark.parametrize("results", CONFLICTS.values(), ids=CONFLICTS)
def test_two_results_that_cannot_share_a_table_are_both_named(results, tmp_path):
    with pytest.raises(ArgumentError) as caught:
        gathered(tmp_path, *results)
    assert len(str(caught.value).splitlines()) == 1
    assert all(str(tmp_path / f"{k}.json") in str(caught.value) for k in (0, 1))


def test_a_report_of_nothing_is_refused(tmp_path):
    with refuses(ArgumentError):
        gather([tmp_path])


def test_the_seed_of_a_draw_does_not_matter_where_all_patches_are_queries(tmp_path):
    results = [ranked("x", retrieval_queries=None), ranked("y", retrieval_queries=None, retrieval_seed=1)]
    (table,) = grids(gathered(tmp_path / "all", *results), "Retrieval mAP")
    assert len(table.methods) == 2
    no_map = ranked("y", retrieval_map=None, retrieval_seed=1)
    (table,) = grids(gathered(tmp_path / "none", ranked("x"), no_map), "Retrieval mAP")
    assert len(table.methods) == 1


def test_runs_of_one_recipe_are_averaged_and_so_are_earlier_ones_that_do_not_say(tmp_path):
    """Runs on another set may have another recipe, such as more updates."""
    steps = {"sampling": {"steps": 5}}
    recipes = [{"recipe": steps}, {"recipe": steps | {"new": 1}}, {}, {"train_set": "C", "recipe": {}}]
    found = [on_pairs("net", **{"seed": seed, "train_set": "B", **more}) for seed, more in enumerate(recipes)]
    (table,) = grids(gathered(tmp_path, *found), "FPR@95")
    assert len(row(table, "net")["B → A"].values) == 3


def test_methods_of_different_names_may_be_trained_on_different_sets(tmp_path):
    results = [on_pairs("net", seed=0), pairs("other", "A", 0.3, seed=1, train_set="B")]
    (table,) = grids(gathered(tmp_path, *results), "FPR@95")
    assert row(table, "net")["mean"].values == pytest.approx((10,))


def titles(folder):
    return [section.title for section in gather([folder]).sections]


def test_two_sets_have_a_section_each(tmp_path):
    """One method, the same split of two sets: by name, by digest, and where results have no digest."""
    named = [hpatches("x", split="full", set=name, data_sha256=f"{name}0") for name in ("one", "two")]
    assert titles(written(tmp_path / "named", *named)) == [f"HPatches tasks, {n}, split full" for n in ("one", "two")]
    bare = [result | {"data_sha256": None} for result in named]
    assert titles(written(tmp_path / "bare", *bare)) == [f"HPatches tasks, {n}, split full" for n in ("one", "two")]
    same = [result | {"data_sha256": "1"} for result in named]
    assert len(titles(written(tmp_path / "same digest", *same))) == 2
    digests = [result | {"set": "one"} for result in named]
    found = titles(written(tmp_path / "digests", *digests))
    assert len(set(found)) == 2
    assert "data one0" in found[0]
    assert "data two0" in found[1]


def test_sets_of_one_name_are_not_averaged_over_splits(tmp_path):
    """Which digest of a goes with which of b is not known."""
    results = [hpatches("x", split=s, set="one", data_sha256=d) for s, d in (("a", "1"), ("a", "2"), ("b", "3"))]
    assert len(titles(written(tmp_path, *results))) == 3


def test_descriptor_files_without_a_set_are_compared_where_the_digest_is_that_of_one(tmp_path):
    results = [hpatches("x", set="one"), hpatches("files")]
    assert titles(written(tmp_path, *results)) == ["HPatches tasks, one, split made"]


def test_results_of_single_tasks_have_their_own_sections(tmp_path):
    one, two = hpatches("x", split="a"), hpatches("x", split="b")
    del one["matching"], two["verification"]
    assert len(titles(written(tmp_path, one, two))) == 2


def test_a_report_among_its_results_is_passed_over(tmp_path):
    folder = written(tmp_path, hpatches("x"), pairs("x", "A", 0.1))
    first = [path.read_bytes() for path in report_results([folder], folder)]
    assert [path.read_bytes() for path in report_results([folder], folder)] == first
    assert json.loads(first[2])["kind"] == "report"


def test_a_report_never_replaces_a_result(tmp_path):
    folder = written(tmp_path, hpatches("x"))
    (folder / "0.json").rename(folder / "report.json")
    before = (folder / "report.json").read_bytes()
    with refuses(ArgumentError):
        report_results([folder], folder)
    assert (folder / "report.json").read_bytes() == before
    assert report_results([folder], tmp_path / "out")
