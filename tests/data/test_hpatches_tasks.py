"""HPatches' task lists: drawn, written and read as the official ones, or refused."""

import numpy as np
import pytest
from helpers import refuses, tree
from PIL import Image

from matchkernel.data.hpatches import (
    HPatchesSet,
    PatchList,
    VerificationLists,
    draw_retrieval,
    draw_verification,
    read_retrieval,
    read_split,
    read_verification,
    sequence_numbers,
    write_tasks,
)
from matchkernel.errors import ArgumentError, FileError

COUNTS = {"i_ash": 60, "i_birch": 78, "v_cedar": 90, "v_dogwood": 54, "v_elm": 72}
LISTS = ("positives", "intra", "inter")
FILES = ("verif_pos", "verif_neg_intra", "verif_neg_inter", "retr_queries", "retr_distractors")
TEST = ["i_ash", "v_elm"]


def rows_of(*lists):
    columns = [column.tolist() for part in lists for column in (part.sequences, part.images, part.indices)]
    return list(zip(*columns, strict=True))


def pairs_of(part):
    return list(zip(part.sequences.tolist(), part.indices.tolist(), strict=True))


def plain_rows(path):
    """Rows of a list, read without the package."""
    lines = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return [tuple(int(field) if field.isdigit() else field for field in line) for line in lines]


@pytest.mark.parametrize("split", ["a", "b", "full"])
def test_lists_are_drawn_read_and_written_as_the_official_ones(split, golden, tmp_path):
    test, _ = read_split(golden / "tasks", split)
    drawn, read = draw_verification(COUNTS, test, 500), read_verification(golden / "tasks", split)
    retrieval = read_retrieval(golden / "tasks", split)
    for name, file in zip(LISTS, FILES, strict=False):
        official = plain_rows(golden / "tasks" / f"{file}_split-{split}.csv")
        assert len(official) == 500
        assert rows_of(drawn.first, getattr(drawn, name)) == official
        assert rows_of(read.first, getattr(read, name)) == official
    for part, file in zip(retrieval, FILES[3:], strict=True):
        assert not part.images.any()
        assert pairs_of(part) == plain_rows(golden / "tasks" / f"{file}_split-{split}.csv")
    write_tasks(tmp_path, split, drawn, *retrieval)
    assert tree(tmp_path) == {
        name: (golden / "tasks" / name).read_bytes() for name in (f"{file}_split-{split}.csv" for file in FILES)
    }


@pytest.mark.parametrize(("counts", "test"), [(COUNTS, ["i_ash", "i_oak"]), (COUNTS, []), ({"i_ash": 1}, ["i_ash"])])
def test_splits_that_cannot_be_drawn_from_are_refused(counts, test, tmp_path):
    with refuses(ArgumentError):
        draw_verification(counts, test, 5)
    with refuses(ArgumentError):
        draw_retrieval(HPatchesSet(tmp_path, counts), test)


@pytest.fixture
def patches(tmp_path):
    """Two sequences of 40 patches whose gray values deviate by 0 to 19.5; those up to number 20 by at most 10."""
    for seed, name in enumerate(TEST):
        signs = np.random.default_rng(seed).permuted(np.resize([-1, 1], (40, 65 * 65)), axis=1)
        strip = (128 + signs * (np.arange(40)[:, None] // 2)).astype(np.uint8)
        (tmp_path / name).mkdir()
        Image.fromarray(strip.reshape(-1, 65)).save(tmp_path / name / "ref.png")
    return HPatchesSet(tmp_path, dict.fromkeys(TEST, 40))


def test_retrieval_lists_are_disjoint_without_duplicates_and_of_enough_contrast(patches):
    queries, distractors = draw_retrieval(patches, TEST, queries=6, distractors=15)
    assert (len(queries), len(distractors)) == (6, 15)
    usable = {(name, k) for name in TEST for k in range(40) if patches.read(name)[k].std() > 10}
    assert usable == {(name, k) for name in TEST for k in range(22, 40)}  # 20 and 21 deviate by a hair less than 10
    assert len({*pairs_of(queries), *pairs_of(distractors)} & usable) == 21
    every = [pairs_of(part) for part in draw_retrieval(patches, TEST)]  # a small set: a quarter of it are queries
    assert [len(part) for part in every] == [9, 27]
    assert {*every[0], *every[1]} == usable


def test_a_set_without_contrast_gives_empty_lists_that_can_be_written_and_read(patches, tmp_path):
    Image.fromarray(np.full((40 * 65, 65), 7, np.uint8)).save(patches.root / "i_ash" / "ref.png")
    lists = draw_retrieval(patches, ["i_ash"])
    assert [len(part) for part in lists] == [0, 0]
    write_tasks(tmp_path, "x", draw_verification(COUNTS, TEST, 2), *lists)
    assert [pairs_of(part) for part in read_retrieval(tmp_path, "x")] == [[], []]


@pytest.fixture
def tasks(tmp_path):
    """A folder of small lists to be damaged."""
    queries = PatchList(np.array(["i_ash", "v_elm"]), np.zeros(2, int), np.array([3, 4]))
    write_tasks(tmp_path, "x", draw_verification(COUNTS, TEST, 4), queries, queries)
    return tmp_path


def read(tasks, file):
    return read_verification(tasks, "x") if file.startswith("verif") else read_retrieval(tasks, "x")


ROWS = {"verif_neg_intra": "i_ash,1,3,v_elm,2,4", "retr_queries": "i_ash,3"}


LINES = [
    *((3, "3", "3,9,9"), (3, ",3", ""), (3, "i_ash,", ""), (3, "3", "three"), (3, "3", "3.0"), (3, "3", "")),
    *((3, "3", str(2**64)), (1, "", ""), (3, "i_ash", "x" * 150_000), (3, "i_ash", "x" * 201), (3, "i_ash", "\udcff")),
]


@pytest.mark.parametrize("file", ROWS)
def test_broken_and_missing_lists_are_refused(file, tasks):
    path = tasks / f"{file}_split-x.csv"
    whole = path.read_bytes().splitlines(keepends=True)
    for line, old, new in LINES:
        changed = ROWS[file].replace(old, new, 1).encode(errors="surrogateescape") + b"\n"
        path.write_bytes(b"".join([*whole[: line - 1], changed, *whole[line:]]))
        with refuses(FileError):
            read(tasks, file)
    path.write_bytes(b"")
    with refuses(FileError):
        read(tasks, file)
    path.unlink()
    with refuses(FileError):
        read(tasks, file)


@pytest.mark.parametrize("kind", ["neg_intra", "neg_inter"])
def test_lists_with_other_first_patches_are_refused(kind, tasks):
    path = tasks / f"verif_{kind}_split-x.csv"
    lines = path.read_text().splitlines()
    first = lines[2].split(",")
    others = [",".join([*first[:k], value, *first[k + 1 :]]) for k, value in enumerate(("i_birch", "5", "59"))]
    for changed in (lines[:-1], *([*lines[:2], other, *lines[3:]] for other in others)):
        path.write_text("\n".join(changed) + "\n")
        with refuses(FileError):
            read_verification(tasks, "x")


@pytest.mark.parametrize(
    ("name", "image", "index"),
    [("v_elm", 0, 72), ("v_elm", 0, -1), ("v_oak", 0, 0), ("v_elm", 6, 0), ("v_elm", -1, 0)],
)
def test_a_list_that_names_a_patch_which_is_not_in_the_set_is_refused(name, image, index):
    good = PatchList(np.array(["i_ash", "v_elm"]), np.zeros(2, int), np.array([59, 71]))
    assert sequence_numbers(good, COUNTS, "queries").tolist() == [0, 4]
    bad = PatchList(np.array(["i_ash", name]), np.array([0, image]), np.array([59, index]))
    with refuses(FileError):
        sequence_numbers(bad, COUNTS, "queries")


def test_names_with_commas_and_quotes_survive_and_windows_line_ends_are_read(tmp_path):
    odd = PatchList(np.array(['a,"b', "ü"]), np.array([0, 4]), np.array([1, 2]))
    write_tasks(tmp_path, "x", VerificationLists(odd, odd, odd, odd), odd, odd)
    for _ in range(2):
        assert rows_of(read_verification(tmp_path, "x").inter) == [('a,"b', 0, 1), ("ü", 4, 2)]
        assert pairs_of(read_retrieval(tmp_path, "x")[1]) == [('a,"b', 1), ("ü", 2)]
        for path in tmp_path.glob("*.csv"):
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def test_a_damaged_row_of_a_list_is_named_with_its_line(tasks):
    path = tasks / "verif_pos_split-x.csv"
    header, *rows = path.read_text().splitlines()
    for wrong in ("garbage", rows[1].replace(",", ",-", 1), rows[1] + ",1"):
        path.write_text("\n".join([header, rows[0], wrong, *rows[2:]]) + "\n")
        with pytest.raises(FileError, match="line 3"):
            read(tasks, "verif_pos")
