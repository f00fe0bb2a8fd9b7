"""The training loop: bad steps are rolled back and shortened, the state is a value."""

import json
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from knoi import KNOI
from knoi.arrays.random import View
from knoi.datasets import make_two_views
from knoi.exceptions import InputError
from knoi.features import Identity, RandomFourier
from knoi.kernels import RBF
from knoi.persistence import flatten_state, unflatten_state
from knoi.solvers.loop import (
    COLLAPSED,
    LR_CUT,
    LastGood,
    OptimizerState,
    RunningStats,
    collapsed,
    from_state_dict,
    state_dict,
)
from tests.solvers.steps import initial_state, knoi_rule, random_weights, take_steps

BATCH = 200


@pytest.fixture(scope="module")
def views():
    made = make_two_views(2400, (5, 4), (0.9, 0.8, 0.7), random_state=1)
    return made.X, made.Y


@pytest.fixture(scope="module")
def maps(views):
    return [RandomFourier.fit(view, RBF(4.0), 40, 0, View.X) for view in views]


def minibatches(views, n):
    orders = (np.random.default_rng(t).permutation(len(views[0]))[:BATCH] for t in range(n))
    return [(views[0][rows], views[1][rows]) for rows in orders]


def run(rule, maps, views, steps, L=3, backend=None):
    """The states after each step from random weights, and the results."""
    start = initial_state(*random_weights(maps, L), backend)
    return take_steps(rule, start, minibatches(views, steps))


@pytest.mark.parametrize("L", [1, 3])
def test_steps_that_are_too_long_are_rolled_back_and_halved_until_they_are_not(L, maps, views):
    """With one direction the views may agree as before while the weights grow without bound."""
    rule = knoi_rule(maps, rate=1e3, n_components=L, momentum=0.9)
    states, results = run(rule, maps, views, 300, L)
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


def test_rolling_back_restores_the_last_good_weights_at_rest(backend, maps, views):
    rule = knoi_rule(maps, backend, rate=1e3, average_from=0)
    states, results = run(rule, maps, views, 2, backend=backend)
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


LINEAR = Identity(5), Identity(4)


def spoiled(state, change):
    x, y = (replace(view, U=change(view.U)) for view in (state.x, state.y))
    return replace(state, x=x, y=y)


@pytest.mark.parametrize("L", [1, 3])
def test_collapsed_and_diverged_weights_are_recognised(L, views):
    rule = knoi_rule(LINEAR, n_components=L, rate=0.05)  # linear features: it learns quickly
    states, results = run(rule, LINEAR, views, 60, L)
    assert results[-1].correlation > 0.7 * L
    ((x, y),) = minibatches(views, 1)
    for change, bad in (
        (lambda U: U, False),
        (lambda U: 2 * U, False),
        (lambda U: -U, False),
        (lambda U: 1e4 * U, True),
        (lambda U: 1e200 * U, True),  # squares overflow
        (lambda U: np.inf * U, True),
        (lambda U: 0 * U, True),
        (lambda U: U[:, :1] * np.ones(L), L > 1),  # all directions are the same
    ):
        with np.errstate(all="ignore"):
            after, result = rule.step(spoiled(states[-1], change), x, y)
        assert result.rolled_back == bad
        assert (after.lr_scale < states[-1].lr_scale) == bad
    assert rule.step(states[-1], x, y[::-1])[1].rolled_back  # unrelated views


def test_noise_alone_rolls_nothing_back(maps, views):
    """Correlations of unrelated views vary by more than half by chance."""
    unrelated = views[0], np.random.default_rng(5).permutation(views[1])
    for L in (1, 3):
        _, results = run(knoi_rule(maps, rate=0.1, n_components=L), maps, unrelated, 200, L)
        found = [result.correlation for result in results]
        assert min(found) < 0.5 * max(found)
        assert not any(result.rolled_back for result in results)


def test_a_shift_of_both_views_is_not_a_correlation(views):
    """Both are shifted far from zero in the second minibatch, with running means."""
    ((x, y),) = minibatches(views, 1)
    start = initial_state(*random_weights(LINEAR))
    rule = knoi_rule(LINEAR, rate=1e-9, rho=0.5)
    _, (first, second) = take_steps(rule, start, [(x, y), (x + 100, y + 100)])
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


def test_features_that_are_nan_from_the_start_are_an_error(maps, views):
    weights = spoiled(initial_state(*random_weights(maps)), lambda U: U * np.nan)
    with pytest.raises(InputError, match=r"the features of the first minibatch are not finite .*"):
        take_steps(knoi_rule(maps), weights, minibatches(views, 1))


@pytest.mark.parametrize("steps", [0, 8])
def test_a_state_is_restored_bit_for_bit(steps, backend, maps, views):
    rule = knoi_rule(maps, backend, rho=0.5, momentum=0.9, average_from=2)
    start = initial_state(*random_weights(maps), backend)
    rows = minibatches(views, steps + 5)
    straight, _ = take_steps(rule, start, rows)
    saved = straight[steps - 1] if steps else start
    plain_part, tensors = flatten_state(state_dict(saved, backend))
    stored = unflatten_state(json.loads(json.dumps(plain_part)), tensors)
    again = from_state_dict(OptimizerState, stored, backend)
    assert_same(again, saved)
    resumed, _ = take_steps(rule, again, rows[steps:])
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
        # Decaying steps would soon be short enough.
        given = {"precondition": precondition, "learning_rate": learning_rate, "lr_decay": np.inf}
        given |= {"rank": 400, "batch_size": BATCH, "epochs": 10, "random_state": 0, "n_jobs": 1}
        given |= {"metric": None, "scale": None, "width": "median"}
        return KNOI(L, **given).fit(X[:1600], Y[:1600])

    usual, hasty = fit(None), fit(50.0)
    assert not any(usual.history_["rolled_back"])
    assert any(hasty.history_["rolled_back"])
    rates = hasty.history_["learning_rate"]
    assert rates[-1] < 0.5 * rates[0]
    assert np.all(np.diff(rates) <= 0)
    assert np.isfinite(hasty.x_weights_).all()
    assert np.isfinite(hasty.y_weights_).all()
    # Held-out scores: in-sample correlations differ with the length of training.
    scores = [model.score(X[1600:], Y[1600:]) for model in (hasty, usual)]
    assert scores[0] > COLLAPSED * scores[1]
