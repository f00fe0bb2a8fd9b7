"""Small models for tests, and what makes two of them the same."""

import numpy as np
import pytest

from knoi.estimators import ESTIMATORS

both_devices = pytest.mark.parametrize("device", [None, "cpu"])
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def made(estimator, **params):
    """An estimator with those of the parameters that it has."""
    known = estimator._get_param_names()
    return estimator(**{name: value for name, value in params.items() if name in known})


def small(estimator, **params):
    """An estimator that fits 200 rows in milliseconds."""
    return made(estimator, **{"rank": 60, "reg": 1e-3, "random_state": 0} | params)


def assert_same_up_to_sign(A, B, **tolerance):
    signs = np.sign((A * B).sum(axis=0))
    assert np.all(signs != 0)
    np.testing.assert_allclose(A, B * signs, **tolerance)


def assert_same_model(one, other, X, Y, tolerance=1e-8):
    """The same correlations and the same projections of both views."""
    np.testing.assert_allclose(one.correlations_, other.correlations_, atol=tolerance)
    for Z, W in zip(one.transform(X, Y), other.transform(X, Y), strict=True):
        assert_same_up_to_sign(Z, W, atol=tolerance * np.abs(W).max() * 10)
