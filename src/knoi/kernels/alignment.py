"""Learned weights of sums of kernels: those that best align the kernels of the two views.

Centred alignment (Cortes, Mohri & Rostamizadeh, 2012) with the other view as the target,
alternating between the views.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from knoi.arrays.random import Purpose, generator
from knoi.exceptions import InputError
from knoi.kernels.base import Kernel
from knoi.kernels.composite import SumKernel

# Kernel matrices of this size distinguish the parts, and take milliseconds.
SAMPLE_ROWS = 1000
# The unbiased estimate divides by n - 3.
MIN_ROWS = 4
# Parts below this fraction of the largest weight are dropped.
MIN_WEIGHT = 1e-3
MAX_ITERATIONS = 100
# Added to the diagonal of the inner products of parts at unit norm, so that equal parts share the
# weight.
RIDGE = 1e-9


def learn_weights(
    kernels_x: Sequence[Kernel],
    kernels_y: Sequence[Kernel],
    X: NDArray[Any],
    Y: NDArray[Any],
    *,
    seed: int = 0,
    n_rows: int = SAMPLE_ROWS,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Weights a, b >= 0 of the kernels of both views that maximise their alignment.

    .. math:: a^\top C b / \sqrt{a^\top A a \; b^\top B b}

    C holds the dependence between a kernel of X and one of Y, by the unbiased estimate of HSIC
    (Song et al., 2012). It leaves out the diagonals of the kernel matrices: a row is always close
    to itself in both views, so very narrow kernels, which are nearly diagonal, would seem to agree
    perfectly. A and B hold the centred inner products within a view, diagonal included, which
    penalises such kernels.

    Parameters
    ----------
    kernels_x, kernels_y : sequence of Kernel
        The parts, with their widths set.
    X, Y : ndarray (n, dx), (n, dy)
        Paired rows; at most `n_rows` of them are used, drawn at random with `seed`.

    Returns
    -------
    a, b : ndarray
        One weight per kernel, with sum 1; weights below 1e-3 of the largest are 0. All are equal
        if no kernel of one view depends on a kernel of the other.
    """
    n = X.shape[0]
    if Y.shape[0] != n:
        raise InputError(
            f"X has {n} rows but Y has {Y.shape[0]}. The views are paired row by row: drop the "
            "unpaired rows."
        )
    if n < MIN_ROWS:
        raise InputError(
            f"kernel weights cannot be learned from {n} rows: at least {MIN_ROWS} are "
            "needed. Pass more rows, or the weights."
        )
    if n > n_rows:
        rows = np.sort(generator(seed, Purpose.ALIGNMENT).choice(n, n_rows, replace=False))
        X, Y = X[rows, :], Y[rows, :]
    x, y = (
        [np.asarray(kernel(rows, rows), dtype=np.float64) for kernel in kernels]
        for kernels, rows in ((kernels_x, X), (kernels_y, Y))
    )
    (A, x_norms), (B, y_norms) = _products_within(x), _products_within(y)
    C = _products_between(x, y) / np.outer(x_norms, y_norms)
    a, b = np.ones(len(kernels_x)), np.ones(len(kernels_y))
    for _ in range(MAX_ITERATIONS):
        before = a, b
        a = _towards(A, C @ b)
        b = _towards(B, C.T @ a)
        if not (a.any() and b.any()):  # the views are independent
            return np.full(len(a), 1 / len(a)), np.full(len(b), 1 / len(b))
        if max(np.abs(a - before[0]).max(), np.abs(b - before[1]).max()) < 1e-9:
            break
    return _shares(a, x_norms), _shares(b, y_norms)


def with_learned_weights(
    kernels: tuple[Kernel, Kernel], samples: tuple[Any, Any], seed: int
) -> tuple[Kernel, Kernel]:
    """The kernels, with learned weights in sums with `learn`; all widths must be set."""
    sums = [k if isinstance(k, SumKernel) and k.learn else None for k in kernels]
    if sums == [None, None]:
        return kernels
    x_parts, y_parts = (
        (kernel,) if own is None else own.parts for kernel, own in zip(kernels, sums, strict=True)
    )
    weights = learn_weights(x_parts, y_parts, samples[0], samples[1], seed=seed)
    x, y = (
        kernel if own is None else own.with_weights([float(w) for w in learned])
        for kernel, own, learned in zip(kernels, sums, weights, strict=True)
    )
    return x, y


def _products_within(
    matrices: list[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inner products of centred matrices at unit norm, and the norms (infinite for constants)."""
    centred = []
    for K in matrices:
        means = K.mean(axis=0)
        centred.append((K - means - means[:, None] + means.mean()).ravel())
    norms = np.array([np.linalg.norm(one) for one in centred])
    scale = np.array([np.abs(K).max() for K in matrices]) * len(matrices[0])
    norms[norms <= 1e-12 * scale] = np.inf  # constant up to rounding: gets no weight
    unit = np.stack(centred) / norms[:, None]
    return unit @ unit.T, norms


def _products_between(
    x: list[NDArray[np.float64]], y: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """n^2 times the unbiased estimate of HSIC between every matrix of x and every one of y."""
    n = len(x[0])
    left, right = (np.stack([_without_diagonal(K) for K in one]) for one in (x, y))
    products: NDArray[np.float64] = left @ right.T
    return products * (n / (n - 3))


def _without_diagonal(K: NDArray[np.float64]) -> NDArray[np.float64]:
    """K with row, column and overall means off the diagonal subtracted and a zero diagonal, flat.

    Inner products of such matrices, divided by n (n - 3), are the unbiased estimate of HSIC.
    """
    n = len(K)
    K = K.copy()
    np.fill_diagonal(K, 0.0)
    sums = K.sum(axis=0)
    K -= sums / (n - 2)
    K -= sums[:, None] / (n - 2)
    K += sums.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(K, 0.0)
    return K.ravel()


def _towards(A: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """The unit vector a >= 0 with the largest a'c / sqrt(a'Aa); zeros if no entry of c is positive.

    Its direction is that of the minimum of a'Aa - 2 a'c, a least-squares problem in R a.
    """
    R = np.linalg.cholesky(A + RIDGE * np.eye(len(A))).T
    a: NDArray[np.float64] = nnls(R, np.linalg.solve(R.T, c))[0]
    length = np.linalg.norm(a)
    return a / length if length > 0 else a


def _shares(unit: NDArray[np.float64], norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """From weights of matrices at unit norm to weights of the matrices, with sum 1."""
    weights: NDArray[np.float64] = unit / norms
    weights[weights < MIN_WEIGHT * weights.max()] = 0.0
    weights /= weights.sum()
    return weights
