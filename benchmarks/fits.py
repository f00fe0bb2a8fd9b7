"""Fits that are evaluated on their way: exact ones at several sizes, stochastic ones at marks.

`exact_fits` solves closed forms of several sizes and regularisers from one pass over the data.
`train_evaluated` trains a stochastic model once, evaluates it on held-out rows as it passes given
numbers of samples, and continues from a checkpoint after a kill.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from benchmarks.harness import Clock, PeakMemory
from knoi.callbacks.checkpoint import (
    Checkpoint,
    load_state,
    open_directory,
    stored_identity,
)
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Threads, worker_count
from knoi.estimators.base import BaseCCA
from knoi.estimators.closed_form import ClosedFormCCA
from knoi.estimators.training import StochasticCCA, Training
from knoi.metrics import total_correlation
from knoi.solvers.loop import StepResult, TrainingState, train

Rows = tuple[NDArray[Any], NDArray[Any]]
Log = Callable[[str], None]

SAVE_EVERY = 120.0  # seconds between checkpoints


def evaluate(model: BaseCCA, test: Rows) -> dict[str, float]:
    """Total correlation on held-out rows by both measures."""
    Zx, Zy = model.transform(*test)
    return {name: total_correlation(Zx, Zy, measure=name) for name in ("refit", "fitted")}


@dataclass(frozen=True)
class ExactFit:
    """A fitted model, and the time that this fit alone would have taken."""

    rows: int
    reg: float
    model: ClosedFormCCA
    seconds: float
    cpu_seconds: float


def exact_fits(
    model: ClosedFormCCA, X: Any, Y: Any, regs: Sequence[float], sizes: Sequence[int] = ()
) -> Iterator[ExactFit]:
    """Fit `model` to the first rows, of each of the increasing `sizes`, at each of `regs`.

    Yields the same object each time; without `sizes` it is fitted to all rows. The moments, by far
    the most expensive part, are accumulated once; the time of a fit is that of the feature maps,
    the moments of its rows and its own solution. Feature maps are chosen from the rows of the first
    size.
    """
    wall = cpu = 0.0
    with PairSource.open(X, Y) as pairs:
        for start, stop in pairwise((0, *(sizes or (pairs.n_rows,)))):
            clock = Clock()
            model.partial_fit(*pairs.part(start, stop).views(), solve=False)
            wall, cpu = wall + clock.wall, cpu + clock.cpu
            for reg in regs:
                clock = Clock()
                model.set_params(reg=reg).solve()
                yield ExactFit(stop, reg, model, wall + clock.wall, cpu + clock.cpu)


@dataclass(frozen=True)
class Fit:
    """A stochastic fit that is set up and has taken no step."""

    model: StochasticCCA
    pairs: PairSource
    training: Training
    run: TrainingState
    setup_seconds: float

    def stream(self, epochs: int = 1, start: Any = None) -> PairStream:
        """The minibatches of the fit, from a position on."""
        plan = self.training.setup.plan
        return PairStream(
            self.pairs,
            plan.batch_size,
            plan.seed,
            window_bytes=plan.window_bytes,
            epochs=epochs,
            start=start,
        )

    def finished(self, run: TrainingState) -> StochasticCCA:
        """The model as it would be if training had ended with `run`."""
        self.model._keep(self.training.projection(run, self.pairs))
        return self.model


@contextmanager
def set_up(model: StochasticCCA, X: Any, Y: Any) -> Iterator[Fit]:
    """Plan, feature maps, warm start and preconditioners of `model` for X and Y.

    Nothing is held out, whatever the model says: benchmarks have held-out rows of their own.
    """
    with PairSource.open(X, Y) as pairs, Threads(worker_count(model.n_jobs)) as engine:
        start = time.perf_counter()
        model._remember_columns(X, pairs)
        begun = model._open_stream(pairs, engine)
        seconds = time.perf_counter() - start
        yield Fit(model, pairs, begun.training, begun.state, seconds)


@dataclass
class Curve:
    """A callback that evaluates the weights before the minibatch that would pass a mark.

    A point stands for at most as many samples as its mark says. Points are added to the history of
    the run, so that a checkpoint has them. Seconds are those of set-up and training; evaluation
    counts neither there nor in the budget.
    """

    fit: Fit
    test: Rows
    marks: Sequence[int]
    budget: float = float("inf")  # seconds of set-up and training
    undone: int = 0
    log: Log = print

    def __call__(self, run: TrainingState, result: StepResult) -> TrainingState:
        """Return the run, stopped after the last mark or when the budget is used up."""
        self.undone += result.rolled_back
        samples, b = run.optimizer.samples, self.fit.training.setup.plan.batch_size
        passed = [mark for mark in self.marks if samples <= mark < samples + b]
        seconds = self.fit.setup_seconds + run.seconds - _evaluating(run)
        out_of_time = seconds >= self.budget
        if passed or out_of_time:
            run = self._evaluate(run, passed[-1] if passed else samples)
        if out_of_time:
            return replace(run, stopped="out of time")
        return run if samples + b <= self.marks[-1] else replace(run, stopped="samples")

    def _evaluate(self, run: TrainingState, mark: int) -> TrainingState:
        start = time.perf_counter()
        model = self.fit.finished(run)
        finishing = time.perf_counter() - start
        point = {
            "mark": mark,
            "samples": run.optimizer.samples,
            **evaluate(model, self.test),
            "train_seconds": run.seconds - _evaluating(run),
            "finish_seconds": finishing,
            "undone": self.undone,
        }
        self.log(
            f"  {point['samples']:>9,} samples: refit {point['refit']:.2f}, fitted "
            f"{point['fitted']:.2f}, {self.fit.setup_seconds + point['train_seconds']:.0f} s"
        )
        evaluating = _evaluating(run) + time.perf_counter() - start
        return replace(run, history=(*run.history, {**point, "judging_seconds": evaluating}))


def _evaluating(run: TrainingState) -> float:
    """Seconds of the run that evaluation took."""
    return float(run.history[-1]["judging_seconds"]) if run.history else 0.0


def train_evaluated(
    model: StochasticCCA,
    X: Any,
    Y: Any,
    test: Rows,
    marks: Sequence[int],
    *,
    budget: float = float("inf"),
    directory: Path,
    identity: Mapping[str, Any],
    log: Log = print,
) -> dict[str, Any]:
    """Train for one pass and return the cell: learning curve, seconds and memory.

    A run that was killed continues from its last checkpoint in `directory`, which is removed at the
    end; set-up is repeated then, and counted once.
    """
    with PeakMemory() as peak, set_up(model, X, Y) as fit:
        b = fit.training.setup.plan.batch_size
        log(f"  set up in {fit.setup_seconds:.0f} s, minibatches of {b:,}")
        run, backend = fit.run, fit.training.setup.backend
        resumed = stored_identity(open_directory(directory)) is not None
        if resumed:
            run = load_state(directory, identity, backend)
            log(f"  resumed at {run.optimizer.samples:,} samples")
        undone = int(run.history[-1]["undone"]) if run.history else 0
        clock = Clock()
        save = Checkpoint(directory, identity, backend, SAVE_EVERY)
        curve = Curve(fit, test, marks, budget, undone, log)
        with save.guarding(), iter(fit.stream(start=run.position)) as batches:
            run = train(run, batches, fit.training.update, [curve, save])
        busy = clock.cpu / clock.wall
    shutil.rmtree(directory)
    last = run.history[-1]
    return {
        "refit": last["refit"],
        "fitted": last["fitted"],
        "samples": last["samples"],
        "seconds": fit.setup_seconds + last["train_seconds"] + last["finish_seconds"],
        "setup_seconds": fit.setup_seconds,
        "busy_cores": busy,
        "curve": list(run.history),
        "stopped": run.stopped,
        "resumed": resumed,
        "peak_bytes": peak.rss,
        "peak_anonymous_bytes": peak.anonymous,
        "plan": fit.training.setup.plan.state_dict(),
    }
