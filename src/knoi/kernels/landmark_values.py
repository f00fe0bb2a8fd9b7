"""Kernel values against fixed landmarks, k(x, Z): what depends on Z alone is computed once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from array_api_compat import array_namespace, device

from knoi.arrays.backend import Array

# Rounding of the exponent that the fast Gaussian may have.
_EXPONENT_ERROR = 1e-4


class KernelValues(Protocol):
    """k(., Z) for landmarks Z (m, d), block of landmarks by block."""

    def prepare(self, X: Array) -> Array:
        """Rows (n, d) in the form `block` wants, (n, any); the same for all blocks."""
        ...

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """K of prepared rows against landmarks `columns`, (n, columns), in `out` if given."""
        ...

    def scratch_per_row(self) -> int:
        """Numbers held for one row, prepared and while a block is computed, besides the block."""
        ...


@dataclass(frozen=True)
class EachTime:
    """Any kernel: rows are compared with the landmarks of a block from scratch."""

    kernel: Callable[[Array, Array], Array]
    Z: Array  # (m, d)

    def prepare(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The kernel between the rows and the landmarks."""
        K = self.kernel(prepared, self.Z[columns, :])
        if out is None:
            return K
        out[...] = K
        return out

    def scratch_per_row(self) -> int:
        """The kernel's result and one temporary of its size, and the centred row."""
        m, d = self.Z.shape
        return int(2 * m + d)


@dataclass(frozen=True)
class GaussianValues:
    """exp(x'z - |x|^2/2 - |z|^2/2), rows in units of the width and less the mean landmark.

    The two norms ride in the product, as two more columns, so that a block is one matrix product
    and one exponential.
    """

    centre: Array  # (d,)
    width: float
    landmarks: Array  # (d + 2, m): z, -|z|^2/2, 1

    @classmethod
    def within_precision(cls, Z: Array, width: float) -> Self | None:
        """None where the landmarks lie so many widths apart that the product loses its digits."""
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
        return cls(centre, width, landmarks)

    def prepare(self, X: Array) -> Array:
        """(x, 1, -|x|^2/2), (n, d + 2), in units of the width."""
        xp = array_namespace(X)
        n, d = X.shape
        rows = xp.empty((n, d + 2), dtype=X.dtype, device=device(X))
        inside = rows[:, :d]
        inside[...] = X
        inside -= self.centre
        inside /= self.width
        # So far out that k is 0 against every landmark; beyond, squares would overflow.
        furthest = float(xp.finfo(X.dtype).max) ** 0.25
        xp.clip(inside, -furthest, furthest, out=inside)
        rows[:, d] = 1.0
        rows[:, d + 1] = xp.sum(inside * inside, axis=1) / -2
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """One product, one exponential."""
        xp = array_namespace(prepared)
        K = xp.matmul(prepared, self.landmarks[:, columns], out=out)
        return xp.exp(K, out=K)

    def scratch_per_row(self) -> int:
        """The prepared row and its squares."""
        return 2 * int(self.landmarks.shape[0])
