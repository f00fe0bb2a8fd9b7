"""Landmarks that cover the data in the space of the rows: k-means, and its seeding alone."""

import warnings

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import inner, is_sparse, squared_norms

# Rows proposed together by the seeding.
_PROPOSED = 128
# Below this many products a distance matrix is not worth waking other threads for.
_SHARED_WORK = 10**8


def cluster_centres(sample: Array, rank: int, draw: np.random.Generator) -> Array:
    """Centres (rank, d) of minibatch k-means, seeded by k-means++."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    rows, centre, spread = _standard(sample)
    clusters = MiniBatchKMeans(
        rank,
        init="k-means++",
        n_init=1,
        batch_size=max(1024, rank),
        random_state=int(draw.integers(2**31)),
    )
    alone = 1 if sample.shape[0] * sample.shape[1] * rank < _SHARED_WORK else None
    with warnings.catch_warnings(), threadpool_limits(alone, user_api="openmp"):
        # Fewer distinct rows than clusters: duplicate centres are dropped by the map itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters.fit(rows)
    landmarks = (clusters.cluster_centers_ * spread + centre).astype(sample.dtype)
    if is_sparse(sample):
        return scipy.sparse.csr_array(landmarks)
    # Means of rows lie between rows: rounding must not make them negative for a chi2 kernel.
    return np.clip(landmarks, sample.min(axis=0), sample.max(axis=0), out=landmarks)


def distant_rows(sample: Array, rank: int, draw: np.random.Generator) -> NDArray[np.intp]:
    """Rows, at most `rank`, each drawn by its squared distance from the nearest of those before.

    This is k-means++. Rows are proposed by blocks, and one is rejected as likely as it has come
    nearer to those taken since, which draws them exactly as one by one.
    """
    rows, _, _ = _standard(sample)
    norms = squared_norms(rows).astype(np.float64)  # (n,)
    floor = float(np.finfo(sample.dtype).eps) * 100 * float(norms.max())
    taken = [int(draw.integers(len(norms)))]
    left = _squared_distances(rows, norms, np.array(taken))[0]
    while len(taken) < rank:
        left[left <= floor] = 0.0  # rows that are taken, or equal to one that is
        left[taken] = 0.0
        if not left.any():
            break
        size = min(_PROPOSED, 2 * (rank - len(taken)))
        proposed = draw.choice(len(left), size=size, p=left / left.sum())
        apart = _squared_distances(rows[proposed], norms[proposed], np.arange(size))
        thresholds = draw.random(size) * left[proposed]
        accepted: list[int] = []
        for i in range(size):
            nearest = min(left[proposed[i]], apart[i, accepted].min(initial=np.inf))
            if nearest > max(thresholds[i], floor):
                accepted.append(i)
                if len(taken) + len(accepted) == rank:
                    break
        fresh = proposed[accepted]
        taken.extend(fresh.tolist())
        np.minimum(left, _squared_distances(rows, norms, fresh).min(axis=0), out=left)
    return np.array(taken, dtype=np.intp)


def _squared_distances(
    rows: Array, norms: NDArray[np.float64], chosen: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Squared distances of all rows from the chosen ones, (chosen, n)."""
    squares: NDArray[np.float64] = inner(rows[chosen], rows).astype(np.float64)
    squares *= -2.0
    squares += norms
    squares += norms[chosen][:, None]
    np.maximum(squares, 0.0, out=squares)
    return squares


def _standard(sample: Array) -> tuple[Array, Array | float, float]:
    """Rows centred and scaled, so that the size of the numbers cannot defeat float32 distances.

    Sparse rows stay where they are: off the origin they would not be sparse.
    """
    if is_sparse(sample):
        values = sample.data.astype(np.float64)
        spread = float(np.sqrt(values @ values / max(sample.shape[0], 1))) or 1.0
        return sample / sample.dtype.type(spread), 0.0, spread
    centre = sample.mean(axis=0)
    rows = sample - centre
    spread = float(rows.std(dtype=np.float64)) or 1.0
    rows /= spread
    return rows, centre, spread
