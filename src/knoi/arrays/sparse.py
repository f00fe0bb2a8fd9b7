"""Rows with few nonzeros: CSR beside arrays, for the few operations that rows go through.

A sparse row stays sparse until it meets the dense side of a product, so that a view of a million
columns never exists as a table. On a torch device rows are made dense, minibatch by minibatch.
"""

from typing import Any, TypeGuard

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi.arrays.backend import Array


def is_sparse(X: Any) -> TypeGuard[scipy.sparse.csr_array]:
    """Whether X holds its nonzeros only."""
    return bool(scipy.sparse.issparse(X))


def dense(X: Array) -> Array:
    """X (n, d) with all its zeros."""
    return X.toarray() if is_sparse(X) else X


def product(X: Array, W: Array, out: Array | None = None) -> Array:
    """X W for rows X (n, d), sparse or not, and a dense W (d, m); dense, in `out` if given."""
    if not is_sparse(X):
        return array_namespace(X).matmul(X, W, out=out)
    result = X @ W
    if out is None:
        return result
    out[...] = result
    return out


def inner(X: Array, Z: Array) -> Array:
    """X Z' for two sets of rows, (n, d) and (m, d), each sparse or not; dense."""
    if is_sparse(X):
        result = X @ Z.T
        return result.toarray() if is_sparse(result) else result
    if is_sparse(Z):
        return (Z @ X.T).T
    return array_namespace(X, Z).matmul(X, Z.T)


def squared_norms(X: Array) -> Array:
    """|x|^2 of every row of X (n, d), as (n,)."""
    if is_sparse(X):
        squares: NDArray[Any] = np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
        return squares
    return array_namespace(X).sum(X * X, axis=1)
