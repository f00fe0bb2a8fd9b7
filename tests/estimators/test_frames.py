"""Data frames on both sides: names of columns, paired indices, frames as results, a 1-D Y."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from knoi import KNOI, LinearCCA, NystromCCA
from knoi.exceptions import InputError, InputTypeError
from tests.estimators.models import every_estimator, related_views, reloaded, small

X_NAMES, Y_NAMES = list("abcd"), list("uvw")


@pytest.fixture
def frames():
    """Two frames with the same index."""
    X, Y = related_views(200)
    index = [f"row {i}" for i in range(200)]
    return pd.DataFrame(X, index, X_NAMES), pd.DataFrame(Y, index, Y_NAMES)


@pytest.fixture
def model(frames):
    return LinearCCA(2).fit(*frames)


class TestNames:
    @every_estimator
    def test_names_of_both_views_are_remembered_and_saved(self, estimator, frames, tmp_path):
        model = small(estimator).fit(*frames)
        for one in (model, reloaded(model, tmp_path)):
            assert one.feature_names_in_.tolist() == X_NAMES
            assert one.feature_names_y_in_.tolist() == Y_NAMES
            one.score(*frames)
            with pytest.raises(InputError, match=r"^Y: The feature names should match"):
                one.transform_y(frames[1][["v", "u", "w"]])

    @pytest.mark.parametrize(
        ("columns", "lines"),
        [
            (list("vuw"), "Feature names must be in the same order as they were in fit."),
            (list("uvz"), "Feature names unseen at fit time:\n- z\nFeature names seen at fit time"),
            (list("uv"), "Feature names seen at fit time, yet now missing:\n- w\nPass the columns"),
        ],
    )
    def test_y_is_checked_as_x_is(self, frames, model, columns, lines):
        X, Y = frames
        other = Y.reindex(columns=columns, fill_value=0.0)
        for call in (
            lambda: model.transform_y(other),
            lambda: model.transform(X, other),
            lambda: model.predict_x(other),
            lambda: model.score(X, other),
            lambda: model.redundancy(X, other),
            lambda: model.permutation_test(X, other),
            lambda: LinearCCA().partial_fit(X, Y).partial_fit(X, other),
        ):
            with pytest.raises(InputError, match=f"^Y: The feature names .*\n{re.escape(lines)}"):
                call()

    def test_a_view_with_names_and_one_without(self, frames, model):
        X, Y = frames
        missing = "^Y does not have valid feature names, but LinearCCA was fitted with feature"
        with pytest.warns(UserWarning, match=missing):
            model.score(X, Y.to_numpy())
        unnamed = LinearCCA().fit(X, Y.to_numpy())
        assert not hasattr(unnamed, "feature_names_y_in_")
        with pytest.warns(UserWarning, match="^Y has feature names, but LinearCCA was fitted with"):
            unnamed.transform_y(Y)

    def test_a_fit_without_names_forgets_them(self, frames, model):
        model.fit(*(view.to_numpy() for view in frames))
        assert not hasattr(model, "feature_names_in_")
        assert not hasattr(model, "feature_names_y_in_")
        numbered = [view.set_axis(range(view.shape[1]), axis=1) for view in frames]
        assert not hasattr(model.fit(*numbered), "feature_names_y_in_")

    def test_names_of_files_and_of_other_libraries_count(self, frames, model, tmp_path):
        X, Y = frames
        X.to_csv(tmp_path / "X.csv", index=False)
        Y.to_parquet(tmp_path / "Y.parquet")
        files = tmp_path / "X.csv", tmp_path / "Y.parquet"
        for views in (files, [pl.from_pandas(view) for view in frames]):
            assert LinearCCA().fit(*views).feature_names_y_in_.tolist() == Y_NAMES
            assert model.score(*views) == pytest.approx(model.score(X, Y))
        X[["b", "a", "c", "d"]].to_csv(files[0], index=False)
        with pytest.raises(InputError, match=r"^X: The feature names .*\n.*the same order"):
            model.score(*files)

    def test_names_of_different_kinds(self, frames):
        X, Y = frames
        with pytest.raises(InputTypeError, match=r"^Y has column names of which some are strings"):
            LinearCCA().fit(X, Y.set_axis(["u", "v", 3], axis=1))


class TestIndices:
    def calls(self, X, Y):
        fitted = LinearCCA(2).fit(X.to_numpy(), X.to_numpy())
        yield lambda: LinearCCA().fit(X, Y)
        yield lambda: LinearCCA().partial_fit(X, Y)
        yield lambda: KNOI(2, solver="stochastic", epochs=1, rank=20).partial_fit(X, Y)
        yield lambda: fitted.score(X, Y)
        yield lambda: LinearCCA().fit_transform(X, Y)

    @pytest.mark.filterwarnings("ignore:. has feature names")
    def test_different_indices_are_refused(self, frames):
        X, Y = frames
        for other in (Y[::-1], Y.reset_index(drop=True), Y["u"].sample(frac=1, random_state=0)):
            wanted = rf"^X and Y have different indices: row 0 is row 0 in X but {other.index[0]} "
            for call in self.calls(X, other):
                with pytest.raises(InputError, match=wanted + r"in Y.*Y = Y\.loc\[X\.index\]"):
                    call()

    def test_the_first_row_that_differs_is_named(self, frames):
        X, Y = frames
        index = [*Y.index[:150], "other", *Y.index[151:]]
        with pytest.raises(InputError, match="row 150 is row 150 in X but other in Y"):
            LinearCCA().fit(X, Y.set_axis(index))

    def test_missing_labels_are_equal(self, frames):
        X, Y = (view.set_axis([pd.NA, *range(199)]) for view in frames)
        LinearCCA().fit(X, Y)
        with pytest.raises(InputError, match="row 1 is 0 in X but 5 in Y"):
            LinearCCA().fit(X, Y.set_axis([pd.NA, 5, *range(1, 199)]))

    def test_equal_indices_and_views_without_one_are_paired_by_position(self, frames):
        X, Y = frames
        expected = LinearCCA(2).fit(X, Y).correlations_
        reset = [view.reset_index(drop=True) for view in frames]
        for views in (reset, (X, Y.to_numpy()), (X, pl.from_pandas(Y)), (X.loc[Y.index], Y)):
            np.testing.assert_allclose(LinearCCA(2).fit(*views).correlations_, expected)
        shuffled = Y.sample(frac=1, random_state=0)
        aligned = LinearCCA(2).fit(X, shuffled.loc[X.index])
        np.testing.assert_allclose(aligned.correlations_, expected)


class TestResults:
    def test_every_table_is_a_frame_with_names_and_index(self, frames, model):
        X, Y = frames
        arrays = model.transform(X, Y), model.predict(X), model.predict_x(Y), model.x_loadings_
        model.set_output(transform="pandas")
        Zx, Zy = model.transform(X, Y)
        x_variates, y_variates = ["linearcca0", "linearcca1"], ["linearcca_y0", "linearcca_y1"]
        X_hat, Y_hat = model.inverse_transform(Zx, Zy)
        for found, columns, index in (
            (Zx, x_variates, X.index),
            (Zy, y_variates, X.index),
            (model.transform(X), x_variates, X.index),
            (model.transform_y(Y), y_variates, X.index),
            *zip(model.fit_transform(X, Y), (x_variates, y_variates), (X.index,) * 2, strict=True),
            (model.predict(X), Y_NAMES, X.index),
            (model.predict_x(Y), X_NAMES, X.index),
            (X_hat, X_NAMES, X.index),
            (Y_hat, Y_NAMES, X.index),
            (model.inverse_transform(Zx), X_NAMES, X.index),
            (model.x_loadings_, x_variates, X_NAMES),
            (model.y_loadings_, y_variates, Y_NAMES),
            (model.x_cross_loadings_, y_variates, X_NAMES),
            (model.y_cross_loadings_, x_variates, Y_NAMES),
        ):
            assert isinstance(found, pd.DataFrame)
            assert list(found.columns) == list(columns)
            assert list(found.index) == list(index)
        found = (Zx, Zy), model.predict(X), model.predict_x(Y), model.x_loadings_
        for one, other in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)
        assert list(model.get_feature_names_out()) == x_variates

    def test_polars(self, frames, model):
        X, Y = frames
        values = model.transform_y(Y), model.y_cross_loadings_
        model.set_output(transform="polars")
        Zx, Zy = model.transform(pl.from_pandas(X), pl.from_pandas(Y))
        assert (Zx.columns, Zy.columns) == (
            ["linearcca0", "linearcca1"],
            ["linearcca_y0", "linearcca_y1"],
        )
        np.testing.assert_array_equal(Zy.to_numpy(), values[0])
        assert model.predict(X).columns == Y_NAMES
        loadings = model.y_cross_loadings_
        assert loadings.columns == ["column", "linearcca0", "linearcca1"]
        assert loadings["column"].to_list() == Y_NAMES
        np.testing.assert_array_equal(loadings[:, 1:].to_numpy(), values[1])

    def test_without_names(self):
        X, Y = related_views(100)
        model = NystromCCA(2, rank=20, random_state=0).fit(X, Y).set_output(transform="pandas")
        assert list(model.predict(X).columns) == ["y0", "y1", "y2"]
        assert list(model.transform_y(Y).index) == list(range(100))
        assert list(model.x_loadings_.index) == ["x0", "x1", "x2", "x3"]


class TestOneColumn:
    @pytest.mark.parametrize(
        "as_column",
        [
            np.asarray,
            list,
            tuple,
            torch.from_numpy,
            pd.Series,
            lambda y: pl.Series("y", y),
            lambda y: y.astype(object),
        ],
    )
    def test_a_y_of_one_dimension_is_one_column(self, as_column):
        X, Y = related_views(200)
        y = as_column(Y[:, 0].copy())
        model, expected = (LinearCCA(1).fit(X, one) for one in (y, Y[:, :1]))
        assert model.n_features_y_ == 1
        np.testing.assert_array_equal(model.correlations_, expected.correlations_)
        np.testing.assert_array_equal(model.transform(X, y)[1], expected.transform_y(Y[:, :1]))
        assert model.score(X, y) == expected.score(X, Y[:, :1])
        assert model.predict(X).shape == (200, 1)

    def test_a_series_has_a_name_and_an_index(self, frames):
        X, Y = frames
        model = LinearCCA(1).fit(X, Y["v"]).set_output(transform="pandas")
        assert model.feature_names_y_in_.tolist() == ["v"]
        assert list(model.predict(X).columns) == ["v"]
        assert list(model.transform_y(Y["v"]).index) == list(X.index)
        with pytest.raises(InputError, match=r"^Y: The feature names .*\n.*unseen.*\n- w"):
            model.transform_y(Y["w"])

    def test_x_needs_two_dimensions(self):
        X, Y = related_views(50)
        with pytest.raises(InputError, match=r"^X: Expected 2D array, got 1D .*reshape\(-1, 1\)"):
            LinearCCA(1).fit(X[:, 0], Y)
        with pytest.raises(InputTypeError, match=r"^Y has the string 'a' at row 0, column 0"):
            LinearCCA(1).fit(X, np.array(["a"] * 50, dtype=object))
