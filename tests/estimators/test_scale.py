"""The scale of columns: standardised, as they are, or whichever does better on held-out rows."""

import logging

import numpy as np
import pytest
import scipy.sparse

import knoi
from knoi import KNOI, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.estimators.setup import column_spreads
from knoi.exceptions import InputError
from knoi.features import Identity
from knoi.features.composite import Chain
from knoi.features.metric import ColumnScale
from tests.estimators.models import (
    assert_same_model,
    assert_same_up_to_sign,
    closed_forms,
    made,
    related_views,
    reloaded,
    streamed,
)
from tests.estimators.test_metric import KERNEL_ESTIMATORS, few_columns_matter

each = pytest.mark.parametrize("estimator", KERNEL_ESTIMATORS)
UNITS = 10.0 ** np.array([3, -3, 0, 4])
PLAIN = {"metric": None, "width": "median", "rank": 150, "reg": 1e-3, "random_state": 0}


def in_units(n, seed=0):
    """Related views; the columns of X that matter have small units, the noise has large ones."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((n, 4)), rng.standard_normal((n, 3))
    Y[:, 0] = np.sin(1.5 * X[:, 1]) + 0.2 * Y[:, 0]
    Y[:, 1] = X[:, 2] ** 2 + 0.2 * Y[:, 1]
    return X * UNITS, Y


def fitted(estimator, views, **params):
    given = {"epochs": 10, "n_jobs": 1, **PLAIN, **params}
    return made(estimator, n_components=2, **given).fit(*views)


@each
def test_auto_standardises_where_units_hide_what_matters(estimator):
    train, test = in_units(600), in_units(600, seed=1)
    scores = {scale: fitted(estimator, train, scale=scale) for scale in (None, "standard", "auto")}
    assert scores["auto"].scale_[0] == scores["standard"].scale_[0] == "standard"
    assert scores[None].scale_ == (None, None)
    found = {scale: model.score(*test) for scale, model in scores.items()}
    assert found["standard"] > found[None] + 0.5
    assert found["auto"] > found["standard"] - 0.05
    assert scores["auto"].x_metric_ is None
    assert scores["auto"].column_importance()[0] is None


@each
@pytest.mark.parametrize("metric", [None, "learned"])
def test_standardised_columns_have_no_unit(estimator, metric):
    X, Y = (view.astype(np.float64) for view in few_columns_matter(1000))
    units = 10.0 ** np.random.default_rng(0).uniform(-3, 3, X.shape[1])
    given = {"scale": "standard", "metric": metric}
    one, other = (fitted(estimator, (view, Y), **given) for view in (X * units, X))
    Z, W = one.transform(X * units), other.transform(X)
    # Random features change with the signs of the directions of a metric.
    if metric is None or estimator in (NystromCCA, KernelCCA):
        assert_same_up_to_sign(Z, W, atol=5e-2 * np.abs(W).max())
    if metric:
        found = one.x_metric_ * np.outer(units, units)
        expected = other.x_metric_ * (np.trace(found) / np.trace(other.x_metric_))
        np.testing.assert_allclose(found, expected, atol=0.1 * expected.max())


@each
def test_scaled_models_are_saved_and_say_so(estimator, tmp_path, caplog):
    X, Y = in_units(400)
    with caplog.at_level(logging.INFO, logger="knoi"):
        model = fitted(estimator, (X, Y), scale=("standard", None))
    assert model.scale_ == ("standard", None)
    assert "standard columns" in caplog.text
    features = model.projection_.x.features
    assert isinstance(features, Chain)
    assert isinstance(features.first, ColumnScale)
    again = reloaded(model, tmp_path)
    assert again.scale_ == ("standard", None)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert "scale X" in model._repr_html_()


def test_columns_of_one_spread_are_not_tried(caplog):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    with caplog.at_level(logging.INFO, logger="knoi"):
        model = fitted(NystromCCA, (X, X[:, :2] + rng.standard_normal((400, 2))), scale="auto")
    assert model.scale_ == (None, None)
    assert "scale:" not in caplog.text


def test_few_rows_keep_their_columns():
    assert fitted(NystromCCA, in_units(80), rank=40, scale="auto").scale_ == (None, None)


def test_sparse_rows_stay_sparse_and_scale_as_dense_ones_do():
    X, Y = in_units(400)
    X[np.random.default_rng(0).random(X.shape) < 0.7] = 0.0
    sparse = scipy.sparse.csr_array(X)
    models = [fitted(NystromCCA, (view, Y), scale="standard") for view in (sparse, X)]
    assert scipy.sparse.issparse(models[0].projection_.x.features.second.columns.landmarks)
    assert_same_up_to_sign(models[0].transform(sparse), models[1].transform(X), atol=1e-4)
    found, expected = (column_spreads(view, np.float64) for view in (sparse, X))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_spreads_are_those_of_the_formula_at_any_size_of_the_numbers():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5)) * 10.0 ** np.array([-120, -3, 0, 3, 120])
    X[:, 2] = 0.1  # does not vary
    C = X[:, [1, 3]] - X[:, [1, 3]].mean(axis=0)
    spread, deviation = column_spreads(X, np.float64)
    np.testing.assert_allclose(spread[[1, 3]], np.mean(C**4, axis=0) ** 0.25)
    np.testing.assert_allclose(deviation, np.where(spread > 0, X.std(axis=0), 0.0))
    assert spread[2] == deviation[2] == 0
    assert (spread[[0, 4]] > 0).all()
    assert column_spreads(scipy.sparse.csr_array(np.full((9, 1), 0.1)), np.float64)[0] == 0
    integers = rng.integers(0, 255, (50, 3)).astype(np.uint8)
    np.testing.assert_allclose(column_spreads(integers, np.float32)[1], integers.std(axis=0))


def test_a_constant_column_counts_for_nothing():
    X, Y = in_units(300)
    X[:, 0] = 7.0
    model = fitted(NystromCCA, (X, Y), scale="standard")
    changed = X.copy()
    changed[:, 0] = -1e6
    np.testing.assert_allclose(model.transform(changed), model.transform(X))


def test_linear_cca_regularises_standardised_columns():
    X, Y = in_units(500)
    own = {"reg": 1e-2, "n_jobs": 1}
    model = LinearCCA(2, scale="standard", **own).fit(X, Y)
    deviations = X.std(axis=0), Y.std(axis=0)
    scaled = LinearCCA(2, scale=None, **own).fit(X / deviations[0], Y / deviations[1])
    assert model.scale_ == ("standard", "standard")
    assert_same_up_to_sign(model.transform(X), scaled.transform(X / deviations[0]), atol=1e-9)
    assert_same_up_to_sign(model.x_weights_ * deviations[0][:, None], scaled.x_weights_, atol=1e-9)
    np.testing.assert_allclose(model.correlations_, scaled.correlations_)
    np.testing.assert_allclose(model.x_mean_, X.mean(axis=0))
    # With a number for reg, "auto" leaves the columns as they are.
    assert LinearCCA(2, **own).fit(X, Y).scale_ == (None, None)


def test_scale_does_not_matter_to_linear_cca_without_a_regulariser():
    X, Y = related_views(300)
    models = [LinearCCA(2, reg=0, scale=scale).fit(X, Y) for scale in (None, "standard")]
    assert_same_model(*models, X, Y)


def test_linear_cca_chooses_by_held_out_rows():
    """Noise in small units is left out by reg on columns as they are, or the other way round."""
    rng = np.random.default_rng(0)
    for unit in (1e-4, 1e4):
        Y = rng.standard_normal((3000, 3))
        X = np.hstack([Y + rng.standard_normal((3000, 3)), unit * rng.standard_normal((3000, 60))])
        train, test = (X[:160], Y[:160]), (X[160:], Y[160:])
        models = {
            scale: LinearCCA(3, scale=scale).fit(*train) for scale in (None, "standard", "auto")
        }
        scores = {scale: model.score(*test) for scale, model in models.items()}
        better = None if unit < 1 else "standard"
        assert scores[better] == max(scores.values())
        assert scores[better] > min(scores.values()) + 0.1
        assert models["auto"].scale_ == (better, better)


@closed_forms
def test_pieces_of_a_stream_have_the_scale_of_all_or_of_the_first(estimator):
    X, Y = in_units(600)
    model = made(estimator, n_components=2, scale="standard", **PLAIN)
    pieces = streamed(model, X, Y, [0, 300, 600])
    assert pieces.scale_ == ("standard", "standard")
    if estimator is LinearCCA:
        whole = made(estimator, n_components=2, scale="standard", **PLAIN).fit(X, Y)
        assert_same_model(pieces, whole, X, Y)


def test_a_run_of_training_keeps_its_scale(tmp_path):
    views = in_units(1200)
    given = {"batch_size": 200, "epochs": 2, "scale": "standard", "solver": "stochastic"}
    model = fitted(KNOI, views, checkpoint=tmp_path, **given)
    again = made(KNOI, n_components=2, n_jobs=1, **PLAIN, checkpoint=tmp_path, **given)
    again.fit(*views, resume=True)
    assert again.scale_ == ("standard", "standard")
    np.testing.assert_array_equal(again.transform(views[0]), model.transform(views[0]))
    solved = fitted(KNOI, views, scale="standard", epochs=None)
    assert solved.stopped_ == "closed form"
    assert solved.scale_ == ("standard", "standard")


def test_functions_as_kernels():
    seen = []

    def kernel(A, B):
        seen.append(np.abs(A).max())
        return A @ B.T + 1.0

    X, Y = in_units(300)
    assert fitted(NystromCCA, (X, Y), kernel=(kernel, "rbf")).scale_[0] is None
    seen.clear()
    fitted(NystromCCA, (X / UNITS[3], Y), kernel=(kernel, "rbf"), scale=("standard", None))
    assert max(seen) < 100


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"scale": "standart"}, "Did you mean 'standard'?"),
        ({"scale": 2.0}, "scale=2.0: wanted one of 'auto', 'standard', 'none', None"),
        ({"scale": ("auto", "auto", "auto")}, "has 3 entries"),
    ],
)
@pytest.mark.parametrize("estimator", [NystromCCA, LinearCCA])
def test_bad_values(estimator, params, text):
    with pytest.raises(InputError, match=text.replace("?", r"\?")):
        made(estimator, n_components=2, **params).fit(*related_views(60))


def test_where_there_are_no_columns_to_scale():
    X, Y = related_views(200)
    precomputed = KernelCCA(2, kernel=("precomputed", "rbf"), scale="standard")
    given = FourierCCA(2, rank=50, approximation=(Identity(4), "fourier"), scale="standard")
    linear = KNOI(2, kernel="linear", solver="stochastic", scale="standard")
    for model, view in ((precomputed, X @ X.T), (given, X), (linear, X)):
        with pytest.raises(InputError, match="scale='standard' for X: its features are given"):
            model.fit(view, Y)
        model.set_params(scale="auto").fit(view, Y)
        assert model.scale_[0] is None


def test_earlier_files_say_nothing_about_scale(tmp_path):
    model = knoi.LinearCCA(2, reg=0).fit(*related_views(60))
    del model.scale_
    assert not hasattr(reloaded(model, tmp_path), "scale_")
