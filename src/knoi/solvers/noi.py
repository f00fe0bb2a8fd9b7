"""KNOI, Algorithm 1 line by line: a step is `project`, `couple`, `gradient`, `descend`.

`project` and `gradient` work on one view, block of features by block; `couple` sees only b x L
scores and L x L covariances and is the one place where the views meet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.blocks import even_slices
from knoi.arrays.sparse import is_sparse, product
from knoi.engine import Engine
from knoi.features import FeatureMap

# On a CPU one worker makes this many features at a time, of this many rows where they are not kept:
# few enough to stay in the shared cache through product, cosine and projection, enough for BLAS to
# run at speed.
BLOCK_COLUMNS = 1024
TILE_ROWS = 1024


@dataclass(frozen=True)
class ViewState:
    """What is learned of one view: weights on its features and their momentum, both (M, L)."""

    U: Array
    velocity: Array


@dataclass(frozen=True)
class Head:
    """The small state both views share: running means and covariances of the scores, float64."""

    means: tuple[NDArray[Any], NDArray[Any]] | None = None  # (L,) each
    covariances: tuple[NDArray[Any], NDArray[Any]] | None = None  # (L, L) each


@dataclass(frozen=True)
class Coupling:
    """What a minibatch says to each view, and how well the views agreed before the step."""

    head: Head
    residuals: tuple[NDArray[Any], NDArray[Any]]  # (b, L) each
    loss: float  # mean squared residual, both views
    correlations: NDArray[Any]  # (L,) canonical correlations of the minibatch's own scores
    sound: bool = True  # whether the weights are such that one may go back to them


class MinibatchFeatures:
    """Features of one minibatch of one view, block by block, shared among workers.

    They are kept once made where `keep` says there is room for b x M numbers, else made again for
    each `project` and `gradient`.
    """

    def __init__(
        self, features: FeatureMap, batch_size: int, backend: Backend, *, keep: bool
    ) -> None:
        self._features = features
        self._backend = backend
        on_cpu = backend.is_numpy
        self._tile_rows = TILE_ROWS if on_cpu and not keep else batch_size
        block = BLOCK_COLUMNS if on_cpu else 8 * BLOCK_COLUMNS
        self._widest = max(block, features.grain)
        self._blocks = features.slices(self._widest)
        self._room = batch_size if keep else 0
        self._kept: list[Array] | None = None
        self._prepared: Array = None
        self._made = False
        self._turned: Array = None  # X', where rows are sparse and their own features

    def load(self, X: Array) -> None:
        """Take the rows of a minibatch, (b, d)."""
        self._prepared, self._made = self._features.prepare(X), False
        self._turned = None
        if is_sparse(X) and self._features.is_identity:
            self._turned = X.T.tocsr()  # (d, b): products need no features
        elif self._room and self._kept is None:
            empty = self._backend.empty
            self._kept = [empty((self._room, s.stop - s.start)) for s in self._blocks]

    def project(self, U: Array, engine: Engine) -> Array:
        """Phi(X) U, (b, L)."""
        if self._turned is not None:
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

        # A few lanes a worker: fewer sums to add up than blocks, and none waits long for another.
        lanes = even_slices(len(self._blocks), len(self._blocks) // (4 * engine.n_workers))
        scores = engine.reduce(add, engine.map(some_blocks, lanes))
        self._made = self._kept is not None
        return scores

    def gradient(self, R: Array, engine: Engine, within: slice | None = None) -> Array:
        """Phi(X)' R, (M, L); after `project`. Only the features `within`, if given."""
        if within == slice(0, self._features.rank):
            within = None
        if self._turned is not None:
            turned = self._turned if within is None else self._turned[within, :]
            return self._shared_product(turned, R, engine)
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


def couple(head: Head, scores: Iterable[NDArray[Any]], rho: float) -> Coupling:
    """Centre and whiten each view's scores into the other's targets; float64 throughout.

    `rho` weights the OLD estimate of means and covariances: with 0 a minibatch stands alone. They
    start from the first minibatch.
    """
    P, Q = (np.asarray(s, dtype=np.float64) for s in scores)  # (b, L)
    b = len(P)
    means = _smoothed(head.means, (P.mean(axis=0), Q.mean(axis=0)), rho)
    P, Q = P - means[0], Q - means[1]
    of_batch = (P.T @ P / b, Q.T @ Q / b)
    covariances = _smoothed(head.covariances, of_batch, rho)
    x_root, y_root = (inverse_root(S) for S in covariances)
    residuals = (P - Q @ y_root, Q - P @ x_root)
    loss = sum(float(np.mean(np.sum(R * R, axis=1))) for R in residuals) / 2
    if rho:
        # About their own means: an offset from the smoothed ones would pass for correlation.
        P, Q = P - P.mean(axis=0), Q - Q.mean(axis=0)
        x_root, y_root = inverse_root(P.T @ P / b), inverse_root(Q.T @ Q / b)
    correlations = np.linalg.svd(x_root @ (P.T @ Q / b) @ y_root, compute_uv=False)
    return Coupling(Head(means, covariances), residuals, loss, np.clip(correlations, 0, 1))


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
    """S^-1/2 with directions at rounding level left out, so that a collapsed one gives no NaN."""
    values, vectors = np.linalg.eigh(S)
    kept = values > np.finfo(np.float32).eps * max(values[-1], 0.0)
    root = np.zeros_like(values)
    root[kept] = values[kept] ** -0.5
    inverse: NDArray[Any] = (vectors * root) @ vectors.T
    return inverse


def _smoothed(
    old: tuple[NDArray[Any], NDArray[Any]] | None,
    new: Sequence[NDArray[Any]],
    rho: float,
) -> tuple[NDArray[Any], NDArray[Any]]:
    if old is None:
        return new[0], new[1]
    return rho * old[0] + (1 - rho) * new[0], rho * old[1] + (1 - rho) * new[1]
