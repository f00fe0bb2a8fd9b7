"""Blockwise retrieval against the full similarity matrix."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.metrics import cross_view_retrieval, retrieval_ranks, top_matches
from knoi.metrics.retrieval import partner_ranks

SIMILARITIES = ("cosine", "euclidean", "dot")


def naive_similarity(Q, G, similarity):
    Q, G = np.asarray(Q, float), np.asarray(G, float)
    if similarity == "euclidean":
        return -np.sqrt(((Q[:, None] - G[None]) ** 2).sum(axis=2))
    if similarity == "cosine":
        Q, G = (
            Z / np.where(norm == 0, 1, norm)
            for Z, norm in ((Z, np.linalg.norm(Z, axis=1, keepdims=True)) for Z in (Q, G))
        )
    return (Q[:, None] * G[None]).sum(axis=2)


def naive_ranks(Q, G, similarity):
    S = naive_similarity(Q, G, similarity)
    ranks = []
    for i, row in enumerate(S):
        ties = np.isclose(row, row[i], rtol=1e-12, atol=1e-12)
        ties[i] = False
        better = (row > row[i]) & ~ties
        ranks.append(1 + better.sum() + ties.sum() / 2)
    return np.array(ranks)


def embeddings(n=300, d=6, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    Zx = rng.standard_normal((n, d))
    return Zx, Zx + noise * rng.standard_normal((n, d))


@pytest.mark.parametrize(("block_bytes", "dtype"), [(20_000, np.float32), (64 * 2**20, np.float64)])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_ranks_equal_the_full_matrix(similarity, block_bytes, dtype):
    Zx, Zy = (Z.astype(dtype) for Z in embeddings())
    options = {"similarity": similarity, "block_bytes": block_bytes}
    forward = retrieval_ranks(Zx, Zy, **options)
    backward = retrieval_ranks(Zx, Zy, direction="y_to_x", **options)
    np.testing.assert_array_equal(forward, naive_ranks(Zx, Zy, similarity))
    np.testing.assert_array_equal(backward, naive_ranks(Zy, Zx, similarity))
    assert not np.array_equal(forward, backward)
    some = np.array([250, 3, 3])
    found = partner_ranks(Zx[some], Zy, some, **options)
    np.testing.assert_array_equal(found, forward[some])


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_ranks_of_vectors_full_of_ties(data):
    n, d = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 3))
    grid = st.lists(st.integers(-2, 2), min_size=n * d, max_size=n * d)
    Zx, Zy = (np.array(data.draw(grid)).reshape(n, d) for _ in range(2))
    similarity = data.draw(st.sampled_from(SIMILARITIES))
    block_bytes = data.draw(st.sampled_from([1000, 10_000, 2**20]))
    found = retrieval_ranks(Zx, Zy, similarity=similarity, block_bytes=block_bytes)
    np.testing.assert_array_equal(found, naive_ranks(Zx, Zy, similarity))


def test_duplicated_rows_tie_wherever_they_fall_in_a_block():
    Zx, Zy = (np.tile(Z, (3, 1)) for Z in embeddings(n=130, d=37, noise=0.1))
    found = retrieval_ranks(Zx, Zy, similarity="euclidean", block_bytes=100_000)
    np.testing.assert_array_equal(found, naive_ranks(Zx, Zy, "euclidean"))
    assert found.min() == 2.0  # three rows share ranks 1, 2, 3


def test_constant_embedding_scores_at_chance():
    n = 701
    scores = cross_view_retrieval(np.full((n, 7), 0.1), np.full((n, 7), 3.3), ks=(1, 10, n))
    assert scores.recall == pytest.approx({1: 1 / n, 10: 10 / n, n: 1.0})
    assert scores.mean_reciprocal_rank == pytest.approx((1 / np.arange(1, n + 1)).mean())
    assert scores.median_rank == (n + 1) / 2
    assert scores.n_queries == n


def test_scores_without_ties():
    Zx, Zy = embeddings()
    ranks = naive_ranks(Zx, Zy, "cosine")
    scores = cross_view_retrieval(Zx, Zy, ks=(1, 7, 1000))
    assert scores.recall == pytest.approx({k: np.mean(ranks <= k) for k in (1, 7, 1000)})
    assert scores.mean_reciprocal_rank == pytest.approx(np.mean(1 / ranks))
    assert scores.median_rank == np.median(ranks)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_extreme_scales_do_not_overflow(similarity):
    Zx, Zy = embeddings(n=50)
    expected = retrieval_ranks(Zx, Zy, similarity=similarity)
    for scale in (1e-200, 1e200):
        found = retrieval_ranks(Zx * scale, Zy * scale, similarity=similarity)
        np.testing.assert_array_equal(found, expected)


def test_distances_survive_a_common_offset_and_an_outlier():
    Zx, Zy = embeddings(n=60)
    expected = retrieval_ranks(Zx[:59], Zy[:59], similarity="euclidean")
    shifted_x, shifted_y = Zx + 1e7, Zy + 1e7
    shifted_x[59], shifted_y[59] = 1e15, 1e15
    found = retrieval_ranks(shifted_x, shifted_y, similarity="euclidean")
    np.testing.assert_array_equal(found[:59], expected)
    assert found[59] == 1.0


def test_memory_stays_within_the_block():
    n, block_bytes, similarity = 4_000, 2**20, "euclidean"
    Zx, Zy = embeddings(n, d=8)
    tracemalloc.start()
    try:
        retrieval_ranks(Zx, Zy, similarity=similarity, block_bytes=block_bytes)
        _, ranks_peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        top_matches(Zx, Zy, 5, similarity=similarity, block_bytes=block_bytes)
        _, matches_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    few_vectors = 12 * 8 * n  # counts and the result
    assert ranks_peak < block_bytes + few_vectors
    assert matches_peak < block_bytes + few_vectors
    assert 8 * n * n > 50 * (block_bytes + few_vectors)  # the full matrix would not pass


def test_top_matches_orders_ties_by_index():
    gallery = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.0]])
    indices, similarities = top_matches([[2.0, 0.0]], gallery, 4)
    assert (indices.tolist(), similarities.tolist()) == ([[0, 2, 3, 1]], [[1.0, 1.0, 1.0, 0.0]])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 40), similarity=st.sampled_from(SIMILARITIES))
def test_top_matches_are_the_best(seed, m, similarity):
    rng = np.random.default_rng(seed)
    Q, G = rng.integers(-2, 3, (5, 3)), rng.integers(-2, 3, (m, 3))
    k = int(rng.integers(1, m + 1))
    indices, similarities = top_matches(Q, G, k, similarity=similarity, block_bytes=8000)
    S = naive_similarity(Q, G, similarity)
    # Ties make the indices ambiguous, never the values.
    np.testing.assert_allclose(similarities, -np.sort(-S, axis=1)[:, :k], atol=1e-12)
    np.testing.assert_allclose(similarities, np.take_along_axis(S, indices, axis=1), atol=1e-12)
    assert all(len(set(row)) == k for row in indices.tolist())
