"""CSV and TSV files: converted once to a memory-mapped table of numbers, a block at a time.

Parsing text is far slower than reading numbers, and most estimators pass over their data more than
once. So opening a CSV file writes its numbers, 8 bytes each, to a temporary file without a name:
the system frees it when the view is closed, and also when the process ends in any other way.
"""

import csv
import gzip
import logging
import re
import reprlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from knoi.data.source import (
    RowSource,
    array_source,
    choose,
    choose_columns,
    describe_cell,
    plural,
    reject_selector,
    wrap_parse_errors,
)
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
    SourceFormatError,
    require,
)

# What programs write for a missing value. "nan" is a number that is not finite.
_MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")

# Each block of text has a fixed cost per column, so blocks are larger for longer rows. Arrow reads
# about thirty blocks ahead, hence the limit. A block must hold a whole row, and no number is longer
# than _NUMBER_BYTES.
_BLOCK_ROWS = 64
_BLOCK_BYTES = (2**20, 4 * 2**20)
_NUMBER_BYTES = 64
# Rows are written this many bytes at a time, so that the columns of a block and its rows fit in
# cache together.
_WRITE_BYTES = 2**20


logger = logging.getLogger("knoi")


@dataclass(frozen=True)
class _Layout:
    """The chosen columns of a CSV file and where its rows begin."""

    path: Path
    delimiter: str
    names: tuple[str, ...] | None  # of all columns; None if the file has no header
    first_row: tuple[str, ...]
    n_skipped: int  # lines before the first row
    columns: tuple[int, ...]  # positions of the chosen columns; may repeat
    numbered: bool = False  # the first column has no name, and is left out if it numbers the rows

    @property
    def n_cols(self) -> int:
        """Values per row of the file."""
        return len(self.first_row if self.names is None else self.names)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the chosen columns; None if they have none or only numbers."""
        if self.names is None or _numbers_columns(self.names):
            return None
        return tuple(self.names[j] for j in self.columns)

    def cell(self, row: int, column: int) -> str:
        """The position of a value, for a message."""
        return describe_cell(row, self.columns.index(column), self.column_names)


def open_csv(path: Path, selector: str | None, label: str) -> RowSource:
    """The columns of a CSV or TSV file, plain or gzipped; int64 if all are integers, else float64.

    The selector names columns of the header, comma-separated.
    """
    pa = require("pyarrow", "io", "reading CSV")
    with wrap_parse_errors(label, "CSV"):
        layout = _read_layout(path, selector, label)
        rows = None
        first = [value.strip().removeprefix("-") for value in layout.first_row]
        if all(column < len(first) and first[column].isdecimal() for column in layout.columns):
            with suppress(pa.ArrowInvalid):  # a later row is not an integer: convert to floats
                rows = _convert(layout, np.dtype(np.int64), label)
        if rows is None:
            rows = _convert(layout, np.dtype(np.float64), label)
    if layout.numbered:
        logger.info("%s: its first column numbers the rows and has no name: left out.", label)
    return array_source(rows, label, column_names=layout.column_names)


def read_csv(path: Path, selector: str | None, label: str) -> NDArray[np.str_]:
    """One column of a CSV or TSV file as text; without a selector, of a file of one column.

    A selector names a column of the first line, which is then not part of the result.
    """
    with _open_text(path) as text:
        rows = [row for row in csv.reader(text, delimiter=_delimiter(path)) if row]
    column = 0
    if selector is not None:
        names = [name.strip() for name in rows.pop(0)] if rows else []
        column = names.index(choose(label, "column", names, selector))
    elif any(len(row) > 1 for row in rows):
        raise SourceFormatError(f"{label} has several columns. Select one with PATH:NAME.")
    return np.array([row[column] for row in rows], dtype=np.str_)


def read_lines(path: Path, selector: str | None, label: str) -> NDArray[np.str_]:
    """The lines of a text file, without blank ones at its end."""
    reject_selector(label, "a text file has no columns", selector)
    with _open_text(path) as text:
        lines = [line.strip() for line in text]
    while lines and not lines[-1]:
        lines.pop()
    return np.array(lines, dtype=np.str_)


# The first lines: delimiter, column names, first row.


def _read_layout(path: Path, selector: str | None, label: str) -> _Layout:
    delimiter = _delimiter(path)
    rows, n_lines = _first_rows(path, delimiter)
    if not rows:
        raise SourceFormatError(f"{label} is empty. Write rows of numbers to it.")
    if _is_data(rows[0]) and not _numbers_columns(rows[0]):
        names, first_row, n_skipped = None, rows[0], 0
    elif len(rows) == 1:
        raise InputError(
            f"{label} has a header of {plural(len(rows[0]), 'column')} and no rows. "
            "Write at least 1 row."
        )
    else:
        names, first_row, n_skipped = tuple(name.strip() for name in rows[0]), rows[1], n_lines
        if names[0] and _numbers_columns(names):
            warnings.warn(
                f"{label}: its first line, {', '.join(names[:3])}, ..., is taken for the names of "
                "the columns. If it is a row, write names above it.",
                UserWarning,
                stacklevel=2,
            )
        # Bytes that are not UTF-8 were replaced; UTF-16 has zeros.
        if any("\ufffd" in name or "\0" in name for name in names):
            raise SourceFormatError(f"{label}: its first line is not UTF-8 text. Save it in UTF-8.")
    columns: Iterable[int] = range(len(names or first_row))
    numbered = False
    if selector is not None:
        if names is None:
            raise SourceFormatError(
                f"{label} has no header, so columns cannot be selected by name. "
                "Write their names into the first line."
            )
        columns = map(names.index, choose_columns(label, names, selector))
    elif names is not None and len(names) > 1 and not names[0]:
        columns, numbered = range(1, len(names)), True
        if first_row[0].strip() not in ("0", "1"):
            raise _unnamed_column(label)
    return _Layout(path, delimiter, names, first_row, n_skipped, tuple(columns), numbered)


def _unnamed_column(label: str) -> SourceFormatError:
    return SourceFormatError(
        f"{label} has a first column without a name, which does not number the rows: is it an "
        "index or a feature? Give it a name, or write the file without it, e.g. with "
        "DataFrame.to_csv(index=False). Rows of X and Y are paired in order, not by an index."
    )


def _delimiter(path: Path) -> str:
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    try:
        rows, _ = _first_rows(path, ";")
    except csv.Error:  # a line without semicolons can be longer than a value may be
        return ","
    # A semicolon in the first line alone is part of a name.
    return ";" if rows and all(len(row) > 1 for row in rows) else ","


def _first_rows(path: Path, delimiter: str) -> tuple[list[tuple[str, ...]], int]:
    """Up to two rows that are not blank, and the number of lines up to the end of the first."""
    with _open_text(path) as text:
        reader = csv.reader(text, delimiter=delimiter)
        filled = (tuple(row) for row in reader if row)
        first = list(islice(filled, 1))
        n_lines = reader.line_num
        return first + list(islice(filled, 1)), n_lines


def _open_text(path: Path) -> TextIO:
    # Line ends are left to the parser. Bytes that are not UTF-8 matter only where they are used.
    open_file: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    text: TextIO = open_file(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return text


def _is_data(row: Iterable[str]) -> bool:
    """Numbers, perhaps with missing values, are data; a header has a name that is neither."""
    # A decimal comma is an error further on, not a name.
    filled = [value.strip().replace(",", ".", 1) for value in row if value.strip() not in _MISSING]
    return bool(filled) and all(map(_is_number, filled))


def _numbers_columns(row: Sequence[str]) -> bool:
    """Whether this is the header that pandas writes for columns without names: 0, 1, 2, ...

    After an empty cell if the index is written too. Two numbers alone may be data.
    """
    own = row[1:] if not row[0].strip() else row
    least = 1 if len(own) < len(row) else 3
    return len(own) >= least and [value.strip() for value in own] == list(map(str, range(len(own))))


def _is_number(text: str) -> bool:
    """Whether Arrow reads this text as a number; unlike Python, it takes no underscores."""
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


# The conversion.


def _convert(layout: _Layout, dtype: np.dtype[Any], label: str) -> NDArray[Any]:
    """All rows, mapped from a temporary file that has no name and lives as long as the map."""
    pa = require("pyarrow", "io", "reading CSV")
    n_rows = 0
    with _temporary_file_errors(label):
        temporary = tempfile.TemporaryFile(prefix="knoi-")  # noqa: SIM115 - entered below
    with temporary as file:
        try:
            with _arrow_batches(layout, pa.from_numpy_dtype(dtype)) as batches:
                for batch in batches:
                    if any(column.null_count for column in batch):
                        raise pa.ArrowInvalid("a value is missing")
                    if layout.numbered:
                        numbers = batch.column(batch.num_columns - 1).to_numpy()
                        first = n_rows + int(layout.first_row[0])
                        if not np.array_equal(numbers, np.arange(first, first + len(batch))):
                            raise _unnamed_column(label)
                    for rows in _rows_of(batch, layout.columns, dtype):
                        # Written, not mapped: on a full disk a map would kill the process.
                        with _temporary_file_errors(label):
                            file.write(rows.data)
                    n_rows += len(batch)
        except pa.ArrowInvalid as error:
            if dtype.kind == "i":
                raise
            found: Exception | None = locate_bad_cell(layout, label, n_rows)
            if found is None and layout.numbered:
                found = _unnamed_column(label)
            raise found or error from error
        with _temporary_file_errors(label):
            file.flush()
        return np.memmap(file, dtype=dtype, mode="r", shape=(n_rows, len(layout.columns)))


@contextmanager
def _arrow_batches(layout: _Layout, kind: Any) -> Iterator[Any]:
    """Record batches of the chosen columns, each column once, all of one Arrow type.

    Columns are named by their position, because names may be absent or repeated.
    """
    pa = require("pyarrow", "io", "reading CSV")
    arrow_csv = require("pyarrow.csv", "io", "reading CSV")
    chosen = [str(column) for column in dict.fromkeys(layout.columns)]
    chosen += ["0"] if layout.numbered else []
    smallest, largest = _BLOCK_BYTES
    row_bytes = sum(len(text) + 1 for text in (*(layout.names or ()), *layout.first_row))
    compression = "gzip" if layout.path.suffix.lower() == ".gz" else None
    with (
        pa.input_stream(str(layout.path), compression=compression) as stream,
        arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(
                block_size=max(
                    min(max(smallest, _BLOCK_ROWS * row_bytes), largest),
                    _NUMBER_BYTES * layout.n_cols + 4 * row_bytes,
                ),
                skip_rows=layout.n_skipped,
                column_names=[str(column) for column in range(layout.n_cols)],
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter,
                # In a single column an empty line is a missing value.
                ignore_empty_lines=layout.n_cols > 1,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(chosen, kind),
                include_columns=chosen,
                null_values=list(_MISSING),
                check_utf8=False,
            ),
        ) as reader,
    ):
        yield reader


def _rows_of(batch: Any, columns: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """The columns of a batch as rows, a few at a time."""
    position = {column: index for index, column in enumerate(dict.fromkeys(columns))}
    arrays = [batch.column(position[column]).to_numpy() for column in columns]
    step = max(1, _WRITE_BYTES // (dtype.itemsize * len(arrays)))
    for start in range(0, len(batch), step):
        rows = np.empty((min(step, len(batch) - start), len(arrays)), dtype=dtype)
        for index, values in enumerate(arrays):
            rows[:, index] = values[start : start + step]
        yield rows


@contextmanager
def _temporary_file_errors(label: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemoryBudgetError(
            f"{label} is converted to a temporary file of 8 bytes per number, which cannot be "
            f"written: {error.strerror or error}. Set TMPDIR to a folder with more space, or pass "
            "a Parquet or .npy file."
        ) from error


# Errors.


def locate_bad_cell(layout: _Layout, label: str, first_row: int) -> InputError | None:
    """The error for the first row that Arrow could not convert, at or after `first_row`.

    The file is read once more, by Python's parser: Arrow does not say where a value is.
    """
    advice = "Encode text as numbers first, or leave it out."
    if layout.names is not None:
        advice = "Select other columns with PATH:a,b, or encode text as numbers first."
    with _open_text(layout.path) as text:
        lines = islice(text, layout.n_skipped, None)
        parsed = csv.reader(lines, delimiter=layout.delimiter)
        rows = (row or [""] for row in parsed if row or layout.n_cols == 1)
        for number, row in enumerate(islice(rows, first_row, None), first_row):
            if len(row) != layout.n_cols:
                return InputError(
                    f"{label} is ragged: row {number} has {plural(len(row), 'value')} but the "
                    f"{'first row' if layout.names is None else 'header'} has {layout.n_cols}. "
                    "Give every row the same number of values."
                )
            for column in sorted(set(layout.columns)):
                value = row[column].strip(" \t")
                if value in _MISSING:
                    return InputError(
                        f"{label} has a missing value at {layout.cell(number, column)}: CCA needs "
                        "complete rows. Drop the row or impute the value (e.g. "
                        "sklearn.impute.SimpleImputer) and write the file again."
                    )
                if not _is_number(value):
                    if _DECIMAL_COMMA.fullmatch(value):
                        advice = "Write decimals with a point, not a comma."
                    return InputTypeError(
                        f"{label} has the string {reprlib.repr(row[column])} at "
                        f"{layout.cell(number, column)}: only numbers can be used. {advice}"
                    )
    return None
