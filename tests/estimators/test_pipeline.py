"""`TwoViewPipeline`: transformers and columns per view, tuned and saved as a whole."""

import json
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)

from knoi import LinearCCA, NystromCCA, TwoViewPipeline, load
from knoi.arrays.random import View
from knoi.exceptions import InputError, InputTypeError, ModelFileError
from knoi.persistence import read_model, write_model
from tests.estimators.models import every_estimator, related_views, small

NAMES = list("abcdefg")


def table(n=200, seed=0):
    """A frame whose last three columns are the second view; two of the others miss values."""
    X, Y = related_views(n, seed=seed)
    frame = pd.DataFrame(np.hstack([X, 100 * Y + 7]), columns=NAMES, index=3 * np.arange(n))
    frame.iloc[::7, 1] = np.nan
    frame.iloc[::11, 3] = np.nan
    return frame


def imputing(**params):
    prepared = make_pipeline(SimpleImputer(), StandardScaler())
    return TwoViewPipeline(
        LinearCCA(2, reg=1e-3), prepared, StandardScaler(), x_columns=NAMES[:4], **params
    )


@every_estimator
def test_is_the_estimator_on_transformed_views(estimator):
    X, Y = related_views(200)
    pipeline = TwoViewPipeline(small(estimator, n_components=2), StandardScaler(), PCA(2))
    pipeline.fit(X, Y)
    views = StandardScaler().fit_transform(X), PCA(2).fit_transform(Y)
    alone = small(estimator, n_components=2).fit(*views)
    for Z, W in zip(pipeline.transform(X, Y), alone.transform(*views), strict=True):
        np.testing.assert_allclose(Z, W)
    np.testing.assert_allclose(pipeline.transform_y(Y), alone.transform_y(views[1]))
    assert pipeline.score(X, Y) == pytest.approx(alone.score(*views))
    np.testing.assert_allclose(
        pipeline.predict_x(Y), StandardScaler().fit(X).inverse_transform(alone.predict_x(views[1]))
    )
    expected = alone.permutation_test(*views, 19, 0)
    np.testing.assert_array_equal(
        pipeline.permutation_test(X, Y, 19, 0).p_values, expected.p_values
    )
    again = clone(pipeline).fit_transform(X, Y)
    np.testing.assert_allclose(again[0], pipeline.transform(X))


def test_one_table_is_two_views():
    frame = table()
    pipeline = imputing().fit(frame)
    assert pipeline.x_columns_ == NAMES[:4]
    assert pipeline.y_columns_ == NAMES[4:]  # the others
    two = imputing().fit(frame[NAMES[:4]], frame[NAMES[4:]])
    assert pipeline.score(frame) == two.score(frame, frame[NAMES[4:]])
    Zx, Zy = clone(pipeline).fit_transform(frame)
    np.testing.assert_array_equal(Zx, pipeline.transform(frame))
    np.testing.assert_array_equal(Zy, pipeline.transform_y(frame))
    np.testing.assert_array_equal(pipeline.transform(frame[NAMES[:4]]), Zx)  # its own columns do
    assert pipeline.permutation_test(frame, n_permutations=19).p_values.shape == (2,)


@pytest.mark.parametrize("kind", ["array", "sparse", "polars", "positions of a frame", "file"])
def test_other_tables(kind, tmp_path):
    frame = table().fillna(0.5)
    expected = imputing().fit(frame).transform(frame)
    given = {"x_columns": [0, 1, 2, 3]}
    rows = frame.to_numpy()
    if kind == "sparse":
        pipeline = TwoViewPipeline(LinearCCA(2, reg=1e-3), y_columns=[4, 5, 6])
        dense = TwoViewPipeline(LinearCCA(2, reg=1e-3), y_columns=[4, 5, 6]).fit(rows)
        sparse = scipy.sparse.coo_array(rows)
        found = pipeline.fit(sparse).transform(sparse)
        np.testing.assert_allclose(found, dense.transform(rows), atol=1e-8)
        return
    if kind == "polars":
        rows, given = pl.DataFrame(frame), {"x_columns": NAMES[:4]}
    elif kind == "positions of a frame":
        rows = frame
    elif kind == "file":
        frame.to_csv(tmp_path / "t.csv", index=False)
        rows, given = tmp_path / "t.csv", {"x_columns": NAMES[:4]}
    pipeline = imputing().set_params(**given).fit(rows)
    np.testing.assert_allclose(pipeline.transform(rows), expected)


def test_predicts_in_the_units_of_the_table():
    frame = table()
    pipeline = imputing().fit(frame)
    predicted, Y = pipeline.predict(frame), frame[NAMES[4:]].to_numpy()
    assert np.abs(predicted.mean(axis=0) - Y.mean(axis=0)).max() < 1e-6 * Y.std()
    assert np.mean((predicted - Y) ** 2) < 0.9 * Y.var()
    X = pipeline.predict_x(frame)  # imputed values stay as they are
    assert X.shape == (200, 4)
    np.testing.assert_allclose(X.mean(axis=0), frame[NAMES[:4]].mean().to_numpy(), atol=1e-6)
    # What cannot be inverted is predicted as the transformer has it.
    no_inverse = imputing(y_columns=NAMES[4:]).set_params(y=Normalizer()).fit(frame)
    assert np.abs(no_inverse.predict(frame)).max() < 2


def test_is_tuned_as_a_whole():
    frame = table()
    pipeline = imputing()
    assert pipeline.get_params()["x__simpleimputer__strategy"] == "mean"
    scores = cross_val_score(pipeline, frame, cv=3)
    assert scores.shape == (3,)
    assert (scores > 1).all()
    grid = {
        "estimator__reg": [1e-3, 1e6],
        "x__simpleimputer__strategy": ["mean", "median"],
        "y": [None, StandardScaler()],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(frame)
    assert search.best_params_["estimator__reg"] == 1e-3
    assert search.best_score_ > 1
    X, Y = related_views(200)
    two = TwoViewPipeline(LinearCCA(2), StandardScaler())
    assert (cross_val_score(two, X, Y, cv=3) > 1).all()
    weights = np.ones(200)
    weighted = cross_val_score(two, X, Y, cv=3, params={"sample_weight": weights})
    np.testing.assert_allclose(weighted, cross_val_score(two, X, Y, cv=3), atol=1e-6)


def test_transformers_see_training_rows_only():
    X, Y = related_views(90)
    seen = []

    def spy(rows):
        seen.append(len(rows))
        return rows

    cross_val_score(TwoViewPipeline(LinearCCA(1), FunctionTransformer(spy)), X, Y, cv=3)
    assert seen == [60, 30] * 3


def test_names_and_index_reach_the_estimator():
    frame = table()
    pipeline = imputing().set_output(transform="pandas").fit(frame)
    Z = pipeline.transform(frame)
    assert list(Z.index) == list(frame.index)
    assert list(Z.columns) == list(pipeline.get_feature_names_out()) == ["linearcca0", "linearcca1"]
    assert list(pipeline.estimator_.feature_names_in_) == NAMES[:4]
    assert isinstance(clone(pipeline).fit(frame).transform(frame), pd.DataFrame)


def test_a_failed_fit_leaves_the_pipeline_as_it_was():
    frame = table()
    pipeline = imputing().fit(frame)
    expected = pipeline.transform(frame)
    bad = frame.copy()
    bad.iloc[5, 5] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        pipeline.fit(bad)
    np.testing.assert_array_equal(pipeline.transform(frame), expected)
    with pytest.raises(ValueError, match=r"NaN at row 0.*SimpleImputer"):
        TwoViewPipeline(LinearCCA(1), x_columns=["b"]).fit(frame)


TRANSFORMERS = {
    "StandardScaler": StandardScaler(),
    "no mean": StandardScaler(with_mean=False),
    "MinMaxScaler": MinMaxScaler((-1, 2), clip=True),
    "MaxAbsScaler": MaxAbsScaler(),
    "RobustScaler": RobustScaler(quantile_range=(10, 90)),
    "Normalizer": Normalizer("l1"),
    "PCA": PCA(2, whiten=True, random_state=0),
    "TruncatedSVD": TruncatedSVD(2, random_state=np.random.RandomState(0)),
    "TfidfTransformer": TfidfTransformer(),
    "nothing": None,
    "Pipeline": make_pipeline(SimpleImputer(strategy="median"), "passthrough", RobustScaler()),
    "pipelines": make_pipeline(make_pipeline(MaxAbsScaler()), PCA(3)),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("frames", [False, True])
def test_saved_and_loaded(name, frames, tmp_path):
    views = [np.abs(view) for view in related_views(200)]
    if frames:
        views = [pd.DataFrame(v, columns=list("abcd")[: v.shape[1]]) for v in views]
    X, Y = views
    pipeline = TwoViewPipeline(LinearCCA(2, reg=1e-2), TRANSFORMERS[name], StandardScaler())
    pipeline.fit(X, Y).save(tmp_path / "p.knoi")
    again = load(tmp_path / "p.knoi")
    assert isinstance(again, TwoViewPipeline)
    # Up to rounding: arrays that were in Fortran order are stored in C order.
    for Z, W in zip(again.transform(X, Y), pipeline.transform(X, Y), strict=True):
        np.testing.assert_allclose(Z, W, atol=1e-12)
    np.testing.assert_allclose(again.predict(X), pipeline.predict(X), atol=1e-12)
    np.testing.assert_allclose(again.predict_x(Y), pipeline.predict_x(Y), atol=1e-12)
    again.save(tmp_path / "q.knoi")
    assert (tmp_path / "p.knoi").read_bytes() == (tmp_path / "q.knoi").read_bytes()
    # The parameters are kept, too.
    np.testing.assert_allclose(clone(again).fit(X, Y).transform(X), pipeline.transform(X))


def test_imputers_and_columns_are_saved(tmp_path):
    frame = table()
    pipeline = imputing().fit(frame)
    pipeline.save(tmp_path / "p.knoi")
    again = TwoViewPipeline.load(tmp_path / "p.knoi")
    assert again.y_columns_ == NAMES[4:]
    np.testing.assert_array_equal(again.transform(frame), pipeline.transform(frame))
    assert again.score(frame) == pipeline.score(frame)
    with pytest.raises(ModelFileError, match="holds a 'TwoViewPipeline', not a LinearCCA"):
        LinearCCA.load(tmp_path / "p.knoi")
    pipeline.estimator_.save(tmp_path / "m.knoi")
    with pytest.raises(ModelFileError, match="holds a 'LinearCCA', not a TwoViewPipeline"):
        TwoViewPipeline.load(tmp_path / "m.knoi")


@pytest.mark.parametrize(
    "strategy", [{"strategy": "most_frequent"}, {"strategy": "constant", "fill_value": 2.0}]
)
def test_imputers_of_other_kinds(strategy, tmp_path):
    frame = table()
    pipeline = imputing().set_params(x=SimpleImputer(**strategy)).fit(frame)
    pipeline.save(tmp_path / "p.knoi")
    again = load(tmp_path / "p.knoi")
    np.testing.assert_array_equal(again.transform(frame), pipeline.transform(frame))
    X = np.array([[-1.0, 2, -1], [3, 4, -1], [5, 7, -1]] * 10) + np.eye(30, 3)
    X[:, 2] = -1.0  # no value is known, and the column is left out
    X[0, 0] = -1.0
    imputer = SimpleImputer(missing_values=-1.0)
    with pytest.warns(UserWarning, match="Skipping features"):
        pipeline = TwoViewPipeline(LinearCCA(1), imputer).fit(X, X[:, :2])
    with pytest.warns(UserWarning, match="Skipping features"):
        expected = pipeline.transform(X)
    pipeline.save(tmp_path / "q.knoi")
    with pytest.warns(UserWarning, match="Skipping features"):
        np.testing.assert_array_equal(load(tmp_path / "q.knoi").transform(X), expected)


@pytest.mark.parametrize(
    ("transformer", "text"),
    [
        (FunctionTransformer(np.abs), "x has a FunctionTransformer"),
        (KNNImputer(), "x has a KNNImputer"),
        (make_pipeline(StandardScaler(), FunctionTransformer(np.abs)), "FunctionTransformer"),
        (SimpleImputer(strategy=np.nanmax), "strategy="),
        (SimpleImputer(add_indicator=True), "add_indicator"),
        (type("StandardScaler", (StandardScaler,), {})(), "x has a StandardScaler"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_before_it_is_written(transformer, text, tmp_path):
    X, Y = related_views(100)
    pipeline = TwoViewPipeline(LinearCCA(1), transformer).fit(X, Y)
    with pytest.raises(InputError, match=text) as error:
        pipeline.save(tmp_path / "p.knoi")
    assert "estimator_.save(path)" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_can_be_pickled():
    X, Y = related_views(100)
    pipeline = TwoViewPipeline(LinearCCA(1), FunctionTransformer(np.abs)).fit(X, Y)
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.transform(X), pipeline.transform(X))


def damaged(header, tensors, change):
    header = json.loads(json.dumps(header))
    tensors = dict(tensors)
    state = header["transformers"]["x"]["steps"]["1"]
    change(header, state, tensors)
    return header, tensors


def set_in(where, key, value):
    return lambda header, state, tensors: {"h": header, "s": state, "t": tensors}[where].update(
        {key: value}
    )


SCALE = "transformers/x/steps/1/fitted/scale_"


@pytest.mark.parametrize(
    "change",
    [
        set_in("s", "class", "FunctionTransformer"),
        set_in("s", "class", "os.system"),
        set_in("s", "class", ["StandardScaler"]),
        set_in("s", "params", {"func": "print"}),
        set_in("s", "params", {"with_mean": {"a": 1}}),
        set_in("s", "n_features_in_", 3),
        set_in("s", "n_features_in_", "4"),
        set_in("s", "feature_names_in_", ["a"]),
        set_in("s", "feature_names_in_", [1, 2, 3, 4]),
        set_in("t", SCALE, np.ones(3)),
        set_in("t", SCALE, np.ones((4, 4))),
        set_in("t", SCALE, np.full(4, np.nan)),
        set_in("h", "columns", [None]),
        set_in("h", "columns", [[1.5], None]),
        set_in("h", "transformers", {"x": None}),
        set_in("h", "estimator", {"class": "LinearCCA"}),
        lambda header, state, tensors: tensors.pop(SCALE),
        lambda header, state, tensors: header.update(estimator=header | {}),
    ],
)
def test_damaged_files_are_refused(change, tmp_path):
    pipeline = imputing().fit(table())
    pipeline.save(tmp_path / "p.knoi")
    model = read_model(tmp_path / "p.knoi")
    own = {k: v for k, v in model.header.items() if k not in ("format", "knoi_version", "sha256")}
    write_model(tmp_path / "q.knoi", *damaged(own, model.tensors, change))
    with pytest.raises(ModelFileError):
        load(tmp_path / "q.knoi")


@pytest.mark.parametrize(
    ("params", "data", "error", "text"),
    [
        ({}, (0,), InputError, r"fit got one table: wanted two, fit\(X, Y\), or x_columns"),
        ({"x_columns": ["a", "q"]}, (0,), InputError, "has no column 'q'"),
        ({"x_columns": ["a"], "y_columns": ["a", "b"]}, (0,), InputError, "share 'a'"),
        ({"x_columns": [0, 9]}, (0,), InputError, "x_columns has 9, but the table has 7 columns"),
        ({"x_columns": []}, (0,), InputTypeError, r"x_columns=\[\]: wanted a list of names"),
        ({"x_columns": [True, False]}, (0,), InputTypeError, "wanted a list of names"),
        ({"x_columns": [0, "a"]}, (0,), InputTypeError, "wanted a list of names"),
        ({"x_columns": ["a"]}, (1,), InputError, "has no names of columns"),
        ({"estimator": StandardScaler()}, (0, 0), InputTypeError, "wanted an estimator of knoi"),
    ],
)
def test_bad_input(params, data, error, text):
    tables = table().fillna(0), table().fillna(0).to_numpy()
    pipeline = TwoViewPipeline(LinearCCA(1)).set_params(**params)
    with pytest.raises(error, match=text):
        pipeline.fit(*(tables[i] for i in data))


def test_two_tables_are_needed_where_there_were_two():
    X, Y = related_views(60)
    pipeline = TwoViewPipeline(LinearCCA(1)).fit(X, Y)
    with pytest.raises(InputError, match="got one table, but the pipeline was fitted to two"):
        pipeline.score(X)


def test_sparse_views_stay_sparse():
    X, Y = (np.abs(view) for view in related_views(200))
    X = scipy.sparse.csr_array(np.where(X < 0.5, 0, X))
    pipeline = TwoViewPipeline(
        NystromCCA(1, rank=30, reg=1e-3, random_state=0), Pipeline([("t", TfidfTransformer())])
    ).fit(X, Y)
    assert scipy.sparse.issparse(pipeline._prepared(View.X, X))
    assert pipeline.transform(X).shape == (200, 1)
