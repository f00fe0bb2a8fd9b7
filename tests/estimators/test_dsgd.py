"""`DoublyStochasticCCA`: convergence to the closed form, learning without tuning, history."""

import numpy as np
import pytest

from knoi import DoublyStochasticCCA, FourierCCA, LinearCCA
from knoi.callbacks.history import COLUMNS
from knoi.datasets import make_two_views
from tests.estimators.models import assert_equal_models, assert_same_up_to_sign, streamed


@pytest.fixture(scope="module")
def views():
    """Views that a linear method sees little of."""
    made = make_two_views(3000, (4, 3), (0.95, 0.9), nonlinear=True, random_state=0)
    return made.X, made.Y


def small(L=2, **params):
    given = {"rank": 120, "feature_block": 30, "batch_size": 250, "epochs": 6, "random_state": 0}
    return DoublyStochasticCCA(L, **(given | params))


@pytest.mark.parametrize(("blocks", "paired"), [(1, False), (3, True)])
def test_on_all_rows_it_converges_to_the_closed_form(two_views, blocks, paired):
    same = {"rank": 30, "reg": 0.05, "random_state": 0, "paired": paired}
    exact = FourierCCA(2, **same).fit(*two_views)
    model = DoublyStochasticCCA(
        2, **same, feature_block=30 // blocks, epochs=1500, decay=np.inf, held_out=0, n_jobs=1
    ).fit(*two_views)
    assert not any(model.history_["rolled_back"])
    np.testing.assert_allclose(model.correlations_, exact.correlations_, atol=1e-4)
    for Z, W in zip(model.transform(*two_views), exact.transform(*two_views), strict=True):
        assert_same_up_to_sign(Z, W, atol=0.02 * np.abs(W).max())


def test_it_learns_without_tuning(views):
    train, test = [view[:2400] for view in views], [view[2400:] for view in views]
    model = small(epochs=50).fit(*train)
    exact = FourierCCA(2, rank=120, paired=True, random_state=0).fit(*train)
    assert model.score(*test) > 0.8 * exact.score(*test)
    assert model.score(*test) > 2 * LinearCCA(2).fit(*train).score(*test)
    assert not any(model.history_["rolled_back"])
    curve = model.history_["held_out"]
    assert max(curve) > 1.5 * curve[0]
    Zx, Zy = model.transform(*train)
    for Z in (Zx, Zy):
        np.testing.assert_allclose(np.cov(Z.T), np.eye(2), atol=0.2)
    found = [np.corrcoef(a, b)[0, 1] for a, b in zip(Zx.T, Zy.T, strict=True)]
    assert found[0] > found[1]


def test_the_history_records_the_steps(views):
    model = small(learning_rate=0.5, decay=12.0).fit(*views)
    assert list(model.history_) == list(COLUMNS)
    # Eleven minibatches of the 2700 rows not held out make an epoch.
    assert model.history_["step"][-1] == 66
    assert model.n_samples_seen_ == 66 * 250
    assert model.stopped_ == "epochs"
    steps, rates = (np.array(model.history_[name]) for name in ("step", "learning_rate"))
    expected = rates[0] * (1 + (steps[0] - 1) / 12) / (1 + (steps - 1) / 12)
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    reached = model.history_["correlation"]
    assert np.mean(reached[-5:]) > np.mean(reached[:5])


def test_steps_that_are_too_long_are_rolled_back_and_recorded(views):
    model = small(learning_rate=1e5, epochs=20).fit(*views)
    rolled_back = np.array(model.history_["rolled_back"])
    assert 5 < rolled_back.sum() < 40
    assert model.score(*views) > 0.7 * small(epochs=20).fit(*views).score(*views)


def test_a_learning_rate_of_1_is_the_inverse_curvature_of_a_block(two_views):
    rates = {}

    def note_rate(state, result):
        rates[state.optimizer.steps] = result.learning_rate
        return state

    blocks = {"rank": 400, "feature_block": 100, "batch_size": 1024}
    model = small(epochs=1, decay=np.inf, callbacks=[note_rate], **blocks).fit(*two_views)
    S = np.cov(model.projection_.x.features.transform(two_views[0]).T, bias=True)
    curvatures = [np.linalg.norm(S[k : k + 100, k : k + 100], 2) for k in range(0, 400, 100)]
    assert rates == {1: pytest.approx(1 / np.mean(curvatures), rel=0.1)}


def test_the_authors_features_are_cosines_and_sines(two_views):
    model = small(epochs=1, scale=None).fit(*two_views)
    phases = model.projection_.x.features.phases
    np.testing.assert_allclose(phases, np.tile([0, -np.pi / 2], 60), atol=1e-6)
    model = small(epochs=1, paired=False, scale=None).fit(*two_views)
    assert len(np.unique(model.projection_.x.features.phases)) == 120


def test_any_partition_of_a_stream_gives_the_same_model(views):
    model = streamed(small(), *views, [0, 600, 3000])
    assert_equal_models(streamed(small(), *views, [0, 600, 601, 1500, 3000]), model)
    assert model.n_samples_seen_ == 3000
    assert model.stopped_ is None


def test_a_minibatch_has_at_most_all_rows(two_views):
    model = small(batch_size=5000, epochs=3).fit(*two_views)
    assert model.n_samples_seen_ == 3 * 200
