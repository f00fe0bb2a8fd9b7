"""Chains: exponential chi2 by RBF on additive features, and kernels of sketches."""

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.random import View
from knoi.exceptions import InputError
from knoi.features import Chain, CountSketch, RandomFourier, fit_chi2, fit_sketched
from knoi.kernels import RBF, Chi2, Linear, Matern
from tests.contracts.feature_map import FeatureMapContract, MapCase


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).dirichlet(np.full(12, 0.5), size=60)
    X.setflags(write=False)
    return X


def chi2(rows, rank, seed=0, **options):
    return fit_chi2(rows, Chi2(0.8), rank, seed, View.X, **options)


def sketched(rows, rank, seed=0, kernel=RBF(0.5), buckets=8):  # noqa: B008
    return fit_sketched(rows, kernel, rank, seed, View.X, buckets=buckets)


CASES = {
    "chi2": chi2,
    "chi2-of-sparse": lambda rows, rank: chi2(scipy.sparse.csr_array(rows), rank),
    "sketched": sketched,
}


@pytest.fixture(params=CASES, scope="module")
def case(request, rows):
    make = CASES[request.param]
    return MapCase(make(rows, 11), rows[:20], 11, larger=make(rows, 30), shared=11)


class TestChain(FeatureMapContract):
    pass


def test_is_one_map_after_the_other(rows):
    chain = chi2(rows, 30)
    between = chain.first.transform(rows)
    assert between.shape == (60, chain.first.rank) == (60, 12 * 5)
    np.testing.assert_array_equal(chain.transform(rows), chain.second.transform(between))
    assert chain.kernel == Chi2(0.8)
    assert chain.dtype == np.float64
    assert chain.grain == chain.second.grain


def rms(K):
    return np.sqrt(np.mean(K**2))


def test_chi2_is_rbf_on_additive_features(rows):
    exact = Chi2(0.8)(rows, rows)
    floors = []
    for per_column in (1, 3, 5, 7, 81):
        psi = chi2(rows, 1, per_column=per_column).first.transform(rows)
        floors.append(rms(RBF(np.sqrt(0.8 / 2))(psi, psi) - exact))
    assert sorted(floors, reverse=True) == floors
    assert floors[2] < 0.01  # what is left by default
    assert floors[4] < 1e-7  # the identity, in the limit


@pytest.mark.parametrize("kernel", [RBF(0.7), Matern(0.7)], ids=lambda k: k.name)
def test_error_of_sketched_features_falls_with_buckets_and_with_rank(kernel):
    X = np.random.default_rng(1).dirichlet(np.full(400, 0.05), size=40)

    def errors(rank, buckets):
        """Root mean squares over draws: of the kernel of the sketch, of the features after it."""
        squares = []
        for seed in range(12):
            chain = sketched(X, rank, seed, kernel, buckets)
            Phi, Z = chain.transform(X), chain.first.transform(X)
            K = kernel(Z, Z)
            squares.append([np.mean((K - kernel(X, X)) ** 2), np.mean((Phi @ Phi.T - K) ** 2)])
        return np.sqrt(np.mean(squares, axis=0))

    small, large = errors(64, 64), errors(1024, 1024)
    assert (small / large > 3.0).all()
    assert (small / large < 5.3).all()


def test_maps_must_fit_together(rows):
    expected = (
        r"^the first map of a chain has 8 features, but the second takes 12 columns\. Fit the "
        r"second on features of the first\.$"
    )
    first = CountSketch.fit(rows, Linear(), 8, 0, View.X)
    with pytest.raises(InputError, match=expected):
        Chain(first, RandomFourier.fit(rows, RBF(1.0), 5, 0, View.X), RBF(1.0))


def test_an_even_number_per_column_raises(rows):
    for per_column in (2, -1):
        expected = rf"^per_column={per_column} cannot be used: it must be odd, 1, 3"
        with pytest.raises(InputError, match=expected):
            chi2(rows, 10, per_column=per_column)


def test_a_width_must_be_decided(rows):
    with pytest.raises(InputError, match=r"^the chi2 kernel has no width yet"):
        fit_chi2(rows, Chi2(), 10, 0, View.X)
