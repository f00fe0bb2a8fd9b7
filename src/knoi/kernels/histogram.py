"""Kernels of histograms, for nonnegative data: chi2, additive chi2, intersection.

The additive kernels are homogeneous, k(c x, c z) = c k(x, z): the unit of the data is a factor, so
they need no width.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi.arrays.backend import Array, in_main_memory
from knoi.arrays.sparse import as_csr, is_sparse, ones_per_row
from knoi.kernels.base import Kernel, WidthKernel, median_width, register
from knoi.kernels.distances import (
    CSR,
    Float64,
    chi_square,
    dense_if_faster,
    rescale,
    scale_in_widths,
    sum_over_columns,
    sum_over_shared,
)


@register
@dataclass(frozen=True)
class Chi2(WidthKernel):
    """exp(-sum_j (x_j - z_j)^2 / (x_j + z_j) / width), with 0/0 counted as 0.

    Parameters
    ----------
    width : float or None
        Length scale, in chi2 distance.
    """

    name: ClassVar[str] = "chi2"
    nonnegative: ClassVar[bool] = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        K, scale = self._scaled_distance(X, Z)
        K *= -scale_in_widths(scale, self.decided_width, K)
        return array_namespace(K).exp(K, out=K)

    def diag(self, X: Array) -> Array:
        """All ones."""
        _check(self, X)
        return ones_per_row(X)

    def distance(self, X: Array, Z: Array) -> Array:
        """sum_j (x_j - z_j)^2 / (x_j + z_j), as (n, m)."""
        D, scale = self._scaled_distance(X, Z)
        D *= scale
        return D

    def default_width(self, sample: NDArray[Any]) -> float:
        """Median distance between rows."""
        return median_width(self.distance, sample)

    def _scaled_distance(self, X: Array, Z: Array) -> tuple[Array, float]:
        _check(self, X, Z)
        Xs, Zs, scale = rescale(X, Z, centre=False)
        return chi_square(Xs, Zs), scale


@dataclass(frozen=True)
class AdditiveKernel(Kernel):
    """sum_j kappa(x_j, z_j) with kappa(x, x) = x and kappa(x, 0) = 0."""

    nonnegative: ClassVar[bool] = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        _check(self, X, Z)
        if is_sparse(X) or is_sparse(Z):
            X, Z = dense_if_faster(_canonical(X), _canonical(Z))
        if not is_sparse(X):
            return self._dense(X, Z)
        K = np.empty((X.shape[0], Z.shape[0]), np.result_type(X.dtype, Z.dtype))
        for rows, block in sum_over_shared(X, Z, self._kappa):
            K[rows, :] = block
        return K

    def diag(self, X: Array) -> Array:
        """sum_j x_j for the rows of X (n, d), as (n,)."""
        _check(self, X)
        if is_sparse(X):
            return X @ np.ones(X.shape[1], np.result_type(X.dtype, np.float32))
        return array_namespace(X).sum(X, axis=1)

    @abstractmethod
    def _kappa(self, x: Float64, z: Float64) -> Float64:
        """Compare stored entries of sparse rows, one by one."""

    @abstractmethod
    def _dense(self, X: Array, Z: Array) -> Array:
        """Evaluate k between dense rows."""


@register
@dataclass(frozen=True)
class AdditiveChi2(AdditiveKernel):
    """sum_j 2 x_j z_j / (x_j + z_j), with 0/0 counted as 0.

    It corresponds to `Chi2`: k(x, x) + k(z, z) - 2 k(x, z) is the sum in the exponent there.
    """

    name: ClassVar[str] = "additive_chi2"

    def _kappa(self, x: Float64, z: Float64) -> Float64:
        return 2.0 * x * (z / (x + z + float(np.finfo(np.float64).tiny)))

    def _dense(self, X: Array, Z: Array) -> Array:
        xp = array_namespace(X, Z)
        Xs, Zs, scale = rescale(X, Z, centre=False)
        tiny = float(xp.finfo(Xs.dtype).smallest_normal)

        def half_mean(x: Array, z: Array, out: Array) -> None:
            xp.add(x, z + tiny, out=out)
            # The ratio first, which is in [0, 1]: the product of small entries could underflow.
            xp.divide(z, out, out=out)
            out *= x

        K = sum_over_columns(Xs, Zs, half_mean)
        K *= 2.0 * scale
        return K


@register
@dataclass(frozen=True)
class Intersection(AdditiveKernel):
    """sum_j min(x_j, z_j), the histogram intersection."""

    name: ClassVar[str] = "intersection"

    def _kappa(self, x: Float64, z: Float64) -> Float64:
        return np.minimum(x, z)

    def _dense(self, X: Array, Z: Array) -> Array:
        minimum = array_namespace(X, Z).minimum
        return sum_over_columns(X, Z, lambda x, z, out: minimum(x, z, out=out))


def _check(kernel: Kernel, *views: Array) -> None:
    """Check for negative values; on a device the rows were checked when they were read."""
    for X in views:
        if in_main_memory(X):
            kernel.check(X)


def _canonical(X: Array) -> CSR:
    """X as CSR of floats without duplicate entries: a sum of two entries is compared as one."""
    X = as_csr(X).astype(np.result_type(X.dtype, np.float32), copy=False)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X
