"""How long KNOI trains, what it keeps and what it says on the way."""

import io
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from knoi.callbacks.history import COLUMNS
from knoi.estimators import training
from tests.estimators.knoi_models import (
    every_solver,
    small,
    views,
)


class TestHowLong:
    @pytest.fixture
    def data(self):
        return views(1500)

    @every_solver
    @pytest.mark.parametrize("epochs", [1, 3])
    def test_epochs_are_passes_over_the_training_rows(self, data, solver, epochs):
        model = small(solver, epochs=epochs, tol=None).fit(*data)
        per_epoch = math.ceil(1350 / 60)
        assert model.n_samples_seen_ == epochs * per_epoch * 60
        assert model.history_["epoch"][-1] == epochs
        assert model.history_["step"][-1] == epochs * per_epoch
        assert model.stopped_ == "epochs"

    def test_max_time_stops_after_the_step_in_progress(self, data):
        model = small(max_time=1e-9).fit(*data)
        assert model.stopped_ == "out of time"
        assert model.n_samples_seen_ == 60
        assert model.history_["step"] == [1]
        assert np.isfinite(model.transform(data[0])).all()

    def test_a_run_that_converges_stops_early(self, data):
        model = small(tol=0.05, epochs=100).fit(*data)
        assert model.stopped_ == "converged"
        assert model.n_samples_seen_ < 100 * 1380
        assert small(tol=None, epochs=30).fit(*data).stopped_ == "epochs"

    def test_nothing_held_out_never_stops_early(self, data):
        model = small(tol=0.9, epochs=30, held_out=0).fit(*data)
        assert model.stopped_ == "epochs"
        assert np.isnan(model.history_["held_out"]).all()

    def test_fewer_than_a_thousand_rows_are_all_trained_on(self):
        model = small(epochs=2).fit(*views(960))
        assert model.n_samples_seen_ == 2 * 960
        assert np.isnan(model.history_["held_out"]).all()

    def test_the_weights_that_did_best_on_rows_held_out_are_kept(self, data, monkeypatch):
        # Step 75 is made to look best, though the run goes on to the end.
        judge = training.Training.held_out_correlation

        def favourite(self, weights):
            return 10.0 if weights.steps == 75 else judge(self, weights)

        monkeypatch.setattr(training.Training, "held_out_correlation", favourite)
        # 150 rows held out: a record every 25 steps.
        kept = small(epochs=6, tol=None).fit(*data)
        assert kept.history_["step"] == [25, 50, 75, 100, 125, 138]
        assert kept.history_["held_out"][2] == 10.0
        assert kept.n_samples_seen_ == 138 * 60
        monkeypatch.setattr(training.Training, "held_out_correlation", judge)
        last = small(epochs=6, tol=None).fit(*data)
        assert not np.array_equal(kept.x_weights_, last.x_weights_)

        class EndAt:
            def __init__(self, seconds, now=None):
                pass

            def __call__(self, run, outcome):
                return run if run.weights.steps < 75 else replace(run, stopped="out of time")

        monkeypatch.setattr("knoi.estimators.training.TimeLimit", EndAt)
        monkeypatch.setattr(training.Training, "held_out_correlation", favourite)
        ended = small(epochs=6, tol=None, max_time=1).fit(*data)
        assert ended.history_["step"] == [25, 50, 75]
        np.testing.assert_array_equal(kept.x_weights_, ended.x_weights_)

    def test_history_columns_are_of_one_length_and_in_order(self, data):
        history = small(epochs=6, tol=None).fit(*data).history_
        assert tuple(history) == COLUMNS
        assert len({len(column) for column in history.values()}) == 1
        assert history["samples"] == [60 * step for step in history["step"]]
        assert np.all(np.diff(history["seconds"]) >= 0)
        assert np.isfinite(history["held_out"]).all()
        assert not any(history["rolled_back"])


class TestProgress:
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    @pytest.mark.parametrize(
        ("verbose", "terminal", "speaks"),
        [
            (None, False, False),
            (None, True, True),
            (True, False, True),
            (False, True, False),
        ],
    )
    def test_pipes_are_left_silent_unless_told(self, monkeypatch, verbose, terminal, speaks):
        stream = self.Terminal() if terminal else io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        small(epochs=1, verbose=verbose).fit(*views(300))
        assert bool(stream.getvalue()) == speaks
        if speaks:
            assert stream.getvalue().endswith("\n")
            assert "300 samples in 0:00" in stream.getvalue()

    def test_an_error_gets_a_line_of_its_own(self, monkeypatch):
        stream = self.Terminal()
        monkeypatch.setattr(sys, "stderr", stream)

        def fail(self, weights):
            raise ValueError("no more")

        monkeypatch.setattr(training.Training, "held_out_correlation", fail)
        with pytest.raises(ValueError, match=r"^no more$"):
            small(epochs=3, batch_size=300).fit(*views(1500))
        assert stream.getvalue().endswith("\n")

    def test_partial_fit_speaks_only_if_told(self, monkeypatch):
        for verbose, speaks in ((None, False), (True, True)):
            stream = self.Terminal()
            monkeypatch.setattr(sys, "stderr", stream)
            small(verbose=verbose).partial_fit(*views(150))
            assert bool(stream.getvalue()) == speaks


class TestManyColumns:
    @every_solver
    def test_more_columns_than_rows(self, solver):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((40, 80)), rng.standard_normal((40, 60))
        model = small(solver, batch_size=None, epochs=20).fit(X, Y)
        assert np.all((model.correlations_ >= 0) & (model.correlations_ <= 1))
        assert all(np.isfinite(Z).all() for Z in model.transform(X, Y))
