import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import FileError
from matchkernel.training.log import LOG, Log, LogLine, read_log


def written(folder, steps, start=0):
    """A log with an entry for each step."""
    with Log(folder, start) as log:
        for step in steps:
            log.write(step, "training", loss=1 / (step + 1), rate=0.1)
    return folder / LOG


def steps_of(path):
    return [entry["step"] for entry in read_log(path)]


def test_what_is_written_is_read(tmp_path):
    with Log(tmp_path, 0) as log:
        log.write(0, "start", config={"seed": 3, "data": {"train": ["ä\n"]}}, device="cpu")
        log.write(10, "training", loss=0.1 + 0.2, rate=1e-300)
        log.write(20, "end", is_finished=True)
    assert read_log(tmp_path / LOG) == [
        {"step": 0, "event": "start", "config": {"seed": 3, "data": {"train": ["ä\n"]}}, "device": "cpu"},
        {"step": 10, "event": "training", "loss": 0.1 + 0.2, "rate": 1e-300},
        {"step": 20, "event": "end", "is_finished": True},
    ]
    lines = (tmp_path / LOG).read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["start", "training", "end"]  # one object a line


def test_a_line_prints_what_it_has():
    assert str(LogLine(5, 20, 0.51234, 10.0, 1234.5)) == "step 5/20  loss 0.5123  rate 10  1,234 patches/s"
    scores = {"fpr95": 0.1, "map": 0.82345}
    assert str(LogLine(20, 20, validation=scores)) == "step 20/20  validation: FPR@95 0.1000, mAP 0.8235"


def test_an_entry_is_in_the_file_at_once(tmp_path):
    """A kill loses nothing that was logged."""
    with Log(tmp_path, 0) as log:
        for step in range(3):
            log.write(step, "training", loss=1.0)
            assert steps_of(tmp_path / LOG) == list(range(step + 1))


def test_a_log_without_entries_is_empty(tmp_path):
    assert read_log(written(tmp_path, [])) == []


def test_numbers_that_are_none_come_back(tmp_path):
    with Log(tmp_path, 0) as log:
        log.write(1, "training", loss=math.nan, rate=math.inf)
    (entry,) = read_log(tmp_path / LOG)
    assert math.isnan(entry["loss"])
    assert entry["rate"] == math.inf


def test_a_last_line_cut_anywhere_is_left_out(tmp_path):
    whole = written(tmp_path, [1, 2, 3]).read_bytes()
    ends = [k + 1 for k, byte in enumerate(whole) if byte == ord("\n")]
    path = tmp_path / "cut.jsonl"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert steps_of(path) == list(range(1, 1 + sum(end <= cut for end in ends)))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "garbage",
        "3",
        "[]",
        "null",
        '"step"',
        "{}",
        '{"step": "3"}',
        '{"step": 1.0}',
        '{"step": null}',
        '{"step": 3',
        '{"step": 3} x',
        "[" * 10**5,
        "9" * 5000,
        "\x00" * 30,
        "\udcff",
    ],
    ids=range(16),
)
def test_a_line_that_is_no_entry_is_named(tmp_path, line):
    path = written(tmp_path, [1, 2, 3, 4])
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], line.encode("utf-8", "surrogateescape"), *lines[2:]]))
    with pytest.raises(FileError) as caught:
        read_log(path)
    assert str(caught.value) == f"{path}, line 3: not an entry of a training log; remove that line to continue"
    path.write_bytes(b"\n".join([b"[]", *lines]))
    with pytest.raises(FileError, match="line 1: not an entry"):
        read_log(path)
    path.write_text("preset = 'paper'\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"not a training log; it is called log\.jsonl, in the folder of a run"):
        read_log(path)


def test_a_log_that_is_not_there_is_named(tmp_path):
    for path in (tmp_path / LOG, tmp_path):
        with pytest.raises(FileError, match="cannot be read") as caught:
            read_log(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_a_resumed_run_drops_what_comes_after_its_checkpoint(tmp_path):
    path = written(tmp_path, [10, 20, 30, 40])
    before = read_log(path)
    written(tmp_path, [], start=25)
    assert read_log(path) == before[:2]
    written(tmp_path, [30, 50], start=20)
    assert steps_of(path) == [10, 20, 30, 50]
    assert read_log(path)[:3] == before[:3]


def test_a_run_resumed_at_a_logged_step_keeps_that_entry(tmp_path):
    path = written(tmp_path, [10, 20, 30])
    written(tmp_path, [], start=30)
    assert steps_of(path) == [10, 20, 30]


def test_a_resumed_run_goes_on_after_a_cut_line(tmp_path):
    path = written(tmp_path, [10, 20])
    path.write_bytes(path.read_bytes()[:-5])
    written(tmp_path, [20, 30], start=10)
    assert steps_of(path) == [10, 20, 30]


def test_a_new_run_begins_a_new_log(tmp_path):
    path = written(tmp_path, [10, 20])
    written(tmp_path, [5])
    assert steps_of(path) == [5]
    path.write_text("garbage\n")  # nothing of it is needed
    written(tmp_path, [7])
    assert steps_of(path) == [7]


def test_a_run_cannot_go_on_with_a_foreign_log_and_leaves_it_alone(tmp_path):
    path = tmp_path / LOG
    path.write_text('{"step": 1}\ngarbage\n{"step": 2}\n')
    with pytest.raises(FileError, match="line 2"):
        Log(tmp_path, 5)
    assert path.read_text() == '{"step": 1}\ngarbage\n{"step": 2}\n'


def test_a_log_that_cannot_be_opened_is_our_error(tmp_path):
    (tmp_path / LOG).mkdir()
    try:
        Log(tmp_path, 0)
    except FileError:
        return
    raise AssertionError


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / LOG


entries = st.fixed_dictionaries({"step": st.integers(0, 10**9), "loss": st.floats(allow_nan=False)})


@given(st.lists(entries, max_size=5), st.integers(0, 10**9))
def test_any_log_is_cut_to_the_step_resumed_from(scratch, logged, step):
    scratch.write_text("".join(json.dumps(entry) + "\n" for entry in logged))
    with Log(scratch.parent, step):
        pass
    assert read_log(scratch) == ([entry for entry in logged if entry["step"] <= step] if step else [])


@given(
    st.binary(max_size=80)
    | st.lists(st.sampled_from([b'{"step": 1}', b"\n", b"{", b"\r", b"1", b"\xff"])).map(b"".join)
)
def test_any_bytes_give_entries_or_a_file_error(scratch, content):
    scratch.write_bytes(content)
    try:
        found = read_log(scratch)
    except FileError:
        return
    assert all(isinstance(entry["step"], int) for entry in found)
    assert len(found) <= content.count(b"\n") + content.count(b"\r")


@given(st.data())
def test_a_log_with_a_byte_changed_gives_entries_or_a_file_error(scratch, data):
    whole = bytearray(b"".join(json.dumps({"step": k, "event": "x", "loss": 0.5}).encode() + b"\n" for k in range(3)))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    scratch.write_bytes(bytes(whole))
    try:
        found = read_log(scratch)
    except FileError:
        return
    assert 2 <= len(found) <= 3
