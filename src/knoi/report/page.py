"""One self-contained HTML page built from plain data: no network, light and dark.

A `Report` is sections, a section is blocks (`Table`, `Figure`, `Gallery`, `Facts`). Blocks hold
plain text; whatever they hold is escaped on its way into the page. A page runs the scripts it was
made with and no others, whatever text found its way into it.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Protocol

from numpy.typing import NDArray

from knoi.fileio import atomic_write_text
from knoi.report.pictures import LineChart, data_uri


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
class Folded:
    """A block that is shown on request."""

    summary: str
    block: Block

    def html(self) -> str:
        """The block under a line that opens it."""
        summary = f"<summary>{escape(self.summary)}</summary>"
        return f"<details>{summary}{self.block.html()}</details>"


@dataclass(frozen=True)
class Notice:
    """Something to know before the numbers are believed."""

    text: str

    def html(self) -> str:
        """A framed line."""
        return f'<p class="notice" role="note"><b>Mind:</b> {escape(self.text)}</p>'


@dataclass(frozen=True)
class Code:
    """Something to be copied into a terminal or a script."""

    text: str

    def html(self) -> str:
        """The text as it is, one click selects all of it."""
        return f'<pre tabindex="0"><code>{escape(self.text)}</code></pre>'


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
    """A page: a title, a line under it, sections; and what makes it move, if it does."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    style: str = ""  # CSS, after that of every page
    scripts: tuple[str, ...] = ()  # JavaScript, run in order once the page is there
    data: Any = None  # for the scripts, as JSON in the element "data"

    def html(self) -> str:
        """The whole page."""
        scripts = [script.replace("\r\n", "\n") for script in self.scripts]  # as browsers read it
        data = (
            []
            if self.data is None
            else [f'<script type="application/json" id="data">{_json(self.data)}</script>']
        )
        return _PAGE.substitute(
            title=escape(self.title),
            subtitle=escape(self.subtitle),
            policy=_policy(scripts),
            style=_style() + self.style,
            sections="".join(section.html() for section in self.sections),
            scripts="".join(data + [f"<script>{script}</script>\n" for script in scripts]),
        )

    def write(self, path: str | Path) -> None:
        """Write the page whole or not at all; an older page stays until the new one is complete."""
        # A command may name files in bytes that are no text.
        atomic_write_text(path, self.html(), errors="replace")


def _style() -> str:
    return files("knoi.report").joinpath("static", "base.css").read_text(encoding="utf-8")


def _json(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _policy(scripts: list[str]) -> str:
    """What the page may do: load nothing, since what it shows it holds; run these scripts only."""
    allowed = [_digest(script) for script in scripts]
    return "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'" + (
        f"; script-src {' '.join(allowed)}" if allowed else ""
    )


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="$policy">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header><h1>$title</h1><p>$subtitle</p></header>
<main>$sections</main>
$scripts</body>
</html>
""")
