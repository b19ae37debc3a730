"""Lists of pairs: what is written is read, and everything else is refused in one line."""

import contextlib

import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.pair_lists import read_pairs, unique_pairs, write_pairs


def test_pairs_are_written_as_hloc_reads_them(tmp_path):
    """hloc splits lines at spaces; a name with a space makes the line one with a tab."""
    path, pairs = tmp_path / "pairs.txt", [("b.jpg", "db/a.jpg"), ("IMG (2).jpg", "b.jpg"), (" a", "b ")]
    assert write_pairs(path, pairs) == 3
    assert path.read_text() == "b.jpg db/a.jpg\nIMG (2).jpg\tb.jpg\n a\tb \n"
    assert read_pairs(path) == pairs


def test_a_pair_is_kept_once_as_it_came_first(tmp_path):
    pairs = [("b", "a"), ("c", "a"), ("a", "b"), ("b", "a")]
    assert write_pairs(tmp_path / "pairs.txt", pairs) == 2
    (tmp_path / "twice.txt").write_text("b a\nc a\na b\nb a\n")
    assert read_pairs(tmp_path / "twice.txt") == read_pairs(tmp_path / "pairs.txt") == pairs[:2]
    assert list(unique_pairs(pairs, [("d", "c"), ("a", "c")])) == [("b", "a"), ("c", "a"), ("d", "c")]


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        (b"", []),
        # Windows line ends, a byte order mark, blank lines, several spaces, no newline at the end.
        (b"\xef\xbb\xbfa b\r\n\r\n  \n  a   c\nc d\te", [("a", "b"), ("a", "c"), ("c d", "e")]),
        # Comments and columns; names that begin like comments stay names.
        (b"# a comment\n#x b\na \t b\nb\t\tc\n#y #z w\n# b\n", [("#x", "b"), ("a", "b"), ("b", "c")]),
    ],
)
def test_lists_of_other_programs_are_read(content, pairs, tmp_path):
    (tmp_path / "pairs.txt").write_bytes(content)
    assert read_pairs(tmp_path / "pairs.txt", ["a", "b", "c", "c d", "e", "#x"]) == pairs


BAD_LISTS = {
    "one name": b"a b\nc\n",
    "three names": b"a b c\n",
    "three names and tabs": b"a\tb\tc\n",
    "an image with itself": b"a b\n\na a\n",
    "an empty name": b"\ta\n",
    "not UTF-8": b"a b\nc\xff d\n",
    "a NUL": b"a\0 b\n",
    "an endless line": b"a b\n" + b"x" * 10**6,
    "an unknown image": b"a d\n",
    "an unknown image with a space": b"a\tc d\n",
}


@pytest.mark.parametrize("content", BAD_LISTS.values(), ids=BAD_LISTS.keys())
def test_lists_that_cannot_be_read_are_refused(tmp_path, content):
    (tmp_path / "pairs.txt").write_bytes(content)
    with refuses(FileError):
        read_pairs(tmp_path / "pairs.txt", "abc")


@pytest.mark.parametrize("name", ["", " ", "a\tb", "a\nb", "a\rb", "a\0b", "caf\udce9", "\ufeffa", "a"])
def test_names_that_a_list_cannot_hold_are_refused(tmp_path, name):
    (tmp_path / "pairs.txt").write_text("old\n")
    with refuses(ArgumentError):
        write_pairs(tmp_path / "pairs.txt", [("a", "b"), ("a", name)])
    assert (tmp_path / "pairs.txt").read_text() == "old\n"
    assert len(list(tmp_path.iterdir())) == 1


names = st.text(st.characters(exclude_characters="\t\n\r\0\ufeff", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name.strip()
)


@given(st.lists(st.tuples(names, names).filter(lambda pair: pair[0] != pair[1])))
def test_any_names_come_back(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "written.txt"
    write_pairs(path, pairs)
    assert read_pairs(path) == list(unique_pairs(pairs))


@given(st.binary(max_size=200) | st.text("ab \t\r\n\0é\u2028", max_size=60).map(str.encode))
def test_any_bytes_give_our_error_or_pairs_that_can_be_written(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.txt"
    path.write_bytes(content)
    with contextlib.suppress(FileError, ArgumentError):
        pairs = read_pairs(path)
        write_pairs(path, pairs)
        assert read_pairs(path) == pairs
