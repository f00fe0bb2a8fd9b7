"""`reg="auto"` of the closed forms: chosen on held-out rows, then solved for all."""

import logging

import numpy as np
import pytest

from knoi import KNOI, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.datasets import make_two_views
from knoi.estimators.closed_form import REGS
from tests.estimators.models import (
    AS_PUBLISHED,
    assert_same_model,
    closed_forms,
    made,
    related_views,
    reloaded,
    streamed,
)

with_auto_reg = pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA, KernelCCA])
SMALL = {"rank": 60, "random_state": 0, **AS_PUBLISHED}


def wide_views(n):
    """Correlated views in which noise has many columns: without a regulariser, CCA finds noise."""
    views = make_two_views(n + 2000, (80, 70), (0.9, 0.8, 0.7), random_state=0)
    return (views.X[:n], views.Y[:n]), (views.X[n:], views.Y[n:])


@with_auto_reg
def test_is_the_default_and_about_as_good_as_the_best_number(estimator):
    train, test = wide_views(300)
    # The kernels get their parameters: only the regulariser is at stake.
    own = {**SMALL, "rank": 200, "kernel": "linear"}
    if estimator is FourierCCA:
        own |= {"kernel": "rbf", "width": 30.0, "rank": 140}
    scores = {
        reg: made(estimator, n_components=3, reg=reg, **own).fit(*train).score(*test)
        for reg in REGS
    }
    model = made(estimator, n_components=3, **own)
    assert model.reg == "auto"
    assert model.fit(*train).score(*test) > max(scores.values()) - 0.08
    # Not all are good, so the test can fail.
    assert min(scores.values()) < max(scores.values()) - 0.2
    assert model.reg_[0] == model.reg_[1]
    assert model.reg_[0] in REGS


@with_auto_reg
def test_equals_a_fit_with_the_chosen_number(estimator):
    X, Y = related_views(400)
    model = made(estimator, n_components=2, **SMALL).fit(X, Y)
    given = made(estimator, n_components=2, **SMALL, reg=model.reg_).fit(X, Y)
    assert given.reg_ == model.reg_
    assert_same_model(model, given, X, Y, 1e-12)


@with_auto_reg
def test_one_view_may_have_a_number(estimator):
    X, Y = related_views(300)
    model = made(estimator, n_components=2, **SMALL, reg=(1e-2, "auto")).fit(X, Y)
    assert model.reg_[0] == 1e-2
    assert model.reg_[1] in REGS


@with_auto_reg
def test_few_rows_take_the_number_that_others_start_from(estimator):
    X, Y = related_views(40)
    model = made(estimator, n_components=2, **SMALL).fit(X, Y)
    wanted = {LinearCCA: 0.0, KernelCCA: 1e-3}.get(estimator, 1e-6)
    assert model.reg_ == (wanted, wanted)


@with_auto_reg
def test_is_in_the_log_and_in_the_model_file(estimator, caplog, tmp_path):
    X, Y = related_views(300)
    with caplog.at_level(logging.INFO, logger="knoi"):
        model = made(estimator, n_components=2, **SMALL).fit(X, Y)
    assert "reg: " in caplog.text
    assert "held-out rows" in caplog.text
    assert reloaded(model, tmp_path).reg_ == model.reg_


@closed_forms
def test_pieces_of_a_stream_choose_the_same(estimator):
    X, Y = related_views(700)
    models = [
        streamed(made(estimator, n_components=2, **SMALL), X, Y, edges)
        for edges in ([0, 700], [0, 350, 360, 700])
    ]
    # Random features do not depend on the first piece, widths and landmarks do.
    if estimator is LinearCCA:
        assert_same_model(*models, X, Y)
    assert models[0].reg_ == models[1].reg_
    again = models[1].solve()
    assert again.reg_ == models[0].reg_


def test_knoi_says_what_it_used():
    X, Y = related_views(1500)
    fit = {"n_components": 2, "rank": 50, "epochs": 2, "random_state": 0, **AS_PUBLISHED}
    assert KNOI(**fit, reg=1e-4).fit(X, Y).reg_ == (1e-4, 1e-4)
    assert 0 < KNOI(**fit).fit(X, Y).reg_[0] < 1
    published = KNOI(**fit, precondition=None, approximation="fourier", learning_rate=0.1)
    assert published.fit(X, Y).reg_ == (0.0, 0.0)


def test_width_is_per_view():
    X, Y = related_views(300)
    model = NystromCCA(2, **SMALL | {"width": (2.0, "median")}).fit(X, Y)
    assert model.width_[0] == 2.0
    assert model.width_[1] > 0
    assert LinearCCA(2).fit(X, Y).width_ == (None, None)


def test_bad_values():
    X, Y = related_views(60)
    for reg in ("automatic", -1.0, (1e-3, "best")):
        with pytest.raises((ValueError, TypeError), match="or 'auto'"):
            LinearCCA(2, reg=reg).fit(X, Y)


def test_rows_held_out_do_not_depend_on_the_seed():
    X, Y = related_views(400)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((400, 30))
    found = {
        LinearCCA(2).fit(np.hstack([X, noise]), Y).reg_,
        NystromCCA(2, kernel="linear", rank=400, random_state=5).fit(np.hstack([X, noise]), Y).reg_,
    }
    assert len(found) == 1
