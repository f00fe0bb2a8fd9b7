"""Tables of Arrow columns: Parquet files and folders, read by row groups, and Arrow tables.

A column of numbers is one feature; a column of lists is as many features as the lists are long.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
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


class _ColumnLayout:
    """The columns of a table as the features of a view.

    Lists are as long as those in the first row, which `first_row(names)` returns of some columns.
    """

    def __init__(
        self, label: str, schema: Any, names: Sequence[str], first_row: Callable[[list[str]], Any]
    ) -> None:
        types = {name: schema.field(name).type for name in names}
        lists = [name for name, kind in types.items() if _is_list(kind)]
        head = first_row(lists) if lists else {}
        shapes = {name: _flatten(label, name, head[name], first_row=0)[1] for name in lists}
        self.label = label
        self.names = list(types)  # to read, each once
        # The name of each column and the lengths of its lists, outermost first; () for numbers.
        self.columns = [(name, shapes.get(name, ())) for name in names]
        self.feature_names = tuple(
            name + "".join(f"[{index}]" for index in indices)
            for name, shape in self.columns
            for indices in np.ndindex(*shape)
        )
        self.n_cols = len(self.feature_names)
        self.dtype = common_dtype(
            np.dtype(_number_type(kind).to_pandas_dtype()) for kind in types.values()
        )

    def rows(self, n_rows: int, batches: Iterable[Any], first_row: int) -> NDArray[Any]:
        """`n_rows` rows from record batches; the first is row `first_row` of the view."""
        rows = np.empty((n_rows, self.n_cols), dtype=self.dtype)
        start = 0
        for batch in batches:
            stop, left = start + len(batch), 0
            for name, shape in self.columns:
                numbers, _ = _flatten(self.label, name, batch[name], first_row + start, shape)
                right = left + math.prod(shape)
                rows[start:stop, left:right] = numbers.reshape(stop - start, right - left)
                left = right
            start = stop
        if start != n_rows:
            raise ValueError(f"a row group has {start} rows instead of {n_rows}")
        return rows


@dataclass(frozen=True)
class _RowGroup:
    """One row group of a file, and the rows of the view it holds."""

    path: Path
    metadata: Any  # of the file
    index: int
    start: int
    stop: int


def open_parquet(path: Path, selector: str | None, label: str) -> RowSource:
    """A Parquet file, or all Parquet files of a folder in the order of their names."""
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    with wrap_parse_errors(label, "Parquet"):
        files = _parquet_files(path, label)
        schema = pq.read_schema(files[0])
        names = _select_columns(label, schema, selector)
        groups = _scan(files, schema, names, label)
        check_shape(label, (groups[-1].stop if groups else 0, len(names)))
        layout = _ColumnLayout(label, schema, names, lambda lists: _first_row(groups[0], lists))
    rows = _ParquetRows(layout, groups)
    # The footers tell where nulls are: they are an error now, not in the middle of a pass.
    for group in groups:
        if _may_hold_nulls(group, set(names)):
            rows.fetch(group.start, group.start + 1)
    return RowSource(
        label,
        (groups[-1].stop, layout.n_cols),
        layout.dtype,
        rows.fetch,
        column_names=layout.feature_names,
        release=rows.close,
    )


def read_parquet(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """One column of a Parquet file or folder, of any type; text becomes objects."""
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    column = choose(label, "column", pq.read_schema(_parquet_files(path, label)[0]).names, selector)
    values: NDArray[Any] = pq.read_table(path, columns=[column])[column].to_numpy()
    return values


def open_arrow_table(data: Any, label: str) -> RowSource:
    """A `pyarrow.Table` in memory; the same types of columns as in Parquet."""
    names = _select_columns(label, data.schema, None)
    check_shape(label, (data.num_rows, len(names)))
    table = data.select(names)
    first_row = table.slice(0, 1).combine_chunks().to_batches()[0]
    layout = _ColumnLayout(label, table.schema, names, lambda _: first_row)

    def fetch(start: int, stop: int) -> NDArray[Any]:
        return layout.rows(stop - start, table.slice(start, stop - start).to_batches(), start)

    shape, features = (table.num_rows, layout.n_cols), layout.feature_names
    return RowSource(label, shape, layout.dtype, fetch, column_names=features)


class _ParquetRows:
    """Rows of Parquet files; keeps the last decoded row group, so that reads in order decode once.

    A lock allows a prefetch thread and its consumer to read at the same time.
    """

    def __init__(self, layout: _ColumnLayout, groups: Sequence[_RowGroup]) -> None:
        self._layout = layout
        self._groups = groups
        self._starts = [group.start for group in groups]
        self._lock = threading.Lock()
        self._decoded: tuple[_RowGroup, NDArray[Any]] | None = None

    def fetch(self, start: int, stop: int) -> NDArray[Any]:
        """Rows of a valid, non-empty range, in fresh memory."""
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
        """Free the decoded rows."""
        with self._lock:
            self._decoded = None

    def _decode(self, group: _RowGroup) -> NDArray[Any]:
        if self._decoded is not None and self._decoded[0] is group:
            return self._decoded[1]
        self._decoded = None  # freed before the next one is made: one row group at a time
        layout = self._layout
        pq = require("pyarrow.parquet", "io", "reading Parquet")
        batch_rows = max(1, _BATCH_BYTES // max(1, layout.dtype.itemsize * layout.n_cols))
        with (
            wrap_parse_errors(f"{layout.label} (file {group.path.name!r})", "Parquet"),
            # Checksums are verified if the writer stored them; otherwise this costs nothing.
            pq.ParquetFile(
                group.path, metadata=group.metadata, page_checksum_verification=True
            ) as file,
        ):
            batches = file.iter_batches(batch_rows, row_groups=[group.index], columns=layout.names)
            rows = layout.rows(group.stop - group.start, batches, group.start)
        self._decoded = (group, rows)
        return rows


def _parquet_files(path: Path, label: str) -> list[Path]:
    if path.is_file():
        return [path]
    # Names that start with _ or . are written beside the data (_SUCCESS, .crc, ...).
    files = sorted(file for file in path.rglob("*.parquet") if file.name[0] not in "_.")
    if not files:
        raise SourceFormatError(
            f"{label} is a folder, but neither a Zarr store nor a folder of .parquet files. "
            "Pass such a folder, or a file."
        )
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
            for name in names:
                wanted, known = schema.field(name).type, file.schema_arrow
                found = known.field(name).type if known.names.count(name) == 1 else "absent"
                if found != wanted:
                    raise SourceFormatError(
                        f"{label}: column {name!r} is {found} in {path.name!r} but {wanted} in "
                        f"{files[0].name!r}. Write all files of a folder with the same columns."
                    )
            for index in range(file.num_row_groups):
                start, stop = stop, stop + file.metadata.row_group(index).num_rows
                if stop > start:
                    groups.append(_RowGroup(path, file.metadata, index, start, stop))
    return groups


def _may_hold_nulls(group: _RowGroup, names: set[str]) -> bool:
    row_group = group.metadata.row_group(group.index)
    for column in map(row_group.column, range(row_group.num_columns)):
        # A column of lists is stored under a path that begins with its name.
        path, statistics = column.path_in_schema, column.statistics
        chosen = path in names or path.partition(".")[0] in names
        if chosen and statistics is not None and statistics.null_count:
            return True
    return False


def _first_row(group: _RowGroup, names: list[str]) -> Any:
    pq = require("pyarrow.parquet", "io", "reading Parquet")
    with pq.ParquetFile(group.path) as file:
        return next(file.iter_batches(batch_size=1, row_groups=[group.index], columns=names))


def _select_columns(label: str, schema: Any, selector: str | None) -> list[str]:
    """Columns that a comma-separated `selector` names; without one, all but a pandas index."""
    if selector is None:
        # pandas stores the index of a data frame as ordinary columns; it is not a feature.
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in schema.names if name not in index]
        for name in names:
            check_unique(label, schema.names, name)
    else:
        names = choose_columns(label, schema.names, selector)

    def is_numeric(name: str) -> bool:
        return _number_type(schema.field(name).type) is not None

    others = [name for name in names if not is_numeric(name)]
    if not others:
        return names
    described = listing(f"{name} ({schema.field(name).type})" for name in others)
    # `schema.field` fails for a name that occurs twice.
    usable = [name for name in schema.names if schema.names.count(name) == 1 and is_numeric(name)]
    advice = f"Select numeric columns with PATH:a,b. Available: {listing(usable)}."
    raise InputTypeError(
        f"{label} has columns that are not numbers: {described}. "
        f"{advice if usable else 'Encode them as numbers first.'}"
    )


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


def _flatten(
    label: str, name: str, array: Any, first_row: int, expected: Sequence[int] | None = None
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """All numbers of a column in order, and the lengths of its lists, outermost first.

    An error if a value is missing or a list is not as long as expected (by default, the first one).
    """
    shape: tuple[int, ...] = ()
    while _is_list(array.type):
        _check_no_null(label, name, array, math.prod(shape), first_row)
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        length = int(lengths[:1].sum()) if expected is None else expected[len(shape)]
        if np.any(lengths != length):
            index = int(np.argmax(lengths != length))
            raise InputError(
                f"{label} has lists of different lengths in column {name!r}: {length} "
                f"values in the first row but {lengths[index]} at row "
                f"{first_row + index // math.prod(shape)}. "
                "Every row must have the same number of features."
            )
        array = array.flatten()
        shape = (*shape, length)
    _check_no_null(label, name, array, math.prod(shape), first_row)
    return array.to_numpy(zero_copy_only=False), shape


def _check_no_null(label: str, name: str, array: Any, per_row: int, first_row: int) -> None:
    if array.null_count:
        index = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(
            f"{label} has a null in column {name!r} at row {first_row + index // per_row}: CCA "
            "needs complete rows. Drop the rows with nulls or fill the values (e.g. "
            "DataFrame.dropna or fillna) and write the data again."
        )
