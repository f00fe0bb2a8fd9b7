"""Default widths: the median distance between rows, and its degenerate cases."""

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from knoi.exceptions import InputError
from knoi.kernels import (
    RBF,
    Cauchy,
    Chi2,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    median_width,
)


def chi2_between(x, z):
    return np.sum((x - z) ** 2 / (x + z))


@pytest.mark.parametrize(
    ("kernel", "metric"),
    [
        pytest.param(RBF(), "euclidean", id="rbf"),
        pytest.param(Matern(), "euclidean", id="matern"),
        pytest.param(Cauchy(), "euclidean", id="cauchy"),
        pytest.param(Laplacian(), "cityblock", id="laplacian"),
        pytest.param(Chi2(), chi2_between, id="chi2"),
    ],
)
def test_median_over_all_pairs(kernel, metric):
    for n in (2, 3, 100):
        X = np.abs(np.random.default_rng(0).standard_normal((n, 5)))
        assert kernel.default_width(X) == pytest.approx(np.median(pdist(X, metric)), rel=1e-12)


@pytest.mark.parametrize("n", [256, 257, 513, 600])
def test_blocks_see_every_pair_once(n):
    # On the line 0, 1, 4, 9, ... nearly all distances differ, so every missing pair is noticed.
    X = (np.arange(n, dtype=np.float64) ** 2)[:, None]
    assert median_width(RBF().distance, X) == pytest.approx(np.median(pdist(X)), rel=1e-13)


def test_the_distances_are_held_once():
    X = np.random.default_rng(0).standard_normal((3000, 4))
    distances = 3000 * 2999 // 2 * 8
    block = 256 * 3000 * 8
    tracemalloc.start()
    median_width(RBF().distance, X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * (distances + 2 * block)


@pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Chi2(), Polynomial()], ids=repr)
def test_scales_with_the_data_in_float32(kernel):
    X = np.abs(np.random.default_rng(0).standard_normal((60, 5)))
    for unit in (1e-12, 1e12):
        width = kernel.default_width((X * unit).astype(np.float32))
        assert width == pytest.approx(kernel.default_width(X) * unit, rel=1e-5)


def test_mostly_repeated_rows_give_the_median_of_the_other_distances():
    X = np.zeros((100, 3))
    X[97:] = [[0.0, 0.1, 0.0], [0.0, 0.0, 0.2], [0.3, 0.0, 0.0]]
    distances = pdist(X)
    assert np.median(distances) == 0
    assert RBF().default_width(X) == pytest.approx(np.median(distances[distances > 0]), rel=1e-12)


def test_identical_rows_and_a_single_row_raise():
    with pytest.raises(InputError) as raised:
        RBF().default_width(np.full((10, 3), 0.1))
    assert str(raised.value) == (
        "all 10 sampled rows are identical, so no width can be chosen from them. "
        "Pass the width as a number, or check the data: a constant view has no correlations."
    )

    with pytest.raises(InputError, match=r"needs at least 2 rows, but got 1\. Pass more rows"):
        RBF().default_width(np.ones((1, 3)))


def test_polynomial_takes_the_root_mean_square_length():
    X = np.random.default_rng(0).standard_normal((50, 4)) + 30
    expected = np.sqrt(np.mean(np.sum(X**2, axis=1)))
    assert Polynomial().default_width(X) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(InputError, match="all 7 sampled rows are zero"):
        Polynomial().default_width(np.zeros((7, 2)))


def test_a_kernel_without_a_width_raises():
    with pytest.raises(InputError, match="the linear kernel has no width to choose"):
        Linear().default_width(np.ones((3, 2)))
