"""`DoublyStochasticCCA`: ends where the closed form is, learns by itself, shows what it undid."""

import re

import numpy as np
import pytest

from knoi import DoublyStochasticCCA, FourierCCA, LinearCCA
from knoi.arrays.backend import numpy_backend
from knoi.callbacks.history import COLUMNS
from knoi.data.pairs import PairSource
from knoi.datasets import make_two_views
from knoi.engine import Serial
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError
from knoi.features import RandomFourier


@pytest.fixture(scope="module")
def views():
    """Views that a linear method sees little of."""
    made = make_two_views(3000, (4, 3), (0.95, 0.9), nonlinear=True, random_state=0)
    return made.X, made.Y


def small(L=2, **params):
    given = {"rank": 120, "feature_block": 30, "batch_size": 250, "epochs": 6, "random_state": 0}
    return DoublyStochasticCCA(L, **(given | params))


@pytest.mark.parametrize(("blocks", "paired"), [(1, False), (3, True)])
def test_on_all_rows_it_ends_at_the_closed_form_of_the_same_features(two_views, blocks, paired):
    same = {"rank": 30, "reg": 0.05, "random_state": 0, "paired": paired}
    exact = FourierCCA(2, **same).fit(*two_views)
    model = DoublyStochasticCCA(
        2, **same, feature_block=30 // blocks, epochs=1500, decay=np.inf, held_out=0, n_jobs=1
    ).fit(*two_views)
    assert not any(model.history_["rolled_back"])
    np.testing.assert_allclose(model.correlations_, exact.correlations_, atol=1e-4)
    for Z, W in zip(model.transform(*two_views), exact.transform(*two_views), strict=True):
        signs = np.sign((Z * W).sum(axis=0))
        np.testing.assert_allclose(Z, W * signs, atol=0.02 * np.abs(W).max())


def test_it_learns_without_tuning(views):
    train, test = [view[:2400] for view in views], [view[2400:] for view in views]
    model = small(epochs=50).fit(*train)
    exact = FourierCCA(2, rank=120, paired=True, random_state=0).fit(*train)
    assert model.score(*test) > 0.8 * exact.score(*test)
    assert model.score(*test) > 2 * LinearCCA(2).fit(*train).score(*test)
    assert not any(model.history_["rolled_back"])
    curve = model.history_["held_out"]
    assert max(curve) > 1.5 * curve[0]


def test_components_are_uncorrelated_and_ordered(views):
    Zx, Zy = small(3).fit_transform(*views)
    for Z in (Zx, Zy):
        np.testing.assert_allclose(np.cov(Z.T), np.eye(3), atol=0.2)
    found = [np.corrcoef(a, b)[0, 1] for a, b in zip(Zx.T, Zy.T, strict=True)]
    assert found[0] > found[1] > found[2]


def test_the_history_shows_the_steps(views):
    model = small(learning_rate=0.5, decay=12.0).fit(*views)
    assert list(model.history_) == list(COLUMNS)
    # Eleven minibatches of the 2700 rows not held out make an epoch.
    assert model.history_["step"][-1] == 66
    assert model.n_samples_seen_ == 66 * 250
    assert model.stopped_ == "epochs"
    steps, rates = (np.array(model.history_[name]) for name in ("step", "learning_rate"))
    expected = rates[0] * (1 + (steps[0] - 1) / 12) / (1 + (steps - 1) / 12)
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    assert model.history_["loss"][-1] < model.history_["loss"][0]


def test_far_too_long_steps_are_taken_back_and_said_so(views):
    model = small(learning_rate=1e5, epochs=20).fit(*views)
    undone = np.array(model.history_["rolled_back"])
    assert 5 < undone.sum() < 40
    assert model.score(*views) > 0.7 * small(epochs=20).fit(*views).score(*views)


def test_rate_one_is_the_inverse_curvature_of_a_block(two_views):
    model = DoublyStochasticCCA(2, rank=400, feature_block=100, random_state=0, epochs=1, n_jobs=1)
    with PairSource.open(*two_views) as pairs:
        training, _ = model._training(pairs, numpy_backend(), Serial())
    for features, view, size in zip(
        training.maps, two_views, training.rule.step_sizes, strict=True
    ):
        assert isinstance(features, RandomFourier)
        S = np.cov(features.transform(view).T, bias=True)
        curvatures = [np.linalg.norm(S[k : k + 100, k : k + 100], 2) for k in range(0, 400, 100)]
        assert size.rate == pytest.approx(1 / np.mean(curvatures), rel=0.1)


def test_the_authors_features_are_cosines_and_sines(two_views):
    model = small(epochs=1).fit(*two_views)
    phases = model.projection_.x.features.phases
    np.testing.assert_allclose(phases, np.tile([0, -np.pi / 2], 60), atol=1e-6)
    model = small(epochs=1, paired=False).fit(*two_views)
    assert len(np.unique(model.projection_.x.features.phases)) == 120


def test_two_threads_agree_with_one(views):
    one, two = (small(n_jobs=n, epochs=2).fit(*views) for n in (1, 2))
    np.testing.assert_allclose(two.x_weights_, one.x_weights_, rtol=0, atol=1e-6)


def test_float32_agrees_with_float64(views):
    wide = small(epochs=2).fit(*views)
    narrow = small(epochs=2).fit(*(view.astype(np.float32) for view in views))
    assert narrow.projection_.x.features.dtype == np.float32
    np.testing.assert_allclose(narrow.correlations_, wide.correlations_, atol=1e-3)


def test_any_cut_of_a_stream_gives_the_same_model(views):
    X, Y = views
    models = []
    for edges in ((600, 3000), (600, 601, 1500, 3000)):
        model, start = small(), 0
        for stop in edges:
            model.partial_fit(X[start:stop], Y[start:stop], solve=stop == 3000)
            start = stop
        models.append(model)
    np.testing.assert_array_equal(models[0].x_weights_, models[1].x_weights_)
    assert models[0].n_samples_seen_ == 3000
    assert models[0].stopped_ is None


def test_no_more_rows_a_minibatch_than_there_are(two_views):
    model = small(batch_size=5000, epochs=3).fit(*two_views)
    assert model.n_samples_seen_ == 3 * 200


def test_time_may_end_it(views):
    model = small(max_time=1e-9).fit(*views)
    assert model.stopped_ == "out of time"
    assert model.n_samples_seen_ == 250


def test_a_budget_too_small_says_what_to_do(views):
    text = (
        r"^DoublyStochasticCCA with rank 5000 and minibatches of 250 rows needs about .* but "
        r"memory_budget is 1\.0 MiB\. Lower rank or batch_size, or raise memory_budget\.$"
    )
    with pytest.raises(MemoryBudgetError, match=text):
        small(rank=5000, memory_budget="1MiB").fit(*views)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"rank": 1}, InputError, "rank=1 is below n_components=2: features of that rank hold no"),
        ({"feature_block": 0}, InputError, "feature_block=0: wanted a whole number >= 1."),
        ({"feature_block": 2.5}, InputTypeError, "feature_block=2.5: wanted a whole number >= 1."),
        ({"learning_rate": 0.0}, InputError, "learning_rate=0.0: wanted a finite number > 0."),
        ({"decay": -1.0}, InputError, "decay=-1.0: wanted a number > 0."),
        ({"reg": -1}, InputError, "reg=-1: wanted a finite number >= 0."),
        ({"paired": "no"}, InputTypeError, "paired='no': wanted True or False."),
        ({"epochs": 0}, InputError, "epochs=0: wanted a whole number >= 1."),
        ({"max_time": "1"}, InputTypeError, "max_time='1': wanted a number > 0."),
        ({"held_out": 1}, InputError, "held_out=1: wanted a number from 0 to below 1."),
        ({"batch_size": 2}, InputError, "batch_size=2 with n_components=2: a minibatch needs more"),
        (
            {"kernel": ("rbf", "linear")},
            InputTypeError,
            "view Y: random Fourier features need a stationary kernel, not 'linear'",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(two_views, params, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        small(**params).fit(*two_views)
