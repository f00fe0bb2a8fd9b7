"""Tables of columns: Parquet files and folders, read by row groups, and Arrow tables in memory."""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.arrow_columns import Layout, plan_layout, select_columns
from knoi.data.damage import damage_reported
from knoi.data.optional import require
from knoi.data.row_source import RowSource
from knoi.data.validation import check_shape
from knoi.exceptions import SourceFormatError

# A row group is decoded in batches of about this size, so that the columns as Arrow holds them and
# the finished rows are never both in memory whole.
_BATCH_BYTES = 16 * 2**20


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
    with damage_reported(label, "Parquet"):
        files = _parquet_files(path, label)
        schema = pq.read_schema(files[0])
        names = select_columns(label, schema, selector)
        groups = _scan(files, schema, names, label)
        check_shape(label, (groups[-1].stop if groups else 0, len(names)))
        layout = plan_layout(label, schema, names, lambda lists: _first_row(groups[0], lists))
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


def open_arrow_table(data: Any, label: str) -> RowSource:
    """A `pyarrow.Table` in memory, with the same columns allowed as in Parquet."""
    names = select_columns(label, data.schema, None)
    check_shape(label, (data.num_rows, len(names)))
    table = data.select(names)
    layout = plan_layout(label, table.schema, names, lambda lists: table.select(lists).slice(0, 1))

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

    def __init__(self, layout: Layout, groups: Sequence[_RowGroup]) -> None:
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
        with damage_reported(f"{layout.label} (file {group.path.name!r})", "Parquet"):
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
            damage_reported(f"{label} (file {path.name!r})", "Parquet"),
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
