"""Landmarks: which rows stand for the data in Nystrom maps.

Rules by name (`select_landmarks`), then the rules: pivots of a kernel matrix, k-means and its
seeding, ridge leverage scores.
"""

import warnings
from typing import Literal, get_args

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigvalsh, solve_triangular

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import inner, is_sparse, narrow_indices, squared_norms
from knoi.checks import one_of
from knoi.exceptions import InputError
from knoi.kernels import Kernel

Selection = Literal[
    "uniform", "kmeans", "kmeans++", "pivoted_cholesky", "randomly_pivoted_cholesky", "leverage"
]

# Few landmarks cost little to choose well.
_LEAST_CANDIDATES = 4000


def n_candidates(method: Selection, rank: int) -> int:
    """Number of rows to choose `rank` landmarks from; uniform ones are the sample itself."""
    return rank if method == "uniform" else max(_LEAST_CANDIDATES, 5 * rank)


def select_landmarks(
    sample: Array,  # (n, d)
    kernel: Kernel,
    rank: int,
    seed: int,
    view: View,
    method: Selection = "uniform",
) -> Array:
    """At most `rank` landmarks, (m, d), chosen from (or near) the rows of `sample`.

    Rows may be sparse (CSR); landmarks then are too. The error of a Nystrom map is the part of the
    kernel outside the span of the landmarks. Costs are for n rows and M = `rank`:

    - "uniform": random rows, the plain Nystrom method. Free.
    - "kmeans": centres of clusters, seeded by k-means++ and moved by minibatch k-means; they cover
      the data evenly (Zhang & Kwok 2010). They are not rows of the data, and those of
      sparse rows are dense, M d numbers. O(n M d) per pass.
    - "kmeans++": the seeding alone: rows drawn by their squared distance from those already drawn
      (Arthur & Vassilvitskii 2007). O(n M d).
    - "pivoted_cholesky": greedily the row worst explained by those already taken. This is the
      incomplete Cholesky decomposition of Bach & Jordan and the partial Gram-Schmidt of Hardoon et
      al.: three names for one sequence of pivots. Takes outliers first. O(n M (d + M)), and
      8 n M bytes.
    - "randomly_pivoted_cholesky": a row drawn by how badly it is explained by those already taken
      (Chen, Epperly, Tropp & Webber 2022): nearly the best error that M rows can have, without a
      preference for outliers. The same cost.
    - "leverage": rows drawn by their ridge leverage scores, estimated recursively (Musco & Musco
      2017). The theory weights them; weights do not change the span, so there are none here.
      O(n M (d + M)), and 16 n M bytes.

    Fewer than `rank` are returned if the sample has fewer distinct rows.
    """
    n = sample.shape[0]
    one_of("landmarks", method, get_args(Selection))
    if rank > n:
        raise InputError(
            f"rank={rank} landmarks cannot be chosen from {n} rows. Lower rank to at most {n}."
        )
    draw = generator(seed, Purpose.LANDMARKS, view)
    if method == "uniform":
        return sample[np.sort(draw.choice(n, rank, replace=False))]
    if method == "kmeans":
        return cluster_centres(sample, rank, draw)
    if method == "kmeans++":
        return sample[distant_rows(sample, rank, draw)]
    if method == "pivoted_cholesky":
        return sample[pivoted_cholesky(sample, kernel, rank)[0]]
    if method == "randomly_pivoted_cholesky":
        return sample[randomly_pivoted_cholesky(sample, kernel, rank, draw)[0]]
    return sample[ridge_leverage_sample(sample, kernel, rank, draw)]


# ---------------------------------------------------------------------- pivots of a kernel matrix

# Both rules work by blocks and choose what they would choose one by one: pivots are predicted on a
# small part of the residual kernel, and only their columns are computed, in one product.

Factor = tuple[NDArray[np.intp], NDArray[np.float64]]

# Columns computed together, at most and at least.
_MOST, _LEAST = 128, 8
# Rows among which the next pivots are predicted, for each of them.
_POOL = 4


class _Residual:
    """K - G G' of the kernel matrix of `sample`, of which only the diagonal and G are held."""

    def __init__(self, sample: Array, kernel: Kernel, rank: int) -> None:
        self.sample, self.kernel = sample, kernel
        self.left = np.array(kernel.diag(sample), dtype=np.float64)  # (n,) the diagonal
        self.floor = float(np.finfo(sample.dtype).eps) * 10 * float(self.left.max())
        self.Gt = np.empty((rank, sample.shape[0]))  # G', its first m rows filled
        self.pivots = np.empty(rank, dtype=np.intp)
        self.m = 0

    @property
    def wanted(self) -> int:
        """Pivots still to be found."""
        return len(self.pivots) - self.m

    @property
    def factor(self) -> Factor:
        return self.pivots[: self.m], self.Gt[: self.m].T

    def rows(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Rows `chosen` of the residual, (chosen, n)."""
        K = np.asarray(self.kernel(self.sample[chosen], self.sample), dtype=np.float64)
        K -= self.Gt[: self.m, chosen].T @ self.Gt[: self.m]
        return K

    def among(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """The residual between rows `chosen` only, (chosen, chosen)."""
        rows = self.sample[chosen]
        K = np.asarray(self.kernel(rows, rows), dtype=np.float64)
        G = self.Gt[: self.m, chosen]
        K -= G.T @ G
        return K

    def add(self, pivots: NDArray[np.intp], columns: NDArray[np.float64]) -> None:
        """Take pivots whose columns of G are the rows of `columns`, (pivots, n)."""
        k = len(pivots)
        self.pivots[self.m : self.m + k] = pivots
        self.Gt[self.m : self.m + k] = columns
        self.m += k
        self.left -= np.einsum("kn,kn->n", columns, columns)
        np.maximum(self.left, 0.0, out=self.left)
        self.left[pivots] = 0.0  # taken: rounding must not offer them again


def pivoted_cholesky(sample: Array, kernel: Kernel, rank: int) -> Factor:
    """Greedy pivots and the factor G (n, m) with G G' the rank-m approximation of the kernel.

    Stops early when what is left of the kernel is at rounding level.
    """
    residual = _Residual(sample, kernel, rank)
    block = _MOST
    while residual.wanted and residual.left.max() > residual.floor:
        predicted = _predict(residual, min(block, residual.wanted))
        taken = _take_while_predicted(residual, predicted)
        block = min(max(2 * taken, _LEAST), _MOST)
    return residual.factor


def _predict(residual: _Residual, k: int) -> NDArray[np.intp]:
    """The next k pivots, if all are among the rows that are worst explained now.

    The first of them is certain.
    """
    others = max(len(residual.left) - _POOL * k, 0)
    pool = np.argpartition(residual.left, others)[others:]
    first = residual.left.argmax()
    if first not in pool:  # of several that are equal the first counts
        pool[0] = first
    pool.sort()
    H = residual.among(pool)
    left = residual.left[pool]
    L = np.empty((k, len(pool)))
    predicted: list[int] = []
    for m in range(k):
        pivot = int(left.argmax())
        if left[pivot] <= residual.floor:
            break
        predicted.append(pivot)
        L[m] = (H[pivot] - L[:m, pivot] @ L[:m]) / np.sqrt(left[pivot])
        left -= L[m] ** 2
        left[pivot] = 0.0
    return pool[predicted]


def _take_while_predicted(residual: _Residual, predicted: NDArray[np.intp]) -> int:
    """Take pivots, each the worst explained of all rows, while they are `predicted`; how many."""
    rows = residual.rows(predicted)  # (predicted, n) before this block
    place = {int(row): i for i, row in enumerate(predicted)}
    start = residual.m
    while residual.wanted:
        pivot = int(residual.left.argmax())
        if pivot not in place or residual.left[pivot] <= residual.floor:
            break
        block = residual.Gt[start : residual.m]  # what this block has added
        column = rows[place[pivot]] - block[:, pivot] @ block
        column /= np.sqrt(residual.left[pivot])
        residual.add(np.array([pivot]), column[None, :])
    return residual.m - start


def randomly_pivoted_cholesky(
    sample: Array, kernel: Kernel, rank: int, draw: np.random.Generator
) -> Factor:
    """Pivots drawn in proportion to what is left of the diagonal, and the factor G (n, m).

    Pivots are proposed by blocks, and one is rejected as likely as the block before it explains it
    (Epperly, Tropp & Webber 2024), which draws them exactly as one by one. Stops early when what is
    left of the kernel is at rounding level.
    """
    residual = _Residual(sample, kernel, rank)
    while residual.wanted and residual.left.max() > residual.floor:
        weights = np.where(residual.left > residual.floor, residual.left, 0.0)
        size = min(_MOST, max(_LEAST, 2 * residual.wanted))
        proposed = draw.choice(len(weights), size=size, p=weights / weights.sum())
        accepted, L = _accept(residual, proposed, draw)
        if not len(accepted):  # not explained by the diagonal, but by its own column: rounding
            residual.left[proposed] = 0.0
            continue
        columns = solve_triangular(L, residual.rows(accepted), lower=True, check_finite=False)
        residual.add(accepted, columns)
    return residual.factor


def _accept(
    residual: _Residual, proposed: NDArray[np.intp], draw: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which of the proposed pivots are taken, and the Cholesky factor of the residual at them."""
    H = residual.among(proposed)
    thresholds = draw.random(len(proposed)) * H.diagonal()
    accepted: list[int] = []
    L = np.empty(H.shape)  # columns of those accepted
    for i in range(len(proposed)):
        k = len(accepted)
        if k == residual.wanted:
            break
        left = H[i, i] - L[i, :k] @ L[i, :k]
        if left <= max(thresholds[i], residual.floor):
            continue
        L[i:, k] = (H[i:, i] - L[i:, :k] @ L[i, :k]) / np.sqrt(left)
        accepted.append(i)
    return proposed[accepted], np.tril(L[np.ix_(accepted, range(len(accepted)))])


# ------------------------------------------------------------------------ k-means and its seeding

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
    """k-means++: at most `rank` rows, each drawn by its squared distance from those before.

    Rows are proposed by blocks, and one is rejected as likely as it has come nearer to those taken
    since, which draws them exactly as one by one.
    """
    rows = _standard(sample)[0]
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
    """Centred and scaled rows, for accurate float32 distances; sparse rows are only scaled."""
    if is_sparse(sample):
        values = sample.data.astype(np.float64)
        spread = float(np.sqrt(values @ values / max(sample.shape[0], 1))) or 1.0
        rows = sample / sample.dtype.type(spread)
        return narrow_indices(rows), 0.0, spread  # scikit-learn takes 32-bit indices only
    centre = sample.mean(axis=0)
    rows = sample - centre
    spread = float(rows.std(dtype=np.float64)) or 1.0
    rows /= spread
    return rows, centre, spread


# -------------------------------------------------------------------------- ridge leverage scores

# Effective dimension per landmark. It must be well below 1: estimated scores need more rows than
# dimensions, in theory by a logarithm.
_DIMENSION = 0.25


def ridge_leverage_sample(
    sample: Array, kernel: Kernel, rank: int, draw: np.random.Generator
) -> NDArray[np.intp]:
    """Distinct rows, `rank` of them, drawn in proportion to their ridge leverage scores.

    The score of row i is (K (K + l I)^-1)_ii, with the ridge l at which scores add up to a quarter
    of `rank`. They are estimated recursively (Musco & Musco 2017): the scores of half of the rows
    give a weighted sample of about `rank` rows, and this gives the scores of all rows. Rows of zero
    kernel are left out.
    """
    largest = float(np.max(kernel.diag(sample)))
    if largest == 0:
        return np.empty(0, dtype=np.intp)
    floor = 10 * float(np.finfo(sample.dtype).eps) * largest
    order = draw.permutation(sample.shape[0])
    sizes = [len(order)]
    while sizes[-1] > rank:
        sizes.append(-(-sizes[-1] // 2))
    chosen = order[: sizes[-1]]  # few enough to stand for themselves
    weights = np.ones(len(chosen))
    for size in sizes[-2:0:-1]:
        rows = order[:size]
        scores = leverage_scores(sample[rows], kernel, sample[chosen], weights, rank, floor)
        chances = _chances(scores, rank)
        drawn = draw.random(size) < chances
        chosen, weights = rows[drawn], 1 / chances[drawn]
    scores = leverage_scores(sample[order], kernel, sample[chosen], weights, rank, floor)
    some = min(rank, int(np.count_nonzero(scores)))
    return np.sort(draw.choice(order, some, replace=False, p=scores / scores.sum()))


def leverage_scores(
    rows: Array,  # (n, d)
    kernel: Kernel,
    chosen: Array,  # (s, d)
    weights: NDArray[np.float64],  # (s,) how many rows each chosen one stands for
    rank: int,
    floor: float,  # the least ridge: below it the kernel is rounding
) -> NDArray[np.float64]:
    """Ridge leverage scores (n,) of `rows`, estimated from the chosen ones; exact from all rows."""
    root = np.sqrt(weights)
    W = np.asarray(kernel(chosen, chosen), dtype=np.float64) * root * root[:, None]  # (s, s)
    values = eigvalsh(W)
    # Above what rounding makes negative, so that the factorisation cannot fail.
    ridge = max(_ridge(values, _DIMENSION * rank), floor, -2 * float(values[0]))
    W.flat[:: len(W) + 1] += ridge
    B = np.asarray(kernel(chosen, rows), dtype=np.float64) * root[:, None]  # (s, n)
    B = solve_triangular(cholesky(W, lower=True), B, lower=True, overwrite_b=True)
    diagonal = np.asarray(kernel.diag(rows), dtype=np.float64)
    scores = (diagonal - np.einsum("sn,sn->n", B, B)) / ridge
    # No true score is less than the lower bound, as v / (v + l) >= v / (v_max + l); rounding is.
    bounded: NDArray[np.float64] = np.clip(scores, diagonal / (values[-1] + ridge), 1.0)
    return bounded


def _ridge(values: NDArray[np.float64], dimension: float) -> float:
    """The ridge l at which the sum of v / (v + l) is `dimension`; 0 if it never is so large."""
    values = values[values > 0]
    if len(values) <= dimension:
        return 0.0
    low, high = 0.0, float(values.sum()) / dimension
    for _ in range(60):
        middle = (low + high) / 2
        if (values / (values + middle)).sum() > dimension:
            low = middle
        else:
            high = middle
    return high


def _chances(scores: NDArray[np.float64], expected: int) -> NDArray[np.float64]:
    """Chances proportional to scores, capped at 1, that add up to `expected`."""
    certain = np.zeros(len(scores), dtype=bool)
    while True:
        rest = float(scores[~certain].sum())
        if rest == 0:
            return certain.astype(np.float64)
        chances = np.where(certain, 1.0, scores * ((expected - certain.sum()) / rest))
        if not (more := chances > 1.0).any():
            return chances
        certain |= more
