"""Closed forms: CCA from covariances (primal) and kernel CCA from kernel matrices (dual)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.linalg import Whitener, top_svd, whitener
from knoi.exceptions import InputError
from knoi.solvers.moments import Covariances


@dataclass(frozen=True)
class Solution:
    """Weights on the features and the correlations they reach, ordered, in float64 NumPy."""

    U: NDArray[Any]  # (Mx, L)
    V: NDArray[Any]  # (My, L)
    correlations: NDArray[Any]  # (L,)


def solve_primal(
    moments: Covariances, n_components: int, reg: tuple[float, float], backend: Backend
) -> Solution:
    """The top-L SVD of T = (Sxx + rx I)^-1/2 Sxy (Syy + ry I)^-1/2; overwrites the covariances.

    `reg` is relative to the total variance of the view's features: rx = reg[0] * trace(Sxx). So a
    change of units changes nothing, and the same number means the same whatever the rank.
    """
    whiteners = [
        whitener(S, relative * float(backend.xp.linalg.trace(S)), moments.precision, backend)
        for S, relative in ((moments.Sxx, reg[0]), (moments.Syy, reg[1]))
    ]
    _check_rank(n_components, [w.rank for w in whiteners])
    Wx, Wy = whiteners
    T = Wy.whiten(Wx.whiten(moments.Sxy).T).T  # (rank_x, rank_y)
    return _solution(T, Wx, Wy, n_components, backend)


def solve_dual(
    Kx: Array,  # (N, N)
    Ky: Array,  # (N, N)
    n_components: int,
    reg: tuple[float, float],
    precision: float,
    backend: Backend,
) -> Solution:
    """Exact kernel CCA from the kernel matrices of the training rows, which it overwrites.

    Solves the eigenproblem of (Kx + N rx I)^-1 Ky (Ky + N ry I)^-1 Kx on centred kernels through
    the eigenvectors of each: with Kx = E diag(l) E', the features E diag(sqrt(l)) are linear CCA's,
    and its weights turn into coefficients on kernel columns. The coefficients have zero sum in
    every component, so that centring a test row's kernel values needs only their training means.
    """
    xp, N = backend.xp, int(Kx.shape[0])
    bases, spectra, shrunk = [], [], []
    for K, relative in ((Kx, reg[0]), (Ky, reg[1])):
        K -= xp.mean(K, axis=0)[None, :]
        K -= xp.mean(K, axis=1)[:, None]
        values, vectors = xp.linalg.eigh(K)
        kept = values > precision * N * float(values[-1])
        values, vectors = values[kept], vectors[:, kept]
        r = relative * float(xp.sum(values)) / N  # total variance of the features: trace(K) / N
        bases.append(vectors)  # (N, rank)
        spectra.append(values)
        shrunk.append(xp.sqrt(values / N + r))
    _check_rank(n_components, [int(values.shape[0]) for values in spectra])
    (Ex, Ey), (lx, ly), (wx, wy) = bases, spectra, shrunk
    T = (xp.sqrt(lx) / wx)[:, None] * (Ex.T @ Ey) * (xp.sqrt(ly) / wy)[None, :] / N
    left, s, right = top_svd(T, n_components, backend)
    A = Ex @ (left / (xp.sqrt(lx) * wx)[:, None])
    B = Ey @ (right / (xp.sqrt(ly) * wy)[:, None])
    return _ordered(A - xp.mean(A, axis=0), B - xp.mean(B, axis=0), s, backend)


def _solution(T: Array, Wx: Whitener, Wy: Whitener, L: int, backend: Backend) -> Solution:
    left, s, right = top_svd(T, L, backend)
    return _ordered(Wx.unwhiten(left), Wy.unwhiten(right), s, backend)


def _ordered(U: Array, V: Array, s: Array, backend: Backend) -> Solution:
    """To NumPy, with the sign of each component fixed so that equal fits look equal."""
    U, V, s = (np.array(backend.to_numpy(a)) for a in (U, V, s))
    largest = np.argmax(np.abs(U), axis=0)
    signs = np.where(U[largest, np.arange(U.shape[1])] < 0, -1.0, 1.0)
    return Solution(U * signs, V * signs, np.clip(s, 0.0, 1.0))


def _check_rank(n_components: int, ranks: list[int]) -> None:
    if n_components > min(ranks):
        view = "XY"[int(np.argmin(ranks))]
        raise InputError(
            f"n_components={n_components} but view {view} varies in only {min(ranks)} independent "
            f"directions (constant and duplicated columns do not count). "
            f"Set n_components to at most {min(ranks)}."
            if min(ranks) > 0
            else f"view {view} does not vary: all its rows are the same. Check the data of {view}."
        )
