import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.collection.pairs_file import LONGEST_LINE, read_pairs, read_pairs_of, unique_pairs, write_pairs
from matchkernel.errors import ArgumentError, FileError


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a b\nc\n", r"line 2: expected two image names, found 1$"),
        (b"a b c\n", r"line 1: expected two image names, found 3; names with spaces need a tab"),
        (b"a\tb\tc\n", r"line 1: expected two image names, found 3$"),
        (b"a b\n\na a\n", r"line 3: names the image 'a' twice"),
        (b"\ta\n", r"line 1: '' is not the name"),
        (b"a b\nc\xff d\n", r"line 2: its bytes are not UTF-8"),
        (b"a\0 b\n", r"line 1: 'a\\x00' is not the name"),
        (b"a b\n" + b"x" * (LONGEST_LINE + 9), r"line 2: longer than"),
    ],
)
def test_lines_that_are_refused(tmp_path, content, message):
    (tmp_path / "pairs.txt").write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_pairs(tmp_path / "pairs.txt")


def test_files_that_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, message in (("absent", "No such file"), (".", "Is a directory"), ("pipe", "not a regular file")):
        with pytest.raises(FileError, match=message):
            read_pairs(tmp_path / path)
    with pytest.raises(FileError, match="null"):
        read_pairs("a\0b")


def test_a_pair_of_unknown_images_is_named_with_its_line(tmp_path):
    (tmp_path / "pairs.txt").write_text("a b\nb c\n")
    assert read_pairs_of(tmp_path / "pairs.txt", "abc") == [("a", "b"), ("b", "c")]
    with pytest.raises(FileError, match=r"pairs\.txt, line 2: there is no image 'c' among the 2 given"):
        read_pairs_of(tmp_path / "pairs.txt", "ab")


@pytest.mark.parametrize("name", ["", " ", "a\tb", "a\nb", "a\rb", "a\0b", "caf\udce9", "\ufeffa", "x" * LONGEST_LINE])
def test_names_that_are_not_written(tmp_path, name):
    (tmp_path / "pairs.txt").write_text("old\n")
    with pytest.raises(ArgumentError, match="list of pairs"):
        write_pairs(tmp_path / "pairs.txt", [("a", "b"), ("a", name)])
    with pytest.raises(ArgumentError, match="'a' twice"):
        write_pairs(tmp_path / "pairs.txt", [("a", "a")])
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
