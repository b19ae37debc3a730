"""Lists and settings that do not fit, and splits read from a folder."""

import json

import numpy as np
from helpers import refuses
from made_hpatches import COUNTS, made_descriptors, made_tasks

from matchkernel.data.hpatches import PatchList, VerificationLists, read_tasks, write_tasks
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.hpatches.matching import matching
from matchkernel.evaluation.hpatches.retrieval import retrieval
from matchkernel.evaluation.hpatches.verification import verification


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
