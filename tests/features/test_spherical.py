"""Spherical features: the fitted spectrum, its bias, what they tend to; arc-cosine features."""

import math

import numpy as np
import pytest
from scipy.special import hyp0f1, j0

from knoi.exceptions import InputError
from knoi.features import ArcCosineFeatures, SphericalFourier
from knoi.features.spherical import fit_spectrum, mean_wave
from knoi.kernels import ArcCosine, Polynomial, SphericalPolynomial
from tests.features.fitting import errors, fit, rms


def test_mean_wave_is_the_bessel_function():
    z = np.linspace(0, 40, 81)[None, :]
    np.testing.assert_allclose(mean_wave(z, 2), j0(z), atol=1e-12)
    np.testing.assert_allclose(mean_wave(z, 3), np.sinc(z / np.pi), atol=1e-12)
    np.testing.assert_allclose(mean_wave(z, 20), hyp0f1(10, -(z**2) / 4), atol=1e-12)
    # Coordinates of many dimensions are nearly normal.
    z = np.linspace(0, 5, 11)[None, :]
    np.testing.assert_allclose(mean_wave(1e3 * z, 10**6), np.exp(-(z**2) / 2), atol=1e-5)


@pytest.mark.parametrize("d", [10, 784])
def test_bias_is_small_and_falls_with_the_degree(d):
    # The paper's (1 - s^2 / a^2)^p with a = 2 and sqrt(8).
    for coef0 in (1.0, 3.0):
        biases = [fit_spectrum(SphericalPolynomial(p, coef0), d + 1)[2] for p in (3, 5, 7, 10)]
        assert biases[0] < 0.05
        assert biases[-1] < 0.015
        assert biases == sorted(biases, reverse=True)


@pytest.mark.parametrize("degree", [3, 10])
def test_error_falls_to_the_bias(degree):
    rows = np.random.default_rng(0).standard_normal((40, 10))
    rows[7] = 0.0
    kernel = SphericalPolynomial(degree)
    bias = fit(SphericalFourier, rows, kernel, 1).bias
    few, many = (
        rms(errors(SphericalFourier, rows, kernel, rank)) / 2.0**degree for rank in (64, 1024)
    )
    assert few < bias + 1.2 * math.sqrt(1.5 / 64)
    assert many < bias + 1.2 * math.sqrt(1.5 / 1024)
    assert few - bias > 2.5 * (many - bias)


def test_inner_products_are_those_of_the_fitted_kernel():
    rows = np.random.default_rng(0).standard_normal((4, 6))
    rows[3] = 0.0
    kernel = SphericalPolynomial(4, 1.5)
    radii, weights, _ = fit_spectrum(kernel, 7)
    units = np.hstack([rows, np.zeros((4, 1))])
    units[:3] /= np.linalg.norm(units[:3], axis=1)[:, None]
    units[3, -1] = 1.0
    chords = np.linalg.norm(units[:, None] - units[None], axis=2)
    fitted = 2.5**4 * (mean_wave(chords.reshape(-1, 1) * radii, 7) @ weights).reshape(4, 4)
    found = errors(SphericalFourier, rows, kernel, 24, seeds=200) + kernel(rows, rows) - fitted
    standard_error = found.std(axis=0) / math.sqrt(200)
    assert np.all(np.abs(found.mean(axis=0)) < 4.5 * standard_error)


def test_only_directions_count(rows):
    features = fit(SphericalFourier, rows, Polynomial(2.0), 11)
    assert features.kernel == SphericalPolynomial(3, 1.0)
    scaled = features.transform(rows * np.geomspace(1e-150, 1e150, 60)[:, None])
    np.testing.assert_allclose(scaled, features.transform(rows), atol=1e-12)


@pytest.mark.parametrize("kernel", [Polynomial(1.0, 3, 0.0), SphericalPolynomial(2, 0.1)])
def test_raises_for_kernels_without_a_positive_spectrum(rows, kernel):
    with pytest.raises(InputError, match=r"in 5 columns has no positive spectrum near it: .* 0"):
        fit(SphericalFourier, rows, kernel, 11)
    assert 0.05 < fit(SphericalFourier, rows, kernel, 11, tolerance=1.0).bias < 1.0


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arccosine_features_are_the_formula(rows, order):
    X = rows.copy()
    X[0] = 0.0  # at right angles to all
    features = fit(ArcCosineFeatures, X, ArcCosine(order), 30)
    A = X @ features.W
    expected = math.sqrt(2 / 30) * np.heaviside(A, 0.5) * A**order
    np.testing.assert_allclose(features.transform(X), expected, atol=1e-12)
