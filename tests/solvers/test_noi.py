"""KNOI's update rule: Algorithm 1, however the work is split; step sizes and averages."""

from dataclasses import replace

import numpy as np
import pytest

from knoi import KNOI
from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import Purpose, View, generator
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Serial
from knoi.features import Identity, KernelColumns, RandomFourier
from knoi.kernels import RBF
from knoi.solvers import noi
from knoi.solvers.loop import RunningStats
from knoi.solvers.noi import MinibatchFeatures, StepSize, couple
from tests.oracles.cca import linear_cca
from tests.oracles.knoi import knoi
from tests.solvers.steps import BATCH, initial_state, knoi_rule, random_weights, take_steps

L = 3


@pytest.fixture
def maps(two_views):
    """Different features, and a different number of them, in each view."""
    X, Y = two_views
    return RandomFourier.fit(X, RBF(3.0), 97, 0, View.X), KernelColumns(RBF(3.0), np.array(Y[:61]))


def assert_close(found, want, rtol):
    np.testing.assert_allclose(found, want, rtol=0, atol=rtol * np.abs(want).max())


@pytest.mark.parametrize(
    ("tiled", "keep", "rho"), [(False, True, 0.0), (True, True, 0.25), (True, False, 0.0)]
)
def test_steps_are_algorithm_1(tiled, keep, rho, engine, backend, maps, minibatches, monkeypatch):
    if tiled:
        monkeypatch.setattr(noi, "TILE_COLUMNS", 5)
        monkeypatch.setattr(noi, "TILE_ROWS", 16)
    else:  # smaller minibatches reuse the buffer of the largest
        minibatches = [
            (x[: BATCH - 4 * t], y[: BATCH - 4 * t]) for t, (x, y) in enumerate(minibatches)
        ]
    U, V = random_weights(maps)
    rule = knoi_rule(maps, backend, engine, keep=keep, rho=rho, weight_decay=1e-2)
    assert (len(rule.features[0]._blocks) > 1) == tiled
    begun = initial_state(U.copy(), V.copy(), backend)
    states, results = take_steps(rule, begun, minibatches)
    assert not any(result.rolled_back for result in results)
    features = [(maps[0].transform(x), maps[1].transform(y)) for x, y in minibatches]
    wanted = knoi(features, U, V, eta=0.2, mu=0.5, rho=rho, decay=1e-2)
    for state, want in zip((states[-1].x, states[-1].y), wanted, strict=True):
        assert_close(backend.to_numpy(state.U), want, 1e-10)
    np.testing.assert_array_equal(backend.to_numpy(begun.x.U), U)  # a state does not change
    # The weights moved: this does not compare two runs that stand still.
    assert np.abs(wanted[0] - U).max() > 0.1


@pytest.mark.parametrize(("keep", "times"), [(True, 1), (False, 3)])
def test_kept_features_are_computed_once_per_minibatch(keep, times, monkeypatch, maps, minibatches):
    made = []
    block = RandomFourier.block

    def counted(self, prepared, columns, out=None):
        made.append(columns)
        return block(self, prepared, columns, out)

    monkeypatch.setattr(RandomFourier, "block", counted)
    work = MinibatchFeatures(maps[0], BATCH, numpy_backend(), keep=keep)
    U = np.ones((97, L))
    for x, _ in minibatches[:2]:
        made.clear()
        work.load(x)
        scores = work.project(U, Serial())
        np.testing.assert_array_equal(work.project(U, Serial()), scores)
        work.gradient(scores, Serial())
        assert len(made) == times


def test_reported_loss_and_correlations_are_those_of_the_scores(maps, minibatches):
    U, V = random_weights(maps)
    _, result = knoi_rule(maps, n_components=2).step(initial_state(U, V), *minibatches[0])
    P, Q = (phi.transform(x) @ W for phi, x, W in zip(maps, minibatches[0], (U, V), strict=True))
    correlations = linear_cca(P, Q, L)[2]
    assert result.correlation == pytest.approx(correlations[:2].sum(), rel=1e-10)
    residuals = couple(RunningStats(), (P, Q), 0.0).residuals
    squares = [np.square(R).sum(axis=1).mean() for R in residuals]
    assert result.loss == pytest.approx(np.mean(squares), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "rows", "rho", "most"),
    [
        (lambda U: U[:, [0, 0, 2]], BATCH, 0.0, 2),
        (lambda U: U * [1, 0, 1], BATCH, 0.5, 2),
        (lambda U: 0 * U, BATCH, 0.0, 0),
        (lambda U: U, L - 1, 0.0, L),
        (lambda U: U, L, 0.9, L),
        (lambda U: U, L + 1, 0.0, L),
    ],
    ids=["duplicate", "zero", "constant scores", "L-1 rows", "L rows", "L+1 rows"],
)
def test_directions_that_do_not_vary_are_left_out(
    change, rows, rho, most, backend, maps, minibatches
):
    U, V = random_weights(maps)
    rule = knoi_rule(maps, backend, rho=rho)
    cut = [(x[:rows], y[:rows]) for x, y in minibatches]
    states, results = take_steps(rule, initial_state(change(U), V, backend), cut)
    for state in (states[-1].x, states[-1].y):
        assert np.isfinite(backend.to_numpy(state.U)).all()
        assert np.isfinite(backend.to_numpy(state.velocity)).all()
    assert np.isfinite([(result.loss, result.correlation) for result in results]).all()
    assert results[0].correlation <= most + 1e-12


@pytest.mark.parametrize(
    ("kind", "rho", "n_jobs"), [("kernel", 0.0, 2), ("kernel", 0.5, 1), ("linear", 0.5, 2)]
)
def test_the_estimator_runs_algorithm_1(kind, rho, n_jobs, two_views):
    """Features, minibatches, start and steps of the public class, compared with the oracle."""
    seed, X, Y = 7, *two_views
    if kind == "kernel":
        maps = RandomFourier.fit(X, RBF(3.0), 30, seed, View.X), KernelColumns(RBF(3.0), Y[:25])
    else:
        maps = Identity(6), Identity(4)
    steps = {"learning_rate": 0.05, "momentum": 0.5, "weight_decay": 1e-3, "time_constant": rho}
    steps |= {"precondition": None, "batch_size": 60, "epochs": 3, "held_out": 0}
    model = KNOI(2, approximation=maps, random_state=seed, n_jobs=n_jobs, **steps).fit(X, Y)
    assert not any(model.history_["rolled_back"])
    assert model.n_samples_seen_ == 3 * 4 * 60

    U, V = (
        generator(seed, Purpose.INITIAL_WEIGHTS, view).standard_normal((features.rank, 2))
        for view, features in zip(View, maps, strict=True)
    )
    pairs = PairSource.open(X, Y)
    with iter(PairStream(pairs, 60, seed, window_bytes=1 << 20, epochs=3)) as stream:
        batches = [(maps[0].transform(batch.x), maps[1].transform(batch.y)) for batch in stream]
    U, V = knoi(batches, U, V, eta=0.05, mu=0.5, rho=rho, decay=1e-3)
    P, Q = maps[0].transform(X) @ U, maps[1].transform(Y) @ V
    A, B, correlations = linear_cca(P, Q, 2)

    np.testing.assert_allclose(model.correlations_, correlations, rtol=1e-9)
    for found, scores, weights in ((model.transform(X), P, A), (model.transform_y(Y), Q, B)):
        want = (scores - scores.mean(0)) @ weights
        want *= np.sign(np.sum(want * found, axis=0))
        assert_close(found, want, 1e-7)


def test_each_view_has_its_own_step_size(maps, minibatches):
    U, V = random_weights(maps)
    rule = knoi_rule(maps, step_sizes=(StepSize(0.2, 0.4), StepSize(0.0, None)))
    states, results = take_steps(rule, initial_state(U, V), minibatches[:3])
    np.testing.assert_array_equal(states[-1].y.U, V)
    assert np.abs(states[-1].x.U - U).max() > 0
    assert [result.learning_rate for result in results] == pytest.approx([0.2, 0.2, 0.4 / 3])


def weighted_average(iterates):
    """Iterate i = 1, 2, ... has weight i (i + 1)."""
    i = np.arange(1, len(iterates) + 1)
    return np.tensordot(i * (i + 1) / np.sum(i * (i + 1)), np.stack(iterates), axes=1)


def test_the_average_starts_late_and_again_after_a_step_that_is_rolled_back(
    backend, maps, minibatches
):
    rule = knoi_rule(maps, backend, average_from=2)
    state, states = initial_state(*random_weights(maps), backend), []
    for t, (x, y) in enumerate(minibatches):
        if t == 5:  # weights so large that this step is rolled back
            views = (replace(view, U=1e8 * view.U) for view in (state.x, state.y))
            state = replace(state, x=next(views), y=next(views))
        state, result = rule.step(state, x, y)
        assert result.rolled_back == (t == 5)
        states.append(state)
    for first, last in ((2, 4), (6, 7)):
        averaged = states[first : last + 1]
        for v in (0, 1):
            want = weighted_average([backend.to_numpy((one.x, one.y)[v].U) for one in averaged])
            assert_close(backend.to_numpy(states[last].weights[v]), want, 1e-10)
        assert states[last].n_averaged == len(averaged)
    assert states[1].average is None
    assert states[5].average is None
