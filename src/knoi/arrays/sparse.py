"""Rows with few nonzeros: CSR beside arrays, for the few operations that rows go through.

A sparse row stays sparse until it meets the dense side of a product, so that a view of a million
columns never exists as a table. On a torch device rows are made dense, minibatch by minibatch.
CSR has no length: ask for `shape[0]`. Its rows are cut and gathered as those of an array are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device
from numpy.typing import DTypeLike, NDArray

from knoi.arrays.backend import Array

# Numbers of a dense result made from a sparse one at a time.
_RESULT_NUMBERS = 2**20


def is_sparse(X: Any) -> TypeGuard[scipy.sparse.csr_array]:
    """Whether X holds its nonzeros only."""
    return bool(scipy.sparse.issparse(X))


def dense(X: Array) -> Array:
    """X (n, d) with all its zeros."""
    return X.toarray() if is_sparse(X) else X


def as_csr(X: Array) -> scipy.sparse.csr_array:
    """X (n, d), sparse or not, by its nonzeros."""
    return X if is_sparse(X) else scipy.sparse.csr_array(X)


def with_data(X: scipy.sparse.csr_array, data: NDArray[Any]) -> scipy.sparse.csr_array:
    """CSR with other numbers in the same places; the places are shared."""
    return scipy.sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)


def narrow_places(X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """CSR with 32-bit places where they fit, which take half the memory; shares its numbers."""
    if X.indices.dtype == np.int32 or max(X.nnz, *X.shape) >= 2**31:
        return X
    places = (part.astype(np.int32) for part in (X.indices, X.indptr))
    return scipy.sparse.csr_array((X.data, *places), shape=X.shape)


def row_of_stored(X: scipy.sparse.csr_array) -> NDArray[Any]:
    """The row of every stored number, (nnz,)."""
    return np.repeat(np.arange(X.shape[0], dtype=X.indptr.dtype), np.diff(X.indptr))


def stack(pieces: Sequence[Array], dtype: DTypeLike | None = None) -> Array:
    """Rows under each other, sparse if any of them are; a fresh array."""
    if any(is_sparse(piece) for piece in pieces):
        joined = scipy.sparse.vstack([as_csr(piece) for piece in pieces], format="csr")
        return joined if dtype is None else joined.astype(dtype, copy=False)
    return np.concatenate(pieces, axis=0, dtype=dtype)


def numbers_per_row(X: Array) -> int:
    """Numbers of X's own size that one row takes: d, or what a sparse row stores on average."""
    n, d = X.shape
    if not is_sparse(X):
        return int(d)
    return -(-nested_bytes(X) // (max(1, int(n)) * int(X.data.itemsize)))


def nested_bytes(state: Any) -> int:
    """Bytes of all arrays and sparse rows in nested mappings."""
    if isinstance(state, Mapping):
        return sum(nested_bytes(value) for value in state.values())
    if is_sparse(state):
        return int(state.data.nbytes + state.indices.nbytes + state.indptr.nbytes)
    return int(getattr(state, "nbytes", 0))


def same_rows(X: Array) -> bool:
    """Whether all rows of X (n, d) are equal."""
    if not is_sparse(X):
        return bool(np.all(X[0] == X))
    X = scipy.sparse.csr_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    counts = np.diff(X.indptr)
    if not np.all(counts == counts[0]):
        return False
    places, values = (part.reshape(X.shape[0], -1) for part in (X.indices, X.data))
    return bool(np.all(places == places[0]) and np.all(values == values[0]))


def product(X: Array, W: Array, out: Array | None = None) -> Array:
    """X W for rows X (n, d), sparse or not, and a dense W (d, m); dense, in `out` if given."""
    if not is_sparse(X):
        return array_namespace(X).matmul(X, W, out=out)
    if X.nnz < X.shape[1] and not W.flags.c_contiguous:
        # SciPy would copy all of W, e.g. a block of columns: the rows that take part are fewer.
        used, place = np.unique(X.indices, return_inverse=True)
        shape = (X.shape[0], len(used))
        X, W = scipy.sparse.csr_array((X.data, place, X.indptr), shape=shape), W[used]
    result = X @ W
    if out is None:
        return result
    out[...] = result
    return out


def inner(X: Array, Z: Array) -> Array:
    """X Z' for two sets of rows, (n, d) and (m, d), each sparse or not; dense.

    Where rows are sparse the sums are float64, whatever the numbers.
    """
    if not (is_sparse(X) or is_sparse(Z)):
        return array_namespace(X, Z).matmul(X, Z.T)
    K = np.empty((X.shape[0], Z.shape[0]), np.result_type(X.dtype, Z.dtype, np.float32))
    for rows, block in inner_blocks(X, Z):
        K[rows, :] = block
    return K


def inner_blocks(X: Array, Z: Array) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """X Z' in float64, some rows at a time: (which rows, the block), of at most 2^20 numbers."""
    X, Z = (as_csr(rows).astype(np.float64, copy=False) for rows in (X, Z))
    n, m = X.shape[0], Z.shape[0]
    turned = Z.T.tocsr()  # once for all blocks: each product would do so by itself
    height = max(1, _RESULT_NUMBERS // max(1, m))
    for start in range(0, n, height):
        rows = slice(start, min(start + height, n))
        yield rows, (X[rows, :] @ turned).toarray()


def squared_norms(X: Array) -> Array:
    """|x|^2 of every row of X (n, d), as (n,); float64 for sparse rows."""
    if is_sparse(X):
        data = X.data.astype(np.float64)
        data *= data
        return row_sums(with_data(X, data))
    return array_namespace(X).sum(X * X, axis=1)


def row_sums(X: scipy.sparse.csr_array) -> NDArray[np.float64]:
    """The sum of every row of sparse X (n, d), as (n,) float64."""
    sums = np.bincount(row_of_stored(X), weights=X.data, minlength=X.shape[0])
    return np.asarray(sums, dtype=np.float64)


def ones_per_row(X: Array) -> Array:
    """A one for every row of X (n, d), as (n,), in its dtype and on its device."""
    if is_sparse(X):
        return np.ones(X.shape[0], np.result_type(X.dtype, np.float32))
    return array_namespace(X).ones((X.shape[0],), dtype=X.dtype, device=device(X))


def first_negative(X: Array) -> tuple[int, int] | None:
    """Row and column of the first number of X (n, d) below 0; None if there is none."""
    values = X.data if is_sparse(X) else X
    xp = array_namespace(values)
    if 0 in values.shape or float(xp.min(values)) >= 0:
        return None
    first = int(xp.nonzero(xp.reshape(values < 0, (-1,)))[0][0])
    return stored_place(X, first) if is_sparse(X) else divmod(first, X.shape[1])


def stored_place(X: scipy.sparse.csr_array, stored: int) -> tuple[int, int]:
    """Row and column of a stored number of X, by its place in `X.data`."""
    row = int(np.searchsorted(X.indptr, stored, side="right")) - 1
    return row, int(X.indices[stored])


def unit_rows(X: scipy.sparse.csr_array) -> tuple[scipy.sparse.csr_array, NDArray[Any]]:
    """Sparse rows at length 1 (zero rows stay zero), and their lengths (n,)."""
    dtype = np.result_type(X.dtype, np.float32)
    row, data = row_of_stored(X), X.data.astype(np.float64)
    # Each row by its own largest number first, so that no square over- or underflows.
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, row, np.abs(data))
    data /= np.where(largest == 0, 1.0, largest)[row]
    norms = np.sqrt(np.bincount(row, weights=data * data, minlength=X.shape[0]))
    data /= np.where(norms == 0, 1.0, norms)[row]
    return with_data(X, data.astype(dtype)), (norms * largest).astype(dtype)


def column_means(X: scipy.sparse.csr_array) -> NDArray[np.float64]:
    """The mean of every column of sparse X (n, d), as (d,) float64."""
    sums = np.bincount(X.indices, weights=X.data, minlength=X.shape[1])
    return np.asarray(sums, dtype=np.float64) / int(X.shape[0])


def column_variances(X: scipy.sparse.csr_array) -> NDArray[np.float64]:
    """The variance of every column of sparse X (n, d), as (d,) float64, to rounding of the mean."""
    squares = with_data(X, X.data.astype(np.float64) ** 2)
    return column_means(squares) - column_means(X) ** 2
