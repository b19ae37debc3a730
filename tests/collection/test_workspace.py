"""The folder that a reconstruction leaves."""

import json
from contextlib import suppress

from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.collection.reconstruct import _read_finished as read_finished
from matchkernel.errors import FileError


def test_a_folder_that_is_no_workspace_is_left_alone(tmp_path):
    for number, content in enumerate(
        ("", "{}", "[]", '{"settings": {}, "inputs": 3}', '{"settings": {}, "inputs": {}}')
    ):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "summary.json").write_text(content)
        with refuses(FileError):
            read_finished(folder, {})
        assert (folder / "summary.json").read_text() == content


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from(["settings", "inputs", "photos", "images"]), inner, max_size=4),
    ).map(lambda made: json.dumps(made).encode())
)
def test_any_summary_is_read_or_our_error(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "fuzzed workspace"
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_bytes(content)
    with suppress(FileError):
        read_finished(folder, {})
