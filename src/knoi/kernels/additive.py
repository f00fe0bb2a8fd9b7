"""Kernels that add up a comparison of each column, for histograms: additive chi2, intersection.

Both are homogeneous, k(c x, c z) = c k(x, z): the unit of the data is a factor and needs no width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import is_sparse
from knoi.kernels.distances import fold_columns, rescale
from knoi.kernels.kernel import Kernel, register


@register
@dataclass(frozen=True)
class AdditiveChi2(Kernel):
    """sum_j 2 x_j z_j / (x_j + z_j), 0/0 counted as 0.

    It goes with `Chi2`: k(x, x) + k(z, z) - 2 k(x, z) is the sum in the exponent there.
    """

    name: ClassVar[str] = "additive_chi2"
    nonnegative: ClassVar[bool] = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        _check_both(self, X, Z)
        if is_sparse(X) or is_sparse(Z):
            return _over_shared_columns(X, Z, lambda x, z: 2.0 * x * (z / (x + z)))
        xp = array_api_compat.array_namespace(X, Z)
        Xs, Zs, scale = rescale(X, Z, centre=False)
        tiny = float(xp.finfo(Xs.dtype).smallest_normal)

        def add_column(block: Array, x: Array, z: Array, spare: Array) -> None:
            xp.add(x, z + tiny, out=spare)
            # The ratio first, which is in [0, 1]: the product of small entries could underflow.
            xp.divide(z, spare, out=spare)
            spare *= x
            block += spare

        K = fold_columns(Xs, Zs, start=0.0, step=add_column)
        K *= 2.0 * scale
        return K

    def diag(self, X: Array) -> Array:
        """sum_j x_j for the rows of X (n, d), as (n,)."""
        return _checked_sums(self, X)


@register
@dataclass(frozen=True)
class Intersection(Kernel):
    """sum_j min(x_j, z_j), the histogram intersection."""

    name: ClassVar[str] = "intersection"
    nonnegative: ClassVar[bool] = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        _check_both(self, X, Z)
        if is_sparse(X) or is_sparse(Z):
            return _over_shared_columns(X, Z, np.minimum)
        xp = array_api_compat.array_namespace(X, Z)

        def add_column(block: Array, x: Array, z: Array, spare: Array) -> None:
            xp.minimum(x, z, out=spare)
            block += spare

        return fold_columns(X, Z, start=0.0, step=add_column)

    def diag(self, X: Array) -> Array:
        """sum_j x_j for the rows of X (n, d), as (n,)."""
        return _checked_sums(self, X)


def _check_both(kernel: Kernel, X: Array, Z: Array) -> None:
    kernel.check(X)
    if Z is not X:
        kernel.check(Z)


def _checked_sums(kernel: Kernel, X: Array) -> Array:
    """sum_j x_j, as (n,): what an entry has in common with itself is all of it."""
    kernel.check(X)
    if is_sparse(X):
        sums: NDArray[Any] = X @ np.ones(X.shape[1], dtype=X.dtype)
        return sums
    return array_api_compat.array_namespace(X).sum(X, axis=1)


def _over_shared_columns(
    X: Array, Z: Array, compare: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
) -> NDArray[Any]:
    """K (n, m) of rows of which X or Z or both are sparse, by their nonzeros.

    A zero has nothing in common with any entry, so a column concerns only the rows that have it:
    its nonzeros of X against its nonzeros of Z.
    """
    Xc, Zc = scipy.sparse.csc_array(X), scipy.sparse.csc_array(Z)  # copies, X and Z being CSR
    for columns in (Xc, Zc):
        columns.sum_duplicates()
        columns.eliminate_zeros()
    K = np.zeros((X.shape[0], Z.shape[0]), dtype=np.result_type(X.dtype, Z.dtype))
    for j in np.flatnonzero((np.diff(Xc.indptr) > 0) & (np.diff(Zc.indptr) > 0)):
        x_part = slice(Xc.indptr[j], Xc.indptr[j + 1])
        z_part = slice(Zc.indptr[j], Zc.indptr[j + 1])
        shared = compare(Xc.data[x_part, None], Zc.data[None, z_part])
        K[Xc.indices[x_part, None], Zc.indices[None, z_part]] += shared
    return K
