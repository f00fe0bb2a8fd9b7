"""Every approximation by name, fitted maps and composite kernels, in FourierCCA and KNOI."""

import numpy as np
import pytest

from knoi import KNOI, FourierCCA, LinearCCA, NystromCCA
from knoi.features.registry import APPROXIMATIONS, approximate
from knoi.kernels import (
    RBF,
    AdditiveChi2,
    ArcCosine,
    Polynomial,
    SphericalPolynomial,
    several_widths,
)
from tests.estimators.models import reloaded

KERNELS = {
    "tensor_sketch": Polynomial(degree=2),
    "maclaurin": Polynomial(degree=2),
    "compact_maclaurin": Polynomial(degree=2),
    "spherical": SphericalPolynomial(4),
    "arccosine": ArcCosine(1),
    "additive": AdditiveChi2(),
}


@pytest.fixture(scope="module")
def views():
    """Two positive views that are related by a square and hardly linearly."""
    rng = np.random.default_rng(0)
    s = rng.uniform(-1, 1, (1500, 1))
    X = np.hstack([s, rng.uniform(-1, 1, (1500, 2))])
    Y = np.hstack([s**2 + 0.05 * rng.standard_normal((1500, 1)), rng.uniform(-1, 1, (1500, 2))])
    return (X + 1.5, Y + 1.5), slice(0, 1000), slice(1000, None)


def models(name):
    kernel = KERNELS.get(name, RBF())
    shared = {"rank": 300, "kernel": kernel, "approximation": name, "random_state": 0}
    yield FourierCCA(1, reg=1e-5, **shared)
    yield KNOI(1, epochs=10, held_out=0, **shared)


# Additive features cannot represent the square: see the next test.
@pytest.mark.parametrize("name", [name for name in APPROXIMATIONS if name != "additive"])
def test_each_finds_a_nonlinear_relation(views, name, tmp_path):
    (X, Y), train, test = views
    linear = LinearCCA(1).fit(X[train], Y[train]).score(X[test], Y[test])
    assert linear < 0.3
    if name in ("spherical", "arccosine"):  # kernels of directions: a column of ones adds lengths
        X, Y = (np.hstack([view - 1.5, np.ones((len(view), 1))]) for view in (X, Y))
    for model in models(name):
        score = model.fit(X[train], Y[train]).score(X[test], Y[test])
        assert score > 0.8
        again = reloaded(model, tmp_path)
        np.testing.assert_array_equal(again.transform(X[test]), model.transform(X[test]))


def test_additive_features_find_monotone_relations(views):
    (X, _), train, test = views
    Y = np.hstack([X[:, :1] ** 6, X[:, 1:]])
    for model in models("additive"):
        assert model.fit(X[train], Y[train]).score(X[test], Y[test]) > 0.9


@pytest.mark.parametrize("estimator", [FourierCCA, KNOI])
def test_a_fitted_map_is_used_unchanged(views, estimator):
    (X, Y), train, test = views
    maps = tuple(
        approximate("hadamard", rows[train], RBF(1.0), 300, 5, view)
        for view, rows in enumerate((X, Y))
    )
    model = estimator(1, approximation=maps, random_state=0).fit(X[train], Y[train])
    assert model.score(X[test], Y[test]) > 0.8
    assert model.x_weights_.shape == (300, 1)


@pytest.mark.parametrize(
    "kernel",
    [
        several_widths(RBF(), (0.01, 1.0), learn=True),
        RBF() + Polynomial(degree=2),
        RBF() * RBF(width=5.0),
    ],
    ids=["learned", "sum", "product"],
)
def test_composite_kernels(views, kernel):
    (X, Y), train, test = views
    for model in (
        FourierCCA(1, rank=300, kernel=kernel, approximation="random", random_state=0),
        NystromCCA(1, rank=200, kernel=kernel, random_state=0),
        KNOI(1, rank=200, kernel=kernel, random_state=0, epochs=10),
    ):
        assert model.fit(X[train], Y[train]).score(X[test], Y[test]) > 0.8


def test_the_two_views_may_have_different_maps(views):
    (X, Y), train, test = views
    maps = {"kernel": ("rbf", "polynomial"), "approximation": ("nystrom", "tensor_sketch")}
    model = KNOI(1, rank=200, random_state=0, epochs=10, **maps)
    assert model.fit(X[train], Y[train]).score(X[test], Y[test]) > 0.8


def test_there_may_be_fewer_monomials_than_rank(views):
    (X, Y), train, _ = views
    params = {"rank": 25, "extra_directions": 30, "epochs": 2, "random_state": 0, "scale": None}
    model = KNOI(1, approximation="taylor", **params)
    model.fit(X[train], Y[train])  # 20 monomials of 3 variables up to degree 3
    assert model.x_weights_.shape == (20, 1)
