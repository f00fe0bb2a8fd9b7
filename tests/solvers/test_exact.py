"""Moments of two views: any partition of the rows gives the same covariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knoi.arrays.backend import numpy_backend
from knoi.exceptions import InputError
from knoi.solvers.exact import Moments


def moments_of(X, Y, cuts, backend):
    moments = Moments((X.shape[1], Y.shape[1]), backend)
    for start, stop in zip([0, *cuts], [*cuts, len(X)], strict=True):
        moments.update(backend.asarray(X[start:stop]), backend.asarray(Y[start:stop]))
    return moments


def assert_same(found, X, Y, backend, rtol=1e-9):
    n = len(X)
    A, B = X - X.mean(0), Y - Y.mean(0)
    for name, want in {
        "mean_x": X.mean(0), "mean_y": Y.mean(0),
        "Sxx": A.T @ A / n, "Sxy": A.T @ B / n, "Syy": B.T @ B / n,
    }.items():  # fmt: skip
        got = backend.to_numpy(getattr(found, name))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.abs(want).max())


def test_chunks_are_one_piece_and_stay_unchanged(backend, two_views):
    X, Y = (np.array(view) for view in two_views)
    found = moments_of(X, Y, [1, 7, 100, 101], backend).covariances()
    assert found.n == 200
    assert_same(found, X, Y, backend)
    np.testing.assert_array_equal(X, two_views[0])
    np.testing.assert_array_equal(Y, two_views[1])


@given(cuts=st.lists(st.integers(0, 40), max_size=5), offset=st.floats(-1e6, 1e6))
def test_any_partition_agrees(cuts, offset):
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((40, 3)) + offset, rng.standard_normal((40, 2))
    backend = numpy_backend()
    assert_same(moments_of(X, Y, sorted(cuts), backend).covariances(), X, Y, backend, 1e-7)


@given(cut=st.integers(0, 40))
def test_merging_is_seeing_all_rows(cut):
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((40, 3)) + 5, rng.standard_normal((40, 2)) - 7
    backend = numpy_backend()
    first, second = (moments_of(X[s], Y[s], [], backend) for s in (slice(cut), slice(cut, None)))
    first.merge(second)
    assert_same(first.covariances(), X, Y, backend)


def test_float32_far_from_the_origin_keeps_its_digits():
    rng = np.random.default_rng(7)
    X = (rng.standard_normal((5000, 4)) + 1000).astype(np.float32)
    Y = X[:, :2] + rng.standard_normal((5000, 2)).astype(np.float32)
    found = moments_of(X, Y, [1000, 3000], numpy_backend("float32")).covariances()
    assert_same(found, X.astype(float), Y.astype(float), numpy_backend(), rtol=1e-5)


def test_a_constant_column_has_no_variance():
    X = np.random.default_rng(8).standard_normal((100, 3)).astype(np.float32)
    X[:, 1] = 0.1
    found = moments_of(X, X, [37], numpy_backend("float32")).covariances()
    for S in (found.Sxx, found.Sxy):
        assert not S[1].any()
        assert not S[:, 1].any()
    assert found.Sxx[0, 0] > 0.5


def test_rows_may_follow_after_the_covariances_are_read(two_views):
    X, Y = two_views
    backend = numpy_backend()
    moments = moments_of(X[:50], Y[:50], [], backend)
    assert_same(moments.covariances(), X[:50], Y[:50], backend)
    moments.update(X[50:], Y[50:])
    assert_same(moments.covariances(), X, Y, backend)
    assert_same(moments.covariances(consume=True), X, Y, backend)


def test_one_row_is_too_few():
    moments = moments_of(np.ones((1, 2)), np.ones((1, 2)), [], numpy_backend())
    with pytest.raises(InputError, match="n_samples=1: a covariance needs at least 2 rows"):
        moments.covariances()
