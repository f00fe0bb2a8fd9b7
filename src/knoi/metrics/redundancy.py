"""Redundancy index, loadings and regressions of columns on variates, from joint moments.

Variates are the output of `transform`. Loadings are the correlations of the columns of a view with
its own variates, cross-loadings those with the variates of the other view.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from knoi.arrays.backend import Array, power_of_two
from knoi.arrays.sparse import is_sparse, row_of_stored, with_data
from knoi.metrics.correlation import paired_projections, row_blocks

Float64 = NDArray[np.float64]

# A column whose deviation is below this share of its root mean square is constant up to rounding.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
# Directions of variates below this share of their variance count as repeated.
_REPEATED = 1e-10


@dataclass(frozen=True)
class Redundancy:
    """The Stewart-Love redundancy index: share of a view's variance that variates explain.

    Attributes
    ----------
    per_component : array of shape (L,)
        Mean over the columns of their squared correlation with each variate.
    total : float
        Mean over the columns of their squared multiple correlation with all variates together, in
        [0, 1]. It is the sum of `per_component` where variates are uncorrelated.
    """

    per_component: Float64
    total: float


@dataclass(frozen=True)
class Variates:
    """Moments of K variates."""

    mean: Float64  # (K,)
    deviation: Float64  # (K,)
    correlations: Float64  # (K, K); rows of variates that do not vary are 0

    def inverse(self, which: slice) -> Float64:
        """Pseudoinverse of the correlations among some of the variates."""
        R = self.correlations[which, which]
        return np.asarray(np.linalg.pinv(R, rcond=_REPEATED, hermitian=True))


@dataclass(frozen=True)
class Variables:
    """Moments of the d columns of a view, alone and with K variates."""

    mean: NDArray[Any]  # (d,)
    deviation: NDArray[Any]  # (d,)
    covariances: NDArray[Any]  # (d, K), with variates at deviation 1

    def correlations(self, which: slice) -> NDArray[Any]:
        """Correlation of each column with some of the variates, (d, L); 0 if it is constant."""
        deviation = _or_infinity(self.deviation)[:, None]
        return np.asarray(np.clip(self.covariances[:, which] / deviation, -1.0, 1.0))

    def regress(
        self, Z: NDArray[Any], variates: Variates, which: slice, dtype: DTypeLike
    ) -> NDArray[Any]:
        """Least-squares prediction of the columns from some of the variates, (n, d)."""
        B = variates.inverse(which) @ self.covariances[:, which].T  # (L, d)
        standard = (Z - variates.mean[which]) / _or_infinity(variates.deviation[which])
        predicted = np.empty((len(Z), len(self.mean)), dtype=dtype)
        for rows in row_blocks(len(Z)):
            predicted[rows] = standard[rows] @ B + self.mean
        return predicted

    def redundancy(self, variates: Variates, which: slice) -> Redundancy:
        """Redundancy of the columns given some of the variates."""
        rho = self.correlations(which)[self.deviation > 0.0]
        if not len(rho):
            return Redundancy(np.zeros(rho.shape[1]), 0.0)
        multiple = np.einsum("jk,kl,jl->j", rho, variates.inverse(which), rho, optimize=True)
        total = float(np.clip(multiple, 0.0, 1.0).mean())
        return Redundancy(np.asarray((rho * rho).mean(axis=0), dtype=np.float64), total)


class JointMoments:
    """Sums over paired rows of variates and of the columns of some views, chunk by chunk.

    Each chunk is centred by its own mean, so that an offset of the data costs no precision, and
    scaled by the largest value of the first chunk, so that no square over- or underflows. With
    weights, sums of these take the place of numbers of rows.
    """

    def __init__(self, n_columns: tuple[int, ...], n_variates: int) -> None:
        self._n = 0.0
        self._z = _ColumnSums(n_variates)
        self._views = [_ColumnSums(d) for d in n_columns]
        self._Szz = np.zeros((n_variates, n_variates))
        self._Sxz = [np.zeros((d, n_variates)) for d in n_columns]

    @staticmethod
    def fixed_bytes(n_columns: tuple[int, ...], n_variates: int) -> int:
        """Bytes of the sums, and of the products of one chunk."""
        return 8 * 3 * (sum(n_columns) + n_variates) * (n_variates + 2)

    def add(
        self, Z: NDArray[Any], views: tuple[Array, ...], weights: Float64 | None = None
    ) -> None:
        """Add rows: their variates Z (b, K), and of each view the columns (b, d), or CSR."""
        weights = np.ones(len(Z)) if weights is None else weights  # (b,)
        before, b = self._n, float(weights.sum())
        # The scatter about two means becomes that about their joint mean.
        weight = before * b / (before + b)
        Zc, dz = self._z.add(Z, before, weights)
        self._Szz += Zc.T @ Zc + weight * np.outer(dz, dz)
        for columns, Sxz, X in zip(self._views, self._Sxz, views, strict=True):
            Xc, dx = columns.add(X, before, weights)
            Sxz += Xc.T @ Zc
            if before:
                Sxz += np.outer(weight * dx, dz)
        self._n += b

    def finish(self, dtype: DTypeLike = np.float64) -> tuple[Variates, tuple[Variables, ...]]:
        """Moments of the variates and of each view; call it once, sums are scaled in place."""
        deviation = self._z.deviation(self._n)
        per = 1.0 / _or_infinity(deviation)  # (K,)
        correlations = np.clip(self._Szz / self._n * np.outer(per, per), -1.0, 1.0)
        scale = self._z.scale
        variates = Variates(self._z.mean * scale, deviation * scale, correlations)
        views = []
        for columns, Sxz in zip(self._views, self._Sxz, strict=True):
            Sxz *= per / self._n * columns.scale
            parts = columns.mean * columns.scale, columns.deviation(self._n) * columns.scale, Sxz
            views.append(Variables(*(part.astype(dtype, copy=False) for part in parts)))
        return variates, tuple(views)


class _ColumnSums:
    """Means and sums of squares of columns, in units of `scale`."""

    def __init__(self, d: int) -> None:
        self.mean, self._squares = np.zeros(d), np.zeros(d)
        self.scale = 0.0  # until there are rows

    def add(self, X: Array, before: float, weights: Float64) -> tuple[Any, Float64]:
        """Add rows X (b, d) after rows of total weight `before`; return the shift of the mean, too.

        The rows are returned centred, in units of `scale`, times the roots of their weights. Sparse
        rows are returned uncentred: the variates they are multiplied with are centred.
        """
        b, roots = float(weights.sum()), np.sqrt(weights)
        values = X.data if is_sparse(X) else X
        if before == 0:
            self.scale = power_of_two(values)
        scaled = np.divide(values, self.scale, dtype=np.float64)
        Xc: Any
        if is_sparse(X):
            own, d = row_of_stored(X), len(self.mean)

            def sums(of_stored: Float64) -> Float64:
                summed = np.bincount(X.indices, weights=weights[own] * of_stored, minlength=d)
                return np.asarray(summed, dtype=np.float64)

            mean = sums(scaled) / b
            off = scaled - mean[X.indices]
            # Zeros that are not stored, and then what is.
            squares = (b - sums(np.ones_like(scaled))) * mean * mean
            squares += sums(off * off)
            Xc = with_data(X, scaled * roots[own])
        else:
            mean = weights @ scaled / b
            Xc = scaled
            Xc -= mean
            Xc *= roots[:, None]
            squares = np.einsum("ij,ij->j", Xc, Xc)
        moved = mean - self.mean
        self._squares += squares + before * b / (before + b) * moved * moved
        self.mean += b / (before + b) * moved
        return Xc, moved

    def deviation(self, n: float) -> Float64:
        """Standard deviations; 0 where they are rounding noise."""
        deviation = np.sqrt(self._squares / n)
        varies = deviation > _ROUNDING * np.hypot(self.mean, deviation)
        return np.where(varies, deviation, 0.0)


def redundancy(X: Any, Z: Any) -> Redundancy:
    """Share of the variance of a view that the variates of the other view explain.

    Parameters
    ----------
    X : array of shape (n, d)
        The columns of one view.
    Z : array of shape (n, L)
        Variates of the other view, e.g. `model.transform_y(Y)`, of the same rows. On training
        rows the index is optimistic.

    Returns
    -------
    Redundancy
        All columns of X have equal weight, whatever their units; constant ones are left out.

    Notes
    -----
    Two variates may correlate highly and yet explain little of the views: this index measures how
    much. It is not symmetric in the views.

    References
    ----------
    D. Stewart and W. Love, A general canonical correlation index, Psychological Bulletin 1968.
    """
    X, Z = paired_projections(X, Z, ("X", "Z"), same_width=False)
    moments = JointMoments((X.shape[1],), Z.shape[1])
    for rows in row_blocks(len(X)):
        moments.add(Z[rows], (X[rows],))
    variates, (variables,) = moments.finish()
    return variables.redundancy(variates, slice(None))


def _or_infinity(deviation: NDArray[Any]) -> NDArray[Any]:
    """Deviations to divide by: infinity in the place of 0, so that the quotient is 0."""
    return np.where(deviation == 0.0, np.inf, deviation)
