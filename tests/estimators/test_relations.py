"""What must hold between the methods, and between a fit and the same fit done otherwise."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import knoi
from knoi import KNOI, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.estimators import ESTIMATORS
from knoi.exceptions import InputError, InSampleWarning, ModelFileError
from knoi.kernels import RBF, Chi2, Laplacian, Linear, Matern, Polynomial
from tests.oracles.cca import kernel_cca, linear_cca

both_devices = pytest.mark.parametrize("device", [None, "cpu"])
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
kernel_estimators = pytest.mark.parametrize("estimator", [KernelCCA, FourierCCA, NystromCCA])


def small(estimator, **params):
    """An estimator that fits 200 rows in milliseconds; parameters it has not are left out."""
    given = {"rank": 60, "reg": 1e-3, "random_state": 0} | params
    known = estimator._get_param_names()
    return estimator(**{name: value for name, value in given.items() if name in known})


def assert_same_up_to_sign(A, B, **tolerance):
    signs = np.sign((A * B).sum(axis=0))
    assert np.all(signs != 0)
    np.testing.assert_allclose(A, B * signs, **tolerance)


def assert_same_model(one, other, X, Y, tolerance=1e-8):
    """The same correlations and the same projections of both views."""
    np.testing.assert_allclose(one.correlations_, other.correlations_, atol=tolerance)
    for Z, W in zip(one.transform(X, Y), other.transform(X, Y), strict=True):
        assert_same_up_to_sign(Z, W, atol=tolerance * np.abs(W).max() * 10)


class TestMethodsAgree:
    @both_devices
    @pytest.mark.parametrize("reg", [0.0, 1e-3, 0.3, (0.0, 0.1)])
    def test_linear_cca_is_the_formula(self, two_views, reg, device):
        X, Y = two_views
        model = LinearCCA(3, reg=reg, device=device).fit(X, Y)
        rx, ry = (np.broadcast_to(reg, 2) * [np.var(X, 0).sum(), np.var(Y, 0).sum()]).tolist()
        U, V, correlations = linear_cca(X, Y, 3, rx, ry)
        np.testing.assert_allclose(model.correlations_, correlations, atol=1e-10)
        assert_same_up_to_sign(model.x_weights_, U, atol=1e-9)
        assert_same_up_to_sign(model.y_weights_, V, atol=1e-9)
        np.testing.assert_allclose(model.transform(X), (X - X.mean(0)) @ model.x_weights_)
        np.testing.assert_allclose(model.transform_y(Y), (Y - Y.mean(0)) @ model.y_weights_)

    @both_devices
    @pytest.mark.parametrize("reg", [1e-4, (1e-2, 1e-3)])
    def test_kernel_cca_is_the_papers_eigenproblem(self, two_views, reg, device):
        X, Y = two_views
        kernels = RBF(3.0), Laplacian(8.0)
        model = KernelCCA(4, kernel=kernels, reg=reg, device=device).fit(X, Y)
        Ks = kernels[0](X, X), kernels[1](Y, Y)
        H = np.eye(200) - 1 / 200
        r = [
            one * np.trace(H @ K @ H) / 200
            for one, K in zip(np.broadcast_to(reg, 2), Ks, strict=True)
        ]
        np.testing.assert_allclose(model.correlations_, kernel_cca(*Ks, 4, *r), atol=1e-8)

    @both_devices
    @pytest.mark.parametrize("reg", [1e-10, 1e-3, (0.1, 1e-2)])
    def test_kernel_cca_with_a_linear_kernel_is_linear_cca(self, two_views, reg, device):
        linear = LinearCCA(3, reg=reg, device=device).fit(*two_views)
        kernel = KernelCCA(3, reg=reg, kernel="linear", device=device).fit(*two_views)
        assert_same_model(kernel, linear, *two_views)

    def test_fresh_rows_project_the_same_by_either(self, two_views):
        fresh = [np.random.default_rng(1).standard_normal((7, v.shape[1])) for v in two_views]
        linear = LinearCCA(3, reg=1e-3).fit(*two_views)
        kernel = KernelCCA(3, reg=1e-3, kernel="linear").fit(*two_views)
        assert_same_model(kernel, linear, *fresh)

    @both_devices
    @pytest.mark.parametrize("landmarks", ["uniform", "pivoted_cholesky"])
    @pytest.mark.parametrize("kernel", ["rbf", Polynomial(degree=2), (Matern(), "linear")])
    def test_nystrom_with_all_points_is_kernel_cca(self, two_views, kernel, landmarks, device):
        same = {"kernel": kernel, "reg": 1e-3, "random_state": 0, "device": device}
        exact = KernelCCA(3, **same).fit(*two_views)
        for rank in (200, 1000):
            model = NystromCCA(3, rank=rank, landmarks=landmarks, **same).fit(*two_views)
            assert_same_model(model, exact, *two_views, tolerance=1e-7)
        fresh = [v[:9] + 0.1 for v in two_views]
        assert_same_model(model, exact, *fresh, tolerance=1e-6)

    @pytest.mark.parametrize("paired", [False, True])
    def test_fourier_approaches_kernel_cca_as_rank_grows(self, two_views, paired):
        same = {"kernel": RBF(4.0), "reg": 1e-2}
        exact = KernelCCA(3, **same).fit(*two_views).correlations_

        def error(rank):
            found = [
                FourierCCA(3, rank=rank, random_state=seed, paired=paired, **same)
                .fit(*two_views)
                .correlations_
                for seed in range(3)
            ]
            return np.sqrt(np.mean((np.array(found) - exact) ** 2))

        errors = [error(rank) for rank in (16, 128, 1024)]
        assert errors[0] > 1.7 * errors[1] > 1.7**2 * errors[2]
        assert errors[2] < 2e-2

    def test_nystrom_approaches_kernel_cca_as_rank_grows(self, two_views):
        same = {"kernel": RBF(4.0), "reg": 1e-2, "random_state": 0}
        exact = KernelCCA(3, **same).fit(*two_views).correlations_
        errors = [
            np.abs(NystromCCA(3, rank=rank, **same).fit(*two_views).correlations_ - exact).max()
            for rank in (10, 50, 150)
        ]
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 1e-3


class TestCutsOfTheData:
    @pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])
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

    @pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])
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


CHANGES = {
    "shift": lambda X: X + 1e3 * X.std(),
    "1e-12": lambda X: X * 1e-12,
    "1e12": lambda X: X * 1e12,
    "1e12 and shift": lambda X: (X - 1e3 * X.std()) * 1e12,
}


class TestUnits:
    @every_estimator
    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize(
        ("changed", "device"), [("X", None), ("Y", None), ("both", None), ("both", "cpu")]
    )
    def test_shift_and_scale_change_nothing(
        self, two_views, estimator, change, dtype, changed, device
    ):
        X, Y = (np.round(view * 64) / 64 for view in two_views)
        # Off the origin by a little: a shift must not matter because the mean happened to be 0.
        A = CHANGES[change](X + 0.5) if changed != "Y" else X
        B = CHANGES[change](Y - 0.25) if changed != "X" else Y
        X, Y, A, B = (view.astype(dtype) for view in (X, Y, A, B))
        plain = small(estimator, device=device).fit(X, Y)
        other = small(estimator, device=device).fit(A, B)
        tolerance = 1e-7 if dtype == np.float64 else 2e-3
        np.testing.assert_allclose(other.correlations_, plain.correlations_, atol=tolerance)
        assert other.score(A, B) == pytest.approx(plain.score(X, Y), abs=2 * tolerance)
        for Z, W in zip(other.transform(A, B), plain.transform(X, Y), strict=True):
            assert Z.dtype == dtype
            found = np.diag(np.corrcoef(Z.T, W.T)[:2, 2:])
            np.testing.assert_allclose(np.abs(found), 1.0, atol=tolerance)

    @both_devices
    def test_unregularised_linear_cca_takes_columns_of_any_unit(self, two_views, device):
        X, Y = two_views
        units = np.array([1e-12, 1.0, 1e12, 1e-3, 1.0, 1e6])
        plain = LinearCCA(3, device=device).fit(X, Y)
        other = LinearCCA(3, device=device).fit(X * units, Y)
        np.testing.assert_allclose(other.correlations_, plain.correlations_, atol=1e-9)
        assert_same_up_to_sign(other.transform(X * units), plain.transform(X), atol=1e-7)

    @pytest.mark.parametrize("offset", [1e6, 1e9])
    def test_a_far_origin_loses_no_more_digits_than_it_must(self, two_views, offset):
        X, Y = (np.round(view * 64) / 64 for view in two_views)
        plain = LinearCCA(3).fit(X, Y).correlations_
        found = LinearCCA(3).fit(X + offset, Y - offset).correlations_
        np.testing.assert_allclose(found, plain, atol=1e-9)


class TestDegenerateViews:
    @both_devices
    def test_a_duplicated_column_is_harmless(self, two_views, device):
        X, Y = two_views
        plain = LinearCCA(3, device=device).fit(X, Y)
        double = LinearCCA(3, device=device).fit(np.hstack([X, X[:, :2]]), Y)
        np.testing.assert_allclose(double.correlations_, plain.correlations_, atol=1e-9)
        assert_same_up_to_sign(
            double.transform(np.hstack([X, X[:, :2]])), plain.transform(X), atol=1e-7
        )

    @every_estimator
    @both_devices
    @pytest.mark.parametrize("value", [0.0, 3.7, 1e9 / 3])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_a_constant_column_is_harmless(self, two_views, estimator, value, dtype, device):
        X, Y = (view.astype(dtype) for view in two_views)
        constant = np.full((200, 1), value, dtype)
        plain = small(estimator, device=device).fit(X, Y)
        wider = np.hstack([X, constant])
        padded = small(estimator, device=device).fit(wider, Y)
        if estimator is FourierCCA:
            # One more column draws other frequencies.
            assert np.isfinite(padded.transform(wider)).all()
            return
        tolerance = 1e-7 if dtype == np.float64 else 2e-3
        np.testing.assert_allclose(padded.correlations_, plain.correlations_, atol=tolerance)
        assert np.isfinite(padded.transform(wider)).all()

    @both_devices
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_more_columns_than_rows(self, device, dtype):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((30, 80)).astype(dtype), rng.standard_normal((30, 3))
        with pytest.warns(InSampleWarning):
            model = LinearCCA(3, device=device).fit(X, Y.astype(dtype))
        # Thirty rows in 80 dimensions explain anything: every correlation is 1.
        tolerance = 1e-8 if dtype == np.float64 else 1e-3
        np.testing.assert_allclose(model.correlations_, 1.0, atol=tolerance)
        Zx, Zy = model.transform(X, Y.astype(dtype))
        np.testing.assert_allclose(Zx, Zy, atol=tolerance * 10)

    @every_estimator
    @both_devices
    def test_more_columns_than_rows_regularised(self, estimator, device):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((30, 80)), rng.standard_normal((30, 60))
        model = small(estimator, reg=0.1, device=device).fit(X, Y)
        assert np.all((model.correlations_ > 0) & (model.correlations_ < 1))
        assert all(np.isfinite(Z).all() for Z in model.transform(X, Y))

    @every_estimator
    @both_devices
    def test_repeated_rows(self, two_views, estimator, device):
        X, Y = (np.repeat(view[:20], 10, axis=0) for view in two_views)
        model = small(estimator, reg=1e-2, device=device).fit(X, Y)
        once = small(estimator, reg=1e-2, device=device).fit(X[::10], Y[::10])
        assert np.isfinite(model.transform(X)).all()
        if estimator in (LinearCCA, KernelCCA):  # the width of the others sees the zeros
            kernel = {"kernel": RBF(3.0)} if estimator is KernelCCA else {}
            model, once = model.set_params(**kernel), once.set_params(**kernel)
            model.fit(X, Y), once.fit(X[::10], Y[::10])
            assert_same_model(model, once, X, Y)

    @kernel_estimators
    @both_devices
    def test_more_components_than_the_kernel_has_directions(self, two_views, estimator, device):
        X, Y = (np.repeat(view[:4], 50, axis=0) for view in two_views)
        model = small(estimator, n_components=10, kernel=RBF(3.0), reg=0.0, device=device)
        if estimator is FourierCCA:
            model.set_params(paired=True)
        expected = (
            r"^n_components=10 but view X varies in only 3 independent directions \(constant and "
            r"duplicated columns do not count\)\. Set n_components to at most 3\.$"
        )
        with pytest.raises(InputError, match=expected):
            model.fit(X, Y)

    def test_more_components_than_independent_columns(self, two_views):
        X, Y = two_views
        flat = np.hstack([X[:, :1], 2 * X[:, :1], np.ones((200, 1))])
        expected = (
            r"^n_components=2 but view X varies in only 1 independent directions \(constant and "
            r"duplicated columns do not count\)\. Set n_components to at most 1\.$"
        )
        with pytest.raises(InputError, match=expected):
            LinearCCA(2).fit(flat, Y)

    @every_estimator
    @pytest.mark.parametrize("reg", [0.0, 1e-3])
    def test_a_view_that_does_not_vary(self, two_views, estimator, reg):
        X, Y = two_views
        model = small(estimator, n_components=1, reg=reg, kernel=RBF(1.0))
        expected = r"^view Y does not vary: all its rows are the same\. Check the data of Y\.$"
        with pytest.raises(InputError, match=expected):
            model.fit(X, np.full_like(Y, 3.3))

    @both_devices
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_many_equal_rows_do_not_vary_by_rounding(self, device, dtype):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((16_384, 1)).astype(dtype)
        # Sums over this many rows round visibly; the variance must not see it.
        Y = np.tile((rng.standard_normal(40) * 10).astype(dtype), (16_384, 1))
        with pytest.raises(InputError, match=r"^view Y does not vary"):
            LinearCCA(1, device=device).fit(X, Y)


class TestWhatAFittedModelPromises:
    @pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
    @every_estimator
    @both_devices
    def test_correlations_are_ordered_and_bounded(self, two_views, estimator, device):
        for reg in (0.0, 1e-3):
            model = small(estimator, n_components=4, reg=reg, device=device).fit(*two_views)
            rho = model.correlations_
            assert rho.shape == (4,)
            assert np.all(np.diff(rho) <= 1e-12)
            assert np.all((rho >= 0) & (rho <= 1))

    @pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])
    @pytest.mark.parametrize("reg", [(1e-2, 1e-1), 1e-3])
    def test_weights_are_orthonormal_in_the_regularised_covariance(self, two_views, estimator, reg):
        model = small(estimator, n_components=3, reg=reg).fit(*two_views)
        projections = model.projection_.x, model.projection_.y
        for data, view, r in zip(two_views, projections, np.broadcast_to(reg, 2), strict=True):
            Phi = view.features.transform(data)
            S = np.cov(Phi.T, bias=True)
            S += r * np.trace(S) * np.eye(len(S))
            np.testing.assert_allclose(view.weights.T @ S @ view.weights, np.eye(3), atol=1e-8)
            np.testing.assert_allclose(view.mean, Phi.mean(0), atol=1e-12)

    @every_estimator
    def test_score_is_the_fitted_measure_on_those_rows(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).fit(X[:150], Y[:150])
        Zx, Zy = model.transform(X[150:], Y[150:])
        expected = sum(np.corrcoef(Zx[:, i], Zy[:, i])[0, 1] for i in range(2))
        assert model.score(X[150:], Y[150:]) == pytest.approx(expected, abs=1e-10)

    @every_estimator
    def test_independent_views_score_nothing_on_held_out_rows(self, estimator):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((1200, 4)), rng.standard_normal((1200, 4))
        model = small(estimator, reg=1e-2, rank=50).fit(X[:400], Y[:400])
        # Each of the two correlations of 800 independent rows has deviation 0.035.
        assert abs(model.score(X[400:], Y[400:])) < 0.2

    @every_estimator
    def test_either_view_is_projected_alone(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).fit(X, Y)
        Zx, Zy = model.transform(X, Y)
        np.testing.assert_array_equal(model.transform(X), Zx)
        np.testing.assert_array_equal(model.transform_y(Y), Zy)
        np.testing.assert_allclose(model.transform(X[5:6]), Zx[5:6], atol=1e-9)
        paired = small(estimator).fit_transform(X, Y)
        np.testing.assert_array_equal(paired[0], Zx)
        np.testing.assert_array_equal(paired[1], Zy)

    @pytest.mark.parametrize("estimator", [FourierCCA, NystromCCA])
    @pytest.mark.parametrize(
        "state", [lambda: 7, lambda: np.random.RandomState(7), lambda: np.random.default_rng(7)]
    )
    def test_random_state_makes_a_fit_repeatable(self, two_views, estimator, state):
        one, two = (small(estimator, random_state=state()).fit(*two_views) for _ in range(2))
        np.testing.assert_array_equal(one.x_weights_, two.x_weights_)
        other = small(estimator, random_state=8).fit(*two_views)
        assert not np.array_equal(one.correlations_, other.correlations_)

    @every_estimator
    def test_attributes_are_there_under_their_names(self, two_views, estimator):
        model = small(estimator, rank=50).fit(*two_views)
        M = {"LinearCCA": (6, 4), "KernelCCA": (200, 200)}.get(estimator.__name__, (50, 50))
        assert model.x_weights_.shape == (M[0], 2)
        assert model.y_weights_.shape == (M[1], 2)
        assert model.x_mean_.shape == M[:1]
        assert model.y_mean_.shape == M[1:]
        assert (model.n_features_in_, model.n_features_y_) == (6, 4)


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (60, 4)) * (rng.random((60, 4)) < 0.6)
    Y = X[:, :3] + rng.integers(0, 3, (60, 3))
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    for view in (X, Y):
        view.setflags(write=False)
    return request.param, well_conditioned(request.param).fit(X, Y), X, Y


def well_conditioned(estimator):
    """A model that comes out the same in float32: KNOI's landmarks here are too many for that."""
    few = {"rank": 10, "approximation": "fourier"} if estimator is KNOI else {}
    return small(estimator, reg=1e-2, **few)


class TestWhateverHoldsTheData:
    """All rows are landmarks here: which rows a sample takes may depend on what holds the data."""

    def assert_same(self, fitted, A, B, tolerance=1e-8):
        estimator, expected, X, Y = fitted
        model = well_conditioned(estimator).fit(A, B)
        assert_same_model(model, expected, X, Y, tolerance)
        Zx, Zy = model.transform(A, B)
        np.testing.assert_allclose(Zx, model.transform(X), atol=tolerance * 100)
        np.testing.assert_allclose(Zy, model.transform_y(Y), atol=tolerance * 100)

    def test_lists(self, fitted):
        self.assert_same(fitted, fitted[2].tolist(), fitted[3].tolist())

    def test_fortran_order(self, fitted):
        self.assert_same(fitted, np.asfortranarray(fitted[2]), fitted[3][::-1][::-1])

    @pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float16])
    def test_narrow_numbers(self, fitted, dtype):
        self.assert_same(fitted, fitted[2].astype(dtype), fitted[3].astype(dtype), 2e-4)

    def test_a_narrow_and_a_wide_view(self, fitted):
        self.assert_same(fitted, fitted[2].astype(np.uint8), fitted[3], 2e-4)

    @pytest.mark.parametrize("layout", [scipy.sparse.csr_array, scipy.sparse.coo_matrix])
    def test_sparse(self, fitted, layout):
        self.assert_same(fitted, layout(fitted[2]), layout(fitted[3]))

    def test_pandas(self, fitted):
        self.assert_same(fitted, pd.DataFrame(fitted[2]), pd.DataFrame(fitted[3]))

    def test_torch(self, fitted):
        self.assert_same(fitted, torch.tensor(fitted[2]), torch.tensor(fitted[3]))

    def test_npy(self, fitted, tmp_path):
        np.save(tmp_path / "x.npy", fitted[2])
        np.save(tmp_path / "y.npy", fitted[3])
        self.assert_same(fitted, tmp_path / "x.npy", str(tmp_path / "y.npy"))

    def test_hdf5(self, fitted, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "views.h5", "w") as file:
            file["left"], file["right"] = fitted[2], fitted[3]
        self.assert_same(fitted, f"{tmp_path}/views.h5:/left", f"{tmp_path}/views.h5:/right")

    def test_parquet(self, fitted, tmp_path):
        for name, view in (("x", fitted[2]), ("y", fitted[3])):
            frame = pd.DataFrame(view, columns=[f"{name}{i}" for i in range(view.shape[1])])
            frame.to_parquet(tmp_path / f"{name}.parquet")
        self.assert_same(fitted, tmp_path / "x.parquet", tmp_path / "y.parquet")


class TestSaving:
    @pytest.mark.parametrize(
        "model",
        [
            LinearCCA(3, reg=(1e-3, 0.0), memory_budget="1GiB", n_jobs=1),
            KernelCCA(2, kernel=(RBF(2.0), "polynomial"), width=(1.0, "median")),
            KernelCCA(2, kernel=Chi2(width=0.5)),
            FourierCCA(2, rank=31, paired=True, kernel=Matern(nu=1.5), random_state=3),
            FourierCCA(2, rank=30, random_state=np.random.default_rng(0), device="cpu"),
            NystromCCA(2, rank=30, kernel=(Laplacian(), Linear()), landmarks="kmeans"),
            NystromCCA(np.int64(2), rank=np.int32(30), reg=np.float64(1e-3), width=np.float32(2)),
        ],
        ids=lambda model: type(model).__name__,
    )
    def test_a_model_comes_back_as_it_was(self, two_views, tmp_path, model):
        X, Y = (np.abs(view) for view in two_views)
        model.fit(pd.DataFrame(X, columns=list("abcdef")), Y)
        model.save(tmp_path / "model.knoi")
        for again in (
            type(model).load(tmp_path / "model.knoi"),
            knoi.load(tmp_path / "model.knoi"),
        ):
            assert type(again) is type(model)
            kept = {k: v for k, v in model.get_params().items() if k != "random_state"}
            assert {k: v for k, v in again.get_params().items() if k != "random_state"} == kept
            X_named = pd.DataFrame(X, columns=list("abcdef"))
            for Z, W in zip(again.transform(X_named, Y), model.transform(X_named, Y), strict=True):
                np.testing.assert_array_equal(Z, W)
            np.testing.assert_array_equal(again.correlations_, model.correlations_)
            np.testing.assert_array_equal(again.x_weights_, model.x_weights_)
            np.testing.assert_array_equal(again.y_mean_, model.y_mean_)
            assert (again.n_features_in_, again.n_features_y_) == (6, 4)
            assert list(again.feature_names_in_) == list("abcdef")
            again.fit(X, Y)

    def test_float32_models_stay_float32(self, two_views, tmp_path):
        X, Y = (view.astype(np.float32) for view in two_views)
        model = small(FourierCCA).fit(X, Y)
        model.save(tmp_path / "m.knoi")
        again = FourierCCA.load(tmp_path / "m.knoi")
        assert again.projection_.x.features.W.dtype == np.float32
        np.testing.assert_array_equal(again.transform(X), model.transform(X))

    def test_load_by_the_wrong_class(self, two_views, tmp_path):
        path = tmp_path / "m.knoi"
        LinearCCA().fit(*two_views).save(path)
        with pytest.raises(ModelFileError) as refusal:
            KernelCCA.load(path)
        assert str(refusal.value) == (
            f"{path} holds a 'LinearCCA', not a KernelCCA. Load it with knoi.load, which finds the "
            "class by itself."
        )

    def test_a_truncated_file(self, two_views, tmp_path):
        path = tmp_path / "m.knoi"
        LinearCCA().fit(*two_views).save(path)
        whole = path.read_bytes()
        for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(ModelFileError):
                knoi.load(path)
            with pytest.raises(ModelFileError):
                LinearCCA.load(path)


class TestPrecision:
    @pytest.mark.parametrize(
        "model",
        [KernelCCA(2, reg=0.0), NystromCCA(2, rank=60, reg=1e-12, random_state=0)],
        ids=lambda model: type(model).__name__,
    )
    @pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
    def test_a_model_projects_in_its_own_precision(self, two_views, model):
        X, Y = (view.astype(np.float32) for view in two_views)
        model.fit(X.astype(np.float64), Y.astype(np.float64))
        exact = model.transform(X.astype(np.float64), Y.astype(np.float64))
        for Z, wanted in zip(model.transform(X, Y), exact, strict=True):
            assert Z.dtype == np.float32
            np.testing.assert_allclose(Z, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())

    def test_whole_numbers_far_from_zero_are_not_constant(self):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 4, (3000, 3))
        Y = X[:, :2] + rng.integers(0, 2, (3000, 2))
        near = LinearCCA(2).fit(X.astype(np.float32), Y.astype(np.float32))
        far = LinearCCA(2).fit((X + 4_000_000).astype(np.float32), Y.astype(np.float32))
        np.testing.assert_allclose(far.correlations_, near.correlations_, atol=1e-5)

    def test_a_torch_device_object_is_a_device(self, two_views):
        torch = pytest.importorskip("torch")
        found = LinearCCA(device=torch.device("cpu")).fit(*two_views).correlations_
        np.testing.assert_allclose(found, LinearCCA().fit(*two_views).correlations_)


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
