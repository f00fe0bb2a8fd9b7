"""Small models and views for tests, and comparisons of models."""

from itertools import pairwise

import numpy as np
import pytest

from knoi import KNOI, DeepCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA, load
from knoi.estimators import ESTIMATORS

both_devices = pytest.mark.parametrize("device", [None, "cpu"])
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
# One of the closed forms, the N x N problem, one of the stochastic methods.
each_family = pytest.mark.parametrize("estimator", [NystromCCA, KernelCCA, KNOI])
closed_forms = pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])

# The columns and the median width, as published, where a test is not about them.
AS_PUBLISHED = {"metric": None, "scale": None, "width": "median"}
SOLVERS = {
    "columns": {},
    "low_rank": {"approximation": "fourier"},
    "published": {"approximation": "fourier", "precondition": None},
}
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def made(estimator, **params):
    """An estimator with those of the parameters that it has."""
    known = estimator._get_param_names()
    return estimator(**{name: value for name, value in params.items() if name in known})


def small(estimator, **params):
    """An estimator that fits 200 rows in milliseconds."""
    given = {"rank": 60, "reg": 1e-3, "random_state": 0, **AS_PUBLISHED}
    if estimator is KNOI:  # the closed form would be its choice for so few rows
        given |= {"solver": "stochastic"}
    if estimator is DeepCCA:
        given |= {"hidden": (8,), "epochs": 30, "head": "linear"}
    return made(estimator, **given | params)


def small_knoi(solver="columns", **params):
    """A KNOI that fits a thousand rows in a moment."""
    given = {"rank": 30, "batch_size": 60, "extra_directions": 3, "random_state": 0, "n_jobs": 1}
    given |= AS_PUBLISHED
    return KNOI(2, **(SOLVERS[solver] | given | params))


def related_views(n, *, seed=0, dtype=np.float64):
    """Two views, (n, 4) and (n, 3), that share two hidden variables; read-only."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 2))
    X = np.hstack([shared, rng.standard_normal((n, 2))]) + 0.3 * rng.standard_normal((n, 4))
    Y = np.hstack([np.tanh(shared), rng.standard_normal((n, 1))])
    X, Y = X.astype(dtype), Y.astype(dtype)
    for view in (X, Y):
        view.setflags(write=False)
    return X, Y


def reloaded(model, directory):
    """The model saved to a file in the directory and loaded again."""
    model.save(directory / "reloaded.knoi")
    return load(directory / "reloaded.knoi")


def streamed(model, X, Y, edges, **options):
    """The model after `partial_fit` of the rows between consecutive edges."""
    for start, stop in pairwise(edges):
        model.partial_fit(X[start:stop], Y[start:stop], **options)
    return model


def assert_same_up_to_sign(A, B, **tolerance):
    signs = np.sign((A * B).sum(axis=0))
    assert np.all(signs != 0)
    np.testing.assert_allclose(A, B * signs, **tolerance)


def assert_same_model(one, other, X, Y, tolerance=1e-8):
    """The same correlations and the same projections of both views."""
    np.testing.assert_allclose(one.correlations_, other.correlations_, atol=tolerance)
    for Z, W in zip(one.transform(X, Y), other.transform(X, Y), strict=True):
        assert_same_up_to_sign(Z, W, atol=tolerance * np.abs(W).max() * 10)


def assert_equal_models(one, other):
    """The same stochastic model to the last bit, with the same history."""
    for name in ("correlations_", "x_weights_", "y_weights_", "x_mean_", "y_mean_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.n_samples_seen_ == other.n_samples_seen_
    without_clock = [{**model.history_, "seconds": None} for model in (one, other)]
    np.testing.assert_equal(*without_clock)


def with_value(view, row, column, value):
    """A copy of the view with one value changed."""
    changed = view.copy()
    changed[row, column] = value
    return changed
