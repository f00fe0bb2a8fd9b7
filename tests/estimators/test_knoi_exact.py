"""Where stochastic steps lead: to the exact solution of the same problem."""

import numpy as np
import pytest

from knoi import KNOI, KernelCCA, LinearCCA
from knoi.datasets import make_two_views

N = 1200


@pytest.fixture(scope="module")
def views():
    made = make_two_views(N, (6, 5), correlations=(0.9, 0.7, 0.4), random_state=3)
    return made.X, made.Y


def assert_same_scores(model, exact, X, Y, tolerance):
    """The components agree row by row, up to their signs."""
    np.testing.assert_allclose(model.correlations_, exact.correlations_, atol=tolerance)
    for ours, theirs in zip(model.transform(X, Y), exact.transform(X, Y), strict=True):
        cosines = np.sum(ours * theirs, axis=0)
        cosines /= np.linalg.norm(ours, axis=0) * np.linalg.norm(theirs, axis=0)
        np.testing.assert_allclose(np.abs(cosines), 1, atol=tolerance)


@pytest.mark.parametrize(
    ("rho", "batch_size"), [(0.0, N), (0.9, 300)], ids=["AppGrad", "NOI, a quarter of the rows"]
)
def test_the_published_steps_on_the_identity_reach_linear_cca(views, rho, batch_size):
    X, Y = ((view - view.mean(axis=0)) / view.std(axis=0) for view in views)
    model = KNOI(
        3,
        kernel="linear",
        precondition=None,
        time_constant=rho,
        batch_size=batch_size,
        learning_rate=0.05,
        momentum=0.5,
        weight_decay=0.0,
        average=True,
        epochs=800,
        held_out=0,
        random_state=0,
        n_jobs=1,
    ).fit(X, Y)
    # Minibatches leave some noise in what they reach; all the rows leave none.
    assert_same_scores(model, LinearCCA(3).fit(X, Y), X, Y, 1e-3 if batch_size == N else 2e-2)


def test_preconditioned_steps_on_the_identity_reach_linear_cca(views):
    X, Y = views
    X = X * 10.0 ** np.arange(-2, 4)  # columns of six orders of magnitude
    model = KNOI(3, kernel="linear", reg=0.0, batch_size=N, epochs=200, held_out=0, random_state=0)
    assert_same_scores(model.fit(X, Y), LinearCCA(3).fit(X, Y), X, Y, 1e-3)


def test_with_all_rows_as_landmarks_it_reaches_kernel_cca(views):
    X, Y = views[0][:300], views[1][:300]
    model = KNOI(2, rank=300, reg=1e-2, batch_size=300, epochs=300, held_out=0, random_state=0)
    assert_same_scores(model.fit(X, Y), KernelCCA(2, reg=1e-2).fit(X, Y), X, Y, 1e-2)
