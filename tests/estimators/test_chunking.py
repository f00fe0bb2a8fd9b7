"""Rows in chunks, in pieces (`partial_fit`) or on several threads give the same model."""

import weakref

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from knoi import FourierCCA, LinearCCA, NystromCCA
from knoi.exceptions import InputError, NonFiniteError, NotKeptError
from knoi.kernels import RBF
from tests.estimators.models import (
    assert_equal_models,
    assert_same_model,
    assert_same_up_to_sign,
    closed_forms,
    every_estimator,
    every_solver,
    related_views,
    small,
    small_knoi,
    streamed,
    with_value,
)


class TestClosedForms:
    @pytest.mark.parametrize(
        ("estimator", "device"), [(LinearCCA, None), (FourierCCA, None), (NystromCCA, "cpu")]
    )
    def test_chunked_is_one_piece(self, estimator, device):
        X, Y = related_views(3000)
        X, Y = X + 100.0, Y - 7.0
        params = {"rank": 20, "n_jobs": 1, "device": device}
        whole = small(estimator, **params).fit(X, Y)
        # Memory for a few hundred rows at a time.
        chunked = small(estimator, memory_budget=450_000, **params)
        assert_same_model(chunked.fit(X, Y), whole, X, Y)

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 200), max_size=6))
    def test_partial_fit_over_any_partition_is_fit(self, cuts):
        rng = np.random.default_rng(3)
        X = rng.standard_normal((200, 4)) + 10 * rng.standard_normal(4)
        Y = X[:, :3] + rng.standard_normal((200, 3)) + np.linspace(0, 50, 200)[:, None]
        model = streamed(LinearCCA(2), X, Y, sorted({0, 200, *cuts}), solve=False).solve()
        assert_same_model(model, LinearCCA(2).fit(X, Y), X, Y)

    @pytest.mark.parametrize(("device", "paired"), [(None, False), ("cpu", True)])
    def test_partial_fit_with_fourier_features_is_fit(self, two_views, device, paired):
        X, Y = two_views
        # The first piece fixes the centre of the Fourier features. Paired features do not depend
        # on it: it rotates every pair of them.
        params = {"kernel": RBF(4.0), "device": device, "paired": paired}
        if not paired:
            # The mean of the first piece is that of all rows.
            X, Y = (np.stack([v, 2 * v.mean(0) - v], axis=1).reshape(400, -1) for v in (X, Y))
        model = streamed(small(FourierCCA, **params), X, Y, [0, 80, 82, len(X)])
        assert_same_model(model, small(FourierCCA, **params).fit(X, Y), X, Y)

    def test_partial_fit_with_landmarks_is_fit(self, two_views):
        X, Y = two_views
        first = streamed(small(NystromCCA, kernel=RBF(4.0), rank=30), X, Y, [0, 30, 31, 200])
        # The 30 rows of the first piece are the landmarks. Linear CCA of the features of those
        # landmarks is the same model.
        features = [first.projection_.x.features, first.projection_.y.features]
        np.testing.assert_array_equal(features[0].columns.landmarks, X[:30])
        Phi, Psi = features[0].transform(X), features[1].transform(Y)
        expected = LinearCCA(2, reg=1e-3).fit(Phi, Psi)
        np.testing.assert_allclose(first.correlations_, expected.correlations_, atol=1e-8)
        assert_same_up_to_sign(first.transform(X), expected.transform(Phi), atol=1e-6)

    @closed_forms
    def test_fit_forgets_what_partial_fit_has_seen(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).partial_fit(X[::-1] + 5, Y)
        assert_same_model(model.fit(X, Y), small(estimator).fit(X, Y), X, Y)
        afresh = model.partial_fit(X[:100], Y[:100])
        assert_same_model(afresh, small(estimator).fit(X[:100], Y[:100]), X, Y)

    @every_estimator
    def test_threads_change_nothing(self, estimator):
        X, Y = related_views(300)
        one, two = (small(estimator, n_jobs=n).fit(X, Y) for n in (1, 2))
        assert_same_model(two, one, X, Y)


class TestSolvingAgain:
    @pytest.mark.parametrize(("estimator", "device"), [(LinearCCA, None), (NystromCCA, "cpu")])
    def test_other_parameters_need_no_other_pass(self, two_views, estimator, device):
        X, Y = two_views
        model = small(estimator, device=device).partial_fit(X, Y, solve=False)
        for params in ({"reg": 1e-2}, {"reg": (0.1, 1e-3)}, {"n_components": 3, "reg": 1e-3}):
            expected = small(estimator, device=device, **params).fit(X, Y)
            assert_same_model(model.set_params(**params).solve(), expected, X, Y)
            assert model.n_samples_ == len(X)

    @closed_forms
    def test_more_rows_may_follow(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).partial_fit(X[:120], Y[:120], solve=False).solve()
        model.partial_fit(X[120:], Y[120:], solve=False)
        assert model.n_samples_ == 120
        stepwise = small(estimator).partial_fit(X[:120], Y[:120]).partial_fit(X[120:], Y[120:])
        assert_same_model(model.solve(), stepwise, X, Y, 1e-12)

    def test_solve_needs_partial_fit(self, two_views):
        for model in (LinearCCA(), LinearCCA().fit(*two_views)):
            with pytest.raises(NotFittedError, match="has no moments to solve for: only"):
                model.solve()

    def test_a_failure_changes_nothing_and_predict_needs_the_rows(self, two_views):
        X, Y = two_views
        model = LinearCCA(2).partial_fit(X, Y)
        before = dict(vars(model)) | {"reg": -1.0}
        with pytest.raises(InputError, match="reg"):
            model.set_params(reg=-1.0).solve()
        assert vars(model) == before
        with pytest.raises(NotKeptError, match="learned by partial_fit or solve, without"):
            model.set_params(reg=0.0).solve().predict(X)


class TestStreamsOfKNOI:
    @pytest.fixture
    def data(self):
        return related_views(700)

    @every_solver
    @settings(max_examples=8)
    @given(cuts=st.lists(st.integers(150, 700), max_size=6))
    @example(cuts=range(151, 280))  # single rows
    def test_any_partition_into_pieces_gives_the_same_model(self, solver, cuts):
        X, Y = related_views(700)
        whole = streamed(small_knoi(solver), X, Y, [0, 150, 700])
        edges = sorted({0, 150, 700, *cuts})
        assert_equal_models(streamed(small_knoi(solver), X, Y, edges), whole)

    def test_rows_that_do_not_fill_a_minibatch_wait(self, data):
        X, Y = data
        model = small_knoi().partial_fit(X[:150], Y[:150])
        assert model.n_samples_seen_ == 120
        weights = model.x_weights_
        model.partial_fit(X[150:179], Y[150:179])  # 59 wait
        assert model.n_samples_seen_ == 120
        model.partial_fit(X[179:180], Y[179:180])
        assert model.n_samples_seen_ == 180
        assert not np.array_equal(model.x_weights_, weights)

    def test_components_are_aligned_once_or_after_every_piece(self, data):
        model = streamed(small_knoi(), *data, [0, 150, 300, 400], solve=False)
        with pytest.raises(NotFittedError):
            model.transform(data[0])
        model.partial_fit(data[0][400:], data[1][400:])
        assert_equal_models(model, streamed(small_knoi(), *data, [0, 150, 700]))

    def test_a_stream_learns(self):
        X, Y = related_views(6000)
        model = streamed(small_knoi(), X, Y, [0, 500, 3000, 6000])
        assert model.score(*related_views(2000, seed=1)) > 0.9 * small_knoi().fit(X, Y).score(
            *related_views(2000, seed=1)
        )

    def test_a_bad_piece_or_a_failed_fit_changes_nothing(self, data):
        X, Y = data
        model = small_knoi()
        with pytest.raises(NonFiniteError):
            model.partial_fit(with_value(X, 699, 0, np.nan), Y)
        assert vars(model) == vars(small_knoi())
        model.partial_fit(X[:150], Y[:150])
        before = dict(vars(model))
        A, B = X[150:550], Y[150:550]
        for call, bad, text in (
            (model.partial_fit, (with_value(A, 399, 1, np.nan), B), "^X has NaN at row 399"),
            (model.partial_fit, (A, with_value(B, 390, 0, np.inf)), "^Y has inf at row 390"),
            (model.partial_fit, (A[:, :3], B), "^X has 3 features, but KNOI is expecting 4"),
            (model.partial_fit, (A, B[:, :2]), "^Y has 2 features, but KNOI is expecting 3"),
            (model.partial_fit, (A, B[:-1]), "^X has 400 rows but Y has 399: the views"),
            (model.fit, (with_value(X, 3, 0, np.nan), Y), "^X has NaN at row 3"),
        ):
            with pytest.raises(InputError, match=text):
                call(*bad)
            assert vars(model) == before
        model.partial_fit(X[150:], Y[150:])
        assert_equal_models(model, streamed(small_knoi(), X, Y, [0, 150, 700]))

    def test_the_first_piece_is_not_kept(self):
        X, Y = (view.copy() for view in related_views(150))
        model = small_knoi().partial_fit(X, Y)
        alive = weakref.ref(X)
        del X, Y
        assert alive() is None
        assert model.n_samples_seen_ == 120

    def test_limits_and_checkpoints_have_no_effect(self, data, tmp_path):
        limits = {"epochs": 1, "max_time": 1e-9, "tol": 0.5, "checkpoint": tmp_path / "run"}
        limited = streamed(small_knoi(**limits), *data, [0, 150, 400, 700])
        assert limited.n_samples_seen_ == 660
        assert limited.stopped_ is None
        assert not (tmp_path / "run").exists()
        assert_equal_models(limited, streamed(small_knoi(), *data, [0, 150, 700]))

    def test_fit_starts_a_new_stream(self, data):
        X, Y = data
        model = streamed(small_knoi(), X, Y, [0, 150, 700]).fit(X, Y)
        assert_equal_models(model, small_knoi().fit(X, Y))
        model.partial_fit(X[:150], Y[:150])
        assert_equal_models(model, small_knoi().partial_fit(X[:150], Y[:150]))

    def test_a_first_piece_shorter_than_a_minibatch(self, data):
        X, Y = data
        with pytest.raises(InputError, match=r"^batch_size=60 but there are 50 rows to"):
            small_knoi().partial_fit(X[:50], Y[:50])
        model = small_knoi(batch_size=None).partial_fit(X[:50], Y[:50])
        assert model.n_samples_seen_ == 50
