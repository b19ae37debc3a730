"""PhotoTourism archives as published, with several pair lists, one or none: packed, scored and reported."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from commands import good
from made_archives import LENGTHS, PROTOCOL, write_archive

from matchkernel.data.patch_set import join_patch_sets, open_patch_set
from matchkernel.data.phototourism import read_mosaic, read_phototourism
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.evaluation.results import read_result
from matchkernel.evaluation.tables import table_of

NAMES = [f"m50_{length}_{length}_0" for length in LENGTHS]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """An archive with six lists and one with the protocol's alone, packed, scored by SIFT and reported."""
    folder = tmp_path_factory.mktemp("archives")
    said = {}
    for seed, (name, lengths) in enumerate({"liberty": LENGTHS, "yosemite": (100_000,)}.items()):
        write_archive(folder / "raw" / name, seed, lengths)
        said[name] = good("data", "pack", folder / "raw" / name, "-o", folder / name).stderr
    sets = [folder / "liberty", folder / "yosemite"]
    said["table"] = good("evaluate", "phototourism", *sets, "--baseline", "sift", "-o", folder / "results").stdout
    good("report", folder / "results", "-o", folder / "report")
    return folder, said


def test_pack_keeps_every_list_and_names_them(scored):
    folder, said = scored
    assert sorted(open_patch_set(folder / "liberty").pairs) == sorted(NAMES)
    assert f"test pairs: {PROTOCOL} and 5 more lists" in said["liberty"]
    assert f"test pairs: {PROTOCOL} ->" in said["yosemite"]


def test_the_table_has_the_protocols_list_first_and_the_others_by_their_full_names(scored):
    folder, said = scored
    six, one = (read_result(folder / "results" / f"phototourism-{name}-sift.json") for name in ("liberty", "yosemite"))
    values = {name: f"{100 * part['fpr95']:.2f}" for name, part in six["pairs"].items()}
    assert len(set(values.values())) == 6, "the lists must differ, or a wrong one would not be seen"
    head, rows = table_of([six, one])
    columns = ["m50", *(name for name in NAMES if name != PROTOCOL)]
    assert [name.removeprefix("FPR@95 ") for name in head if name.startswith("FPR@95")] == columns
    found = dict(zip(head, rows[0], strict=True))
    assert [found[f"FPR@95 {name}"] for name in columns] == [values[PROTOCOL], *(values[name] for name in columns[1:])]
    assert rows[1].count("-") == 5  # the other archive has none of these lists
    assert PROTOCOL in said["table"]  # what m50 stands for


def test_the_report_has_the_protocols_list_as_table_2_and_the_others_by_their_full_names(scored):
    folder, _ = scored
    result = read_result(folder / "results" / "phototourism-liberty-sift.json")["pairs"]
    sections = json.loads((folder / "report" / "report.json").read_text())["sections"]
    assert [section["title"] for section in sections] == [
        "Patch pairs, m50",
        *(f"Patch pairs, {name}" for name in NAMES if name != PROTOCOL),
        "Retrieval in patch sets",
    ]
    for section, name in zip(sections, [PROTOCOL, *(n for n in NAMES if n != PROTOCOL)], strict=False):
        text = json.dumps(section["blocks"][0])
        assert str(100 * result[name]["fpr95"]) in text, name


def test_lists_of_one_kind_without_the_protocols_keep_their_names(tmp_path):
    """No short name could say which of them is meant."""
    good("data", "pack", write_archive(tmp_path / "raw", lengths=(200, 400)), "-o", tmp_path / "set")
    good("evaluate", "phototourism", tmp_path / "set", "--baseline", "sift", "-o", tmp_path / "one.json")
    head, _ = table_of([read_result(tmp_path / "one.json")])
    assert [name for name in head if name.startswith("FPR@95")] == ["FPR@95 m50_200_200_0", "FPR@95 m50_400_400_0"]


def test_archives_are_joined_list_by_list(tmp_path):
    """The joined protocol's list keeps its name; two lists of 50,000 pairs must not take it."""
    parts = []
    for seed, name in enumerate(("one", "two")):
        build_synthetic(tmp_path / name, SyntheticSettings(points=5, patches=2, size=16, seed=seed))
        pairs = {PROTOCOL: np.zeros((6, 3), np.int64), "m50_50000_50000_0": np.zeros((50_000, 3), np.int64)}
        parts.append(dataclasses.replace(open_patch_set(tmp_path / name), pairs=pairs))
    joined = join_patch_sets("both", parts)
    assert {name: len(rows) for name, rows in joined.pairs.items()} == {"m50_50000_50000_0": 100_000, PROTOCOL: 12}
    assert joined.pairs[PROTOCOL][6:, 0].tolist() == [10] * 6


@pytest.mark.parametrize("edition", ["no lists", "torchvision's cache"])
def test_other_editions_are_scored(edition, tmp_path):
    """An archive may hold no list, and torchvision's cache holds the protocol's without its name."""
    raw = write_archive(tmp_path / "liberty", lengths=() if edition == "no lists" else (100_000,))
    if edition != "no lists":
        found = read_phototourism(raw)
        patches = np.concatenate([read_mosaic(path) for path in found.mosaics])[: len(found.labels)]
        raw = tmp_path / "liberty.pt"
        torch.save(tuple(map(torch.from_numpy, (patches, found.labels, found.pairs[PROTOCOL]))), raw)
    good("data", "pack", raw, "-o", tmp_path / "set")
    good("evaluate", "phototourism", tmp_path / "set", "--baseline", "sift", "-o", tmp_path / "one.json")
    head, _ = table_of([read_result(tmp_path / "one.json")])
    assert [name for name in head if "FPR@95" in name] == ([] if edition == "no lists" else ["FPR@95 m50"])
    good("report", tmp_path / "one.json", "-o", tmp_path / "report")
