"""Views that are arrays already: NumPy (in memory or mapped), sequences, sparse, tensors."""

import mmap
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.sparse import narrow_indices
from knoi.data.row_source import RowSource, read_only
from knoi.data.validation import (
    ELEMENTWISE_KINDS,
    check_dtype,
    check_shape,
    describe_place,
    numbers_from_objects,
)
from knoi.exceptions import InputError, InputTypeError


def open_ndarray(data: NDArray[Any], label: str) -> RowSource:
    """An array; rows come out as read-only windows on it where its layout allows."""
    check_shape(label, data.shape)
    if isinstance(data, np.ma.MaskedArray):
        data = _unmasked(data, label)
    if data.dtype.kind in ELEMENTWISE_KINDS:
        data = numbers_from_objects(label, data.view(np.ndarray))
    rows = read_only(data)
    return RowSource(
        label,
        shape=rows.shape,
        dtype=rows.dtype,
        fetch=lambda start, stop: rows[start:stop],
        random_access=not _is_file_backed(data),
    )


def open_array_like(data: Any, label: str) -> RowSource:
    """Nested sequences, scalars and objects that turn themselves into arrays."""
    try:
        array = np.asarray(data)
        if array.dtype.kind in ELEMENTWISE_KINDS:
            # NumPy makes text of numbers that stand beside text; keep each element as it came.
            array = np.asarray(data, dtype=object)
    except (ValueError, TypeError) as error:
        raise _why_not_an_array(data, label, error) from error
    return open_ndarray(array, label)


def open_sparse(data: Any, label: str) -> RowSource:
    """A scipy sparse matrix or array of any format; rows come out as CSR, never dense."""
    check_shape(label, data.shape)
    check_dtype(label, data.dtype)
    rows = _sorted_rows(data, label)
    values, columns = read_only(rows.data), read_only(rows.indices)

    def fetch(start: int, stop: int) -> scipy.sparse.csr_array:
        first, last = rows.indptr[start], rows.indptr[stop]
        # Filled in by hand: the constructor copies what is a small part of something larger.
        window = scipy.sparse.csr_array((stop - start, rows.shape[1]), dtype=rows.dtype)
        window.data, window.indices = values[first:last], columns[first:last]
        window.indptr = rows.indptr[start : stop + 1] - first
        # Known, so that nobody looks, or tries to sort what is read-only.
        window.has_canonical_format = True
        return window

    return RowSource(
        label,
        shape=rows.shape,
        dtype=rows.dtype,
        fetch=fetch,
        random_access=True,
        stored_bytes=rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes,
    )


def _sorted_rows(data: Any, label: str) -> scipy.sparse.csr_array:
    """CSR with the columns of each row in order, each once; shares memory that is so already."""
    try:
        if data.format in ("csc", "bsr"):
            # Places outside a matrix must be found before the conversion, which would write there.
            # The check tidies what it looks at: not the user's own.
            copy(data).check_format(full_check=True)
        rows = scipy.sparse.csr_array(data)
        rows.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{label} is a sparse matrix whose parts do not fit together: {error}. Build it again, "
            "e.g. from scipy.sparse.coo_array."
        ) from error
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()  # numbers stored at one place add up, and columns are sorted
    native = rows.dtype.newbyteorder("=")
    if rows.dtype != native:
        rows = rows.astype(native)
    return narrow_indices(rows)


def open_tensor(data: Any, label: str) -> RowSource:
    """A torch tensor on any device; only the rows asked for come to the CPU."""
    check_shape(label, tuple(data.shape))
    if str(data.layout) != "torch.strided":
        raise InputTypeError(
            f"{label} is a torch tensor of layout {data.layout}: rows cannot be sliced from it. "
            "Pass tensor.to_dense() or a scipy.sparse matrix."
        )
    tensor = data.detach()
    try:
        dtype = _numpy_rows(tensor[:0]).dtype
    except TypeError as error:
        raise InputTypeError(
            f"{label} is a torch tensor of dtype {data.dtype}: only real numbers can be used. "
            "Convert it first, e.g. with tensor.float()."
        ) from error
    return RowSource(
        label,
        shape=tuple(tensor.shape),
        dtype=dtype,
        fetch=lambda start, stop: read_only(_numpy_rows(tensor[start:stop])),
        random_access=True,
    )


def _numpy_rows(tensor: Any) -> NDArray[Any]:
    # NumPy has no bfloat16 and no 8-bit floats; float32 holds them all.
    has_no_numpy_dtype = str(tensor.dtype).startswith(("torch.bfloat16", "torch.float8"))
    rows: NDArray[Any] = (tensor.float() if has_no_numpy_dtype else tensor).numpy(force=True)
    return rows


def _unmasked(data: Any, label: str) -> NDArray[Any]:
    masked = np.argwhere(np.ma.getmaskarray(data))
    if len(masked):
        row, column = (int(index) for index in masked[0])
        raise InputError(
            f"{label} is a masked array with {len(masked)} masked values, the first at "
            f"{describe_place(row, column, None)}: CCA needs complete rows. "
            "Drop the rows or fill the values, e.g. with numpy.ma.filled."
        )
    return np.ma.getdata(data)


def _is_file_backed(data: NDArray[Any]) -> bool:
    # A slice of a memmap, or np.asarray of one, is still a file: ask who owns the memory.
    owner: Any = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, mmap.mmap)


def _why_not_an_array(data: Any, label: str, error: Exception) -> InputError:
    lengths = (
        [len(row) if hasattr(row, "__len__") else None for row in data]
        if isinstance(data, Sequence)
        else []
    )
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            return InputError(
                f"{label} is ragged: row 0 has {_count(lengths[0])} but row {row} has "
                f"{_count(length)}. Give every row the same number of values."
            )
    return InputTypeError(
        f"{label} (a {type(data).__name__}) cannot be made an array: {error}. "
        "Pass a 2-D array of numbers."
    )


def _count(length: int | None) -> str:
    if length is None:
        return "a single number"
    return f"{length} value" if length == 1 else f"{length} values"
