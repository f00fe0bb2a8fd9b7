"""Additive features against their formula, the exact kernels, scikit-learn, and other steps."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.kernel_approximation import AdditiveChi2Sampler

from knoi.features import Additive
from knoi.features.additive import fit_weights
from knoi.kernels import AdditiveChi2, Intersection
from tests.features.fitting import fit, kernel_error, raises, relative, sparse_rows

both_kernels = pytest.mark.parametrize(
    "kernel", [AdditiveChi2(), Intersection()], ids=lambda kernel: kernel.name
)
additive = partial(fit, Additive)


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).gamma(0.5, size=(60, 5))
    X[::7, 2] = 0.0
    X.setflags(write=False)
    return X


def distances(K):
    return np.diag(K)[:, None] + np.diag(K)[None, :] - 2 * K


@both_kernels
def test_is_the_formula(rows, kernel):
    features = additive(rows, kernel, 25)
    L, c = features.step, features.weights
    wanted = np.zeros((60, 25))
    for i, j in np.argwhere(rows > 0):
        turns = L * math.log(rows[i, j]) * np.array([0, 1, 1, 2, 2])
        waves = np.where([True, True, False, True, False], np.cos(turns), np.sin(turns))
        wanted[i, j::5] = math.sqrt(rows[i, j]) * c[[0, 1, 1, 2, 2]] * waves
    np.testing.assert_allclose(features.transform(rows), wanted, rtol=1e-12, atol=1e-14)


@both_kernels
def test_a_row_with_itself_is_exact(rows, kernel):
    for n in (0, 1, 3, 6):
        Phi = additive(rows, kernel, 5 * (2 * n + 1)).transform(rows)
        np.testing.assert_allclose(np.sum(Phi**2, axis=1), kernel.diag(rows), rtol=1e-12)


def test_error_of_chi2_falls_like_the_exponential_of_a_root_to_rounding(rows):
    # At L = 1 / sqrt(n), two aliases of 2 exp(-pi / L) each, and exp(-pi n L) 4 / pi cut off.
    for n in (1, 4, 9, 16, 25, 49):
        features = additive(rows, AdditiveChi2(), 5 * (2 * n + 1))
        assert kernel_error(features, rows) < (4 + 4 / math.pi) * math.exp(-math.pi * math.sqrt(n))
    # More samples than can matter are not taken.
    features = additive(rows, AdditiveChi2(), 100_000)
    assert features.rank == 5 * 257
    assert kernel_error(features, rows) < 1e-12


def test_error_of_the_intersection_falls_faster_than_one_over_root_rank(rows):
    maps = (additive(rows, Intersection(), 5 * (2 * n + 1)) for n in (2, 8, 32, 128))
    errors = [kernel_error(features, rows) for features in maps]
    for more, less in itertools.pairwise(errors):
        assert more / less > 2.5  # a random map would have 2, at four times the rank


@pytest.mark.parametrize("steps", [1, 3])
def test_is_better_than_scikit_learn_at_as_many_features(steps):
    X = np.random.default_rng(1).dirichlet(np.full(20, 0.3), size=80)
    ours = additive(X, AdditiveChi2(), 20 * (2 * steps - 1)).transform(X)
    theirs = AdditiveChi2Sampler(sample_steps=steps).fit_transform(X)
    assert ours.shape == theirs.shape
    exact = distances(AdditiveChi2()(X, X))
    ours, theirs = (relative(distances(Phi @ Phi.T), exact) for Phi in (ours, theirs))
    assert ours < theirs


@both_kernels
@pytest.mark.parametrize("n", [1, 5])
def test_no_other_step_is_much_better(kernel, n):
    X = np.random.default_rng(2).gamma(0.5, size=(400, 1))
    exact = distances(kernel(X, X))
    step, weights = fit_weights(kernel, n)

    def error_at(other):
        Phi = Additive(kernel, 1, weights, other).transform(X)
        return relative(distances(Phi @ Phi.T), exact)

    # 400 drawn entries are not the distribution they are drawn from: hence a tenth.
    assert error_at(step) < 1.1 * min(error_at(step * ratio) for ratio in np.linspace(0.5, 2, 61))


@both_kernels
def test_the_unit_of_the_data_is_a_factor(rows, kernel):
    # The kernel is homogeneous; its features are only if the phases do not depend on the unit.
    features = additive(rows, kernel, 35)
    Phi, scaled = features.transform(rows), features.transform(rows * 1e-9)
    np.testing.assert_allclose(scaled @ scaled.T, 1e-9 * (Phi @ Phi.T), rtol=1e-9)


def test_sparse_features_are_as_sparse_as_the_rows():
    X = sparse_rows(8, 1_000_000, 10)
    features = additive(X, AdditiveChi2(), 3_000_000)
    found = features.sparse_features(X)
    assert found.shape == (8, 3_000_000)
    assert found.nnz <= 3 * X.nnz
    occur = np.unique(X.indices)
    narrow = additive(X[:, occur], AdditiveChi2(), 3 * occur.size).transform(X[:, occur].toarray())
    np.testing.assert_allclose((found @ found.T).toarray(), narrow @ narrow.T, atol=1e-12)
    column = int(occur[0])
    block = features.block(features.prepare(X), slice(column, column + 512))
    np.testing.assert_allclose(block[:, 0], narrow[:, 0], rtol=1e-12)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_negative_values_raise(rows, make):
    bad = rows.copy()
    bad[3, 1] = -0.5
    expected = "row 3, column 1 has -0.5, but the intersection kernel compares histograms"
    with raises(expected):
        additive(make(bad), Intersection(), 25)
    with raises(expected):
        additive(rows, Intersection(), 25).transform(make(bad))


def test_raises_for_a_rank_without_room_for_every_column(rows):
    with raises("rank=4 is too small for additive features of 5 columns: they take 1, 3, 5"):
        additive(rows, AdditiveChi2(), 4)
