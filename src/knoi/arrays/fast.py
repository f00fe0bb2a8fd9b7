"""Fast functions of features: cosine, exponential and Hadamard transform of rows, in place.

Arrays in main memory, of NumPy or torch, use the loops compiled by numba (`knoi.arrays.compiled`)
where numba is installed; everything else uses the functions of the array's namespace. Both give
the same numbers to rounding.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, device, is_torch_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array, in_main_memory

# The fewest columns to pad to before a Hadamard transform. Products of signs and small Hadamard
# matrices have too few distinct rows to replace random directions: with 64 columns the kernel of
# 2 columns is off by 0.002, with 256 by less than is visible.
MIN_HADAMARD_SIZE = 256
# Cosine and sine features come in runs: so many cosines, then as many sines.
PAIRED_RUN = 128
# The largest Hadamard matrix that is multiplied by: larger ones are products of smaller ones.
LARGEST_FACTOR = 256


def numbers_at_once(like: Array) -> int:
    """How many numbers to work on at a time: what fits in the cache, or is worth a launch."""
    return 2**17 if in_main_memory(like) else 2**24


@cache
def compiled() -> Any:
    """The module of compiled loops; None where numba is missing or compilation is disabled."""
    try:
        import numba
    except ImportError:
        return None
    if numba.config.DISABLE_JIT:
        return None
    from knoi.arrays import compiled as loops

    return loops


def compilable(*arrays: Array) -> list[NDArray[Any]] | None:
    """NumPy views of the arrays, or None where compiled loops cannot take them.

    They take arrays in main memory, of one precision, with contiguous rows.
    """
    views = [
        array.numpy() if is_torch_array(array) and in_main_memory(array) else array
        for array in arrays
    ]
    if not all(isinstance(view, np.ndarray) for view in views):
        return None
    dtype = views[0].dtype
    if dtype not in (np.float32, np.float64):
        return None
    alike = all(view.dtype == dtype and view.strides[-1] == dtype.itemsize for view in views)
    return views if alike and compiled() is not None else None


def cosine(F: Array, amplitude: float) -> Array:
    """Replace F (n, m) by amplitude cos(2 pi F): the argument is in turns."""
    if views := compilable(F):
        compiled().cosine(views[0], views[0].dtype.type(amplitude))
        return F
    xp = array_namespace(F)
    F -= xp.round(F)
    F *= 2 * math.pi
    xp.cos(F, out=F)
    F *= amplitude
    return F


def exponential(F: Array) -> Array:
    """Replace F (n, m) by exp(F)."""
    if views := compilable(F):
        compiled().exponential(views[0])
        return F
    return array_namespace(F).exp(F, out=F)


def hadamard_size(d: int) -> int:
    """The size to pad d columns to: a power of two, at least `MIN_HADAMARD_SIZE`."""
    return max(MIN_HADAMARD_SIZE, 1 << (d - 1).bit_length())


def hadamard(X: Array) -> Array:
    """X H for the rows of X (n, 2^k), k >= 3, H the Hadamard matrix of +1 and -1; overwrites X.

    The result is in the order in which compiled loops write it: entry (i, j) of the usual order,
    seen as (size / 8, 8), is at (j, i). Permuting the bits of the index on both sides leaves H as
    it is, so products of several transforms and signs only have their rows in another order.
    """
    if X.shape[1] >= MIN_HADAMARD_SIZE and (views := compilable(X)):
        compiled().hadamard_rows(views[0])
        return X
    xp = array_namespace(X)
    n, size = X.shape
    # H is the Kronecker product of H (size / 8) and H (8).
    turned = xp.permute_dims(xp.reshape(X, (n, size // 8, 8)), (0, 2, 1))
    turned = xp.matmul(_hadamard_matrix(8, X), turned)  # (n, 8, size / 8)
    return xp.reshape(_times_hadamard(xp.reshape(turned, (8 * n, size // 8))), (n, size))


def _times_hadamard(X: Array) -> Array:
    """X H for the rows of X (n, size), in the usual order."""
    xp = array_namespace(X)
    n, size = X.shape
    if size <= LARGEST_FACTOR:
        return xp.matmul(X, _hadamard_matrix(size, X))
    parts = xp.reshape(X, (n, size // LARGEST_FACTOR, LARGEST_FACTOR))
    parts = xp.matmul(parts, _hadamard_matrix(LARGEST_FACTOR, X))
    turned = xp.reshape(xp.permute_dims(parts, (0, 2, 1)), (-1, size // LARGEST_FACTOR))
    parts = xp.reshape(_times_hadamard(turned), (n, LARGEST_FACTOR, size // LARGEST_FACTOR))
    return xp.reshape(xp.permute_dims(parts, (0, 2, 1)), (n, size))


def _hadamard_matrix(size: int, like: Array) -> Array:
    return _placed_hadamard_matrix(size, array_namespace(like), like.dtype, device(like))


@cache  # else it would be uploaded for every block of features
def _placed_hadamard_matrix(size: int, xp: Any, dtype: Any, place: Any) -> Array:
    return xp.asarray(scipy.linalg.hadamard(size), dtype=dtype, device=place)
