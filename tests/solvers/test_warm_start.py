"""The start from a small exact problem: better than random weights on held-out rows."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.datasets import make_two_views
from knoi.engine import Serial, Threads
from knoi.exceptions import InputError
from knoi.features import Identity, KernelColumns, RandomFourier
from knoi.kernels import RBF
from knoi.metrics import total_correlation
from knoi.solvers import acceleration as module
from knoi.solvers.acceleration import REGULARISERS, warm_start
from knoi.solvers.exact import Moments, solve_primal

ROWS, DIRECTIONS = 1500, 3


@pytest.fixture(scope="module")
def views():
    """Views with linear and nonlinear correlations, 500 rows more than the sample."""
    made = make_two_views(ROWS + 500, (6, 5), (0.9, 0.8, 0.7), random_state=2)
    return made.X, made.Y


def maps_of(kind, views):
    if kind == "identity":
        return Identity(6), Identity(5)
    if kind == "fourier":
        return tuple(
            RandomFourier.fit(rows, RBF(6.0), 300, 0, view)
            for view, rows in zip(View, views, strict=True)
        )
    return tuple(KernelColumns(RBF(6.0), rows[:300]) for rows in views)


def held_out(maps, weights, views):
    """Total correlation of held-out rows, after a new linear CCA."""
    P, Q = (
        features.transform(rows[ROWS:]) @ W
        for features, rows, W in zip(maps, views, weights, strict=True)
    )
    return total_correlation(P, Q, measure="refit")


@pytest.mark.parametrize("kind", ["fourier", "columns", "identity"])
def test_the_start_beats_random_weights_on_held_out_rows(kind, backend, views):
    maps = maps_of(kind, views)
    sample = views[0][:ROWS], views[1][:ROWS]
    placed = maps[0].to(backend), maps[1].to(backend)
    start = warm_start(placed, sample, DIRECTIONS, backend, Serial())
    weights = [backend.to_numpy(W) for W in start.weights]
    assert [W.shape for W in weights] == [(features.rank, DIRECTIONS) for features in maps]
    assert start.reg in REGULARISERS
    assert start.n_rows == ROWS * 4 // 5
    rng = np.random.default_rng(0)
    chance = [rng.standard_normal(W.shape) for W in weights]
    reached = held_out(maps, weights, views)
    assert reached > held_out(maps, chance, views) + 0.5
    assert reached > 0.8 * (0.9 + 0.8 + 0.7)


@pytest.mark.parametrize("kind", ["fourier", "columns"])
def test_only_the_first_features_get_weights(kind, views):
    """As many as a tenth of the rows, so that the small problem does not overfit."""
    maps = maps_of(kind, views)
    start = warm_start(maps, (views[0][:50], views[1][:50]), DIRECTIONS, numpy_backend(), Serial())
    for W in start.weights:
        assert np.any(W[:5])
        assert not np.any(W[5:])


def test_a_sample_that_is_too_small_gives_no_start(views):
    maps = maps_of("columns", views)

    def start(n):
        sample = views[0][:n], views[1][:n]
        return warm_start(maps, sample, DIRECTIONS, numpy_backend(), Serial())

    assert start(10 * DIRECTIONS - 1) is None
    assert start(1) is None
    assert start(10 * DIRECTIONS) is not None


def test_duplicated_landmarks_that_leave_too_few_directions_give_no_start(views):
    maps = [KernelColumns(RBF(6.0), np.tile(rows[:2], (50, 1))) for rows in views]
    assert warm_start(maps, views, DIRECTIONS, numpy_backend(), Serial()) is None


def test_workers_and_pieces_change_nothing(views, monkeypatch):
    maps = maps_of("fourier", views)
    one = warm_start(maps, views, DIRECTIONS, numpy_backend(), Serial())
    monkeypatch.setattr(module, "CHUNK_ROWS", 111)
    with Threads(2) as engine:
        other = warm_start(maps, views, DIRECTIONS, numpy_backend(), engine)
    assert one.reg == other.reg
    for W, same in zip(one.weights, other.weights, strict=True):
        signs = np.sign(np.sum(W * same, axis=0))
        np.testing.assert_allclose(same * signs, W, rtol=0, atol=1e-5 * np.abs(W).max())


def test_directions_without_variance_under_the_weakest_regulariser_are_no_error():
    """Two equal columns in single precision are one direction to the weakest regulariser."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((2000, 2)).astype(np.float32)
    X = np.repeat(Y[:, :1] + rng.standard_normal((2000, 1)).astype(np.float32), 2, axis=1)
    backend, maps = numpy_backend("float32"), (Identity(2), Identity(2))
    moments = Moments((2, 2), backend)
    moments.update(X, Y)
    with pytest.raises(InputError, match="view X varies in only 1 independent directions"):
        solve_primal(moments.covariances(), 2, (REGULARISERS[0],) * 2, backend)
    start = warm_start(maps, (X, Y), 2, backend, Serial())
    assert [W.shape for W in start.weights] == [(2, 2)] * 2
    assert all(np.isfinite(W).all() for W in start.weights)


def test_a_view_that_does_not_vary_is_named():
    X, Y = np.full((100, 4), 0.5), np.random.default_rng(0).standard_normal((100, 4))
    with pytest.raises(InputError, match="view X does not vary: all its rows are the same"):
        warm_start((Identity(4), Identity(4)), (X, Y), 2, numpy_backend(), Serial())
