"""Whatever is done to a result, the end is a report or one error in one line."""

import copy
import json

import pytest
from helpers import attempt
from hypothesis import given
from hypothesis import strategies as st
from made_results import hpatches, pairs, photos

from matchkernel.report import write
from matchkernel.report.write import report_results

FACTS = {
    "parameters": 9, "hand_crafted": False, "configuration": "x", "train_set": "T", "seed": 1, "set": "own",
    "data_sha256": "12", "settings": {"call": "f(1)"}, "weights": "x.safetensors",
}  # fmt: skip
RETRIEVED = {"retrieval_map": 0.5, "retrieval_map_highest": 0.6, "retrieval_queries": 9, "retrieval_seed": 0}
PAIRS = pairs("x", "A", 0.2, **FACTS, **RETRIEVED)
PAIRS["pairs"]["m50_1_1_0"] |= {"fpr95_lowest": 0.1, "roc": {"fpr": [0.0, 0.1, 1.0], "tpr": [0.0, 0.9, 1.0]}}
VALID = (hpatches("x", **FACTS), PAIRS, photos("x"))
ODD = [
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-320, 1.5, 1e308, 10**400, "", " ", "x", "a\nb", "\ud800", [], [None],
    [[]], {}, {"": 1}, {"_": 1}, {"ap_trapezoid": None}, {"ap_trapezoid": 0.5}, {"x": {"e": {"1": {}}}}, {"e": 0.5},
]  # fmt: skip


def places(part, path=()):
    """Every place in a result, by its keys."""
    entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


PLACES = [(k, place) for k, result in enumerate(VALID) for place in places(result)]
SHALLOW = [(k, place) for k, place in PLACES if len(place) <= 3]
CHANGES = st.one_of(
    st.sampled_from(["delete", "rename", "infinite"]),
    st.sampled_from(ODD).map(lambda value: ("set", value)),
)


def changed(result, place, change):
    """The text of a result with one thing done to it."""
    result = copy.deepcopy(result)
    parent = result
    for key in place[:-1]:
        parent = parent[key]
    if change == "delete":
        del parent[place[-1]]
    elif change == "rename":
        value = parent.pop(place[-1])
        parent.update({"": value}) if isinstance(parent, dict) else parent.append({"": value})
    else:
        parent[place[-1]] = "INFINITE" if change == "infinite" else change[1]
    return json.dumps(result).replace('"INFINITE"', "1e999")


@pytest.fixture
def without_charts(monkeypatch):
    """Charts take longer than everything else."""
    monkeypatch.setattr(write, "html_page", lambda report: "")


@given(where=st.one_of(st.sampled_from(SHALLOW), st.sampled_from(PLACES)), change=CHANGES, beside=st.booleans())
def test_any_change_ends_in_a_report_or_in_one_line(where, change, beside, tmp_path, without_charts):
    k, place = where
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_text(changed(VALID[k], place, change))
    two.write_text(json.dumps(VALID[k] | {"seed": 2, "keypoints": 7}))
    message = attempt(report_results, [one, two] if beside else [one], tmp_path / "report")[1] or "a report"
    assert len(message.splitlines()) == 1
    assert message == "a report" or "one.json" in message
