"""What a person can set on a page, and where plots go: native elements, each with a label."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from knoi.report.page import Block


@dataclass(frozen=True)
class Choice:
    """One of several, from a list; options are (value, text), in groups."""

    name: str
    label: str
    groups: tuple[tuple[str | None, tuple[tuple[str, str], ...]], ...]
    chosen: str = ""

    def html(self) -> str:
        """A select element under its label."""
        groups = []
        for title, options in self.groups:
            listed = "".join(
                f'<option value="{escape(value)}"{" selected" if value == self.chosen else ""}>'
                f"{escape(text)}</option>"
                for value, text in options
            )
            groups.append(
                listed
                if title is None
                else f'<optgroup label="{escape(title)}">{listed}</optgroup>'
            )
        return (
            f'<label class="control">{escape(self.label)}'
            f'<select id="{self.name}">{"".join(groups)}</select></label>'
        )


@dataclass(frozen=True)
class Switch:
    """One of a few, all in sight; options are (value, text), and the first is on."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]

    def html(self) -> str:
        """Radio buttons in a frame."""
        buttons = "".join(
            f'<label><input type="radio" name="{self.name}" value="{escape(value)}"'
            f"{' checked' if i == 0 else ''}><span>{escape(text)}</span></label>"
            for i, (value, text) in enumerate(self.options)
        )
        return (
            f'<fieldset class="switch"><legend>{escape(self.label)}</legend>'
            f"<div>{buttons}</div></fieldset>"
        )


@dataclass(frozen=True)
class RowPicker:
    """A row by its number, the one before, the one after, or any."""

    name: str
    label: str
    last: int

    def html(self) -> str:
        """A number field among three buttons."""
        buttons = (
            ("previous", "‹", "Previous row"),
            ("next", "›", "Next row"),
            ("random", "Any row", "Any row, at random"),
        )
        before, *after = (
            f'<button type="button" id="{self.name}-{kind}" aria-label="{said}" title="{said}">'
            f"{text}</button>"
            for kind, text, said in buttons
        )
        field = f'<input type="number" id="{self.name}" min="0" max="{self.last}" step="1">'
        return (
            f'<div class="control" role="group" aria-label="{escape(self.label)}">'
            f'<label for="{self.name}">{escape(self.label)}</label>'
            f'<div class="picker">{before}{field}{"".join(after)}</div></div>'
        )


@dataclass(frozen=True)
class Controls:
    """Controls in one line, as far as there is room."""

    controls: tuple[Block, ...]

    def html(self) -> str:
        """The controls."""
        return f'<div class="controls">{_joined(self.controls)}</div>'


@dataclass(frozen=True)
class Plot:
    """Where a plot is drawn, and what is said of it."""

    name: str
    description: str  # to those who cannot see it
    caption: str = ""

    def html(self) -> str:
        """An empty frame of the plot's height, so that nothing moves when it is drawn."""
        return (
            f'<figure><div class="plot" id="{self.name}" role="img" '
            f'aria-label="{escape(self.description)}"></div>'
            f'<figcaption id="{self.name}-caption">{escape(self.caption)}</figcaption></figure>'
        )


@dataclass(frozen=True)
class SideBySide:
    """Blocks beside each other where the screen is wide enough."""

    blocks: tuple[Block, ...]

    def html(self) -> str:
        """The blocks."""
        return f'<div class="beside">{_joined(self.blocks)}</div>'


@dataclass(frozen=True)
class Matches:
    """Where a row and its nearest rows of the other view are shown."""

    name: str

    def html(self) -> str:
        """Empty places, and a line that is read aloud when it changes."""
        return (
            f'<p class="verdict" id="{self.name}-verdict" aria-live="polite"></p>'
            f'<div class="found"><div id="{self.name}-query"></div>'
            f'<ol class="matches" id="{self.name}-matches"></ol></div>'
        )


def _joined(blocks: Iterable[Block]) -> str:
    return "".join(block.html() for block in blocks)
