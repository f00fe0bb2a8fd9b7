"""The rules by which landmarks are chosen, by name; from rows at hand or from a stream of them."""

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import numpy as np

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, generator
from knoi.exceptions import InputError
from knoi.features.landmarks.cholesky import pivoted_cholesky, randomly_pivoted_cholesky
from knoi.features.landmarks.clusters import cluster_centres, distant_rows
from knoi.features.landmarks.leverage import ridge_leverage_sample
from knoi.features.landmarks.reservoir import reservoir
from knoi.kernels import Kernel

Selection = Literal[
    "uniform",
    "kmeans",
    "kmeans++",
    "pivoted_cholesky",
    "randomly_pivoted_cholesky",
    "leverage",
]

# Rows to choose each landmark among, where the choice is not uniform ...
_CANDIDATES_PER_LANDMARK = 5
# ... and at least so many rows in all: few landmarks cost little to choose well.
_LEAST_CANDIDATES = 4000


def n_candidates(method: Selection, rank: int) -> int:
    """How many rows to choose `rank` landmarks among: uniform ones are the sample itself."""
    if method == "uniform":
        return rank
    return max(_LEAST_CANDIDATES, _CANDIDATES_PER_LANDMARK * rank)


def select_landmarks(
    sample: Array,  # (n, d)
    kernel: Kernel,
    rank: int,
    seed: int,
    view: View,
    method: Selection = "uniform",
) -> Array:
    """At most `rank` landmarks, (m, d), chosen from (or near) the rows of `sample`.

    Rows may be sparse (CSR); landmarks then are too. What is left of the kernel beside the span of
    the landmarks is the error of a Nystrom map. Costs are for n rows and M = `rank`:

    - "uniform": random rows, the plain Nystrom method. Free.
    - "kmeans": centres of clusters, seeded by k-means++ and moved by minibatch k-means; they cover
      the data evenly (Zhang & Kwok 2010). They are no rows of the data, and sparse rows have dense
      ones, M d numbers. O(n M d) a pass.
    - "kmeans++": the seeding alone: rows drawn by their squared distance from those already drawn
      (Arthur & Vassilvitskii 2007). O(n M d).
    - "pivoted_cholesky": greedily the row worst explained by those already taken. This is the
      incomplete Cholesky decomposition of Bach & Jordan and the partial Gram-Schmidt of Hardoon et
      al.: three names for one sequence of pivots. Goes for outliers first. O(n M (d + M)), and
      8 n M bytes.
    - "randomly_pivoted_cholesky": a row drawn by how badly it is explained by those already taken
      (Chen, Epperly, Tropp & Webber 2022): nearly the best error any M rows can have, and no eye
      for outliers. The same cost.
    - "leverage": rows drawn by their ridge leverage scores, estimated recursively (Musco & Musco
      2017). The theory weights them; weights do not change the span, so there are none here.
      O(n M (d + M)), and 16 n M bytes.

    Fewer than `rank` come back when the sample has no more distinct rows to offer.
    """
    rules: dict[str, Callable[[np.random.Generator], Array]] = {
        "uniform": lambda draw: sample[np.sort(draw.choice(n, rank, replace=False))],
        "kmeans": lambda draw: cluster_centres(sample, rank, draw),
        "kmeans++": lambda draw: sample[distant_rows(sample, rank, draw)],
        "pivoted_cholesky": lambda draw: sample[pivoted_cholesky(sample, kernel, rank)[0]],
        "randomly_pivoted_cholesky": lambda draw: sample[
            randomly_pivoted_cholesky(sample, kernel, rank, draw)[0]
        ],
        "leverage": lambda draw: sample[ridge_leverage_sample(sample, kernel, rank, draw)],
    }
    if method not in rules:
        raise InputError(
            f"landmarks={method!r} is not a way to choose landmarks: wanted one of "
            f"{', '.join(map(repr, get_args(Selection)))}."
        )
    n = sample.shape[0]
    if rank > n:
        raise InputError(
            f"rank={rank} landmarks cannot be chosen from {n} rows. Lower rank to at most {n}."
        )
    return rules[method](generator(seed, Purpose.LANDMARKS, view))


def landmarks_from_chunks(
    chunks: Iterable[Array],
    kernel: Kernel,
    rank: int,
    seed: int,
    view: View,
    method: Selection = "uniform",
    candidates: int | None = None,
) -> Array:
    """`select_landmarks` for rows that pass by once, in chunks (any, d), their number unknown.

    A uniform sample of `candidates` rows (None: `n_candidates`) is kept of the stream, and the rule
    chooses among them. How the stream is cut into chunks makes no difference. Estimators have no
    need of this, as their sources can be read anywhere; it makes a map of a stream, to be handed to
    them: `KernelColumns(kernel, landmarks_from_chunks(...))`.
    """
    n = n_candidates(method, rank) if candidates is None else candidates
    if n < rank:
        raise InputError(
            f"candidates={n} is below rank={rank}: landmarks are chosen among the candidates. "
            f"Raise candidates to at least {rank}, or lower rank."
        )
    return select_landmarks(reservoir(chunks, n, seed, view), kernel, rank, seed, view, method)
