"""Models that are saved and come back."""

import re

import numpy as np
import pandas as pd
import pytest

import knoi
from knoi import FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.exceptions import ModelFileError
from knoi.kernels import Chi2, Laplacian, Linear, Matern
from tests.estimators.models import small


class TestSaving:
    @pytest.mark.parametrize(
        "model",
        [
            LinearCCA(3, reg=(1e-3, 0.0), memory_budget="1GiB", n_jobs=1),
            KernelCCA(2, kernel=(Chi2(2.0), "polynomial"), width=(1.0, "median")),
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
        message = f"{path} holds a 'LinearCCA', not a KernelCCA. Load it with knoi.load"
        with pytest.raises(ModelFileError, match=f"^{re.escape(message)}"):
            KernelCCA.load(path)
