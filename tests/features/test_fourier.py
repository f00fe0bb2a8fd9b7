"""Random Fourier features: their formula, and what each rule for frequencies promises."""

import numpy as np
import pytest
from scipy import stats

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.features import RandomFourier
from knoi.features.fourier import DRAW_BLOCK, draw_frequencies
from knoi.kernels import RBF, Laplacian, Matern
from tests.features.fitting import fit, raises, sparse_rows
from tests.memory import peak_memory_below

RULES = ["iid", "orthogonal", "qmc"]


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


def test_is_the_formula_and_pairs_have_unit_length(rows):
    features = fit(RandomFourier, rows, RBF(2.0), 30)
    np.testing.assert_allclose(features.centre, rows.mean(0), atol=1e-15)
    argument = (rows - features.centre) @ features.W + features.phases
    expected = np.sqrt(2 / 30) * np.cos(argument)
    np.testing.assert_allclose(features.transform(rows), expected, atol=1e-12)
    Phi = fit(RandomFourier, rows, RBF(2.0), 40, paired=True).transform(rows)
    np.testing.assert_allclose((Phi**2).sum(1), 1.0, atol=1e-12)


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
    with raises("frequencies='orthogonal' needs an isotropic kernel: the spectral measure"):
        fit(RandomFourier, rows, Laplacian(5.0), 10, frequencies="orthogonal")
    with raises("frequencies='qmc' with 21201 columns takes 21202 coordinates of a Sobol sequence"):
        fit(RandomFourier, np.zeros((1, 21201)), RBF(1.0), 10, frequencies="qmc")
    with raises("frequencies='sobol': wanted one of 'iid', 'orthogonal', 'qmc'."):
        fit(RandomFourier, rows, RBF(1.0), 10, frequencies="sobol")
