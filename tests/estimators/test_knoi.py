"""KNOI as its users meet it: streams, limits, history, files, and what it refuses."""

import io
import math
import re
import sys
import weakref
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import knoi
from knoi import KNOI
from knoi.callbacks.checkpoint import FILE_NAME
from knoi.callbacks.history import COLUMNS
from knoi.estimators import training
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
    NonFiniteError,
)
from knoi.features import Identity, KernelColumns, RandomFourier
from knoi.features.approximations import APPROXIMATIONS
from knoi.kernels import RBF, Chi2
from knoi.solvers.rule import Rule

NAMES = ", ".join(map(repr, ("auto", "nystrom", *APPROXIMATIONS)))
SOLVERS = {
    "columns": {},
    "low_rank": {"approximation": "fourier"},
    "published": {"approximation": "fourier", "precondition": None},
}
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def views(n, *, seed=0, dtype=np.float64):
    """Two views that share two hidden numbers a row, read-only."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 2))
    X = np.hstack([shared, rng.standard_normal((n, 2))]) + 0.3 * rng.standard_normal((n, 4))
    Y = np.hstack([np.tanh(shared), rng.standard_normal((n, 1))])
    X, Y = X.astype(dtype), Y.astype(dtype)
    for view in (X, Y):
        view.setflags(write=False)
    return X, Y


def small(solver="columns", **params):
    """A KNOI that fits a thousand rows in a moment."""
    given = {"rank": 30, "batch_size": 60, "extra_directions": 3, "random_state": 0, "n_jobs": 1}
    return KNOI(2, **(SOLVERS[solver] | given | params))


def with_value(view, row, column, value):
    changed = view.copy()
    changed[row, column] = value
    return changed


def refused(error, text):
    """`pytest.raises` with the whole message."""
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def assert_equal_models(one, other):
    """The same model to the last bit."""
    for name in ("correlations_", "x_weights_", "y_weights_", "x_mean_", "y_mean_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.n_samples_seen_ == other.n_samples_seen_
    without_clock = [{**model.history_, "seconds": None} for model in (one, other)]
    np.testing.assert_equal(*without_clock)


def streamed(model, X, Y, edges, **options):
    for start, stop in pairwise(edges):
        model.partial_fit(X[start:stop], Y[start:stop], **options)
    return model


class TestStreams:
    @pytest.fixture
    def data(self):
        return views(700)

    @every_solver
    @settings(max_examples=12)
    @given(cuts=st.lists(st.integers(150, 700), max_size=6))
    def test_any_cut_into_pieces_gives_the_same_model(self, solver, cuts):
        X, Y = views(700)
        whole = streamed(small(solver), X, Y, [0, 150, 700])
        edges = sorted({0, 150, 700, *cuts})
        assert_equal_models(streamed(small(solver), X, Y, edges), whole)

    def test_single_rows_are_pieces_too(self, data):
        edges = [0, 150, *range(151, 280), 700]
        whole = streamed(small(), *data, [0, 150, 700])
        assert_equal_models(streamed(small(), *data, edges), whole)

    def test_rows_that_do_not_fill_a_minibatch_wait(self, data):
        X, Y = data
        model = small().partial_fit(X[:150], Y[:150])
        assert model.n_samples_seen_ == 120
        weights = model.x_weights_
        model.partial_fit(X[150:179], Y[150:179])  # 59 wait
        assert model.n_samples_seen_ == 120
        model.partial_fit(X[179:180], Y[179:180])
        assert model.n_samples_seen_ == 180
        assert not np.array_equal(model.x_weights_, weights)

    @pytest.mark.parametrize("solve", [True, False])
    def test_components_are_aligned_once_or_after_every_piece(self, data, solve):
        model = streamed(small(), *data, [0, 150, 300, 400], solve=solve)
        assert hasattr(model, "correlations_") == solve
        if not solve:
            with pytest.raises(NotFittedError):
                model.transform(data[0])
        model.partial_fit(data[0][400:], data[1][400:])
        assert_equal_models(model, streamed(small(), *data, [0, 150, 700]))

    def test_a_stream_learns(self):
        X, Y = views(6000)
        model = streamed(small(), X, Y, [0, 500, 3000, 6000])
        assert model.score(*views(2000, seed=1)) > 0.9 * small().fit(X, Y).score(
            *views(2000, seed=1)
        )

    @pytest.mark.parametrize(
        ("spoil", "error", "text"),
        [
            (lambda X, Y: (with_value(X, 399, 1, np.nan), Y), NonFiniteError, r"^X has NaN at row"),
            (lambda X, Y: (X, with_value(Y, 390, 0, np.inf)), NonFiniteError, r"^Y has inf at row"),
            (lambda X, Y: (X[:, :3], Y), InputError, r"^X has 3 features, but KNOI is expecting 4"),
            (lambda X, Y: (X, Y[:, :2]), InputError, r"^Y has 2 features, but KNOI is expecting 3"),
            (lambda X, Y: (X, Y[:-1]), InputError, r"^X has 400 rows but Y has 399: the views"),
        ],
        ids=["nan", "inf", "columns of X", "columns of Y", "lengths"],
    )
    @every_solver
    def test_a_bad_piece_leaves_no_trace(self, data, solver, spoil, error, text):
        X, Y = data
        model = small(solver).partial_fit(X[:150], Y[:150])
        before = dict(vars(model))
        with pytest.raises(error, match=text):
            model.partial_fit(*spoil(X[150:550], Y[150:550]))
        assert vars(model) == before
        model.partial_fit(X[150:], Y[150:])
        assert_equal_models(model, streamed(small(solver), X, Y, [0, 150, 700]))

    def test_a_bad_first_piece_leaves_nothing_fitted(self, data):
        X, Y = data
        model = small()
        with pytest.raises(NonFiniteError):
            model.partial_fit(with_value(X, 699, 0, np.nan), Y)
        assert vars(model) == vars(small())

    def test_a_later_piece_outside_the_domain_of_the_kernel_is_named_by_row(self, data):
        X, Y = (np.abs(view) for view in data)
        model = small(kernel=Chi2(1.0)).partial_fit(X[:150], Y[:150])
        with pytest.raises(InputError, match=r"^view Y: row 490, column 2 has -1, but the chi2"):
            model.partial_fit(X[150:], with_value(Y[150:], 490, 2, -1.0))

    def test_the_first_piece_is_let_go(self):
        X, Y = (view.copy() for view in views(150))
        model = small().partial_fit(X, Y)
        alive = weakref.ref(X)
        del X, Y
        assert alive() is None
        assert model.n_samples_seen_ == 120

    def test_what_says_how_long_to_train_plays_no_part(self, data, tmp_path):
        limits = {"epochs": 1, "max_time": 1e-9, "tol": 0.5, "checkpoint": tmp_path / "run"}
        limited = streamed(small(**limits), *data, [0, 150, 400, 700])
        assert limited.n_samples_seen_ == 660
        assert limited.stopped_ is None
        assert not (tmp_path / "run").exists()
        assert_equal_models(limited, streamed(small(), *data, [0, 150, 700]))

    def test_fit_starts_anew(self, data):
        X, Y = data
        model = streamed(small(), X, Y, [0, 150, 700]).fit(X, Y)
        assert_equal_models(model, small().fit(X, Y))
        model.partial_fit(X[:150], Y[:150])
        assert_equal_models(model, small().partial_fit(X[:150], Y[:150]))

    def test_a_failed_fit_keeps_the_stream(self, data):
        X, Y = data
        model = small().partial_fit(X[:150], Y[:150])
        with pytest.raises(NonFiniteError):
            model.fit(with_value(X, 3, 0, np.nan), Y)
        model.partial_fit(X[150:], Y[150:])
        assert_equal_models(model, streamed(small(), X, Y, [0, 150, 700]))

    def test_a_first_piece_shorter_than_a_minibatch(self, data):
        X, Y = data
        text = (
            "batch_size=60 but there are 50 rows to train on. Set batch_size to at most 50, or "
            "leave it None."
        )
        with refused(InputError, text):
            small().partial_fit(X[:50], Y[:50])
        model = small(batch_size=None).partial_fit(X[:50], Y[:50])
        assert model.n_samples_seen_ == 50


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

        monkeypatch.setattr("knoi.estimators.minibatch.TimeLimit", EndAt)
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
        assert not any(history["undone"])


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


class TestSaving:
    def same_again(self, model, path, X, Y):
        model.save(path)
        again = knoi.load(path)
        assert type(again) is KNOI
        assert_equal_models(again, model)
        assert again.history_ == model.history_
        assert again.stopped_ == model.stopped_
        for Z, W in zip(again.transform(X, Y), model.transform(X, Y), strict=True):
            np.testing.assert_array_equal(Z, W)
        return again

    @every_solver
    def test_history_comes_back(self, tmp_path, solver):
        X, Y = views(1200)
        model = small(solver, epochs=3, checkpoint=tmp_path / "run").fit(X, Y)
        again = self.same_again(model, tmp_path / "m.knoi", X, Y)
        kept = {"checkpoint": str(tmp_path / "run")}
        assert again.get_params() == model.get_params() | kept

    def test_a_stream_comes_back_as_a_model(self, tmp_path):
        X, Y = views(400)
        model = small().partial_fit(X, Y)
        model.save(tmp_path / "m.knoi")
        again = KNOI.load(tmp_path / "m.knoi")
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        assert again.stopped_ is None

    @pytest.mark.parametrize("which", ["one for both", "a pair", "one and a name"])
    def test_feature_maps_that_were_given_come_back(self, tmp_path, which):
        X, _ = views(400)
        Y = X[:, ::-1] + 0.1
        fourier = RandomFourier.fit(X, RBF(2.0), 30, 5, 0)
        columns = KernelColumns(RBF(3.0), Y[:20].copy())
        given = {"one for both": fourier, "a pair": (fourier, columns)}
        approximation = given.get(which, ("nystrom", columns))
        model = small(approximation=approximation, epochs=3).fit(X, Y)
        again = self.same_again(model, tmp_path / "m.knoi", X, Y)
        maps = again.approximation if which != "one for both" else (again.approximation,) * 2
        projection = model.projection_.x, model.projection_.y
        for found, wanted in zip(maps, projection, strict=True):
            if found == "nystrom":
                continue
            np.testing.assert_array_equal(found.transform(X), wanted.features.transform(X))
        assert_equal_models(again.fit(X, Y), model)


class TestCheckpoints:
    def test_a_run_that_has_ended_is_not_trained_again(self, tmp_path):
        X, Y = views(1200)
        model = small(epochs=3, checkpoint=tmp_path).fit(X, Y)
        written = (tmp_path / FILE_NAME).read_bytes()
        again = small(epochs=3, checkpoint=tmp_path).fit(X, Y, resume=True)
        assert_equal_models(again, model)
        assert (tmp_path / FILE_NAME).read_bytes() == written

    @every_solver
    def test_more_epochs_go_on_from_there(self, tmp_path, solver):
        X, Y = views(600)
        # Regularisation left open would be that of the epochs the run was begun with.
        params = {"reg": 1e-4}
        straight = small(solver, epochs=5, **params).fit(X, Y)
        small(solver, epochs=2, checkpoint=tmp_path, **params).fit(X, Y)
        again = small(solver, epochs=5, checkpoint=tmp_path, **params).fit(X, Y, resume=True)
        np.testing.assert_array_equal(again.x_weights_, straight.x_weights_)

    def test_a_run_out_of_time_goes_on(self, tmp_path):
        X, Y = views(1200)
        params = {"epochs": 3, "tol": None, "checkpoint": tmp_path}
        first = small(**params, max_time=1e-9).fit(X, Y)
        assert first.stopped_ == "out of time"
        again = small(**params).fit(X, Y, resume=True)
        assert again.stopped_ == "epochs"
        straight = small(epochs=3, tol=None).fit(X, Y)
        np.testing.assert_array_equal(again.x_weights_, straight.x_weights_)

    def test_a_converged_run_goes_on_if_tol_says_so(self, tmp_path):
        X, Y = views(1500)
        params = {"epochs": 40, "checkpoint": tmp_path}
        model = small(**params, tol=0.05).fit(X, Y)
        assert model.stopped_ == "converged"
        again = small(**params, tol=0.05).fit(X, Y, resume=True)
        assert again.stopped_ == "converged"
        assert_equal_models(again, model)
        further = small(**params, tol=None).fit(X, Y, resume=True)
        assert further.stopped_ == "epochs"
        assert_equal_models(further, small(epochs=40, tol=None).fit(X, Y))

    def test_resume_without_a_checkpoint_in_the_directory_starts(self, tmp_path):
        X, Y = views(600)
        model = small(epochs=2, checkpoint=tmp_path / "new").fit(X, Y, resume=True)
        assert_equal_models(model, small(epochs=2).fit(X, Y))

    def test_a_fit_that_does_not_resume_replaces_the_checkpoint_with_its_first(self, tmp_path):
        X, Y = views(600)
        small(epochs=2, checkpoint=tmp_path).fit(X, Y)
        old = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(NonFiniteError):  # before the first step
            small(epochs=2, checkpoint=tmp_path).fit(with_value(X, 0, 0, np.nan), Y)
        assert (tmp_path / FILE_NAME).read_bytes() == old
        other = small(epochs=2, random_state=1, checkpoint=tmp_path).fit(X, Y)
        assert (tmp_path / FILE_NAME).read_bytes() != old
        assert_equal_models(other, small(epochs=2, random_state=1).fit(X, Y))

    def test_an_error_in_the_middle_costs_no_step(self, tmp_path, monkeypatch):
        X, Y = views(1500)
        params = {"epochs": 6, "tol": None}
        judge = training.Training.held_out_correlation

        def fail_at_100(self, weights):
            if weights.steps >= 100:
                raise OSError("the disk is gone")
            return judge(self, weights)

        monkeypatch.setattr(training.Training, "held_out_correlation", fail_at_100)
        model = small(**params, checkpoint=tmp_path, checkpoint_seconds=1e6)
        with pytest.raises(OSError, match=r"^the disk is gone\n") as raised:
            model.fit(X, Y)
        assert raised.value.__notes__ == [
            f"The steps until here are saved in {tmp_path}: once the cause is mended, fit with "
            "resume=True goes on from there."
        ]
        monkeypatch.setattr(training.Training, "held_out_correlation", judge)
        steps = []
        count = Rule.step
        monkeypatch.setattr(Rule, "step", lambda *args: (steps.append(1), count(*args))[1])
        model.fit(X, Y, resume=True)
        assert len(steps) == 138 - 99
        assert_equal_models(model, small(**params).fit(X, Y))

    def test_a_bad_row_late_in_a_file(self, tmp_path):
        X, Y = views(60_000, dtype=np.float32)
        np.save(tmp_path / "x.npy", X)
        np.save(tmp_path / "y.npy", Y)
        files = tmp_path / "x.npy", tmp_path / "y.npy"
        # Room for a part of the rows at a time; no step is saved before the error.
        params = {"epochs": 1, "batch_size": 300, "memory_budget": "1MB", "tol": None}
        saved = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 1e6}
        rescued = []
        for row in (41_000, 47_000, 53_000, 59_000):  # some may be rows that a sample looks at
            stored = np.lib.format.open_memmap(files[0], mode="r+")
            stored[row, 2] = np.nan
            stored.flush()
            with pytest.raises(NonFiniteError) as raised:
                small(**params, **saved).fit(*files)
            assert str(raised.value) == (
                f"X has NaN at row {row}, column 2: CCA needs complete rows. Drop the row or "
                "impute the value (e.g. sklearn.impute.SimpleImputer) before fitting."
            )
            stored[row, 2] = X[row, 2]
            stored.flush()
            rescued = getattr(raised.value, "__notes__", [])
            if rescued:
                break
        assert rescued == [
            f"The steps until here are saved in {tmp_path / 'run'}: once the cause is mended, fit "
            "with resume=True goes on from there."
        ]
        model = small(**params, **saved).fit(*files, resume=True)
        assert_equal_models(model, small(**params).fit(*files))


class TestManyColumns:
    @every_solver
    def test_more_columns_than_rows(self, solver):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((40, 80)), rng.standard_normal((40, 60))
        model = small(solver, batch_size=None, epochs=20).fit(X, Y)
        assert np.all((model.correlations_ >= 0) & (model.correlations_ <= 1))
        assert all(np.isfinite(Z).all() for Z in model.transform(X, Y))


def a_map(n_cols=4, rank=30):
    return RandomFourier.fit(np.eye(n_cols), RBF(1.0), rank, 0, 0)


PARAMETERS = [
    (
        {"batch_size": 201},
        InputError,
        "batch_size=201 but there are 200 rows to train on. Set batch_size to at most 200, or "
        "leave it None.",
    ),
    (
        {"batch_size": 2},
        InputError,
        "batch_size=2 with n_components=2: a minibatch needs more rows than components to tell "
        "their covariance. Set batch_size to at least 20, or leave it None.",
    ),
    ({"batch_size": 0}, InputError, "batch_size=0: wanted a whole number >= 1."),
    ({"batch_size": 1e3}, InputTypeError, "batch_size=1000.0: wanted a whole number >= 1."),
    (
        {"rank": 1},
        InputError,
        "rank=1 is below n_components=2: features of that rank hold no more components. Raise rank "
        "(a few thousand is usual) or lower n_components.",
    ),
    (
        {"approximation": "chance"},
        InputError,
        f"approximation='chance': wanted one of {NAMES}, or a fitted feature map.",
    ),
    (
        {"approximation": None},
        InputError,
        f"approximation=None: wanted one of {NAMES}, or a fitted feature map.",
    ),
    (
        {"approximation": ("fourier", 3)},
        InputError,
        f"approximation=3: wanted one of {NAMES}, or a fitted feature map.",
    ),
    (
        {"approximation": RandomFourier},
        InputTypeError,
        "approximation=RandomFourier is a class: wanted a fitted map, e.g. RandomFourier.fit(...), "
        f"or a name: {NAMES}.",
    ),
    (
        {"approximation": (a_map(5), "fourier")},
        InputError,
        "the feature map of X takes 5 columns but X has 4. Pass a map fitted on the columns of the "
        "data.",
    ),
    (
        {"approximation": ("fourier", Identity(3)), "n_components": 4},
        InputError,
        "the feature map of Y has rank 3, below n_components=4. Pass a map of higher rank, or "
        "lower n_components.",
    ),
    (
        {"kernel": "linear", "n_components": 4},
        InputError,
        "n_components=4 but Y has n_features=3: linear CCA has no more components than columns. "
        "Set n_components to at most 3.",
    ),
    (
        {"precondition": "full"},
        InputError,
        "precondition='full': wanted one of 'auto', 'columns', 'low_rank', None.",
    ),
    (
        {"precondition": False},
        InputError,
        "precondition=False: wanted one of 'auto', 'columns', 'low_rank', None.",
    ),
    (
        {"precondition": "columns", "approximation": "fourier"},
        InputError,
        "precondition='columns' with approximation='fourier': it is for kernel columns. Set "
        "approximation='nystrom', or precondition='low_rank', which takes any features.",
    ),
    ({"momentum": 1}, InputError, "momentum=1: wanted a number from 0 to below 1."),
    ({"momentum": "0.9"}, InputTypeError, "momentum='0.9': wanted a number from 0 to below 1."),
    ({"time_constant": 1.0}, InputError, "time_constant=1.0: wanted a number from 0 to below 1."),
    ({"held_out": -0.1}, InputError, "held_out=-0.1: wanted a number from 0 to below 1."),
    ({"learning_rate": 0}, InputError, "learning_rate=0: wanted a finite number > 0."),
    ({"learning_rate": np.nan}, InputError, "learning_rate=nan: wanted a finite number > 0."),
    ({"fall": 0.0}, InputError, "fall=0.0: wanted a number > 0."),
    ({"weight_decay": -1e-7}, InputError, "weight_decay=-1e-07: wanted a finite number >= 0."),
    ({"average": 1}, InputTypeError, "average=1: wanted True or False."),
    ({"extra_directions": -1}, InputError, "extra_directions=-1: wanted a whole number >= 1."),
    ({"epochs": 0}, InputError, "epochs=0: wanted a whole number >= 1."),
    ({"max_time": 0}, InputError, "max_time=0: wanted a finite number > 0."),
    ({"tol": -1}, InputError, "tol=-1: wanted a finite number >= 0."),
    (
        {"checkpoint_seconds": 0},
        InputError,
        "checkpoint_seconds=0: wanted a finite number > 0.",
    ),
    (
        {"landmarks": "dpp", "approximation": "nystrom"},
        InputError,
        "landmarks='dpp' is not a way to choose landmarks: wanted one of 'uniform', 'kmeans', "
        "'kmeans++', 'pivoted_cholesky', 'randomly_pivoted_cholesky', 'leverage'.",
    ),
]


class TestRefusals:
    @pytest.mark.parametrize(
        ("params", "error", "text"), PARAMETERS, ids=lambda value: repr(value)[:40]
    )
    def test_parameters_are_refused_by_fit(self, params, error, text):
        model = small().set_params(**params)
        with refused(error, text):
            model.fit(*views(200))

    @pytest.mark.parametrize(
        "params",
        [{"epochs": 0}, {"max_time": -1}, {"tol": -1}, {"momentum": 1}, {"checkpoint_seconds": -1}],
        ids=str,
    )
    def test_what_needs_no_data_is_refused_before_any_work(self, params, monkeypatch):
        def work(*_):
            raise AssertionError("too late")

        monkeypatch.setattr("knoi.estimators.stochastic.fit_maps", work)
        with pytest.raises(InputError):
            small(**params).fit(*views(200))

    def test_resume_without_a_directory(self):
        text = (
            "resume=True but checkpoint=None: there is nothing to resume from. Set checkpoint to "
            "the directory of the run."
        )
        model = small()
        with refused(InputError, text):
            model.fit(*views(200), resume=True)
        assert vars(model) == vars(small())

    @pytest.mark.parametrize("n", [200, 5000])
    @every_solver
    def test_a_view_that_does_not_vary(self, solver, n):
        X, Y = views(n)
        rows = "all its rows" if n == 200 else "all 4000 sampled rows"
        text = f"view Y does not vary: {rows} are the same. Check the data of Y."
        with refused(InputError, text):
            small(solver, width=1.0).fit(X, np.full_like(Y, 3.3))

    def test_resume_is_a_yes_or_no(self):
        with refused(InputTypeError, "resume='yes': wanted True or False."):
            small().fit(*views(200), resume="yes")

    @pytest.mark.parametrize("call", ["fit", "partial_fit"])
    def test_views_of_different_length(self, call):
        X, Y = views(200)
        text = "X has 200 rows but Y has 198: the views are paired row by row. Drop the unpaired "
        with refused(InputError, text + "rows."):
            getattr(small(), call)(X, Y[2:])

    def test_too_few_rows_held_out_to_judge_by(self):
        text = (
            "held_out=0.01 of 1000 rows are 10: fewer than 50 cannot judge a fit. Raise held_out, "
            "or set it to 0."
        )
        with refused(InputError, text):
            small(held_out=0.01).fit(*views(1000))

    def test_too_few_rows_left_to_train_on(self):
        text = (
            "held_out=0.999 leaves 1 of 1000 rows to train on: CCA needs more rows than "
            "n_components=2. Lower held_out."
        )
        with refused(InputError, text):
            small(held_out=0.999, batch_size=None).fit(*views(1000))

    def test_a_budget_too_small(self):
        expected = (
            r"^KNOI with rank 30 and minibatches of 60 rows needs about [\d.]+ [KM]iB but "
            r"memory_budget is 100\.0 KiB\. Lower rank or batch_size, or raise memory_budget\.$"
        )
        with pytest.raises(MemoryBudgetError, match=expected):
            small(memory_budget="100KiB").fit(*views(200))
