"""scikit-learn's checks on every estimator; a second view is made where they pass only one."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from knoi.estimators import ESTIMATORS
from tests.estimators.models import every_estimator, made


def second_view(X, y):
    """`y` if it can be a view; else a smooth function of X.

    What is no table of numbers is passed on as it is, so that the estimator's own errors show.
    """
    if getattr(y, "ndim", 0) == 2:
        return y
    try:
        table = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    except ValueError:
        return X
    if table.ndim != 2 or table.dtype.kind not in "biuf" or not np.isfinite(table).all():
        return X
    table = table.astype(np.float64)
    spread = table.std() if table.size else 0.0
    return table + 0.5 * spread * np.sin(table / (spread or 1.0))


def one_view(estimator):
    """The estimator with `Y` made from `X` in what the checks call with one view and labels."""

    class OneView(estimator):
        def fit(self, X, y=None):
            return super().fit(X, second_view(X, y))

        def fit_transform(self, X, y=None):
            return self.fit(X, y).transform(X)

        def score(self, X, y=None):
            return super().score(X, second_view(X, y))

        if hasattr(estimator, "partial_fit"):

            def partial_fit(self, X, y=None):
                return super().partial_fit(X, second_view(X, y))

    # get_params reads the constructor; pickle finds the class by its name in this module.
    OneView.__init__ = estimator.__init__
    OneView.__name__ = OneView.__qualname__ = estimator.__name__
    return OneView


for _estimator in ESTIMATORS:
    globals()[_estimator.__name__] = one_view(_estimator)


def adapted():
    ranked = ("FourierCCA", "NystromCCA", "KNOI", "DoublyStochasticCCA")
    small = {name: {"rank": 20} for name in ranked}
    for estimator in ESTIMATORS:
        name = estimator.__name__
        seed = {"random_state": 0} if name != "LinearCCA" else {}
        yield globals()[name](n_components=1, **small.get(name, {}), **seed)


# They fit 10 or 15 rows, on which any two views agree.
@pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
@parametrize_with_checks(list(adapted()))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def small(estimator, **params):
    """An estimator that fits 200 rows in milliseconds."""
    return made(estimator, **{"rank": 30, "random_state": 0} | params)


@every_estimator
def test_constructor_only_stores_and_parameters_go_round(estimator):
    wild = {name: object() for name in estimator._get_param_names()}
    model = estimator(**wild)
    assert all(model.get_params()[name] is value for name, value in wild.items())
    fresh = estimator().set_params(**wild)
    assert all(getattr(fresh, name) is value for name, value in wild.items())


@every_estimator
def test_clone_is_unfitted_and_fits_the_same(estimator, two_views):
    model = small(estimator, n_components=3).fit(*two_views)
    twin = clone(model)
    assert not hasattr(twin, "correlations_")
    assert twin.get_params() == model.get_params()
    np.testing.assert_array_equal(twin.fit(*two_views).x_weights_, model.x_weights_)


@every_estimator
def test_a_pickled_model_projects_the_same(estimator, two_views):
    X, Y = two_views
    model = small(estimator).fit(X, Y)
    twin = pickle.loads(pickle.dumps(model))
    for mine, theirs in zip(model.transform(X, Y), twin.transform(X, Y), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("estimator", [E for E in ESTIMATORS if hasattr(E, "partial_fit")])
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_a_copy_goes_on_where_partial_fit_stopped(estimator, two_views, device, copied):
    X, Y = two_views
    model = small(estimator, device=device).partial_fit(X[:120], Y[:120], solve=False)
    twin = copied(model)
    expected = model.partial_fit(X[120:], Y[120:])
    found = twin.partial_fit(X[120:], Y[120:])
    np.testing.assert_array_equal(found.correlations_, expected.correlations_)


@every_estimator
def test_pipeline_passes_the_second_view(estimator, two_views):
    X, Y = two_views
    scaled = StandardScaler().fit_transform(X)
    alone = small(estimator).fit(scaled, Y)
    line = make_pipeline(StandardScaler(), small(estimator)).fit(X, Y)
    np.testing.assert_allclose(line.transform(X), alone.transform(scaled))
    assert line.score(X, Y) == pytest.approx(alone.score(scaled, Y))
    Zx, Zy = clone(line).fit_transform(X, Y)
    np.testing.assert_allclose(Zx, alone.transform(scaled))
    np.testing.assert_allclose(Zy, alone.transform_y(Y))
    names = line.get_feature_names_out()
    assert list(names) == [f"{estimator.__name__.lower()}{i}" for i in range(2)]


@every_estimator
def test_grid_search_picks_by_held_out_score(estimator, two_views):
    # A width of a thousandth knows every row by heart.
    wide = {"reg": [1e-3, (1e-2, 1e-1), 1e6], "width": ["median", 1e-3]}
    known = estimator._get_param_names()
    grid = {name: values for name, values in wide.items() if name in known}
    search = GridSearchCV(small(estimator), grid, cv=3).fit(*two_views)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_.get("width", "median") == "median"
    assert search.best_score_ > 1.2
    assert search.score(*two_views) == search.best_estimator_.score(*two_views)


@every_estimator
def test_pandas_in_and_out(estimator, two_views):
    X, Y = two_views
    frame = pd.DataFrame(X, columns=list("abcdef"), index=np.arange(200) * 7)
    # All rows are landmarks: which rows a sample takes may depend on what holds the data.
    model = small(estimator, rank=200).set_output(transform="pandas").fit(frame, Y)
    assert list(model.feature_names_in_) == list("abcdef")
    Z = model.transform(frame)
    prefix = estimator.__name__.lower()
    assert list(Z.columns) == [f"{prefix}0", f"{prefix}1"]
    assert list(Z.index) == list(frame.index)
    expected = small(estimator, rank=200).fit(X, Y).transform(X)
    np.testing.assert_allclose(Z.to_numpy(), expected, atol=1e-9)
    with pytest.raises(ValueError, match=r"Feature names must be in the same order"):
        model.transform(frame[list("bacdef")])


def test_feature_names_are_forgotten_by_a_fit_without_them(two_views):
    X, Y = two_views
    model = small(ESTIMATORS[0]).fit(pd.DataFrame(X, columns=list("abcdef")), Y).fit(X, Y)
    assert not hasattr(model, "feature_names_in_")
