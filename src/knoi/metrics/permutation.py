"""Permutation test: held-out correlations against those of the same rows paired at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.random import Purpose, generator, seed_from
from knoi.checks import integer
from knoi.metrics.correlation import paired_projections, row_blocks, unit_columns

Float64 = NDArray[np.float64]

# Quantiles of the null distribution that are reported.
NULL_LEVELS = (0.05, 0.5, 0.95)
# Numbers of shuffled rows alive at a time: several small shuffles share one product.
_NUMBERS_AT_A_TIME = 2**18
# Statistics this close are ties: only their rounding, which follows the order of rows, differs.
_TIE = 1e-12


@dataclass(frozen=True)
class PermutationTest:
    """Held-out correlations compared with those of the same rows paired at random.

    Attributes
    ----------
    correlations : array of shape (L,)
        Of each pair of components, as `component_correlations`.
    p_values : array of shape (L,)
        Of each component: the share of shuffles whose absolute correlation is at least as large.
    corrected_p_values : array of shape (L,)
        The same for the largest absolute correlation of any component in each shuffle, which
        controls the family-wise error: if no component is related, any of them falls below 0.05
        in 5% of tests.
    null_quantiles : array of shape (3, L)
        Absolute correlation of each component in shuffled pairs, at `NULL_LEVELS`: 5%, 50%, 95%.
    null_largest_quantiles : array of shape (3,)
        The same for the largest of the components.
    total : float
        Refit total correlation, the sum of `canonical_correlations`.
    total_p_value : float
        Of the total.
    total_null_quantiles : array of shape (3,)
        Total of shuffled pairs. It is not near 0: a refit finds correlation in any sample.
    n_permutations : int
        Number of shuffles; no p-value is below 1 / (n_permutations + 1).
    """

    correlations: Float64
    p_values: Float64
    corrected_p_values: Float64
    null_quantiles: Float64
    null_largest_quantiles: Float64
    total: float
    total_p_value: float
    total_null_quantiles: Float64
    n_permutations: int

    def significant(self, level: float = 0.05) -> NDArray[np.bool_]:
        """Which components correlate more than chance, (L,): corrected p-value below `level`."""
        return np.asarray((self.corrected_p_values < level) & (self.correlations > 0.0))

    def n_components(self, level: float = 0.05) -> int:
        """How many components to keep: all up to the last that is significant; 0 if none is."""
        found = np.flatnonzero(self.significant(level))
        return int(found[-1]) + 1 if len(found) else 0


def permutation_test(
    Zx: Any, Zy: Any, n_permutations: int = 999, random_state: Any = None
) -> PermutationTest:
    """Test whether projections of held-out pairs are related, by shuffling the rows of `Zy`.

    If the views are independent, every pairing of their rows is equally likely, so that
    (b + 1) / (n + 1), with b of n shuffles as good as the pairs given, is an exact p-value for any
    distribution of the rows. This has two conditions. The pairs must not have been used to fit: the
    projections were chosen to agree on those. And the rows must be exchangeable: successive rows of
    a time series are not, and neither are several rows of one subject.

    Parameters
    ----------
    Zx, Zy : arrays of shape (n, L)
        Projections of held-out pairs, e.g. `model.transform(X_test, Y_test)`.
    n_permutations : int
        Number of shuffles. A larger number begins with the shuffles of a smaller one.
    random_state : int, RandomState, Generator or None
        Fixes the shuffles.

    Returns
    -------
    PermutationTest

    Notes
    -----
    The cost is n_permutations n L^2: only L x L products of the projections are computed.
    """
    Zx, Zy = paired_projections(Zx, Zy, same_width=True)
    n_permutations = integer("n_permutations", n_permutations, minimum=1, hint=", such as 999")
    (A, Wx), (B, Wy) = unit_columns(Zx), unit_columns(Zy)  # (n, L), (L, rank)
    observed = (A * B).sum(axis=0)
    total = float(_singular(Wx.T @ (A.T @ B) @ Wy))
    null, totals = np.empty((n_permutations, A.shape[1])), np.empty(n_permutations)
    seed = seed_from(random_state)
    for part in row_blocks(n_permutations, max(1, _NUMBERS_AT_A_TIME // A.size)):
        drawn = (generator(seed, Purpose.PERMUTATION, k) for k in range(part.start, part.stop))
        orders = np.stack([one.permutation(len(A)) for one in drawn])  # (shuffles, n)
        C = A.T @ B[orders]  # (shuffles, L, L); shuffling leaves columns centred and orthonormal
        null[part] = np.abs(np.diagonal(C, axis1=1, axis2=2))
        totals[part] = _singular(Wx.T @ C @ Wy)
    largest = null.max(axis=1)
    return PermutationTest(
        correlations=np.clip(observed, -1.0, 1.0),
        p_values=_p_values(np.abs(observed), null),
        corrected_p_values=_p_values(np.abs(observed), largest[:, None]),
        null_quantiles=np.quantile(null, NULL_LEVELS, axis=0),
        null_largest_quantiles=np.quantile(largest, NULL_LEVELS),
        total=total,
        total_p_value=float(_p_values(np.array([total]), totals[:, None])[0]),
        total_null_quantiles=np.quantile(totals, NULL_LEVELS),
        n_permutations=n_permutations,
    )


def _singular(C: Float64) -> Any:
    """Sum of the singular values of each matrix, each at most 1."""
    return np.minimum(np.linalg.svd(C, compute_uv=False), 1.0).sum(axis=-1)


def _p_values(observed: Float64, null: Float64) -> Float64:
    """(b + 1) / (n + 1) with b the number of rows of `null` (n, L or 1) that reach `observed`."""
    reached = (null >= observed * (1.0 - _TIE) - _TIE).sum(axis=0)
    return np.asarray((reached + 1.0) / (len(null) + 1.0))
