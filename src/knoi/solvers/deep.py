"""Deep CCA by nonlinear orthogonal iterations: a network per view, trained with Adam.

A step has the parts of KNOI's: `project` runs the networks, `couple` finds what is left to explain
of each view, `gradient` propagates it back, `adam` moves the weights. The views meet only in
`couple`, on b x L scores in float64, so no decomposition is differentiated. The weights of a
network are one vector (P,): its parameters, then its buffers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from time import monotonic
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, Placed
from knoi.arrays.random import Purpose, View, derived_seed, generator
from knoi.arrays.sparse import dense
from knoi.engine import Engine
from knoi.features import FeatureMap
from knoi.features.network import TorchNetwork, module_tensors, relu_layers
from knoi.kernels import Kernel, Linear
from knoi.solvers.loop import (
    CoupledBatch,
    OptimizerState,
    RunningStats,
    Scores,
    StepResult,
    ViewState,
    check_step,
    finite,
    roll_back,
)
from knoi.solvers.noi import couple, inverse_root

# Adam's usual constants.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
# The learning rate falls linearly to this fraction over the planned run.
LAST_RATE = 0.01
# Ridge of the trace norm, relative to the mean variance of the scores: without one its gradient is
# not bounded.
TRACE_RIDGE = 1e-4

Layers = tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """The network of one view, with its initial weights; rows are standardised before it.

    `hidden` are the widths of the hidden layers; None for a module of the user's, which takes rows
    as they are. With `bfloat16`, products of training steps are in that precision.
    """

    kernel: ClassVar[Kernel] = Linear()
    module: Any
    n_cols: int
    rank: int  # outputs, L
    hidden: Layers | None
    shift: NDArray[Any]  # (d,)
    scale: NDArray[Any]  # (d,)
    bfloat16: bool = False

    @cached_property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the weights, in the order of the vector."""
        return [(name, tuple(one.shape)) for name, one in module_tensors(self.module)]

    @cached_property
    def n_parameters(self) -> int:
        """Weights that are trained; buffers follow them in the vector."""
        return sum(one.numel() for one in self.module.parameters())

    @cached_property
    def n_weights(self) -> int:
        """Length of the vector, P."""
        return sum(int(np.prod(shape)) for _, shape in self.shapes)

    def to(self, backend: Backend) -> "Network":
        """The same network on the device of the backend."""
        dtype = getattr(backend.xp, backend.dtype)
        return replace(self, module=self.module.to(device=backend.device, dtype=dtype))

    def initial_weights(self) -> Array:
        """The weights of the module as one vector, (P,)."""
        import torch

        parts = [one.detach().reshape(-1) for _, one in module_tensors(self.module)]
        return torch.cat([part.to(parts[0].dtype) for part in parts])

    def unpack(self, weights: Array) -> dict[str, Array]:
        """The parts of a vector of weights by name."""
        found, start = {}, 0
        for name, shape in self.shapes:
            size = int(np.prod(shape))
            found[name] = weights[start : start + size].reshape(shape)
            start += size
        return found

    def standardised(self, X: Array) -> Array:
        """Rows (b, d) as the network takes them, centred in the precision of the data."""
        rows = dense(X)
        return rows if self.hidden is None else (rows - self.shift) * self.scale

    def feature_map(self, weights: NDArray[Any]) -> tuple[FeatureMap, NDArray[Any]]:
        """The trained network without its last layer, and the weights of that layer, (M, L).

        The first layer includes the standardisation. A module of the user's is taken whole.
        """
        if self.hidden is None:
            whole = TorchNetwork(self.n_cols, self.rank, weights).with_module(self.module)
            return whole, np.eye(self.rank)
        parts = list(self.unpack(weights.astype(np.float64)).values())
        layers = [(W.T, b) for W, b in zip(parts[::2], parts[1::2], strict=True)]
        W, b = layers[0]
        layers[0] = (self.scale[:, None] * W, b - (self.shift * self.scale) @ W)
        dtype = self.scale.dtype
        kept = [(np.ascontiguousarray(W, dtype), b.astype(dtype)) for W, b in layers[:-1]]
        return relu_layers(self.n_cols, kept), layers[-1][0]

    def state_dict(self) -> dict[str, Any]:
        """What identifies the network: sizes, standardisation, initial weights."""
        weights = self.initial_weights().cpu().numpy()
        return {"columns": self.n_cols, "shift": self.shift, "scale": self.scale, "w": weights}


def perceptron(n_cols: int, hidden: Layers, n_components: int, seed: int, view: View) -> Any:
    """A torch module: linear layers with ReLU in between, drawn as torch draws them."""
    import torch

    widths = (n_cols, *hidden, n_components)
    modules: list[Any] = []
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        rng = generator(seed, Purpose.INITIAL_WEIGHTS, view, layer)
        limit = fan_in**-0.5
        linear = torch.nn.utils.skip_init(torch.nn.Linear, fan_in, fan_out)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(rng.uniform(-limit, limit, (fan_out, fan_in))))
            linear.bias.copy_(torch.from_numpy(rng.uniform(-limit, limit, fan_out)))
        modules += [torch.nn.ReLU(), linear] if modules else [linear]
    return torch.nn.Sequential(*modules)


def multiplies_bfloat16(device: str) -> bool:
    """Whether the device multiplies matrices in bfloat16 faster than in float32."""
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    if device != "cpu" or not hasattr(torch.cpu, "get_capabilities"):  # torch before 2.12
        return False
    features = torch.cpu.get_capabilities()
    return any(features.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


class NetworkBatch:
    """A network on the rows of one minibatch; with `keep`, in training mode, for `gradient`."""

    def __init__(self, network: Network, _batch_size: int, backend: Backend, *, keep: bool) -> None:
        self._network, self._backend, self._training = network, backend, keep
        self._rows: Array = None
        self._there: Network | None = None  # with the standardisation on the device
        self._run: tuple[Array, list[Array], list[Array]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the rows of the last minibatch."""
        return {**self.__dict__, "_rows": None, "_run": None, "_there": None}

    def place(self, X: Array) -> Placed:
        """Rows for `load`: standardised now, uploaded ahead of time, and only once."""
        network = self._network
        if hasattr(X, "detach"):  # a tensor on the device
            if self._there is None:
                shift, scale = (
                    self._backend.asarray(one) for one in (network.shift, network.scale)
                )
                self._there = replace(network, shift=shift, scale=scale)
            network = self._there
        return Placed(network.standardised(X), self._backend)

    def load(self, X: Array | Placed) -> None:
        """Take the rows of a minibatch, (b, d)."""
        placed = X if isinstance(X, Placed) else self.place(X)
        self._rows, self._run = placed.get(), None

    def project(self, U: Array, _engine: Engine) -> Array:
        """Outputs of the network with weights U (P,): (b, L)."""
        import torch

        module, tensors = self._network.module, self._network.unpack(U)
        with torch.set_grad_enabled(self._training):
            parameters = {name: tensors[name].detach() for name, _ in module.named_parameters()}
            # A module may update its buffers: batch normalisation.
            buffers = {
                name: tensors[name].to(one.dtype, copy=True) for name, one in module.named_buffers()
            }
            for one in parameters.values():
                one.requires_grad_(self._training)
            module.train(self._training)
            bfloat16 = self._training and self._network.bfloat16
            kind = torch.device(self._backend.device).type
            with torch.autocast(kind, torch.bfloat16) if bfloat16 else nullcontext():
                outputs = torch.func.functional_call(
                    module, {**parameters, **buffers}, (self._rows,)
                )
            outputs = outputs.to(self._rows.dtype) if bfloat16 else outputs
        if self._training:
            self._run = outputs, list(parameters.values()), list(buffers.values())
        return outputs.detach()

    def gradient(self, R: Array, _engine: Engine) -> Array:
        """The gradient of sum(R * outputs) with respect to the parameters; after `project`."""
        import torch

        assert self._run is not None
        outputs, parameters, _ = self._run
        found = torch.autograd.grad(outputs, parameters, R, materialize_grads=True)
        return torch.cat([one.reshape(-1) for one in found])

    def buffers(self, like: Array) -> Array:
        """The buffers after `project`, as the end of the vector of weights."""
        import torch

        assert self._run is not None
        parts = [one.reshape(-1).to(like.dtype) for one in self._run[2]]
        return torch.cat(parts) if parts else like[:0]


def trace_couple(scores: Scores) -> CoupledBatch:
    """The gradient of the total correlation of a minibatch (Andrew et al., 2013), as residuals.

    With T = Sxx^-1/2 Sxy Syy^-1/2 = A D B', the gradient of the sum of singular values with respect
    to the scores P is (Q Syy^-1/2 B A' - P Sxx^-1/2 A D A') Sxx^-1/2 / b, likewise for Q.
    """
    P, Q = (S - S.mean(axis=0) for S in scores)
    b, L = P.shape
    roots = []
    for S in (P.T @ P / b, Q.T @ Q / b):
        S[np.diag_indices(L)] += TRACE_RIDGE * max(float(np.trace(S)) / L, np.finfo(float).tiny)
        roots.append(inverse_root(S))
    A, D, Bt = np.linalg.svd(roots[0] @ (P.T @ Q / b) @ roots[1])
    x = (P @ roots[0] @ (A * D) @ A.T - Q @ roots[1] @ Bt.T @ A.T) @ roots[0]
    y = (Q @ roots[1] @ (Bt.T * D) @ Bt - P @ roots[0] @ A @ Bt) @ roots[1]
    return CoupledBatch(RunningStats(), (x, y), float(L - D.sum()), np.clip(D, 0, 1))


@dataclass(frozen=True)
class Schedule:
    """The learning rate over a planned run: falls linearly to nearly 0 by its last step.

    With a time limit it falls with the time that has passed, if that is further on.
    """

    last_step: int | None  # None: a stream without end has a constant rate
    max_time: float | None = None
    now: Callable[[], float] = monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_began", self.now())

    def __call__(self, step: int) -> float:
        """The factor of the rate for step number `step`, counted from 0."""
        done = 0.0 if self.last_step is None else step / self.last_step
        if self.max_time is not None:
            passed = self.now() - self._began
            done = max(done, passed / self.max_time) if self.max_time else 1.0
        return max(LAST_RATE, 1 - done)


def adam(view: ViewState, G: Array, rate: float, step: int, decay: float) -> ViewState:
    """A step of AdamW, number `step` from 1: velocity holds both moments, (2, P); in new arrays."""
    import torch

    P = len(G)
    moments = torch.empty_like(view.velocity)
    torch.lerp(view.velocity[0], G, 1 - BETA1, out=moments[0])
    torch.mul(view.velocity[1], BETA2, out=moments[1])
    moments[1].addcmul_(G, G, value=1 - BETA2)
    scale = moments[1].sqrt().mul_((1 - BETA2**step) ** -0.5).add_(EPSILON)
    U = view.U.clone()
    parameters = U[:P]
    if decay:
        parameters.mul_(1 - rate * decay)
    parameters.addcdiv_(moments[0], scale, value=-rate / (1 - BETA1**step))
    return ViewState(U, moments)


@dataclass(frozen=True)
class DeepUpdate:
    """One step of deep CCA."""

    features: tuple[NetworkBatch, NetworkBatch]
    schedule: Schedule
    learning_rate: float
    weight_decay: float
    n_components: int
    rho: float
    loss: str  # "noi" or "trace"
    seed: int
    draws: bool  # whether modules may draw at random, as dropout does
    backend: Backend
    engine: Engine

    def step(self, state: OptimizerState, x: Array, y: Array) -> tuple[OptimizerState, StepResult]:
        """Project, couple and descend; or roll back if the minibatch shows a bad step."""
        rows, weights = (x, y), (state.x.U, state.y.U)

        def forward(v: int) -> NDArray[Any]:
            self.features[v].load(rows[v])
            outputs = self.features[v].project(weights[v], self.engine)
            return self.backend.to_numpy(outputs).astype(np.float64)

        with self._random_numbers(state.steps):
            scores = self._both(forward)
        coupled = self._couple(state, (scores[0], scores[1]))
        rate = self.learning_rate * self.schedule(state.steps)
        state, result = check_step(state, coupled, (scores[0], scores[1]), rate, self.n_components)
        if coupled is None or result.rolled_back:
            return roll_back(state, self.backend), result

        def backward(v: int) -> ViewState:
            R = self.backend.asarray(coupled.residuals[v] / len(coupled.residuals[v]))
            G = self.features[v].gradient(R, self.engine)
            view = (state.x, state.y)[v]
            moved = adam(view, G, result.learning_rate, state.steps, self.weight_decay)
            moved.U[len(G) :] = self.features[v].buffers(G)
            return moved

        views = self._both(backward)
        return replace(state, x=views[0], y=views[1], stats=coupled.stats), result

    def penalty(self, view: int, U: Array) -> Array | None:
        """None: the networks have no ridge."""
        return None

    def _couple(self, state: OptimizerState, scores: Scores) -> CoupledBatch | None:
        if not finite(scores):
            return None
        if self.loss == "trace":
            return trace_couple(scores)
        return couple(state.stats, scores, self.rho)

    def _both(self, work: Callable[[int], Any]) -> Sequence[Any]:
        """The work of both views; a thread and half of the cores for each, if they can be two."""
        if self.backend.device != "cpu":
            return [work(v) for v in (0, 1)]
        import torch

        if self.draws:
            torch.set_num_threads(self.engine.n_workers)
            return [work(v) for v in (0, 1)]

        def alone(v: int) -> Any:
            # A setting of this thread. Two views in two threads beat both cores on one view.
            torch.set_num_threads(max(1, self.engine.n_workers // 2))
            return work(v)

        return self.engine.map(alone, (0, 1))

    @contextmanager
    def _random_numbers(self, step: int) -> Iterator[None]:
        """What modules draw in this step (dropout) depends on seed and step only."""
        if not self.draws:
            yield
            return
        import torch

        # Elsewhere, as on "mps", the generator of the device cannot be saved by its name.
        devices = [self.backend.device] if self.backend.own_memory else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(derived_seed(self.seed, Purpose.DROPOUT, step) % 2**63)
            yield
