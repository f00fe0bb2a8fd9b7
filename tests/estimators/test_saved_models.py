"""Models saved and loaded, and model files of earlier versions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import knoi
from knoi import DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.callbacks.history import COLUMNS
from knoi.exceptions import ModelFileError
from knoi.features import KernelColumns, RandomFourier
from knoi.kernels import RBF, Chi2, Laplacian, Linear, Matern
from knoi.projection import Projection
from tests.estimators.models import (
    assert_equal_models,
    every_solver,
    related_views,
    reloaded,
    small,
    small_knoi,
)


@pytest.mark.parametrize(
    "model",
    [
        LinearCCA(3, reg=(1e-3, 0.0), memory_budget="1GiB", n_jobs=1),
        KernelCCA(2, kernel=(Chi2(2.0), "polynomial"), width=(1.0, "median")),
        FourierCCA(2, rank=31, paired=True, kernel=Matern(nu=1.5), random_state=3),
        FourierCCA(2, rank=30, random_state=np.random.default_rng(0), device="cpu"),
        NystromCCA(2, rank=30, kernel=(Laplacian(), Linear()), landmarks="kmeans"),
        NystromCCA(np.int64(2), rank=np.int32(30), reg=np.float64(1e-3), width=np.float32(2)),
        DoublyStochasticCCA(2, rank=32, batch_size=50),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_comes_back_as_it_was(two_views, tmp_path, model):
    X, Y = (np.abs(view) for view in two_views)
    X = pd.DataFrame(X, columns=list("abcdef"))
    model.fit(X, Y).save(tmp_path / "model.knoi")
    expected = {k: v for k, v in model.get_params().items() if k != "random_state"}
    for again in (type(model).load(tmp_path / "model.knoi"), knoi.load(tmp_path / "model.knoi")):
        assert type(again) is type(model)
        assert {k: v for k, v in again.get_params().items() if k != "random_state"} == expected
        for Z, W in zip(again.transform(X, Y), model.transform(X, Y), strict=True):
            np.testing.assert_array_equal(Z, W)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.predict_x(Y), model.predict_x(Y))
        for name in ("correlations_", "x_weights_", "y_mean_", "x_loadings_", "y_cross_loadings_"):
            np.testing.assert_array_equal(getattr(again, name), getattr(model, name), name)
        assert (again.n_features_in_, again.n_features_y_) == (6, 4)
        assert list(again.feature_names_in_) == list("abcdef")
        again.fit(X, Y)


def test_float32_models_stay_float32(two_views, tmp_path):
    X, Y = (view.astype(np.float32) for view in two_views)
    model = small(FourierCCA).fit(X, Y)
    again = reloaded(model, tmp_path)
    assert again.projection_.x.features.W.dtype == np.float32
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_load_by_the_wrong_class(two_views, tmp_path):
    path = tmp_path / "m.knoi"
    LinearCCA().fit(*two_views).save(path)
    with pytest.raises(ModelFileError, match="holds a 'LinearCCA', not a KernelCCA"):
        KernelCCA.load(path)


def knoi_comes_back(model, directory, X, Y):
    again = reloaded(model, directory)
    assert_equal_models(again, model)
    assert again.history_ == model.history_
    assert again.stopped_ == model.stopped_
    for Z, W in zip(again.transform(X, Y), model.transform(X, Y), strict=True):
        np.testing.assert_array_equal(Z, W)
    return again


@every_solver
def test_history_and_parameters_are_restored(tmp_path, solver):
    X, Y = related_views(1200)
    model = small_knoi(solver, epochs=3, checkpoint=tmp_path / "run").fit(X, Y)
    again = knoi_comes_back(model, tmp_path, X, Y)
    assert again.get_params() == model.get_params() | {"checkpoint": str(tmp_path / "run")}


def test_a_stream_is_saved_as_a_model(tmp_path):
    X, Y = related_views(400)
    assert knoi_comes_back(small_knoi().partial_fit(X, Y), tmp_path, X, Y).stopped_ is None


@pytest.mark.parametrize("which", ["one for both", "a pair", "one and a name"])
def test_fitted_maps_given_as_parameters_are_restored(tmp_path, which):
    X, _ = related_views(400)
    Y = X[:, ::-1] + 0.1
    fourier = RandomFourier.fit(X, RBF(2.0), 30, 5, 0)
    columns = KernelColumns(RBF(3.0), Y[:20].copy())
    given = {"one for both": fourier, "a pair": (fourier, columns)}
    approximation = given.get(which, ("nystrom", columns))
    model = small_knoi(approximation=approximation, epochs=3).fit(X, Y)
    again = knoi_comes_back(model, tmp_path, X, Y)
    maps = again.approximation if which != "one for both" else (again.approximation,) * 2
    projection = model.projection_.x, model.projection_.y
    for found, expected in zip(maps, projection, strict=True):
        if found != "nystrom":
            np.testing.assert_array_equal(found.transform(X), expected.features.transform(X))
    assert_equal_models(again.fit(X, Y), model)


class TestFilesOfEarlierVersions:
    """`files/format_1_*` were written before parameters and columns of the history were renamed."""

    FILES = Path(__file__).with_name("files")

    @pytest.mark.parametrize("name", ["knoi", "nystrom"])
    def test_they_load_and_project(self, name):
        model = knoi.load(self.FILES / f"format_1_{name}.knoi")
        with np.load(self.FILES / "format_1_expected.npz") as expected:
            Zx, Zy = model.transform(expected["X"], expected["Y"])
            np.testing.assert_allclose(Zx, expected[f"{name}_x"], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(Zy, expected[f"{name}_y"], rtol=1e-9, atol=1e-12)
            predicted = model.predict(expected["X"])
        assert not hasattr(model, "feature_names_y_in_")
        assert predicted.shape == (5, 2)
        assert np.isfinite(predicted).all()

    def test_parameters_and_columns_have_their_new_names(self, tmp_path):
        model = knoi.load(self.FILES / "format_1_knoi.knoi")
        assert model.lr_decay == 3.0
        assert model.callbacks == ()
        assert tuple(model.history_) == COLUMNS
        assert model.history_["rolled_back"] == [False] * 6
        assert reloaded(model, tmp_path).get_params() == model.get_params()

    def test_correlations_without_singular_values_are_read_from_the_structure(
        self, two_views, tmp_path, monkeypatch
    ):
        model = LinearCCA(3, reg=0.5).fit(*two_views)
        state = model.projection_.state_dict()
        state["correlations"] = state.pop("singular_values")
        monkeypatch.setattr(Projection, "state_dict", lambda _projection: state)
        again = reloaded(model, tmp_path)
        np.testing.assert_allclose(again.correlations_, model.correlations_, atol=1e-9)

    def test_random_fourier_features(self):
        model = knoi.load(self.FILES / "format_1_fourier.knoi")
        assert (type(model), model.rank, model.width) == (FourierCCA, 6, 2.0)
        X = [[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]
        expected = [[-1.38413165, 7.91413494], [-0.1800575, -0.62143477]]
        np.testing.assert_allclose(model.transform(X), expected, rtol=1e-7)
        np.testing.assert_allclose(model.predict(X[:1]), [[1.02220616, 2.34257834]], rtol=1e-7)
