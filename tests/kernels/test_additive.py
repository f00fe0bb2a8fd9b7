"""Additive kernels of histograms against a double loop, scikit-learn, and each other."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics import pairwise

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.exceptions import InputError
from knoi.kernels import AdditiveChi2, Chi2, Intersection
from tests.oracles import kernels as naive

CASES = [(AdditiveChi2(), naive.additive_chi2()), (Intersection(), naive.intersection())]
KERNELS = [kernel for kernel, _ in CASES]


def named(value):
    return getattr(value, "name", "")


def histograms(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.5, size=(n, d))
    X[rng.random(X.shape) < 0.3] = 0.0  # empty bins, often in both
    X.setflags(write=False)
    return X


@pytest.mark.parametrize(("kernel", "pair"), CASES, ids=named)
def test_equals_the_double_loop(backend, kernel, pair):
    X, Z = histograms(9, 4), histograms(7, 4, seed=1)
    K = kernel(backend.asarray(X), backend.asarray(Z))
    assert K.shape == (9, 7)
    np.testing.assert_allclose(backend.to_numpy(K), naive.gram(pair, X, Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS, ids=named)
def test_sparse_rows_give_what_dense_rows_give(kernel):
    X, Z = histograms(9, 40), histograms(7, 40, seed=1)
    sparse = scipy.sparse.csr_array
    twice = sparse((np.full(18, 0.25), np.repeat(np.arange(9), 2), np.arange(0, 19, 2)), (9, 40))
    twice.has_canonical_format = False  # every entry in two halves
    for A, B, dense in [
        (sparse(X), sparse(Z), kernel(X, Z)),
        (sparse(X), Z, kernel(X, Z)),
        (X, sparse(Z), kernel(X, Z)),
        (twice, sparse(Z), kernel(twice.toarray(), Z)),
    ]:
        K = kernel(A, B)
        assert isinstance(K, np.ndarray)
        np.testing.assert_allclose(K, dense, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel.diag(sparse(X)), kernel.diag(X), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=named)
@pytest.mark.parametrize("make_backend", [numpy_backend, torch_backend])
def test_float32_stays_float32_whatever_the_unit(make_backend, kernel):
    backend = make_backend(dtype="float32")
    X, Z = histograms(30, 20), histograms(20, 20, seed=1)
    wanted = kernel(X, Z)
    for unit in (1e-30, 1.0, 1e30):  # the squares of the outer ones are no float32
        K = kernel(backend.asarray(X * unit), backend.asarray(Z * unit))
        assert K.dtype == backend.xp.float32
        np.testing.assert_allclose(
            backend.to_numpy(K).astype(np.float64) / unit, wanted, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("kernel", KERNELS, ids=named)
def test_symmetric_positive_with_its_diagonal(backend, kernel):
    X = histograms(30, 6)
    K = backend.to_numpy(kernel(backend.asarray(X), backend.asarray(X)))
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.diagonal(K), X.sum(1), rtol=1e-12)
    np.testing.assert_allclose(backend.to_numpy(kernel.diag(backend.asarray(X))), X.sum(1))
    eigenvalues = np.linalg.eigvalsh((K + K.T) / 2)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]
    assert kernel(backend.asarray(X[:0]), backend.asarray(X)).shape == (0, 30)


def test_agrees_with_scikit_learn_and_with_the_exponential_kernel():
    X, Z = histograms(20, 10), histograms(15, 10, seed=1)
    k = AdditiveChi2()
    # scikit-learn's additive kernel is minus the distance: that of this one in feature space.
    distance = k.diag(X)[:, None] + k.diag(Z)[None, :] - 2 * k(X, Z)
    np.testing.assert_allclose(
        distance, -pairwise.additive_chi2_kernel(X.copy(), Z.copy()), atol=1e-12
    )
    np.testing.assert_allclose(np.exp(-distance / 1.7), Chi2(1.7)(X, Z), atol=1e-13)


@pytest.mark.parametrize("kernel", KERNELS, ids=named)
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_negative_values_are_refused(kernel, make):
    bad = np.ones((4, 3))
    bad[2, 1], bad[3, 0] = -0.3, -5.0
    expected = (
        rf"^row 2, column 1 has -0\.3, but the {kernel.name} kernel compares histograms and wants "
        r"nonnegative values\. Pass counts or frequencies, or use another kernel, e\.g\. 'rbf'\.$"
    )
    good = make(np.ones((2, 3)))
    for call in (lambda b: kernel(b, good), lambda b: kernel(good, b), kernel.diag):
        with pytest.raises(InputError, match=expected):
            call(make(bad))
