"""Tables of Arrow columns: Parquet files and folders, read by row groups, and Arrow tables.

A column of numbers is one feature; a column of lists is as many features as the lists are long.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.source import (
    RowSource,
    check_shape,
    check_unique,
    choose,
    choose_columns,
    common_dtype,
    listing,
    wrap_parse_errors,
)
from knoi.exceptions import InputError, InputTypeError, SourceFormatError, require

# A row group is decoded in batches of about this size, so that the columns as Arrow holds them and
# the finished rows are never both in memory whole.
_BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class _Column:
    """One Arrow column and the features it becomes."""

    name: str
    dtype: np.dtype[Any]
    lengths: tuple[int, ...]  # of the lists in it, outermost first; () for a plain number

    @property
    def width(self) -> int:
        """Number of features."""
        return math.prod(self.lengths)

    @property
    def feature_names(self) -> list[str]:
        """The column's name, with a position where it becomes several features."""
        return [
            self.name + "".join(f"[{index}]" for index in indices)
            for indices in np.ndindex(*self.lengths)
        ]


@dataclass(frozen=True)
class _Layout:
    """Where each column of a table goes in the matrix of a view."""

    label: str
    columns: tuple[_Column, ...]

    @property
    def names(self) -> list[str]:
        """Columns to read, each once."""
        return list(dict.fromkeys(column.name for column in self.columns))

    @property
    def n_cols(self) -> int:
        """Features of all columns together."""
        return sum(column.width for column in self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """One dtype that holds every column."""
        return common_dtype(column.dtype for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features, in order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def fill(self, rows: NDArray[Any], batch: Any, first_row: int) -> None:
        """Write a record batch that starts at row `first_row` of the view into `rows`."""
        place = 0
        for column in self.columns:
            values = _flat_values(self.label, column, batch.column(column.name), first_row)
            rows[:, place : place + column.width] = values.reshape(len(rows), column.width)
            place += column.width


@dataclass(frozen=True)
class _RowGroup:
    """One row group of one file, and the rows of the view it holds."""

    path: Path
    index: int
    start: int
    stop: int
    may_hold_nulls: bool


def open_parquet(path: Path, selector: str | None, label: str) -> RowSource:
    """A Parquet file, or all Parquet files of a folder in the order of their names."""
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    with wrap_parse_errors(label, "Parquet"):
        files = _parquet_files(path, label)
        schema = pq.read_schema(files[0])
        names = _select_columns(label, schema, selector)
        groups = _scan(files, schema, names, label)
        check_shape(label, (groups[-1].stop if groups else 0, len(names)))
        layout = _plan_layout(label, schema, names, lambda lists: _first_row(groups[0], lists))
    rows = _ParquetRows(layout, groups)
    source = RowSource(
        label,
        shape=(groups[-1].stop, layout.n_cols),
        dtype=layout.dtype,
        fetch=rows.fetch,
        random_access=False,
        column_names=layout.feature_names,
        release=rows.close,
    )
    try:
        # The footers tell where nulls are: refuse them now, not in the middle of a pass.
        for group in groups:
            if group.may_hold_nulls:
                source.read(group.start, group.start + 1)
    except BaseException:
        source.close()
        raise
    return source


def read_parquet(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """One column of a Parquet file or folder, of any type; text becomes objects."""
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    column = choose(label, "column", pq.read_schema(_parquet_files(path, label)[0]).names, selector)
    values: NDArray[Any] = pq.read_table(path, columns=[column])[column].to_numpy()
    return values


def open_arrow_table(data: Any, label: str) -> RowSource:
    """A `pyarrow.Table` in memory, with the same columns allowed as in Parquet."""
    names = _select_columns(label, data.schema, None)
    check_shape(label, (data.num_rows, len(names)))
    table = data.select(names)
    layout = _plan_layout(label, table.schema, names, lambda lists: table.select(lists).slice(0, 1))

    def fetch(start: int, stop: int) -> NDArray[Any]:
        rows = np.empty((stop - start, layout.n_cols), dtype=layout.dtype)
        place = 0
        for batch in table.slice(start, stop - start).to_batches():
            layout.fill(rows[place : place + len(batch)], batch, first_row=start + place)
            place += len(batch)
        return rows

    return RowSource(
        label,
        shape=(table.num_rows, layout.n_cols),
        dtype=layout.dtype,
        fetch=fetch,
        random_access=True,
        column_names=layout.feature_names,
    )


class _ParquetRows:
    """Rows of Parquet files; keeps the last decoded row group, so that reads in order decode once.

    A lock makes it usable from a prefetch thread and its consumer at once.
    """

    def __init__(self, layout: _Layout, groups: Sequence[_RowGroup]) -> None:
        self._layout = layout
        self._groups = groups
        self._starts = [group.start for group in groups]
        self._lock = threading.Lock()
        self._open_file: tuple[Path, Any] | None = None
        self._decoded: tuple[_RowGroup, NDArray[Any]] | None = None

    def fetch(self, start: int, stop: int) -> NDArray[Any]:
        """Rows of a valid, non-empty range, in memory of their own."""
        rows = np.empty((stop - start, self._layout.n_cols), dtype=self._layout.dtype)
        with self._lock:
            for group in self._groups[bisect_right(self._starts, start) - 1 :]:
                if group.start >= stop:
                    break
                first, last = max(start, group.start), min(stop, group.stop)
                decoded = self._decode(group)
                rows[first - start : last - start] = decoded[
                    first - group.start : last - group.start
                ]
        return rows

    def close(self) -> None:
        """Close the file held open and forget the decoded rows."""
        with self._lock:
            self._decoded = None
            if self._open_file is not None:
                self._open_file[1].close()
                self._open_file = None

    def _decode(self, group: _RowGroup) -> NDArray[Any]:
        if self._decoded is not None and self._decoded[0] == group:
            return self._decoded[1]
        self._decoded = None  # freed before the next one is made: one row group at a time
        layout = self._layout
        n_rows = group.stop - group.start
        rows = np.empty((n_rows, layout.n_cols), dtype=layout.dtype)
        batch_rows = max(1, _BATCH_BYTES // max(1, rows.itemsize * layout.n_cols))
        place = 0
        with wrap_parse_errors(f"{layout.label} (file {group.path.name!r})", "Parquet"):
            for batch in self._file(group.path).iter_batches(
                batch_size=batch_rows, row_groups=[group.index], columns=layout.names
            ):
                layout.fill(rows[place : place + len(batch)], batch, group.start + place)
                place += len(batch)
            if place != n_rows:
                raise ValueError(f"row group {group.index} has {place} rows instead of {n_rows}")
        self._decoded = (group, rows)
        return rows

    def _file(self, path: Path) -> Any:
        # One file open at a time: a folder may hold more files than a process may open.
        if self._open_file is None or self._open_file[0] != path:
            if self._open_file is not None:
                self._open_file[1].close()
                self._open_file = None
            pq = require("pyarrow.parquet", "io", "reading Parquet")
            # Checksums are verified where a writer stored them; elsewhere this costs nothing.
            self._open_file = (path, pq.ParquetFile(path, page_checksum_verification=True))
        return self._open_file[1]


def _parquet_files(path: Path, label: str) -> list[Path]:
    if path.is_file():
        return [path]
    # Names that start with _ or . are what writers leave beside the data (_SUCCESS, .crc, ...).
    files = sorted(file for file in path.rglob("*.parquet") if file.name[0] not in "_.")
    if not files:
        raise SourceFormatError(f"{label} is a folder without .parquet files.")
    return files


def _scan(files: Sequence[Path], schema: Any, names: Sequence[str], label: str) -> list[_RowGroup]:
    """Row groups of all files, which must agree on the type of every named column."""
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    groups: list[_RowGroup] = []
    stop = 0
    for path in files:
        with (
            wrap_parse_errors(f"{label} (file {path.name!r})", "Parquet"),
            pq.ParquetFile(path) as file,
        ):
            _check_same_types(file.schema_arrow, schema, names, path, files[0], label)
            for index in range(file.num_row_groups):
                group = file.metadata.row_group(index)
                if group.num_rows:
                    start, stop = stop, stop + group.num_rows
                    may_hold_nulls = _may_hold_nulls(group, set(names))
                    groups.append(_RowGroup(path, index, start, stop, may_hold_nulls))
    return groups


def _check_same_types(
    schema: Any, wanted: Any, names: Sequence[str], path: Path, first: Path, label: str
) -> None:
    for name in names:
        there = schema.field(name).type if schema.names.count(name) == 1 else "absent"
        if there != wanted.field(name).type:
            raise SourceFormatError(
                f"{label}: column {name!r} is {there} in {path.name!r} but "
                f"{wanted.field(name).type} in {first.name!r}. "
                "Write all files of a folder with the same columns."
            )


def _may_hold_nulls(group: Any, names: set[str]) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        # A column that holds lists is stored under a path that begins with its name.
        if column.path_in_schema in names or column.path_in_schema.partition(".")[0] in names:
            statistics = column.statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                return True
    return False


def _first_row(group: _RowGroup, names: list[str]) -> Any:
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    pa = require("pyarrow", "io", "reading Parquet")
    with pq.ParquetFile(group.path) as file:
        batches = file.iter_batches(batch_size=1, row_groups=[group.index], columns=names)
        return pa.Table.from_batches([next(batches)])


def _select_columns(label: str, schema: Any, selector: str | None) -> list[str]:
    """Names that a comma-separated `selector` means; None takes all that are no pandas index."""
    if selector is None:
        index = _pandas_index(schema)
        names = [name for name in schema.names if name not in index]
        for name in names:
            check_unique(label, schema.names, name)
    else:
        names = choose_columns(label, schema.names, selector)
    _refuse_other_kinds(label, schema, names)
    return names


def _plan_layout(
    label: str, schema: Any, names: Sequence[str], first_row: Callable[[list[str]], Any]
) -> _Layout:
    """Decide what the named columns become.

    Parameters
    ----------
    label : str
        How messages call the view.
    schema : pyarrow.Schema
        All columns of the table.
    names : sequence of str
        Columns in the order of the features.
    first_row : callable
        Gives the first row of some columns as a table: lists take their length from it.
    """
    types = {name: schema.field(name).type for name in names}
    lists = [name for name, kind in types.items() if _is_list(kind)]
    head = first_row(lists) if lists else None
    lengths = {name: _list_lengths(label, name, head.column(name)) for name in lists if head}
    return _Layout(
        label,
        tuple(
            _Column(
                name, np.dtype(_number_type(types[name]).to_pandas_dtype()), lengths.get(name, ())
            )
            for name in names
        ),
    )


def _pandas_index(schema: Any) -> set[str]:
    # pandas stores a frame's index as columns like any other; it numbers rows and is no feature.
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    return {name for name in stored if isinstance(name, str)}


def _is_list(kind: Any) -> bool:
    types = require("pyarrow.types", "io", "reading Arrow data")
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _number_type(kind: Any) -> Any:
    """The type of the numbers in a column, None if it holds anything else."""
    types = require("pyarrow.types", "io", "reading Arrow data")
    while _is_list(kind):
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return kind if is_number else None


def _refuse_other_kinds(label: str, schema: Any, names: Sequence[str]) -> None:
    def is_numeric(name: str) -> bool:
        return _number_type(schema.field(name).type) is not None

    others = [name for name in names if not is_numeric(name)]
    if not others:
        return
    described = listing(f"{name} ({schema.field(name).type})" for name in others)
    # A name that occurs twice has no field of its own to look at.
    usable = [name for name in schema.names if schema.names.count(name) == 1 and is_numeric(name)]
    raise InputTypeError(
        f"{label} has columns that are not numbers: {described}. "
        + (
            f"Select numeric columns with PATH:a,b. Available: {listing(usable)}."
            if usable
            else "Encode them as numbers first."
        )
    )


def _list_lengths(label: str, name: str, values: Any) -> tuple[int, ...]:
    """Lengths of the lists in the first row, outermost first."""
    lengths: list[int] = []
    array = values.combine_chunks()
    while _is_list(array.type):
        _refuse_null(label, name, array, per_row=max(1, math.prod(lengths)), first_row=0)
        n_lists, array = len(array), array.flatten()
        lengths.append(len(array) // max(1, n_lists))
    return tuple(lengths)


def _flat_values(label: str, column: _Column, values: Any, first_row: int) -> NDArray[Any]:
    """All numbers of a column in order, once it is sure that none is missing."""
    array = values  # (n,), perhaps of lists
    per_row = 1
    for length in column.lengths:
        _refuse_null(label, column.name, array, per_row, first_row)
        _refuse_other_lengths(label, column.name, array, length, per_row, first_row)
        array = array.flatten()
        per_row *= length
    _refuse_null(label, column.name, array, per_row, first_row)
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def _refuse_null(label: str, name: str, array: Any, per_row: int, first_row: int) -> None:
    if array.null_count:
        index = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(
            f"{label} has a null in column {name!r} at row {first_row + index // per_row}: CCA "
            "needs complete rows. Drop the rows with nulls or fill the values (e.g. "
            "DataFrame.dropna or fillna) and write the data again."
        )


def _refuse_other_lengths(
    label: str, name: str, array: Any, length: int, per_row: int, first_row: int
) -> None:
    compute = require("pyarrow.compute", "io", "reading Arrow data")
    lengths = np.asarray(compute.list_value_length(array))
    if np.any(lengths != length):
        index = int(np.argmax(lengths != length))
        raise InputError(
            f"{label} has lists of different lengths in column {name!r}: {length} values in the "
            f"first row but {lengths[index]} at row {first_row + index // per_row}. "
            "Every row must have the same number of features."
        )
