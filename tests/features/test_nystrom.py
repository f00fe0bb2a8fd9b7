"""Nystrom maps: the kernel at its landmarks, duplicates, and float32 far from the origin."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.features import Nystrom
from knoi.features.landmarks import select_landmarks
from knoi.kernels import RBF, Chi2, Laplacian, Matern, Polynomial


@pytest.mark.parametrize(
    "kernel", [Laplacian(6.0), Polynomial(width=2.0), Matern(2.0), Chi2(1.0)], ids=lambda k: k.name
)
def test_reproduces_the_kernel_on_its_landmarks(rows, kernel):
    X = np.abs(rows)
    for Z in (X[:20], X):  # with all points it is the kernel
        features = Nystrom.fit(Z, kernel)
        assert features.columns.landmark_rows is Z
        exact = kernel(X, Z)
        found = features.transform(X) @ features.transform(Z).T
        np.testing.assert_allclose(found, exact, atol=1e-7 * np.abs(exact).max())


@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-8), (np.float32, 1e-3)])
def test_duplicate_landmarks_cost_rank_and_nothing_else(rows, dtype, atol):
    X = rows.astype(dtype)
    plain = Nystrom.fit(X[:10], RBF(1.0)).transform(X)
    double = Nystrom.fit(np.vstack([X[:10], X[:10], X[:3]]), RBF(1.0))
    assert double.rank == 10
    Phi = double.transform(X)
    np.testing.assert_allclose(Phi @ Phi.T, plain @ plain.T, atol=atol)


@pytest.mark.parametrize("method", ["uniform", "kmeans"])
def test_far_from_the_origin_float32_keeps_its_digits(rows, method):
    near = np.round(rows * 64) / 64
    far = (near + 1e4).astype(np.float32)
    Z = select_landmarks(far, RBF(2.0), 20, 0, View.X, method)
    features = Nystrom.fit(Z, RBF(2.0))
    assert features.rank > 15
    Phi = features.to(numpy_backend("float32")).transform(far).astype(np.float64)
    Z = Z.astype(np.float64)
    K = RBF(2.0)(near + 1e4, Z)
    exact = K @ np.linalg.pinv(RBF(2.0)(Z, Z), hermitian=True) @ K.T
    np.testing.assert_allclose(Phi @ Phi.T, exact, atol=2e-3)
