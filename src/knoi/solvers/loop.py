"""The training loop: its state, the check that rolls back a bad step, callbacks.

A training state is a value. An update rule turns it and a minibatch into the next one, callbacks
may add to it, and a checkpoint is its `state_dict`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from time import perf_counter
from types import UnionType
from typing import Any, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

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

State = TypeVar("State")
Scores = tuple[NDArray[Any], NDArray[Any]]  # (b, L) each, float64


@dataclass(frozen=True)
class ViewState:
    """Weights of one view and their momentum.

    Both are (M, L) for weights on features. A network has a vector of weights (P,) and the two
    moments of its gradients (2, P).
    """

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


def state_dict(state: Any, backend: Backend) -> dict[str, Any]:
    """The fields of a training state, or of a part of it, as plain values and NumPy arrays."""
    return {field.name: _stored(getattr(state, field.name), backend) for field in fields(state)}


def from_state_dict(kind: type[State], state: Mapping[str, Any], backend: Backend) -> State:
    """The inverse of `state_dict`, for a state of class `kind`."""
    hints = get_type_hints(kind)
    return kind(**{name: _restored(hints[name], value, backend) for name, value in state.items()})


def _stored(value: Any, backend: Backend) -> Any:
    if is_dataclass(value):
        return state_dict(value, backend)
    if isinstance(value, tuple):  # a pair of arrays, or the records of the history
        items = [_stored(item, backend) for item in value]
        pair = bool(items) and isinstance(items[0], np.ndarray)
        return dict(zip("xy", items, strict=True)) if pair else items
    if isinstance(value, np.ndarray) or not hasattr(value, "shape"):
        return value
    return backend.to_numpy(value)


def _restored(hint: Any, value: Any, backend: Backend) -> Any:
    if value is None:
        return None
    if get_origin(hint) is UnionType:  # "... | None"
        hint = get_args(hint)[0]
    if is_dataclass(hint):
        return from_state_dict(cast("type[Any]", hint), value, backend)
    if get_origin(hint) is not tuple:
        return backend.asarray(value) if hint is Array else value
    if isinstance(value, Mapping):
        value = [_restored(get_args(hint)[0], value[view], backend) for view in "xy"]
    return tuple(value)


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
        """The state after a minibatch, and what it showed of the state before."""
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
    b, good = len(scores[0]), state.last_good
    after = replace(state, steps=state.steps + 1, samples=state.samples + b)
    rate *= state.lr_scale
    if coupled is None:
        return after, StepResult(float("inf"), float("nan"), rate, True, scores)
    leading = coupled.correlations[:n_components]
    correlation = float(leading.sum())
    bad, confirmed = False, True
    if good is not None and good.correlation is not None:
        # The mean squared residual of zero weights is one per direction of whitened targets.
        usual = max(good.loss, coupled.residuals[0].shape[1])
        bad = collapsed(correlation, good) or not coupled.loss <= DIVERGED * usual
        confirmed = coupled.stable and correlation >= CONFIRMED * good.correlation
        # If the loss of the last good weights could rise freely, divergence would go unnoticed.
        confirmed = confirmed and coupled.loss <= usual
    if confirmed and not bad:
        # The standard deviation of a sample correlation is about (1 - r^2) / sqrt(n).
        noise = N_DEVIATIONS * float(np.sqrt(np.sum((1 - leading**2) ** 2) / b))
        reached = LastGood(state.x.U, state.y.U, correlation, noise, coupled.loss)
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
    x, y = (
        ViewState(U, backend.zeros(tuple(view.velocity.shape)))
        for U, view in ((good.U, state.x), (good.V, state.y))
    )
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
