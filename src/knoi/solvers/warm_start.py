"""Where training starts: the exact solution for few of the features on few of the rows.

It costs seconds and stands where a random start arrives after a hundred thousand samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.blocks import even_slices
from knoi.arrays.sparse import column_variances, dense, is_sparse
from knoi.engine import Engine
from knoi.exceptions import InputError
from knoi.features import FeatureMap, Nystrom
from knoi.solvers.exact import Moments, solve_primal

# Features of the small problem, and rows for each of them: enough to solve it without overfitting.
FEATURES = 1024
ROWS_PER_FEATURE = 10
# Regularisations tried on rows left out of the small problem, relative to the total variance.
REGULARISERS = (1e-3, 1e-4, 1e-5, 1e-6)
CHUNK_ROWS = 2048


def rows_wanted(rank: int) -> int:
    """Rows of each view that a warm start makes use of."""
    return ROWS_PER_FEATURE * min(rank, FEATURES)


def bytes_needed(ranks: tuple[int, int], n_rows: int, itemsize: int) -> int:
    """Features of both views and copies of a part of them; sums and closed form in float64."""
    n = min(rows_wanted(max(ranks)), n_rows)
    r = min(FEATURES, n // ROWS_PER_FEATURE, *ranks)
    chunk = 2 * min(n, CHUNK_ROWS) * r * itemsize
    return n * r * itemsize * 5 // 2 + 2 * chunk + 14 * 8 * r * r


@dataclass(frozen=True)
class WarmStart:
    """Weights to start from, U (Mx, k) and V (My, k), and what was learned on the way."""

    weights: tuple[Array, Array]
    reg: float  # the regularisation that did best, relative to the total variance
    n_rows: int  # on this many rows


@dataclass(frozen=True)
class _Leading:
    """The first r features of a view, whitened if they are kernel columns."""

    features: FeatureMap
    r: int
    P: Array | None  # (r, r') whitens kernel columns
    backend: Backend
    columns: NDArray[Any] | None = None  # (r,) which features, if they are not the first ones

    @classmethod
    def of(cls, features: FeatureMap, r: int, backend: Backend, sample: Array) -> "_Leading":
        if is_sparse(sample) and features.is_identity and features.rank > FEATURES:
            # The first columns of a vocabulary may hardly occur: take those that vary most.
            columns = np.sort(np.argsort(-column_variances(sample), kind="stable")[:r])
            return cls(features, r, None, backend, columns)
        if features.landmark_rows is None:
            return cls(features, r, None, backend)
        landmarks = backend.to_numpy(features.landmark_rows)[:r]
        P = Nystrom.fit(landmarks, features.kernel).P
        return cls(features, r, backend.asarray(P), backend)

    @property
    def rank(self) -> int:
        return self.r if self.P is None else int(self.P.shape[1])

    def __call__(self, X: Array) -> Array:
        if self.columns is not None:
            return self.backend.asarray(dense(X[:, self.columns]))
        prepared = self.features.prepare(self.backend.asarray(X))
        Phi = self.features.block(prepared, slice(0, self.r))
        return Phi if self.P is None else Phi @ self.P

    def pieces(self, X: Array, engine: Engine) -> list[Array]:
        """Features of the rows of X, some rows at a time."""
        return engine.map(lambda piece: self(X[piece]), even_slices(int(X.shape[0]), CHUNK_ROWS))

    def weights(self, w: NDArray[Any]) -> Array:
        """Weights on these features as weights on all M, zero for the others."""
        U = self.backend.zeros((self.features.rank, w.shape[1]))
        w = self.backend.asarray(w)
        if self.columns is not None:
            U[self.columns, :] = w
            return U
        U[: self.r, :] = w if self.P is None else self.P @ w
        return U


def warm_start(
    maps: tuple[FeatureMap, FeatureMap],
    sample: tuple[Array, Array],
    directions: int,
    backend: Backend,
    engine: Engine,
    *,
    wanted: int | None = None,
) -> WarmStart | None:
    """Weights for k directions; None if the sample is too small to say anything.

    Every fifth row is left out of the small problem and chooses its regularisation, by the
    correlation of the `wanted` leading directions (default: of all).
    """
    n = int(sample[0].shape[0])
    r = min(FEATURES, n // ROWS_PER_FEATURE, *(features.rank for features in maps))
    if r < directions:
        return None
    held = np.arange(n) % 5 == 4
    small = [
        _Leading.of(features, r, backend, rows) for features, rows in zip(maps, sample, strict=True)
    ]
    if min(one.rank for one in small) < directions:
        return None
    moments = Moments((small[0].rank, small[1].rank), backend)
    fitted, judged = (
        [phi.pieces(rows[part], engine) for phi, rows in zip(small, sample, strict=True)]
        for part in (~held, held)
    )
    for Phi, Psi in zip(*fitted, strict=True):
        moments.update(Phi, Psi)
    Phi, Psi = (np.vstack([backend.to_numpy(piece) for piece in pieces]) for pieces in judged)
    best, reached, chosen = None, -np.inf, 0.0
    for reg in REGULARISERS:
        try:
            solution = solve_primal(
                moments.covariances(consume=False), directions, (reg, reg), backend
            )
        except InputError:
            if best is None:
                raise
            break  # so weak that directions without variance no longer count: so it would go on
        correlation = _total_correlation(Phi @ solution.U[:, :wanted], Psi @ solution.V[:, :wanted])
        if correlation > reached:
            best, reached, chosen = solution, correlation, reg
    if best is None:
        return None
    return WarmStart((small[0].weights(best.U), small[1].weights(best.V)), chosen, int(moments.n))


def _total_correlation(P: NDArray[Any], Q: NDArray[Any]) -> float:
    """Sum over columns of their correlation, (n, k) each."""
    P, Q = P - P.mean(axis=0), Q - Q.mean(axis=0)
    norms = np.sqrt(np.sum(P * P, axis=0) * np.sum(Q * Q, axis=0))
    return float(np.sum(np.sum(P * Q, axis=0) / np.maximum(norms, np.finfo(np.float64).tiny)))
