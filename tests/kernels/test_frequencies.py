"""The spectral samplers: the mean of cos(w'(x - z)) over frequencies is the kernel."""

import numpy as np
import pytest

from knoi.exceptions import InputError
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


ISOTROPIC = [kernel for kernel in KERNELS if kernel.isotropic]


def drawn(kernel, d, m, rng):
    return kernel.sample_frequencies(d, m, rng)


def from_uniforms(kernel, d, m, rng):
    return kernel.frequencies_at(rng.random((m, kernel.uniforms_per_frequency(d))))


def from_radii(kernel, d, m, rng):
    directions = rng.standard_normal((d, m))
    directions /= np.linalg.norm(directions, axis=0)
    return directions * kernel.sample_radii(d, m, rng)


WAYS = [
    *((way, kernel) for way in (drawn, from_uniforms) for kernel in KERNELS),
    *((from_radii, kernel) for kernel in ISOTROPIC),
]


@pytest.mark.parametrize(("way", "kernel"), WAYS, ids=lambda p: getattr(p, "__name__", repr(p)))
@pytest.mark.parametrize("d", [1, 3])
def test_mean_cosine_is_the_kernel(way, kernel, d):
    rng = np.random.default_rng(5)
    X, Z = 0.6 * rng.standard_normal((6, d)), 0.6 * rng.standard_normal((5, d))
    m = 30_000
    W = way(kernel, d, m, rng)
    assert W.shape == (d, m)
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


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("d", [3, 5000])  # the larger one is drawn in several pieces
def test_some_of_the_frequencies_are_the_first_of_all(kernel, d):
    every, some = (
        kernel.sample_frequencies(d, 300, np.random.default_rng(0), keep) for keep in (None, 7)
    )
    np.testing.assert_array_equal(some, every[:, :7])


def test_frequencies_stay_finite_for_a_very_rough_matern():
    kernel = Matern(1.0, nu=1e-3)
    for way in (drawn, from_uniforms, from_radii):
        assert np.isfinite(way(kernel, 2, 5000, np.random.default_rng(0))).all()


@pytest.mark.parametrize("kernel", [*KERNELS, Matern(1.0, nu=1e-3)], ids=repr)
def test_the_faces_of_the_unit_cube_give_finite_frequencies(kernel):
    corners = np.array(np.meshgrid(*[[0.0, 0.5, 1.0]] * kernel.uniforms_per_frequency(2)))
    W = kernel.frequencies_at(corners.reshape(len(corners), -1).T)
    assert W.shape[0] == 2
    assert np.isfinite(W).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_quantiles_rise_and_are_symmetric(kernel):
    u = np.linspace(0.001, 0.999, 201)
    U = np.full((201, kernel.uniforms_per_frequency(1)), 0.3)
    U[:, -1] = u
    (w,) = kernel.frequencies_at(U)
    assert (np.diff(w) > 0).all()
    np.testing.assert_allclose(w, -w[::-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", [Laplacian(2.1), Cauchy(0.8)], ids=repr)
def test_a_kernel_of_single_coordinates_has_no_radii(kernel):
    assert not kernel.isotropic
    with pytest.raises(InputError) as raised:
        kernel.sample_radii(3, 5, np.random.default_rng(0))
    assert str(raised.value) == (
        f"the {kernel.name} kernel is not isotropic: the length of a frequency depends on its "
        "direction and cannot be drawn apart from it. Draw whole frequencies, or use an isotropic "
        "kernel, 'rbf' or 'matern'."
    )


def test_isotropic_kernels_do_not_change_under_rotation():
    X = np.random.default_rng(0).standard_normal((5, 3))
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    for kernel in KERNELS:
        same = np.allclose(kernel(X, X), kernel(X @ turn, X @ turn))
        assert same == kernel.isotropic
