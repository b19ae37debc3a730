"""Results on photos on the report's page."""

import re

from made_results import photos, written

from matchkernel.report.blocks import Scatter, TextTable
from matchkernel.report.page import html_page
from matchkernel.report.write import gather, json_text, markdown


def test_tables_differences_and_the_chart(tmp_path):
    good, bad = photos("good", errors=(0.5, 0.5, 1.5)), photos("bad <b>", licence="GPL", seconds={"per_image": 12.0})
    report = gather([written(tmp_path, good, bad)])
    poses, homographies = report.sections
    assert poses.title == "Relative poses of photos"
    scores, differences, chart = poses.blocks
    assert isinstance(scores, TextTable)
    assert [row[0] for row in scores.rows] == ["good", "bad <b>"]  # the best first
    assert scores.head == (
        "method", "mAA(5°)", "mAA(10°)", "castle", "matches", "inliers", "s/photo", "licence"
    )  # fmt: skip
    assert scores.rows[0][3:] == ("96.7", "8", "7", "0.50", "MIT")
    assert scores.rows[1][3:] == ("60.0", "8", "7", "12.00", "GPL")
    assert scores.rows[0][2].startswith("96.7 ± ")
    assert differences.rows[0][0] == "bad <b>"
    assert differences.rows[0][1].startswith("-36.7 [")
    assert isinstance(chart, Scatter)
    assert sorted(cost for cost, _ in chart.points.values()) == [0.5, 12.0]
    assert homographies.blocks[0].rows[0][1] == "75.0 ± 0.0"  # right matches
    page = html_page(report)
    assert "bad &lt;b&gt;" in page
    assert "<b>:" not in page
    assert "mAA(10°) against seconds per photo" in page
    assert "| good |" in markdown(report)
    assert '"scatter"' in json_text(report)


def test_a_table_and_its_foot_are_one_item_of_the_page(tmp_path):
    page = html_page(gather([written(tmp_path, photos("good", errors=(0.5, 0.5, 1.5)), photos("bad"))]))
    item = re.compile(
        r'<div class="noted"><div class="scroll".*?</table></div><p class="foot">[^<]*</p></div>', re.DOTALL
    )
    assert len(item.findall(page)) == page.count('<p class="foot">') == 4  # scores and differences, in two sections


def test_settings_in_which_methods_differ_are_named(tmp_path):
    one, two = photos("x"), photos("x", settings={"contrast": 0.01})
    labels = [row[0] for row in gather([written(tmp_path, one, two)]).sections[0].blocks[0].rows]
    assert sorted(labels) == ["x, contrast 0.01", "x, contrast 0.04"]


def test_other_data_has_its_own_section(tmp_path):
    report = gather([written(tmp_path / "apart", photos("x"), photos("y", data_sha256="34"))])
    assert [section.title for section in report.sections] == [
        "Relative poses of photos: castle, v_wall",
        "Homographies of photos: castle, v_wall",
    ] * 2
