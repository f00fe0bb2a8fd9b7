"""Similarity of two sets of vectors, block by block: the full matrix never exists.

Every similarity becomes one matrix product of prepared rows, so that its cost is a `gemm`. Work is
in float64: ranks depend on the order of nearly equal numbers, which float32 products do not keep.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from knoi.exceptions import InputError, MemoryBudgetError

Float64 = NDArray[np.float64]
Similarity = Literal["cosine", "euclidean", "dot"]

DEFAULT_BLOCK_BYTES = 64 * 2**20

# A block of this shape is 8 MiB: larger ones leave the cache and are slower.
_MAX_QUERY_ROWS = 256
_MAX_GALLERY_ROWS = 4096


@dataclass(frozen=True)
class PreparedRows:
    """Vectors that are centred, scaled and normalised as a similarity needs, a block at a time."""

    Z: NDArray[Any]  # (n, d), in the dtype it came in
    scale: float  # a power of two, so that dividing by it is exact
    centre: Float64  # (d,), in units of `scale`
    unit_norm: bool

    def __len__(self) -> int:
        return len(self.Z)

    def rows(self, at: slice | NDArray[np.int64]) -> Float64:
        """Rows `at`, prepared; an index array of any shape gives shape (*at.shape, d)."""
        A: Float64 = np.divide(self.Z[at], self.scale, dtype=np.float64)
        A -= self.centre
        if self.unit_norm:
            # By the largest value first, so that no square overflows or vanishes; a zero vector
            # stays zero: it is similar to nothing.
            for size in (_largest, _norm):
                length = size(A)
                length[length == 0.0] = 1.0
                A /= length
        return A


@dataclass(frozen=True)
class Comparison:
    """Queries against a gallery under one similarity."""

    queries: PreparedRows
    gallery: PreparedRows
    similarity: Similarity

    @property
    def n_dims(self) -> int:
        """Length of the vectors."""
        return int(self.queries.Z.shape[1])

    def scores(self, Q: Float64, G: Float64) -> Float64:
        """Matrix (len(Q), len(G)) that orders the prepared gallery rows as the similarity does."""
        S = Q @ G.T
        if self.similarity == "euclidean":
            # -|q - g|^2 / 2, without the term that is the same for every g
            S -= 0.5 * np.einsum("ij,ij->i", G, G)
        return S

    def paired_scores(self, Q: Float64, G: Float64) -> tuple[Float64, Float64]:
        """Score of each query with the gallery row beside it, and how far ties may round apart."""
        own = np.einsum("ij,ij->i", Q, G)
        q, g = _norm(Q)[:, 0], _norm(G)[:, 0]
        rounding = (self.n_dims + 4) * np.finfo(np.float64).eps
        if self.similarity == "euclidean":
            # Whoever is as near to q as its partner is no longer than this:
            reach = 2.0 * q + g
            return own - 0.5 * g * g, 1.5 * rounding * reach * reach
        return own, rounding * q * g

    def similarities(self, Q: Float64, G: Float64) -> Float64:
        """Similarities of prepared Q (b, d) to their own candidates G (b, k, d), in input units."""
        if self.similarity == "euclidean":
            G = G - Q[:, None, :]
            return np.asarray(-np.sqrt(np.einsum("ikj,ikj->ik", G, G)) * self.queries.scale)
        products = np.einsum("ij,ikj->ik", Q, G)
        with np.errstate(over="ignore"):  # beyond the range of float64 it is inf, as it should be
            return np.asarray(products * self.queries.scale * self.gallery.scale)


def compare(queries: NDArray[Any], gallery: NDArray[Any], similarity: Similarity) -> Comparison:
    """Choose centre and scale for a similarity of checked arrays of equal width."""
    if similarity not in get_args(Similarity):
        raise InputError(
            f"similarity={similarity!r} is not known. Choose one of: "
            + ", ".join(repr(name) for name in get_args(Similarity))
            + "."
        )
    origin = np.zeros(queries.shape[1])
    if similarity == "cosine":
        q_scale = g_scale = 1.0
    else:
        q_scale, g_scale = _power_of_two(queries), _power_of_two(gallery)
    if similarity == "euclidean":
        # Distances do not see a common offset, but |q|^2 + |g|^2 - 2 q'g would cancel under one.
        # The median, since one far outlier must not become such an offset itself.
        q_scale = g_scale = max(q_scale, g_scale)
        for j in range(len(origin)):
            origin[j] = np.median(gallery[:, j]) / g_scale
    unit_norm = similarity == "cosine"
    return Comparison(
        PreparedRows(queries, q_scale, origin, unit_norm),
        PreparedRows(gallery, g_scale, origin, unit_norm),
        similarity,
    )


def block_shape(
    n_queries: int, n_gallery: int, n_dims: int, block_bytes: int, *, per_query: int = 0
) -> tuple[int, int]:
    """Query and gallery rows of a block whose working memory stays within `block_bytes`.

    `per_query` is what the caller keeps besides for each query of a block, in numbers.
    """
    if not isinstance(block_bytes, int | np.integer) or isinstance(block_bytes, bool):
        raise InputError(f"block_bytes={block_bytes!r}: wanted a whole number of bytes.")

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


def slices(n: int, step: int) -> Iterator[slice]:
    """0..n in order, `step` at a time."""
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _largest(A: Float64) -> Float64:
    return np.asarray(np.maximum(A.max(axis=-1, keepdims=True), -A.min(axis=-1, keepdims=True)))


def _norm(A: Float64) -> Float64:
    return np.asarray(np.sqrt(np.einsum("...j,...j->...", A, A))[..., None])


def _power_of_two(Z: NDArray[Any]) -> float:
    largest = max(abs(float(Z.max())), abs(float(Z.min())))
    if largest == 0.0:
        return 1.0
    return float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1))
