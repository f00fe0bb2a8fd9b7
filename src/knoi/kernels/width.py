"""The kernel width that suits the data: the median trick, on a sample of rows."""

from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.exceptions import InputError
from knoi.kernels.kernel import Kernel

ROWS_AT_ONCE = 256

K = TypeVar("K", bound=Kernel)


class HasDistance(Protocol):
    """A kernel whose width is measured in a distance between rows."""

    def distance(self, X: Array, Z: Array) -> Array:
        """Distances between the rows of X (n, d) and Z (m, d), as (n, m)."""


def default_width(kernel: Kernel, sample: NDArray[Any]) -> float:
    """The width `kernel` should have on data like the rows of `sample` (n, d).

    The rule is the kernel's own: the median distance between rows where k decays with a distance
    (RBF, Laplacian, Cauchy, Matern, Chi2), the root mean square length of the rows for Polynomial.
    The paper takes 4000 random rows; time and memory grow with n^2.
    """
    return kernel.default_width(sample)


def with_default_width(kernel: K, sample: NDArray[Any]) -> K:
    """A copy of `kernel` with `default_width` wherever it has no width yet.

    Each part of a sum or product by its own rule; parts that are the same kernel share the work.
    """
    return kernel.decide_width(cache(lambda part: part.default_width(sample)))


def median_width(kernel: HasDistance, sample: NDArray[Any]) -> float:
    """The median of `kernel.distance` over all pairs of rows i < j of `sample` (n, d).

    Where more than half of the pairs are at distance 0 (repeated rows), the median of the others.
    Holds the n (n - 1) / 2 distances once, and a block of rows besides.
    """
    n = sample.shape[0]
    if n < 2:
        raise InputError(
            f"the median trick needs at least 2 rows to take a distance between, but got {n}. "
            "Pass more rows, or the width as a number."
        )
    distances = np.empty(n * (n - 1) // 2, dtype=np.result_type(sample.dtype, np.float32))
    filled = 0
    for start in range(0, n - 1, ROWS_AT_ONCE):
        D = kernel.distance(sample[start : start + ROWS_AT_ONCE], sample[start + 1 :])
        for i, row in enumerate(D[: n - 1 - start]):
            later = row[i:]  # row start + i against the rows after it
            distances[filled : filled + later.size] = later
            filled += later.size
    median = float(np.median(distances, overwrite_input=True))
    if median > 0:
        return median
    distances.sort()
    apart = distances[np.searchsorted(distances, 0.0, side="right") :]
    if apart.size == 0:
        raise InputError(
            f"all sampled rows are identical ({n} rows), so no width can be chosen from them. "
            "Pass the width as a number, or check the data: a constant view has no correlations."
        )
    return float(np.median(apart, overwrite_input=True))
