"""The training loop: bad steps are rolled back and shortened, the state is a value."""

import json
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from knoi import KNOI
from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.datasets import make_two_views
from knoi.engine import Serial
from knoi.exceptions import InputError
from knoi.features import Identity, RandomFourier
from knoi.kernels import RBF
from knoi.persistence import flatten_state, unflatten_state
from knoi.solvers.acceleration import plain
from knoi.solvers.loop import (
    COLLAPSED,
    LR_CUT,
    LastGood,
    OptimizerState,
    RunningStats,
    ViewState,
    collapsed,
    from_state_dict,
    state_dict,
)
from knoi.solvers.noi import KNOIUpdate, MinibatchFeatures, StepSize

RANK, BATCH = 40, 200


@pytest.fixture(scope="module")
def views():
    made = make_two_views(2400, (5, 4), (0.9, 0.8, 0.7), random_state=1)
    return made.X, made.Y


def fourier(view, rank=RANK):
    return RandomFourier.fit(view, RBF(4.0), rank, 0, View.X)


def make_rule(views, *, rate=0.5, L=3, backend=None, maps=None, **changes):
    backend = backend or numpy_backend()
    maps = maps or [fourier(view) for view in views]
    x, y = (MinibatchFeatures(one.to(backend), BATCH, backend, keep=True) for one in maps)
    given = {"rho": 0.0, "momentum": 0.5, "weight_decay": 0.0, "average_from": None} | changes
    return KNOIUpdate(
        (x, y),
        (plain, plain),
        (StepSize(rate, None),) * 2,
        n_components=L,
        backend=backend,
        engine=Serial(),
        **given,
    )


def random_weights(L=3, rank=RANK, backend=None):
    backend = backend or numpy_backend()
    rng = np.random.default_rng(0)
    U, V = (backend.asarray(rng.standard_normal((rank, L))) for _ in range(2))
    return OptimizerState(ViewState(U, U * 0), ViewState(V, V * 0))


def minibatches(views, n):
    for t in range(n):
        rows = np.random.default_rng(t).permutation(len(views[0]))[:BATCH]
        yield views[0][rows], views[1][rows]


def run(rule, weights, views, steps, skip=0):
    """The weights after each step, and the results."""
    states, results = [], []
    for t, (x, y) in enumerate(minibatches(views, skip + steps)):
        if t < skip:
            continue
        weights, result = rule.step(weights, x, y)
        states.append(weights)
        results.append(result)
    return states, results


@pytest.mark.parametrize("L", [1, 3])
def test_steps_that_are_too_long_are_rolled_back_and_halved_until_they_are_not(L, views):
    """With one direction the views may agree as before while the weights grow without bound."""
    rule = make_rule(views, rate=1e3, L=L, momentum=0.9)
    states, results = run(rule, random_weights(L), views, 300)
    rolled_back = [result.rolled_back for result in results]
    assert rolled_back[1]  # by the first minibatch after the step
    assert not any(rolled_back[-100:])  # then it learns
    assert np.mean([result.correlation for result in results[-100:]]) > 0.7 * L
    cuts = np.cumsum([0, *rolled_back[:-1]])
    rates = [result.learning_rate for result in results]
    np.testing.assert_allclose(rates, 1e3 * LR_CUT**cuts, rtol=1e-12)
    for state in states:
        assert np.isfinite(state.x.U).all()
        assert np.isfinite(state.y.U).all()
    # Divergence does not move the last good weights.
    assert max(state.last_good.loss for state in states) <= max(L, 1.5 * results[0].loss)


def test_rolling_back_restores_the_last_good_weights_at_rest(backend, views):
    rule = make_rule(views, rate=1e3, backend=backend, average_from=0)
    states, results = run(rule, random_weights(backend=backend), views, 2)
    assert [result.rolled_back for result in results] == [False, True]
    before, after = states
    for view, good in ((after.x, before.last_good.U), (after.y, before.last_good.V)):
        np.testing.assert_array_equal(backend.to_numpy(view.U), backend.to_numpy(good))
        assert not backend.to_numpy(view.velocity).any()
    assert after.stats == RunningStats()
    assert after.average is None
    assert after.n_averaged == 0
    assert after.last_good.correlation is None
    assert after.lr_scale == LR_CUT
    assert (after.steps, after.samples) == (2, 2 * BATCH)
    again = from_state_dict(OptimizerState, state_dict(after, backend), backend)
    assert_same(again, after)


def trained(views, L=3):
    """An update rule, and a state after 60 steps; the features are linear, so it learns quickly."""
    rule = make_rule(views, L=L, maps=(Identity(5), Identity(4)), rate=0.05)
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((5, L)), rng.standard_normal((4, L))
    start = OptimizerState(ViewState(U, 0 * U), ViewState(V, 0 * V))
    states, results = run(rule, start, views, 60)
    assert results[-1].correlation > 0.7 * L
    return rule, states[-1]


def spoiled(weights, change):
    x, y = (replace(state, U=change(state.U)) for state in (weights.x, weights.y))
    return replace(weights, x=x, y=y)


@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize(
    ("change", "bad"),
    [
        (lambda U: U, False),
        (lambda U: 2 * U, False),
        (lambda U: -U, False),
        (lambda U: 1e4 * U, True),
        (lambda U: 1e200 * U, True),
        (lambda U: np.inf * U, True),
        (lambda U: 0 * U, True),
    ],
    ids=["same", "double", "turned", "huge", "squares overflow", "infinite", "zero"],
)
def test_collapsed_and_diverged_weights_are_recognised(change, bad, L, views):
    rule, weights = trained(views, L)
    with np.errstate(all="ignore"):
        x, y = next(minibatches(views, 1))
        after, result = rule.step(spoiled(weights, change), x, y)
    assert result.rolled_back == bad
    assert (after.lr_scale < weights.lr_scale) == bad


def test_unrelated_views_and_equal_directions_are_a_collapse(views):
    rule, weights = trained(views)
    x, y = next(minibatches(views, 1))
    assert rule.step(weights, x, y[::-1])[1].rolled_back
    alike = spoiled(weights, lambda U: U[:, :1] * np.ones(3))
    assert rule.step(alike, x, y)[1].rolled_back


def test_noise_alone_rolls_nothing_back(views):
    """Correlations of unrelated views vary by more than half by chance."""
    unrelated = views[0], np.random.default_rng(5).permutation(views[1])
    for L in (1, 3):
        _, results = run(make_rule(unrelated, rate=0.1, L=L), random_weights(L), unrelated, 200)
        found = [result.correlation for result in results]
        assert min(found) < 0.5 * max(found)
        assert not any(result.rolled_back for result in results)


def test_a_shift_of_both_views_is_not_a_correlation(views):
    """Both are shifted far from zero from the second minibatch on, with running means."""
    maps = Identity(5), Identity(4)
    rule = make_rule(views, maps=maps, rate=1e-9, rho=0.5)
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    weights = OptimizerState(ViewState(U, 0 * U), ViewState(V, 0 * V))
    x, y = next(minibatches(views, 1))
    weights, first = rule.step(weights, x, y)
    _, second = rule.step(weights, x + 100, y + 100)
    assert second.correlation == pytest.approx(first.correlation, rel=1e-6)


@pytest.mark.parametrize(
    ("correlation", "bad"),
    [(2.0, False), (0.9, False), (0.89, True), (0.0, True), (float("nan"), True)],
)
def test_a_collapse_is_half_the_correlation_minus_noise(correlation, bad):
    last_good = LastGood(None, None, 2.0, 0.1, 1.0)
    assert collapsed(correlation, last_good) == bad
    assert not collapsed(correlation, None)
    assert not collapsed(correlation, replace(last_good, correlation=None))


def test_features_that_are_nan_from_the_start_are_an_error(views):
    rule, weights = make_rule(views), random_weights()
    weights = spoiled(weights, lambda U: U * np.nan)
    with pytest.raises(InputError, match=r"the features of the first minibatch are not finite .*"):
        rule.step(weights, *next(minibatches(views, 1)))


@pytest.mark.parametrize("steps", [0, 8])
def test_a_state_is_restored_bit_for_bit(steps, backend, views):
    rule = make_rule(views, backend=backend, rho=0.5, momentum=0.9, average_from=2)
    start = random_weights(backend=backend)
    states, _ = run(rule, start, views, steps) if steps else ([start], [])
    plain_part, tensors = flatten_state(state_dict(states[-1], backend))
    stored = unflatten_state(json.loads(json.dumps(plain_part)), tensors)
    again = from_state_dict(OptimizerState, stored, backend)
    assert_same(again, states[-1])
    straight, _ = run(rule, start, views, steps + 5)
    resumed, _ = run(rule, again, views, 5, skip=steps)
    assert_same(resumed[-1], straight[-1])


def assert_same(found, want):
    """Equal to the last bit, field by field."""
    assert type(found) is type(want)
    if is_dataclass(want):
        for field in fields(want):
            assert_same(getattr(found, field.name), getattr(want, field.name))
    elif isinstance(want, tuple):
        for one, other in zip(found, want, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize(("precondition", "dtype"), [("auto", "float64"), ("low_rank", "float32")])
def test_a_learning_rate_that_is_too_large_is_cut_without_collapse(precondition, dtype, L, views):
    X, Y = (view.astype(dtype) for view in views)

    def fit(learning_rate):
        return KNOI(
            L,
            rank=400,
            precondition=precondition,
            learning_rate=learning_rate,
            lr_decay=np.inf,  # decaying steps would soon be short enough
            batch_size=BATCH,
            epochs=10,
            random_state=0,
            n_jobs=1,
        ).fit(X[:1600], Y[:1600])

    usual, hasty = fit(None), fit(50.0)
    assert not any(usual.history_["rolled_back"])
    assert any(hasty.history_["rolled_back"])
    rates = hasty.history_["learning_rate"]
    assert rates[-1] < 0.5 * rates[0]
    assert np.all(np.diff(rates) <= 0)
    for weights in (hasty.x_weights_, hasty.y_weights_):
        assert np.isfinite(weights).all()
    # Held-out scores: in-sample correlations differ with the length of training.
    scores = [model.score(X[1600:], Y[1600:]) for model in (hasty, usual)]
    assert scores[0] > COLLAPSED * scores[1]
