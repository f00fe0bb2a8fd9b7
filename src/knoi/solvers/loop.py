"""The visible training loop: get a minibatch, step, look, go on or stop."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol, Self

from knoi.arrays.backend import Array, Backend
from knoi.data.stream import Batch, Position
from knoi.engine import Engine
from knoi.solvers.rule import Outcome, Weights

BEGINNING = Position()


@dataclass(frozen=True)
class Snapshot:
    """Weights worth keeping, and the held-out total correlation they reached."""

    U: Array  # (Mx, L)
    V: Array  # (My, L)
    held_out: float
    samples: int


@dataclass(frozen=True)
class Run:
    """Everything that decides how training goes on: a checkpoint is its `state_dict`."""

    weights: Weights
    position: Position = BEGINNING
    seconds: float = 0.0
    history: tuple[Mapping[str, Any], ...] = ()
    best: Snapshot | None = None
    stopped: str | None = None  # why training has ended, once it has

    def state_dict(self, backend: Backend) -> dict[str, Any]:
        """Plain values and NumPy arrays."""
        state: dict[str, Any] = {
            "weights": self.weights.state_dict(backend),
            "position": self.position.to_dict(),
            "seconds": self.seconds,
            "history": list(self.history),
            "stopped": self.stopped,
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
            Weights.from_state_dict(state["weights"], backend),
            Position.from_dict(state["position"]),
            float(state["seconds"]),
            tuple(state["history"]),
            best,
            state["stopped"],
        )


class Steps(Protocol):
    """A rule: how a minibatch changes the weights."""

    @property
    def engine(self) -> Engine:
        """Who does the work."""
        ...

    def step(self, before: Weights, x: Array, y: Array) -> tuple[Weights, Outcome]:
        """The weights after a minibatch, and what it showed of those before."""
        ...

    def penalty(self, view: int, U: Array) -> Array | None:
        """What a ridge adds to the covariance of the scores of a view, (L, L); None without."""
        ...


class Callback(Protocol):
    """Looks at the run after each step and may add to it: history, a snapshot, a reason to stop."""

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """The run to go on with; `run.stopped` ends it."""
        ...


def train(run: Run, batches: Iterable[Batch], rule: Steps, callbacks: Sequence[Callback]) -> Run:
    """Step through the minibatches until they end or a callback stops the run."""
    begun = perf_counter() - run.seconds
    for batch in batches:
        with rule.engine.one_blas_thread():
            weights, outcome = rule.step(run.weights, batch.x, batch.y)
        run = replace(
            run,
            weights=weights,
            position=batch.next_position,
            seconds=perf_counter() - begun,
        )
        for callback in callbacks:
            run = callback(run, outcome)
        if run.stopped is not None:
            break
    return run
