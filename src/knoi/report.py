"""One self-contained HTML page built from plain data: no network, no script, light and dark.

A `Report` is sections, a section is blocks (`Table`, `Figure`, `Gallery`, `Facts`). Blocks hold
plain text; whatever they hold is escaped on its way into the page.
"""

import os
import secrets
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Protocol

from numpy.typing import NDArray

from knoi.pictures import LineChart, data_uri


class Block(Protocol):
    """Something a section can show."""

    def html(self) -> str:
        """The block as HTML, its text escaped."""


@dataclass(frozen=True)
class Cards:
    """A few numbers worth reading first: (label, value, explanation)."""

    cards: tuple[tuple[str, str, str], ...]

    def html(self) -> str:
        """One card beside the other, as many as fit."""
        cards = "".join(
            f'<div class="card"><span>{escape(label)}</span><strong>{escape(value)}</strong>'
            f"<span>{escape(explanation)}</span></div>"
            for label, value, explanation in self.cards
        )
        return f'<div class="cards">{cards}</div>'


@dataclass(frozen=True)
class Table:
    """A table of text; its first column names the rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()  # (row, column) of the cells in bold
    baseline: int | None = None  # a row to be read as what the others are held against

    def html(self) -> str:
        """A table that scrolls sideways where the screen is narrow."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = []
        for i, row in enumerate(self.rows):
            cells = "".join(
                f"<td><b>{escape(cell)}</b></td>"
                if (i, j) in self.best
                else f"<td>{escape(cell)}</td>"
                for j, cell in enumerate(row[1:], start=1)
            )
            kind = ' class="baseline"' if i == self.baseline else ""
            body.append(f'<tr{kind}><th scope="row">{escape(row[0])}</th>{cells}</tr>')
        return (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )


@dataclass(frozen=True)
class Figure:
    """A chart and what it shows."""

    chart: LineChart
    caption: str

    def html(self) -> str:
        """The chart over its caption."""
        return f"<figure>{self.chart.svg()}<figcaption>{escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Picture:
    """A small grey image."""

    image: NDArray[Any]  # uint8 (height, width)
    description: str  # read aloud where the picture is not seen
    caption: str
    marked: bool = False


@dataclass(frozen=True)
class Strip:
    """Pictures that belong together, under a title."""

    title: str
    pictures: tuple[Picture, ...]

    def html(self) -> str:
        """The title over a row of pictures; marked ones get a frame."""
        pictures = "".join(
            f'<figure class="tile{" marked" if picture.marked else ""}">'
            f'<img src="{data_uri(picture.image)}" alt="{escape(picture.description)}">'
            f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
            for picture in self.pictures
        )
        return f'<div class="strip"><h3>{escape(self.title)}</h3><div>{pictures}</div></div>'


@dataclass(frozen=True)
class Gallery:
    """Rows of strips to compare."""

    rows: tuple[tuple[Strip, ...], ...]

    def html(self) -> str:
        """Strips side by side, or one under the other where the screen is narrow."""
        rows = ("".join(strip.html() for strip in row) for row in self.rows)
        return "".join(f'<div class="row">{strips}</div>' for strips in rows)


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    facts: tuple[tuple[str, str], ...]

    def html(self) -> str:
        """A definition list."""
        pairs = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in self.facts)
        return f"<dl>{''.join(pairs)}</dl>"


@dataclass(frozen=True)
class Section:
    """A heading, what to know before looking, and what to look at."""

    title: str
    lead: str
    blocks: tuple[Block, ...]

    def html(self) -> str:
        """The section as HTML."""
        blocks = "".join(block.html() for block in self.blocks)
        return f"<section><h2>{escape(self.title)}</h2><p>{escape(self.lead)}</p>{blocks}</section>"


@dataclass(frozen=True)
class Report:
    """A page: a title, a line under it, sections."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    def html(self) -> str:
        """The whole page."""
        return _PAGE.substitute(
            title=escape(self.title),
            subtitle=escape(self.subtitle),
            style=_STYLE,
            sections="".join(section.html() for section in self.sections),
        )

    def write(self, path: str | Path) -> None:
        """Write the page whole or not at all; an older page stays until the new one is complete."""
        target = Path(path)
        temporary = target.parent / f".{target.name}-{secrets.token_hex(8)}.tmp"
        try:
            temporary.write_text(self.html(), encoding="utf-8")
            os.replace(temporary, target)
        except BaseException:  # a KeyboardInterrupt, too, leaves nothing behind
            temporary.unlink(missing_ok=True)
            raise


# The policy forbids the page to load anything: what it shows, it holds.
_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header><h1>$title</h1><p>$subtitle</p></header>
<main>$sections</main>
</body>
</html>
""")

_STYLE = """
:root { --ink: #1d2430; --soft: #5b6675; --page: #f6f7f9; --sheet: #fff; --line: #dde2e8;
  --s0: #b4552d; --s1: #2b6cb0; --s2: #2f7d4f; --mark: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa6b5; --page: #12161c;
  --sheet: #1a2029; --line: #323b47; --s0: #f0986d; --s1: #7db7f0; --s2: #7fd1a0;
  --mark: #7fd1a0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--page);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.2rem; margin: 0; }
h3 { font-size: .8rem; font-weight: 600; color: var(--soft); margin: 0 0 .25rem; }
header p, section > p { color: var(--soft); margin: .4rem 0 1rem; max-width: 46rem; }
section { background: var(--sheet); border: 1px solid var(--line); border-radius: .75rem;
  padding: 1.25rem; margin: 0 0 1.25rem; }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  margin-bottom: 1rem; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; }
.card span { display: block; font-size: .85rem; color: var(--soft); }
.card strong { font-size: 1.75rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
thead th { font-size: .8rem; color: var(--soft); vertical-align: bottom; }
tr.baseline > * { color: var(--soft); font-weight: 400; }
figure { margin: 0; }
figcaption { font-size: .85rem; color: var(--soft); }
.chart { display: block; width: 100%; max-width: 40rem; margin: 0 auto; }
.chart text { fill: currentColor; font: 13px system-ui, sans-serif; }
.chart .grid { stroke: var(--line); }
.chart polyline { fill: none; stroke-width: 2; }
.s0 { stroke: var(--s0); fill: var(--s0); } .s0 polyline { stroke-dasharray: 2 4; }
.s1 { stroke: var(--s1); fill: var(--s1); } .s1 polyline { stroke-dasharray: 8 4; }
.s2 { stroke: var(--s2); fill: var(--s2); }
.row { display: flex; flex-wrap: wrap; gap: .75rem 1.5rem; padding: .9rem 0;
  border-top: 1px solid var(--line); break-inside: avoid; }
.strip > div { display: flex; gap: .4rem; }
.tile { width: 4rem; text-align: center; }
.tile img { display: block; width: 100%; image-rendering: pixelated; border-radius: .2rem;
  border: 2px solid transparent; }
.tile figcaption { font-size: .75rem; white-space: nowrap; }
.marked img { border-color: var(--mark); outline: 2px solid var(--mark); }
.marked figcaption { font-weight: 700; color: var(--mark); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 30rem) { body { padding: 1rem .6rem 2rem; } section { padding: 1rem .8rem; }
  h1 { font-size: 1.4rem; } .tile { width: 3.5rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print { body { background: none; padding: 0; max-width: none; }
  section { border: 0; padding: 0 0 1rem; } figure, .cards { break-inside: avoid; } }
"""
