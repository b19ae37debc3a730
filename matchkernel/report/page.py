"""One self-contained HTML page: no network, no scripts, for small and large screens, light and dark."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from matchkernel.plots.canvas import svg_of
from matchkernel.report.blocks import (
    RAISED,
    Block,
    Curves,
    Grid,
    PerSequence,
    Picture,
    Report,
    ReportedMethod,
    Scatter,
    Section,
    TextTable,
    by_parameters,
)
from matchkernel.report.charts import Chart, Series, chart
from matchkernel.report.tables import grid_html, sequences_html, text_html

STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--own:#0063a3;--back:#f3f5f7;
--c1:#b8500a}
@media(prefers-color-scheme:dark){:root{--page:#12161b;--ink:#e6e9ec;--soft:#a3adb8;--rule:#39424c;--own:#58b2f0;
--back:#1c2229;--c1:#f08a45}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:1.2rem 1rem 4rem;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:.4rem 0 1rem}
h2{font-size:1.3rem;margin:2.4rem 0 .6rem;border-top:1px solid var(--rule);padding-top:1.2rem}
h3{font-size:1rem;margin:0 0 .4rem}
p{max-width:75ch;margin:.4rem 0 1rem}
a{color:var(--own)}
nav ul{padding:0;margin:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none}
nav a{display:inline-block;padding:.35rem 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 1rem;font-size:.9rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.warning{border-left:4px solid var(--c1);background:var(--back);padding:.3rem .9rem;margin:.8rem 0}
.warning ul{margin:.2rem 0 .6rem;padding-left:1.2rem;font-size:.9rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,350px),1fr));gap:1.6rem 1.4rem;margin:1rem 0}
figure{margin:0;max-width:430px;min-width:0}
figure.wide{max-width:100%}figure.wide img{max-width:100%;height:auto}
figcaption{font-size:.85rem;color:var(--soft)}
.chart{display:block;width:100%;height:auto}
@media(prefers-color-scheme:dark){.chart{filter:invert(.9) hue-rotate(180deg)}}
.foot{font-size:.85rem;color:var(--soft)}
.tables{display:flex;flex-wrap:wrap;gap:.4rem 2.4rem;align-items:start}.tables>details{flex-basis:100%}
.noted{max-width:100%}
.scroll{overflow-x:auto;margin:.6rem 0;max-width:100%}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--own)}
table{border-collapse:separate;border-spacing:0;font-size:.9rem;line-height:22px;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
th,td{padding:5px 11px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th:first-child{text-align:left;font-weight:500;position:sticky;left:0;background:var(--page)}
thead th{color:var(--soft);font-weight:600}
summary{cursor:pointer;padding:.4rem 0}
@media print{body{max-width:none}details{display:block}}
"""
HOW_TO_READ = (
    "Bars are sorted by the number of learned parameters, those of this package below the others; hatched ones are "
    "hand-crafted. Whiskers and ± are one standard deviation over runs, with n - 1; on photos, over bootstrap samples "
    "of the pairs. "
    "In tables (h) marks hand-crafted methods and bold the best value. "
    f"{RAISED} marks values that ties raise: their bars show the tie-safe value, and they are never bold."
)


def html_page(report: Report) -> str:
    """The whole page; the same report gives the same bytes."""
    series = _series(report)
    title = escape(report.title)
    links = "".join(f'<li><a href="#s{k}">{escape(s.title)}</a></li>' for k, s in enumerate(report.sections))
    facts = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in report.facts)
    sections = [part for k, section in enumerate(report.sections) for part in _section(section, k, series)]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f'<header><h1>{title}</h1><nav aria-label="Sections"><ul>{links}</ul></nav></header><main>',
            *_warnings(report.warnings),
            *sections,
            *([f"<section><h2>Where the figures come from</h2><dl>{facts}</dl></section>"] if facts else []),
            f"<p>{escape(HOW_TO_READ)}</p></main></body></html>\n",
        ]
    )


def _series(report: Report) -> dict[ReportedMethod, int]:
    methods: dict[ReportedMethod, None] = {}
    for block in (block for section in report.sections for block in section.blocks):
        methods |= dict.fromkeys(_methods(block))
    return {method: index for index, method in enumerate(by_parameters(list(methods)))}


def _methods(block: Block) -> Iterable[ReportedMethod]:
    if isinstance(block, (TextTable, Picture)):
        return ()
    if isinstance(block, Scatter):
        return block.points
    if isinstance(block, Curves):
        return block.curves
    return block.rows if isinstance(block, Grid) else block.values


def _warnings(warnings: Sequence[str]) -> Iterator[str]:
    """One box, open where it is short."""
    if warnings:
        items = "".join(f"<li>{escape(words)}</li>" for words in warnings)
        head = f"{len(warnings)} note{'s' if len(warnings) > 1 else ''} on these results"
        is_open = " open" if len(warnings) <= 3 else ""
        yield f'<details class="warning"{is_open}><summary>{head}</summary><ul>{items}</ul></details>'


def _section(section: Section, k: int, series: Series) -> Iterator[str]:
    yield f'<section aria-labelledby="s{k}"><h2 id="s{k}">{escape(section.title)}</h2>'
    if section.note:
        yield f"<p>{escape(section.note)}</p>"
    drawn = [block for block in section.blocks if not (isinstance(block, Grid) and not block.bars)]
    charts = [_figure(block, series) for block in drawn if not isinstance(block, (TextTable, Picture))]
    if charts:
        yield '<div class="charts">' + "\n".join(charts) + "</div>"
    yield '<div class="tables">'
    for block in section.blocks:
        yield from _table_of(block)
    yield "</div></section>"


def _figure(block: Chart, series: Series) -> str:
    """A chart as an image inside the page: its ids cannot meet those of another."""
    figure, description = chart(block, series)
    source = f"data:image/svg+xml;base64,{b64encode(svg_of(figure)).decode()}"
    note = " ".join(words for words in (block.note, block.footnote if isinstance(block, Grid) else "") if words)
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    image = f'<img class="chart" src="{source}" alt="{escape(description)}">'
    return f"<figure><h3>{escape(block.title)}</h3>{image}{caption}</figure>"


def _table_of(block: Block) -> Iterator[str]:
    if isinstance(block, Grid):
        yield grid_html(block)
    elif isinstance(block, TextTable):
        foot = f'<p class="foot">{escape(block.note)}</p>' if block.note else ""
        yield f'<div class="noted">{text_html(block)}{foot}</div>'
    elif isinstance(block, Picture):
        source = f"data:image/png;base64,{b64encode(block.png).decode()}"
        yield f'<figure class="wide"><h3>{escape(block.title)}</h3><img src="{source}" alt="{escape(block.title)}">'
        yield f"<figcaption>{escape(block.note)}</figcaption></figure>"
    elif isinstance(block, PerSequence):
        yield f"<details><summary>{escape(block.title)}: all values</summary>{sequences_html(block)}</details>"
