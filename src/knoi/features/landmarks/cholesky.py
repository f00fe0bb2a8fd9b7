"""Pivots of a kernel matrix: the row worst explained so far, or one drawn by how badly it is.

Both are exact in what they choose (or how likely), yet work by blocks: pivots are foreseen on a
small part of what is left of the kernel, and only their columns are computed, in one product.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from knoi.arrays.backend import Array
from knoi.kernels import Kernel

Factor = tuple[NDArray[np.intp], NDArray[np.float64]]

# Columns computed together, at most and at least.
_MOST, _LEAST = 128, 8
# Rows among which the next pivots are foreseen, for each of them.
_POOL = 4


class _Residual:
    """K - G G' of the kernel matrix of `sample`, of which only the diagonal and G are held."""

    def __init__(self, sample: Array, kernel: Kernel, rank: int) -> None:
        self.sample, self.kernel = sample, kernel
        self.left = np.array(kernel.diag(sample), dtype=np.float64)  # (n,) the diagonal
        self.floor = float(np.finfo(sample.dtype).eps) * 10 * float(self.left.max())
        self.Gt = np.empty((rank, sample.shape[0]))  # G', its first m rows filled
        self.pivots = np.empty(rank, dtype=np.intp)
        self.m = 0

    @property
    def wanted(self) -> int:
        """Pivots still to be found."""
        return len(self.pivots) - self.m

    @property
    def factor(self) -> Factor:
        return self.pivots[: self.m], self.Gt[: self.m].T

    def rows(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Rows `chosen` of the residual, (chosen, n)."""
        K = np.asarray(self.kernel(self.sample[chosen], self.sample), dtype=np.float64)
        K -= self.Gt[: self.m, chosen].T @ self.Gt[: self.m]
        return K

    def among(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """The residual between rows `chosen` only, (chosen, chosen)."""
        rows = self.sample[chosen]
        K = np.asarray(self.kernel(rows, rows), dtype=np.float64)
        G = self.Gt[: self.m, chosen]
        K -= G.T @ G
        return K

    def add(self, pivots: NDArray[np.intp], columns: NDArray[np.float64]) -> None:
        """Take pivots whose columns of G are the rows of `columns`, (pivots, n)."""
        k = len(pivots)
        self.pivots[self.m : self.m + k] = pivots
        self.Gt[self.m : self.m + k] = columns
        self.m += k
        self.left -= np.einsum("kn,kn->n", columns, columns)
        np.maximum(self.left, 0.0, out=self.left)
        self.left[pivots] = 0.0  # taken: rounding must not offer them again


def pivoted_cholesky(sample: Array, kernel: Kernel, rank: int) -> Factor:
    """Greedy pivots and the factor G (n, m) with G G' the rank-m approximation of the kernel.

    Stops early when what is left of the kernel is at rounding level.
    """
    residual = _Residual(sample, kernel, rank)
    block = _MOST
    while residual.wanted and residual.left.max() > residual.floor:
        foreseen = _foresee(residual, min(block, residual.wanted))
        taken = _take_while_foreseen(residual, foreseen)
        block = min(max(2 * taken, _LEAST), _MOST)
    return residual.factor


def _foresee(residual: _Residual, k: int) -> NDArray[np.intp]:
    """The next k pivots, if all come from the rows that are worst explained now.

    The first of them is certain.
    """
    n = len(residual.left)
    pool = np.argpartition(residual.left, n - min(_POOL * k, n))[n - min(_POOL * k, n) :]
    first = residual.left.argmax()
    if first not in pool:  # of several that are equal the first counts
        pool[0] = first
    pool.sort()
    H = residual.among(pool)
    left = residual.left[pool]
    L = np.empty((k, len(pool)))
    foreseen: list[int] = []
    for m in range(k):
        pivot = int(left.argmax())
        if left[pivot] <= residual.floor:
            break
        foreseen.append(pivot)
        L[m] = (H[pivot] - L[:m, pivot] @ L[:m]) / np.sqrt(left[pivot])
        left -= L[m] ** 2
        left[pivot] = 0.0
    return pool[foreseen]


def _take_while_foreseen(residual: _Residual, foreseen: NDArray[np.intp]) -> int:
    """Take pivots, each the worst explained of all rows, while they are `foreseen`; how many."""
    rows = residual.rows(foreseen)  # (foreseen, n) before this block
    place = {int(row): i for i, row in enumerate(foreseen)}
    start = residual.m
    while residual.wanted:
        pivot = int(residual.left.argmax())
        if pivot not in place or residual.left[pivot] <= residual.floor:
            break
        block = residual.Gt[start : residual.m]  # what this block has added
        column = rows[place[pivot]] - block[:, pivot] @ block
        column /= np.sqrt(residual.left[pivot])
        residual.add(np.array([pivot]), column[None, :])
    return residual.m - start


def randomly_pivoted_cholesky(
    sample: Array, kernel: Kernel, rank: int, draw: np.random.Generator
) -> Factor:
    """Pivots drawn in proportion to what is left of the diagonal, and the factor G (n, m).

    Pivots are proposed by blocks, and one is rejected as likely as the block before it explains it
    (Epperly, Tropp & Webber 2024), which draws them exactly as one by one. Stops early when what is
    left of the kernel is at rounding level.
    """
    residual = _Residual(sample, kernel, rank)
    while residual.wanted and residual.left.max() > residual.floor:
        weights = np.where(residual.left > residual.floor, residual.left, 0.0)
        size = min(_MOST, max(_LEAST, 2 * residual.wanted))
        proposed = draw.choice(len(weights), size=size, p=weights / weights.sum())
        accepted, L = _accept(residual, proposed, draw)
        if not len(accepted):  # not explained by the diagonal, but by its own column: rounding
            residual.left[proposed] = 0.0
            continue
        columns = solve_triangular(L, residual.rows(accepted), lower=True, check_finite=False)
        residual.add(accepted, columns)
    return residual.factor


def _accept(
    residual: _Residual, proposed: NDArray[np.intp], draw: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which of the proposed pivots are taken, and the Cholesky factor of the residual at them."""
    H = residual.among(proposed)
    before = H.diagonal().copy()
    thresholds = draw.random(len(proposed)) * before
    accepted: list[int] = []
    L = np.empty((len(proposed), len(proposed)))  # columns of those accepted
    for i in range(len(proposed)):
        if len(accepted) == residual.wanted:
            break
        k = len(accepted)
        left = H[i, i] - L[i, :k] @ L[i, :k]
        if left <= max(thresholds[i], residual.floor):
            continue
        L[i:, k] = (H[i:, i] - L[i:, :k] @ L[i, :k]) / np.sqrt(left)
        accepted.append(i)
    return proposed[accepted], np.tril(L[np.ix_(accepted, range(len(accepted)))])
