"""matchkernel evaluate hpatches, as a user meets it: tiny strips, and faults in files that are named."""

import json
import shutil

import pytest
from commands import good, run

from matchkernel.evaluation.results import read_result


def test_hpatches_baselines_and_their_files(here, tmp_path):
    result = good(
        "evaluate", "hpatches", "strips", "--baseline", "orb", "-o", tmp_path, "--write-csv", tmp_path / "csv"
    )
    found = read_result(tmp_path / "hpatches-strips-full-orb.json")
    assert (found["distance"], found["dimension"], found["split"], found["set"]) == ("hamming", 256, "full", "strips")
    assert found["lists"] == {"verification": "read", "retrieval": "read"}
    assert set(found["matching"]["per_pair"]) == {"i_light", "v_turn"}
    assert f"{100 * found['retrieval']['matlab']['mean']['all']['ap_step']:.2f}" in result.stdout
    assert f"{100 * found['matching']['mean']['all']['ap_trapezoid']:.2f}" in result.stdout
    assert "warning: orb on full: retrieval: tied distances raise" in result.stderr
    csv = ("evaluate", "hpatches", "--descriptors", tmp_path / "csv", "--bits", "--tasks", "strips/tasks", "--json")
    (again,) = json.loads(good(*csv).stdout)
    for task in ("verification", "matching", "retrieval"):
        assert again[task] == found[task]
    assert again["patches_sha256"] is None  # the files alone do not tell
    (told,) = json.loads(good(*csv, "strips").stdout)
    assert [told[key] for key in ("data_sha256", "patches_sha256")] == [
        found[key] for key in ("data_sha256", "patches_sha256")
    ]
    strips = shutil.copytree("strips", tmp_path / "other" / "strips")
    shutil.copy(strips / "i_light" / "e1.png", strips / "i_light" / "e2.png")
    (other,) = json.loads(good("evaluate", "hpatches", strips, "--baseline", "orb", "--json").stdout)
    assert other["set"] == found["set"]
    assert len({part["data_sha256"] for part in (found, again, other)}) == 3
    assert other["patches_sha256"] != found["patches_sha256"]
    result = run("evaluate", "hpatches", strips, "--baseline", "orb", "-o", tmp_path)
    assert "hpatches-strips-full-orb.json: contains another result (data_sha256 differs), which is not" in result.stderr


def test_hpatches_options(here, tmp_path):
    common = ("evaluate", "hpatches", "strips", "--model", "seed0.safetensors", "--device", "cpu", "--json")
    (plain,) = json.loads(good(*common, "--name", "mine").stdout)
    assert (plain["descriptor"], plain["train_set"], plain["seed"]) == ("mine", "one", 7)
    assert plain["configuration"] == "cartesian-s1-n8-D=8-d=4"
    (l1,) = json.loads(good(*common, "--distance", "l1", "--task", "matching").stdout)
    assert l1["distance"] == "l1"
    assert "retrieval" not in l1
    assert l1["matching"] != plain["matching"]
    whitened = good(*common, "--tasks", "lists", "--split", "mine", "--whitening", "pcapl", "-o", tmp_path)
    (whitened,) = json.loads(whitened.stdout)
    assert (whitened["whitening"], whitened["sequences"]) == ("pcapl", ["i_light"])
    assert whitened["lists"] == {"verification": "read", "retrieval": "drawn, seed 42"}
    assert (tmp_path / "hpatches-strips-mine-cartesian-s1-n8-D=8-d=4-pcapl-one-seed7.json").is_file()


def test_weights_of_the_package_go_by_their_name_and_show_their_numbers_in_a_narrow_window(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    command = ("evaluate", "hpatches", "strips", "--model", "tiny", "--task", "matching", "--device", "cpu")
    lines = good(*command).stdout.splitlines()
    (found,) = json.loads(good(*command, "--json").stdout)
    assert found["descriptor"] == "tiny"
    assert found["configuration"].startswith("cartesian-s1-n32-widths=[16, 32, 64]-")
    row = next(line.split("  ") for line in lines if line.startswith(" tiny "))
    assert "liberty and 13 more" in [cell.strip() for cell in row]
    assert row[-1].strip() == f"{100 * found['matching']['mean']['all']['ap_trapezoid']:.2f}"


@pytest.fixture(scope="module")
def csv(place):
    """Descriptor files of the strips."""
    good("evaluate", "hpatches", place / "strips", "--baseline", "rootsift", "--write-csv", place / "csv")
    return place / "csv"


def change_line(path, row, line):
    lines = path.read_text().splitlines()
    lines[row - 1 : row] = [] if line is None else [line(lines[row - 1])]
    path.write_text("\n".join(lines) + "\n")


FAULTS = {
    "nan": (lambda c: change_line(c / "v_turn/h3.csv", 4, lambda s: "nan" + s[s.index(",") :]), "v_turn/h3.csv, row 4"),
    "ragged": (lambda c: change_line(c / "i_light/t5.csv", 2, lambda s: s + ",1"), "i_light/t5.csv, row 2"),
    "word": (lambda c: change_line(c / "i_light/e1.csv", 3, lambda s: "x" + s[1:]), "i_light/e1.csv, row 3"),
    "width": (lambda c: (c / "v_turn/e2.csv").write_text("1,2\n" * 25), "v_turn/e2.csv"),
    "count": (lambda c: change_line(c / "v_turn/e2.csv", 1, None), "v_turn/e2.csv"),
    "image": (lambda c: (c / "v_turn/t1.csv").unlink(), "t1.csv"),
    "sequence": (lambda c: shutil.rmtree(c / "i_light"), "i_light"),
    "empty": (lambda c: (c / "i_light/ref.csv").write_text(""), "i_light/ref.csv"),
    "binary": (lambda c: (c / "i_light/ref.csv").write_bytes(bytes(range(256))), "i_light/ref.csv"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_descriptor_files_are_named(fault, csv, here, tmp_path):
    folder = shutil.copytree(csv, tmp_path / "bad")
    FAULTS[fault][0](folder)
    result = run("evaluate", "hpatches", "strips", "--descriptors", folder, "-o", tmp_path / "out.json", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert FAULTS[fault][1] in result.stderr
    assert not (tmp_path / "out.json").exists()


def test_the_set_says_how_many_rows_there_must_be(csv, here, tmp_path):
    """All images of a sequence short by the same row: only the set itself can tell."""
    folder = shutil.copytree(csv, tmp_path / "short")
    for path in (folder / "v_turn").iterdir():
        change_line(path, 25, None)
    result = run("evaluate", "hpatches", "strips", "--descriptors", folder)
    assert result.exit_code == 2
    assert "v_turn/ref.csv" in result.stderr


@pytest.mark.parametrize(
    ("name", "row", "line"),
    [
        ("verif_neg_inter", 8, "i_light,0,3,v_turn,1,25"),
        ("retr_distractors", 3, "v_nowhere,1"),
        ("retr_queries", 2, "i_light,one"),
        ("verif_pos", 5, "i_light,0,3,i_light,6,3"),
    ],
)
def test_lists_that_name_what_is_not_there(name, row, line, here, tmp_path):
    tasks = shutil.copytree("strips/tasks", tmp_path / "tasks")
    path = tasks / f"{name}_split-full.csv"
    if name.startswith("verif_neg"):  # its first patch must stay that of verif_pos
        line = ",".join(path.read_text().splitlines()[row - 1].split(",")[:3] + line.split(",")[3:])
    change_line(path, row, lambda _: line)
    result = run("evaluate", "hpatches", "strips", "--baseline", "sift", "--tasks", tasks, "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert name.partition("_")[0] in result.stderr
    assert not (tmp_path / "x.json").exists()


def test_constant_descriptors_are_scored_with_a_warning(csv, here, tmp_path):
    folder = tmp_path / "constant"
    for path in csv.glob("*/*.csv"):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        (folder / path.parent.name / path.name).write_text("0,0,0\n" * len(path.read_text().splitlines()))
    result = good("evaluate", "hpatches", "strips", "--descriptors", folder, "-o", tmp_path / "x.json")
    found = read_result(tmp_path / "x.json")
    assert found["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid"] == 1
    assert found["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid_tie_safe"] < 0.2
    assert found["blank"] == 800
    assert "warning: constant on full: retrieval: tied distances raise" in result.stderr
    assert "from 1" in result.stderr or "to 100.000 by their order alone" in result.stderr
    assert "800 of 800 patches have no description" in result.stderr


def test_a_broken_strip_is_named(here, tmp_path):
    strips = shutil.copytree("strips", tmp_path / "strips")
    (strips / "v_turn" / "h2.png").write_bytes(b"\x89PNG")
    result = run("evaluate", "hpatches", strips, "--baseline", "sift", "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert "v_turn/h2.png" in result.stderr
    (strips / "v_turn" / "h2.png").unlink()
    assert "h2.png is missing" in run("evaluate", "hpatches", strips, "--baseline", "sift").stderr
    assert not (tmp_path / "x.json").exists()
