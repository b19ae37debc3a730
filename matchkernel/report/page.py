"""One self-contained HTML page: no network, no scripts, for small and large screens, light and dark."""

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape

from matchkernel.plots.canvas import svg_of
from matchkernel.report.blocks import WIDTH, Best, Block, Grid, PerSequence, Picture, Report, Section, Series

STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--own:#0063a3;--back:#f3f5f7;
--c1:#b8500a;--edge:#57606a66}
@media(prefers-color-scheme:dark){:root{--page:#12161b;--ink:#e6e9ec;--soft:#a3adb8;--rule:#39424c;--own:#58b2f0;
--back:#1c2229;--c1:#f08a45;--edge:#a3adb888}}
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
dl{display:grid;grid-template-columns:fit-content(16rem) 1fr;gap:.15rem 1rem;margin:0 0 1rem;font-size:.9rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
code{font-size:.9em;background:var(--back);padding:.1em .3em;white-space:nowrap}
.warning{border-left:4px solid var(--c1);background:var(--back);padding:.3rem .9rem;margin:.8rem 0}
.warning ul{margin:.2rem 0 .6rem;padding-left:1.2rem;font-size:.9rem}
.lead{font-size:1.15rem;margin:.2rem 0 .6rem}
.charts{display:grid;gap:1.6rem 1.4rem;margin:1rem 0}
.of2{grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.of3{grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}
figure{margin:0;min-width:0}
.pictures{display:flex;flex-wrap:wrap;gap:1.2rem 2.4rem}
.wide{display:block;max-width:100%;height:auto}
figcaption{font-size:.85rem;color:var(--soft)}
.chart{display:block;width:100%;height:auto}
@media(prefers-color-scheme:dark){.chart{filter:invert(.9) hue-rotate(180deg)}.wide{filter:brightness(.85)}}
.foot{font-size:.85rem;color:var(--soft)}
.tables{display:flex;flex-wrap:wrap;gap:.4rem 2.4rem;align-items:start}.tables>details{flex-basis:100%}
.noted{max-width:100%}
.scroll{overflow-x:auto;margin:.6rem 0;max-width:100%;
background:linear-gradient(to left,var(--page) 40%,transparent) right/3rem 100% no-repeat local,
linear-gradient(to left,var(--edge),transparent) right/.8rem 100% no-repeat scroll}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--own)}
table{border-collapse:separate;border-spacing:0;font-size:.9rem;line-height:22px;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
th,td{padding:5px 11px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th:first-child{text-align:left;font-weight:500;position:sticky;left:0;background:var(--page)}
thead th{color:var(--soft);font-weight:600}
summary{cursor:pointer;padding:.4rem 0}
@media(max-width:640px){dl{display:block}dd{margin:0 0 .6rem}
th,td{padding:5px 6px}th:first-child{white-space:normal;min-width:6.5rem;overflow-wrap:break-word}}
@media print{body{max-width:none}details{display:block}}
"""
FACTS = "Where the figures come from"
CODE, AS_CODE = re.compile("`([^`]*)`"), r"<code>\1</code>"
WIDTHS = {1: 11.8, 2: 5.8, 3: WIDTH}  # inches of a chart by how many stand side by side: letters of one size
NARROW = "(max-width:640px)"  # where a wide chart is replaced by one of WIDTH


def html_page(report: Report) -> str:
    """The whole page; the same report gives the same bytes."""
    title = escape(report.title)
    links = "".join(f'<li><a href="#s{k}">{escape(s.title)}</a></li>' for k, s in enumerate(report.sections))
    if report.facts:
        links += f'<li><a href="#facts">{FACTS}</a></li>'
    facts = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in report.facts)
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>{title}</h1>",
        *(f'<p class="lead">{CODE.sub(AS_CODE, escape(sentence))}</p>' for sentence in report.lead),
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header><main>',
    ]
    if report.warnings:  # one box, open if it is short
        count, items = len(report.warnings), "".join(f"<li>{escape(text)}</li>" for text in report.warnings)
        summary = f"<summary>{count} note{'s' * (count > 1)} on these results</summary>"
        parts.append(f'<details class="warning"{" open" * (count <= 3)}>{summary}<ul>{items}</ul></details>')
    for k, section in enumerate(report.sections):
        parts += _section(section, k, report.series)
    if facts:
        about = f"<details><summary>Methods, settings and files</summary><dl>{facts}</dl></details>"
        parts.append(f'<section aria-labelledby="facts"><h2 id="facts">{FACTS}</h2>{about}</section>')
    how = f"<p>{escape(text)}</p>" if (text := report.how_to_read()) else ""
    return "\n".join([*parts, f"{how}</main></body></html>\n"])


def _section(section: Section, k: int, series: Series) -> Iterator[str]:
    yield f'<section aria-labelledby="s{k}"><h2 id="s{k}">{escape(section.title)}</h2>'
    if section.note:
        yield f"<p>{escape(section.note)}</p>"
    drawn = [block for block in section.blocks if block.has_chart]
    if drawn:
        side_by_side = len(drawn) if len(drawn) < 3 else 2 if len(drawn) == 4 else 3
        charts = [_chart(block, series, WIDTHS[side_by_side]) for block in drawn]
        yield f'<div class="charts of{side_by_side}">' + "\n".join(charts) + "</div>"
    yield '<div class="tables">'
    yield from filter(None, map(_table_of, section.blocks))
    yield '</div><div class="pictures">'
    for block in section.blocks:
        if isinstance(block, Picture):
            yield _figure(block.title, _image("png", block.png, block.title, "wide"), block.note)
    yield "</div></section>"


def _chart(block: Block, series: Series, width: float) -> str:
    """The chart of a block, drawn again for narrow screens if it is wider than they are."""
    figure, description = block.chart(series, width)
    wide = svg_of(figure)
    narrow = wide if width == WIDTH else svg_of(block.chart(series, WIDTH)[0])
    image = _image("svg+xml", wide, description, "chart", narrow)
    return _figure(block.title, image, f"{block.note} {block.footnote}".strip())


def _image(kind: str, data: bytes, description: str, look: str, narrow: bytes | None = None) -> str:
    """A chart or picture as an image inside the page: its ids cannot meet those of another."""
    wide, small = (f"data:image/{kind};base64,{b64encode(part or data).decode()}" for part in (data, narrow))
    image = f'<img class="{look}" src="{wide}" alt="{escape(description)}">'
    return image if small == wide else f'<picture><source media="{NARROW}" srcset="{small}">{image}</picture>'


def _figure(title: str, image: str, note: str) -> str:
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    return f"<figure><h3>{escape(title)}</h3>{image}{caption}</figure>"


def _table_of(block: Block) -> str:
    """A block as a table, in a box that scrolls sideways on a narrow screen; empty if it has none."""
    table = block.table()
    if table is None:
        return ""
    caption, (head, rows) = escape(block.title), table
    headings = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = []
    for first, *others in rows:
        cells = (f"<td><b>{escape(c)}</b></td>" if isinstance(c, Best) else f"<td>{escape(c)}</td>" for c in others)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{"".join(cells)}</tr>')
    body = "\n".join(lines)
    text = (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{headings}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
    if isinstance(block, PerSequence):
        return f"<details><summary>{caption}: all values</summary>{text}</details>"
    note = block.footnote if isinstance(block, Grid) else block.note
    foot = f'<p class="foot">{escape(note)}</p>' if note else ""
    return f'<div class="noted">{text}{foot}</div>'
