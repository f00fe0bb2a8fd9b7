"""Arrow columns as a matrix: a number is one feature, a list as many as it is long."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.optional import require
from knoi.data.selection import choose_columns, listing, refuse_twice
from knoi.data.validation import common_dtype
from knoi.exceptions import InputError, InputTypeError


@dataclass(frozen=True)
class Column:
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
class Layout:
    """Where each column of a table goes in the matrix of a view."""

    label: str
    columns: tuple[Column, ...]

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


def select_columns(label: str, schema: Any, selector: str | None) -> list[str]:
    """Names that a comma-separated `selector` means; None takes all that are no pandas index."""
    if selector is None:
        index = _pandas_index(schema)
        names = [name for name in schema.names if name not in index]
        for name in names:
            refuse_twice(label, schema.names, name)
    else:
        names = choose_columns(label, schema.names, selector)
    _refuse_other_kinds(label, schema, names)
    return names


def plan_layout(
    label: str, schema: Any, names: Sequence[str], first_row: Callable[[list[str]], Any]
) -> Layout:
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
    return Layout(
        label,
        tuple(
            Column(
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
            f"Select numeric columns by PATH:a,b. There are: {listing(usable)}."
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


def _flat_values(label: str, column: Column, values: Any, first_row: int) -> NDArray[Any]:
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
