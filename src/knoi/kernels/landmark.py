"""Kernel values at fixed landmarks, k(x, Z): what depends on Z alone is computed once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.fast import exponential
from knoi.arrays.sparse import (
    as_csr,
    empty_rows,
    inner_blocks,
    is_sparse,
    numbers_per_row,
    row_of_stored,
    squared_norms,
    with_data,
)

# Largest rounding error of the exponent in the fast Gaussian kernel.
_EXPONENT_ERROR = 1e-4


class LandmarkValues(Protocol):
    """k(., Z) for landmarks Z (m, d), evaluated for one block of landmarks at a time."""

    def prepare(self, X: Array) -> Array:
        """Rows (n, d) in the form that `block` takes, (n, any); computed once for all blocks."""
        ...

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """K of prepared rows and the landmarks `columns`, (n, columns), in `out` if given."""
        ...

    def scratch_per_row(self) -> int:
        """Numbers held per row, prepared and while a block is computed, besides the block."""
        ...


@dataclass(frozen=True)
class DirectValues:
    """Any kernel, evaluated directly between the rows and the landmarks of a block."""

    kernel: Callable[[Array, Array], Array]
    Z: Array  # (m, d)

    def prepare(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Evaluate the kernel."""
        K = self.kernel(prepared, self.Z[columns, :])
        if out is None:
            return K
        out[...] = K
        return out

    def scratch_per_row(self) -> int:
        """The result, a temporary of its size, and the centred row."""
        return int(2 * self.Z.shape[0] + numbers_per_row(self.Z))


@dataclass(frozen=True)
class GaussianValues:
    """exp(x'z - |x|^2/2 - |z|^2/2), for rows in units of the width minus the mean landmark.

    The norms are two more columns of the matrix product, so that a block is one product and one
    exponential.
    """

    centre: Array  # (d,)
    width: float
    landmarks: Array  # (d + 2, m): z, -|z|^2/2, 1
    shift: Array  # (m,) products of z with the centre, for sparse rows, which are not centred

    @classmethod
    def within_precision(cls, Z: Array, width: float) -> Self | None:
        """None if the landmarks are so many widths apart that the product loses precision."""
        xp = array_namespace(Z)
        centre = xp.mean(Z, axis=0)
        scaled = (Z - centre) / width  # (m, d)
        norms = xp.sum(scaled * scaled, axis=1)
        error = float(xp.max(norms)) * float(xp.finfo(Z.dtype).eps)
        if not error < _EXPONENT_ERROR:  # also when a square overflowed
            return None
        m, d = Z.shape
        landmarks = xp.empty((d + 2, m), dtype=Z.dtype, device=device(Z))
        landmarks[:d, :] = scaled.T
        landmarks[d, :] = norms / -2
        landmarks[d + 1, :] = 1.0
        return cls(centre, width, landmarks, xp.matmul(scaled, centre / width))

    def prepare(self, X: Array) -> Array:
        """(x, 1, -|x|^2/2), (n, d + 2), in units of the width; sparse rows are not centred."""
        if is_sparse(X):
            return self._prepare_sparse(X)
        xp = array_namespace(X)
        d = X.shape[1]
        rows = empty_rows(X, d + 2)
        inside = rows[:, :d]
        inside[...] = X
        inside -= self.centre
        inside /= self.width
        # At this distance k is 0 for every landmark; beyond it squares would overflow.
        furthest = float(xp.finfo(X.dtype).max) ** 0.25
        xp.clip(inside, -furthest, furthest, out=inside)
        rows[:, d] = 1.0
        rows[:, d + 1] = xp.sum(inside * inside, axis=1) / -2
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """One product and one exponential."""
        if is_sparse(prepared):
            K = prepared @ self.landmarks[:, columns]
            K -= self.shift[columns]
            return _exponential(K, self.landmarks.dtype, out)
        matmul = array_namespace(prepared).matmul
        return exponential(matmul(prepared, self.landmarks[:, columns], out=out))

    def _prepare_sparse(self, X: Array) -> Array:
        """(x, 1, -|x - centre|^2/2) in float64, which the products need."""
        scaled = _in_widths(X, self.width)
        centre = np.asarray(self.centre, dtype=np.float64) / self.width
        norms = squared_norms(scaled) - 2 * (scaled @ centre) + float(centre @ centre)
        ends = np.stack([np.ones(len(norms)), norms / -2], axis=1)
        return scipy.sparse.hstack([scaled, ends], format="csr")

    def scratch_per_row(self) -> int:
        """The prepared row and its squares."""
        return 2 * int(self.landmarks.shape[0])


@dataclass(frozen=True)
class SparseGaussianValues:
    """`GaussianValues` for sparse landmarks, in float64 and without centring.

    Only the columns in which some landmark is nonzero take part in products; the others count only
    in |x|^2, which is one more column.
    """

    width: float
    landmarks: Array  # (m, c + 1) CSR, in widths: the c columns that occur, and an empty one
    half_norms: Array  # (m,) |z|^2 / 2
    position: NDArray[Any]  # (d,) which of the c columns each column is, c if none of them
    dtype: np.dtype[Any]

    @classmethod
    def within_precision(cls, Z: Array, width: float) -> Self | None:
        """None if the landmarks are so many widths long that the product loses precision."""
        scaled = _in_widths(Z, width)
        norms = squared_norms(scaled)
        if not norms.max(initial=0.0) * np.finfo(np.float64).eps < _EXPONENT_ERROR:
            return None
        columns = np.unique(scaled.indices)
        position = np.full(Z.shape[1], len(columns), dtype=scaled.indices.dtype)
        position[columns] = np.arange(len(columns))
        landmarks = scipy.sparse.csr_array(
            (scaled.data, position[scaled.indices], scaled.indptr),
            shape=(Z.shape[0], len(columns) + 1),
        )
        return cls(width, landmarks, norms / 2, position, Z.dtype)

    def prepare(self, X: Array) -> Array:
        """Rows (n, c + 1) CSR, in widths, ending in |x|^2/2, which is always stored."""
        scaled = _in_widths(as_csr(X), self.width)
        n, c = X.shape[0], self.landmarks.shape[1] - 1
        at = self.position[scaled.indices]
        kept = at < c
        ends = np.zeros(n + 1, dtype=scaled.indptr.dtype)
        np.cumsum(np.bincount(row_of_stored(scaled)[kept], minlength=n) + 1, out=ends[1:])
        last = np.zeros(ends[-1], dtype=bool)
        last[ends[1:] - 1] = True
        data, indices = np.empty(ends[-1]), np.full(ends[-1], c, dtype=at.dtype)
        data[last] = squared_norms(scaled) / 2
        data[~last], indices[~last] = scaled.data[kept], at[kept]
        return scipy.sparse.csr_array((data, indices, ends), shape=(n, c + 1))

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """One sparse product and one exponential."""
        Z, z_norms = self.landmarks[columns, :], self.half_norms[columns]
        x_norms = prepared.data[prepared.indptr[1:] - 1]
        if out is None:
            out = np.empty((prepared.shape[0], Z.shape[0]), self.dtype)
        for rows, block in inner_blocks(prepared, Z):
            block -= x_norms[rows, None]
            block -= z_norms
            _exponential(block, self.dtype, out[rows, :])
        return out

    def scratch_per_row(self) -> int:
        """The prepared row, and sparse and dense products in float64."""
        stored = numbers_per_row(self.landmarks)
        return int((2 * stored + 3 * self.landmarks.shape[0]) * 8 // self.dtype.itemsize)


def _in_widths(X: Array, width: float) -> Array:
    """Sparse rows in float64 and in units of the width."""
    data = X.data.astype(np.float64) / width
    # At this distance k is 0 for every landmark; beyond it squares would overflow.
    furthest = float(np.finfo(np.float64).max) ** 0.25
    return with_data(X, np.clip(data, -furthest, furthest, out=data))


def _exponential(K: NDArray[np.float64], dtype: Any, out: Array | None) -> Array:
    """exp(K) in `dtype`, in `out` if given; rounding may have left K a little above 0."""
    np.minimum(K, 0.0, out=K)
    if out is None:
        out = np.empty(K.shape, dtype)
    out[...] = K
    return exponential(out)
