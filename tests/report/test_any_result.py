"""A report of any valid results; damaged files are one line."""

import json

from helpers import refuses
from made_results import hpatches, pairs, photos

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.report.page import html_page
from matchkernel.report.write import gather, json_text, markdown

VALID = (hpatches("x"), pairs("x", "A", 0.2), photos("x"))


def outcome(paths):
    """What a report of these files ends in."""
    try:
        report = gather(paths)
        for text in (html_page(report), markdown(report), json_text(report)):
            text.encode("utf-8")
    except MatchKernelError as error:
        return str(error)
    return "a report"


def test_what_is_valid_is_a_report(tmp_path):
    for k, result in enumerate(VALID):
        (tmp_path / f"{k}.json").write_text(json.dumps(result))
    assert outcome([tmp_path]) == "a report"


def test_a_value_next_to_nothing_can_be_drawn(tmp_path):
    result = pairs("x", "A", 1e-300)
    (tmp_path / "x.json").write_text(json.dumps(result))
    assert outcome([tmp_path]) == "a report"


def test_splits_with_other_tasks(tmp_path):
    """They once ended in a KeyError."""
    for split, task in (("a", "matching"), ("b", "retrieval")):
        result = hpatches("x", split=split)
        del result[task]
        (tmp_path / f"{split}.json").write_text(json.dumps(result))
    assert outcome([tmp_path]) == "a report"


def test_files_that_are_no_results(tmp_path):
    with refuses(FileError):
        gather([tmp_path / "none.json"])
    with refuses(ArgumentError):
        gather([tmp_path])
    for k, result in enumerate(VALID):
        text = json.dumps(result)
        for cut in (0, 1, len(text) // 2, len(text) - 1):
            (tmp_path / f"{k}.json").write_text(text[:cut])
            with refuses(FileError):
                gather([tmp_path / f"{k}.json"])
        without = {key: value for key, value in result.items() if key != "descriptor"}
        (tmp_path / f"{k}.json").write_text(json.dumps(without))
        with refuses(FileError):
            gather([tmp_path / f"{k}.json"])
    (tmp_path / "report.json").write_text("[" * 100_000)
    with refuses(FileError):
        gather([tmp_path / "report.json"])
