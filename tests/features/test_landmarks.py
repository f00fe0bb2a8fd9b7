"""Landmarks: each rule against its definition and what it explains; Nystrom maps at landmarks."""

from typing import get_args

import numpy as np
import pytest
import scipy.sparse

from knoi import NystromCCA
from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.features import Nystrom
from knoi.features.landmarks import (
    Selection,
    distant_rows,
    leverage_scores,
    n_candidates,
    pivoted_cholesky,
    randomly_pivoted_cholesky,
    select_landmarks,
)
from knoi.kernels import RBF, Chi2, Laplacian, Linear, Matern, Polynomial
from tests.features.fitting import raises, sparse_rows

SELECTIONS = get_args(Selection)
every_rule = pytest.mark.parametrize("method", SELECTIONS)


def unequal_clusters(n=1000):
    """A cluster of nine tenths of the rows, and twenty that share the rest."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(21), [n - 20 * (n // 200), *[n // 200] * 20])
    centres = 10 * rng.standard_normal((21, 4))
    return centres[label] + 0.5 * rng.standard_normal((n, 4))


def incomplete_cholesky(K, rank):
    """Rank-one downdates of the whole matrix, the largest diagonal entry first (Bach & Jordan)."""
    pivots, left, approximation = [], K.copy(), np.zeros_like(K)
    for _ in range(rank):
        pivot = int(np.argmax(np.diag(left)))
        pivots.append(pivot)
        explained = np.outer(left[:, pivot], left[pivot]) / left[pivot, pivot]
        left, approximation = left - explained, approximation + explained
    return pivots, approximation


class TestPivotedCholesky:
    def test_is_the_incomplete_cholesky_decomposition(self):
        X = np.random.default_rng(0).standard_normal((300, 5))
        kernel = Polynomial(width=2.0)  # a diagonal that is not constant: the first pivot is told
        pivots, G = pivoted_cholesky(X, kernel, 40)
        expected, approximation = incomplete_cholesky(kernel(X, X), 40)
        assert list(pivots) == expected
        np.testing.assert_allclose(G @ G.T, approximation, atol=1e-8 * np.abs(G @ G.T).max())

    @pytest.mark.parametrize("width", [0.5, 8.0])
    def test_beyond_a_block_every_pivot_is_the_worst_explained(self, width):
        # Clusters: what is predicted from the worst rows now is often wrong a few pivots later.
        X = unequal_clusters()
        kernel = RBF(width)
        pivots, G = pivoted_cholesky(X, kernel, 300)
        left = np.ones(len(X))
        for m, pivot in enumerate(pivots):
            # Greed up to rounding, which may decide between rows explained equally well.
            assert left[pivot] >= left.max() * (1 - 1e-6)
            left = np.maximum(left - G[:, m] ** 2, 0.0)
        assert len(set(pivots)) == len(pivots)
        np.testing.assert_allclose((G @ G.T)[pivots], kernel(X[pivots], X), atol=1e-9)


@pytest.mark.parametrize("method", ["pivoted_cholesky", "randomly_pivoted_cholesky"])
class TestBothCholesky:
    def factor(self, method, *args):
        if method == "pivoted_cholesky":
            return pivoted_cholesky(*args)
        return randomly_pivoted_cholesky(*args, np.random.default_rng(0))

    def test_stops_when_nothing_is_left(self, rows, method):
        doubled = np.vstack([rows[:7], rows[:7]])
        assert len(select_landmarks(doubled, RBF(2.0), 14, 0, View.X, method)) == 7
        pivots, G = self.factor(method, rows, Linear(), 20)
        assert len(pivots) == 5
        np.testing.assert_allclose(G @ G.T, rows @ rows.T, atol=1e-10)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_is_a_factorisation_over_many_blocks(self, method, dtype):
        X = np.random.default_rng(1).standard_normal((500, 3)).astype(dtype)
        pivots, G = self.factor(method, X, RBF(0.5), 400)
        assert len(pivots) > 150  # more than are taken at once
        tolerance = 1e-8 if dtype == np.float64 else 1e-3
        np.testing.assert_allclose((G @ G.T)[pivots], RBF(0.5)(X[pivots], X), atol=tolerance)
        # Lower triangular at its pivots: no pivot is explained by a later one.
        np.testing.assert_allclose(np.triu(G[pivots], 1), 0.0, atol=tolerance)


@pytest.mark.parametrize("method", ["pivoted_cholesky", "randomly_pivoted_cholesky", "leverage"])
def test_rows_of_zero_kernel_are_never_taken(rows, method):
    X = np.vstack([np.zeros((30, 5)), rows[:4]])
    found = select_landmarks(X, Linear(), 12, 0, View.X, method)
    assert len(found) == 4
    assert found.any(axis=1).all()
    assert select_landmarks(X[:9], Linear(), 3, 0, View.X, method).shape == (0, 5)


# Five rows, and how often sequences of a few of them are drawn.
FIVE = np.array([[0.8, 0.0], [1.0, 1.0], [-1.0, 0.5], [0.0, -1.2], [1.2, -0.6]])
DRAWS = 1000


def assert_drawn_as_expected(found, expected):
    """Pearson's statistic is within 4.5 standard deviations of its mean."""
    assert expected.sum() == pytest.approx(1.0)
    possible = expected > 0
    assert found[~possible].sum() == 0
    statistic = DRAWS * ((found - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - 1
    assert statistic < freedom + 4.5 * np.sqrt(2 * freedom)


def test_random_pivots_are_drawn_by_what_is_left_of_the_diagonal():
    kernel = Polynomial(width=1.0, degree=2)
    K = kernel(FIVE, FIVE)
    expected, found = np.zeros((2, 5, 5))
    for i in range(5):
        left = np.diag(K) - K[:, i] ** 2 / K[i, i]
        left[i] = 0.0
        expected[i] = K[i, i] / np.trace(K) * left / left.sum()
    draw = np.random.default_rng(0)
    for _ in range(DRAWS):
        pivots, _ = randomly_pivoted_cholesky(FIVE, kernel, 2, draw)
        found[tuple(pivots)] += 1 / DRAWS
    assert_drawn_as_expected(found, expected)


def test_distant_rows_are_drawn_by_squared_distance():
    squares = ((FIVE[:, None] - FIVE) ** 2).sum(axis=2)
    expected, found = np.zeros((2, 5, 5, 5))
    for i in range(5):
        for j in range(5):
            both = np.minimum(squares[i], squares[j])
            expected[i, j] = squares[i, j] / squares[i].sum() / 5 * both / both.sum()
    draw = np.random.default_rng(0)
    for _ in range(DRAWS):
        found[tuple(distant_rows(FIVE, 3, draw))] += 1 / DRAWS
    assert_drawn_as_expected(found, expected)


class TestLeverage:
    def test_scores_of_all_rows_are_exact(self, rows):
        kernel = Polynomial(width=2.0)
        K = kernel(rows, rows)
        scores = leverage_scores(rows, kernel, rows, np.ones(60), 40, 1e-12)
        # Some ridge: the one at which they add up to a quarter of the rank.
        values = np.linalg.eigvalsh(K)
        ridges = np.geomspace(1e-6, 1e3, 20_000) * values[-1]
        sums = (values / (values + ridges[:, None])).sum(axis=1)
        ridge = ridges[np.abs(sums - 10).argmin()]
        expected = np.diag(K @ np.linalg.inv(K + ridge * np.eye(60)))
        np.testing.assert_allclose(scores, expected, rtol=2e-3)
        assert scores.sum() == pytest.approx(10, rel=1e-6)

    def test_estimates_are_near_the_scores(self):
        # Half of the rows, each standing for two: within a factor of two they tell every score.
        X = unequal_clusters(600)
        kernel = RBF(3.0)
        exact = leverage_scores(X, kernel, X, np.ones(600), 100, 1e-12)
        estimate = leverage_scores(X, kernel, X[::2], np.full(300, 2.0), 100, 1e-12)
        assert (np.abs(np.log2(estimate / exact)) < 1).mean() > 0.9


class TestEveryRule:
    @every_rule
    def test_is_repeatable_and_differs_between_views_and_seeds(self, rows, method):
        single = rows.astype(np.float32)
        one, two = (select_landmarks(single, RBF(2.0), 9, 5, View.X, method) for _ in range(2))
        np.testing.assert_array_equal(one, two)
        assert one.dtype == np.float32
        assert one.shape == (9, 5)
        for seed, view in ((5, View.Y), (6, View.X)):
            other = select_landmarks(single, RBF(2.0), 9, seed, view, method)
            assert np.array_equal(one, other) == (method == "pivoted_cholesky")

    @pytest.mark.parametrize("method", sorted(set(SELECTIONS) - {"kmeans"}))  # which takes no rows
    def test_all_rows_are_their_own_landmarks(self, rows, method):
        found = select_landmarks(rows, RBF(1.0), 60, 0, View.X, method)
        np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(rows, axis=0))

    @every_rule
    def test_duplicate_rows_never_give_nan(self, rows, method):
        few = np.repeat(rows[:6], 10, axis=0).astype(np.float32)
        Z = select_landmarks(few, RBF(2.0), 20, 0, View.X, method)
        features = Nystrom.fit(Z, RBF(2.0))
        assert features.rank <= 6
        assert np.isfinite(features.transform(rows.astype(np.float32))).all()

    def test_means_of_histograms_are_histograms(self):
        counts = np.random.default_rng(0).poisson(0.3, (200, 6)).astype(np.float64)
        Z = select_landmarks(counts, Chi2(2.0), 20, 0, View.X, "kmeans")
        assert np.isfinite(Nystrom.fit(Z, Chi2(2.0)).transform(counts)).all()

    @pytest.mark.parametrize("method", sorted(set(SELECTIONS) - {"uniform"}))
    def test_explains_more_than_uniform_where_clusters_are_unequal(self, method):
        X = unequal_clusters()
        kernel = RBF(3.0)

        def typical(rule):
            """Mean trace of what Nystrom maps leave of the kernel matrix, whose diagonal is 1."""
            found = (select_landmarks(X, kernel, 60, seed, View.X, rule) for seed in range(3))
            maps = (Nystrom.fit(Z, kernel).transform(X) for Z in found)
            return np.mean([1 - (Phi**2).sum() / len(X) for Phi in maps])

        # Uniform landmarks miss most of the small clusters, a tenth of the rows.
        assert typical(method) < 0.6 * typical("uniform")

    @pytest.mark.parametrize("method", ["kmeans", "kmeans++"])
    def test_clusters_are_found_at_any_scale(self, method):
        rng = np.random.default_rng(0)
        centres = 1e6 * rng.standard_normal((4, 3))
        X = np.repeat(centres, 50, axis=0) + rng.standard_normal((200, 3))
        found = select_landmarks(X, RBF(1.0), 4, 0, View.X, method)
        distances = np.linalg.norm(found[:, None] - centres[None], axis=2)
        assert sorted(distances.argmin(1)) == [0, 1, 2, 3]
        assert distances.min(1).max() < (1.0 if method == "kmeans" else 6.0)

    @every_rule
    def test_landmarks_of_sparse_rows_are_those_of_dense_rows(self, method):
        sparse = sparse_rows(120, 40, 4)
        found = select_landmarks(sparse, RBF(1.5), 20, 0, View.X, method)
        assert isinstance(found, scipy.sparse.csr_array)
        dense = select_landmarks(sparse.toarray(), RBF(1.5), 20, 0, View.X, method)
        np.testing.assert_allclose(found.toarray(), dense, atol=1e-12)


def test_candidates_are_as_many_as_the_rule_wants():
    sizes = ("uniform", 100), ("leverage", 100), ("kmeans", 1000)
    assert [n_candidates(*size) for size in sizes] == [100, 4000, 5000]


def test_errors(rows):
    with raises("rank=61 landmarks cannot be chosen from 60 rows"):
        select_landmarks(rows, RBF(2.0), 61, 0, View.X)
    with raises("landmarks='dpp': wanted one of 'uniform', 'kmea"):
        select_landmarks(rows, RBF(2.0), 9, 0, View.X, "dpp")


@every_rule
def test_every_rule_works_in_an_estimator(method, two_views, monkeypatch):
    # Fewer than there are rows: candidates are read from here and there.
    monkeypatch.setattr("knoi.features.landmarks._LEAST_CANDIDATES", 120)
    model = NystromCCA(2, rank=20, landmarks=method, random_state=0, n_jobs=1).fit(*two_views)
    assert model.score(*two_views) > 1.0


@pytest.mark.parametrize(
    "kernel", [Laplacian(6.0), Polynomial(width=2.0), Matern(2.0), Chi2(1.0)], ids=lambda k: k.name
)
def test_reproduces_the_kernel_on_its_landmarks(rows, kernel):
    X = np.abs(rows)
    for Z in (X[:20], X):  # with all points it is the kernel
        features = Nystrom.fit(Z, kernel)
        assert features.columns.landmarks is Z
        exact = kernel(X, Z)
        found = features.transform(X) @ features.transform(Z).T
        np.testing.assert_allclose(found, exact, atol=1e-7 * np.abs(exact).max())


@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-8), (np.float32, 1e-3)])
def test_duplicate_landmarks_cost_rank_and_nothing_else(rows, dtype, atol):
    X = rows.astype(dtype)
    plain = Nystrom.fit(X[:10], RBF(1.0)).transform(X)
    double = Nystrom.fit(np.vstack([X[:10], X[:10], X[:3]]), RBF(1.0))
    assert double.rank == 10
    Phi = double.transform(X)
    np.testing.assert_allclose(Phi @ Phi.T, plain @ plain.T, atol=atol)


@pytest.mark.parametrize("method", ["uniform", "kmeans"])
def test_far_from_the_origin_float32_keeps_its_digits(rows, method):
    near = np.round(rows * 64) / 64
    far = (near + 1e4).astype(np.float32)
    Z = select_landmarks(far, RBF(2.0), 20, 0, View.X, method)
    features = Nystrom.fit(Z, RBF(2.0))
    assert features.rank > 15
    Phi = features.to(numpy_backend("float32")).transform(far).astype(np.float64)
    Z = Z.astype(np.float64)
    K = RBF(2.0)(near + 1e4, Z)
    exact = K @ np.linalg.pinv(RBF(2.0)(Z, Z), hermitian=True) @ K.T
    np.testing.assert_allclose(Phi @ Phi.T, exact, atol=2e-3)
