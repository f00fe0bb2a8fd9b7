"""Operations on rows that may be sparse: every function takes arrays, CSR, or both.

A sparse row stays sparse until it is multiplied by a dense matrix, so that a view of a million
columns never exists as a dense table. On a torch device each minibatch is made dense. CSR arrays
have no length (use `shape[0]`); their rows are sliced and indexed like those of an array.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device
from numpy.typing import DTypeLike, NDArray

from knoi.arrays.backend import Array
from knoi.engine import even_slices

# Numbers per block of a dense result computed from sparse rows.
_RESULT_NUMBERS = 2**20


def is_sparse(X: Any) -> TypeGuard[scipy.sparse.csr_array]:
    """Whether X is a SciPy sparse array."""
    return bool(scipy.sparse.issparse(X))


def dense(X: Array) -> Array:
    """X (n, d) as a dense array."""
    return X.toarray() if is_sparse(X) else X


def as_csr(X: Array) -> scipy.sparse.csr_array:
    """X (n, d), sparse or not, as CSR."""
    return X if is_sparse(X) else scipy.sparse.csr_array(X)


def with_data(X: scipy.sparse.csr_array, data: NDArray[Any]) -> scipy.sparse.csr_array:
    """CSR with the structure of X, which is shared, and other values."""
    return scipy.sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)


def narrow_indices(X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """CSR with 32-bit indices where they fit, which take half the memory; shares its values."""
    if X.indices.dtype == np.int32 or max(X.nnz, *X.shape) >= 2**31:
        return X
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return scipy.sparse.csr_array((X.data, indices, indptr), shape=X.shape)


def row_of_stored(X: scipy.sparse.csr_array) -> NDArray[Any]:
    """The row of every stored value, (nnz,)."""
    return np.repeat(np.arange(X.shape[0], dtype=X.indptr.dtype), np.diff(X.indptr))


def stack(pieces: Sequence[Array], dtype: DTypeLike | None = None) -> Array:
    """Concatenate rows into a new array, sparse if any piece is."""
    if any(is_sparse(piece) for piece in pieces):
        joined = scipy.sparse.vstack([as_csr(piece) for piece in pieces], format="csr")
        return joined if dtype is None else joined.astype(dtype, copy=False)
    return np.concatenate(pieces, axis=0, dtype=dtype)


def numbers_per_row(X: Array) -> int:
    """Size of one row in numbers of X's dtype: d, or the average storage of a sparse row."""
    n, d = X.shape
    if not is_sparse(X):
        return int(d)
    return -(-nested_bytes(X) // (max(1, int(n)) * int(X.data.itemsize)))


def nested_bytes(state: Any) -> int:
    """Total bytes of all arrays, dense or sparse, in nested mappings."""
    if isinstance(state, Mapping):
        return sum(nested_bytes(value) for value in state.values())
    if is_sparse(state):
        return int(state.data.nbytes + state.indices.nbytes + state.indptr.nbytes)
    return int(getattr(state, "nbytes", 0))


def same_rows(X: Array) -> bool:
    """Whether all rows of X (n, d) are equal."""
    if not is_sparse(X):
        return bool(np.all(X[0] == X))
    return np.array_equal(X.min(axis=0).toarray(), X.max(axis=0).toarray())


def product(X: Array, W: Array, out: Array | None = None) -> Array:
    """X W for rows X (n, d), sparse or not, and a dense W (d, m); dense, in `out` if given."""
    if not is_sparse(X):
        return array_namespace(X).matmul(X, W, out=out)
    if X.nnz < X.shape[1] and not W.flags.c_contiguous:
        # SciPy would copy all of W, e.g. a block of columns; copy only the rows that take part.
        used, position = np.unique(X.indices, return_inverse=True)
        shape = (X.shape[0], len(used))
        X, W = scipy.sparse.csr_array((X.data, position, X.indptr), shape=shape), W[used]
    result = X @ W
    if out is None:
        return result
    out[...] = result
    return out


def inner(X: Array, Z: Array) -> Array:
    """X Z' for two sets of rows, (n, d) and (m, d), each sparse or not; dense.

    Sums over sparse rows are float64, whatever the dtype of the rows.
    """
    if not (is_sparse(X) or is_sparse(Z)):
        return array_namespace(X, Z).matmul(X, Z.T)
    K = np.empty((X.shape[0], Z.shape[0]), np.result_type(X.dtype, Z.dtype, np.float32))
    for rows, block in inner_blocks(X, Z):
        K[rows, :] = block
    return K


def inner_blocks(X: Array, Z: Array) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield X Z' in float64 as (rows, block), each block of at most 2^20 numbers."""
    X, Z = (as_csr(rows).astype(np.float64, copy=False) for rows in (X, Z))
    transposed = Z.T.tocsr()  # once for all blocks: each product would convert it again
    for rows in even_slices(X.shape[0], _RESULT_NUMBERS // max(1, Z.shape[0])):
        yield rows, (X[rows, :] @ transposed).toarray()


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
    """Ones (n,) with the dtype and device of X (n, d)."""
    if is_sparse(X):
        return np.ones(X.shape[0], np.result_type(X.dtype, np.float32))
    return array_namespace(X).ones((X.shape[0],), dtype=X.dtype, device=device(X))


def first_negative(X: Array) -> tuple[int, int] | None:
    """Row and column of the first negative entry of X (n, d), or None."""
    values = X.data if is_sparse(X) else X
    xp = array_namespace(values)
    if 0 in values.shape or float(xp.min(values)) >= 0:
        return None
    first = int(xp.nonzero(xp.reshape(values < 0, (-1,)))[0][0])
    return stored_position(X, first) if is_sparse(X) else divmod(first, X.shape[1])


def stored_position(X: scipy.sparse.csr_array, stored: int) -> tuple[int, int]:
    """Row and column of the value `X.data[stored]`."""
    row = int(np.searchsorted(X.indptr, stored, side="right")) - 1
    return row, int(X.indices[stored])


def empty_rows(rows: Array, n_columns: int) -> Array:
    """An uninitialised dense array (n, n_columns) with the dtype and device of `rows` (n, any)."""
    if isinstance(rows, PreparedParts):
        return empty_rows(rows.parts[0], n_columns)
    shape = (rows.shape[0], n_columns)
    if is_sparse(rows):
        return np.empty(shape, rows.dtype)
    return array_namespace(rows).empty(shape, dtype=rows.dtype, device=device(rows))


def append_column(X: Array, value: Array | float) -> Array:
    """A copy of X (n, d) with one more column, the same number in every row; CSR for CSR."""
    if is_sparse(X):
        column = scipy.sparse.csr_array(np.full((X.shape[0], 1), value, dtype=X.dtype))
        return scipy.sparse.hstack([X, column], format="csr")
    rows = empty_rows(X, X.shape[1] + 1)
    rows[:, :-1] = X
    rows[:, -1] = value
    return rows


def unit_rows(X: Array, out: Array | None = None) -> tuple[Array, Array]:
    """Rows of X (n, d) scaled to length 1, in `out` if given, and their lengths (n,).

    Rows of zeros stay zero. Each row is first divided by its largest entry, so that no square
    over- or underflows.
    """
    if is_sparse(X):
        return _sparse_unit_rows(X)
    xp = array_namespace(X)
    largest = xp.max(xp.abs(X), axis=1)  # (n,)
    U = xp.divide(X, _ones_for_zeros(largest)[:, None], out=out)
    norms = xp.linalg.vector_norm(U, axis=1)
    U /= _ones_for_zeros(norms)[:, None]
    return U, norms * largest


def _sparse_unit_rows(
    X: scipy.sparse.csr_array,
) -> tuple[scipy.sparse.csr_array, NDArray[Any]]:
    dtype = np.result_type(X.dtype, np.float32)
    row, data = row_of_stored(X), X.data.astype(np.float64)
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, row, np.abs(data))
    data /= _ones_for_zeros(largest)[row]
    norms = np.sqrt(np.bincount(row, weights=data * data, minlength=X.shape[0]))
    data /= _ones_for_zeros(norms)[row]
    return with_data(X, data.astype(dtype)), (norms * largest).astype(dtype)


def _ones_for_zeros(values: Array) -> Array:
    xp = array_namespace(values)
    return xp.where(values == 0, 1.0, values)


def column_sums(X: scipy.sparse.csr_array, weights: NDArray[Any]) -> NDArray[np.float64]:
    """Sums over the rows of sparse X (n, d) with weights (n,), as (d,) float64."""
    values = X.data * weights[row_of_stored(X)].astype(np.float64)
    return np.asarray(np.bincount(X.indices, weights=values, minlength=X.shape[1]), np.float64)


def column_means(X: scipy.sparse.csr_array) -> NDArray[np.float64]:
    """The mean of every column of sparse X (n, d), as (d,) float64."""
    return column_sums(X, np.ones(X.shape[0])) / int(X.shape[0])


def column_variances(X: Array) -> NDArray[np.float64]:
    """The variance of every column of X (n, d), as (d,) float64."""
    if not is_sparse(X):
        return np.asarray(np.var(X, axis=0, dtype=np.float64))
    squares = with_data(X, X.data.astype(np.float64) ** 2)
    return column_means(squares) - column_means(X) ** 2


@dataclass(frozen=True)
class PreparedParts:
    """Rows as each part of a sum or product prepares them; rows are sliced as those of an array."""

    parts: tuple[Array, ...]  # (n, any) each, dense or sparse

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of all parts."""
        return int(self.parts[0].shape[0]), sum(int(part.shape[1]) for part in self.parts)

    def __getitem__(self, rows: Any) -> "PreparedParts":
        return PreparedParts(tuple(part[rows] for part in self.parts))
