"""Weights of rows: weight k is the row k times; zero is no row; their scale does not matter."""

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from knoi import KNOI, DeepCCA, DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.data.pairs import PairSource
from knoi.estimators.closed_form import held_out_parts
from knoi.exceptions import InputError, InputTypeError
from knoi.solvers.exact import HeldOutScore, choose_reg
from tests.estimators.models import (
    assert_same_model,
    both_devices,
    closed_forms,
    made,
    related_views,
    streamed,
)

takes_weights = pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA, KernelCCA])
# What depends on the number of rows or on their order is given.
FIXED = {"rank": 400, "width": 2.0, "metric": None, "scale": None, "reg": 1e-3, "random_state": 0}


def model_of(estimator, **params):
    if estimator is FourierCCA:  # the rows centre the features, which pairs do not depend on
        params = {"rank": 60, "paired": True} | params
    return made(estimator, **{"n_components": 2} | FIXED | params)


def counts(n, seed=0):
    """Weights 0 to 3."""
    return np.random.default_rng(seed).integers(0, 4, n)


def repeated(weights, *views):
    return [np.repeat(view, weights, axis=0) for view in views]


def same_structure(one, other):
    for name in ("x_loadings_", "y_loadings_", "x_cross_loadings_", "y_cross_loadings_"):
        np.testing.assert_allclose(*(abs(getattr(m, name)) for m in (one, other)), atol=1e-7)


class TestOracles:
    @takes_weights
    @both_devices
    def test_a_weight_is_the_row_so_many_times(self, estimator, device):
        X, Y = related_views(150)
        w = counts(150)
        expected = model_of(estimator, device=device).fit(*repeated(w, X, Y))
        for weights in (w, 1e-9 * w, list(7.5 * w)):
            model = model_of(estimator, device=device).fit(X, Y, sample_weight=weights)
            assert_same_model(model, expected, X, Y, 1e-7)
            same_structure(model, expected)
            np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-7)
        assert model.n_samples_ == np.count_nonzero(w)

    @takes_weights
    def test_equal_weights_are_none(self, estimator):
        X, Y = related_views(300)
        own = {"reg": "auto", "width": "median"}
        expected = model_of(estimator, **own).fit(X, Y)
        model = model_of(estimator, **own).fit(X, Y, sample_weight=np.full(300, 3))
        assert model.reg_ == expected.reg_
        assert_same_model(model, expected, X, Y, 1e-9)

    @takes_weights
    def test_rows_of_weight_zero_do_not_exist(self, estimator):
        X, Y = related_views(400)
        rng = np.random.default_rng(1)
        w = rng.uniform(0.5, 2.0, 400) * (rng.random(400) < 0.7)
        X, Y = X.copy(), Y.copy()
        X[w == 0], Y[w == 0] = 1e6 * rng.standard_normal(4), -7.0
        own = {"rank": 60, "reg": "auto", "width": "auto", "metric": "auto"}
        expected = model_of(estimator, **own).fit(X[w > 0], Y[w > 0], sample_weight=w[w > 0])
        model = model_of(estimator, **own).fit(X, Y, sample_weight=w)
        assert model.reg_ == expected.reg_
        assert_same_model(model, expected, X[w > 0], Y[w > 0], 1e-12)

    def test_of_a_precomputed_kernel(self):
        X, Y = related_views(120)
        w = counts(120)
        expected = KernelCCA(2, kernel="linear", reg=1e-3).fit(X, Y, sample_weight=w)
        model = KernelCCA(2, kernel="precomputed", reg=1e-3)
        model.fit(X @ X.T, Y @ Y.T, sample_weight=w)
        Zx, wanted = model.transform(X @ X.T), expected.transform(X)
        np.testing.assert_allclose(np.abs(Zx), np.abs(wanted), atol=1e-7)

    def test_float32_far_from_the_origin(self):
        X, Y = related_views(3000)
        w = counts(3000)
        expected = LinearCCA(2, reg=0).fit(*repeated(w, X, Y))
        far = (X + 500).astype(np.float32), (Y - 800).astype(np.float32)
        for device in (None, "cpu"):
            model = LinearCCA(2, reg=0, device=device).fit(*far, sample_weight=w)
            np.testing.assert_allclose(model.correlations_, expected.correlations_, atol=1e-4)

    def test_weights_of_very_different_size(self):
        X, Y = related_views(2000)
        w = 10.0 ** np.random.default_rng(0).uniform(-12, 0, 2000)
        p = (w / w.sum())[:, None]
        X, Y = (V - (p * V).sum(axis=0) for V in (X, Y))
        Sxx, Sxy, Syy = X.T @ (p * X), X.T @ (p * Y), Y.T @ (p * Y)
        squares = np.linalg.eigvals(np.linalg.solve(Sxx, Sxy) @ np.linalg.solve(Syy, Sxy.T))
        expected = np.sqrt(np.sort(squares.real)[::-1][:2])
        found = LinearCCA(2, reg=0).fit(X + 5, Y, sample_weight=w).correlations_
        np.testing.assert_allclose(found, expected, atol=1e-9)


class TestHeldOutRows:
    """The choice of `reg` goes by weighted correlations."""

    @takes_weights
    def test_rows_to_fit_on_and_to_score_on_have_their_weights(self, estimator, monkeypatch):
        X, Y = related_views(300)
        w = np.random.default_rng(0).uniform(0.1, 3.0, 300)
        tried = []

        def spy(paths, *rest):
            tried.extend(paths)
            return choose_reg(paths, *rest)

        monkeypatch.setattr("knoi.estimators.closed_form.choose_reg", spy)
        model_of(estimator, reg="auto").fit(X, Y, sample_weight=w)
        with PairSource.open(X, Y) as pairs:
            parts = [part.row_numbers() for part in held_out_parts(pairs, 0)]
        assert len(tried) == len(parts) == 5
        for path, rows in zip(tried[:2], parts, strict=False):
            held = np.isin(np.arange(300), rows)
            fitted = model_of(estimator).fit(X[~held], Y[~held], sample_weight=w[~held])
            expected = fitted.score(X[held], Y[held], sample_weight=w[held])
            assert path.score((1e-3, 1e-3), 2).total == pytest.approx(expected, abs=1e-6)

    def test_the_score_is_that_of_repeated_rows(self):
        """Of `score`, and of the choice with its standard errors."""
        X, Y = related_views(100)
        model, w = LinearCCA(2).fit(*related_views(100, seed=1)), counts(100)
        expected = model.score(*repeated(w, X, Y))
        assert model.score(X, Y, sample_weight=3 * w) == pytest.approx(expected, abs=1e-12)
        P, Q = (V[:, :3] for V in related_views(100))
        weighted = HeldOutScore.of(P[w > 0], Q[w > 0], 2.5 * w[w > 0])
        expected = HeldOutScore.of(*repeated(w, P, Q))
        assert weighted.total == pytest.approx(expected.total, abs=1e-12)
        per_row = np.add.reduceat(expected.influence, np.r_[0, np.cumsum(w[w > 0])[:-1]])
        share = np.count_nonzero(w) / w.sum()
        np.testing.assert_allclose(weighted.influence, per_row * share, atol=1e-12)


class TestStreams:
    @closed_forms
    def test_pieces_are_on_one_scale(self, estimator):
        X, Y = related_views(300)
        w = counts(300) + 0.0
        whole = model_of(estimator, rank=60).partial_fit(X, Y, w)
        model = model_of(estimator, rank=60)
        if estimator is NystromCCA:  # the first piece fixes the landmarks
            model.partial_fit(X, Y, w, solve=False)
            whole.partial_fit(X, Y, w)
        for start, stop in ((0, 90), (90, 130), (130, 300)):
            rows = slice(start, stop)
            model.partial_fit(X[rows], Y[rows], sample_weight=w[rows])
        assert_same_model(model, whole, X, Y, 1e-8)
        assert model.n_samples_ == whole.n_samples_

    def test_a_piece_without_weights_has_weight_one(self):
        X, Y = related_views(200)
        w = np.r_[np.ones(100), np.full(100, 2.5)]
        expected = LinearCCA(2).fit(X, Y, sample_weight=w)
        model = LinearCCA(2).partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:], w[100:])
        assert_same_model(model, expected, X, Y, 1e-9)
        assert model.reg_ == expected.reg_
        plain = streamed(LinearCCA(2), X, Y, [0, 100, 200])
        assert_same_model(plain, LinearCCA(2).fit(X, Y), X, Y, 1e-9)

    @closed_forms
    def test_files_and_sparse_views(self, estimator, tmp_path):
        X, Y = related_views(500)
        X = np.where(X > 0, X, 0)
        w = counts(500)
        expected = model_of(estimator).fit(X, Y, sample_weight=w)
        np.save(tmp_path / "X.npy", X)
        np.savetxt(tmp_path / "Y.csv", Y, delimiter=",", fmt="%.17g")
        for views in (
            (tmp_path / "X.npy", tmp_path / "Y.csv"),
            (scipy.sparse.csr_array(X), Y),
        ):
            model = model_of(estimator).fit(*views, sample_weight=w)
            assert_same_model(model, expected, X, Y, 1e-7)
            same_structure(model, expected)


class TestScikitLearn:
    def test_grid_search_and_pipelines_pass_them(self):
        X, Y = related_views(200)
        w = np.random.default_rng(0).uniform(0.1, 2.0, 200)
        seen = []

        class Watched(LinearCCA):
            def fit(self, X, Y, sample_weight=None):
                seen.append(("fit", len(sample_weight)))
                return super().fit(X, Y, sample_weight)

            def score(self, X, Y, sample_weight=None):
                seen.append(("score", len(sample_weight)))
                return super().score(X, Y, sample_weight)

        search = GridSearchCV(Watched(2), {"reg": [1e-3, 1e-1]}, cv=2)
        search.fit(X, Y, sample_weight=w)
        assert seen == [("fit", 100), ("score", 100)] * 4 + [("fit", 200)]
        best = LinearCCA(2, reg=search.best_params_["reg"]).fit(X, Y, sample_weight=w)
        np.testing.assert_allclose(search.best_estimator_.transform(X), best.transform(X))
        line = make_pipeline(StandardScaler(), LinearCCA(2))
        Zx, _ = line.fit_transform(X, Y, linearcca__sample_weight=w)
        expected = LinearCCA(2).fit_transform(StandardScaler().fit_transform(X), Y, sample_weight=w)
        np.testing.assert_allclose(Zx, expected[0])

    @takes_weights
    def test_metadata_routing(self, estimator):
        X, Y = related_views(120)
        w = counts(120)
        with sklearn.config_context(enable_metadata_routing=True):
            model = model_of(estimator).set_fit_request(sample_weight=True)
            model.set_score_request(sample_weight=True)
            search = GridSearchCV(model, {"reg": [1e-3]}, cv=2).fit(X, Y, sample_weight=w)
        expected = model_of(estimator).fit(X, Y, sample_weight=w)
        assert_same_model(search.best_estimator_, expected, X, Y, 1e-12)

    @pytest.mark.parametrize("estimator", [KNOI, DoublyStochasticCCA, DeepCCA])
    def test_stochastic_methods_have_none(self, estimator):
        with pytest.raises(TypeError, match="sample_weight"):
            estimator().fit(*related_views(60), sample_weight=np.ones(60))


@pytest.mark.parametrize(
    ("weights", "error", "text"),
    [
        (
            np.ones(59),
            InputError,
            r"shape \(59,\): wanted one weight per row, \(60,\)",
        ),
        (np.ones((60, 1)), InputError, r"sample_weight has shape \(60, 1\)"),
        (2.0, InputError, r"sample_weight has shape \(\)"),
        (
            np.r_[np.ones(59), -1],
            InputError,
            "sample_weight is -1 in row 59: wanted finite",
        ),
        (np.r_[np.nan, np.ones(59)], InputError, "sample_weight is nan in row 0"),
        (np.zeros(60), InputError, "sample_weight is zero for all rows"),
        (["one"] * 60, InputTypeError, "sample_weight is of dtype <U3: wanted an array of 60"),
        (np.eye(60)[0] + np.eye(60)[1], InputError, "n_components=2 with n_samples=2"),
    ],
)
def test_wrong_weights(weights, error, text):
    X, Y = related_views(60)
    with pytest.raises(error, match=text):
        LinearCCA(2).fit(X, Y, sample_weight=weights)
