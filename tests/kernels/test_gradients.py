"""Gradients of kernels against finite differences and automatic differentiation."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from knoi.exceptions import InputTypeError
from knoi.kernels import (
    RBF,
    ArcCosine,
    Cauchy,
    Chi2,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
)

SMOOTH = [
    RBF(1.7),
    Cauchy(1.1),
    Matern(1.3, nu=0.5),
    Matern(1.3, nu=0.8),
    Matern(1.3, nu=1.0),
    Matern(1.3),
    Matern(1.3, nu=2.5),
    Matern(1.3, nu=3.2),
    Matern(1.3, nu=60),
    Laplacian(2.3),
    Linear(),
    Polynomial(1.5),
    Polynomial(1.5, degree=1),
    SphericalPolynomial(4),
    SphericalPolynomial(1),
    ArcCosine(order=0),
    ArcCosine(order=1),
    ArcCosine(order=2),
    0.5 * RBF(1.0) + 2.0 * Polynomial(1.5),
    RBF(2.0) * Matern(3.0) * Linear(),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((5, 4)), rng.standard_normal((7, 4)), rng.standard_normal((5, 7))


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_equals_finite_differences(backend, kernel, rows):
    X, Z, C = rows
    h, expected = 1e-6, np.empty_like(X)
    for j in range(X.shape[1]):
        step = h * np.eye(X.shape[1])[j]
        expected[:, j] = np.sum(C * (kernel(X + step, Z) - kernel(X - step, Z)), axis=1) / (2 * h)
    assert kernel.has_gradient
    G = kernel.gradient(*(backend.asarray(one) for one in rows))
    np.testing.assert_allclose(backend.to_numpy(G), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_of_sparse_rows(kernel, rows):
    X, Z, C = rows
    X, Z = np.where(np.abs(X) < 0.5, 0, X), np.where(np.abs(Z) < 0.5, 0, Z)
    G = kernel.gradient(scipy.sparse.csr_array(X), scipy.sparse.csr_array(Z), C)
    assert isinstance(G, np.ndarray)
    np.testing.assert_allclose(G, kernel.gradient(X, Z, C), rtol=1e-9, atol=1e-12)


def angle(X, Z):
    cosine = X @ Z.T / (X.norm(dim=1)[:, None] * Z.norm(dim=1))
    return torch.acos(cosine), X.norm(dim=1)[:, None] * Z.norm(dim=1)


def arccosine(X, Z):
    theta, lengths = angle(X, Z)
    return lengths * (torch.sin(theta) + (math.pi - theta) * torch.cos(theta)) / math.pi


FORMULAS = [
    (RBF(1.7), lambda X, Z: torch.exp(-(torch.cdist(X, Z) ** 2) / (2 * 1.7**2))),
    (Laplacian(2.3), lambda X, Z: torch.exp(-torch.cdist(X, Z, p=1) / 2.3)),
    (Polynomial(1.5), lambda X, Z: (X @ Z.T / 1.5**2 + 1) ** 3),
    (SphericalPolynomial(4), lambda X, Z: (torch.cos(angle(X, Z)[0]) + 1) ** 4),
    (ArcCosine(), arccosine),
    (Matern(1.3, nu=0.5), lambda X, Z: torch.exp(-torch.cdist(X, Z) / 1.3)),
]


@pytest.mark.parametrize(("kernel", "formula"), FORMULAS, ids=[one.name for one, _ in FORMULAS])
def test_equals_automatic_differentiation(kernel, formula, rows):
    X, Z, C = (torch.tensor(one) for one in rows)
    X.requires_grad_()
    (formula(X, Z) * C).sum().backward()
    np.testing.assert_allclose(kernel.gradient(*rows), X.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_is_finite_at_landmarks_and_at_zero(kernel, rows):
    X = np.vstack([rows[0], np.zeros(4)])
    assert np.isfinite(kernel.gradient(X, X, np.ones((6, 6)))).all()


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_in_any_unit(unit, rows):
    X, Z, C = rows
    G = RBF(1.7 * unit).gradient(unit * X, unit * Z, C)
    np.testing.assert_allclose(G * unit, RBF(1.7).gradient(X, Z, C), rtol=1e-9)


def test_kernels_without_one(rows):
    kernel = RBF(1.0) * Chi2(1.0)
    assert not kernel.has_gradient
    with pytest.raises(InputTypeError, match="the chi2 kernel has no gradient, which metric="):
        Chi2(1.0).gradient(*rows)
