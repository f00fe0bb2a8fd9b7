"""Approximations of (Sxx + lambda I)^-1 that make the learning rate a pure number.

The inner problem of KNOI is least squares with Hessian Sxx, whose spectrum decays fast under a
smooth kernel: plain steps learn only its top. Multiplied by an approximate inverse, the gradient
moves along all directions at one pace, and the largest stable step is near 1 whatever the data.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, generator
from knoi.engine import Engine
from knoi.features import FeatureMap
from knoi.features.nystrom import KernelColumns
from knoi.solvers.noi import MinibatchFeatures

# Power iterations, and vectors side by side, that find the largest curvature to a few per cent.
POWER_STEPS = 8
POWER_VECTORS = 4


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

        from knoi.arrays.blocks import even_slices

        engine.map(fill, even_slices(M, 256))
        diagonal = backend.xp.arange(M, **backend.placement)
        K[diagonal, diagonal] += shift * float(backend.xp.sum(K[diagonal, diagonal]))
        return cls(backend.cholesky(K), backend)

    def __call__(self, G: Array) -> Array:
        """Two solves with K_ZZ + shift, each two with its triangle."""
        solve, M = self.backend.solve_lower, self.factor.shape[0]
        for _ in range(2):
            G = solve(self.factor, solve(self.factor, G), transposed=True)
        G *= M
        return G


@dataclass(frozen=True)
class Subsample:
    """P = (Phi' Phi / s + shift)^-1 from the centred features Phi (s, M) of a subsample.

    For any feature map at any rank: by Woodbury's identity P is an s x s solve between two products
    with Phi. Directions the subsample does not show keep their gradient, times 1 / shift.
    """

    Phi: Array  # (s, M)
    factor: Array  # C, (s, s) lower triangular, C C' = Phi Phi' + s shift
    shift: float
    backend: Backend

    def __call__(self, G: Array) -> Array:
        """(G - Phi' (Phi Phi' + s shift)^-1 Phi G) / shift."""
        solve = self.backend.solve_lower
        inside = solve(self.factor, solve(self.factor, self.Phi @ G), transposed=True)
        return (G - self.Phi.T @ inside) / self.shift
