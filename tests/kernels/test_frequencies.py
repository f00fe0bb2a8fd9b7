"""The spectral samplers: the mean of cos(w'(x - z)) over frequencies is the kernel."""

import numpy as np
import pytest

from knoi.kernels import RBF, Cauchy, Laplacian, Matern

KERNELS = [
    RBF(1.3),
    Laplacian(2.1),
    Cauchy(0.8),
    Matern(1.3, nu=0.5),
    Matern(1.3),
    Matern(0.7, nu=2.5),
    Matern(1.0, nu=0.9),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_mean_cosine_is_the_kernel(kernel):
    rng = np.random.default_rng(5)
    X, Z = 0.6 * rng.standard_normal((6, 3)), 0.6 * rng.standard_normal((5, 3))
    m = 60_000
    W = kernel.sample_frequencies(3, m, rng)
    assert W.shape == (3, m)
    assert W.dtype == np.float64
    cosines = np.cos((X[:, None, :] - Z[None, :, :]) @ W)  # (6, 5, m)
    error = cosines.std(axis=2) / np.sqrt(m)
    assert (np.abs(cosines.mean(axis=2) - kernel(X, Z)) < 4.5 * error).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_generator_decides(kernel):
    first, again, other = (
        kernel.sample_frequencies(4, 8, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).all()


def test_frequencies_stay_finite_for_a_very_rough_matern():
    W = Matern(1.0, nu=1e-3).sample_frequencies(2, 5000, np.random.default_rng(0))
    assert np.isfinite(W).all()
