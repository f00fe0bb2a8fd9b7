"""Deep CCA: gradients and steps against torch's own, the networks as feature maps."""

import numpy as np
import pytest
import torch

from knoi.arrays.backend import torch_backend
from knoi.arrays.random import View
from knoi.engine import Serial
from knoi.solvers.deep import (
    LAST_RATE,
    DeepUpdate,
    Network,
    NetworkBatch,
    Schedule,
    adam,
    perceptron,
    trace_couple,
)
from knoi.solvers.loop import NO_STATS, OptimizerState, ViewState
from knoi.solvers.noi import couple

BACKEND = torch_backend("cpu", "float64")
D, L, B = 6, 3, 40


def network(hidden=(8, 7), module=None):
    rng = np.random.default_rng(0)
    own = module is not None
    module = module if own else perceptron(D, hidden, L, 0, View.X)
    made = Network(module, D, L, None if own else hidden, rng.random(D), 1 + rng.random(D))
    return made.to(BACKEND)


def rows(n=B, seed=1):
    return np.random.default_rng(seed).standard_normal((n, D))


def at_rest(net):
    return ViewState(net.initial_weights(), BACKEND.zeros((2, net.n_parameters)))


def naive_noi_loss(P, Q):
    """The regression losses of both views, with targets that are constants."""
    with torch.no_grad():
        A, C = P - P.mean(0), Q - Q.mean(0)

        def whitened(Z):
            values, vectors = torch.linalg.eigh(Z.T @ Z / len(Z))
            return Z @ (vectors / values.sqrt()) @ vectors.T

        to_x, to_y, means = whitened(C), whitened(A), (P.mean(0), Q.mean(0))
    x, y = P - means[0] - to_x, Q - means[1] - to_y
    return ((x**2).sum(1).mean() + (y**2).sum(1).mean()) / 2


def naive_trace_loss(P, Q):
    from knoi.solvers.deep import TRACE_RIDGE

    P, Q = P - P.mean(0), Q - Q.mean(0)

    def root(Z):
        S = Z.T @ Z / len(Z)
        S = S + TRACE_RIDGE * (S.trace() / L).detach() * torch.eye(L, dtype=S.dtype)
        return torch.linalg.cholesky(S)

    T = torch.linalg.solve_triangular(root(P), P.T @ Q / len(P), upper=False)
    T = torch.linalg.solve_triangular(root(Q), T.T, upper=False)
    return -torch.linalg.matrix_norm(T, "nuc")


@pytest.mark.parametrize(
    ("naive", "coupled"),
    [(naive_noi_loss, lambda s: couple(NO_STATS, s, 0.0)), (naive_trace_loss, trace_couple)],
    ids=["noi", "trace"],
)
def test_residuals_are_gradients_of_the_loss(naive, coupled):
    P, Q = (torch.tensor(rows(seed=s)[:, :L], requires_grad=True) for s in (1, 2))
    with torch.no_grad():
        Q += P
    naive(P, Q).backward()
    residuals = coupled((P.detach().numpy(), Q.detach().numpy())).residuals
    for R, wanted in zip(residuals, (P.grad, Q.grad), strict=True):
        np.testing.assert_allclose(R / B, wanted.numpy(), rtol=1e-7, atol=1e-10)


def test_gradient_of_the_weights_is_that_of_torch():
    net = network()
    minibatch, R = NetworkBatch(net, B, BACKEND, keep=True), rows(seed=3)[:, :L]
    minibatch.load(rows())
    outputs = minibatch.project(net.initial_weights(), Serial())
    G = minibatch.gradient(torch.tensor(R), Serial())
    X = torch.tensor((rows() - net.shift) * net.scale)
    direct = net.module(X)
    np.testing.assert_allclose(outputs, direct.detach())
    (direct * torch.tensor(R)).sum().backward()
    wanted = torch.cat([one.grad.reshape(-1) for one in net.module.parameters()])
    np.testing.assert_allclose(G, wanted, rtol=1e-12)


def test_adam_is_adamw_of_torch():
    rng = np.random.default_rng(0)
    parameter = torch.nn.Parameter(torch.tensor(rng.standard_normal(5)))
    view = ViewState(parameter.detach().clone(), BACKEND.zeros((2, 5)))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.3)
    for step in range(1, 6):
        G = torch.tensor(rng.standard_normal(5))
        parameter.grad = G
        optimizer.step()
        before = view.U.clone()
        after = adam(view, G, 0.1, step, 0.3)
        np.testing.assert_array_equal(view.U, before)  # states are values
        view = after
        np.testing.assert_allclose(view.U, parameter.detach(), rtol=1e-12)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 7)])
def test_the_feature_map_and_the_last_layer_are_the_network(hidden):
    net = network(hidden)
    weights = net.initial_weights()
    features, last = net.feature_map(weights.numpy())
    minibatch = NetworkBatch(net, B, BACKEND, keep=False)
    minibatch.load(rows())
    outputs = np.asarray(minibatch.project(weights, Serial()))
    found = features.transform(rows()) @ last
    # The bias of the last layer is left to the mean.
    np.testing.assert_allclose(found - found.mean(0), outputs - outputs.mean(0), atol=1e-12)


def test_steps_agree_with_a_plain_training_loop():
    """Three steps of Adam on the naive loss, written with torch alone."""
    nets = [network(), network((9,))]
    data = [rows(seed=5), rows(seed=5) ** 2 + rows(seed=6)]
    features = tuple(NetworkBatch(net, B, BACKEND, keep=True) for net in nets)
    update = DeepUpdate(
        features, Schedule(10), 1e-2, 0.1, L, 0.0, "noi", 0, True, BACKEND, Serial()
    )
    state = OptimizerState(at_rest(nets[0]), at_rest(nets[1]))
    parameters = [one for net in nets for one in net.module.parameters()]
    optimizer = torch.optim.AdamW(parameters, weight_decay=0.1)
    for step in range(3):
        state, result = update.step(state, *data)
        inputs = [
            torch.tensor((X - net.shift) * net.scale) for X, net in zip(data, nets, strict=True)
        ]
        P, Q = (net.module(X) for X, net in zip(inputs, nets, strict=True))
        loss = naive_noi_loss(P, Q)
        assert result.loss == pytest.approx(loss.item())
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for net, view in zip(nets, (state.x, state.y), strict=True):
            # Adam normalises the gradient of the last bias, which is rounding only.
            np.testing.assert_allclose(view.U, net.initial_weights(), rtol=1e-6)


def test_running_means_of_batch_normalisation_are_part_of_the_weights():
    module = torch.nn.Sequential(torch.nn.Linear(D, L), torch.nn.BatchNorm1d(L)).double()
    net = network(module=module)
    minibatch = NetworkBatch(net, B, BACKEND, keep=True)
    minibatch.load(rows())
    weights = net.initial_weights()
    minibatch.project(weights, Serial())
    after = minibatch.buffers(weights)
    outputs = module.train()(torch.tensor(rows()))
    wanted = torch.cat([one.reshape(-1).double() for one in module.buffers()])
    np.testing.assert_allclose(after, wanted)
    assert outputs.shape == (B, L)


def test_schedule():
    clock = iter([0.0, 0.0, 5.0, 9.0, 100.0])
    assert [Schedule(10)(step) for step in (0, 5, 10, 20)] == [1, 0.5, LAST_RATE, LAST_RATE]
    assert Schedule(None)(10**6) == 1.0
    timed = Schedule(10, 10.0, now=lambda: next(clock))
    assert [timed(step) for step in (0, 2, 3, 4)] == pytest.approx([1, 0.5, 0.1, LAST_RATE])


def test_a_schedule_without_time_ends_at_once():
    """A head may take the whole time limit on a slow machine."""
    assert Schedule(100, 0.0)(0) == LAST_RATE
