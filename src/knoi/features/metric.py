"""Transforms of the columns in front of a kernel: standardised columns, or a learned metric.

A kernel of the rows x T measures distances by T T' instead of by the unit of each column. Standard
columns all have the same spread. A learned T comes from the gradients of projections that were
found without it: directions in which they do not change do not matter (the average gradient outer
product of Radhakrishnan et al., Science 2024).
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import dense, is_sparse, product
from knoi.engine import Engine, even_slices
from knoi.features.base import ArraySpec, FeatureMap, copy_columns
from knoi.kernels import Kernel, Linear

# Numbers of a block of gradients and of what they are computed from.
BLOCK_NUMBERS = 2**22
MAX_BLOCK_ROWS = 640


@dataclass(frozen=True)
class LinearTransform(FeatureMap):
    """phi(x) = (x - c) T."""

    kind: ClassVar[str] = "linear_transform"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    T: Annotated[Array, ArraySpec(("d", "M"))]
    centre: Annotated[Array, ArraySpec(("d",))]

    def prepare(self, X: Array) -> Array:
        """Centred rows."""
        return dense(X) - self.centre

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The product with these columns of T."""
        return product(prepared, self.T[:, columns], out=out)

    def gradient(self, X: Array, C: Array) -> Array:
        """C T'."""
        return C @ self.T.T

    def scratch_per_row(self) -> int:
        """The centred row."""
        return self.n_cols


@dataclass(frozen=True)
class ColumnWeights(FeatureMap):
    """phi(x) = x * w, column by column; sparse rows stay sparse."""

    kind: ClassVar[str] = "column_weights"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    w: Annotated[Array, ArraySpec(("d",))]

    @property
    def rank(self) -> int:
        """As many features as columns."""
        return self.n_cols

    def prepare(self, X: Array) -> Array:
        """Weighted rows."""
        return self.sparse_features(X) if is_sparse(X) else X * self.w

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """These columns."""
        return copy_columns(prepared, columns, out)

    def sparse_features(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """Weighted rows, as CSR."""
        return scipy.sparse.csr_array((X.data * self.w[X.indices], X.indices, X.indptr), X.shape)

    def gradient(self, X: Array, C: Array) -> Array:
        """C * w."""
        return C * self.w

    def scratch_per_row(self) -> int:
        """The weighted row."""
        return self.n_cols


@dataclass(frozen=True)
class ColumnScale(ColumnWeights):
    """Column weights that are not learned: each column is divided by its spread."""

    kind: ClassVar[str] = "column_scale"


def metric_of(features: FeatureMap) -> NDArray[np.float64] | None:
    """T T' of the learned transform that a map begins with, (d, d), or squared weights, (d,)."""
    first = getattr(features, "first", None)
    if isinstance(first, LinearTransform):
        T = np.asarray(first.T, dtype=np.float64)
        return T @ T.T
    if isinstance(first, ColumnWeights) and not isinstance(first, ColumnScale):
        return np.square(np.asarray(first.w, dtype=np.float64))
    return None


def gradient_products(
    features: FeatureMap,
    weights: Array,  # (M, L)
    X: Array,  # (n, d)
    *,
    draws: int,
    seed: int,
    view: View,
    backend: Backend,
    engine: Engine,
    diagonal: bool = False,
) -> NDArray[np.float64]:
    """Sum over rows of J' J, J (L, d) the gradients of the projection; its diagonal on request.

    Instead of all L gradients of a row, `draws` of their sums with random signs are taken, which
    have J' J as their mean; with `draws` of at least L, all L. The map is on the backend, rows are
    in main memory; the sums of parts of the rows add up.
    """
    L, d = int(weights.shape[1]), features.n_cols
    W = backend.asarray(weights)
    xp = array_namespace(W)
    n, signs = int(X.shape[0]), min(draws, L)

    def of_rows(block: tuple[int, slice]) -> NDArray[np.float64]:
        number, part = block
        rows = backend.asarray(X[part])
        shape = (part.stop - part.start, L)
        total = np.zeros(d if diagonal else (d, d))
        for k in range(signs):
            if signs == L:
                C = xp.broadcast_to(W[:, k], (shape[0], int(W.shape[0])))
            else:
                draw = generator(seed, Purpose.METRIC, view, number, k)
                C = backend.asarray(draw.choice([-1.0, 1.0], shape)) @ W.T  # (rows, M)
            G = backend.to_numpy(features.gradient(rows, C)).astype(np.float64)
            total += np.einsum("nd,nd->d", G, G) if diagonal else G.T @ G
        return total if signs == L else total / signs

    per_row = int(W.shape[0]) * 2 + 3 * d
    blocks = even_slices(n, max(1, min(MAX_BLOCK_ROWS, BLOCK_NUMBERS // per_row)))
    total = np.zeros(d if diagonal else (d, d))
    numbered = list(enumerate(blocks))
    for start in range(0, len(numbered), engine.n_workers):
        for part in engine.map(of_rows, numbered[start : start + engine.n_workers]):
            total += part
    return total
