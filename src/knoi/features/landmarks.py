"""Which rows stand for the data: landmark selection for Nystrom maps."""

import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.random import Purpose, View, generator
from knoi.exceptions import InputError
from knoi.kernels import Kernel

Selection = Literal["uniform", "kmeans", "pivoted_cholesky"]


def select_landmarks(
    sample: NDArray[Any],  # (n, d)
    kernel: Kernel,
    rank: int,
    seed: int,
    view: View,
    method: Selection = "uniform",
) -> NDArray[Any]:
    """At most `rank` landmarks, (m, d), chosen from (or near) the rows of `sample`.

    - "uniform": random rows, the plain Nystrom method.
    - "kmeans": centres of k-means, which cover the data evenly (Zhang & Kwok).
    - "pivoted_cholesky": greedily the row worst explained by those already taken. This is the
      incomplete Cholesky decomposition of Bach & Jordan and the partial Gram-Schmidt of Hardoon et
      al.: three names for one sequence of pivots.

    Fewer than `rank` come back when the sample has no more distinct rows to offer.
    """
    choosers: dict[str, Callable[..., NDArray[Any]]] = {
        "uniform": _uniform,
        "kmeans": _kmeans,
        "pivoted_cholesky": _pivoted_cholesky,
    }
    if method not in choosers:
        raise InputError(
            f"landmarks={method!r} is not a way to choose landmarks: wanted one of "
            f"{', '.join(map(repr, get_args(Selection)))}."
        )
    if rank > len(sample):
        raise InputError(
            f"rank={rank} landmarks cannot be chosen from {len(sample)} rows. Lower rank to at "
            f"most {len(sample)}."
        )
    draw = generator(seed, Purpose.LANDMARKS, view)
    return choosers[method](sample, kernel, rank, draw)


def _uniform(
    sample: NDArray[Any], kernel: Kernel, rank: int, draw: np.random.Generator
) -> NDArray[Any]:
    return sample[np.sort(draw.choice(len(sample), rank, replace=False))]


def _kmeans(
    sample: NDArray[Any], kernel: Kernel, rank: int, draw: np.random.Generator
) -> NDArray[Any]:
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    # Scaled and centred, so that the size of the numbers cannot defeat float32 distances.
    centre, spread = sample.mean(axis=0), sample.std() or 1.0
    clusters = MiniBatchKMeans(
        rank, random_state=int(draw.integers(2**31)), batch_size=max(1024, rank), n_init=1
    )
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters: duplicate centres are dropped by the map itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters.fit((sample - centre) / spread)
    landmarks: NDArray[Any] = clusters.cluster_centers_ * spread + centre
    return landmarks.astype(sample.dtype)


def _pivoted_cholesky(
    sample: NDArray[Any], kernel: Kernel, rank: int, draw: np.random.Generator
) -> NDArray[Any]:
    pivots = pivoted_cholesky(sample, kernel, rank)[0]
    return sample[pivots]


def pivoted_cholesky(
    sample: NDArray[Any], kernel: Kernel, rank: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Greedy pivots and the factor G (n, m) with G G' the rank-m approximation of the kernel.

    Stops early when what is left of the kernel is at rounding level.
    """
    left = np.array(kernel.diag(sample), dtype=np.float64)  # (n,) what is not yet explained
    floor = np.finfo(sample.dtype).eps * 10 * float(left.max())
    G = np.zeros((len(sample), rank))
    pivots = np.empty(rank, dtype=np.intp)
    for m in range(rank):
        pivot = int(np.argmax(left))
        if left[pivot] <= floor:
            return pivots[:m], G[:, :m]
        pivots[m] = pivot
        column = np.asarray(kernel(sample, sample[pivot : pivot + 1])[:, 0], dtype=np.float64)
        G[:, m] = (column - G[:, :m] @ G[pivot, :m]) / np.sqrt(left[pivot])
        left -= G[:, m] ** 2
        left[pivot] = 0.0  # taken: rounding must not offer it again
    return pivots, G
