"""DeepCCA: what it learns, its heads, networks of a user's own, errors before training."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import knoi
from knoi import DeepCCA, LinearCCA
from knoi.estimators.heads import HEAD_LANDMARKS, HEAD_ROWS, plan_head
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, ModelFileError
from knoi.solvers.deep import DeepUpdate
from knoi.solvers.loop import OptimizerState
from tests.estimators.models import assert_equal_models, related_views, streamed


def nonlinear_views(n, seed=0):
    """X holds an angle, Y its position on the circle, and noise: no linear relation."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-np.pi, np.pi, n)
    X = np.column_stack([angle, rng.standard_normal((n, 2))])
    Y = np.column_stack([np.cos(2 * angle), np.sin(2 * angle), rng.standard_normal(n)])
    Y += 0.1 * rng.standard_normal(Y.shape)
    return X.astype(np.float32), Y.astype(np.float32)


def small_deep(**params):
    given = {"hidden": (32,), "batch_size": 100, "epochs": 30, "head": "linear", "n_jobs": 1}
    given["random_state"] = 0
    return DeepCCA(2, **(given | params))


@pytest.fixture(scope="module")
def views():
    return nonlinear_views(2000)


@pytest.fixture(scope="module")
def test_views():
    return nonlinear_views(1000, seed=1)


@pytest.mark.parametrize("head", ["auto", "linear", "nystrom"])
@pytest.mark.parametrize("loss", ["noi", "trace"])
def test_learns_what_no_linear_method_sees(views, test_views, head, loss):
    assert LinearCCA(2).fit(*views).score(*test_views) < 0.5
    reached = small_deep(head=head, loss=loss).fit(*views).score(*test_views)
    assert reached > (1.7 if loss == "noi" else 1.4)  # the trace norm depends on the weight decay


def test_a_linear_view_beside_a_network(views, test_views):
    model = small_deep(hidden=((32,), ())).fit(*views)
    assert model.score(*test_views) > 1.8
    assert model.projection_.y.features.rank == 3


def test_without_hidden_layers_it_is_linear_cca():
    X, Y = related_views(3000)
    model = small_deep(hidden=(), head="linear", epochs=60).fit(X, Y)
    wanted = LinearCCA(2).fit(X, Y)
    assert model.score(X, Y) == pytest.approx(wanted.score(X, Y), abs=0.01)


def test_minibatches_of_few_rows_with_a_time_constant(views, test_views):
    model = small_deep(
        batch_size=2, time_constant=0.98, epochs=4, hidden=((32,), ()), weight_decay=0
    )
    assert model.fit(*views).score(*test_views) > 1.5


def test_where_a_network_does_not_help_linear_cca_is_taken():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((300, 2))
    X, Y = (np.hstack([shared, rng.standard_normal((300, 20))]) for _ in range(2))
    model = DeepCCA(2, epochs=3, random_state=0).fit(X, Y)
    assert model.projection_.x.features.is_identity
    assert model.score(X, Y) > 1.98


def test_a_head_uses_the_held_out_rows_once_they_have_chosen_it():
    X, Y = related_views(400)
    model = DeepCCA(2, hidden=(4,), epochs=1, random_state=0).fit(X, Y)
    assert model.projection_.x.features.is_identity
    np.testing.assert_allclose(model.x_mean_, X.mean(axis=0), rtol=1e-6)


def test_with_a_time_limit_the_time_decides(views):
    model = small_deep(epochs=None, max_time=1.5, tol=None).fit(*views)
    assert model.stopped_ == "out of time"
    rates = model.history_["learning_rate"]
    assert rates[-1] < 0.3 * rates[0]


def test_time_for_the_head():
    rate = 1e11
    whole = plan_head("auto", 10**6, 2 * 10**6, (800, 800), float("inf"), rate)
    assert (whole.rows, whole.landmarks) == (HEAD_ROWS, HEAD_LANDMARKS)
    less = plan_head("auto", 10**6, 2 * 10**6, (800, 800), 0.9 * whole.seconds, rate)
    assert less.seconds <= 0.9 * whole.seconds
    assert (less.rows, less.landmarks) == (HEAD_ROWS // 2, HEAD_LANDMARKS)
    none = plan_head("auto", 10**6, 2 * 10**6, (800, 800), 0.0, rate)
    assert none.landmarks == 0
    asked = plan_head("nystrom", 10**6, 2 * 10**6, (800, 800), 0.0, rate)
    assert asked.landmarks == HEAD_LANDMARKS // 2
    assert plan_head("linear", 100, 10, (5, 5), 0.0, rate).landmarks == 0


def test_products_in_bfloat16(views, test_views):
    models = [small_deep(precision=p).fit(*views) for p in ("float32", "bfloat16")]
    scores = [model.score(*test_views) for model in models]
    assert scores[0] == pytest.approx(scores[1], abs=0.1)
    assert scores[0] != scores[1]
    assert scores[1] > 1.5


def test_weight_decay_depends_on_the_number_of_weights_per_row(views):
    n_weights = 2 * (3 * 32 + 32 + 32 * 2 + 2)
    given = small_deep(epochs=2, weight_decay=0.1 * n_weights / 1600).fit(*views)
    assert_equal_models(small_deep(epochs=2).fit(*views), given)
    assert not np.allclose(small_deep(epochs=2, weight_decay=0).fit(*views).x_mean_, given.x_mean_)


def test_any_partition_into_pieces_gives_the_same_model(views):
    X, Y = views
    one = streamed(small_deep(), X, Y, [0, 500, 1999])
    other = streamed(small_deep(), X, Y, [0, 500, 720, 1111, 1999])
    assert_equal_models(one, other)
    assert one.n_samples_seen_ == 1900


def test_resumes_to_the_same_bits(views, tmp_path):
    class Stop:
        def __call__(self, state, result):
            if state.optimizer.steps == 40:
                raise KeyboardInterrupt
            return state

    straight = small_deep(epochs=5).fit(*views)
    first = small_deep(epochs=5, checkpoint=tmp_path, callbacks=[Stop()])
    with pytest.raises(KeyboardInterrupt):
        first.fit(*views)
    resumed = small_deep(epochs=5, checkpoint=tmp_path).fit(*views, resume=True)
    assert_equal_models(straight, resumed)


def test_a_collapsed_step_is_rolled_back(views, monkeypatch):
    """A step that makes all outputs constant is noticed by the next minibatch."""
    plain = DeepUpdate.step

    def step(self, state, x, y):
        state, result = plain(self, state, x, y)
        if state.steps == 200:
            state = OptimizerState(
                **vars(state) | {"x": type(state.x)(0 * state.x.U, state.x.velocity)}
            )
        return state, result

    monkeypatch.setattr(DeepUpdate, "step", step)
    model = small_deep(epochs=20, tol=None).fit(*views)
    assert sum(model.history_["rolled_back"]) == 1
    rates = model.history_["learning_rate"]
    assert rates[-1] < rates[0] / 2


def test_dead_outputs_are_an_error_not_a_correlation_of_zero(views):
    class Dead(nn.Module):
        def __init__(self, n_columns, n_components):
            super().__init__()
            self.layer = nn.Linear(n_columns, n_components)

        def forward(self, x):
            return 0 * self.layer(x)

    with pytest.raises(InputError, match=r"does not vary|do not vary"):
        small_deep(networks=(Dead, Dead), head="linear", epochs=1).fit(*views)


# ------------------------------------------------------------------ networks of a user's own


class Net(nn.Module):
    def __init__(self, n_columns, n_components):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_columns, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1)
        )
        self.last = nn.Linear(32, n_components)

    def forward(self, x):
        return self.last(self.layers(x))


@pytest.fixture(scope="module")
def own(views):
    torch.manual_seed(0)
    return small_deep(networks=(Net(3, 2), Net(3, 2)), learning_rate=1e-2).fit(*views)


def test_networks_of_your_own(own, views, test_views, tmp_path):
    assert own.score(*test_views) > 1.3  # linear CCA: less than 0.5, untrained 0.65
    own.save(tmp_path / "m.knoi")
    again = DeepCCA.load(tmp_path / "m.knoi", networks=(Net, Net))
    np.testing.assert_array_equal(again.transform(views[0]), own.transform(views[0]))
    needed = "holds a DeepCCA with networks of your own .*Net.* holds no code: load it with"
    with pytest.raises(ModelFileError, match=needed):
        knoi.load(tmp_path / "m.knoi")
    with pytest.raises(ModelFileError, match="the network has 8 weights, but the stored model has"):
        DeepCCA.load(tmp_path / "m.knoi", networks=[lambda d, n: nn.Linear(d, n)] * 2)


def test_dropout_and_batch_normalisation_resume_to_the_same_bits(views, tmp_path):
    torch.manual_seed(0)
    nets = (Net(3, 2), Net(3, 2))
    params = {"networks": nets, "epochs": 2, "checkpoint_seconds": 1e-9}
    straight = small_deep(**params).fit(*views)

    def stop(state, result):
        if state.optimizer.steps == 20:
            raise KeyboardInterrupt
        return state

    with pytest.raises(KeyboardInterrupt):
        small_deep(**params, checkpoint=tmp_path, callbacks=[stop]).fit(*views)
    torch.manual_seed(5)  # the state of torch's generator does not matter
    resumed = small_deep(**params, checkpoint=tmp_path).fit(*views, resume=True)
    assert_equal_models(straight, resumed)


def test_modules_are_copied(views):
    module = nn.Linear(3, 2)
    before = module.weight.detach().clone()
    small_deep(networks=(module, module), epochs=2).fit(*views)
    np.testing.assert_array_equal(module.weight.detach(), before)


def test_a_saved_perceptron_needs_no_torch(views, tmp_path):
    model = small_deep(epochs=2).fit(*views)
    model.save(tmp_path / "m.knoi")
    np.save(tmp_path / "X.npy", views[0])
    code = (
        "import sys, importlib.abc\n"
        "class NoTorch(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch': raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import knoi, numpy as np\n"
        f"model = knoi.load({str(tmp_path / 'm.knoi')!r})\n"
        f"np.save({str(tmp_path / 'Z.npy')!r}, model.transform({str(tmp_path / 'X.npy')!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "Z.npy"), model.transform(views[0]))


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"hidden": "800"}, "hidden='800': wanted a tuple of widths such as"),
        ({"head": "kernel"}, "head='kernel'"),
        ({"loss": "mse"}, "loss='mse'"),
        ({"batch_size": 2}, "batch_size=2 with n_components=2: a minibatch of so few rows cannot"),
        ({"batch_size": 9999}, "batch_size=9999 but there are 1600 rows"),
        ({"networks": nn.Linear(3, 2)}, "wanted a pair (x_network, y_network)"),
        ({"networks": (3, Net)}, "the network of X is 3: wanted a torch module, or a callable"),
        ({"networks": (Net, lambda d, n: None)}, "the network of Y returned None: wanted a"),
        ({"networks": (Net, nn.Linear(3, 5))}, "returns (100, 5) for rows of shape (100, 3)"),
    ],
)
def test_bad_parameters(views, params, text):
    with pytest.raises((InputError, InputTypeError), match=re.escape(text)):
        small_deep(**params).fit(*views)


def test_networks_that_fail_or_return_nan(views):
    with pytest.raises(InputError, match=r"^the network of X fails on rows of shape \(100, 3\): "):
        small_deep(networks=(nn.Linear(4, 2), Net)).fit(*views)
    nan = nn.Linear(3, 2)
    nn.init.constant_(nan.weight, float("nan"))
    with pytest.raises(InputError, match=r"^the network of X returns NaN or infinite values"):
        small_deep(networks=(nan, Net)).fit(*views)


def test_integers_for_networks_of_your_own(views):
    X = (100 * views[0]).astype(np.int16)
    with pytest.raises(InputTypeError, match=r"^X holds int16, but networks of your own take"):
        small_deep(networks=(Net, Net)).fit(X, views[1])
    assert small_deep(epochs=1).fit(X, views[1]).n_features_in_ == 3


def test_a_device_that_is_not_there(views):
    with pytest.raises(InputError, match=r"^device='cuda' cannot be used here"):
        small_deep(device="cuda").fit(*views)


def test_a_budget_that_is_too_small(views):
    with pytest.raises(MemoryBudgetError, match=r"^DeepCCA with hidden=.* needs about .*narrower"):
        small_deep(hidden=(800, 800), memory_budget="1MB").fit(*views)


def test_a_view_that_does_not_vary(views):
    with pytest.raises(InputError, match=r"^view Y does not vary: all 1600 sampled rows are the"):
        small_deep().fit(views[0], np.ones_like(views[1]))
