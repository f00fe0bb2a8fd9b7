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
from knoi.arrays.random import Purpose, generator
from knoi.engine import Engine
from knoi.features import FeatureMap
from knoi.features.nystrom import KernelColumns
from knoi.solvers.noi import BLOCK_COLUMNS, MinibatchFeatures

# Power iterations, and vectors side by side, that find the largest curvature to a few per cent.
POWER_STEPS = 8
POWER_VECTORS = 4
# Rows of the subsample for each eigenvector taken from it: beyond, they are its noise.
SAMPLE_PER_VECTOR = 10
# Rows of the subsample of a large map.
SAMPLE_ROWS = 4000


class Preconditioner(Protocol):
    """Turns the gradient of one view into the direction to step in."""

    def __call__(self, G: Array) -> Array:
        """P G, (M, L), for a symmetric positive P."""
        ...


def plain(G: Array) -> Array:
    """The gradient itself: the published algorithm."""
    return G


@dataclass(frozen=True)
class Columns:
    """P = M (K_ZZ + shift)^-2 for kernel columns k(x, Z) (after FALKON).

    The landmarks are rows of the data, so K_ZZ^2 / M estimates the covariance of the columns. One
    M x M triangle and four triangular solves a step; the columns are never whitened.
    """

    factor: Array  # C, (M, M) lower triangular, C C' = K_ZZ + shift
    backend: Backend

    @staticmethod
    def bytes_needed(rank: int, itemsize: int) -> int:
        """The triangle, stored square."""
        return rank * rank * itemsize

    @classmethod
    def fit(
        cls, columns: KernelColumns, shift: float, backend: Backend, engine: Engine
    ) -> "Columns":
        """`shift` is relative to the trace of K_ZZ; `columns` are on the backend."""
        M = columns.rank
        K = backend.empty((M, M))
        prepared = columns.prepare(columns.landmarks)

        def fill(rows: slice) -> None:
            columns.block(prepared[rows, :], slice(0, M), out=K[rows, :])

        engine.map(fill, even_slices(M, 256))
        diagonal = backend.xp.arange(M, **backend.placement)
        # The kernel of rows that are all zero may be zero: then the gradient is, too.
        K[diagonal, diagonal] += shift * float(backend.xp.sum(K[diagonal, diagonal])) or 1.0
        return cls(backend.cholesky(K), backend)

    def __call__(self, G: Array) -> Array:
        """Two solves with K_ZZ + shift, each two with its triangle."""
        solve, M = self.backend.solve_lower, self.factor.shape[0]
        for _ in range(2):
            G = solve(self.factor, solve(self.factor, G), transposed=True)
        G *= M
        return G


@dataclass(frozen=True)
class LowRank:
    """P = I - Q diag(1 - l_q / l_i) Q', for any feature map at any rank (after EigenPro).

    The top eigenvectors Q of the covariance, from the centred features of a subsample, are slowed
    down to the pace of the last of them; the rest is left alone.
    """

    Q: Array  # (M, q)
    damping: Array  # (q, 1)

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
        cls, features: FeatureMap, sample: Array, batch_size: int, backend: Backend, engine: Engine
    ) -> "LowRank":
        """Eigenvectors from the features of `sample` (s, d); both are on the backend."""
        s, M = int(sample.shape[0]), features.rank
        prepared = features.prepare(sample)

        def centred(columns: slice) -> Array:
            Phi = backend.xp.asarray(features.block(prepared, columns), copy=True)
            Phi -= backend.xp.mean(Phi, axis=0)
            return Phi

        if s >= SAMPLE_PER_VECTOR * M:
            Phi = backend.asarray(centred(slice(0, M)), "float64")
            values, vectors = np.linalg.eigh(backend.to_numpy(Phi.T @ Phi) / s)
            # Copied, since torch refuses the negative stride of a lone reversed column.
            values, vectors = values[::-1], vectors[:, ::-1].copy()
            q = int(np.sum(values > np.finfo(np.float32).eps * values[0]))
            return cls._slowed(vectors[:, :q], values[:q], values[max(q, 1) - 1], backend)

        blocks = features.slices(BLOCK_COLUMNS)
        gram = np.zeros((s, s))
        for columns in blocks:
            Phi = centred(columns)
            gram += backend.to_numpy(Phi @ Phi.T)
        gram /= s
        # Once an eigenvalue is no larger than the noise of a minibatch, curvature no longer limits
        # the step and slowing down more vectors buys nothing.
        noise = float(np.trace(gram)) / (2 * batch_size)
        most = max(1, s // SAMPLE_PER_VECTOR)
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=[s - most, s - 1], overwrite_a=True, check_finite=False
        )
        values, vectors = values[::-1], vectors[:, ::-1]
        q = int(np.sum(values > noise))
        right = backend.asarray(vectors[:, :q] / np.sqrt(s * values[:q]))  # (s, q)
        Q = backend.empty((M, q))

        def fill(columns: slice) -> None:
            Q[columns, :] = centred(columns).T @ right

        engine.map(fill, blocks)
        return cls._slowed(Q, values[:q], max(noise, float(values[q - 1])) if q else noise, backend)

    @classmethod
    def _slowed(cls, Q: Array, values: NDArray[Any], pace: float, backend: Backend) -> "LowRank":
        return cls(backend.asarray(Q), backend.asarray((1 - pace / values)[:, None]))

    def __call__(self, G: Array) -> Array:
        """P G."""
        return G - self.Q @ (self.damping * (self.Q.T @ G))


def largest_curvature(
    work: MinibatchFeatures,
    rank: int,
    precondition: Preconditioner,
    backend: Backend,
    engine: Engine,
) -> float:
    """The largest eigenvalue of P S, S being the covariance of the minibatch `work` has loaded.

    Steps beyond twice its inverse diverge. A minibatch shows more curvature than all the data:
    measured on one of the size that training uses, it includes its noise.
    """
    xp = backend.xp
    draw = generator(0, Purpose.POWER)
    v = backend.asarray(draw.standard_normal((rank, POWER_VECTORS)))
    largest = 0.0
    for _ in range(POWER_STEPS):
        scores = work.project(v, engine)
        scores -= xp.mean(scores, axis=0)
        v = precondition(work.gradient(scores / scores.shape[0], engine))
        norms = xp.sqrt(xp.sum(v * v, axis=0))
        largest = float(xp.max(norms))
        if not 0 < largest < float("inf"):
            break
        v = v / xp.where(norms > 0, norms, 1)
    return largest
