import subprocess
import sys

import numpy as np
import pytest
from helpers import refuses
from made_hpatches import COUNTS, made_descriptors

from matchkernel.data.hpatches import IMAGES
from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.hpatches.files import read_descriptor_file, read_descriptors, write_descriptors

VALID = b"0.5,1,-2e-3\n1,2,3\n4,5.25,6\n"


@pytest.mark.parametrize("kind", ["float", "ties", "bits"])
def test_what_was_written_is_read_back_bit_for_bit(kind, tmp_path):
    descriptors = made_descriptors(kind)
    write_descriptors(tmp_path / "mine", descriptors)
    read = read_descriptors(tmp_path / "mine", bits=kind == "bits")
    assert read.name == "mine"
    assert read.counts == COUNTS
    assert read.rows.dtype == descriptors.rows.dtype
    assert np.array_equal(read.rows, descriptors.rows)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.csv")}
    assert len(before) == 3 * 16
    write_descriptors(tmp_path / "mine", read)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_any_float32_reads_back(tmp_path):
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 16 * 40 * 6, dtype=np.uint32).view(np.float32)
    values = np.where(np.abs(bits) < 1e15, bits, np.float32(0)).reshape(-1, 6)  # NaN goes too
    write_descriptors(tmp_path / "all", HPatchesDescriptors("all", values, {"v_x": 40}))
    assert np.array_equal(read_descriptors(tmp_path / "all").rows, values)


def test_chosen_sequences_in_the_order_asked_for(tmp_path):
    write_descriptors(tmp_path / "d", made_descriptors("float"))
    read = read_descriptors(tmp_path / "d", ["v_one", "i_one"])
    assert list(read.counts) == ["v_one", "i_one"]
    assert np.array_equal(read.sequence("v_one"), made_descriptors("float").sequence("v_one"))


@pytest.mark.parametrize(
    "content", [VALID, VALID.replace(b",", b";"), VALID.replace(b"\n", b"\r\n"), VALID + b"\n \n", VALID[:-1]]
)
def test_layouts_that_are_read(content, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    wanted = np.array([[0.5, 1, -2e-3], [1, 2, 3], [4, 5.25, 6]], np.float32)
    assert np.array_equal(read_descriptor_file(path), wanted)


@pytest.mark.parametrize(
    "content",
    [
        b"", b" \n\n", b"1,2\n3\n", b"1,2\n3,4,5\n", b"1,2\n\n3,4\n", b"1,2\n3,x\n", b"1,2\n3,\n", b"1,2\n3,nan\n",
        b"1,2\n3,inf\n", b"1,2\n3,1e20\n", b"1\n2\n", b"1\t2\n3\t4\n", b"a,b\n1,2\n", b"1,2\n\xff\xfe\n",
        b"# 1,2\n1,2\n",
    ],
)  # fmt: skip
def test_broken_files_are_refused(content, tmp_path):
    (tmp_path / "h3.csv").write_bytes(content)
    for bits in (False, True):
        with refuses(FileError):
            read_descriptor_file(tmp_path / "h3.csv", bits=bits)
    for value in ("256", "-1", "0.5"):
        (tmp_path / "h3.csv").write_text(f"1,2\n3,{value}\n")
        with refuses(FileError):
            read_descriptor_file(tmp_path / "h3.csv", bits=True)


def test_a_folder_that_is_not_complete_is_refused(tmp_path):
    folder = tmp_path / "d"

    def refused(**options):
        with refuses(FileError):
            read_descriptors(folder, **options)

    refused()
    folder.mkdir()
    refused()
    write_descriptors(folder, made_descriptors("float"))
    refused(sequences=["v_none"])
    refused(counts={"v_one": 14})
    refused(counts={"v_one": 99})
    target = folder / "i_two" / "h3.csv"
    lines = target.read_text().splitlines()
    for changed in (lines[:-1], [*lines, lines[0]], [line.rsplit(",", 1)[0] for line in lines]):
        target.write_text("\n".join(changed))
        refused()
    target.unlink()
    refused()
    for path in (tmp_path, tmp_path / "no.csv"):
        with refuses(FileError):
            read_descriptor_file(path)


def test_what_cannot_be_written_is_refused(tmp_path):
    for name in ("..", "a/b", "", "/tmp/x"):
        with refuses(ArgumentError):
            write_descriptors(tmp_path / "d", HPatchesDescriptors("d", np.zeros((16, 2), np.float32), {name: 1}))
    assert not (tmp_path / "d").exists()
    (tmp_path / "d").write_text("a file in the way")
    with refuses(WriteError):
        write_descriptors(tmp_path / "d", made_descriptors("float"))


def test_a_kill_while_writing_leaves_no_half_file(tmp_path):
    """Killed at some file of many: what is there is whole, and a sequence without ref.csv is not counted."""
    code = """
import os, sys
import numpy as np
from matchkernel.evaluation.hpatches.files import write_descriptors
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
def stop(event, arguments):
    if event == "os.rename" and "v_b/h2.csv" in str(arguments):
        os._exit(9)
sys.addaudithook(stop)
rows = np.ones((32, 3), np.float32)
write_descriptors(sys.argv[1], HPatchesDescriptors("d", rows, {"v_a": 1, "v_b": 1}))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d")], check=False)
    assert done.returncode == 9
    assert list(read_descriptors(tmp_path / "d").counts) == ["v_a"]
    assert len(list((tmp_path / "d" / "v_b").glob("[eht]*.csv"))) == IMAGES.index("h2") - 1
    with refuses(FileError):
        read_descriptors(tmp_path / "d", ["v_a", "v_b"])
