"""Triangular systems solved by products, which leave the interpreter to other threads."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

# Rows solved at once. SciPy's triangular solve holds the interpreter's lock, so that threads wait
# for each other: it gets the blocks of this size on the diagonal, 256 / M of the work.
BLOCK = 256


def solve_lower(
    C: NDArray[np.floating], B: NDArray[np.floating], *, transposed: bool = False
) -> NDArray[np.floating]:
    """C^-1 B, or C^-T B, for a lower triangular C (M, M); what is above its diagonal is not read.

    Block by block, each less what the solved ones have to do with it.
    """
    M = len(C)
    X = np.array(B, dtype=np.result_type(C, B), order="F")
    starts = range(0, M, BLOCK)
    for start in reversed(starts) if transposed else starts:
        own = slice(start, min(start + BLOCK, M))
        if transposed:
            X[own] -= C[own.stop :, own].T @ X[own.stop :]
        else:
            X[own] -= C[own, :start] @ X[:start]
        X[own] = scipy.linalg.solve_triangular(
            C[own, own], X[own], lower=True, trans="T" if transposed else "N", check_finite=False
        )
    return X
