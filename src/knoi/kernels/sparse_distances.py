"""Distances between rows of which few columns are nonzero: only what both store is looked at.

Sums are float64 whatever the numbers, so that differences of large sums keep their digits; there is
no centring, which would fill the rows. X and Z are CSR, brought to a common scale, and may hold
zeros explicitly.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import (
    as_csr,
    inner_blocks,
    numbers_per_row,
    row_of_stored,
    row_sums,
    squared_norms,
    with_data,
)

CSR: TypeAlias = Any  # scipy.sparse.csr_array
Result: TypeAlias = NDArray[Any]
# What a pair of stored numbers adds, for all such pairs at once: (k,), (k,) -> (k,).
Term = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

# Pairs of stored numbers, and numbers of the result, worked on at a time.
_PAIRS_AT_ONCE = 2**19
_RESULT_NUMBERS = 2**18
# A pair of numbers found in both rows costs this many times what it costs where rows are dense ...
_PRICE_OF_A_PAIR = 25
# ... so rows that are hardly sparse are made dense, if they are no more numbers than this.
_MOST_DENSE_NUMBERS = 2**24


def rescaled(X: Array, Z: Array) -> tuple[CSR, CSR, float]:
    """X and Z, of which one is sparse at least, with one power of two taken off: in (-2, 2)."""
    same = X is Z
    Xs = _floats(as_csr(X))
    Zs = Xs if same else _floats(as_csr(Z))
    top = max(float(np.abs(one.data).max(initial=0.0)) for one in (Xs, Zs))
    scale = math.ldexp(1.0, math.frexp(top)[1] - 1) if top > 0 else 1.0
    Xs = with_data(Xs, Xs.data / scale)
    return Xs, Xs if same else with_data(Zs, Zs.data / scale), scale


def hardly_sparse(X: Array, Z: Array) -> bool:
    """Whether dense rows would be compared sooner, column by column, and are not too large."""
    n, d, m = int(X.shape[0]), int(X.shape[1]), int(Z.shape[0])
    many = float(X.nnz) * float(Z.nnz) * _PRICE_OF_A_PAIR > float(n) * m * d * d
    return many and (n + m) * d <= _MOST_DENSE_NUMBERS


def squared_euclidean(X: CSR, Z: CSR) -> Result:
    """||x - z||^2, (n, m), by |x|^2 + |z|^2 - 2 x.z; close pairs again, from their differences."""
    x_norms, z_norms = squared_norms(X), squared_norms(Z)
    D = np.empty((X.shape[0], Z.shape[0]), _result_dtype(X, Z))
    close = float(np.finfo(np.float64).eps) ** (1 / 3)
    for rows, block in inner_blocks(X, Z):
        norms = x_norms[rows, None] + z_norms
        block *= -2.0
        block += norms
        # Two rows of nothing are at distance 0 already, and there may be many.
        wrong = (block <= close * norms) & (norms > 0)
        _redo_from_differences(block, wrong, X[rows, :], Z)
        D[rows, :] = block
    return D


def manhattan(X: CSR, Z: CSR) -> Result:
    """sum_j |x_j - z_j|, (n, m)."""

    def saved(x: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.abs(x) + np.abs(z) - np.abs(x - z)

    return _apart_less_shared(X, Z, np.abs, saved)


def chi_square(X: CSR, Z: CSR) -> Result:
    """sum_j (x_j - z_j)^2 / (x_j + z_j) for nonnegative rows, (n, m); 0/0 counts as 0."""
    tiny = float(np.finfo(np.float64).tiny)

    def saved(x: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
        # x + z - (x - z)^2 / (x + z); the ratio first, since x z could underflow.
        return 4.0 * x * (z / (x + z + tiny))

    return _apart_less_shared(X, Z, np.abs, saved)


def cauchy_logarithm(X: CSR, Z: CSR) -> Result:
    """sum_j log(1 + (x_j - z_j)^2), (n, m)."""

    def alone(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log1p(x * x)

    def saved(x: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
        return alone(x) + alone(z) - alone(x - z)

    return _apart_less_shared(X, Z, alone, saved)


def _apart_less_shared(
    X: CSR, Z: CSR, alone: Callable[[NDArray[np.float64]], NDArray[np.float64]], saved: Term
) -> Result:
    """sum_j g(x_j, z_j) for a g with g(x, 0) = g(0, x) = alone(x), `saved` less where both are.

    What each row would give against zeros, less what the columns that both rows store take off.
    """
    x_sums, z_sums = (
        row_sums(with_data(one, alone(one.data.astype(np.float64)))) for one in (X, Z)
    )
    n, m = X.shape[0], Z.shape[0]
    D = np.empty((n, m), _result_dtype(X, Z))
    by_column = Z.tocsc()
    height = max(1, _RESULT_NUMBERS // max(1, m))
    for start in range(0, n, height):
        rows = slice(start, min(start + height, n))
        block = x_sums[rows, None] + z_sums
        block -= _sum_over_shared(X[rows, :], by_column, saved)
        D[rows, :] = np.maximum(block, 0.0, out=block)
    return D


def _sum_over_shared(X: CSR, by_column: scipy.sparse.csc_array, term: Term) -> NDArray[np.float64]:
    """sum_j term(x_j, z_j) over the columns that both rows store, (n, m)."""
    n, m = X.shape[0], by_column.shape[0]
    starts = by_column.indptr[X.indices].astype(np.int64)  # of each stored x's column in Z
    counts = by_column.indptr[X.indices + 1] - starts
    row = row_of_stored(X).astype(np.int64) * m
    ends = np.cumsum(counts)
    total = np.zeros(n * m)
    at = 0
    while at < len(counts):
        before = int(ends[at] - counts[at])
        # At least one stored x, which has m partners at most.
        stop = max(at + 1, int(np.searchsorted(ends, before + _PAIRS_AT_ONCE, side="right")))
        here = counts[at:stop]
        x = np.repeat(np.arange(at, stop), here)  # which stored x, for each pair
        z = np.arange(before, int(ends[stop - 1])) + np.repeat(
            starts[at:stop] - (ends[at:stop] - here), here
        )
        values = term(X.data[x].astype(np.float64), by_column.data[z].astype(np.float64))
        total += np.bincount(row[x] + by_column.indices[z], weights=values, minlength=n * m)
        at = stop
    return total.reshape(n, m)


def _redo_from_differences(
    D: NDArray[np.float64], wrong: NDArray[np.bool_], X: CSR, Z: CSR
) -> None:
    """Overwrite D[i, j] by ||X[i] - Z[j]||^2 wherever `wrong` is true."""
    flat = np.flatnonzero(wrong)
    at_once = max(1, 2**18 // max(1, numbers_per_row(X) + numbers_per_row(Z)))
    for start in range(0, len(flat), at_once):
        i, j = np.divmod(flat[start : start + at_once], Z.shape[0])
        D[i, j] = squared_norms(X[i] - Z[j])


def _floats(X: CSR) -> CSR:
    return X if X.dtype.kind == "f" else X.astype(np.float64)


def _result_dtype(X: CSR, Z: CSR) -> np.dtype[Any]:
    return np.result_type(X.dtype, Z.dtype)
