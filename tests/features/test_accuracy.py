"""Random maps of every kind: unbiased, with an error that falls like one over the root of rank."""

import math
from functools import partial

import numpy as np
import pytest

from knoi.features import (
    ArcCosineFeatures,
    CompactMaclaurin,
    RandomFourier,
    RandomMaclaurin,
    StructuredFourier,
    TensorSketch,
    fit_product,
    fit_sum,
)
from knoi.kernels import RBF, ArcCosine, Cauchy, Laplacian, Linear, Matern, Polynomial
from tests.features.fitting import errors, rms

CUBIC = Polynomial(2.0)
PRODUCT = RBF(2.0) * Laplacian(8.0)
FOURIER = [
    (RandomFourier, kernel, {"frequencies": rule, "paired": paired})
    for rule in ("iid", "orthogonal", "qmc")
    for kernel in (RBF(2.0), Matern(2.0), Laplacian(5.0), Cauchy(2.0))
    if kernel.isotropic or rule != "orthogonal"
    for paired in (False, True)
] + [
    (StructuredFourier, kernel, {"construction": construction})
    for kernel in (RBF(2.0), Matern(2.0))
    for construction in ("hadamard", "fastfood")
]
LAWS = [
    (TensorSketch, CUBIC, {"sketch_size": 32}),
    (TensorSketch, Polynomial(2.0, 1), {"sketch_size": 8}),
    (RandomMaclaurin, CUBIC, {"exact": "linear"}),
    (RandomMaclaurin, Linear(), {}),
    (CompactMaclaurin, CUBIC, {"expansion": 4, "exact": "linear"}),
    (ArcCosineFeatures, ArcCosine(0), {}),
    (ArcCosineFeatures, ArcCosine(2), {}),
    (ArcCosineFeatures, ArcCosine(), {"frequencies": "orthogonal"}),
    (partial(fit_sum, RandomFourier.fit), 2 * RBF(2.0) + 0.5 * Laplacian(6.0), {}),
    (partial(fit_product, RandomFourier.fit), PRODUCT, {}),
]


def mixed(sample, kernel, rank, seed, view):
    """Pairs of cosine and sine for RBF, as long as no other factor has pairs."""
    if isinstance(kernel, RBF):
        return RandomFourier.fit(sample, kernel, rank, seed, view, paired=True)
    kind = ArcCosineFeatures if isinstance(kernel, ArcCosine) else StructuredFourier
    return kind.fit(sample, kernel, rank, seed, view)


@pytest.mark.parametrize(
    ("kind", "kernel", "options"),
    [
        *FOURIER,
        *LAWS,
        (partial(fit_product, partial(RandomFourier.fit, paired=True)), PRODUCT, {}),
        (partial(fit_product, mixed), RBF(2.0) * Matern(4.0), {}),
        (partial(fit_product, mixed), RBF(2.0) * ArcCosine(0), {}),
    ],
)
def test_inner_products_are_unbiased(rows, kind, kernel, options):
    found = errors(kind, rows[:4], kernel, 24, seeds=200, **options)[:, *np.triu_indices(4)]
    standard_error = found.std(axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0)) <= 4.5 * standard_error + 1e-12)


@pytest.mark.parametrize(("kind", "kernel", "options"), LAWS)
def test_error_falls_like_one_over_root_rank(rows, kind, kernel, options):
    few, many = (rms(errors(kind, rows, kernel, rank, 10, **options)) for rank in (64, 1024))
    # Sixteen times the rank, a quarter of the error. Exact features take some of the few.
    assert 3.0 < few / many < 5.3


@pytest.mark.parametrize(("kind", "kernel", "options"), FOURIER)
def test_error_of_fourier_features_falls_at_least_so(rows, kind, kernel, options):
    few, many = (rms(errors(kind, rows[:20], kernel, rank, 20, **options)) for rank in (64, 1024))
    # The mean of M terms 2 cos(.) cos(.), each of variance at most 3/2, and no better than that.
    assert few < 1.2 * math.sqrt(1.5 / 64)
    assert few / many > 3.0


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [(k, "orthogonal") for k in (RBF(3.0), Matern(3.0))]
    + [(k, "qmc") for k in (RBF(3.0), Matern(3.0), Laplacian(7.5), Cauchy(3.0))],
)
def test_error_is_smaller_than_with_independent_frequencies(kernel, rule):
    X = np.random.default_rng(0).standard_normal((20, 8))
    options = {"seeds": 100, "paired": kernel.isotropic}
    independent, better = (
        errors(RandomFourier, X, kernel, 128, frequencies=one, **options) for one in ("iid", rule)
    )
    pairs = np.triu_indices(20, 1)
    independent, better = (np.mean(e[:, *pairs] ** 2, axis=1) for e in (independent, better))
    spread = math.hypot(independent.std(), better.std()) / math.sqrt(100)
    assert independent.mean() - better.mean() > 4 * spread
