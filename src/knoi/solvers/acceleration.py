"""What makes KNOI fast: preconditioners, and a warm start from a small exact problem.

The inner problem of KNOI is least squares with Hessian Sxx, whose spectrum decays fast under a
smooth kernel: plain steps learn only its top. Multiplied by an approximate inverse of
Sxx + lambda I, the gradient moves along all directions at one pace, and the largest stable step is
near 1 on any data. The warm start solves CCA exactly for a few of the features on a few of the
rows: seconds that replace about a hundred thousand samples of training.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, cholesky, solve_lower
from knoi.arrays.sparse import column_means, column_variances, dense, inner, is_sparse
from knoi.engine import Engine, even_slices
from knoi.exceptions import InputError
from knoi.features import FeatureMap, Nystrom
from knoi.solvers.exact import Moments, RidgePath, choose_reg

# Rows of the subsample per eigenvector taken from it: further eigenvectors are noise.
SAMPLE_PER_VECTOR = 10
# Features computed at a time of all rows of the subsample.
SUBSAMPLE_COLUMNS = 4096
# Rows of the subsample of a large map.
SAMPLE_ROWS = 4000
# Features of the warm start, and rows per feature: enough to solve it without overfitting.
WARM_FEATURES = 1024
ROWS_PER_FEATURE = 10
# Regularisations that the warm start tries on held-out rows, relative to the total variance.
REGULARISERS = tuple(10.0 ** (k / 2) for k in range(-14, -3))
FIRST_REGULARISER = REGULARISERS[6]  # 1e-4
CHUNK_ROWS = 2048


class Preconditioner(Protocol):
    """Turns the gradient of one view into the direction to step in."""

    def __call__(self, G: Array, U: Array) -> Array:
        """P (G + ridge of U), (M, L), for a symmetric positive P."""
        ...

    def penalty(self, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores, (L, L); None without a ridge."""
        ...


class Plain:
    """No preconditioner and no ridge: the published algorithm."""

    def __call__(self, G: Array, U: Array) -> Array:
        """The gradient G."""
        return G

    def penalty(self, U: Array) -> Array | None:
        """None."""
        return None


plain = Plain()


@dataclass(frozen=True)
class Columns:
    """P = M (K_ZZ + shift)^-2 for kernel columns k(x, Z) (after FALKON).

    The landmarks are rows of the data, so K_ZZ^2 / M estimates the covariance of the columns. It
    takes one M x M triangle and four triangular solves per step; the columns are never whitened.
    The ridge is that of kernel CCA, on the norm U' K_ZZ U of the projections, at no cost.
    """

    factor: Array  # C, (M, M) lower triangular, C C' = K_ZZ + shift
    shift: float
    ridge: float
    backend: Backend

    @staticmethod
    def bytes_needed(rank: int, itemsize: int) -> int:
        """Bytes of the triangle, stored as a square."""
        return rank * rank * itemsize

    @classmethod
    def fit(
        cls, features: FeatureMap, shift: float, ridge: float, backend: Backend, engine: Engine
    ) -> "Columns":
        """Fit to a map with `kernel_columns`.

        `shift` is relative to the trace of K_ZZ, `ridge` to the total variance, as `reg` is.
        """
        columns = features.kernel_columns
        M = columns.rank
        K = backend.empty((M, M))
        prepared = columns.prepare(columns.landmarks)

        def fill(rows: slice) -> None:
            columns.block(prepared[rows, :], slice(0, M), out=K[rows, :])

        engine.map(fill, even_slices(M, 256))
        diagonal = backend.xp.arange(M, device=backend.device)
        # The kernel of rows that are all zero may be zero; then the gradient is zero, too.
        trace = float(backend.xp.sum(K[diagonal, diagonal]))
        variance = trace / M - float(backend.xp.mean(K))  # in feature space, about the mean
        if not math.isfinite(variance):  # in main memory the kernel itself would have raised
            raise InputError(
                f"kernel values of the landmarks overflow {backend.dtype}. Divide the data by a "
                "constant, or use a larger width or a lower degree."
            )
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
    down to the pace of the last of them; the other directions do not change.
    """

    Q: Array  # (M, q)
    damping: Array  # (q, 1)
    ridge: float

    @staticmethod
    def bytes_needed(rank: int, itemsize: int) -> int:
        """Bytes of Q at its widest, and of the matrix it comes from with copies."""
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
        """Fit to the features of `sample` (s, d); map and sample are on the backend.

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
            pace = ridge * total if most == M else max(ridge * total, _noise(total, batch_size))
            q = int(np.sum(values > max(pace, np.finfo(backend.dtype).eps * values[0])))
            Q, values = Q[:, :q], values[:q]
        else:
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
            values = values[:q]
            right = backend.asarray(vectors[:, :q] / np.sqrt(s * values))  # (s, q)
            if own:
                Q = sample.T @ right
                Q -= np.outer(column_means(sample), right.sum(axis=0)).astype(Q.dtype)
            else:
                Q = backend.empty((M, q))

                def fill(columns: slice) -> None:
                    Q[columns, :] = centred(columns).T @ right

                engine.map(fill, blocks)
        # To the pace of the last direction, if that is faster.
        pace = max(pace, float(values[-1])) if q else pace
        damping = backend.asarray((1 - pace / values)[:, None])
        return cls(backend.asarray(Q), damping, ridge * total)

    def __call__(self, G: Array, U: Array) -> Array:
        """P (G + ridge U)."""
        if self.ridge:
            G = G + self.ridge * U
        return G - self.Q @ (self.damping * (self.Q.T @ G))

    def penalty(self, U: Array) -> Array | None:
        """Ridge U' U."""
        return self.ridge * (U.T @ U) if self.ridge else None


def _centred_gram(X: Array) -> NDArray[np.float64]:
    """Centred inner products of sparse rows X (s, d), (s, s), without centring the rows."""
    gram: NDArray[np.float64] = inner(X.astype(np.float64), X)
    means = gram.mean(axis=0)
    gram -= means
    gram -= means[:, None]
    gram += means.mean()
    return gram


def _noise(total: float, batch_size: int) -> float:
    """The smallest eigenvalue that a minibatch resolves.

    Directions with smaller eigenvalues do not limit the step: slowing them down gains nothing.
    """
    return total / (2 * batch_size)


def warm_start_rows(rank: int) -> int:
    """Rows of each view that the warm start uses."""
    return ROWS_PER_FEATURE * min(rank, WARM_FEATURES)


def warm_start_bytes(ranks: tuple[int, int], n_rows: int, itemsize: int) -> int:
    """Bytes of the features of both views and copies of a part; moments and solution in float64."""
    n = min(warm_start_rows(max(ranks)), n_rows)
    r = min(WARM_FEATURES, n // ROWS_PER_FEATURE, *ranks)
    chunk = 2 * min(n, CHUNK_ROWS) * r * itemsize
    return n * r * itemsize * 5 // 2 + 2 * chunk + 14 * 8 * r * r


@dataclass(frozen=True)
class WarmStart:
    """Weights U (Mx, k) and V (My, k) to start from, and the regularisation that did best."""

    weights: tuple[Array, Array]
    reg: float  # relative to the total variance
    n_rows: int  # rows of the small problem


@dataclass(frozen=True)
class _Leading:
    """Some features of a view, usually the first ones, whitened if they are kernel columns."""

    features: FeatureMap
    columns: slice | NDArray[Any]
    P: Array | None  # (r, rank) whitens kernel columns
    rank: int
    backend: Backend

    @classmethod
    def of(cls, features: FeatureMap, r: int, backend: Backend, sample: Array) -> "_Leading":
        if features.is_identity and features.rank > WARM_FEATURES:
            # The first columns may be rare words or border pixels: take those that vary most.
            columns = np.sort(np.argsort(-column_variances(sample), kind="stable")[:r])
            return cls(features, columns, None, r, backend)
        kernel_columns = features.kernel_columns
        if kernel_columns is None:
            return cls(features, slice(0, r), None, r, backend)
        landmarks = backend.to_numpy(kernel_columns.landmarks)[:r]
        P = Nystrom.fit(landmarks, kernel_columns.kernel).P
        return cls(features, slice(0, r), backend.asarray(P), P.shape[1], backend)

    def __call__(self, X: Array) -> Array:
        if not isinstance(self.columns, slice):
            return self.backend.asarray(dense(X[:, self.columns]))
        prepared = self.features.prepare(self.backend.asarray(X))
        Phi = self.features.block(prepared, self.columns)
        return Phi if self.P is None else Phi @ self.P

    def pieces(self, X: Array, engine: Engine) -> list[Array]:
        """Features of the rows of X, some rows at a time."""
        return engine.map(lambda piece: self(X[piece]), even_slices(int(X.shape[0]), CHUNK_ROWS))

    def weights(self, w: NDArray[Any]) -> Array:
        """Weights on these features as weights on all M, zero for the others."""
        U = self.backend.zeros((self.features.rank, w.shape[1]))
        w = self.backend.asarray(w)
        U[self.columns, :] = w if self.P is None else self.P @ w
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
    """Weights for k directions; None if the sample is too small.

    Every fifth row is held out and chooses the regularisation, by the correlation of the `wanted`
    leading directions (default: of all): the largest that does no worse than the best by more than
    a standard error, so that it does not depend on which rows these are.
    """
    n = int(sample[0].shape[0])
    r = min(WARM_FEATURES, n // ROWS_PER_FEATURE, *(features.rank for features in maps))
    if r < directions:
        return None
    held = np.arange(n) % 5 == 4
    small = [
        _Leading.of(features, r, backend, rows) for features, rows in zip(maps, sample, strict=True)
    ]
    if min(one.rank for one in small) < directions:
        return None
    moments = Moments((small[0].rank, small[1].rank), backend)
    fitted, held_out = (
        [phi.pieces(rows[part], engine) for phi, rows in zip(small, sample, strict=True)]
        for part in (~held, held)
    )
    for Phi, Psi in zip(*fitted, strict=True):
        moments.update(Phi, Psi)
    x, y = (backend.xp.concat(pieces, axis=0) for pieces in held_out)
    covariances = moments.covariances(consume=True)
    path = RidgePath.of(covariances, (x, y), backend, at_least=directions)
    reg, _ = choose_reg([path], wanted or directions, REGULARISERS, FIRST_REGULARISER)
    best = path.solution(reg, directions)
    return WarmStart((small[0].weights(best.U), small[1].weights(best.V)), reg[0], int(moments.n))
