"""What the first lines of a CSV file say: its delimiter, its column names, its first row."""

import csv
import gzip
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from knoi.exceptions import InputError, SourceFormatError

# What writers put where a value is missing. NaN is a number that is refused like any other NaN.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None")

_ESCAPE = "surrogateescape"
_NO_TEXT = re.compile("[\udc80-\udcff\0]")  # bytes that were escaped; UTF-16 is full of zeros


@dataclass(frozen=True)
class Head:
    """The layout of a CSV file."""

    delimiter: str
    names: tuple[str, ...] | None  # None where the file has no header
    first_row: tuple[str, ...]
    n_skipped: int  # lines before the first row
    n_characters: int  # of the header and the first row

    @property
    def n_cols(self) -> int:
        """How many values a row should have."""
        return len(self.first_row if self.names is None else self.names)


def is_gzip(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix.lower() == ".gz"


def read_head(path: Path, label: str) -> Head:
    """Look at as many lines as it takes, and no more."""
    delimiter = _delimiter(path)
    lines = _FirstLines(path, delimiter)
    if not lines.rows:
        raise SourceFormatError(f"{label} is empty: rows of numbers were expected. Write it again.")
    first, *others = lines.rows
    if _is_data(first):
        return Head(delimiter, None, first, 0, lines.n_characters)
    if not others:
        raise InputError(
            f"{label} has a header of {_columns(len(first))} and no rows: at least 1 is needed. "
            "Check how it was written."
        )
    names = tuple(name.strip() for name in first)
    if any(_NO_TEXT.search(name) for name in names):
        raise SourceFormatError(f"{label}: its first line is not UTF-8 text. Save it in UTF-8.")
    return Head(delimiter, names, others[0], lines.n_lines, lines.n_characters)


class _FirstLines:
    """Up to two rows that are not blank, and how much of the file they take."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.n_lines = 0  # up to the end of the first row
        self.n_characters = 0
        with closing(_open_text(path)) as text:
            reader = csv.reader(self._counted(text), delimiter=delimiter)
            for row in reader:
                if row:
                    self.rows.append(tuple(row))
                    if len(self.rows) == 2:
                        break
                    self.n_lines = reader.line_num

    def _counted(self, text: TextIO) -> Iterator[str]:
        for line in text:
            self.n_characters += len(line)
            yield line


def _delimiter(path: Path) -> str:
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    try:
        rows = _FirstLines(path, ";").rows
    except csv.Error:  # a line without semicolons may be longer than a value can be
        return ","
    # A semicolon in the first line alone is part of a name.
    return ";" if rows and all(len(row) > 1 for row in rows) else ","


def _open_text(path: Path) -> TextIO:
    # A byte-order mark is no part of the first name; line ends are left to the parser. More is
    # decoded than is looked at: bytes that are no text matter where they are used.
    if is_gzip(path):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=_ESCAPE, newline="")
    return open(path, encoding="utf-8-sig", errors=_ESCAPE, newline="")


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"


def _is_data(row: Iterable[str]) -> bool:
    """Numbers, perhaps with gaps, are data; a header has a name that is neither."""
    values = [value.strip() for value in row]
    numbers = [_is_number(value) for value in values]
    gaps = [value in MISSING for value in values]
    return any(numbers) and all(map(bool.__or__, numbers, gaps))


def _is_number(text: str) -> bool:
    """Whether a text is meant as a number, if perhaps with a decimal comma.

    Python alone takes underscores between digits.
    """
    try:
        float(text.replace(",", ".", 1))
    except ValueError:
        return False
    return "_" not in text
