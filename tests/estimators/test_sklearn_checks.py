"""scikit-learn's checks and tools on every estimator; checks with one view get a second one."""

import copy
import pickle
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

from knoi import DeepCCA
from knoi.estimators import ESTIMATORS
from tests.estimators.models import every_estimator, made

WEIGHT_CHECKS = (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)
# Checks that fail with the defaults, and why.
UNWEIGHTED = {
    check.__name__: "widths, landmarks, the centre of random features and the signs of components "
    "depend on which rows there are, not on their weights"
    for check in WEIGHT_CHECKS
}
QUICK = {DeepCCA: {"hidden": (4,), "epochs": 5}}


def second_view(X, y):
    """`y` if it can be a view; else a smooth function of X.

    Anything but a table of numbers is returned as it is: the estimator raises its own error.
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
    """The estimator with `Y` made from `X` in methods that the checks call with labels."""

    class OneView(estimator):
        if "sample_weight" in signature(estimator.fit).parameters:

            def fit(self, X, y=None, sample_weight=None):
                return super().fit(X, second_view(X, y), sample_weight)

        else:

            def fit(self, X, y=None):
                return super().fit(X, second_view(X, y))

        def fit_transform(self, X, y=None):
            return self.fit(X, y).transform(X)

        def score(self, X, y=None):
            return super().score(X, second_view(X, y))

        if hasattr(estimator, "partial_fit"):

            def partial_fit(self, X, y=None, **params):
                return super().partial_fit(X, second_view(X, y), **params)

    # get_params reads the constructor; pickle finds the class by its name in this module.
    OneView.__init__ = estimator.__init__
    OneView.__name__ = OneView.__qualname__ = estimator.__name__
    return OneView


for _estimator in ESTIMATORS:
    globals()[_estimator.__name__] = one_view(_estimator)


# They fit 10 or 15 rows, on which any two views agree.
@pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
@every_estimator
def test_scikit_learn_checks(estimator):
    adapted = globals()[estimator.__name__]
    model = made(adapted, n_components=1, rank=20, **QUICK.get(estimator, {}), random_state=0)
    expected = UNWEIGHTED if "width" in model.get_params() else {}
    results = check_estimator(model, on_skip=None, on_fail=None, expected_failed_checks=expected)
    failed = {one["check_name"]: one["exception"] for one in results if one["status"] == "failed"}
    assert failed == {}
    assert sum(one["status"] == "passed" for one in results) > 40


@pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
def test_a_weight_is_the_row_so_many_times_where_nothing_is_chosen_by_rows():
    adapted = globals()["FourierCCA"]
    model = adapted(1, rank=50, width=1.0, metric=None, scale=None, paired=True, random_state=0)
    for check in WEIGHT_CHECKS:
        check("FourierCCA", model)


def small(estimator, **params):
    """An estimator that fits 200 rows in milliseconds."""
    return made(estimator, **{"rank": 30, "random_state": 0} | QUICK.get(estimator, {}) | params)


@pytest.mark.parametrize("estimator", [E for E in ESTIMATORS if hasattr(E, "partial_fit")])
@pytest.mark.parametrize(
    ("device", "copied"),
    [(None, lambda model: pickle.loads(pickle.dumps(model))), ("cpu", copy.deepcopy)],
)
def test_a_copy_continues_partial_fit(estimator, two_views, device, copied):
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
    # With a width of a thousandth every row is unlike all others: it overfits.
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
    model = small(estimator).set_output(transform="pandas").fit(frame, Y)
    assert list(model.feature_names_in_) == list("abcdef")
    Z = model.transform(frame)
    prefix = estimator.__name__.lower()
    assert list(Z.columns) == [f"{prefix}0", f"{prefix}1"]
    assert list(Z.index) == list(frame.index)
    expected = small(estimator).fit(X, Y).transform(X)
    np.testing.assert_allclose(Z.to_numpy(), expected, atol=1e-9)
    with pytest.raises(ValueError, match=r"Feature names must be in the same order"):
        model.transform(frame[list("bacdef")])


def test_a_fit_without_feature_names_forgets_them(two_views):
    X, Y = two_views
    model = small(ESTIMATORS[0]).fit(pd.DataFrame(X, columns=list("abcdef")), Y).fit(X, Y)
    assert not hasattr(model, "feature_names_in_")
