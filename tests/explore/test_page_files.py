"""The files of the page: small, complete, from nowhere else, and what they say is what was measured."""

import json
import re
from pathlib import Path

import numpy as np
from made_photos import unpack

from matchkernel.explore.inside import COMPARED, PatchInspector
from matchkernel.explore.page_files import SCRIPTS, TYPES, pack, page_file
from matchkernel.explore.save import self_contained


def test_arrays_of_a_bundle_begin_where_typed_arrays_may():
    kinds = (np.uint8, np.float32, np.uint16, np.uint32)
    arrays = {f"{k} é": np.arange(3 * k, dtype=kinds[k % 4]).reshape(3, k) for k in range(9)}
    data = pack({"a": [1, "é"]}, arrays)
    facts, back = unpack(data)
    assert facts == {"a": [1, "é"]}
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    end = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:end]).items():
        assert name == "__metadata__" or (end + entry["data_offsets"][0]) % arrays[name].itemsize == 0


def test_scripts_import_only_from_those_before_them_and_share_no_name():
    """So that they can be joined into one script as they are."""
    names = []
    for number, script in enumerate(SCRIPTS):
        text = page_file(script)
        imported = re.findall(r'^import \{ ([^}]+) \} from "\./([a-z]+\.js)";$', text, re.MULTILINE)
        assert len(imported) == len(re.findall(r"^import\b", text, re.MULTILINE)), script
        for wanted, source in imported:
            assert SCRIPTS.index(source) < number, f"{script} imports from {source}"
            for name in wanted.split(", "):
                assert re.search(rf"^export (async )?(function|class|const) {name}\b", page_file(source), re.MULTILINE)
        names += re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_nothing_in_the_page_comes_from_elsewhere():
    for name in ("index.html", "style.css", *SCRIPTS):
        assert not re.search(r"https?://|//[a-z]+\.[a-z]+/|@import|url\(", page_file(name)), name
    joined = self_contained("")
    assert "/page/" not in joined
    assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)


def test_the_files_of_the_page_stay_small():
    sizes = {name: len(page_file(name).encode()) for name in TYPES}
    assert sum(sizes.values()) <= 1.5 * 64_219, sizes  # of the page before it answered a question first


def test_every_curve_has_a_colour_of_its_own():
    (colours,) = re.findall(r"^const LINES = \[(.*)\];", page_file("curve.js"), re.MULTILINE)
    (dashes,) = re.findall(r"^const DASHES = \[(.*)\];", page_file("curve.js"), re.MULTILINE)
    inspector, most = PatchInspector(2), 0
    for matched in inspector.models:
        shown = {matched, *COMPARED}
        lines = 1 + sum(model in shown for model in inspector.views.values())  # and RootSIFT
        most = max(most, lines)
    colours, dashes = colours.split(", "), json.loads(f"[{dashes}]")
    looks = {(colours[number % len(colours)], str(dashes[number % len(dashes)])) for number in range(most)}
    assert len(looks) == most
    assert len(set(colours)) >= 8  # all different, where the default matched


def test_the_words_on_weak_answers_are_those_of_the_look_alikes():
    stored = Path(__file__).parents[2] / "experiments" / "results" / "look_alikes_small.json"
    pairs = json.loads(stored.read_text(encoding="utf-8"))["pairs"]
    pairs = [pair for pair in pairs if pair["filter"] == "ratio"]
    yes, words = [pair for pair in pairs if pair["geometry"]], page_file("words.js")
    weak_limit = float(re.search(r"const WEAK = (\d+);", words)[1])
    told = {}
    for is_weak in (True, False):
        answers = [pair["kind"].startswith("other") for pair in yes if (pair["significance"] < weak_limit) == is_weak]
        told[is_weak] = sum(answers), len(answers)
    different = sum(pair["kind"].startswith("other") for pair in pairs)
    assert "{} of {} yeses".format(*told[True]) in words
    assert f"of {different} pairs of photos that show different things, {told[True][0] + told[False][0]} were" in words
    page = (Path(__file__).parents[2] / "docs" / "explore.md").read_text(encoding="utf-8")
    assert "{} of {} such answers\nwere wrong, {} of the {} others".format(*told[True], *told[False]) in page
