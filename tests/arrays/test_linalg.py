import numpy as np
import pytest

from knoi.arrays.linalg import top_svd, whitener

EPS = float(np.finfo(np.float64).eps)


def covariance(rng, n, d):
    A = rng.standard_normal((n, d))
    return A.T @ A / n


@pytest.mark.parametrize("r", [0.0, 1e-6, 0.5])
def test_whitener_whitens(backend, r):
    S = covariance(np.random.default_rng(0), 50, 8)
    W = whitener(backend.asarray(S.copy()), r, EPS, backend)
    weights = backend.to_numpy(W.unwhiten(backend.asarray(np.eye(W.rank))))
    np.testing.assert_allclose(weights.T @ (S + r * np.eye(8)) @ weights, np.eye(8), atol=1e-10)
    np.testing.assert_allclose(
        backend.to_numpy(W.whiten(backend.asarray(S.copy()))), weights.T @ S, atol=1e-10
    )


@pytest.mark.parametrize("scale", [1e-24, 1.0, 1e24])
def test_whitener_leaves_out_directions_without_variance(backend, scale):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((60, 5))
    A = np.column_stack([A, A[:, 0], A[:, 1] + A[:, 2], np.zeros(60)])
    S = A.T @ A / 60 * scale
    W = whitener(backend.asarray(S.copy()), 0.0, EPS, backend)
    assert W.rank == 5
    weights = backend.to_numpy(W.unwhiten(backend.asarray(np.eye(5))))
    np.testing.assert_allclose(weights.T @ S @ weights, np.eye(5), atol=1e-9)


def test_whitener_keeps_a_column_of_tiny_numbers(backend):
    rng = np.random.default_rng(2)
    A = rng.standard_normal((60, 4)) * [1e12, 1.0, 1e-12, 1e3]
    W = whitener(backend.asarray(A.T @ A / 60), 0.0, EPS, backend)
    assert W.rank == 4


@pytest.mark.parametrize(("shape", "k"), [((30, 20), 5), ((400, 300), 6), ((250, 500), 10)])
def test_top_svd_is_the_svd(backend, shape, k):
    rng = np.random.default_rng(3)
    T = rng.standard_normal(shape)
    U, s, V = (backend.to_numpy(a) for a in top_svd(backend.asarray(T), k, backend))
    np.testing.assert_allclose(s, np.linalg.svd(T, compute_uv=False)[:k], rtol=1e-10)
    np.testing.assert_allclose(T @ V, U * s, atol=1e-8 * s[0])
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-10)
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-10)


def test_top_svd_resolves_equal_singular_values(backend):
    rng = np.random.default_rng(4)
    left, right = (np.linalg.qr(rng.standard_normal((300, 300)))[0] for _ in range(2))
    s = np.concatenate([np.ones(5), np.full(20, 0.999), np.linspace(0.9, 0, 275)])
    found = top_svd(backend.asarray((left * s) @ right.T), 10, backend)[1]
    np.testing.assert_allclose(backend.to_numpy(found), s[:10], atol=1e-9)


def test_top_svd_of_a_matrix_of_low_rank_has_no_nan(backend):
    rng = np.random.default_rng(5)
    T = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 200))
    U, s, V = (backend.to_numpy(a) for a in top_svd(backend.asarray(T), 4, backend))
    np.testing.assert_allclose(s[2:] / s[0], 0, atol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(U * s @ V.T, T, atol=1e-10 * s[0])


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-170])
def test_top_svd_of_next_to_nothing(backend, scale):
    T = np.random.default_rng(6).standard_normal((100, 80)) * scale
    U, s, V = (backend.to_numpy(a) for a in top_svd(backend.asarray(T), 3, backend))
    assert U.shape == (100, 3)
    assert V.shape == (80, 3)
    np.testing.assert_allclose(s, np.linalg.svd(T, compute_uv=False)[:3], rtol=1e-9)


def test_top_svd_where_all_singular_values_are_equal(backend):
    T = np.eye(133) * 1e-9
    T[5, 7] = 1e-20
    U, s, V = (backend.to_numpy(a) for a in top_svd(backend.asarray(T), 2, backend))
    np.testing.assert_allclose(s, 1e-9)
    np.testing.assert_allclose(T @ V, U * s, atol=1e-20)
