"""A fit and the same fit done in pieces, in chunks, in another order."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from knoi import FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.exceptions import InputError, NotKeptError
from knoi.kernels import RBF
from tests.estimators.models import (
    assert_same_model,
    assert_same_up_to_sign,
    both_devices,
    every_estimator,
    small,
)

closed_forms = pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])


class TestCutsOfTheData:
    @closed_forms
    @both_devices
    def test_chunked_is_one_piece(self, estimator, device):
        rng = np.random.default_rng(0)
        shared = rng.standard_normal((3000, 2))
        X = shared @ rng.standard_normal((2, 5)) + rng.standard_normal((3000, 5)) + 100.0
        Y = shared @ rng.standard_normal((2, 4)) + rng.standard_normal((3000, 4)) - 7.0
        params = {"rank": 20, "n_jobs": 1, "device": device}
        whole = small(estimator, **params).fit(X, Y)
        # Room for few hundred rows at a time: the first and the last chunk are far from equal.
        chunked = small(estimator, memory_budget=450_000, **params)
        assert_same_model(chunked.fit(X, Y), whole, X, Y)

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 200), max_size=6))
    def test_partial_fit_over_any_cut_is_fit(self, cuts):
        rng = np.random.default_rng(3)
        X = rng.standard_normal((200, 4)) + 10 * rng.standard_normal(4)
        Y = X[:, :3] + rng.standard_normal((200, 3)) + np.linspace(0, 50, 200)[:, None]
        edges = sorted({0, 200, *cuts})
        model = LinearCCA(2)
        for start, stop in pairwise(edges):
            model.partial_fit(X[start:stop], Y[start:stop], solve=stop == 200)
        assert_same_model(model, LinearCCA(2).fit(X, Y), X, Y)

    @both_devices
    @pytest.mark.parametrize("paired", [False, True])
    def test_partial_fit_with_fourier_features_is_fit(self, two_views, device, paired):
        X, Y = two_views
        # The first piece fixes the maps: of Fourier features only the centre, which paired
        # features do not depend on (it turns every pair of them).
        params = {"kernel": RBF(4.0), "device": device, "paired": paired}
        model = small(FourierCCA, **params)
        order = np.arange(200)
        if not paired:
            # Means that agree, so that the centres do.
            X, Y = (np.vstack([v, 2 * v.mean(0) - v]) for v in (X, Y))
            order = np.arange(400).reshape(2, 200).T.ravel()
        X, Y = X[order], Y[order]
        for start, stop in ((0, 80), (80, 82), (82, len(X))):
            model.partial_fit(X[start:stop], Y[start:stop])
        assert_same_model(model, small(FourierCCA, **params).fit(X, Y), X, Y)

    @both_devices
    def test_partial_fit_with_landmarks_is_fit(self, two_views, device):
        X, Y = two_views
        params = {"kernel": RBF(4.0), "device": device, "rank": 30}
        first = small(NystromCCA, **params)
        for start, stop in ((0, 30), (30, 31), (31, 200)):
            first.partial_fit(X[start:stop], Y[start:stop])
        # The 30 rows of the first piece are the landmarks. The exact features of those landmarks,
        # handed to linear CCA, are the same model.
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

    @pytest.mark.parametrize("estimator", [LinearCCA, KernelCCA, FourierCCA])
    @both_devices
    def test_row_order_does_not_matter(self, two_views, estimator, device):
        X, Y = two_views
        order = np.random.default_rng(0).permutation(200)
        shuffled = small(estimator, device=device).fit(X[order], Y[order])
        assert_same_model(shuffled, small(estimator, device=device).fit(X, Y), X, Y)

    @every_estimator
    def test_threads_change_nothing(self, estimator):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((300, 5)), rng.standard_normal((300, 4))
        models = [small(estimator, n_jobs=n).fit(X, Y) for n in (1, 2)]
        for other in models[1:]:
            assert_same_model(other, models[0], X, Y)


class TestSolvingAgain:
    @closed_forms
    @both_devices
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

    @closed_forms
    def test_fit_keeps_nothing_to_solve_for(self, two_views, estimator):
        message = (
            f"^This {estimator.__name__} keeps no rows to solve for: fit does not, only partial"
        )
        for model in (small(estimator), small(estimator).fit(*two_views)):
            with pytest.raises(NotFittedError, match=message):
                model.solve()

    def test_what_fails_leaves_the_model_as_it_was(self, two_views):
        X, Y = two_views
        model = LinearCCA(2).partial_fit(X, Y)
        before = model.transform(X)
        with pytest.raises(InputError, match="reg"):
            model.set_params(reg=-1.0).solve()
        np.testing.assert_array_equal(model.transform(X), before)

    def test_what_needs_rows_says_so(self, two_views):
        X, Y = two_views
        model = LinearCCA(2).partial_fit(X, Y).solve()
        with pytest.raises(NotKeptError, match="learned by partial_fit or solve, without"):
            model.predict(X)


class TestMemory:
    @pytest.mark.parametrize("pieces", [1, 3])
    def test_the_budget_holds(self, pieces):
        rng = np.random.default_rng(0)
        X, Y = (rng.standard_normal((6000, 50), dtype=np.float32) for _ in range(2))
        model = FourierCCA(2, rank=700, random_state=0, memory_budget="60MiB", n_jobs=1)
        tracemalloc.start()
        try:
            if pieces == 1:
                model.fit(X, Y)
            else:
                for rows in np.array_split(np.arange(6000), pieces):
                    model.partial_fit(X[rows], Y[rows])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 60 * 2**20
