"""Learning curve and best weights, early stopping, time limit, progress bar."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, TextIO

from knoi.solvers.loop import OptimizerState, Snapshot, StepResult, TrainingState

# The columns of `history_`, in order.
COLUMNS = (
    "step",
    "epoch",
    "samples",
    "seconds",
    "loss",
    "correlation",
    "held_out",
    "learning_rate",
    "rolled_back",
)
# Records are at least a hundredth of the run so far apart: enough for any plot, and the history of
# an endless stream grows with its logarithm.
RECORDS_PER_RUN = 100

CONVERGED = "converged"
OUT_OF_TIME = "out of time"
# Early stopping compares with the records of the first half of the samples: learning curves rise
# with the logarithm of the samples, so a fixed number of steps would end long runs too early.
LOOK_BACK = 0.5
# A trend needs at least this many records.
MIN_RECORDS = 6

# Seconds between lines of progress where standard error is not a terminal.
LOG_SECONDS = 10.0


@dataclass(frozen=True)
class FitContext:
    """What a callback is given once before the first step, if it has `on_fit_start`.

    Attributes
    ----------
    batch_size : int
        Rows per minibatch.
    n_samples : int
        Samples at the end of the last epoch.
    model_at : callable
        TrainingState -> the fitted model if training ended in this state. It costs about as much as
        a few steps.
    """

    batch_size: int
    n_samples: int
    model_at: Callable[[TrainingState], Any]


@dataclass
class History:
    """Record the learning curve and keep the weights that do best on held-out rows.

    Parameters
    ----------
    every : int
        Minimum number of steps between records. Late in a long run, records are a hundredth of the
        run apart.
    last_step : int or None
        Number of the last step, if known.
    evaluate : callable or None
        OptimizerState -> held-out total correlation; None if nothing is held out.
    """

    every: int
    last_step: int | None
    evaluate: Callable[[OptimizerState], float] | None

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """Add a record if one is due and this step has none yet."""
        recorded = bool(state.history) and state.history[-1]["step"] == state.optimizer.steps
        if recorded or not (result.rolled_back or self._due(state)):
            return state
        optimizer, held_out = state.optimizer, math.nan
        if self.evaluate is not None and not result.rolled_back:
            held_out = self.evaluate(optimizer)
        record = {
            "step": optimizer.steps,
            "epoch": state.position.epoch,
            "samples": optimizer.samples,
            "seconds": state.seconds,
            "loss": result.loss,
            "correlation": result.correlation,
            "held_out": held_out,
            "learning_rate": result.learning_rate,
            "rolled_back": result.rolled_back,
        }
        best = state.best
        # False for NaN: nothing is held out, or the step was rolled back.
        if held_out > (-math.inf if best is None else best.held_out):
            best = Snapshot(*optimizer.weights, held_out, optimizer.samples)
        return replace(state, history=(*state.history, record), best=best)

    def _due(self, state: TrainingState) -> bool:
        step = state.optimizer.steps
        if state.stopped is not None or step == self.last_step:
            return True
        since = step - (state.history[-1]["step"] if state.history else 0)
        return step % self.every == 0 and since * RECORDS_PER_RUN >= step


def as_columns(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The records as one list per column, ready for a data frame."""
    records = list(records)
    return {name: [record[name] for record in records] for name in COLUMNS}


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when the held-out total correlation has risen by less than `tol`, relative.

    The rise is that of the best value over the second half of the samples seen so far.
    """

    tol: float

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """Stop the run if it no longer improves."""
        if not state.history or state.history[-1]["step"] != state.optimizer.steps:
            return state
        return replace(state, stopped=CONVERGED) if self.converged(state.history) else state

    def converged(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these records no longer rise."""
        curve = [
            (record["samples"], record["held_out"])
            for record in history
            if not math.isnan(record["held_out"])
        ]
        if len(curve) < MIN_RECORDS:
            return False
        earlier = [value for samples, value in curve if samples <= LOOK_BACK * curve[-1][0]]
        if not earlier:
            return False
        best, before = max(value for _, value in curve), max(earlier)
        return bool(best - before < self.tol * abs(before))


@dataclass(frozen=True)
class TimeLimit:
    """Stop at `deadline`, or as long before as what follows training takes.

    That is a number of seconds, and the time of so many further steps.
    """

    deadline: float  # of the clock `now`
    seconds_after: float = 0.0
    steps_after: float = 0.0
    now: Callable[[], float] = monotonic
    _began: float = field(init=False)
    _steps: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_began", self.now())

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """Stop the run if time is up."""
        now, step = self.now(), state.optimizer.steps
        if not self._steps:
            self._steps.append(step - 1)
        per_step = (now - self._began) / max(1, step - self._steps[0])
        left = self.deadline - self.seconds_after - self.steps_after * per_step - now
        return replace(state, stopped=OUT_OF_TIME) if left <= 0 else state


class ProgressBar:
    """Show rate, time left and correlation: a bar on a terminal, a line now and then elsewhere.

    `n_components` is the upper limit of the total correlation, `n_samples` the number at the end of
    the run, if known.
    """

    def __init__(
        self, method: str, n_components: int, n_samples: int | None, stream: TextIO | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(file=sys.stderr if stream is None else stream)
        self._method, self._n_components, self._n_samples = method, n_components, n_samples
        self._began: tuple[float, int] | None = None
        self._logged = -math.inf
        self._bar: Any = None
        if self._console.is_terminal:
            columns = [TextColumn(method), BarColumn(bar_width=20), TimeRemainingColumn()]
            facts = TextColumn("{task.fields[facts]}", markup=False)
            self._bar = Progress(*columns, facts, console=self._console, transient=True)
            self._task = self._bar.add_task(method, total=n_samples, facts="")
            self._bar.start()

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """Update the bar, or write a line if one is due."""
        now, optimizer = monotonic(), state.optimizer
        if self._began is None:
            self._began = now, optimizer.samples
        if result.rolled_back:
            self._print(
                f"step {optimizer.steps}: the views fell apart; rolled back, learning rate halved "
                f"to {result.learning_rate / 2:.3g}"
            )
        seconds, samples = now - self._began[0], optimizer.samples - self._began[1]
        rate = samples / max(seconds, 1e-9)
        if self._bar is not None:
            facts = self._facts(state, result, rate)
            self._bar.update(self._task, completed=optimizer.samples, facts=facts)
        elif now - self._logged >= LOG_SECONDS:
            self._logged = now
            facts = self._facts(state, result, rate)
            if self._n_samples is not None and rate > 0:
                left = max(0, self._n_samples - optimizer.samples) / rate
                facts += f"  {optimizer.samples / self._n_samples:.0%}, {_clock(left)} left"
            self._print(f"{self._method}  {facts}")
        return state

    def finish(self, state: TrainingState) -> None:
        """Replace the bar by a last line, which stays."""
        self.close()
        facts = [f"{state.optimizer.samples:,} samples in {_clock(state.seconds)}"]
        facts += [] if state.best is None else [f"held out {state.best.held_out:.2f}"]
        facts += [] if state.stopped is None else [state.stopped]
        self._print("  ".join([self._method, *facts]))

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def _facts(self, state: TrainingState, result: StepResult, rate: float) -> str:
        # The position is that of the next minibatch: after the last of an epoch, the next epoch's.
        epoch = max(1, state.position.epoch + (state.position.batch > 0))
        facts = [f"epoch {epoch}", f"{state.optimizer.samples:,} samples"]
        facts += [f"{rate:,.0f}/s"] if rate > 0 else []
        facts.append(f"correlation {result.correlation:.2f} of {self._n_components}")
        held_out = [record["held_out"] for record in state.history if not record["rolled_back"]]
        if held_out and not math.isnan(held_out[-1]):
            facts.append(f"held out {held_out[-1]:.2f}")
        return "  ".join(facts)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
