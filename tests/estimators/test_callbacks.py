"""`callbacks=` of the stochastic estimators: what they are given and what they may do."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from knoi import KNOI, DoublyStochasticCCA
from knoi.callbacks import FitContext, StepResult, TrainingState
from knoi.exceptions import InputTypeError
from knoi.solvers.loop import Snapshot
from tests.estimators.models import (
    assert_equal_models,
    made,
    related_views,
    reloaded,
)

stochastic = pytest.mark.parametrize("estimator", [KNOI, DoublyStochasticCCA])
STEPS = 40  # two epochs of 1200 rows in minibatches of 60


def small(estimator, **params):
    given = {"n_components": 2, "rank": 30, "batch_size": 60, "epochs": 2, "held_out": 0}
    return made(estimator, **given | {"random_state": 0, "n_jobs": 1} | params)


@pytest.fixture
def data():
    return related_views(1200)


def count_steps(state, result):
    """A callback that keeps a number in the state."""
    counted = state.extra.get("count_steps", 0) + 1
    return replace(state, extra={**state.extra, "count_steps": counted})


def stop_at(step, reason):
    def stop(state, result):
        return replace(state, stopped=reason) if state.optimizer.steps == step else state

    return stop


@dataclass
class Recorder:
    """Remembers everything it is called with."""

    contexts: list = field(default_factory=list)
    calls: list = field(default_factory=list)

    def on_fit_start(self, context):
        self.contexts.append(context)

    def __call__(self, state, result):
        self.calls.append((state, result))
        return state


@stochastic
def test_they_are_called_in_order_after_each_step(estimator, data):
    first, second = Recorder(), Recorder()
    model = small(estimator, callbacks=[first, count_steps, second]).fit(*data)
    for recorder, seen in ((first, range(STEPS)), (second, range(1, STEPS + 1))):
        states, results = zip(*recorder.calls, strict=True)
        assert all(isinstance(state, TrainingState) for state in states)
        assert all(isinstance(result, StepResult) for result in results)
        assert [state.optimizer.steps for state in states] == list(range(1, STEPS + 1))
        assert [state.extra.get("count_steps", 0) for state in states] == list(seen)
        assert np.isfinite([(one.loss, one.correlation) for one in results]).all()
    assert_equal_models(model, small(estimator).fit(*data))


@stochastic
def test_a_callback_may_stop_the_run_and_the_step_is_recorded_once(estimator, data):
    for step, records in ((7, [7]), (20, [20]), (23, [20, 23])):
        # 120 rows are held out: a record every 20 steps.
        model = small(estimator, held_out=0.1, callbacks=[stop_at(step, "enough")]).fit(*data)
        assert model.stopped_ == "enough"
        assert model.n_samples_seen_ == step * 60
        assert model.history_["step"] == records
        assert np.isfinite(model.history_["held_out"]).all()
        assert np.isfinite(model.score(*data))


def test_a_callback_that_returns_no_state_is_an_error(data):
    def forgetful(state, result):
        replace(state, stopped="never")

    with pytest.raises(InputTypeError, match="returned None: wanted the training state"):
        small(KNOI, callbacks=[forgetful]).fit(*data)


@stochastic
def test_values_in_the_state_survive_checkpoint_and_resume(estimator, data, tmp_path):
    recorder = Recorder()
    first = small(estimator, checkpoint=tmp_path, callbacks=[count_steps, stop_at(7, "pause")])
    assert first.fit(*data).stopped_ == "pause"
    resumed = small(estimator, checkpoint=tmp_path, callbacks=[count_steps, recorder])
    resumed.fit(*data, resume=True)
    assert [state.extra["count_steps"] for state, _ in recorder.calls] == list(range(8, STEPS + 1))
    assert resumed.stopped_ == "epochs"
    np.testing.assert_array_equal(resumed.x_weights_, small(estimator).fit(*data).x_weights_)


@stochastic
def test_the_context_gives_the_model_of_any_state(estimator, data):
    class Scores(Recorder):
        def __call__(self, state, result):
            if state.optimizer.steps == 1:
                self.best = Snapshot(*state.optimizer.weights, held_out=9.0, samples=60)
                self.calls.append(self.contexts[0].model_at(state))
            if state.optimizer.steps == STEPS:  # the current weights, not the best so far
                self.calls.append(self.contexts[0].model_at(replace(state, best=self.best)))
            return state

    scores = Scores()
    model = small(estimator, callbacks=[scores]).fit(*data)
    (context,) = scores.contexts
    assert isinstance(context, FitContext)
    assert (context.batch_size, context.n_samples) == (60, STEPS * 60)
    early, last = scores.calls
    assert type(early) is estimator
    assert np.isfinite(early.score(*data))
    assert early.n_samples_seen_ == 60
    assert not np.array_equal(early.x_weights_, model.x_weights_)
    np.testing.assert_array_equal(last.x_weights_, model.x_weights_)
    # Building models on the way changes nothing in training.
    assert_equal_models(model, small(estimator).fit(*data))


@stochastic
def test_they_are_cloned_but_not_saved(estimator, data, tmp_path):
    model = small(estimator, callbacks=[stop_at(3, "short")])
    assert clone(model).get_params()["callbacks"] == model.callbacks
    again = reloaded(model.fit(*data), tmp_path)
    assert again.callbacks == ()
    np.testing.assert_array_equal(again.transform(data[0]), model.transform(data[0]))
    search = GridSearchCV(model, {"rank": [20, 30]}, cv=2).fit(*data)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.stopped_ == "short"


def test_partial_fit_calls_none(data):
    recorder = Recorder()
    small(KNOI, callbacks=[recorder]).partial_fit(*data)
    assert recorder == Recorder()
