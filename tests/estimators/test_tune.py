"""`tune`: every combination, scored on other pairs by our score or by a user's."""

import math

import numpy as np
import pytest

from knoi import FourierCCA, LinearCCA, tune
from knoi.datasets import make_two_views
from knoi.exceptions import InputError, InputTypeError

GRID = {"reg": [1e-6, 1e-2], "width": ["0.3x", "1x"]}


@pytest.fixture
def views():
    return make_two_views(600, (4, 3), (0.9, 0.7), nonlinear=True, random_state=0)


def fourier():
    return FourierCCA(2, rank=40, metric=None, random_state=0)


def test_every_combination_is_fitted_and_scored_on_the_given_pairs(views):
    train, test = (views.X[:400], views.Y[:400]), (views.X[400:], views.Y[400:])
    model = fourier()
    found = tune(model, *train, GRID, test=test)
    assert [trial.params for trial in found.trials] == [
        {"width": width, "reg": reg} for width in GRID["width"] for reg in GRID["reg"]
    ]
    # The second of two regularisers is solved from the moments of the first.
    for trial in found.trials:
        alone = fourier().set_params(**trial.params).fit(*train)
        assert trial.score == pytest.approx(alone.score(*test), rel=1e-9)
    assert found.best.score == max(trial.score for trial in found.trials)
    assert not hasattr(model, "projection_")
    assert model.get_params() == fourier().get_params()


def test_pairs_are_held_out_by_default(views):
    seen = []

    def score(model, X, Y):
        seen.append((model.n_samples_, len(X), len(Y)))
        return 0.0

    grid = {"reg": [1e-3]}
    tune(LinearCCA(2), views.X, views.Y, grid, score=score)
    tune(LinearCCA(2), views.X, views.Y, grid, score=score, held_out=50)
    tune(LinearCCA(2), views.X, views.Y, grid, score=score, subset=300, held_out=0.5)
    assert seen == [(480, 120, 120), (550, 50, 50), (150, 150, 150)]


def test_a_user_s_score_decides(views):
    """Here: how well the projections of X tell the sign of a column that is no part of a view."""
    wanted = np.sign(views.X[:, 0])
    asked = []

    def score(model, X, Y):
        asked.append((X, Y))
        projected = model.transform(views.X)
        fitted = projected @ np.linalg.lstsq(projected, wanted)[0]
        return -float(np.mean((fitted - wanted) ** 2))

    found = tune(
        LinearCCA(), views.X, views.Y, {"n_components": [1, 3]}, test=("a", "b"), score=score
    )
    assert asked == [("a", "b")] * 2
    assert found.best.params == {"n_components": 3}
    fewest = tune(
        LinearCCA(),
        views.X,
        views.Y,
        {"n_components": [1, 3]},
        score=lambda model, X, Y: -model.n_components,
    )
    assert fewest.best.params == {"n_components": 1}


def test_what_does_not_fit_into_memory_is_never_the_best(views):
    model = fourier().set_params(memory_budget="50MiB")
    found = tune(model, views.X, views.Y, {"rank": [20, 20_000], "reg": [1e-3, 1e-2]})
    assert [trial.error is None for trial in found.trials] == [True, True, False, False]
    assert [math.isfinite(trial.score) for trial in found.trials] == [True, True, False, False]
    assert "memory_budget" in found.trials[-1].error
    assert found.best.params["rank"] == 20


@pytest.mark.parametrize(
    ("grid", "options", "error", "message"),
    [
        ({}, {}, InputTypeError, "wanted lists of values by name"),
        ([1e-3], {}, InputTypeError, "wanted lists of values by name"),
        ({"regs": [1]}, {}, InputError, "FourierCCA has no parameter 'regs'. Did you mean 'reg'"),
        ({"width": "1x"}, {}, InputTypeError, "width='1x': wanted a list of values"),
        ({"reg": 1e-3}, {}, InputTypeError, "reg=0.001: wanted a list of values"),
        ({"reg": []}, {}, InputTypeError, "wanted a list of values"),
        ({"reg": [1]}, {"score": "per"}, InputTypeError, r"wanted a function \(model"),
        ({"reg": [1]}, {"test": np.ones((3, 4))}, InputTypeError, "wanted a pair of views"),
        ({"reg": [1]}, {"test": (1, 2), "held_out": 5}, InputError, "pass one of them"),
        ({"reg": [1]}, {"held_out": 600}, InputError, "held_out is 600, of 600 rows"),
        ({"reg": [1]}, {"subset": 0}, InputError, "subset=0: wanted a whole number >= 1"),
    ],
)
def test_bad_input_is_refused_before_any_fit(views, grid, options, error, message, monkeypatch):
    for name in ("fit", "partial_fit"):
        monkeypatch.setattr(FourierCCA, name, lambda *_: pytest.fail("fitted"))
    with pytest.raises(error, match=message):
        tune(fourier(), views.X, views.Y, grid, **options)


@pytest.mark.parametrize("value", [math.nan, None, "0.5"])
def test_a_score_that_is_no_number_is_an_error(views, value):
    with pytest.raises(InputError, match=r"for \{'reg': 1\}: wanted a number"):
        tune(LinearCCA(), views.X, views.Y, {"reg": [1]}, score=lambda *_: value)
