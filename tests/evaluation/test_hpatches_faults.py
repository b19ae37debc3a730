"""Lists and settings that do not fit, and splits read from a folder."""

import json

import numpy as np
import pytest
from made_hpatches import COUNTS, made_descriptors, made_tasks

from matchkernel.data.hpatches import PatchList, VerificationLists, read_tasks, write_tasks
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.hpatches.matching import matching
from matchkernel.evaluation.hpatches.retrieval import retrieval
from matchkernel.evaluation.hpatches.verification import verification


def test_lists_that_name_what_is_not_there():
    descriptors, tasks = made_descriptors("float"), made_tasks()
    lists = tasks.verification

    def changed(part, row, **columns):
        arrays = {key: getattr(part, key).copy() for key in ("sequences", "images", "indices")}
        for key, value in columns.items():
            arrays[key][row] = value
        return PatchList(**arrays)

    cases = [
        (changed(lists.inter, 6, indices=99), ("inter", "row 7", "refers to patch 99")),
        (changed(lists.inter, 6, indices=-1), ("row 7", "patch -1")),
        (changed(lists.inter, 0, sequences="v_no"), ("row 1", "'v_no'")),
        (changed(lists.inter, 2, images=6), ("row 3", "image 6")),
    ]
    for inter, words in cases:
        with pytest.raises(FileError) as caught:
            verification(descriptors, VerificationLists(lists.first, lists.positives, lists.intra, inter))
        assert all(word in str(caught.value) for word in words), str(caught.value)
    with pytest.raises(FileError, match="retrieval distractors, row 2"):
        retrieval(descriptors, tasks.queries, changed(tasks.distractors, 1, indices=50))
    with pytest.raises(ArgumentError, match="patches of ref, row 3"):
        retrieval(descriptors, tasks.queries, changed(tasks.distractors, 2, images=1))
    with pytest.raises(FileError, match="sequence 'v_no' is missing"):
        matching(descriptors, ["v_no"])
    short = PatchList(lists.inter.sequences[:9], lists.inter.images[:9], lists.inter.indices[:9])
    with pytest.raises(ArgumentError, match="inter has 9 rows"):
        verification(descriptors, VerificationLists(lists.first, lists.positives, lists.intra, short))


def test_empty_lists_and_wrong_settings():
    descriptors, tasks = made_descriptors("float"), made_tasks()
    none = PatchList(np.array([], str), np.array([], np.int64), np.array([], np.int64))
    with pytest.raises(ArgumentError, match="5 pairs or more"):
        verification(descriptors, VerificationLists(none, none, none, none))
    with pytest.raises(ArgumentError, match="queries and distractors, got 0"):
        retrieval(descriptors, none, tasks.distractors)
    with pytest.raises(ArgumentError, match="no test sequences"):
        matching(descriptors, [])
    with pytest.raises(ArgumentError, match="tasks are"):
        score_split(descriptors, tasks, only=["detection"])
    with pytest.raises(ArgumentError, match="whitening must be"):
        score_split(descriptors, tasks, whitening="zca")
    with pytest.raises(ArgumentError, match="distance must be"):
        score_split(descriptors, tasks, distance="cosine")
    with pytest.raises(ArgumentTypeError, match="uint8"):
        score_split(descriptors, tasks, distance="hamming")


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
    with pytest.raises(ArgumentError, match="no split 'other', only mine"):
        read_tasks(tmp_path, "other", COUNTS)
    with pytest.raises(FileError, match="'v_one', which is not in the set"):
        read_tasks(tmp_path, "mine", {"i_one": 12})
