"""The redundancy index against regressions, and the joint moments it is read off."""

import numpy as np
import pytest

from knoi.metrics import redundancy
from knoi.metrics.redundancy import JointMoments


def rows(n=300, d=5, L=3, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, L)) @ rng.standard_normal((L, L))
    X = Z @ rng.standard_normal((L, d)) + 2 * rng.standard_normal((n, d)) + 100
    return X, Z


def r_squared(X, Z):
    """Share of the variance of each column of X that least squares on Z explains."""
    design = np.column_stack([np.ones(len(Z)), Z])
    residual = X - design @ np.linalg.lstsq(design, X, rcond=None)[0]
    return 1 - residual.var(axis=0) / X.var(axis=0)


def test_it_is_the_mean_share_of_variance_explained():
    X, Z = rows()
    found = redundancy(X, Z)
    squares = [[np.corrcoef(x, z)[0, 1] ** 2 for z in Z.T] for x in X.T]
    np.testing.assert_allclose(found.per_component, np.mean(squares, axis=0))
    assert found.total == pytest.approx(r_squared(X, Z).mean())


def test_for_uncorrelated_variates_the_total_is_the_sum():
    X, Z = rows()
    Z = np.linalg.qr(Z - Z.mean(axis=0))[0]
    found = redundancy(X, Z)
    assert found.total == pytest.approx(found.per_component.sum())
    twice = redundancy(X, np.column_stack([Z, Z]))
    assert twice.total == pytest.approx(found.total)
    assert twice.per_component.sum() == pytest.approx(2 * found.total)


def test_units_and_constant_columns_do_not_matter():
    X, Z = rows()
    expected = redundancy(X, Z)
    changed = X * 10.0 ** np.array([9, -9, 0, 3, -3]) + 1
    found = redundancy(np.column_stack([changed, np.full(len(X), 0.1)]) * 1e200, 1e-200 * Z)
    np.testing.assert_allclose(found.per_component, expected.per_component)
    assert found.total == pytest.approx(expected.total)
    nothing = redundancy(np.full((10, 2), 0.1), Z[:10])
    assert nothing.total == 0.0
    assert nothing.per_component.tolist() == [0, 0, 0]


def joint(X, Z, cut):
    moments = JointMoments((X.shape[1],), Z.shape[1])
    for rows in (slice(cut), slice(cut, None)):
        moments.add(Z[rows], (X[rows],))
    variates, (variables,) = moments.finish()
    return variates, variables


def test_an_offset_costs_no_digits():
    X, Z = rows()
    near, far = (joint(X + offset, Z, 100)[1] for offset in (0.0, 2.0**30))
    np.testing.assert_allclose(far.covariances, near.covariances, rtol=1e-5)
    np.testing.assert_allclose(far.deviation, near.deviation, rtol=1e-6)


def test_regression_is_least_squares_also_on_repeated_variates():
    X, Z = rows()
    design = np.column_stack([np.ones(len(Z)), Z])
    expected = design @ np.linalg.lstsq(design, X, rcond=None)[0]
    for repeated in (Z, np.column_stack([Z, Z[:, 0] - Z[:, 1], np.full(len(Z), 3.0)])):
        variates, variables = joint(X, repeated, 120)
        found = variables.regress(repeated, variates, slice(None), np.float64)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
