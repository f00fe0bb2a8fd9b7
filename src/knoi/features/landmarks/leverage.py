"""Landmarks drawn by ridge leverage scores: how much each row adds to what the others explain."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigvalsh, solve_triangular

from knoi.arrays.backend import Array
from knoi.kernels import Kernel

# Effective dimension for each landmark. That many dimensions need more rows than there are of them
# to be told apart, by a logarithm in theory: at one each, a sample of `rank` rows knows no scores.
_DIMENSION = 0.25


def ridge_leverage_sample(
    sample: Array, kernel: Kernel, rank: int, draw: np.random.Generator
) -> NDArray[np.intp]:
    """Distinct rows, `rank` of them, drawn in proportion to their ridge leverage scores.

    The score of row i is (K (K + l I)^-1)_ii, from 0 to 1; all scores add up to the effective
    dimension of the data at ridge l, and l is chosen so that this is a quarter of `rank`. Scores
    are estimated recursively (Musco & Musco 2017): those of half of the rows give a weighted
    sample, about `rank` rows that stand for that half, and from it come the scores of the whole.
    Weights matter there; for the span of the landmarks they do not. Rows of zero kernel have
    nothing to add and are left out.
    """
    largest = float(np.max(kernel.diag(sample)))
    if largest == 0:
        return np.empty(0, dtype=np.intp)
    floor = 10 * float(np.finfo(sample.dtype).eps) * largest
    order = draw.permutation(sample.shape[0])
    sizes = [len(order)]
    while sizes[-1] > rank:
        sizes.append(-(-sizes[-1] // 2))
    chosen = order[: sizes[-1]]  # few enough to stand for themselves
    weights = np.ones(len(chosen))
    for size in sizes[-2:0:-1]:
        rows = order[:size]
        scores = leverage_scores(sample[rows], kernel, sample[chosen], weights, rank, floor)
        chances = _chances(scores, rank)
        drawn = draw.random(size) < chances
        chosen, weights = rows[drawn], 1 / chances[drawn]
    scores = leverage_scores(sample[order], kernel, sample[chosen], weights, rank, floor)
    some = min(rank, int(np.count_nonzero(scores)))
    return np.sort(draw.choice(order, some, replace=False, p=scores / scores.sum()))


def leverage_scores(
    rows: Array,  # (n, d)
    kernel: Kernel,
    chosen: Array,  # (s, d)
    weights: NDArray[np.float64],  # (s,) how many rows each chosen one stands for
    rank: int,
    floor: float,
) -> NDArray[np.float64]:
    """Estimates of the ridge leverage scores of `rows`, (n,), from those `chosen` among them.

    Where these are all rows, the scores are exact. `floor` is the least ridge: beneath it the
    kernel is rounding.
    """
    root = np.sqrt(weights)
    W = np.asarray(kernel(chosen, chosen), dtype=np.float64) * root * root[:, None]  # (s, s)
    values = eigvalsh(W)
    # Above what rounding makes negative, so that the factorisation cannot fail.
    ridge = max(_ridge(values, _DIMENSION * rank), floor, -2 * float(values[0]))
    W.flat[:: len(W) + 1] += ridge
    B = np.asarray(kernel(chosen, rows), dtype=np.float64) * root[:, None]  # (s, n)
    B = solve_triangular(cholesky(W, lower=True), B, lower=True, overwrite_b=True)
    diagonal = np.asarray(kernel.diag(rows), dtype=np.float64)
    scores = (diagonal - np.einsum("sn,sn->n", B, B)) / ridge
    # No true score is less than the lower bound, as v / (v + l) >= v / (v_max + l); rounding is.
    bounded: NDArray[np.float64] = np.clip(scores, diagonal / (values[-1] + ridge), 1.0)
    return bounded


def _ridge(values: NDArray[np.float64], dimension: float) -> float:
    """The ridge l at which the sum of v / (v + l) is `dimension`; 0 if it never is so large."""
    values = values[values > 0]
    if len(values) <= dimension:
        return 0.0
    low, high = 0.0, float(values.sum()) / dimension
    for _ in range(60):
        middle = (low + high) / 2
        if (values / (values + middle)).sum() > dimension:
            low = middle
        else:
            high = middle
    return high


def _chances(scores: NDArray[np.float64], expected: int) -> NDArray[np.float64]:
    """Chances proportional to scores, capped at 1, that add up to `expected`."""
    certain = np.zeros(len(scores), dtype=bool)
    while True:
        rest = float(scores[~certain].sum())
        if rest == 0:
            return certain.astype(np.float64)
        chances = np.where(certain, 1.0, scores * ((expected - certain.sum()) / rest))
        if not (more := chances > 1.0).any():
            return chances
        certain |= more
