"""Maclaurin features: coefficients, shares of the degrees, and the errors they predict."""

import math

import numpy as np
import pytest
import scipy.sparse

from knoi.exceptions import InputError
from knoi.features import ArcCosineFeatures, CompactMaclaurin, RandomMaclaurin, TensorSketch
from knoi.features.maclaurin import coefficients, degree_shares
from knoi.kernels import ArcCosine, Linear, Polynomial
from tests.features.fitting import errors, fit, raises, rms

CUBIC = Polynomial(2.0)
MACLAURIN = (RandomMaclaurin, CompactMaclaurin)


def variances(X, degree):
    """Mean variance of a product of each degree, (degree + 1,)."""
    dots, lengths = X @ X.T, (X**2).sum(1)
    v = np.outer(lengths, lengths) + 2 * dots**2 - 2 * (X**2) @ (X**2).T
    return np.array([np.mean(v**n - dots ** (2 * n)) for n in range(degree + 1)])


def shares_and_variances(kernel, X):
    """Coefficients but for the constant, shares of the degrees, and variances of products."""
    a = coefficients(kernel)
    a[0] = 0.0
    return a, degree_shares(a, X / kernel.width), variances(X / kernel.width, kernel.degree)


def predicted_error(kernel, X, rank):
    """RMS error of M random products, by their variances."""
    a, p, variance = shares_and_variances(kernel, X)
    return math.sqrt(np.sum(a[1:] ** 2 / p[1:] * variance[1:]) / (rank - 1))


@pytest.mark.parametrize("kernel", [CUBIC, Polynomial(3.0, 4, 0.5)])
def test_error_is_the_predicted_one(rows, kernel):
    found = rms(errors(RandomMaclaurin, rows, kernel, 512, seeds=12))
    assert found == pytest.approx(predicted_error(kernel, rows, 512), rel=0.2)


def test_no_other_shares_of_the_degrees_do_better(rows):
    a, p, variance = shares_and_variances(Polynomial(2.0, 5), rows)
    assert p[0] == 0
    assert p.sum() == pytest.approx(1.0)

    def error(shares):
        return np.sum(a[1:] ** 2 / shares[1:] * variance[1:]) * shares.sum()

    # But for the least share every degree has.
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert error(p) < 1.01 * error(p * np.exp(0.3 * rng.standard_normal(6)))


def test_every_degree_gets_its_share(rows):
    _, shares, _ = shares_and_variances(CUBIC, rows)
    degrees = fit(RandomMaclaurin, rows, CUBIC, 2001).products.degrees
    # Independent draws would be off by 20.
    np.testing.assert_allclose(np.bincount(degrees), 2000 * shares, atol=4)


@pytest.mark.parametrize("kind", MACLAURIN)
def test_exact_terms_are_exact(rows, kind):
    Phi = fit(kind, rows, CUBIC, 20, exact="linear").transform(rows)[:, -6:]
    expected = np.hstack([np.ones((60, 1)), math.sqrt(3) * rows / 2.0])
    np.testing.assert_allclose(Phi, expected, atol=1e-14)


def test_a_sample_of_zeros_still_makes_a_map(rows):
    Phi = fit(RandomMaclaurin, np.zeros((3, 5)), CUBIC, 3000).transform(rows)
    exact = CUBIC(rows, rows)
    assert rms(Phi @ Phi.T - exact) < 0.3 * rms(exact)


@pytest.mark.parametrize("degree", [2, 5])
def test_mixtures_have_the_error_of_a_random_projection(degree):
    # Rows at acute angles, as counts and images are; the mean square of their lengths is 1.
    X = np.abs(np.random.default_rng(0).standard_normal((40, 20)))
    X /= math.sqrt(np.mean((X**2).sum(1)))
    kernel = Polynomial(1.0, degree)
    K = kernel(X, X) - 1.0  # the constant is exact
    projected = np.mean(np.outer(K.diagonal(), K.diagonal()) + K**2) / 511
    expected = math.sqrt(projected + predicted_error(kernel, X, 512) ** 2 / 8)
    assert rms(errors(CompactMaclaurin, X, kernel, 512, 10)) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("kind", MACLAURIN)
@pytest.mark.parametrize(
    ("kernel", "rank", "options", "expected"),
    [
        (CUBIC, 11, {"exact": "all"}, "exact='all': wanted one of 'constant', 'linear'."),
        (CUBIC, 6, {"exact": "linear"}, "rank=6 leaves no features besides the 6 that are"),
        (Linear(), 11, {"exact": "linear"}, "exact='linear' leaves nothing to approximate: the"),
        (Polynomial(1.0, 70), 11, {}, ".* has no finite, nonnegative Maclaurin coefficients"),
        (Polynomial(1.0, 60, 1e10), 11, {}, ".* has no finite, nonnegative Maclaurin coeff"),
        (Polynomial(), 11, {}, "the polynomial kernel has no width yet"),
    ],
)
def test_errors(rows, kind, kernel, rank, options, expected):
    with pytest.raises(InputError, match=f"^{expected}"):
        fit(kind, rows, kernel, rank, **options)


def test_raises_for_an_expansion_without_a_hadamard_matrix(rows):
    for expansion in (1, 6):
        with raises(f"expansion={expansion} cannot be used: it must"):
            fit(CompactMaclaurin, rows, CUBIC, 11, expansion=expansion)


@pytest.mark.parametrize("kind", [TensorSketch, *MACLAURIN, ArcCosineFeatures])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_powers_beyond_float32_raise(rows, kind, form):
    features = fit(kind, rows, ArcCosine(2) if kind is ArcCosineFeatures else CUBIC, 11)
    far = form(rows.astype(np.float32) * np.float32(1e12))
    with pytest.raises(InputError, match="overflows float32"):
        features.transform(far)
    assert np.isfinite(features.transform(far.astype(np.float64))).all()
