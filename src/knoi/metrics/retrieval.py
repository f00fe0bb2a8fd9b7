"""Cross-view retrieval: how well a row of one view finds its partner among all rows of the other.

Equal similarities are counted as if their order were drawn at random, in expectation: an embedding
that maps everything to one point scores exactly at chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from knoi.exceptions import InputError
from knoi.metrics.inputs import paired_projections, projection_matrix, refuse_unequal_width
from knoi.metrics.similarity import (
    DEFAULT_BLOCK_BYTES,
    Comparison,
    Similarity,
    block_shape,
    compare,
    slices,
)

Direction = Literal["x_to_y", "y_to_x"]


@dataclass(frozen=True)
class RetrievalScores:
    """How well partners are found across the views.

    Attributes
    ----------
    recall : dict of int to float
        For each k, the share of queries whose partner is among their k best matches.
        Chance is k / n_queries.
    mean_reciprocal_rank : float
        Mean of 1 / rank of the partner.
    median_rank : float
        Median rank of the partner; 1 is best.
    n_queries : int
        Rows compared, which is also the size of the gallery.
    """

    recall: dict[int, float]
    mean_reciprocal_rank: float
    median_rank: float
    n_queries: int


def cross_view_retrieval(
    Zx: Any,
    Zy: Any,
    *,
    ks: Sequence[int] = (1, 5, 10),
    similarity: Similarity = "cosine",
    direction: Direction = "x_to_y",
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> RetrievalScores:
    """Score how often row i of one view finds row i of the other among all rows.

    Parameters
    ----------
    Zx, Zy : arrays of shape (n, L)
        Projections of paired rows.
    ks : sequence of int
        Depths at which the recall is reported.
    similarity : {"cosine", "euclidean", "dot"}
        What makes two projections a good match. A zero vector has cosine 0 with everything.
    direction : {"x_to_y", "y_to_x"}
        From which view the queries come.
    block_bytes : int
        Bound on the working memory; the n x n similarities are never held at once.

    Returns
    -------
    RetrievalScores
        Where similarities tie, expectations over a random order of the tied rows.
    """
    ks = _checked_depths(ks)
    comparison = _directed(Zx, Zy, similarity, direction)
    better, tied = _rivals(comparison, block_bytes)
    n = len(better)
    # The partner's rank is uniform on better + 1 .. better + tied + 1.
    recall = {k: float(np.clip((k - better) / (tied + 1), 0.0, 1.0).mean()) for k in ks}
    reciprocal = 1.0 / (better + 1.0)
    several = tied > 0
    first, last = better[several] + 1, better[several] + tied[several] + 1
    reciprocal[several] = (digamma(last + 1) - digamma(first)) / (last - first + 1)
    return RetrievalScores(
        recall=recall,
        mean_reciprocal_rank=float(reciprocal.mean()),
        median_rank=float(np.median(better + 1 + tied / 2)),
        n_queries=n,
    )


def retrieval_ranks(
    Zx: Any,
    Zy: Any,
    *,
    similarity: Similarity = "cosine",
    direction: Direction = "x_to_y",
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> NDArray[np.float64]:
    """Rank of each row's partner among all rows of the other view.

    Parameters are those of `cross_view_retrieval`.

    Returns
    -------
    array of shape (n,)
        1 is best. Tied rows share the mean of their ranks, so a rank may end in .5. Similarities
        that differ by no more than the rounding of a float64 product are ties; for "euclidean"
        that means distances below about 1e-7 of the spread of the vectors are not told apart.
    """
    better, tied = _rivals(_directed(Zx, Zy, similarity, direction), block_bytes)
    return np.asarray(better + 1 + tied / 2, dtype=np.float64)


def top_matches(
    queries: Any,
    gallery: Any,
    k: int,
    *,
    similarity: Similarity = "cosine",
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the k rows of `gallery` most similar to each row of `queries`.

    Parameters
    ----------
    queries : array of shape (n, L)
    gallery : array of shape (m, L)
    k : int
        Matches per query, at most m.
    similarity : {"cosine", "euclidean", "dot"}
    block_bytes : int
        Bound on the working memory, the result not counted.

    Returns
    -------
    indices : array of shape (n, k)
        Rows of `gallery`, the best first; equal similarities in the order of their index.
    similarities : array of shape (n, k)
        Descending. For "euclidean" the distance times -1.
    """
    queries, gallery = projection_matrix(queries, "queries"), projection_matrix(gallery, "gallery")
    refuse_unequal_width(queries, gallery, ("queries", "gallery"))
    m = len(gallery)
    if not _is_whole(k) or not 1 <= k <= m:
        raise InputError(f"k={k!r}: wanted a whole number from 1 to {m}, the rows of the gallery.")
    comparison = compare(queries, gallery, similarity)
    n, d = queries.shape
    rows, columns = block_shape(n, m, d, block_bytes, per_query=k * (3 * d + 8))

    indices = np.empty((n, k), dtype=np.int64)
    similarities = np.empty((n, k))
    for at in slices(n, rows):
        Q = comparison.queries.rows(at)
        chosen = _best_candidates(comparison, Q, k, columns)  # (b, k)
        near = comparison.similarities(Q, comparison.gallery.rows(chosen))
        order = np.lexsort((chosen, -near), axis=1)
        indices[at] = np.take_along_axis(chosen, order, axis=1)
        similarities[at] = np.take_along_axis(near, order, axis=1)
    return indices, similarities


def _best_candidates(
    comparison: Comparison, Q: NDArray[np.float64], k: int, columns: int
) -> NDArray[np.int64]:
    """Gallery indices (len(Q), k) of the best scores, in no order."""
    best = np.empty((len(Q), 0))
    indices = np.empty((len(Q), 0), dtype=np.int64)
    for at in slices(len(comparison.gallery), columns):
        S = comparison.scores(Q, comparison.gallery.rows(at))
        kept = _largest_columns(S, k)
        best = np.concatenate([best, np.take_along_axis(S, kept, axis=1)], axis=1)
        indices = np.concatenate([indices, kept + at.start], axis=1)
        kept = _largest_columns(best, k)
        best = np.take_along_axis(best, kept, axis=1)
        indices = np.take_along_axis(indices, kept, axis=1)
    return indices


def _largest_columns(S: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    if S.shape[1] <= k:
        return np.broadcast_to(np.arange(S.shape[1]), S.shape)
    return np.argpartition(S, S.shape[1] - k, axis=1)[:, -k:]


def _rivals(
    comparison: Comparison, block_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each query, how many others beat its partner and how many tie with it."""
    n = len(comparison.queries)
    rows, columns = block_shape(n, n, comparison.n_dims, block_bytes)
    better = np.zeros(n, dtype=np.int64)
    no_worse = np.zeros(n, dtype=np.int64)
    for at in slices(n, rows):
        Q = comparison.queries.rows(at)
        own, rounding = comparison.paired_scores(Q, comparison.gallery.rows(at))
        above, below = (own + rounding)[:, None], (own - rounding)[:, None]
        for across in slices(n, columns):
            S = comparison.scores(Q, comparison.gallery.rows(across))
            partners = np.arange(max(at.start, across.start), min(at.stop, across.stop))
            S[partners - at.start, partners - across.start] = -np.inf  # not its own rival
            better[at] += np.count_nonzero(np.greater(S, above), axis=1)
            no_worse[at] += np.count_nonzero(np.greater_equal(S, below), axis=1)
    return better, no_worse - better


def _directed(Zx: Any, Zy: Any, similarity: Similarity, direction: Direction) -> Comparison:
    Zx, Zy = paired_projections(Zx, Zy, same_width=True)
    if direction not in get_args(Direction):
        raise InputError(
            f"direction={direction!r} is not known. Choose 'x_to_y' (queries from the first view) "
            "or 'y_to_x'."
        )
    return compare(Zx, Zy, similarity) if direction == "x_to_y" else compare(Zy, Zx, similarity)


def _checked_depths(ks: Sequence[int]) -> tuple[int, ...]:
    for k in ks:
        if not _is_whole(k) or k < 1:
            raise InputError(f"ks={ks!r}: wanted whole numbers of at least 1, e.g. (1, 5, 10).")
    return tuple(int(k) for k in ks)


def _is_whole(k: Any) -> bool:
    return isinstance(k, int | np.integer) and not isinstance(k, bool)
