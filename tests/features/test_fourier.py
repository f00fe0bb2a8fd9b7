"""Random Fourier features: their formula, and what each rule for frequencies promises."""

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.features import RandomFourier
from knoi.features.fourier import DRAW_BLOCK, draw_frequencies
from knoi.kernels import RBF, Laplacian, Matern
from tests.features.fitting import fit, peak_memory_below, raises, sparse_rows

RULES = ["iid", "orthogonal", "qmc"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("d", [1, 7])
def test_every_frequency_has_the_distribution_of_the_kernel(rule, d):
    # One frequency a seed, at several places of a block: these are independent of each other.
    W = np.stack([draw_frequencies(RBF(2.0), d, 9, s, View.X, rule)[0] for s in range(200)])
    for place in (0, d - 1, 8):
        w = 2.0 * W[:, :, place]  # (seeds, d), standard normal
        for column in w.T:
            assert stats.kstest(column, "norm").pvalue > 1e-3
        assert stats.kstest((w**2).sum(1), stats.chi2(d).cdf).pvalue > 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("paired", [False, True])
def test_a_larger_draw_begins_with_a_smaller_one(rule, paired):
    kernel = Matern(2.0)
    # Below, at, across and beyond the size of the blocks that are drawn at a time.
    W, phases = draw_frequencies(kernel, 5, 2500, 0, View.X, rule, paired=paired)
    for m in (1, 7, DRAW_BLOCK - 1, DRAW_BLOCK, DRAW_BLOCK + 1, 2100):
        small, turned = draw_frequencies(kernel, 5, m, 0, View.X, rule, paired=paired)
        assert small.shape == (5, m)
        np.testing.assert_array_equal(small, W[:, :m])
        np.testing.assert_array_equal(turned, phases[:m])


@pytest.mark.parametrize("rule", RULES)
def test_views_seeds_and_blocks_differ_and_phases_are_uniform(rule):
    def draw(seed=0, view=View.X):
        return draw_frequencies(RBF(1.0), 4, 3 * DRAW_BLOCK, seed, view, rule)

    W, phases = draw()
    assert stats.kstest(phases / (2 * np.pi), "uniform").pvalue > 1e-3
    for other, turned in (draw(seed=1), draw(view=View.Y)):
        assert (other != W).mean() > 0.99
        assert (phases != turned).mean() > 0.99
    columns, counts = np.unique(W, axis=1, return_counts=True)
    assert columns.shape == W.shape
    assert (counts == 1).all()
    np.testing.assert_array_equal(draw()[0], W)


# Few columns, many sets in a block; and more columns than a block, which are one set.
@pytest.mark.parametrize("d", [1, 2, 600, DRAW_BLOCK + 6])
def test_directions_are_orthogonal_set_by_set(d):
    m = d + d // 2 + 2
    W, _ = draw_frequencies(Matern(2.0), d, m, 0, View.X, "orthogonal")
    small, _ = draw_frequencies(Matern(2.0), d, m // 3, 0, View.X, "orthogonal")
    np.testing.assert_allclose(small, W[:, : m // 3], atol=1e-11)
    directions = W / np.linalg.norm(W, axis=0)
    for start in range(0, m, d):
        one = directions[:, start : start + d]
        np.testing.assert_allclose(one.T @ one, np.eye(one.shape[1]), atol=1e-12)
    if d > 1:  # another set is turned another way
        across = directions[:, :2].T @ directions[:, d : d + 2]
        assert np.abs(across - np.eye(2)).max() > 0.1


def test_lengths_of_a_set_are_independent():
    W, _ = draw_frequencies(RBF(1.0), 5, 5000, 0, View.X, "orthogonal")
    lengths = np.linalg.norm(W, axis=0).reshape(-1, 5)  # (sets, 5)
    correlations = np.corrcoef(lengths.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(len(lengths))


def test_the_sequence_is_spread_evenly():
    # Of a power of two of points, every interval of that length has one, in every coordinate.
    W, phases = draw_frequencies(RBF(1.0), 3, 256, 0, View.X, "qmc")
    for u in (phases / (2 * np.pi), *stats.norm.cdf(W)):
        np.testing.assert_array_equal(np.sort(np.floor(256 * u)), np.arange(256))


def formula(X, features):
    argument = (X - features.centre) @ features.W + features.phases
    return np.sqrt(2 / features.rank) * np.cos(argument)


def test_is_the_formula_and_pairs_have_unit_length(rows):
    features = fit(RandomFourier, rows, RBF(2.0), 30)
    np.testing.assert_allclose(features.centre, rows.mean(0), atol=1e-15)
    np.testing.assert_allclose(features.transform(rows), formula(rows, features), atol=1e-12)
    Phi = fit(RandomFourier, rows, RBF(2.0), 40, paired=True).transform(rows)
    np.testing.assert_allclose((Phi**2).sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-5), ("float64", 1e-12)])
def test_sparse_rows_stay_sparse_and_the_centre_turns_them(rows, dtype, atol):
    dense = np.where(rows > 0.5, rows + 3.0, 0.0).astype(dtype)
    X = scipy.sparse.csr_array(dense)
    features = fit(RandomFourier, X, RBF(2.0), 20).to(numpy_backend(dtype))
    np.testing.assert_allclose(features.centre, dense.mean(axis=0), atol=atol)
    assert np.abs(features.centre).max() > 0.5
    prepared = features.prepare(X)
    assert scipy.sparse.issparse(prepared)
    assert prepared.nnz == X.nnz + 60
    found = features.transform(X)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_allclose(found, formula(dense, features), atol=atol)


def test_many_columns_are_never_made_dense():
    d, b = 200_000, 500
    X = sparse_rows(b, d, 5)
    turns = np.random.default_rng(0).standard_normal((d + 1, 2))
    with peak_memory_below(8 * b * d / 50):  # dense rows take 50 times that
        found = RandomFourier(RBF(1.0), turns, np.zeros(d)).transform(X)
    assert found.shape == (b, 2)


def test_far_from_the_origin_float32_keeps_its_digits(rows):
    # Rows that float32 holds exactly after the shift, so that only the map can lose digits.
    near = np.round(rows * 64) / 64
    far = (near + 1e4).astype(np.float32)
    features = fit(RandomFourier, far, RBF(2.0), 50, paired=True).to(numpy_backend("float32"))
    # The centre rounds in float32 and turns the phases by that much; no more may be lost.
    turned = near - (features.centre.astype(np.float64) - 1e4)
    W = fit(RandomFourier, near, RBF(2.0), 50, paired=True).W
    expected = 0.2 * np.cos(turned @ W + features.phases)
    np.testing.assert_allclose(features.transform(far), expected, atol=1e-6)


def test_errors(rows):
    with raises(
        "frequencies='orthogonal' needs an isotropic kernel: the spectral measure of the laplacian "
        "kernel is not invariant under rotation. Use frequencies='qmc' or 'iid' with it, or the "
        "kernel 'rbf' or 'matern'."
    ):
        fit(RandomFourier, rows, Laplacian(5.0), 10, frequencies="orthogonal")
    with raises(
        "frequencies='qmc' with 21201 columns takes 21202 coordinates of a Sobol sequence, but "
        "there are only 21201. Use frequencies='iid', or 'orthogonal' with an isotropic kernel, "
        "'rbf' or 'matern'."
    ):
        fit(RandomFourier, np.zeros((1, 21201)), RBF(1.0), 10, frequencies="qmc")
    with raises("frequencies='sobol': wanted one of 'iid', 'orthogonal', 'qmc'."):
        fit(RandomFourier, rows, RBF(1.0), 10, frequencies="sobol")
