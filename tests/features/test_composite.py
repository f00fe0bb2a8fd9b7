"""Maps made of maps: sums, products, and chains for chi2 and for sketched rows."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.random import Purpose, derived_seed
from knoi.features import (
    Chain,
    ConcatenatedMap,
    CountSketch,
    Identity,
    KernelColumns,
    Nystrom,
    ProductMap,
    RandomFourier,
    TensorMap,
    fit_chi2,
    fit_product,
    fit_sketched,
    fit_sum,
)
from knoi.features.composite import factor_rank, split_rank
from knoi.kernels import RBF, Cauchy, Chi2, Laplacian, Linear, Matern, Polynomial
from tests.features.fitting import fit, raises, rms, sparse_rows

SUM = 2 * RBF(2.0) + 0.5 * Laplacian(6.0)
PRODUCT = RBF(2.0) * Laplacian(8.0)

fourier = partial(fit, RandomFourier)
paired = partial(fourier, paired=True)


def nystrom_of_all(sample, kernel, rank, seed, view):
    return Nystrom.fit(sample, kernel)


def either(sample, kernel, rank, seed, view):
    """Fourier features, or the features themselves."""
    if isinstance(kernel, Linear):
        return Identity(sample.shape[1])
    return RandomFourier.fit(sample, kernel, rank, seed, view)


def sum_of(X, kernel=SUM, rank=40, fit_one=RandomFourier.fit):
    return fit(partial(fit_sum, fit_one), X, kernel, rank)


def product_of(X, kernel=PRODUCT, rank=40, fit_one=RandomFourier.fit):
    return fit(partial(fit_product, fit_one), X, kernel, rank)


class TestSums:
    def test_is_the_formula(self, rows):
        features = sum_of(rows)
        assert features.kernel == SUM
        parts = zip(SUM.weights, features.parts, strict=True)
        Phi = np.hstack([np.sqrt(w) * part.transform(rows) for w, part in parts])
        found = features.transform(rows)
        order = [np.nonzero((found == column[:, None]).all(0))[0] for column in Phi.T]
        assert sorted(int(i) for (i,) in order) == list(range(40))  # each once, in some order

    @pytest.mark.parametrize("ranks", [(64, 700, 1300), (1, 999)])
    def test_the_first_columns_are_a_fair_sample(self, rows, ranks):
        kernels = [RBF(2.0), Laplacian(4.0), Cauchy(2.0)]
        parts = tuple(fourier(rows, k, rank) for k, rank in zip(kernels, ranks, strict=False))
        features = ConcatenatedMap(parts, (1.0,) * len(parts))
        first = 400
        for i, rank in enumerate(ranks):
            places = features._places(i, 0, first)
            seen = sum(size for _, size, _ in places)
            assert abs(seen - first * rank / sum(ranks)) <= 64 * len(ranks)
            assert [own for own, _, _ in places] == sorted(own for own, _, _ in places)

    def test_features_go_where_the_trace_is(self, rows):
        features = sum_of(rows, 3 * RBF(2.0) + Laplacian(4.0), 100)
        assert [part.rank for part in features.parts] == [75, 25]
        # Of all splits into two, none has a smaller error to be expected, the sum of w^2 / M.
        assert min(range(1, 100), key=lambda m: 9 / m + 1 / (100 - m)) == 75
        # Linear has most of the trace, but five features are all it has; others get the rest.
        features = sum_of(rows, 9 * Linear() + RBF(2.0) + Laplacian(4.0), 101, either)
        assert [part.rank for part in features.parts] == [5, 48, 48]

    def test_parts_are_drawn_apart(self, rows):
        one, two = sum_of(rows, RBF(2.0) + RBF(2.0), 20).parts
        assert np.abs(one.W - two.W).min() > 0

    def test_wide_sparse_rows_stay_sparse(self):
        X = sparse_rows(30, 200_000, 10)
        columns = KernelColumns(RBF(1.0), X[:4, :]), KernelColumns(Linear(), X[:3, :])
        features = ConcatenatedMap(columns, (2.0, 1.0))
        assert all(scipy.sparse.issparse(rows) for rows in features.prepare(X).parts)
        K = RBF(1.0)(X, X[:4, :])
        np.testing.assert_allclose(features.transform(X)[:, :4], np.sqrt(2) * K, atol=1e-12)


class TestProducts:
    def test_fourier_maps_become_one(self, rows):
        features = product_of(rows)
        (joined,) = features.parts
        assert isinstance(joined, RandomFourier)
        assert features.kernel == PRODUCT
        one, two = (
            fourier(rows, kernel, 40, derived_seed(0, Purpose.PARTS, i))
            for i, kernel in enumerate(PRODUCT.parts)
        )
        np.testing.assert_allclose(joined.W, one.W + two.W, atol=1e-12)
        np.testing.assert_array_equal(joined.phases, one.phases)
        # So they do beside others.
        more = ProductMap.of((one, features, two))
        assert len(more.parts) == 2
        assert more.rank == 40

    def test_which_maps_have_iid_features(self, rows):
        random = fourier(rows, RBF(1.0), 4)
        assert random.features_iid
        assert ProductMap(PRODUCT, (random, random)).features_iid
        assert TensorMap((random, random)).features_iid
        fixed = Nystrom.fit(rows[:4], RBF(1.0))
        for features in (paired(rows, RBF(1.0), 4), fixed, Identity(5), sum_of(rows)):
            assert not features.features_iid
            assert not TensorMap((random, features)).features_iid

    def test_tensor_multiplies_each_with_each_by_diagonals(self, rows):
        one, two = fourier(rows, RBF(2.0), 8), fourier(rows, RBF(2.0), 9, 1)
        A, B = one.transform(rows), two.transform(rows)
        diagonals = [A * np.roll(B, -s, axis=1)[:, :8] for s in range(9)]
        for parts in ((one, two), (two, one)):
            found = TensorMap(parts).transform(rows)
            np.testing.assert_allclose(found, np.hstack(diagonals), atol=1e-14)
            np.testing.assert_allclose(found @ found.T, (A @ A.T) * (B @ B.T), atol=1e-12)


@pytest.mark.parametrize(
    ("fit_parts", "kernel", "rank"),
    [(sum_of, RBF(2.0) + 3 * Laplacian(4.0), 120), (product_of, RBF(2.0) * Polynomial(2.0), 144)],
)
def test_exact_parts_give_the_exact_kernel(rows, fit_parts, kernel, rank):
    few = rows[:12]
    features = fit_parts(few, kernel, rank, nystrom_of_all)
    assert features.kernel == kernel
    Phi = features.transform(few)
    np.testing.assert_allclose(Phi @ Phi.T, kernel(few, few), rtol=1e-6)


def test_splits_of_a_rank():
    assert split_rank([1, 1, 1], 10) == [4, 3, 3]
    assert split_rank([1, 1e9, 1], 3) == [1, 1, 1]
    assert split_rank([0, 0], 5) == [3, 2]
    assert factor_rank(1000, 2) == [32, 31]
    assert factor_rank(7, 3) == [2, 2, 1]
    assert factor_rank(1, 2) == [1, 1]


@pytest.fixture(scope="module")
def histograms():
    return np.random.default_rng(0).dirichlet(np.full(12, 0.5), size=60)


class TestChains:
    def test_chi2_is_rbf_on_additive_features(self, histograms):
        exact = Chi2(0.8)(histograms, histograms)
        floors = []
        for per_column in (1, 3, 5, 7, 81):
            chain = fit(fit_chi2, histograms, Chi2(0.8), 1, per_column=per_column)
            psi = chain.first.transform(histograms)
            floors.append(rms(RBF(np.sqrt(0.8 / 2))(psi, psi) - exact))
        assert sorted(floors, reverse=True) == floors
        assert floors[2] < 0.01  # what is left by default
        assert floors[4] < 1e-7  # the identity, in the limit

    @pytest.mark.parametrize("kernel", [RBF(0.7), Matern(0.7)], ids=lambda k: k.name)
    def test_error_of_sketched_features_falls_with_buckets_and_with_rank(self, kernel):
        X = np.random.default_rng(1).dirichlet(np.full(400, 0.05), size=40)

        def errors(size):
            """Root mean squares over draws: of the kernel of the sketch, of the features after."""
            squares = []
            for seed in range(12):
                chain = fit(fit_sketched, X, kernel, size, seed, buckets=size)
                Phi, Z = chain.transform(X), chain.first.transform(X)
                K = kernel(Z, Z)
                squares.append([np.mean((K - kernel(X, X)) ** 2), np.mean((Phi @ Phi.T - K) ** 2)])
            return np.sqrt(np.mean(squares, axis=0))

        ratio = errors(64) / errors(1024)
        assert (ratio > 3.0).all()
        assert (ratio < 5.3).all()


def test_what_makes_no_sense_raises(rows):
    with raises("rank=1 is below the 2 kernels of SumKernel("):
        sum_of(rows, rank=1)
    with raises("the maps take rows of [5, 4] columns: they must be of the same view"):
        ConcatenatedMap((Identity(5), Identity(4)), (1.0, 1.0))
    with raises("a map made of maps needs at least one of them"):
        ConcatenatedMap((), ())
    with raises("weights has 2 numbers for 1 kernels"):
        ConcatenatedMap((Identity(5),), (1.0, 2.0))
    with raises("weights[0]=0.0: wanted"):
        ConcatenatedMap((Identity(5),), (0.0,))
    with raises("the features of these maps (random_fourier) cannot be multiplied elementwise"):
        ProductMap(PRODUCT, (paired(rows, RBF(1.0), 20), paired(rows, RBF(2.0), 20)))
    with raises("the maps of a product have ranks [4, 5]: to be multiplied elementwise"):
        ProductMap.of((fourier(rows, RBF(1.0), 4), fourier(rows, RBF(1.0), 5)))
    with raises("the first map of a chain has 8 features, but the second takes 5 columns. Fit the"):
        Chain(fit(CountSketch, rows, Linear(), 8), fourier(rows, RBF(1.0), 5), RBF(1.0))
    for even in (2, -1, 0):
        with raises(f"per_column={even} cannot be used: it must be odd, 1, 3"):
            fit(fit_chi2, rows, Chi2(1.0), 10, per_column=even)
    with raises("the chi2 kernel has no width yet"):
        fit(fit_chi2, rows, Chi2(), 10)
