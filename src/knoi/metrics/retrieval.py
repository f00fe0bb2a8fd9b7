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

from knoi.arrays.backend import power_of_two
from knoi.checks import integer, is_integer, one_of
from knoi.exceptions import InputError, MemoryBudgetError
from knoi.metrics.correlation import (
    check_same_width,
    paired_projections,
    projection_matrix,
    row_blocks,
)

Float64 = NDArray[np.float64]
Direction = Literal["x_to_y", "y_to_x"]
Similarity = Literal["cosine", "euclidean", "dot"]

DEFAULT_BLOCK_BYTES = 64 * 2**20
# A block of this shape takes 8 MiB: larger ones leave the cache and are slower.
_MAX_QUERY_ROWS = 256
_MAX_GALLERY_ROWS = 4096


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
    if not all(is_integer(k) and k >= 1 for k in ks):
        raise InputError(f"ks={ks!r}: wanted whole numbers of at least 1, e.g. (1, 5, 10).")
    better, tied = _partner_rivals(Zx, Zy, similarity, direction, block_bytes)
    # The partner's rank is uniform on better + 1 .. better + tied + 1.
    recall = {k: float(np.clip((k - better) / (tied + 1), 0.0, 1.0).mean()) for k in map(int, ks)}
    reciprocal = 1.0 / (better + 1.0)
    several = tied > 0
    first, last = better[several] + 1, better[several] + tied[several] + 1
    reciprocal[several] = (digamma(last + 1) - digamma(first)) / (last - first + 1)
    return RetrievalScores(
        recall=recall,
        mean_reciprocal_rank=float(reciprocal.mean()),
        median_rank=float(np.median(better + 1 + tied / 2)),
        n_queries=len(better),
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
    better, tied = _partner_rivals(Zx, Zy, similarity, direction, block_bytes)
    return np.asarray(better + 1 + tied / 2, dtype=np.float64)


def partner_ranks(
    queries: Any,
    gallery: Any,
    partners: Any,
    *,
    similarity: Similarity = "cosine",
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> Float64:
    """As `retrieval_ranks`, for some queries of many: the rank of row `partners[i]` for query i."""
    comparison = _Comparison(*_checked(queries, gallery), similarity)
    better, tied = _rivals(comparison, np.asarray(partners), block_bytes)
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
    queries, gallery = _checked(queries, gallery)
    m = len(gallery)
    if not is_integer(k) or not 1 <= k <= m:
        raise InputError(f"k={k!r}: wanted a whole number from 1 to {m}, the rows of the gallery.")
    comparison = _Comparison(queries, gallery, similarity)
    n, d = queries.shape
    rows, columns = _block_shape(n, m, d, block_bytes, per_query=k * (3 * d + 8))

    indices = np.empty((n, k), dtype=np.int64)
    similarities = np.empty((n, k))
    for at in row_blocks(n, rows):
        Q = comparison.rows(0, at)
        chosen = _best_candidates(comparison, Q, k, columns)  # (b, k)
        near = comparison.similarities(Q, comparison.rows(1, chosen))
        order = np.lexsort((chosen, -near), axis=1)
        indices[at] = np.take_along_axis(chosen, order, axis=1)
        similarities[at] = np.take_along_axis(near, order, axis=1)
    return indices, similarities


def _checked(queries: Any, gallery: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    queries, gallery = projection_matrix(queries, "queries"), projection_matrix(gallery, "gallery")
    check_same_width(queries, gallery, ("queries", "gallery"))
    return queries, gallery


class _Comparison:
    """Queries against a gallery under one similarity, by blocks: the full matrix never exists.

    Every similarity becomes a matrix product of prepared rows: centred, scaled or normalised. It is
    computed in float64: ranks depend on the order of nearly equal numbers, which float32 products
    do not preserve.
    """

    def __init__(
        self, queries: NDArray[Any], gallery: NDArray[Any], similarity: Similarity
    ) -> None:
        self.similarity = one_of("similarity", similarity, get_args(Similarity))
        self.views = queries, gallery
        self.n_dims = gallery.shape[1]
        self._centre = np.zeros(self.n_dims)  # in units of the scale
        self._scales = [1.0, 1.0]
        if similarity != "cosine":
            self._scales = [power_of_two(Z) for Z in self.views]
        if similarity == "euclidean":
            # Distances do not depend on a common offset, but |q|^2 + |g|^2 - 2 q'g cancels under
            # one. The median, since a single outlier must not become such an offset itself.
            self._scales = [max(self._scales)] * 2
            for j in range(self.n_dims):
                self._centre[j] = np.median(gallery[:, j]) / self._scales[0]

    def rows(self, view: int, at: slice | NDArray[np.int64]) -> Float64:
        """Prepared rows of the queries (0) or the gallery (1), of shape (*at.shape, d)."""
        A: Float64 = np.divide(self.views[view][at], self._scales[view], dtype=np.float64)
        A -= self._centre
        if self.similarity == "cosine":
            # First by the largest value, so that no square over- or underflows. A zero vector stays
            # zero: it is similar to nothing.
            for order in (np.inf, 2):
                length = np.linalg.norm(A, order, axis=-1, keepdims=True)
                A /= np.where(length == 0.0, 1.0, length)
        return A

    def scores(self, Q: Float64, G: Float64) -> Float64:
        """Scores (len(Q), len(G)) that order gallery rows as the similarity does."""
        S = Q @ G.T
        if self.similarity == "euclidean":
            # -|q - g|^2 / 2, without the term that is the same for every g
            S -= 0.5 * np.einsum("ij,ij->i", G, G)
        return S

    def partner_scores(self, Q: Float64, G: Float64) -> tuple[Float64, Float64]:
        """Score of each query with its partner in G, and how far rounding may move ties apart."""
        own = np.einsum("ij,ij->i", Q, G)
        q, g = np.linalg.norm(Q, axis=1), np.linalg.norm(G, axis=1)
        rounding = (self.n_dims + 4) * np.finfo(np.float64).eps
        if self.similarity == "euclidean":
            # No row as near to q as its partner is longer than this:
            reach = 2.0 * q + g
            return own - 0.5 * g * g, 1.5 * rounding * reach * reach
        return own, rounding * q * g

    def similarities(self, Q: Float64, G: Float64) -> Float64:
        """Similarities of Q (b, d) to their own candidates G (b, k, d), in units of the input."""
        if self.similarity == "euclidean":
            G = G - Q[:, None, :]
            return np.asarray(-np.sqrt(np.einsum("ikj,ikj->ik", G, G)) * self._scales[0])
        products = np.einsum("ij,ikj->ik", Q, G)
        with np.errstate(over="ignore"):  # beyond the range of float64 it is inf, as it should be
            return np.asarray(products * self._scales[0] * self._scales[1])


def _partner_rivals(
    Zx: Any, Zy: Any, similarity: Similarity, direction: Direction, block_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row, how many others beat its partner in the other view, and how many tie."""
    Zx, Zy = paired_projections(Zx, Zy, same_width=True)
    one_of("direction", direction, get_args(Direction))
    views = (Zx, Zy) if direction == "x_to_y" else (Zy, Zx)
    return _rivals(_Comparison(*views, similarity), np.arange(len(Zx)), block_bytes)


def _rivals(
    comparison: _Comparison, partners: NDArray[np.int64], block_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each query, how many rows of the gallery beat its partner, and how many tie with it."""
    n, m = map(len, comparison.views)
    rows, columns = _block_shape(n, m, comparison.n_dims, block_bytes)
    better = np.zeros(n, dtype=np.int64)
    no_worse = np.zeros(n, dtype=np.int64)
    for at in row_blocks(n, rows):
        Q = comparison.rows(0, at)
        own, rounding = comparison.partner_scores(Q, comparison.rows(1, partners[at]))
        above, below = (own + rounding)[:, None], (own - rounding)[:, None]
        for across in row_blocks(m, columns):
            S = comparison.scores(Q, comparison.rows(1, across))
            inside = (partners[at] >= across.start) & (partners[at] < across.stop)
            S[inside, partners[at][inside] - across.start] = -np.inf  # not its own rival
            better[at] += np.count_nonzero(np.greater(S, above), axis=1)
            no_worse[at] += np.count_nonzero(np.greater_equal(S, below), axis=1)
    return better, no_worse - better


def _best_candidates(
    comparison: _Comparison, Q: Float64, k: int, columns: int
) -> NDArray[np.int64]:
    """Gallery indices (len(Q), k) of the best scores, in no order."""
    best = np.empty((len(Q), 0))
    indices = np.empty((len(Q), 0), dtype=np.int64)
    for at in row_blocks(len(comparison.views[1]), columns):
        S = comparison.scores(Q, comparison.rows(1, at))
        kept = _largest_columns(S, k)
        best = np.concatenate([best, np.take_along_axis(S, kept, axis=1)], axis=1)
        indices = np.concatenate([indices, kept + at.start], axis=1)
        kept = _largest_columns(best, k)
        best = np.take_along_axis(best, kept, axis=1)
        indices = np.take_along_axis(indices, kept, axis=1)
    return indices


def _largest_columns(S: Float64, k: int) -> NDArray[np.int64]:
    if S.shape[1] <= k:
        return np.broadcast_to(np.arange(S.shape[1]), S.shape)
    return np.argpartition(S, S.shape[1] - k, axis=1)[:, -k:]


def _block_shape(
    n_queries: int, n_gallery: int, n_dims: int, block_bytes: int, *, per_query: int = 0
) -> tuple[int, int]:
    """Query and gallery rows of a block that works within `block_bytes`.

    `per_query` is how many numbers the caller keeps for each query of a block.
    """
    block_bytes = integer("block_bytes", block_bytes)

    def cost(q: int, g: int) -> int:
        # Scores with their masks or their argpartition, and prepared rows with their temporaries.
        return 8 * (3 * q * g + 3 * (q + g) * n_dims + q * per_query)

    q, g = min(n_queries, _MAX_QUERY_ROWS), min(n_gallery, _MAX_GALLERY_ROWS)
    while cost(q, g) > block_bytes:
        if q == g == 1:
            raise MemoryBudgetError(
                f"block_bytes={block_bytes} cannot hold the work of one query, which takes "
                f"{cost(1, 1)} bytes. Raise block_bytes."
            )
        if g >= q:
            g = -(-g // 2)
        else:
            q = -(-q // 2)
    return q, g
