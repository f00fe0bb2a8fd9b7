"""Gradients of feature maps, transforms in front of them, and the metric made of both."""

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.engine import Serial
from knoi.estimators.metric import transform_for
from knoi.exceptions import InputTypeError
from knoi.features import Identity, KernelColumns, Nystrom, RandomFourier
from knoi.features.composite import Chain, all_features
from knoi.features.metric import ColumnWeights, LinearTransform, gradient_products, metric_of
from knoi.features.network import ReLULayer
from knoi.kernels import RBF, Matern

rng = np.random.default_rng(0)
D = 4
Z = rng.standard_normal((9, D))
TRANSFORM = LinearTransform(rng.standard_normal((D, 3)), rng.standard_normal(D))
WEIGHTS = ColumnWeights(rng.uniform(0.1, 2, D))
KERNEL = Matern(2.0, nu=2.5)
MAPS = {
    "identity": Identity(D),
    "columns": KernelColumns(KERNEL, Z),
    "nystrom": Nystrom.fit(Z, KERNEL),
    "fourier": RandomFourier.fit(Z, KERNEL, 11, 0, View.X),
    "transform": TRANSFORM,
    "weights": WEIGHTS,
    "chain": Chain(TRANSFORM, KernelColumns(RBF(2.0), Z[:, :3]), RBF(2.0)),
    "weighted chain": Chain(WEIGHTS, RandomFourier.fit(Z, KERNEL, 8, 0, View.Y), KERNEL),
}


@pytest.mark.parametrize("name", MAPS)
def test_gradient_equals_finite_differences(backend, name):
    features = MAPS[name]
    X, C = rng.standard_normal((5, D)), rng.standard_normal((5, features.rank))
    expected = np.empty_like(X)
    for j in range(D):
        step = 1e-6 * np.eye(D)[j]
        difference = all_features(features, X + step) - all_features(features, X - step)
        expected[:, j] = np.sum(C * difference, axis=1) / 2e-6
    G = features.to(backend).gradient(backend.asarray(X), backend.asarray(C))
    np.testing.assert_allclose(backend.to_numpy(G), expected, rtol=1e-5, atol=1e-8)


def test_maps_without_a_gradient():
    layer = ReLULayer(np.ones((D, 2)), np.zeros(2))
    with pytest.raises(InputTypeError, match="features of type ReLULayer have no gradient"):
        layer.gradient(Z, np.ones((9, 2)))


def products(features, W, X, backend, **given):
    return gradient_products(
        features.to(backend),
        W,
        X,
        **{"draws": 99, "seed": 0, "view": View.X, "backend": backend, "engine": Serial(), **given},
    )


def by_hand(features, W, X):
    """Sum over rows of J'J, row by row and component by component."""
    total = np.zeros((D, D))
    for x in X:
        J = [features.gradient(x[None], w[None])[0] for w in W.T]
        total += sum(np.outer(g, g) for g in J)
    return total


def test_gradient_products(backend):
    features, X = MAPS["chain"], rng.standard_normal((700, D))
    W = rng.standard_normal((features.rank, 3))
    expected = by_hand(features, W, X)
    np.testing.assert_allclose(products(features, W, X, backend), expected, rtol=1e-9)
    diagonal = products(features, W, X, backend, diagonal=True)
    np.testing.assert_allclose(diagonal, np.diag(expected), rtol=1e-9)
    parts = [products(features, W, X[part], backend) for part in (slice(0, 99), slice(99, None))]
    np.testing.assert_allclose(sum(parts), expected, rtol=1e-9)


def test_random_signs_have_the_products_as_their_mean():
    features, X = MAPS["nystrom"], rng.standard_normal((400, D))
    W = rng.standard_normal((features.rank, 6))
    expected, backend = by_hand(features, W, X), numpy_backend()
    draws = [products(features, W, X, backend, draws=2, seed=seed) for seed in range(40)]
    assert not np.allclose(draws[0], draws[1])
    error = np.linalg.norm(np.mean(draws, axis=0) - expected) / np.linalg.norm(expected)
    single = np.linalg.norm(draws[0] - expected) / np.linalg.norm(expected)
    assert error < 0.05
    assert error < 0.5 * single or single < 0.02


def test_sparse_rows_stay_sparse():
    X = scipy.sparse.random_array((20, D), density=0.4, format="csr", rng=0)
    mapped = all_features(WEIGHTS, X)
    assert scipy.sparse.issparse(mapped)
    np.testing.assert_allclose(mapped.toarray(), X.toarray() * WEIGHTS.w)
    np.testing.assert_allclose(all_features(WEIGHTS, X.toarray()), mapped.toarray())


def test_transform_for_has_the_metric_and_keeps_distances():
    rows = rng.standard_normal((300, D)) + 5
    A = rng.standard_normal((D, 2))
    made = transform_for(A @ A.T, rows)
    assert made.rank == 2  # directions without weight are left out
    metric = metric_of(Chain(made, Identity(2), RBF(1.0)))
    np.testing.assert_allclose(metric / np.trace(metric), A @ A.T / np.trace(A @ A.T), atol=1e-9)
    median = [RBF().default_width(one) for one in (rows, all_features(made, rows))]
    assert median[0] == pytest.approx(median[1])
    weights = transform_for(np.array([4.0, 0, 1, 1]), rows)
    np.testing.assert_allclose(weights.w / weights.w[0], [1, 0, 0.5, 0.5])
    assert transform_for(np.zeros((D, D)), rows) is None
    assert metric_of(Identity(D)) is None
