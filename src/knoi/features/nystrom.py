"""Features from kernel values at landmarks: bare columns k(x, Z), and their Nystrom whitening."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays.backend import Array
from knoi.engine import even_slices
from knoi.features.base import ArraySpec, FeatureMap, Identity
from knoi.kernels import Kernel
from knoi.kernels.base import check_definite
from knoi.kernels.distances import LandmarkValues
from knoi.kernels.supplied import Precomputed


@dataclass(frozen=True)
class KernelColumns(FeatureMap):
    """phi(x) = k(x, Z): what exact kernel CCA and landmark solvers project with."""

    kind: ClassVar[str] = "kernel_columns"
    kernel: Kernel
    landmarks: Annotated[Array, ArraySpec(("M", "d"), sparse=True)]  # Z

    @property
    def kernel_columns(self) -> "KernelColumns":
        """Itself."""
        return self

    @cached_property
    def _values(self) -> LandmarkValues:
        return self.kernel.at_landmarks(self.landmarks)

    def prepare(self, X: Array) -> Array:
        """Rows in the form that the kernel works on."""
        return self._values.prepare(X)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Kernel values at these landmarks."""
        return self._values.block(prepared, columns, out)

    def gradient(self, X: Array, C: Array) -> Array:
        """That of the kernel."""
        return self.kernel.gradient(X, self.landmarks, C)

    def scratch_per_row(self) -> int:
        """What the kernel takes."""
        return self._values.scratch_per_row()


@dataclass(frozen=True)
class GivenColumns(Identity):
    """Rows that are kernel values k(x, Z) already, with the training rows as Z: nothing to compute.

    A model keeps how many there are, and none of the values.
    """

    kind: ClassVar[str] = "given_columns"
    kernel: ClassVar[Kernel] = Precomputed()  # type: ignore[misc]


@dataclass(frozen=True)
class Nystrom(FeatureMap):
    """phi(x) = k(x, Z) P with P P' = pseudo-inverse of K_ZZ, so that phi reproduces k on Z exactly.

    P holds eigenvectors over root eigenvalues. Directions of K_ZZ at rounding level are left out,
    so duplicate landmarks cost rank and nothing else: `rank` can be below the number of landmarks.
    """

    kind: ClassVar[str] = "nystrom"
    columns: KernelColumns
    P: Annotated[Array, ArraySpec(("columns.rank", "M"))]

    @classmethod
    def fit(cls, landmarks: Array, kernel: Kernel) -> Self:
        """Whiten the kernel at the landmarks; the eigen-decomposition is float64 always."""
        Z = landmarks.astype(np.float64)
        K = kernel(Z, Z)
        values, vectors = np.linalg.eigh((K + K.T) / 2)
        check_definite(values[0], values[-1], f"the matrix of the kernel {kernel.name}")
        # Below the precision features are computed in, or that of this decomposition, a direction
        # is noise divided by almost nothing.
        precision = max(np.finfo(landmarks.dtype).eps, Z.shape[0] * np.finfo(np.float64).eps)
        kept = values > precision * values[-1]
        P = vectors[:, kept] / np.sqrt(values[kept])
        # Contiguous: a product with a reversed view would copy it each time.
        return cls(KernelColumns(kernel, landmarks), np.ascontiguousarray(P[:, ::-1]))

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The kernel that is approximated."""
        return self.columns.kernel

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the landmarks; P is fitted in float64."""
        return self.columns.dtype

    def prepare(self, X: Array) -> Array:
        """All of k(x, Z), which every block needs."""
        return self.columns.block(self.columns.prepare(X), slice(0, self.columns.rank))

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Whitened kernel values."""
        xp = array_namespace(prepared)
        return xp.matmul(prepared, self.P[:, columns], out=out)

    def gradient(self, X: Array, C: Array) -> Array:
        """That of the kernel, whitened."""
        return self.columns.gradient(X, C @ self.P.T)

    def folded(self, mean: Array, weights: Array) -> tuple[FeatureMap, Array, Array]:
        """k(x, Z) and P W: the product of the two matrices once, instead of once per row.

        The columns of P are orthogonal, so that its pseudo-inverse is P' over their squared norms.
        """
        norms = np.sum(np.square(self.P), axis=0, dtype=np.float64)
        onto = np.column_stack([mean / norms, weights])  # (M, 1 + L)
        # Piece by piece, so that a copy of P in double precision is never whole.
        pieces = [self.P[rows].astype(np.float64) @ onto for rows in even_slices(len(self.P), 1024)]
        both = np.concatenate(pieces)
        return self.columns, both[:, 0], both[:, 1:]

    def scratch_per_row(self) -> int:
        """The kernel columns, and what they take."""
        return self.columns.rank + self.columns.scratch_per_row()
