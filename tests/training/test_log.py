"""The log of a run: entries come back, a kill loses nothing, and a resumed run continues it."""

import json
import math

import pytest
from helpers import refuses

from matchkernel.errors import FileError
from matchkernel.training.log import LOG, Log, read_log


def written(folder, steps, start=0):
    """A log with an entry for each step."""
    with Log(folder, start) as log:
        for step in steps:
            log.write(step, "training", loss=1 / (step + 1), rate=0.1)
    return folder / LOG


def steps_of(path):
    return [entry["step"] for entry in read_log(path)]


def test_entries_are_read_as_they_were_written_and_at_once(tmp_path):
    entries = [
        {"step": 0, "event": "start", "config": {"seed": 3, "data": {"train": ["ä\n"]}}, "device": "cpu"},
        {"step": 10, "event": "training", "loss": 0.1 + 0.2, "rate": 1e-300, "speed": math.inf},
        {"step": 20, "event": "end", "is_finished": True},
    ]
    with Log(tmp_path, 0) as log:
        for count, entry in enumerate(entries):
            assert read_log(tmp_path / LOG) == entries[:count]
            log.write(**entry)
    lines = (tmp_path / LOG).read_text().splitlines()
    assert [json.loads(line) for line in lines] == entries  # one object per line


def test_a_last_line_cut_anywhere_is_left_out(tmp_path):
    whole = written(tmp_path, [1, 2, 3]).read_bytes()
    ends = [k + 1 for k, byte in enumerate(whole) if byte == ord("\n")]
    path = tmp_path / "cut.jsonl"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert steps_of(path) == list(range(1, 1 + sum(end <= cut for end in ends)))


BAD = ["", "garbage", "3", "[]", "null", '"step"', "{}", '{"step": "3"}', '{"step": 1.0}', '{"step": null}']
BAD += ['{"step": 3', '{"step": 3} x', "[" * 10**5, "9" * 5000, "\x00" * 30, "\udcff"]


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_a_line_that_is_not_an_entry_is_refused(tmp_path, line):
    path = written(tmp_path, [1, 2, 3, 4])
    lines = path.read_bytes().split(b"\n")
    broken = b"\n".join([*lines[:2], line.encode("utf-8", "surrogateescape"), *lines[2:]])
    path.write_bytes(broken)
    with refuses(FileError):
        read_log(path)
    with refuses(FileError):
        Log(tmp_path, 5)  # a run cannot continue it
    assert path.read_bytes() == broken


def test_a_log_that_is_missing_or_a_folder_is_refused(tmp_path):
    (tmp_path / "folder" / LOG).mkdir(parents=True)
    for path in (tmp_path / LOG, tmp_path):
        with refuses(FileError):
            read_log(path)
    with refuses(FileError):
        Log(tmp_path / "folder", 0)


def test_a_resumed_run_drops_what_comes_after_its_checkpoint_and_a_new_run_everything(tmp_path):
    path = written(tmp_path, [10, 20, 30, 40])
    path.write_bytes(path.read_bytes()[:-5])  # killed while writing
    written(tmp_path, [30, 50], start=20)
    assert steps_of(path) == [10, 20, 30, 50]
    path.write_text("garbage\n")
    written(tmp_path, [7])
    assert steps_of(path) == [7]
