"""CSV and TSV files: converted once to a memory-mapped table of numbers, a block at a time.

Text is parsed far more slowly than numbers are read, and most estimators pass over their data more
than once. So opening a CSV file writes its numbers, 8 bytes each, to a temporary file without a
name: the system frees it when the view is closed, and also when the process ends in any other way.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.csv_head import Head, read_head
from knoi.data.csv_refusal import explain, missing
from knoi.data.csv_text import CsvText
from knoi.data.damage import damage_reported
from knoi.data.optional import require
from knoi.data.row_source import RowSource, read_only
from knoi.data.selection import choose_columns
from knoi.data.validation import describe_place
from knoi.exceptions import MemoryBudgetError, SourceFormatError

# Rows are laid out this many bytes at a time, so that a block's columns as Arrow holds them, and
# its rows, fit the cache together.
_PIECE_BYTES = 2**20


def open_csv(path: Path, selector: str | None, label: str) -> RowSource:
    """The columns of a CSV or TSV file, plain or gzipped; int64 if all are integers, else float64.

    The selector names columns of the header, comma-separated.
    """
    pa = require("pyarrow", "io", "reading CSV")
    with damage_reported(label, "CSV"):
        head = read_head(path, label)
        text = CsvText(path, head, _chosen(head, selector, label))
        rows = None
        if all(_is_integer(head.first_row[column : column + 1]) for column in text.columns):
            with suppress(pa.ArrowInvalid):  # a later row is no integer: all become floats
                rows = _convert(text, np.dtype(np.int64), label)
        if rows is None:
            try:
                rows = _convert(text, np.dtype(np.float64), label)
            except pa.ArrowInvalid as error:
                raise explain(text, label) or error from error
    table = read_only(rows)
    return RowSource(
        label,
        shape=table.shape,
        dtype=table.dtype,
        fetch=lambda start, stop: table[start:stop],
        random_access=False,
        column_names=text.names,
    )


def _chosen(head: Head, selector: str | None, label: str) -> tuple[int, ...]:
    """Positions of the columns that are wanted."""
    if selector is not None:
        if head.names is None:
            raise SourceFormatError(
                f"{label} has no header, so its columns have no names to select by. "
                "Write their names into the first line."
            )
        names = choose_columns(label, head.names, selector)
        return tuple(head.names.index(name) for name in names)
    if head.names is not None and head.n_cols > 1 and not head.names[0]:
        raise SourceFormatError(
            f"{label} has a first column without a name, as programs write the numbers or names of "
            "rows, which are no feature. Select columns by PATH:a,b, or write the file without it, "
            "e.g. with DataFrame.to_csv(index=False)."
        )
    return tuple(range(head.n_cols))


def _is_integer(values: tuple[str, ...]) -> bool:
    """Whether there is a value and it is written as an integer."""
    return bool(values) and values[0].strip().removeprefix("-").isdecimal()


def _convert(text: CsvText, dtype: np.dtype[Any], label: str) -> NDArray[Any]:
    """All rows, mapped from a temporary file that has no name and lives as long as the map."""
    pa = require("pyarrow", "io", "reading CSV")
    n_rows = 0
    with _temporary_file(label) as file, text.batches(pa.from_numpy_dtype(dtype)) as batches:
        for batch in batches:
            _refuse_missing(batch, text, n_rows, label)
            _append(batch, text, dtype, file, label)
            n_rows += len(batch)
        with _room_needed(label):
            file.flush()
        return np.memmap(file, dtype=dtype, mode="r", shape=(n_rows, len(text.columns)))


def _append(batch: Any, text: CsvText, dtype: np.dtype[Any], file: IO[bytes], label: str) -> None:
    place = {column: index for index, column in enumerate(dict.fromkeys(text.columns))}
    columns = [batch.column(place[column]).to_numpy() for column in text.columns]
    step = max(1, _PIECE_BYTES // (dtype.itemsize * len(columns)))
    for start in range(0, len(batch), step):
        rows = np.empty((min(step, len(batch) - start), len(columns)), dtype=dtype)
        for index, values in enumerate(columns):
            rows[:, index] = values[start : start + step]
        with _room_needed(label):
            # Written, not mapped: where the disk is full, a write fails and a map kills.
            file.write(rows.data)


def _refuse_missing(batch: Any, text: CsvText, first_row: int, label: str) -> None:
    chosen = list(dict.fromkeys(text.columns))
    gaps = (
        (int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))), column)
        for column, values in zip(chosen, batch, strict=True)
        if values.null_count
    )
    if first := min(gaps, default=None):
        row, column = first
        position = text.columns.index(column)
        raise missing(label, describe_place(first_row + row, position, text.names))


def _temporary_file(label: str) -> IO[bytes]:
    with _room_needed(label):
        return tempfile.TemporaryFile(prefix="knoi-")


@contextmanager
def _room_needed(label: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemoryBudgetError(
            f"{label} is converted to a temporary file of 8 bytes a number, which cannot be "
            f"written: {error.strerror or error}. Set TMPDIR to a folder with more room, or pass a "
            "Parquet or .npy file."
        ) from error
