"""What surrounds a step: bad ones are undone and shortened, state is a value, weights average."""

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
    """The weights after each step, and the outcomes."""
    passed, outcomes = [], []
    for t, (x, y) in enumerate(minibatches(views, skip + steps)):
        if t < skip:
            continue
        weights, outcome = rule.step(weights, x, y)
        passed.append(weights)
        outcomes.append(outcome)
    return passed, outcomes


@pytest.mark.parametrize("L", [1, 3])
def test_far_too_long_steps_are_undone_and_shortened_until_they_are_not(L, views):
    """With one direction the views agree as well as ever while the weights grow without bound."""
    rule = make_rule(views, rate=1e3, L=L, momentum=0.9)
    passed, outcomes = run(rule, random_weights(L), views, 300)
    undone = [outcome.rolled_back for outcome in outcomes]
    assert undone[1]  # at once, by the first minibatch that sees what the step did
    assert not any(undone[-100:])  # and then it learns
    assert np.mean([outcome.correlation for outcome in outcomes[-100:]]) > 0.7 * L
    cuts = np.cumsum([0, *undone[:-1]])
    rates = [outcome.learning_rate for outcome in outcomes]
    np.testing.assert_allclose(rates, 1e3 * LR_CUT**cuts, rtol=1e-12)
    for weights in passed:
        assert np.isfinite(weights.x.U).all()
        assert np.isfinite(weights.y.U).all()


def test_divergence_does_not_take_the_anchor_along(views):
    rule = make_rule(views, rate=1e3, L=1, momentum=0.9)
    passed, outcomes = run(rule, random_weights(1), views, 100)
    assert max(w.last_good.loss for w in passed) <= max(1, 1.5 * outcomes[0].loss)


def test_undoing_goes_back_to_the_anchor_at_rest(backend, views):
    rule = make_rule(views, rate=1e3, backend=backend, average_from=0)
    passed, outcomes = run(rule, random_weights(backend=backend), views, 2)
    assert [outcome.rolled_back for outcome in outcomes] == [False, True]
    before, after = passed
    for state, anchor in ((after.x, before.last_good.U), (after.y, before.last_good.V)):
        np.testing.assert_array_equal(backend.to_numpy(state.U), backend.to_numpy(anchor))
        assert not backend.to_numpy(state.velocity).any()
    assert after.stats == RunningStats()
    assert after.average is None
    assert after.n_averaged == 0
    assert after.last_good.correlation is None
    assert after.lr_scale == LR_CUT
    assert (after.steps, after.samples) == (2, 2 * BATCH)


def trained(views, L=3):
    """A rule, and weights that agree and have an anchor: linear ones, which learn in few steps."""
    rule = make_rule(views, L=L, maps=(Identity(5), Identity(4)), rate=0.05)
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((5, L)), rng.standard_normal((4, L))
    start = OptimizerState(ViewState(U, 0 * U), ViewState(V, 0 * V))
    passed, outcomes = run(rule, start, views, 60)
    assert outcomes[-1].correlation > 0.7 * L
    return rule, passed[-1]


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
def test_a_bad_step_is_told_from_a_good_one(change, bad, L, views):
    rule, weights = trained(views, L)
    with np.errstate(all="ignore"):
        x, y = next(minibatches(views, 1))
        after, outcome = rule.step(spoiled(weights, change), x, y)
    assert outcome.rolled_back == bad
    assert (after.lr_scale < weights.lr_scale) == bad


@pytest.mark.parametrize("L", [1, 3])
def test_views_that_fell_apart_are_a_collapse(L, views):
    rule, weights = trained(views, L)
    x, y = next(minibatches(views, 1))
    assert not rule.step(weights, x, y)[1].rolled_back
    assert rule.step(weights, x, y[::-1])[1].rolled_back


def test_directions_that_fell_together_are_a_collapse(views):
    rule, weights = trained(views)
    alike = spoiled(weights, lambda U: U[:, :1] * np.ones(3))
    _, outcome = rule.step(alike, *next(minibatches(views, 1)))
    assert outcome.rolled_back


def test_chance_alone_undoes_nothing(views):
    """Correlations of unrelated views rise and fall by more than half, and mean nothing."""
    unrelated = views[0], np.random.default_rng(5).permutation(views[1])
    for L in (1, 3):
        _, outcomes = run(make_rule(unrelated, rate=0.1, L=L), random_weights(L), unrelated, 200)
        found = [outcome.correlation for outcome in outcomes]
        assert min(found) < 0.5 * max(found)
        assert not any(outcome.rolled_back for outcome in outcomes)


def test_smoothed_means_do_not_pass_for_correlation(views):
    """Offsets far from zero that both views share from the second minibatch on."""
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
def test_collapse_is_half_the_correlation_less_what_chance_may_do(correlation, bad):
    anchor = LastGood(None, None, 2.0, 0.1, 1.0)
    assert collapsed(correlation, anchor) == bad
    assert not collapsed(correlation, None)
    assert not collapsed(correlation, replace(anchor, correlation=None))


def test_features_that_are_no_numbers_from_the_start_are_refused(views):
    rule, weights = make_rule(views), random_weights()
    weights = spoiled(weights, lambda U: U * np.nan)
    with pytest.raises(InputError, match=r"the features of the first minibatch are not finite .*"):
        rule.step(weights, *next(minibatches(views, 1)))


@pytest.mark.parametrize("steps", [0, 3, 8])
def test_weights_survive_their_state_bit_for_bit(steps, backend, views):
    rule = make_rule(views, backend=backend, rho=0.5, momentum=0.9, average_from=2)
    start = random_weights(backend=backend)
    passed, _ = run(rule, start, views, steps) if steps else ([start], [])
    plain_part, tensors = flatten_state(passed[-1].state_dict(backend))
    stored = unflatten_state(json.loads(json.dumps(plain_part)), tensors)
    again = OptimizerState.from_state_dict(stored, backend)
    assert_same(again, passed[-1])
    straight, _ = run(rule, start, views, steps + 5)
    resumed, _ = run(rule, again, views, 5, skip=steps)
    assert_same(resumed[-1], straight[-1])


def test_a_run_that_was_just_undone_survives_too(backend, views):
    rule = make_rule(views, backend=backend, rate=1e3)
    passed, outcomes = run(rule, random_weights(backend=backend), views, 2)
    assert outcomes[-1].rolled_back
    again = OptimizerState.from_state_dict(passed[-1].state_dict(backend), backend)
    assert_same(again, passed[-1])


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


def test_step_sizes_stay_or_fall():
    assert [StepSize(0.5, None)(t) for t in (0, 10**6)] == [0.5, 0.5]
    falling = StepSize(0.5, 3.0)
    assert [falling(t) for t in (0, 5, 6, 29)] == [0.5, 0.5, 3 / 7, 0.1]
    assert StepSize(0.5, np.inf)(10**6) == 0.5


def test_each_view_has_its_own_step_size(views):
    rule = replace(make_rule(views), step_sizes=(StepSize(0.5, 1.0), StepSize(0.0, None)))
    start = random_weights()
    passed, outcomes = run(rule, start, views, 3)
    np.testing.assert_array_equal(passed[-1].y.U, start.y.U)
    assert np.abs(passed[-1].x.U - start.x.U).max() > 0
    assert [outcome.learning_rate for outcome in outcomes] == [0.5, 0.5, 1 / 3]


def explicit_average(iterates):
    """Iterate i = 1, 2, ... weighs i (i + 1)."""
    i = np.arange(1, len(iterates) + 1)
    return np.tensordot(i * (i + 1) / np.sum(i * (i + 1)), np.stack(iterates), axes=1)


def test_the_average_weighs_iterates_by_the_square_of_their_number(backend, views):
    rule = make_rule(views, backend=backend, average_from=4)
    passed, _ = run(rule, random_weights(backend=backend), views, 12)
    for t, weights in enumerate(passed, start=1):
        averaged = passed[4:t] or [weights]
        for v in (0, 1):
            want = explicit_average([backend.to_numpy((w.x, w.y)[v].U) for w in averaged])
            np.testing.assert_allclose(backend.to_numpy(weights.weights[v]), want, rtol=1e-10)
    assert passed[3].average is None
    assert passed[-1].n_averaged == 8


def test_averaging_begins_anew_after_an_undone_step(views):
    rule = make_rule(views, average_from=0)
    passed, _ = run(rule, random_weights(), views, 60)
    undone, outcome = rule.step(
        spoiled(passed[-1], lambda U: 1e4 * U), *next(minibatches(views, 1))
    )
    assert outcome.rolled_back
    later, outcomes = run(rule, undone, views, 5, skip=61)
    assert not any(outcome.rolled_back for outcome in outcomes)
    want = explicit_average([weights.x.U for weights in later])
    np.testing.assert_allclose(later[-1].weights[0], want, rtol=1e-10)


@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize(("precondition", "dtype"), [("auto", "float64"), ("low_rank", "float32")])
def test_a_learning_rate_far_too_large_is_cut_and_collapses_nothing(precondition, dtype, L, views):
    X, Y = (view.astype(dtype) for view in views)

    def fit(learning_rate):
        return KNOI(
            L,
            rank=400,
            precondition=precondition,
            learning_rate=learning_rate,
            lr_decay=np.inf,  # falling steps would soon be short enough by themselves
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
    # On rows it has not seen: in-sample correlations differ with how far a run has come.
    scores = [model.score(X[1600:], Y[1600:]) for model in (hasty, usual)]
    assert scores[0] > COLLAPSED * scores[1]
