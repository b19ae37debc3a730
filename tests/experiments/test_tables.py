"""The tables and the numbers of the pages are those of the results."""

import json
import re
import shutil
import sys

import charts
import claims
import pytest
import results
import tables
import verdicts
from own_jobs import PACKAGE

from matchkernel.evaluation.spread import Spread
from matchkernel.plots.canvas import new_figure

FIGURES = ("full", "full_64")
PAGE = (tables.DOCS / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", tables.PAGES)
def test_every_number_of_a_page_agrees(page):
    assert tables.wrong(page, (tables.DOCS / page).read_text(encoding="utf-8")) == []


def test_every_table_is_on_a_page():
    every = "".join((tables.DOCS / page).read_text(encoding="utf-8") for page in tables.PAGES)
    assert all(every.count(f"<!-- table: {name} -->") == 1 for name in tables.TABLES)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("| `fc` | 1,334,560 |", "| `fc` | 1,334,561 |", "the tables are not those of the results"),
        ("rows: ", "rows, ", "not found: Of "),
        ("## Choices", "It gained 1.37 points.\n\n## Choices", "1.37 is in no table and in no sentence"),
    ],
)
def test_what_drifts_is_told(old, new, told):
    assert PAGE.count(old) == 1
    (found,) = tables.wrong("results.md", PAGE.replace(old, new))
    assert told in found


def test_check_writes_nothing(monkeypatch, tmp_path, capsys):
    stale = PAGE.replace("| `fc` | 1,334,560 |", "| `fc` | 1,334,561 |")
    (tmp_path / "results.md").write_text(stale, encoding="utf-8")
    for page in tables.PAGES[1:]:
        shutil.copy(tables.DOCS / page, tmp_path)
    monkeypatch.setattr(tables, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit) as end:
        tables.main()
    assert end.value.code == 1
    assert "run tables.py" in capsys.readouterr().out
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == stale
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    monkeypatch.setattr(tables.photo_charts, "charts", dict)
    monkeypatch.setattr(tables, "CHARTS", {"small.png": lambda: new_figure(1, 1)})
    (tmp_path / "images").mkdir()
    with pytest.raises(SystemExit) as end:
        tables.main()
    assert end.value.code == 0
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == PAGE
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["small.png"]


def test_charts_show_every_change():
    bars = charts.draw_recipe().axes[0]
    assert len(bars.patches) == 30 + 1  # and the band of chance
    assert {text.get_text() for text in bars.texts} >= {"+4.40", "−1.85"}
    curves = charts.draw_tolerance().axes
    assert [len(panel.lines) for panel in curves] == 6 * [len(charts.TOLERANCE)]


def test_the_papers_figures_show_every_descriptor():
    """Figure 3: all of ours; Figure 4: every baseline with test scores, apart from three of ours at each size."""
    ours, all_of_it = charts.draw_figure_3().axes[0], charts.draw_figure_4().axes[0]
    names = {
        re.sub(r"-seed\d+$", "", job) for e in FIGURES for job, r in results.read(e).items() if "test" in r["scores"]
    }
    assert len(ours.get_yticks()) == len(names)
    others = [name for name, result in results.read("baselines").items() if "test" in result["scores"]]
    labels = [label.get_text().split("   ")[0] for label in all_of_it.get_yticklabels()]
    assert sorted(labels[: len(others)]) == sorted(others)
    assert any(label.startswith("fc") for label in labels[len(others) :])


def test_committed_charts_are_shown():
    shown = {path.name for kind in ("results", "figure") for path in (tables.DOCS / "images").glob(f"{kind}_*.png")}
    assert shown == set(charts.CHARTS)
    every = "".join((tables.DOCS / page).read_text(encoding="utf-8") for page in tables.PAGES)
    assert all(f"(images/{name})" in every for name in shown)


def test_seeds_are_put_together():
    found = json.loads((results.RESULTS / "descriptors.json").read_text(encoding="utf-8"))
    values = [100 * found[f"fc-n32-seed{seed}"]["scores"]["test"]["matching"] for seed in (0, 1, 2)]
    assert results.score("descriptors", "fc-n32", "test", "matching").values == pytest.approx(values)
    with pytest.raises(KeyError, match="no results of fc-n48"):
        results.runs("descriptors", "fc-n48")


def test_transfer_is_the_mean_of_six_per_seed():
    from_a = results.read("descriptors")["dual-s1-n32-seed2"]["scores"]["groups"]
    others = {group: results.read("transfer")[f"dual-s1-on-{group}-seed2"]["scores"]["groups"] for group in "BC"}
    six = [from_a["B"], from_a["C"], others["B"]["A"], others["B"]["C"], others["C"]["A"], others["C"]["B"]]
    assert results.transfer("dual-s1", "map").values[2] == pytest.approx(100 * sum(part["map"] for part in six) / 6)


def test_better_is_beyond_the_larger_spread():
    narrow, wide, above = Spread((50.0, 50.2)), Spread((49.0, 51.0)), Spread((51.0, 51.2))
    assert verdicts.better(above, narrow)
    assert not verdicts.better(narrow, above)
    assert verdicts.better(narrow, above, low=True)
    assert not verdicts.better(above, wide)  # 1.1 above, 1.4 wide
    assert verdicts.gaps([above], [wide]) == "+1.10 (1.41)"


def test_photo_means_count_sequences_once(monkeypatch):
    row = {"model": "dual", "matches": 0, "accuracy 3 px": 0, "H 1 px": 0, "H 5 px": 0, "H 3 px": 0}
    pairs = [{**row, "sequence": "a", "right": 10}, {**row, "sequence": "b", "right": 20}]
    pairs.append({**row, "sequence": "b", "right": 40})
    monkeypatch.setattr(results, "read", lambda name: {"pairs": pairs})
    assert results.photo_means("any")["dual"]["right"] == 20


def test_memory_is_that_of_the_benchmark(monkeypatch, tmp_path):
    (claim,) = claims.memory()
    assert claim.verdict == verdicts.HOLDS
    found = json.loads((claims.BENCHMARKS / "aggregation_memory.json").read_text(encoding="utf-8"))
    found["numbers_a_patch"]["aggregated"] *= 2
    (tmp_path / "aggregation_memory.json").write_text(json.dumps(found))
    monkeypatch.setattr(claims, "BENCHMARKS", tmp_path)
    (claim,) = claims.memory()
    assert claim.verdict == verdicts.FAILS
    assert claim.figures.startswith("10.5 × counted")


def test_second_trainings_agree_where_models_are_told_apart():
    """What docs/models.md says of `dual` and `light`."""
    for measure in (
        lambda run: results.kind_mean([run], "light").mean,
        lambda run: results.kind_mean([run], "viewpoint, zoom").mean,
        lambda run: results.look(run, "test", "by_noise", "matching", "t"),
    ):
        better = {
            measure(a) > measure(b)
            for a, b in zip(*(results.runs("ship", PACKAGE[n]) for n in ("dual", "light")), strict=True)
        }
        assert len(better) == 1
