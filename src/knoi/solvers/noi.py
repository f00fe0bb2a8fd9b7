"""KNOI, Algorithm 1 line by line: a step is `project`, `couple`, `gradient`, `descend`.

`project` and `gradient` work on one view, block of features by block of features; `couple` sees
only b x L scores and L x L covariances and is the one place where the views meet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, Placed
from knoi.arrays.random import Purpose, generator
from knoi.arrays.sparse import is_sparse, product
from knoi.data.pairs import RowPair
from knoi.engine import Engine, even_slices
from knoi.features import FeatureMap
from knoi.solvers.acceleration import Preconditioner, plain
from knoi.solvers.loop import (
    CoupledBatch,
    OptimizerState,
    RunningStats,
    Scores,
    StepResult,
    ViewState,
    check_step,
    finite,
    roll_back,
)

# On a CPU one worker computes this many features at a time, of this many rows where they are not
# kept: few enough to stay in the shared cache through product, cosine and projection, enough for
# BLAS to run at full speed.
TILE_COLUMNS = 1024
TILE_ROWS = 1024
DEVICE_COLUMNS = 8 * TILE_COLUMNS
# Fewer columns of a gradient than this are not worth another worker.
MIN_COLUMNS_PER_WORKER = 16
# Power iterations and number of vectors that find the largest curvature to a few per cent.
POWER_STEPS = 8
POWER_VECTORS = 4


def tile_shape(batch_size: int, in_main_memory: bool, *, keep: bool) -> tuple[int, int]:
    """Rows and features that are computed at a time: small for a CPU, large for a device."""
    if not in_main_memory:
        return batch_size, DEVICE_COLUMNS
    return batch_size if keep else TILE_ROWS, TILE_COLUMNS


class MinibatchFeatures:
    """Features of one minibatch of one view, computed block by block, shared among workers.

    With `keep`, the b x M features are kept once computed; otherwise they are computed again for
    each `project` and `gradient`.
    """

    def __init__(
        self, features: FeatureMap, batch_size: int, backend: Backend, *, keep: bool
    ) -> None:
        self._features = features
        self._backend = backend
        self._tile_rows, columns = tile_shape(batch_size, backend.in_main_memory, keep=keep)
        self._widest = max(columns, features.grain)
        self._blocks = features.slices(self._widest)
        self._rows_kept = batch_size if keep else 0
        self._kept: list[Array] | None = None
        self._prepared: Array = None
        self._made = False  # whether `_kept` holds the features of the loaded rows
        self._transposed: Array = None  # X', where rows are sparse and are the features

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the rows and features of the last minibatch."""
        empty = {"_kept": None, "_prepared": None, "_made": False, "_transposed": None}
        return {**self.__dict__, **empty}

    def place(self, X: Array) -> Placed:
        """Rows for `load`, which are then uploaded ahead of time, and only once."""
        return Placed(X, self._backend)

    def load(self, X: Array | Placed) -> None:
        """Take the rows of a minibatch, (b, d)."""
        X = self._backend.asarray(X)
        self._prepared, self._made = self._features.prepare(X), False
        self._transposed = None
        if is_sparse(X) and self._features.is_identity:
            self._transposed = X.T.tocsr()  # (d, b): products need no features
        elif self._rows_kept and self._kept is None:
            empty = self._backend.empty
            self._kept = [empty((self._rows_kept, s.stop - s.start)) for s in self._blocks]

    def project(self, U: Array, engine: Engine) -> Array:
        """Phi(X) U, (b, L)."""
        if self._transposed is not None:
            return self._shared_product(self._prepared, U, engine)
        matmul, prepared, made = self._backend.xp.matmul, self._prepared, self._made
        b, L = int(prepared.shape[0]), int(U.shape[1])

        def some_blocks(lane: slice) -> Array:
            scores = self._backend.zeros((b, L))
            for k in range(lane.start, lane.stop):
                columns = self._blocks[k]
                U_k = U[columns, :]
                for rows in even_slices(b, self._tile_rows):
                    Phi = None if self._kept is None else self._kept[k][rows, :]
                    if not made:
                        Phi = self._features.block(prepared[rows, :], columns, out=Phi)
                    scores[rows, :] += matmul(Phi, U_k)
            return scores

        # A few lanes per worker: fewer sums to add up than blocks, and no worker waits long.
        lanes = even_slices(len(self._blocks), len(self._blocks) // (4 * engine.n_workers))
        # In order, so that sums are the same every time.
        scores = reduce(add, engine.map(some_blocks, lanes))
        self._made = self._kept is not None
        return scores

    def gradient(self, R: Array, engine: Engine, within: slice | None = None) -> Array:
        """Phi(X)' R, (M, L); after `project`. Only the features `within`, if given."""
        if within == slice(0, self._features.rank):
            within = None
        if self._transposed is not None:
            Xt = self._transposed if within is None else self._transposed[within, :]
            return self._shared_product(Xt, R, engine)
        matmul, prepared = self._backend.xp.matmul, self._prepared
        blocks, first, last = self._blocks, 0, self._features.rank
        if within is not None:
            first, last = within.start, within.stop
            cuts = even_slices(last - first, self._widest)
            blocks = [slice(first + s.start, first + s.stop) for s in cuts]
        G = self._backend.empty((last - first, int(R.shape[1])))

        def one_block(k: int) -> None:
            columns = blocks[k]
            out = G[columns.start - first : columns.stop - first, :]
            if self._kept is not None and within is None:
                # R' Phi, not Phi' R: the long matrix is read as it lies.
                out[...] = matmul(R.T, self._kept[k][: R.shape[0], :]).T
                return
            out[...] = 0.0
            for rows in even_slices(int(R.shape[0]), self._tile_rows):
                Phi = self._features.block(prepared[rows, :], columns)
                out += matmul(Phi.T, R[rows, :])

        engine.map(one_block, range(len(blocks)))
        return G

    def _shared_product(self, A: Array, B: Array, engine: Engine) -> Array:
        """A B of a sparse A, its rows shared among workers."""
        result = self._backend.empty((int(A.shape[0]), int(B.shape[1])))

        def some_rows(rows: slice) -> None:
            product(A[rows, :], B, out=result[rows, :])

        engine.map(some_rows, even_slices(int(A.shape[0]), -(-A.shape[0] // engine.n_workers)))
        return result


def couple(stats: RunningStats, scores: Iterable[NDArray[Any]], rho: float) -> CoupledBatch:
    """Centre and whiten the scores of each view into targets for the other; float64 throughout.

    `rho` weights the OLD estimate of means and covariances: with 0 each minibatch stands alone.
    They start from the first minibatch.
    """
    P, Q = (np.asarray(s, dtype=np.float64) for s in scores)  # (b, L)
    b = len(P)
    means = _smoothed(stats.means, (P.mean(axis=0), Q.mean(axis=0)), rho)
    P, Q = P - means[0], Q - means[1]
    of_batch = (P.T @ P / b, Q.T @ Q / b)
    covariances = _smoothed(stats.covariances, of_batch, rho)
    x_root, y_root = (inverse_root(S) for S in covariances)
    residuals = (P - Q @ y_root, Q - P @ x_root)
    loss = sum(float(np.mean(np.sum(R * R, axis=1))) for R in residuals) / 2
    if rho:
        # About the minibatch means: an offset from the running means would count as correlation.
        P, Q = P - P.mean(axis=0), Q - Q.mean(axis=0)
        x_root, y_root = inverse_root(P.T @ P / b), inverse_root(Q.T @ Q / b)
    correlations = np.linalg.svd(x_root @ (P.T @ Q / b) @ y_root, compute_uv=False)
    return CoupledBatch(
        RunningStats(means, covariances), residuals, loss, np.clip(correlations, 0, 1)
    )


def descend(
    state: ViewState, direction: Array, step: float, momentum: float, decay: float
) -> ViewState:
    """Velocity = mu velocity - eta (direction + decay U), U = U + velocity; in new arrays."""
    velocity = state.velocity * momentum
    velocity -= step * direction
    if decay:
        velocity -= (step * decay) * state.U
    return ViewState(state.U + velocity, velocity)


def inverse_root(S: NDArray[Any]) -> NDArray[Any]:
    """S^-1/2, leaving out directions at rounding level, so that a collapsed one gives no NaN."""
    values, vectors = np.linalg.eigh(S)
    kept = values > np.finfo(np.float32).eps * max(values[-1], 0.0)
    root = np.zeros_like(values)
    root[kept] = values[kept] ** -0.5
    inverse: NDArray[Any] = (vectors * root) @ vectors.T
    return inverse


def _smoothed(old: Scores | None, new: Scores, rho: float) -> Scores:
    if old is None:
        return new
    return rho * old[0] + (1 - rho) * new[0], rho * old[1] + (1 - rho) * new[1]


@dataclass(frozen=True)
class StepSize:
    """The length of step t: `rate`, then lr_decay / t once that is smaller.

    Steps of length lr_decay / t weight all minibatches equally (lr_decay = 1) or recent ones more:
    noise averages out as samples come in, and their number need not be known in advance.
    """

    rate: float
    lr_decay: float | None  # None: constant

    def __call__(self, step: int) -> float:
        """The length of step number `step`, counted from 0."""
        return self.rate if self.lr_decay is None else min(self.rate, self.lr_decay / (step + 1))


@dataclass(frozen=True)
class KNOIUpdate:
    """One step of KNOI."""

    features: tuple[MinibatchFeatures, MinibatchFeatures]
    precondition: tuple[Preconditioner, Preconditioner]
    step_sizes: tuple[StepSize, StepSize]
    n_components: int
    rho: float
    momentum: float
    weight_decay: float
    average_from: int | None  # step from which weights are averaged
    backend: Backend
    engine: Engine

    def step(self, state: OptimizerState, x: Array, y: Array) -> tuple[OptimizerState, StepResult]:
        """Project, couple and descend; or roll back if the minibatch shows a bad step."""
        scores = project_batch(self.features, state, (x, y), self.backend, self.engine)
        coupled = couple(state.stats, scores, self.rho) if finite(scores) else None
        rate = self.step_sizes[0](state.steps)
        state, result = check_step(state, coupled, scores, rate, self.n_components)
        if coupled is None or result.rolled_back:
            return roll_back(state, self.backend), result
        return self._descend(state, coupled), result

    def penalty(self, view: int, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores of a view, (L, L), or None."""
        return self.precondition[view].penalty(U)

    def _descend(self, state: OptimizerState, coupled: CoupledBatch) -> OptimizerState:
        gradients = [
            features.gradient(self.backend.asarray(R / len(R)), self.engine)
            for features, R in zip(self.features, coupled.residuals, strict=True)
        ]
        directions = self._directions(gradients, (state.x.U, state.y.U))

        def move(v: int) -> ViewState:
            step = self.step_sizes[v](state.steps - 1) * state.lr_scale
            view = (state.x, state.y)[v]
            return descend(view, directions[v], step, self.momentum, self.weight_decay)

        views = self.engine.map(move, (0, 1))
        moved = replace(state, x=views[0], y=views[1], stats=coupled.stats)
        if self.average_from is None or moved.steps <= self.average_from:
            return moved
        # Weights grow with the square of the step number: the tail counts, the start is forgotten.
        share = 3 / (state.n_averaged + 3)
        new = U, V = moved.x.U, moved.y.U
        if state.average is not None:
            U, V = (old + share * (now - old) for old, now in zip(state.average, new, strict=True))
        return replace(moved, average=(U, V), n_averaged=state.n_averaged + 1)

    def _directions(self, gradients: Sequence[Array], U: tuple[Array, Array]) -> list[Array]:
        """P G of both views, their columns shared among workers: columns are independent."""
        if all(one is plain for one in self.precondition):
            return list(gradients)
        L = int(gradients[0].shape[1])
        # Few wide parts: a part reads all of P, and products are faster the wider they are.
        width = max(MIN_COLUMNS_PER_WORKER, -(-2 * L // self.engine.n_workers))
        parts = [(v, part) for v in (0, 1) for part in even_slices(L, width)]

        def apply(one: tuple[int, slice]) -> Array:
            v, part = one
            return self.precondition[v](gradients[v][:, part], U[v][:, part])

        found = self.engine.map(apply, parts)
        half = len(found) // 2
        if half == 1:
            return found
        return [self.backend.xp.concat(own, axis=1) for own in (found[:half], found[half:])]


def project_batch(
    features: tuple[MinibatchFeatures, MinibatchFeatures],
    state: OptimizerState,
    rows: RowPair,
    backend: Backend,
    engine: Engine,
) -> Scores:
    """Phi U and Psi V of a minibatch, which stays loaded; float64."""
    engine.map(lambda v: features[v].load(rows[v]), (0, 1))
    P, Q = (
        backend.to_numpy(one.project(view.U, engine)).astype(np.float64)
        for one, view in zip(features, (state.x, state.y), strict=True)
    )
    return P, Q


def largest_curvature(
    features: MinibatchFeatures,
    rank: int,
    precondition: Preconditioner,
    backend: Backend,
    engine: Engine,
) -> float:
    """The largest eigenvalue of P S, with S the covariance of the loaded minibatch.

    Steps longer than twice its inverse diverge. A minibatch shows more curvature than all the data:
    measured on one of the size used in training, the value includes that noise.
    """
    xp = backend.xp
    draw = generator(0, Purpose.POWER_ITERATION)
    v = backend.asarray(draw.standard_normal((rank, POWER_VECTORS)))
    largest = 0.0
    for _ in range(POWER_STEPS):
        scores = features.project(v, engine)
        scores -= xp.mean(scores, axis=0)
        v = precondition(features.gradient(scores / scores.shape[0], engine), v)
        norms = xp.sqrt(xp.sum(v * v, axis=0))
        largest = float(xp.max(norms))
        if not 0 < largest < float("inf"):
            break
        v = v / xp.where(norms > 0, norms, 1)
    return largest
