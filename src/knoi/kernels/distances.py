"""How far apart rows are: the (n, m) distances the kernels are made of.

Every function here works on rows already brought to a common scale by `rescale`, so that squares
neither overflow nor underflow, whatever unit the data came in, and float32 keeps its digits.
Rows may be CSR, which goes its own way (`knoi.kernels.sparse_distances`).
"""

import math
from collections.abc import Callable, Iterator

import array_api_compat
import numpy as np

from knoi.arrays.backend import Array
from knoi.arrays.sparse import dense, is_sparse
from knoi.kernels import sparse_distances


def rescale(X: Array, Z: Array, *, centre: bool) -> tuple[Array, Array, float]:
    """X and Z with one shift (if `centre`) and one scale taken off: entries in (-2, 2).

    Any common shift leaves differences as they are; the mean of Z is the one that saves digits
    when the data lie far from the origin. The scale is a power of two, so dividing is exact.
    If X or Z is sparse both become so, and are not centred, which would fill them.

    Returns
    -------
    Xs, Zs : arrays (n, d), (m, d)
        Copies; one and the same array if `X is Z`.
    scale : float
        X - shift = scale * Xs.
    """
    if is_sparse(X) or is_sparse(Z):
        return sparse_distances.rescaled(X, Z)
    xp = array_api_compat.array_namespace(X, Z)
    same = X is Z
    if centre:
        shift = xp.mean(Z, axis=0, keepdims=True)  # (1, d)
        X = X - shift
        Z = X if same else Z - shift
    largest = max(_largest(X), _largest(Z))
    # frexp gives largest = f * 2^e with f in [1/2, 1), so largest / scale is in [1, 2).
    scale = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0 else 1.0
    if not centre:
        Xs = X / scale
        return Xs, Xs if same else Z / scale, scale
    X /= scale  # our own copies by now
    if not same:
        Z /= scale
    return X, Z, scale


def widths_per_unit(scale: float, width: float, like: Array) -> float:
    """`scale / width`, capped where a kernel has long vanished and its powers would overflow."""
    like = like.data if is_sparse(like) else like
    xp = array_api_compat.array_namespace(like)
    cap = float(xp.finfo(like.dtype).max) ** 0.33
    return scale / width if scale < cap * width else cap


def squared_euclidean(X: Array, Z: Array) -> Array:
    """||x - z||^2 for rescaled rows, (n, m); exactly 0 where two rows are identical.

    One matrix product gives |x|^2 + |z|^2 - 2 x.z, which loses its digits where x and z are close
    to one another. Those pairs, few as a rule, are done again from their differences: without
    it a non-smooth kernel such as exp(-r) is off by 1e-3 in float32 between equal rows.
    """
    if is_sparse(X):
        return sparse_distances.squared_euclidean(X, Z)
    xp = array_api_compat.array_namespace(X, Z)
    x_norms = xp.sum(X * X, axis=1)[:, None]  # (n, 1)
    z_norms = xp.sum(Z * Z, axis=1)[None, :]  # (1, m)
    D = xp.matmul(X, Z.T)  # (n, m)
    # Balances the rounding left in the other pairs (eps / close) against the pairs done twice.
    close = float(xp.finfo(D.dtype).eps) ** (1 / 3)
    for rows in row_blocks(D):
        block = D[rows]
        norms = x_norms[rows] + z_norms
        block *= -2.0
        block += norms
        norms *= close
        _redo_from_differences(block, block <= norms, X[rows], Z)
    return D


def manhattan(X: Array, Z: Array) -> Array:
    """sum_j |x_j - z_j| for rescaled rows, (n, m)."""
    if is_sparse(X):
        if not sparse_distances.hardly_sparse(X, Z):
            return sparse_distances.manhattan(X, Z)
        X, Z = dense(X), dense(Z)
    xp = array_api_compat.array_namespace(X, Z)

    def add_column(block: Array, x: Array, z: Array, spare: Array) -> None:
        xp.subtract(x, z, out=spare)
        xp.abs(spare, out=spare)
        block += spare

    return fold_columns(X, Z, start=0.0, step=add_column)


def chi_square(X: Array, Z: Array) -> Array:
    """sum_j (x_j - z_j)^2 / (x_j + z_j) for nonnegative rescaled rows, (n, m); 0/0 counts as 0."""
    if is_sparse(X):
        if not sparse_distances.hardly_sparse(X, Z):
            return sparse_distances.chi_square(X, Z)
        X, Z = dense(X), dense(Z)
    xp = array_api_compat.array_namespace(X, Z)
    tiny = float(xp.finfo(X.dtype).smallest_normal)

    def add_column(block: Array, x: Array, z: Array, spare: Array) -> None:
        xp.subtract(x, z, out=spare)
        # The ratio first, which is in [-1, 1]: the square of a small difference could underflow.
        ratio = x + (z + tiny)
        xp.divide(spare, ratio, out=ratio)
        spare *= ratio
        block += spare

    return fold_columns(X, Z, start=0.0, step=add_column)


def cauchy_product(X: Array, Z: Array) -> Array:
    """prod_j 1 / (1 + (x_j - z_j)^2), (n, m)."""
    if is_sparse(X):
        if not sparse_distances.hardly_sparse(X, Z):
            L = sparse_distances.cauchy_logarithm(X, Z)
            L *= -1.0
            return np.exp(L, out=L)
        X, Z = dense(X), dense(Z)
    xp = array_api_compat.array_namespace(X, Z)

    def divide_by_column(block: Array, x: Array, z: Array, spare: Array) -> None:
        xp.subtract(x, z, out=spare)
        spare *= spare
        spare += 1.0
        block /= spare  # a product of many denominators would overflow; this fades to 0

    return fold_columns(X, Z, start=1.0, step=divide_by_column)


def fold_columns(
    X: Array, Z: Array, *, start: float, step: Callable[[Array, Array, Array, Array], None]
) -> Array:
    """An (n, m) result built up column by column of the data, so that no (n, m, d) array exists.

    `step(block, x, z, spare)` folds one column, x (rows, 1) and z (1, m), into `block` (rows, m) in
    place; `spare` is scratch of the same shape. Rows go in blocks that stay in cache.
    """
    xp = array_api_compat.array_namespace(X, Z)
    n, d = X.shape
    m = Z.shape[0]
    where = {"dtype": X.dtype, "device": array_api_compat.device(X)}
    D = xp.full((n, m), start, **where)
    columns = xp.empty((d, m), **where)
    columns[...] = Z.T  # a column of Z is contiguous now: three times as fast
    for rows in row_blocks(D):
        block = D[rows]
        spare = xp.empty_like(block)
        for j in range(d):
            step(block, X[rows, j][:, None], columns[j][None, :], spare)
    return D


def row_blocks(D: Array) -> Iterator[slice]:
    """Slices of the rows of D (n, m), each about as much as a cache holds."""
    # An accelerator has no use for small blocks: there each call must be worth its launch.
    elements = 2**17 if str(array_api_compat.device(D)) == "cpu" else 2**24
    n, m = D.shape
    height = max(1, elements // max(1, m))
    for start in range(0, n, height):
        yield slice(start, min(start + height, n))


def _redo_from_differences(D: Array, wrong: Array, X: Array, Z: Array) -> None:
    """Overwrite D[i, j] by ||X[i] - Z[j]||^2 wherever `wrong` is true."""
    xp = array_api_compat.array_namespace(D)
    # One flat nonzero is ten times faster than a two-dimensional one.
    (flat,) = xp.nonzero(xp.reshape(wrong, (-1,)))
    m, d = Z.shape
    at_once = max(1, 2**18 // max(1, d))
    for start in range(0, flat.shape[0], at_once):
        chosen = flat[start : start + at_once]
        i, j = chosen // m, chosen % m
        difference = X[i, :] - Z[j, :]  # (at_once, d)
        difference *= difference
        D[i, j] = xp.sum(difference, axis=1)


def _largest(X: Array) -> float:
    """Largest absolute entry, 0 for an empty X."""
    if 0 in X.shape:
        return 0.0
    xp = array_api_compat.array_namespace(X)
    return max(float(xp.max(X)), -float(xp.min(X)))
