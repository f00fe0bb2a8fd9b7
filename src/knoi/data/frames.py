"""Views that are data frames: pandas and polars, turned into numbers chunk by chunk."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.row_source import RowSource, read_only
from knoi.data.validation import (
    REAL_KINDS,
    check_dtype,
    check_shape,
    common_dtype,
    names_if_text,
    numbers_from_objects,
)
from knoi.exceptions import InputTypeError


def open_pandas(data: Any, label: str) -> RowSource:
    """A pandas DataFrame; missing values of nullable columns become NaN."""
    check_shape(label, data.shape)
    dtype = common_dtype([_pandas_dtype(data, j, label) for j in range(data.shape[1])])
    # `na_value` is only understood where some column can hold one, and then `dtype` is a float.
    has_nullable = any(not isinstance(column, np.dtype) for column in data.dtypes)
    missing = {"na_value": np.nan} if has_nullable and dtype.kind == "f" else {}
    return RowSource(
        label,
        shape=data.shape,
        dtype=dtype,
        fetch=lambda start, stop: read_only(data.iloc[start:stop].to_numpy(dtype=dtype, **missing)),
        random_access=True,
        column_names=names_if_text(data.columns),
    )


def open_polars(data: Any, label: str) -> RowSource:
    """A polars DataFrame; nulls become NaN. Does not need pyarrow."""
    check_shape(label, data.shape)
    dtype = common_dtype([_polars_dtype(column, label) for column in data.iter_columns()])

    def fetch(start: int, stop: int) -> NDArray[Any]:
        rows = np.empty((stop - start, data.width), dtype=dtype)
        for j, column in enumerate(data.slice(start, stop - start).iter_columns()):
            rows[:, j] = (column.cast(float) if column.null_count() else column).to_numpy()
        return rows

    return RowSource(
        label,
        shape=data.shape,
        dtype=dtype,
        fetch=fetch,
        random_access=True,
        column_names=tuple(data.columns),
    )


def _pandas_dtype(data: Any, column: int, label: str) -> np.dtype[Any]:
    stored = data.dtypes.iloc[column]
    if isinstance(stored, np.dtype) and stored.hasobject:
        # Looked at here once, so that text is refused on opening and not in the middle of a pass.
        objects = data.iloc[:, column].to_numpy()[:, np.newaxis]
        numbers_from_objects(label, objects, names_if_text(data.columns), first_column=column)
        return np.dtype(np.float64)
    if stored.kind not in REAL_KINDS:
        raise _not_numbers(data.columns[column], stored, label)
    if isinstance(stored, np.dtype):
        return stored
    # Masked and Arrow-backed columns name their NumPy dtype one way, sparse columns another.
    numpy_dtype = stored.numpy_dtype if hasattr(stored, "numpy_dtype") else stored.subtype
    return _with_room_for_nan(numpy_dtype)


def _polars_dtype(column: Any, label: str) -> np.dtype[Any]:
    if not (
        column.dtype.is_numeric() or column.dtype.is_nested() or str(column.dtype) == "Boolean"
    ):
        raise _not_numbers(column.name, column.dtype, label)
    if column.dtype.is_nested():
        raise InputTypeError(
            f"{label} has the nested column {column.name!r} ({column.dtype}): a frame gives one "
            "feature a column. Write it to Parquet, or pass column.to_numpy()."
        )
    # An empty column tells its NumPy dtype at no cost. Decimals come out as objects: as float64.
    numpy_dtype = column.clear().to_numpy().dtype
    if numpy_dtype.hasobject:
        return np.dtype(np.float64)
    check_dtype(label, numpy_dtype)
    return _with_room_for_nan(numpy_dtype) if column.null_count() else numpy_dtype


def _with_room_for_nan(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" else np.result_type(dtype, np.float32)


def _not_numbers(name: Any, dtype: Any, label: str) -> InputTypeError:
    return InputTypeError(
        f"{label} has column {name!r} of dtype {dtype}: only numbers can be used. "
        "Drop the column or encode it as numbers first."
    )
