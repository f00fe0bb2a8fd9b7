"""Elementwise functions of features, in place: compiled where numba is there, else the namespace's.

Both give the same numbers to rounding. Compiled loops serve arrays in main memory; tensors go
through their namespace.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays import hadamard
from knoi.arrays.backend import Array


@cache
def compiled() -> Any:
    """The module of compiled loops; None where numba is missing or told not to compile."""
    try:
        import numba
    except ImportError:
        return None
    if numba.config.DISABLE_JIT:
        return None
    from knoi.arrays import compiled as loops

    return loops


def can_compile(*arrays: Array) -> bool:
    """Whether compiled loops take these arrays: NumPy's, of one precision, rows in one piece."""
    if not all(isinstance(a, np.ndarray) for a in arrays):
        return False
    dtype = arrays[0].dtype
    if dtype not in (np.float32, np.float64):
        return False
    alike = all(a.dtype == dtype and a.strides[-1] == dtype.itemsize for a in arrays)
    return alike and compiled() is not None


def cosine(F: Array, amplitude: float) -> Array:
    """Put amplitude cos(2 pi F) in the place of F (n, m): the argument is in turns."""
    if can_compile(F):
        compiled().cosine(F, F.dtype.type(amplitude))
        return F
    xp = array_namespace(F)
    F -= xp.round(F)
    F *= 2 * math.pi
    xp.cos(F, out=F)
    F *= amplitude
    return F


def hadamard_rows(X: Array) -> Array:
    """X H for the rows of X (n, p), in the order of `knoi.arrays.hadamard`; X is used up."""
    if X.shape[1] >= hadamard.SMALLEST and can_compile(X):
        compiled().hadamard_rows(X)
        return X
    return hadamard.transform(X)


def exponential(F: Array) -> Array:
    """exp(F), in the place of F (n, m)."""
    if can_compile(F):
        compiled().exponential(F)
        return F
    return array_namespace(F).exp(F, out=F)
