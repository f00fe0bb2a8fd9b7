"""DSGD's update rule: the formulas, however the work is split, and which weights are kept."""

from dataclasses import replace

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.engine import Serial
from knoi.exceptions import InputError
from knoi.features import KernelColumns, RandomFourier
from knoi.kernels import RBF
from knoi.solvers import noi
from knoi.solvers.dsgd import DecayingStepSize, DSGDUpdate, aligned, couple_scores
from tests.oracles.dsgd import dsgd
from tests.solvers.steps import (
    BATCH,
    initial_state,
    minibatch_features,
    random_weights,
    take_steps,
)

L = 3


@pytest.fixture
def maps(two_views):
    """Different features, and a different number of them, in each view."""
    X, Y = two_views
    fourier = RandomFourier.fit(X, RBF(3.0), 24, 0, View.X, paired=True)
    return fourier, KernelColumns(RBF(3.0), np.array(Y[:16]))


def make_rule(maps, *, n_blocks=1, backend=None, engine=None, keep=False, rate=1.0, **changes):
    backend = backend or numpy_backend()
    features = minibatch_features(maps, backend, keep)
    blocks = tuple(one.slices(one.rank // n_blocks) for one in maps)
    steps = (DecayingStepSize(rate, np.inf),) * 2
    given = {"step_sizes": steps, "ridge": (0.0, 0.0), "n_components": L} | changes
    return DSGDUpdate(features, blocks, backend=backend, engine=engine or Serial(), **given)


def start(maps, rows):
    """Random weights that meet the constraint on these rows."""
    weights = random_weights(maps, L)
    scores = [one.transform(part) @ W for one, part, W in zip(maps, rows, weights, strict=True)]
    return aligned(tuple(weights), tuple(scores), numpy_backend())


@pytest.mark.parametrize(
    ("n_blocks", "keep", "ridge"),
    [(1, True, (0.0, 0.0)), (4, False, (0.2, 0.1)), (4, True, (0.2, 0.1))],
)
def test_steps_are_the_formulas(
    n_blocks, keep, ridge, engine, backend, maps, minibatches, monkeypatch
):
    monkeypatch.setattr(noi, "TILE_COLUMNS", 5)
    monkeypatch.setattr(noi, "TILE_ROWS", 16)
    U, V = start(maps, minibatches[0])
    parts = {"backend": backend, "engine": engine, "keep": keep, "ridge": ridge}
    sizes = (DecayingStepSize(0.3, 6.0),) * 2
    rule = make_rule(maps, n_blocks=n_blocks, step_sizes=sizes, **parts)
    begun = initial_state(U.copy(), V.copy(), backend)
    states, results = take_steps(rule, begun, minibatches)
    assert not any(result.rolled_back for result in results)
    features = [(maps[0].transform(x), maps[1].transform(y)) for x, y in minibatches]
    rx, ry = ridge
    wanted = dsgd(features, U, V, eta=0.3, t0=6.0, n_blocks=n_blocks, rx=rx, ry=ry)
    found = states[-1]
    for state, before, want in zip((found.x, found.y), (U, V), wanted, strict=True):
        got = backend.to_numpy(state.U)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * np.abs(want).max())
        # The weights moved: this does not compare two runs that stand still.
        assert np.abs(want - before).max() > 1e-4 * np.abs(want).max()
    assert (found.steps, found.samples) == (8, 8 * BATCH)
    np.testing.assert_array_equal(backend.to_numpy(begun.x.U), U)  # a state does not change


def test_scores_that_are_nan_roll_the_step_back(maps, minibatches):
    rule = make_rule(maps, rate=0.1)
    (*_, weights), _ = take_steps(
        rule, initial_state(*start(maps, minibatches[0])), minibatches[:3]
    )
    spoiled = replace(weights, y=replace(weights.y, U=weights.y.U * np.nan))
    after, result = rule.step(spoiled, *minibatches[3])
    assert result.rolled_back
    assert np.isnan(result.correlation)
    np.testing.assert_array_equal(after.y.U, weights.last_good.V)
    with pytest.raises(InputError, match=r"^the features of the first minibatch are not finite or"):
        rule.step(replace(spoiled, last_good=None), *minibatches[3])


def test_the_start_meets_the_constraint_and_its_multipliers_are_positive(maps, minibatches):
    x, y = minibatches[0]
    U, V = start(maps, (x, y))
    P, Q = maps[0].transform(x) @ U, maps[1].transform(y) @ V
    S = np.cov(P.T, bias=True) + np.cov(Q.T, bias=True)
    np.testing.assert_allclose(S, np.eye(L), atol=1e-10)
    coupled, C = couple_scores((P, Q))
    np.testing.assert_allclose(C, np.diag(coupled.correlations), atol=1e-10)
    np.testing.assert_allclose(coupled.loss, L - coupled.correlations.sum())


def test_weights_that_outgrow_the_constraint_do_not_become_the_last_good_ones(maps, minibatches):
    rule = make_rule(maps, rate=1e-3)
    begun = initial_state(*start(maps, minibatches[0]))
    (_, weights), _ = take_steps(rule, begun, minibatches[:2])
    x, y = (replace(view, U=3 * view.U) for view in (begun.x, begun.y))
    grown, result = rule.step(replace(weights, x=x, y=y), *minibatches[0])
    assert not result.rolled_back  # the views agree as before
    assert grown.last_good is weights.last_good
    same, _ = rule.step(replace(weights, x=begun.x, y=begun.y), *minibatches[0])
    assert same.last_good is not weights.last_good
