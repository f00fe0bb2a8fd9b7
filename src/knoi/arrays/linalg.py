"""The dense algebra of CCA in float64: whitening that survives singular views, leading SVDs."""

from dataclasses import dataclass

import numpy as np

from knoi.arrays.backend import Array, Backend


@dataclass(frozen=True)
class Whitener:
    """W with W' (S + r I) W = I on the directions that carry variance.

    Held as `scale * factor`: either a Cholesky factor C of the equilibrated matrix (W = D C^-T) or
    its eigenvectors divided by root eigenvalues (W = D E), whichever the conditioning allows.
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
            return self.backend.solve_lower(self.factor, scaled)
        return self.factor.T @ scaled

    def unwhiten(self, A: Array) -> Array:
        """W A: from whitened coordinates to weights on the features."""
        if self.triangular:
            return self.scale[:, None] * self.backend.solve_lower(self.factor, A, transposed=True)
        return self.scale[:, None] * (self.factor @ A)


def whitener(S: Array, r: float, precision: float, backend: Backend) -> Whitener:
    """Whiten S + r I, where the entries of S are known to a relative `precision`; overwrites S.

    S is first scaled to unit diagonal, so that neither the scale of the view nor that of a single
    column decides what counts as zero. A regulariser well above the noise of S makes Cholesky safe;
    otherwise eigenvalues under the noise are dropped (duplicated columns, more columns than rows).
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
        return Whitener(backend, scale, backend.cholesky(S), triangular=True)
    values, vectors = xp.linalg.eigh(S)
    kept = values > noise
    return Whitener(backend, scale, vectors[:, kept] / xp.sqrt(values[kept]), triangular=False)


def top_svd(T: Array, k: int, backend: Backend) -> tuple[Array, Array, Array]:
    """The k leading singular triplets of T: U (m, k), s (k,) descending, V (n, k).

    For k far below the size of T the leading eigenvectors of T T' are all that is computed. That
    squares the singular values: where the wanted ones are too small to bear it, or T is small, the
    full SVD is taken.
    """
    xp = backend.xp
    if k * 12 < min(T.shape):
        values, U = backend.top_eigh(T @ T.T, k)
        s = xp.sqrt(xp.clip(values, 0.0, None))
        # LAPACK may find fewer vectors than asked for where many eigenvalues are equal.
        if len(s) == k and float(s[-1]) > 1e-4 * float(s[0]):
            return U, s, (T.T @ U) / s
    U, s, Vh = xp.linalg.svd(T, full_matrices=False)
    return U[:, :k], s[:k], Vh[:k, :].T
