"""KNOI by `partial_fit`: any cut of a stream gives the same model."""

import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from knoi.exceptions import (
    InputError,
    NonFiniteError,
)
from knoi.kernels import Chi2
from tests.estimators.knoi_models import assert_equal_models, every_solver, small, streamed, views
from tests.estimators.refusing import refused, with_value


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
