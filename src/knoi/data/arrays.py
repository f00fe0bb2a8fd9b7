"""Views in memory: NumPy arrays (also mapped), sequences, sparse matrices, tensors, data frames."""

import mmap
import reprlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.sparse import narrow_indices, nested_bytes
from knoi.data.source import (
    REAL_KINDS,
    RowSource,
    array_source,
    check_dtype,
    check_shape,
    common_dtype,
    describe_cell,
    plural,
    read_only,
    shares_memory,
)
from knoi.exceptions import InputError, InputTypeError

# Arrays of these kinds (objects, text) are converted element by element, so that the first value
# which is not a number can be named.
_ELEMENTWISE_KINDS = "OUST"


def open_ndarray(data: NDArray[Any], label: str) -> RowSource:
    """An array; rows are read-only views of it if its layout allows."""
    check_shape(label, data.shape)
    if isinstance(data, np.ma.MaskedArray):
        data = _unmasked(data, label)
    if data.dtype.kind in _ELEMENTWISE_KINDS:
        data = _numbers_from_objects(label, data.view(np.ndarray))
    return array_source(data, label, random_access=not _is_file_backed(data))


def open_array_like(data: Any, label: str) -> RowSource:
    """Nested sequences, scalars and objects with `__array__`."""
    try:
        array = np.asarray(data)
        if array.dtype.kind in _ELEMENTWISE_KINDS:
            # NumPy converts numbers next to text to text; keep each element as it came.
            array = np.asarray(data, dtype=object)
    except (ValueError, TypeError) as error:
        raise _why_not_an_array(data, label, error) from error
    return open_ndarray(array, label)


def open_sparse(data: Any, label: str) -> RowSource:
    """A scipy sparse matrix or array of any format; rows are CSR, never dense."""
    check_shape(label, data.shape)
    check_dtype(label, data.dtype)
    rows = _canonical_csr(data, label)
    values, columns = read_only(rows.data), read_only(rows.indices)

    def fetch(start: int, stop: int) -> scipy.sparse.csr_array:
        first, last = rows.indptr[start], rows.indptr[stop]
        # Filled in by hand: the constructor copies a small part of a larger array.
        window = scipy.sparse.csr_array((stop - start, rows.shape[1]), dtype=rows.dtype)
        window.data, window.indices = values[first:last], columns[first:last]
        window.indptr = rows.indptr[start : stop + 1] - first
        # Set, so that scipy neither checks nor tries to sort read-only memory.
        window.has_canonical_format = True
        return window

    n_bytes = nested_bytes(rows)
    return RowSource(label, rows.shape, rows.dtype, fetch, random_access=True, stored_bytes=n_bytes)


def _canonical_csr(data: Any, label: str) -> scipy.sparse.csr_array:
    """CSR with sorted columns and no duplicates; shares memory that already is."""
    try:
        if data.format in ("csc", "bsr"):
            # The conversion would write out of bounds where an index is. The check changes index
            # dtypes in place: run it on a shallow copy.
            copy(data).check_format(full_check=True)
        rows = scipy.sparse.csr_array(data)
        rows.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{label} is an invalid sparse matrix: {error}. Build it again, "
            "e.g. from scipy.sparse.coo_array."
        ) from error
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()  # sorts the columns, too
    native = rows.dtype.newbyteorder("=")
    if rows.dtype != native:
        rows = rows.astype(native)
    return narrow_indices(rows)


def open_tensor(data: Any, label: str) -> RowSource:
    """A torch tensor on any device; only the rows that are read are copied to the CPU."""
    check_shape(label, tuple(data.shape))
    table = data.detach()

    def fetch(start: int, stop: int) -> NDArray[Any]:
        rows = table[start:stop]
        # NumPy has no bfloat16 and no 8-bit floats; float32 holds them all.
        if str(rows.dtype).startswith(("torch.bfloat16", "torch.float8")):
            rows = rows.float()
        return read_only(rows.cpu().resolve_conj().resolve_neg().numpy())

    try:
        dtype = fetch(0, 0).dtype
    except (TypeError, RuntimeError) as error:
        raise InputTypeError(
            f"{label} is a torch tensor of layout {data.layout} and dtype {data.dtype}: only dense "
            "tensors of real numbers can be used. Convert it first, e.g. with tensor.to_dense() or "
            "tensor.float(), or pass a scipy.sparse matrix."
        ) from error
    tensor = None if table.device.type == "cpu" else table
    return RowSource(label, tuple(data.shape), dtype, fetch, random_access=True, tensor=tensor)


def open_pandas(data: Any, label: str) -> RowSource:
    """A pandas DataFrame; missing values of nullable columns become NaN."""
    check_shape(label, data.shape)
    dtype = common_dtype([_pandas_dtype(data, j, label) for j in range(data.shape[1])])
    # pandas accepts `na_value` only if some column can hold one, and then `dtype` is a float.
    has_nullable = any(not isinstance(column, np.dtype) for column in data.dtypes)
    missing = {"na_value": np.nan} if has_nullable and dtype.kind == "f" else {}

    def fetch(start: int, stop: int) -> NDArray[Any]:
        return read_only(data.iloc[start:stop].to_numpy(dtype=dtype, **missing))

    names = _names_if_text(data.columns)
    if names is None and any(isinstance(name, str) for name in data.columns):
        raise InputTypeError(
            f"{label} has column names of which some are strings and others are not. Make all of "
            "them strings: frame.columns = frame.columns.astype(str)."
        )
    # Columns of one dtype may be views of one array.
    own = shares_memory(fetch, len(data))
    return RowSource(label, data.shape, dtype, fetch, random_access=own, column_names=names)


def open_polars(data: Any, label: str) -> RowSource:
    """A polars DataFrame; nulls become NaN. Does not need pyarrow."""
    check_shape(label, data.shape)
    dtype = common_dtype([_polars_dtype(column, label) for column in data.iter_columns()])

    def fetch(start: int, stop: int) -> NDArray[Any]:
        rows = np.empty((stop - start, data.width), dtype=dtype)
        for j, column in enumerate(data.slice(start, stop - start).iter_columns()):
            rows[:, j] = (column.cast(float) if column.null_count() else column).to_numpy()
        return rows

    return RowSource(label, data.shape, dtype, fetch, column_names=tuple(data.columns))


def _names_if_text(names: Iterable[Any]) -> tuple[str, ...] | None:
    """Column names if all of them are strings, else None."""
    listed = tuple(names)
    return listed if all(isinstance(name, str) for name in listed) else None


def _pandas_dtype(data: Any, column: int, label: str) -> np.dtype[Any]:
    stored = data.dtypes.iloc[column]
    if isinstance(stored, np.dtype) and stored.hasobject:
        # Checked here once, so that text is an error on opening and not in the middle of a pass.
        objects = data.iloc[:, column].to_numpy()[:, np.newaxis]
        _numbers_from_objects(label, objects, _names_if_text(data.columns), first_column=column)
        return np.dtype(np.float64)
    if stored.kind not in REAL_KINDS:
        raise _not_numbers(data.columns[column], stored, label)
    if isinstance(stored, np.dtype):
        return stored
    # Masked and Arrow-backed columns name their NumPy dtype one way, sparse columns another.
    numpy_dtype = stored.numpy_dtype if hasattr(stored, "numpy_dtype") else stored.subtype
    return _nullable_dtype(numpy_dtype)


def _polars_dtype(column: Any, label: str) -> np.dtype[Any]:
    if not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
        raise _not_numbers(column.name, column.dtype, label)
    # An empty column has the NumPy dtype at no cost. Decimals are objects there: float64 here.
    numpy_dtype = column.clear().to_numpy().dtype
    if numpy_dtype.hasobject:
        return np.dtype(np.float64)
    return _nullable_dtype(numpy_dtype) if column.null_count() else numpy_dtype


def _nullable_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype, or the float dtype that can hold its values and NaN."""
    return dtype if dtype.kind == "f" else np.result_type(dtype, np.float32)


def _not_numbers(name: Any, dtype: Any, label: str) -> InputTypeError:
    return InputTypeError(
        f"{label} has column {name!r} of dtype {dtype}: only numbers can be used, one per row. "
        "Drop the column or encode it as numbers first."
    )


def _unmasked(data: Any, label: str) -> NDArray[Any]:
    masked = np.argwhere(np.ma.getmaskarray(data))
    if len(masked):
        row, column = (int(index) for index in masked[0])
        raise InputError(
            f"{label} is a masked array with {plural(len(masked), 'masked value')}, the first at "
            f"{describe_cell(row, column, None)}: CCA needs complete rows. "
            "Drop the rows or fill the values, e.g. with numpy.ma.filled."
        )
    return np.ma.getdata(data)


def _is_file_backed(data: NDArray[Any]) -> bool:
    # A slice of a memmap, or np.asarray of one, is still a file: find the owner of the memory.
    owner: Any = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, mmap.mmap)


def _why_not_an_array(data: Any, label: str, error: Exception) -> InputError:
    lengths = [
        plural(len(row), "value") if hasattr(row, "__len__") else "a single number"
        for row in (data if isinstance(data, Sequence) else ())
    ]
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            return InputError(
                f"{label} is ragged: row 0 has {lengths[0]} but row {row} has {length}. "
                "Give every row the same number of values."
            )
    return InputTypeError(
        f"{label} (a {type(data).__name__}) cannot be converted to an array: {error}. "
        "Pass a 2-D array of numbers."
    )


def _numbers_from_objects(
    label: str,
    values: NDArray[Any],
    column_names: Sequence[str] | None = None,
    first_column: int = 0,
) -> NDArray[np.float64]:
    """An array of Python objects as float64, or an error that names the first non-number."""
    numbers = np.empty(values.shape, dtype=np.float64)  # (n, d)
    for (row, column), value in np.ndenumerate(values):
        try:
            # float() would accept text, and the real part of NumPy's complex numbers.
            if isinstance(value, str | bytes):
                raise TypeError("only numbers can be used")
            if isinstance(value, complex | np.complexfloating):
                raise TypeError("complex data not supported")
            numbers[row, column] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            cell = describe_cell(row, first_column + column, column_names)
            shown = reprlib.repr(value.item() if isinstance(value, np.generic) else value)
            kind = "the string " if isinstance(value, str | bytes) else ""
            raise InputTypeError(
                f"{label} has {kind}{shown} at {cell}: {error}. {_advice(value)}"
            ) from error
    return numbers


def _advice(value: Any) -> str:
    if not isinstance(value, str | bytes):
        return "Drop or encode this value first."
    with suppress(ValueError):
        float(value)
        return "Convert numbers stored as text first, e.g. with astype(float)."
    return "Encode text as numbers first (e.g. sklearn.preprocessing.OneHotEncoder)."
