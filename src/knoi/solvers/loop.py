"""The training loop: its state, the check that rolls back a bad step, callbacks.

A training state is a value. An update rule turns it and a minibatch into the next one, callbacks
may add to it, and a checkpoint is its `state_dict`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.data.stream import Batch, Position
from knoi.engine import Engine
from knoi.exceptions import InputError, InputTypeError

# A minibatch whose total correlation falls below this fraction of the last good value indicates a
# collapse ...
COLLAPSED = 0.5
# ... if it falls that far by this many of its standard deviations ...
N_DEVIATIONS = 4.0
# ... and one that keeps this fraction of it confirms the weights it was projected with.
CONFIRMED = 0.98
# Residuals this many times those of the last good weights, or of zero weights, indicate divergence.
# A single direction can diverge while the views agree as well as before.
DIVERGED = 100.0
# The squares of larger scores, or sums of them, may overflow.
LARGEST_SCORE = 1e100
# The learning rate is multiplied by this when a step is rolled back.
LR_CUT = 0.5

Scores = tuple[NDArray[Any], NDArray[Any]]  # (b, L) each, float64


@dataclass(frozen=True)
class ViewState:
    """Weights on the features of one view and their momentum, both (M, L)."""

    U: Array
    velocity: Array


@dataclass(frozen=True)
class RunningStats:
    """Running means and covariances of the scores of both views, float64."""

    means: tuple[NDArray[Any], NDArray[Any]] | None = None  # (L,) each
    covariances: tuple[NDArray[Any], NDArray[Any]] | None = None  # (L, L) each


NO_STATS = RunningStats()


@dataclass(frozen=True)
class CoupledBatch:
    """The residuals of a minibatch in each view, and how well the views agreed before the step."""

    stats: RunningStats
    residuals: tuple[NDArray[Any], NDArray[Any]]  # (b, L) each
    loss: float  # mean squared residual, both views
    correlations: NDArray[Any]  # (L,) canonical correlations of the minibatch's scores
    stable: bool = True  # whether the weights may serve as the last good ones


@dataclass(frozen=True)
class LastGood:
    """Weights confirmed by a minibatch they had not seen: a bad step is rolled back to them."""

    U: Array  # (Mx, L)
    V: Array  # (My, L)
    correlation: float | None  # None: measured on the next minibatch
    noise: float  # change of the correlation that chance explains
    loss: float  # mean squared residual


@dataclass(frozen=True)
class OptimizerState:
    """Everything that a step changes."""

    x: ViewState
    y: ViewState
    stats: RunningStats = NO_STATS
    steps: int = 0
    samples: int = 0
    lr_scale: float = 1.0  # product of the cuts of the learning rate after bad steps
    last_good: LastGood | None = None
    average: tuple[Array, Array] | None = None  # of U and of V
    n_averaged: int = 0

    @property
    def weights(self) -> tuple[Array, Array]:
        """U and V if training ended now: the average, where there is one."""
        return (self.x.U, self.y.U) if self.average is None else self.average

    def state_dict(self, backend: Backend) -> dict[str, Any]:
        """Plain values and NumPy arrays."""
        arrays = {"U": self.x.U, "V": self.y.U, "U_velocity": self.x.velocity}
        arrays["V_velocity"] = self.y.velocity
        if self.last_good is not None:
            arrays |= {"last_good_U": self.last_good.U, "last_good_V": self.last_good.V}
        if self.average is not None:
            arrays |= {"average_U": self.average[0], "average_V": self.average[1]}
        state: dict[str, Any] = {name: backend.to_numpy(array) for name, array in arrays.items()}
        if self.stats.means is not None and self.stats.covariances is not None:
            state |= {"mean_x": self.stats.means[0], "mean_y": self.stats.means[1]}
            state |= {"Sxx": self.stats.covariances[0], "Syy": self.stats.covariances[1]}
        state |= {"steps": self.steps, "samples": self.samples, "lr_scale": self.lr_scale}
        state["n_averaged"] = self.n_averaged
        if self.last_good is not None:
            for name in ("correlation", "noise", "loss"):
                state[f"last_good_{name}"] = getattr(self.last_good, name)
        return state

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], backend: Backend) -> Self:
        """The inverse of `state_dict`."""
        asarray = backend.asarray
        stats, last_good, average = NO_STATS, None, None
        if "Sxx" in state:
            stats = RunningStats((state["mean_x"], state["mean_y"]), (state["Sxx"], state["Syy"]))
        if "last_good_U" in state:
            U, V = asarray(state["last_good_U"]), asarray(state["last_good_V"])
            values = (state[f"last_good_{name}"] for name in ("correlation", "noise", "loss"))
            last_good = LastGood(U, V, *values)
        if "average_U" in state:
            average = asarray(state["average_U"]), asarray(state["average_V"])
        return cls(
            ViewState(asarray(state["U"]), asarray(state["U_velocity"])),
            ViewState(asarray(state["V"]), asarray(state["V_velocity"])),
            stats,
            int(state["steps"]),
            int(state["samples"]),
            float(state["lr_scale"]),
            last_good,
            average,
            int(state["n_averaged"]),
        )


@dataclass(frozen=True)
class Snapshot:
    """The best weights so far and the held-out total correlation they reached."""

    U: Array  # (Mx, L)
    V: Array  # (My, L)
    held_out: float
    samples: int


@dataclass(frozen=True)
class TrainingState:
    """Everything that decides how training continues: a checkpoint is its `state_dict`.

    `extra` belongs to callbacks: JSON values under a key per callback, saved in checkpoints.
    """

    optimizer: OptimizerState
    position: Position = field(default_factory=Position)
    seconds: float = 0.0
    history: tuple[Mapping[str, Any], ...] = ()
    best: Snapshot | None = None
    stopped: str | None = None  # the reason why training has ended, once it has
    extra: Mapping[str, Any] = field(default_factory=dict)

    def state_dict(self, backend: Backend) -> dict[str, Any]:
        """Plain values and NumPy arrays."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(backend),
            "position": self.position.to_dict(),
            "seconds": self.seconds,
            "history": list(self.history),
            "stopped": self.stopped,
            "extra": dict(self.extra),
        }
        if self.best is not None:
            state["best"] = {
                "U": backend.to_numpy(self.best.U),
                "V": backend.to_numpy(self.best.V),
                "held_out": self.best.held_out,
                "samples": self.best.samples,
            }
        return state

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], backend: Backend) -> Self:
        """The inverse of `state_dict`."""
        best = None
        if "best" in state:
            kept = state["best"]
            U, V = backend.asarray(kept["U"]), backend.asarray(kept["V"])
            best = Snapshot(U, V, float(kept["held_out"]), int(kept["samples"]))
        return cls(
            OptimizerState.from_state_dict(state["optimizer"], backend),
            Position.from_dict(state["position"]),
            float(state["seconds"]),
            tuple(state["history"]),
            best,
            state["stopped"],
            state["extra"],
        )


@dataclass(frozen=True)
class StepResult:
    """What a minibatch showed of the weights before the step.

    Attributes
    ----------
    loss : float
        Mean squared residual.
    correlation : float
        Sum of the `n_components` largest canonical correlations of the minibatch's scores.
    learning_rate : float
        Length of the step in the first view.
    rolled_back : bool
        True if the minibatch showed that the views fell apart: the weights are the last good ones.
    scores : pair of ndarray (b, L)
        Projections of the minibatch before the step, float64.
    """

    loss: float
    correlation: float
    learning_rate: float
    rolled_back: bool
    scores: Scores


class UpdateRule(Protocol):
    """How a minibatch changes the weights."""

    @property
    def engine(self) -> Engine:
        """Runs the work."""
        ...

    def step(self, state: OptimizerState, x: Array, y: Array) -> tuple[OptimizerState, StepResult]:
        """The state after a minibatch, and what the minibatch showed of the state before."""
        ...

    def penalty(self, view: int, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores of a view, (L, L), or None."""
        ...


class Callback(Protocol):
    """Called after each step: takes the training state and returns the state to continue with.

    A callback may add to `state.history`, keep plain values in `state.extra`, or end training by
    setting `state.stopped` to a reason. It must hold nothing else that a resumed run would need.
    States are immutable: use `dataclasses.replace`.

    If it has a method `on_fit_start(context)`, that is called once before the first step with a
    `knoi.callbacks.FitContext`.
    """

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """The state to continue with."""
        ...


def train(
    state: TrainingState,
    batches: Iterable[Batch],
    update: UpdateRule,
    callbacks: Sequence[Callback],
) -> TrainingState:
    """Step through the minibatches until they end or a callback stops the run."""
    began = perf_counter() - state.seconds
    for batch in batches:
        with update.engine.one_blas_thread():
            optimizer, result = update.step(state.optimizer, batch.x, batch.y)
        state = replace(
            state,
            optimizer=optimizer,
            position=batch.next_position,
            seconds=perf_counter() - began,
        )
        for callback in callbacks:
            returned = callback(state, result)
            if not isinstance(returned, TrainingState):
                raise InputTypeError(
                    f"callback {callback!r} returned {returned!r}: wanted the training state to "
                    "continue with. End the callback with 'return state'."
                )
            state = returned
        if state.stopped is not None:
            break
    return state


def finite(scores: Scores) -> bool:
    """Whether products of the scores are finite; False for NaN."""
    return all(bool(np.abs(P).max() < LARGEST_SCORE) for P in scores)


def check_step(
    state: OptimizerState,
    coupled: CoupledBatch | None,
    scores: Scores,
    rate: float,
    n_components: int,
) -> tuple[OptimizerState, StepResult]:
    """Count the minibatch, and decide whether the weights must be rolled back.

    If the minibatch confirms the weights, they become the last good ones. `coupled` is None where
    the scores are not finite. `rate` is the learning rate before bad steps have cut it.
    """
    b = len(scores[0])
    after = replace(state, steps=state.steps + 1, samples=state.samples + b)
    rate *= state.lr_scale
    if coupled is None:
        return after, StepResult(float("inf"), float("nan"), rate, True, scores)
    leading = coupled.correlations[:n_components]
    correlation = float(leading.sum())
    bad = collapsed(correlation, state.last_good) or _diverged(coupled, state.last_good)
    if not bad:
        reached = LastGood(state.x.U, state.y.U, correlation, _noise(leading, b), coupled.loss)
        if _confirmed(coupled, reached, state.last_good):
            after = replace(after, last_good=reached)
    return after, StepResult(coupled.loss, correlation, rate, bad, scores)


def roll_back(state: OptimizerState, backend: Backend) -> OptimizerState:
    """Return to the last good weights, with zero velocity and a smaller learning rate."""
    if state.last_good is None:
        raise InputError(
            "the features of the first minibatch are not finite or its scores do not vary. "
            "Check the scale of the data, or standardise it."
        )
    good = state.last_good
    x, y = (at_rest(U, backend) for U in (good.U, good.V))
    return replace(
        state,
        x=x,
        y=y,
        stats=NO_STATS,
        lr_scale=state.lr_scale * LR_CUT,
        last_good=replace(good, correlation=None),
        average=None,
        n_averaged=0,
    )


def at_rest(U: Array, backend: Backend) -> ViewState:
    """Weights U (M, L) with zero velocity."""
    return ViewState(U, backend.zeros(tuple(U.shape)))


def collapsed(correlation: float, last_good: LastGood | None) -> bool:
    """Whether a total correlation shows that the views fell apart since the last good weights."""
    if last_good is None or last_good.correlation is None:
        return False
    return not correlation >= COLLAPSED * last_good.correlation - last_good.noise


def _noise(correlations: NDArray[Any], n: int) -> float:
    """How far chance may move the sum of correlations measured on n rows."""
    # The standard deviation of a sample correlation is about (1 - r^2) / sqrt(n).
    return N_DEVIATIONS * float(np.sqrt(np.sum((1 - correlations**2) ** 2) / n))


def _diverged(coupled: CoupledBatch, last_good: LastGood | None) -> bool:
    """Whether the residuals have grown far beyond those of the last good weights."""
    if last_good is None or last_good.correlation is None:
        return False
    return not coupled.loss <= DIVERGED * max(last_good.loss, _loss_of_zero_weights(coupled))


def _confirmed(coupled: CoupledBatch, reached: LastGood, last_good: LastGood | None) -> bool:
    """Whether a minibatch confirms the weights it was projected with as the last good ones."""
    if last_good is None or last_good.correlation is None or reached.correlation is None:
        return True
    # If the loss of the last good weights could rise freely, slow divergence would go unnoticed.
    as_close = reached.loss <= max(last_good.loss, _loss_of_zero_weights(coupled))
    return coupled.stable and as_close and reached.correlation >= CONFIRMED * last_good.correlation


def _loss_of_zero_weights(coupled: CoupledBatch) -> int:
    """The mean squared residual of zero weights: one per direction of whitened targets."""
    return int(coupled.residuals[0].shape[1])
