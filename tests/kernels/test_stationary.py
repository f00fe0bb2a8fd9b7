"""The spectral samplers: the mean of cos(w'(x - z)) over frequencies is the kernel."""

import numpy as np
import pytest

from knoi.exceptions import InputError
from knoi.kernels import RBF, Cauchy, Laplacian, Matern

KERNELS = [RBF(1.3), Laplacian(2.1), Cauchy(0.8), Matern(1.3), Matern(1.0, nu=0.9)]

for_each = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def drawn(kernel, d, m, rng):
    return kernel.sample_frequencies(d, m, rng)


def from_uniforms(kernel, d, m, rng):
    return kernel.frequencies_at(rng.random((m, kernel.uniforms_per_frequency(d))))


def from_radii(kernel, d, m, rng):
    directions = rng.standard_normal((d, m))
    directions /= np.linalg.norm(directions, axis=0)
    return directions * kernel.sample_radii(d, m, rng)


@for_each
@pytest.mark.parametrize("sampler", [drawn, from_uniforms, from_radii])
def test_mean_cosine_is_the_kernel(sampler, kernel):
    if sampler is from_radii and not kernel.isotropic:
        with pytest.raises(InputError, match=f"^the {kernel.name} kernel is not isotropic"):
            kernel.sample_radii(3, 5, np.random.default_rng(0))
        return
    for d in (1, 3):
        rng = np.random.default_rng(5)
        X, Z = 0.6 * rng.standard_normal((6, d)), 0.6 * rng.standard_normal((5, d))
        m = 30_000
        W = sampler(kernel, d, m, rng)
        assert W.shape == (d, m)
        assert W.dtype == np.float64
        cosines = np.cos((X[:, None, :] - Z[None, :, :]) @ W)  # (6, 5, m)
        error = cosines.std(axis=2) / np.sqrt(m)
        assert (np.abs(cosines.mean(axis=2) - kernel(X, Z)) < 4.5 * error).all()


@for_each
def test_the_first_frequencies_without_memory_for_the_others(kernel):
    for d in (3, 5000):  # the larger one is drawn in several blocks
        every, first, other = (
            kernel.sample_frequencies(d, 300, np.random.default_rng(seed), keep)
            for seed, keep in ((0, None), (0, 7), (1, 7))
        )
        np.testing.assert_array_equal(first, every[:, :7])
        assert (other != first).all()


@pytest.mark.parametrize("kernel", [*KERNELS, Matern(1.0, nu=1e-3)], ids=repr)
def test_frequencies_are_finite_on_the_faces_of_the_unit_cube(kernel):
    corners = np.array(np.meshgrid(*[[0.0, 0.5, 1.0]] * kernel.uniforms_per_frequency(2)))
    W = kernel.frequencies_at(corners.reshape(len(corners), -1).T)
    assert W.shape[0] == 2
    assert np.isfinite(W).all()


def test_frequencies_of_a_very_rough_matern_are_finite():
    for sampler in (drawn, from_uniforms, from_radii):
        W = sampler(Matern(1.0, nu=1e-3), 2, 5000, np.random.default_rng(0))
        assert np.isfinite(W).all()
