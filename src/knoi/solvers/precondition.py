"""Approximations of (Sxx + lambda I)^-1 that make the learning rate a pure number.

The inner problem of KNOI is least squares with Hessian Sxx, whose spectrum decays fast under a
smooth kernel: plain steps learn only its top. Multiplied by an approximate inverse, the gradient
moves along all directions at one pace, and the largest stable step is near 1 whatever the data.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.blocks import even_slices
from knoi.arrays.linalg import cholesky, solve_lower
from knoi.arrays.sparse import column_means, inner, is_sparse
from knoi.engine import Engine
from knoi.features import FeatureMap

# Rows of the subsample for each eigenvector taken from it: beyond, they are its noise.
SAMPLE_PER_VECTOR = 10
# Features made at a time of all rows of the subsample.
SUBSAMPLE_COLUMNS = 4096
# Rows of the subsample of a large map.
SAMPLE_ROWS = 4000


class Preconditioner(Protocol):
    """Turns the gradient of one view into the direction to step in."""

    def __call__(self, G: Array, U: Array) -> Array:
        """P (G + ridge of U), (M, L), for a symmetric positive P."""
        ...

    def penalty(self, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores, (L, L); None without a ridge."""
        ...


class Plain:
    """The gradient itself, no ridge: the published algorithm."""

    def __call__(self, G: Array, U: Array) -> Array:
        """G."""
        return G

    def penalty(self, U: Array) -> Array | None:
        """None."""
        return None


plain = Plain()


@dataclass(frozen=True)
class Columns:
    """P = M (K_ZZ + shift)^-2 for kernel columns k(x, Z) (after FALKON).

    The landmarks are rows of the data, so K_ZZ^2 / M estimates the covariance of the columns. One
    M x M triangle and four triangular solves a step; the columns are never whitened. The ridge is
    that of kernel CCA, on the norm U' K_ZZ U of the projections; it costs nothing.
    """

    factor: Array  # C, (M, M) lower triangular, C C' = K_ZZ + shift
    shift: float
    ridge: float
    backend: Backend

    @staticmethod
    def bytes_needed(rank: int, itemsize: int) -> int:
        """The triangle, stored square."""
        return rank * rank * itemsize

    @classmethod
    def fit(
        cls, columns: FeatureMap, shift: float, ridge: float, backend: Backend, engine: Engine
    ) -> "Columns":
        """Fit to a map with `landmark_rows`.

        `shift` is relative to the trace of K_ZZ, `ridge` to the total variance, as `reg` is.
        """
        M = columns.rank
        K = backend.empty((M, M))
        prepared = columns.prepare(columns.landmark_rows)

        def fill(rows: slice) -> None:
            columns.block(prepared[rows, :], slice(0, M), out=K[rows, :])

        engine.map(fill, even_slices(M, 256))
        diagonal = backend.xp.arange(M, **backend.placement)
        # The kernel of rows that are all zero may be zero: then the gradient is, too.
        trace = float(backend.xp.sum(K[diagonal, diagonal]))
        variance = trace / M - float(backend.xp.mean(K))  # in feature space, about the mean
        shift = shift * trace or 1.0
        K[diagonal, diagonal] += shift
        return cls(cholesky(K, backend), shift, ridge * max(variance, 0.0), backend)

    def __call__(self, G: Array, U: Array) -> Array:
        """M (K_ZZ + shift)^-2 (G + ridge K_ZZ U), without a product by K_ZZ."""
        if self.ridge:
            G = G - (self.ridge * self.shift) * U
        D = self._solve(G)
        if self.ridge:
            D += self.ridge * U
        D = self._solve(D)
        D *= self.factor.shape[0]
        return D

    def penalty(self, U: Array) -> Array | None:
        """Ridge U' K_ZZ U."""
        if not self.ridge:
            return None
        T = self.factor.T @ U  # (M, L)
        return self.ridge * (T.T @ T - self.shift * (U.T @ U))

    def _solve(self, G: Array) -> Array:
        half = solve_lower(self.factor, G, self.backend)
        return solve_lower(self.factor, half, self.backend, transposed=True)


@dataclass(frozen=True)
class LowRank:
    """P = I - Q diag(1 - l_q / l_i) Q', for any feature map at any rank (after EigenPro).

    The top eigenvectors Q of the covariance, from the centred features of a subsample, are slowed
    down to the pace of the last of them; the rest is left alone.
    """

    Q: Array  # (M, q)
    damping: Array  # (q, 1)
    ridge: float

    @staticmethod
    def bytes_needed(rank: int, itemsize: int) -> int:
        """Q at its widest, and the matrix it comes from with its copies."""
        s = LowRank.rows_wanted(rank)
        return rank * (s // SAMPLE_PER_VECTOR) * itemsize + 4 * 8 * min(s, rank) ** 2

    @staticmethod
    def rows_wanted(rank: int) -> int:
        """Rows of the subsample: enough for all eigenvectors of a small map."""
        every = SAMPLE_PER_VECTOR * rank
        return every if every <= 2 * SAMPLE_ROWS else SAMPLE_ROWS

    @classmethod
    def fit(
        cls,
        features: FeatureMap,
        sample: Array,
        batch_size: int,
        ridge: float,
        backend: Backend,
        engine: Engine,
    ) -> "LowRank":
        """Eigenvectors from the features of `sample` (s, d); both are on the backend.

        `ridge` is relative to the total variance, as `reg` is.
        """
        s, M = int(sample.shape[0]), features.rank
        prepared = features.prepare(sample)

        def centred(columns: slice) -> Array:
            Phi = backend.xp.asarray(features.block(prepared, columns), copy=True)
            Phi -= backend.xp.mean(Phi, axis=0)
            return Phi

        most = max(1, min(s // SAMPLE_PER_VECTOR, M))
        if s >= M:
            Phi = backend.asarray(centred(slice(0, M)), "float64")
            values, Q = np.linalg.eigh(backend.to_numpy(Phi.T @ Phi) / s)
            total = float(values.sum())
            values, Q = values[: -most - 1 : -1], Q[:, : -most - 1 : -1]
            pace = ridge * total
            if most < M:
                pace = max(pace, _noise(total, batch_size))
            q = int(np.sum(values > max(pace, np.finfo(backend.dtype).eps * values[0])))
            return cls._slowed(Q[:, :q], values[:q], pace, ridge * total, backend)

        blocks = features.slices(SUBSAMPLE_COLUMNS)
        own = is_sparse(sample) and features.is_identity  # the rows are the features
        if own:
            gram = _centred_gram(sample)
        else:
            gram = np.zeros((s, s))
            for columns in blocks:
                Phi = centred(columns)
                gram += backend.to_numpy(Phi @ Phi.T)
        gram /= s
        total = float(np.trace(gram))
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=[s - most, s - 1], overwrite_a=True, check_finite=False
        )
        values, vectors = values[::-1], vectors[:, ::-1]
        pace = max(ridge * total, _noise(total, batch_size))
        q = int(np.sum(values > pace))
        right = backend.asarray(vectors[:, :q] / np.sqrt(s * values[:q]))  # (s, q)
        if own:
            Q = sample.T @ right
            Q -= np.outer(column_means(sample), right.sum(axis=0)).astype(Q.dtype)
            return cls._slowed(Q, values[:q], pace, ridge * total, backend)
        Q = backend.empty((M, q))

        def fill(columns: slice) -> None:
            Q[columns, :] = centred(columns).T @ right

        engine.map(fill, blocks)
        return cls._slowed(Q, values[:q], pace, ridge * total, backend)

    @classmethod
    def _slowed(
        cls, Q: Array, values: NDArray[Any], pace: float, ridge: float, backend: Backend
    ) -> "LowRank":
        """The directions Q slowed down to `pace`, or to the last of them if that is faster."""
        pace = max(pace, float(values[-1])) if len(values) else pace
        return cls(backend.asarray(Q), backend.asarray((1 - pace / values)[:, None]), ridge)

    def __call__(self, G: Array, U: Array) -> Array:
        """P (G + ridge U)."""
        if self.ridge:
            G = G + self.ridge * U
        return G - self.Q @ (self.damping * (self.Q.T @ G))

    def penalty(self, U: Array) -> Array | None:
        """Ridge U' U."""
        return self.ridge * (U.T @ U) if self.ridge else None


def _centred_gram(X: Array) -> NDArray[np.float64]:
    """Inner products of sparse rows X (s, d) about their mean, (s, s), without taking it off."""
    gram: NDArray[np.float64] = inner(X.astype(np.float64), X)
    means = gram.mean(axis=0)
    gram -= means
    gram -= means[:, None]
    gram += means.mean()
    return gram


def _noise(total: float, batch_size: int) -> float:
    """The eigenvalue that a minibatch no longer resolves.

    Once eigenvalues are no larger, curvature no longer limits the step, and slowing down more
    directions buys nothing.
    """
    return total / (2 * batch_size)
