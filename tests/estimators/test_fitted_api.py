"""Every fitted model: bounds, orthonormality, scores, attributes; the same from any input type."""

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from knoi import KNOI, FourierCCA, KernelCCA, NystromCCA
from knoi.metrics import component_correlations
from tests.estimators.models import assert_same_model, closed_forms, every_estimator, small


class TestFittedModels:
    @pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
    @every_estimator
    def test_correlations_are_ordered_and_bounded(self, two_views, estimator):
        for reg, device in ((0.0, None), (1e-3, "cpu")):
            model = small(estimator, n_components=4, reg=reg, device=device).fit(*two_views)
            rho, ordered = model.correlations_, model.projection_.singular_values
            assert rho.shape == (4,)
            assert np.all(np.diff(ordered) <= 1e-12)
            assert np.all((rho >= ordered - 1e-12) & (rho <= 1))

    @pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
    @every_estimator
    def test_correlations_are_those_of_the_projections_of_training_rows(self, two_views, estimator):
        for reg in (0.0, 1e-3, 0.5):
            model = small(estimator, n_components=3, reg=reg, held_out=0).fit(*two_views)
            in_sample = component_correlations(*model.transform(*two_views))
            np.testing.assert_allclose(model.correlations_, in_sample, atol=1e-6)

    @closed_forms
    def test_weights_are_orthonormal_in_the_regularised_covariance(self, two_views, estimator):
        reg = 1e-2, 1e-1
        model = small(estimator, n_components=3, reg=reg).fit(*two_views)
        projections = model.projection_.x, model.projection_.y
        for data, view, r in zip(two_views, projections, reg, strict=True):
            Phi = view.features.transform(data)
            S = np.cov(Phi.T, bias=True)
            S += r * np.trace(S) * np.eye(len(S))
            np.testing.assert_allclose(view.weights.T @ S @ view.weights, np.eye(3), atol=1e-8)
            np.testing.assert_allclose(view.mean, Phi.mean(0), atol=1e-12)

    @every_estimator
    def test_what_each_view_was_fitted_with_is_in_the_log(self, two_views, estimator, caplog):
        caplog.set_level("INFO", "knoi")
        model = small(estimator).fit(*two_views)
        last = caplog.messages[-2:]
        for name, text, width in zip("XY", last, model.width_, strict=True):
            assert text.startswith(f"view {name}: ")
            assert ("width=" in text) == (width is not None)
            assert width is None or f"{width:.4g}" in text
            assert ("reg 0.001" in text) == hasattr(model, "reg_")

    @every_estimator
    def test_score_is_the_sum_of_correlations_of_the_projections(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).fit(X[:150], Y[:150])
        Zx, Zy = model.transform(X[150:], Y[150:])
        expected = sum(np.corrcoef(Zx[:, i], Zy[:, i])[0, 1] for i in range(2))
        assert model.score(X[150:], Y[150:]) == pytest.approx(expected, abs=1e-10)

    @every_estimator
    def test_independent_views_score_about_0_on_held_out_rows(self, estimator):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((1200, 4)), rng.standard_normal((1200, 4))
        model = small(estimator, reg=1e-2, rank=50).fit(X[:400], Y[:400])
        # Each of the two correlations of 800 rows has a standard deviation of 0.035.
        assert abs(model.score(X[400:], Y[400:])) < 0.2
        assert model.correlations_.sum() > model.score(X[400:], Y[400:]) + 0.1

    @every_estimator
    def test_views_are_projected_together_or_alone(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator, rank=50)
        Zx, Zy = model.fit_transform(X, Y)
        for found, expected in zip(model.transform(X, Y), (Zx, Zy), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(model.transform(X), Zx)
        np.testing.assert_array_equal(model.transform_y(Y), Zy)
        np.testing.assert_allclose(model.transform(X[5:6]), Zx[5:6], atol=1e-9)
        sizes = {"LinearCCA": (6, 4), "KernelCCA": (200, 200), "DeepCCA": (8, 8)}
        M = sizes.get(estimator.__name__, (50, 50))
        assert (model.x_weights_.shape, model.y_weights_.shape) == ((M[0], 2), (M[1], 2))
        assert (model.x_mean_.shape, model.y_mean_.shape) == (M[:1], M[1:])
        assert (model.n_features_in_, model.n_features_y_) == (6, 4)

    @pytest.mark.parametrize(
        "state", [lambda: 7, lambda: np.random.RandomState(7), lambda: np.random.default_rng(7)]
    )
    def test_random_state_makes_a_fit_repeatable(self, two_views, state):
        one, two = (small(FourierCCA, random_state=state()).fit(*two_views) for _ in range(2))
        np.testing.assert_array_equal(one.x_weights_, two.x_weights_)
        other = small(FourierCCA, random_state=8).fit(*two_views)
        assert not np.array_equal(one.correlations_, other.correlations_)


@pytest.fixture(scope="module", params=[NystromCCA, KernelCCA, KNOI])
def fitted(request):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (60, 4)) * (rng.random((60, 4)) < 0.6)
    Y = X[:, :3] + rng.integers(0, 3, (60, 3))
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    for view in (X, Y):
        view.setflags(write=False)
    return request.param, well_conditioned(request.param).fit(X, Y), X, Y


def well_conditioned(estimator):
    """A model that is the same in float32: with fewer features for KNOI."""
    few = {"rank": 10, "approximation": "fourier"} if estimator is KNOI else {}
    return small(estimator, reg=1e-2, **few)


@pytest.mark.filterwarnings("ignore:Y does not have valid feature names")  # in the Parquet file
class TestInputTypes:
    def assert_same(self, fitted, A, B, tolerance=1e-8):
        estimator, expected, X, Y = fitted
        model = well_conditioned(estimator).fit(A, B)
        assert_same_model(model, expected, X, Y, tolerance)
        Zx, Zy = model.transform(A, B)
        np.testing.assert_allclose(Zx, model.transform(X), atol=tolerance * 100)
        np.testing.assert_allclose(Zy, model.transform_y(Y), atol=tolerance * 100)

    def test_lists_and_strided_arrays(self, fitted):
        self.assert_same(fitted, fitted[2].tolist(), fitted[3].tolist())
        self.assert_same(fitted, np.asfortranarray(fitted[2]), fitted[3][::-1][::-1])

    @pytest.mark.parametrize("dtypes", [("u1", "f8"), ("i2", "f2"), ("f4", "f4")])
    def test_narrow_numbers(self, fitted, dtypes):
        self.assert_same(fitted, fitted[2].astype(dtypes[0]), fitted[3].astype(dtypes[1]), 2e-4)

    @pytest.mark.parametrize(
        "kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix, pd.DataFrame, torch.tensor]
    )
    def test_sparse_arrays_frames_and_tensors(self, fitted, kind):
        self.assert_same(fitted, kind(fitted[2]), kind(fitted[3]))

    def test_files(self, fitted, tmp_path):
        *_, X, Y = fitted
        np.save(tmp_path / "x.npy", X)
        pd.DataFrame(Y, columns=list("abc")).to_parquet(tmp_path / "y.parquet")
        with h5py.File(tmp_path / "views.h5", "w") as file:
            file["left"], file["right"] = X, Y
        self.assert_same(fitted, tmp_path / "x.npy", str(tmp_path / "y.parquet"))
        self.assert_same(fitted, f"{tmp_path}/views.h5:/left", f"{tmp_path}/views.h5:/right")
