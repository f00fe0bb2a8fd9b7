"""KNOI: length of training, the weights it keeps, progress, and the solutions it reaches."""

import io
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from knoi import KNOI, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.arrays.backend import numpy_backend
from knoi.callbacks.history import COLUMNS
from knoi.data.pairs import PairSource
from knoi.data.source import RowSource
from knoi.datasets import make_two_views
from knoi.engine import Serial
from knoi.estimators import training
from knoi.estimators.setup import Setup
from knoi.exceptions import InputError
from tests.estimators.models import (
    AS_PUBLISHED,
    assert_same_model,
    every_solver,
    related_views,
    reloaded,
    small_knoi,
)


class TestLengthOfTraining:
    @pytest.fixture
    def data(self):
        return related_views(1500)

    @every_solver
    def test_epochs_are_passes_over_the_training_rows(self, data, solver):
        model = small_knoi(solver, epochs=3, tol=None).fit(*data)
        history, per_epoch = model.history_, math.ceil(1350 / 60)
        assert model.n_samples_seen_ == 3 * per_epoch * 60
        assert history["epoch"][-1] == 3
        assert history["step"][-1] == 3 * per_epoch
        assert model.stopped_ == "epochs"
        assert tuple(history) == COLUMNS
        assert len({len(column) for column in history.values()}) == 1
        assert history["samples"] == [60 * step for step in history["step"]]
        assert np.all(np.diff(history["seconds"]) >= 0)
        assert np.isfinite(history["held_out"]).all()
        assert not any(history["rolled_back"])

    def test_max_time_and_tol_stop_a_run_early(self, data):
        model = small_knoi(max_time=1e-9).fit(*data)
        assert model.stopped_ == "out of time"
        assert (model.n_samples_seen_, model.history_["step"]) == (60, [1])
        assert np.isfinite(model.transform(data[0])).all()
        model = small_knoi(tol=0.05, epochs=100).fit(*data)
        assert model.stopped_ == "converged"
        assert model.n_samples_seen_ < 100 * 1380
        assert small_knoi(tol=None, epochs=30).fit(*data).stopped_ == "epochs"

    def test_without_held_out_rows_a_run_never_stops_early(self, data):
        model = small_knoi(tol=0.9, epochs=30, held_out=0).fit(*data)
        assert model.stopped_ == "epochs"
        assert np.isnan(model.history_["held_out"]).all()
        few = small_knoi(epochs=2).fit(*related_views(960))  # fewer than 1000 rows
        assert few.n_samples_seen_ == 2 * 960
        assert np.isnan(few.history_["held_out"]).all()

    def test_the_weights_that_did_best_on_held_out_rows_are_kept(self, data, monkeypatch):
        # Step 75 is made to look best, though the run continues to the end.
        evaluate = training.Training.held_out_correlation

        def favour_step_75(self, optimizer):
            return 10.0 if optimizer.steps == 75 else evaluate(self, optimizer)

        def stop_at_75(state, result):
            return replace(state, stopped="here") if state.optimizer.steps == 75 else state

        params = {"epochs": 6, "tol": None}
        last = small_knoi(**params).fit(*data)
        monkeypatch.setattr(training.Training, "held_out_correlation", favour_step_75)
        kept = small_knoi(**params).fit(*data)
        # 150 rows held out: a record every 25 steps.
        assert kept.history_["step"] == [25, 50, 75, 100, 125, 138]
        assert kept.history_["held_out"][2] == 10.0
        assert kept.n_samples_seen_ == 138 * 60
        assert not np.array_equal(kept.x_weights_, last.x_weights_)
        stopped = small_knoi(**params, callbacks=[stop_at_75]).fit(*data)
        np.testing.assert_array_equal(kept.x_weights_, stopped.x_weights_)


class TestProgress:
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def test_it_is_shown_on_terminals_or_on_request(self, monkeypatch):
        def shown(verbose, stream, method):
            monkeypatch.setattr(sys, "stderr", stream)
            getattr(small_knoi(epochs=1, verbose=verbose), method)(*related_views(300))
            return stream.getvalue()

        for text in (shown(None, self.Terminal(), "fit"), shown(True, io.StringIO(), "fit")):
            assert "300 samples in 0:00" in text
            assert text.endswith("\n")
        assert shown(None, io.StringIO(), "fit") == shown(False, self.Terminal(), "fit") == ""
        assert shown(None, self.Terminal(), "partial_fit") == ""
        assert shown(True, self.Terminal(), "partial_fit") != ""

    def test_an_error_removes_the_bar_and_shows_the_cursor_again(self, monkeypatch):
        stream = self.Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")

        def fail(self, optimizer):
            raise ValueError("no more")

        monkeypatch.setattr(training.Training, "held_out_correlation", fail)
        with pytest.raises(ValueError, match=r"^no more$"):
            small_knoi(epochs=3, batch_size=300).fit(*related_views(1500))
        hide, show, erase_line = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
        shown = stream.getvalue()
        assert shown.count(hide) == shown.count(show) == 1
        assert shown.rindex(show) > shown.rindex("samples")
        assert shown.endswith(erase_line)


def test_the_fresh_sample_is_independent_of_the_ordinary_samples_of_all_seeds():
    """Rows to start from must not be those that maps are fitted to, for this or another seed."""
    rows = np.arange(10_000.0)[:, None]
    with PairSource.open(rows, rows) as pairs:

        def setup(seed):
            model = KNOI(1, rank=20, random_state=seed, n_jobs=1)
            plan = model._plan(pairs, numpy_backend(), Serial(), streaming=False)
            maps = model._fit_maps(plan, pairs)
            return Setup.build(plan, maps, 1, numpy_backend(), Serial())

        fresh = setup(0).fresh_sample(pairs, 200)[0].ravel()
        np.testing.assert_array_equal(setup(0).fresh_sample(pairs, 200)[0].ravel(), fresh)
        for seed in range(20):
            ordinary = pairs.sample(200, seed)[0].ravel()
            # By chance about 4 of 200 rows are the same.
            assert len(np.intersect1d(fresh, ordinary)) < 20
        np.testing.assert_array_equal(
            setup(3).sample(pairs, 200)[0].ravel(), pairs.sample(200, 3)[0].ravel()
        )


N = 1200


@pytest.fixture(scope="module")
def views():
    made = make_two_views(N, (6, 5), correlations=(0.9, 0.7, 0.4), random_state=3)
    return made.X, made.Y


class TestExactLimits:
    def assert_same_scores(self, model, exact, X, Y, tolerance):
        """The scores agree row by row, up to their signs."""
        np.testing.assert_allclose(model.correlations_, exact.correlations_, atol=tolerance)
        for ours, theirs in zip(model.transform(X, Y), exact.transform(X, Y), strict=True):
            cosines = np.sum(ours * theirs, axis=0)
            cosines /= np.linalg.norm(ours, axis=0) * np.linalg.norm(theirs, axis=0)
            np.testing.assert_allclose(np.abs(cosines), 1, atol=tolerance)

    @pytest.mark.parametrize(("rho", "batch_size"), [(0.0, N), (0.9, 300)], ids=["AppGrad", "NOI"])
    def test_published_steps_on_linear_features_reach_linear_cca(self, views, rho, batch_size):
        X, Y = ((view - view.mean(axis=0)) / view.std(axis=0) for view in views)
        steps = {"learning_rate": 0.05, "momentum": 0.5, "weight_decay": 0.0, "average": True}
        steps |= {"precondition": None, "time_constant": rho, "batch_size": batch_size}
        model = KNOI(3, kernel="linear", epochs=800, held_out=0, random_state=0, n_jobs=1, **steps)
        # Minibatches leave some noise; all rows at once leave none.
        tolerance = 1e-3 if batch_size == N else 2e-2
        self.assert_same_scores(model.fit(X, Y), LinearCCA(3, reg=0).fit(X, Y), X, Y, tolerance)

    def test_preconditioned_steps_on_linear_features_reach_linear_cca(self, views):
        X, Y = views
        X = X * 10.0 ** np.arange(-2, 4)  # columns of six orders of magnitude
        model = KNOI(
            3, kernel="linear", reg=0.0, batch_size=N, epochs=200, held_out=0, random_state=0
        )
        self.assert_same_scores(model.fit(X, Y), LinearCCA(3, reg=0).fit(X, Y), X, Y, 1e-3)

    def test_with_all_rows_as_landmarks_it_reaches_kernel_cca(self, views):
        X, Y = views[0][:300], views[1][:300]
        model = KNOI(2, rank=300, reg=1e-2, batch_size=300, epochs=300, held_out=0, random_state=0)
        self.assert_same_scores(model.fit(X, Y), KernelCCA(2, reg=1e-2).fit(X, Y), X, Y, 1e-2)


FEW_FEATURES = {"n_components": 2, "rank": 50, "random_state": 0, **AS_PUBLISHED}


class TestClosedForm:
    """Where the closed form of the same features is the faster way, it is solved instead."""

    @pytest.mark.parametrize(
        ("own", "closed_form"),
        [
            ({}, NystromCCA(**FEW_FEATURES)),
            ({"approximation": "fourier"}, FourierCCA(**FEW_FEATURES)),
            ({"kernel": "linear"}, LinearCCA(2, scale=None)),
            ({"landmarks": "kmeans"}, NystromCCA(landmarks="kmeans", **FEW_FEATURES)),
        ],
        ids=["nystrom", "fourier", "linear", "landmarks"],
    )
    def test_few_rows_get_the_very_closed_form(self, own, closed_form, tmp_path):
        X, Y = related_views(600)
        model = KNOI(**FEW_FEATURES, **own).fit(X, Y)
        assert model.stopped_ == "closed form"
        assert_same_model(model, closed_form.fit(X, Y), X, Y, 1e-12)
        assert model.reg_ == closed_form.reg_
        assert model.history_ == {name: [] for name in COLUMNS}
        assert_same_model(model, reloaded(model, tmp_path), X, Y, 1e-12)
        model.partial_fit(X, Y)  # starts a stream, which is trained
        assert model.history_["step"]

    @pytest.mark.parametrize(
        "own",
        [
            {"batch_size": 100},
            {"epochs": 2},
            {"learning_rate": 0.5},
            {"precondition": None, "approximation": "fourier"},
            {"callbacks": [lambda state, result: state]},
            {"max_time": 1e-6},
            {"solver": "stochastic"},
        ],
        ids=lambda own: next(iter(own)),
    )
    def test_what_only_training_has_is_trained(self, own):
        model = KNOI(**FEW_FEATURES, **own).fit(*related_views(600))
        assert model.stopped_ != "closed form"
        assert model.history_["step"]

    def test_many_rows_and_features_are_trained(self):
        """The cost of both is estimated from the sizes alone."""
        plans = {
            (n, rank): KNOI(2, rank=rank)._closed_form(
                *planned(KNOI(2, rank=rank), n), numpy_backend()
            )
            for n in (1000, 200_000)
            for rank in (500, 4000)
        }
        assert {key for key, found in plans.items() if found is None} >= {(200_000, 4000)}
        assert isinstance(plans[1000, 500], NystromCCA)

    def test_refusals(self):
        data = related_views(600)
        with pytest.raises(InputError, match="solver='exact' with batch_size=100"):
            KNOI(**FEW_FEATURES, solver="exact", batch_size=100).fit(*data)
        with pytest.raises(InputError, match="both views need the same kind"):
            KNOI(**FEW_FEATURES, solver="exact", kernel=("rbf", "linear")).fit(*data)
        with pytest.raises(InputError, match="solver='closed'"):
            KNOI(**FEW_FEATURES, solver="closed").fit(*data)


def planned(model, n_rows):
    """The plan for so many rows, and pairs of this size that are never read."""

    def unread(start, stop):
        raise AssertionError("the decision needs no data")

    views = [
        RowSource(name, shape=(n_rows, 20), dtype=np.dtype(np.float32), fetch=unread)
        for name in "XY"
    ]
    pairs = PairSource.open(*views)
    return model._plan(pairs, numpy_backend("float32"), Serial(), streaming=False), pairs
