import os
from contextlib import suppress

import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.files import read_pairs, unique_pairs, write_pairs


def test_pairs_are_written_as_hloc_reads_them(tmp_path):
    pairs = [("b.jpg", "db/a.jpg"), ("c.jpg", "b.jpg")]
    assert write_pairs(tmp_path / "pairs.txt", pairs) == 2
    text = (tmp_path / "pairs.txt").read_text()
    assert text == "b.jpg db/a.jpg\nc.jpg b.jpg\n"
    assert [tuple(line.split()) for line in text.splitlines()] == pairs  # hloc's own way
    assert read_pairs(tmp_path / "pairs.txt") == pairs


def test_a_name_with_a_space_makes_the_line_one_with_a_tab(tmp_path):
    pairs = [("IMG (2).jpg", "b.jpg"), ("b.jpg", "c.jpg"), (" a", "b ")]
    write_pairs(tmp_path / "pairs.txt", pairs)
    assert (tmp_path / "pairs.txt").read_text() == "IMG (2).jpg\tb.jpg\nb.jpg c.jpg\n a\tb \n"
    assert read_pairs(tmp_path / "pairs.txt") == pairs


def test_a_pair_is_kept_once_as_it_came_first(tmp_path):
    pairs = [("b", "a"), ("c", "a"), ("a", "b"), ("b", "a")]
    assert write_pairs(tmp_path / "pairs.txt", pairs) == 2
    (tmp_path / "twice.txt").write_text("b a\nc a\na b\nb a\n")
    assert read_pairs(tmp_path / "twice.txt") == read_pairs(tmp_path / "pairs.txt") == pairs[:2]
    assert list(unique_pairs(pairs, [("d", "c"), ("a", "c")])) == [("b", "a"), ("c", "a"), ("d", "c")]


def test_files_of_other_programs(tmp_path):
    """Windows line ends, a byte order mark, blank lines, several spaces, no newline at the end."""
    (tmp_path / "pairs.txt").write_bytes(b"\xef\xbb\xbfa.jpg b.jpg\r\n\r\n  \n  a.jpg   c.jpg\nc d.jpg\te.jpg")
    assert read_pairs(tmp_path / "pairs.txt") == [("a.jpg", "b.jpg"), ("a.jpg", "c.jpg"), ("c d.jpg", "e.jpg")]
    (tmp_path / "empty.txt").write_text("")
    assert read_pairs(tmp_path / "empty.txt") == []


def test_comments_and_columns_are_read_and_names_that_begin_so_stay_names(tmp_path):
    (tmp_path / "pairs.txt").write_text("# a comment\n#x b\na \t b\nb\t\tc\n#y #z w\n# b\n")
    assert read_pairs(tmp_path / "pairs.txt", ["a", "b", "c", "#x"]) == [("#x", "b"), ("a", "b"), ("b", "c")]


REFUSED_LINES = {
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


@pytest.mark.parametrize("content", REFUSED_LINES.values(), ids=REFUSED_LINES.keys())
def test_lists_that_are_refused(tmp_path, content):
    (tmp_path / "pairs.txt").write_bytes(content)
    with refuses(FileError):
        read_pairs(tmp_path / "pairs.txt", "abc")


def test_files_that_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "pipe", "a\0b"):
        with refuses(FileError):
            read_pairs(path)


def test_a_pair_of_unknown_images_is_named_with_its_line(tmp_path):
    (tmp_path / "pairs.txt").write_text("a b\nb c\n")
    assert read_pairs(tmp_path / "pairs.txt", "abc") == [("a", "b"), ("b", "c")]
    with pytest.raises(FileError, match=r"line 2.*'c'"):
        read_pairs(tmp_path / "pairs.txt", "ab")


@pytest.mark.parametrize("name", ["", " ", "a\tb", "a\nb", "a\rb", "a\0b", "caf\udce9", "\ufeffa", "a"])
def test_names_that_are_not_written(tmp_path, name):
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
def test_anything_else_gives_our_error_or_pairs_that_can_be_written(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.txt"
    path.write_bytes(content)
    with suppress(FileError, ArgumentError):
        pairs = read_pairs(path)
        write_pairs(path, pairs)
        assert read_pairs(path) == pairs
