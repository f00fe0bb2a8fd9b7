"""Dense linear algebra in float64: triangular solves, leading SVDs, whitening of singular views."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend

# Rows per block of a triangular solve. SciPy's solver holds the GIL, so it gets only the diagonal
# blocks, a share of 256 / M of the work; matrix products do the rest and let other threads run.
SOLVE_BLOCK = 256


def cholesky(S: Array, backend: Backend) -> Array:
    """Lower Cholesky factor of a symmetric matrix; may overwrite S."""
    if backend.is_numpy:
        # LAPACK works in place on column-major memory: pass the transpose of the symmetric S.
        return scipy.linalg.cholesky(S.T, lower=True, overwrite_a=True, check_finite=False)
    return backend.xp.linalg.cholesky(S)


def solve_lower(C: Array, B: Array, backend: Backend, *, transposed: bool = False) -> Array:
    """C^-1 B, or C^-T B, for a lower triangular C (M, M); entries above its diagonal are unused."""
    if backend.is_numpy:
        return _solve_by_blocks(C, B, transposed=transposed)
    matrix = C.mT if transposed else C
    return backend.xp.linalg.solve_triangular(matrix, B, upper=transposed)


def _solve_by_blocks(C: NDArray[Any], B: NDArray[Any], *, transposed: bool) -> NDArray[Any]:
    """Solve one diagonal block after the other, less the contribution of those already solved."""
    M = len(C)
    X = np.array(B, dtype=np.result_type(C, B), order="F")
    starts = range(0, M, SOLVE_BLOCK)
    for start in reversed(starts) if transposed else starts:
        own = slice(start, min(start + SOLVE_BLOCK, M))
        if transposed:
            X[own] -= C[own.stop :, own].T @ X[own.stop :]
        else:
            X[own] -= C[own, :start] @ X[:start]
        X[own] = scipy.linalg.solve_triangular(
            C[own, own], X[own], lower=True, trans="T" if transposed else "N", check_finite=False
        )
    return X


def top_eigh(S: Array, k: int, backend: Backend) -> tuple[Array, Array]:
    """The k largest eigenvalues of a symmetric matrix, descending, and their eigenvectors."""
    if backend.is_numpy:
        last = len(S) - 1
        values, vectors = scipy.linalg.eigh(
            S, subset_by_index=[last - k + 1, last], overwrite_a=True, check_finite=False
        )
        return values[::-1], vectors[:, ::-1]
    values, vectors = backend.xp.linalg.eigh(S)
    return backend.xp.flip(values, axis=0)[:k], backend.xp.flip(vectors, axis=1)[:, :k]


def top_svd(T: Array, k: int, backend: Backend) -> tuple[Array, Array, Array]:
    """The k leading singular triplets of T: U (m, k), s (k,) descending, V (n, k).

    For k far below the size of T only the leading eigenvectors of T T' are computed. That squares
    the singular values: where the leading ones are too small for it, or T is small, the full SVD
    is computed.
    """
    xp = backend.xp
    if k * 12 < min(T.shape):
        values, U = top_eigh(T @ T.T, k, backend)
        s = xp.sqrt(xp.clip(values, 0.0, None))
        # LAPACK may return fewer than k vectors where many eigenvalues are equal.
        if len(s) == k and float(s[-1]) > 1e-4 * float(s[0]):
            return U, s, (T.T @ U) / s
    U, s, Vh = xp.linalg.svd(T, full_matrices=False)
    return U[:, :k], s[:k], Vh[:k, :].T


@dataclass(frozen=True)
class Whitener:
    """W with W' (S + r I) W = I on the directions that carry variance.

    Held as `scale * factor`: either a Cholesky factor C of the equilibrated matrix (W = D C^-T) or
    its eigenvectors divided by root eigenvalues (W = D E), depending on the conditioning.
    """

    backend: Backend
    scale: Array  # (M,)   D, the equilibration
    factor: Array  # (M, M) lower triangular, or (M, rank)
    triangular: bool

    @property
    def rank(self) -> int:
        """Number of directions that carry variance."""
        return int(self.factor.shape[1])

    def whiten(self, B: Array) -> Array:
        """W' B."""
        scaled = self.scale[:, None] * B
        if self.triangular:
            return solve_lower(self.factor, scaled, self.backend)
        return self.factor.T @ scaled

    def unwhiten(self, A: Array) -> Array:
        """W A: from whitened coordinates to weights on the features."""
        if self.triangular:
            A = solve_lower(self.factor, A, self.backend, transposed=True)
            return self.scale[:, None] * A
        return self.scale[:, None] * (self.factor @ A)


def whitener(S: Array, r: float, precision: float, backend: Backend) -> Whitener:
    """Whiten S + r I, where the entries of S are known to a relative `precision`; overwrites S.

    S is first scaled to unit diagonal, so that neither the scale of the view nor that of a single
    column decides what counts as zero. A regulariser well above the noise of S makes Cholesky safe;
    otherwise eigenvalues below the noise are dropped (duplicated columns, more columns than rows).
    """
    xp = backend.xp
    diagonal = xp.arange(S.shape[0], **backend.placement)
    variance = backend.to_numpy(S[diagonal, diagonal]) + r  # (M,)
    live = variance > 0
    d = np.zeros_like(variance)
    d[live] = 1 / np.sqrt(variance[live])
    scale = backend.asarray(d, "float64")
    S *= scale[:, None]
    S *= scale[None, :]
    S[diagonal, diagonal] = backend.asarray(live, "float64")
    noise = 32 * precision * len(d) ** 0.5
    # r d^2 is the least eigenvalue of the scaled matrix: above the noise, Cholesky cannot fail.
    if live.all() and r * float(np.min(d)) ** 2 > noise:
        return Whitener(backend, scale, cholesky(S, backend), triangular=True)
    values, vectors = xp.linalg.eigh(S)
    kept = values > noise
    return Whitener(backend, scale, vectors[:, kept] / xp.sqrt(values[kept]), triangular=False)
