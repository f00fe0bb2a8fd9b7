"""Small KNOI models and their data, for tests."""

from itertools import pairwise

import numpy as np
import pytest

from knoi import KNOI

SOLVERS = {
    "columns": {},
    "low_rank": {"approximation": "fourier"},
    "published": {"approximation": "fourier", "precondition": None},
}
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def views(n, *, seed=0, dtype=np.float64):
    """Two views that share two hidden numbers a row, read-only."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 2))
    X = np.hstack([shared, rng.standard_normal((n, 2))]) + 0.3 * rng.standard_normal((n, 4))
    Y = np.hstack([np.tanh(shared), rng.standard_normal((n, 1))])
    X, Y = X.astype(dtype), Y.astype(dtype)
    for view in (X, Y):
        view.setflags(write=False)
    return X, Y


def small(solver="columns", **params):
    """A KNOI that fits a thousand rows in a moment."""
    given = {"rank": 30, "batch_size": 60, "extra_directions": 3, "random_state": 0, "n_jobs": 1}
    return KNOI(2, **(SOLVERS[solver] | given | params))


def assert_equal_models(one, other):
    """The same model to the last bit."""
    for name in ("correlations_", "x_weights_", "y_weights_", "x_mean_", "y_mean_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.n_samples_seen_ == other.n_samples_seen_
    without_clock = [{**model.history_, "seconds": None} for model in (one, other)]
    np.testing.assert_equal(*without_clock)


def streamed(model, X, Y, edges, **options):
    for start, stop in pairwise(edges):
        model.partial_fit(X[start:stop], Y[start:stop], **options)
    return model
