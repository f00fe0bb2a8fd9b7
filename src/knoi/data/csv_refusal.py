"""Why a CSV file is no table of numbers: the first value or row that is wrong, and where it is."""

import re
import reprlib
from typing import Any

from knoi.data.csv_head import MISSING
from knoi.data.csv_text import CsvText
from knoi.data.optional import require
from knoi.data.validation import describe_place
from knoi.exceptions import InputError, InputTypeError

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")


def explain(text: CsvText, label: str) -> InputError | None:
    """What is wrong with a file that did not convert, found by reading it once more, as text."""
    pa = require("pyarrow", "io", "reading CSV")
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    first_row = 0
    try:
        with text.batches(pa.string(), note, threads=False) as batches:
            for batch in batches:
                places = (
                    (row, column)
                    for column, array in zip(dict.fromkeys(text.columns), batch, strict=True)
                    if (row := _first_that_is_no_number(array)) is not None
                )
                if found := min(places, default=None):
                    row, column = found
                    position = text.columns.index(column)
                    value = batch.column(str(column))[row].cast(pa.binary()).as_py()
                    place = describe_place(first_row + row, position, text.names)
                    return _no_number(value.decode(errors="replace"), place, text, label)
                first_row += len(batch)
    except pa.ArrowInvalid:
        if not ragged:
            raise
        return _ragged(ragged[0], text, label)
    return None


def missing(label: str, place: str) -> InputError:
    """The error for a value that is not there."""
    return InputError(
        f"{label} has a missing value at {place}: CCA needs complete rows. Drop the row or impute "
        "the value (e.g. sklearn.impute.SimpleImputer) and write the file again."
    )


def _first_that_is_no_number(array: Any) -> int | None:
    compute = require("pyarrow.compute", "io", "reading CSV")
    trimmed = compute.ascii_trim(array, characters=" \t")  # as numbers are read
    if not _fails(trimmed):
        return None
    # The first k values convert, the first k + 1 do not: halve the range that holds k.
    low, high = 0, len(trimmed) - 1
    while low < high:
        middle = (low + high) // 2
        if _fails(trimmed[low : middle + 1]):
            high = middle
        else:
            low = middle + 1
    return low


def _fails(array: Any) -> bool:
    pa = require("pyarrow", "io", "reading CSV")
    try:
        array.cast(pa.float64())
    except pa.ArrowInvalid:
        return True
    return False


def _no_number(value: str, place: str, text: CsvText, label: str) -> InputError:
    if value.strip() in MISSING:
        return missing(label, place)
    if _DECIMAL_COMMA.fullmatch(value.strip()):
        advice = "Write decimals with a point, not a comma."
    elif text.head.names is None:
        advice = "Encode text as numbers first, or leave it out."
    else:
        advice = "Select other columns by PATH:a,b, or encode text as numbers first."
    return InputTypeError(
        f"{label} has the string {reprlib.repr(value)} at {place}: only numbers can be used. "
        f"{advice}"
    )


def _ragged(row: Any, text: CsvText, label: str) -> InputError:
    head = text.head
    number = row.number - 1 - head.n_skipped  # counted from 1, with the lines that were skipped
    return InputError(
        f"{label} is ragged: row {number} has {_values(row.actual_columns)} but the "
        f"{'first row' if head.names is None else 'header'} has {row.expected_columns}. "
        "Give every row the same number of values."
    )


def _values(count: int) -> str:
    return f"{count} value" if count == 1 else f"{count} values"
