"""Gaussian views: their correlations, and rows that do not depend on how they are read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.datasets import make_two_views, two_view_sources
from knoi.exceptions import InputError
from tests.contracts.view_source import SourceCase, ViewSourceContract


def naive_canonical_correlations(X, Y):
    """Singular values of Qx'Qy."""
    Qx, Qy = (np.linalg.qr(Z - Z.mean(axis=0))[0] for Z in (X, Y))
    return np.linalg.svd(Qx.T @ Qy, compute_uv=False)


@pytest.mark.parametrize(
    ("n_features", "correlations"), [((20, 15), (0.9, 0.7, 0.5)), ((3, 6), (0.2, 0.95, 0.6))]
)
def test_samples_have_the_given_correlations(n_features, correlations):
    n = 200_000
    views = make_two_views(n, n_features, correlations, noise=3.0, random_state=1)
    assert views.X.shape == (n, n_features[0])
    assert views.Y.shape == (n, n_features[1])
    assert views.correlations == tuple(sorted(correlations, reverse=True))
    found = naive_canonical_correlations(views.X, views.Y)
    k = len(correlations)
    # The standard error of a correlation r is (1 - r^2) / sqrt(n); small ones are biased upwards.
    expected = np.array(views.correlations)
    error = 4 * (1 - expected**2) / np.sqrt(n)
    bias = sum(n_features) / (n * np.maximum(expected, 0.01))
    assert np.all(np.abs(found[:k] - expected) < error + bias)
    assert np.all(found[k:] < 4 * np.sqrt(sum(n_features) / n))


def test_linear_cca_misses_what_squares_find():
    views = make_two_views(100_000, (5, 4), (0.9, 0.6), nonlinear=True)
    assert naive_canonical_correlations(views.X, views.Y)[0] < 0.03
    i, j = np.triu_indices(5)
    squares = views.X[:, i] * views.X[:, j]
    found = naive_canonical_correlations(squares, views.Y)
    np.testing.assert_allclose(found[:2], [0.9, 0.6], atol=0.02)
    assert found[2] < 0.03


def test_seeds_and_prefixes():
    short, long = make_two_views(50), make_two_views(9000)
    np.testing.assert_array_equal(short.X, long.X[:50])
    np.testing.assert_array_equal(short.Y, long.Y[:50])
    assert not np.array_equal(make_two_views(50, random_state=1).X, short.X)
    single = make_two_views(50, dtype=np.float32)
    assert single.Y.dtype == np.float32
    np.testing.assert_array_equal(single.Y, short.Y.astype(np.float32))


def test_views_are_well_conditioned_and_blocks_are_independent():
    views = make_two_views(20_000)
    assert max(np.linalg.cond(views.X), np.linalg.cond(views.Y)) < 5
    assert abs(np.corrcoef(views.X[:4096, 0], views.X[4096:8192, 0])[0, 1]) < 0.07


whole = make_two_views(10_000, (3, 2), (0.5,))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9_999), st.integers(1, 6000), st.booleans()), max_size=5))
def test_rows_do_not_depend_on_how_they_are_read(reads):
    sources = two_view_sources(10_000, (3, 2), (0.5,))
    for start, length, side in reads:
        stop = min(start + length, 10_000)
        expected = (whole.X, whole.Y)[side][start:stop]
        np.testing.assert_array_equal(sources[side].read(start, stop), expected)


def test_a_million_million_rows_take_no_memory():
    n = 10**12
    x, y = two_view_sources(n, (3, 2), (0.5,))
    X, Y = x.read(n - 5000, n), y.read(n - 5000, n)
    assert naive_canonical_correlations(X, Y)[0] == pytest.approx(0.5, abs=0.05)


class TestTwoViewSourceContract(ViewSourceContract):
    @pytest.fixture
    def case(self):
        return SourceCase(
            open=lambda: two_view_sources(13, (3, 2), (0.5,))[0],
            expected=whole.X[:13],
            random_access=False,
        )


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"n_samples": 0}, "n_samples=0: wanted a whole number >= 1"),
        ({"correlations": (0.5, 1.5)}, r"correlations=\(0.5, 1.5\). Pass numbers from 0 to 1"),
        ({"n_features": (2, 9)}, r"n_features=\(2, 9\) with 3 correlations"),
        ({"noise": 0.0}, "noise=0.0: wanted a finite number > 0"),
        ({"dtype": "int8"}, "dtype=int8. Pass float32 or float64"),
    ],
)
def test_invalid_arguments(options, fragment):
    with pytest.raises(InputError, match=fragment):
        make_two_views(**{"n_samples": 10, **options})
