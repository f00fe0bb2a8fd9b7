"""Training that is judged on held-out rows as it passes marks, and goes on after a kill."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from knoi.bench.peak import Clock, PeakMemory
from knoi.bench.stepping import Fit, set_up
from knoi.callbacks.checkpoint import (
    Checkpoint,
    Interrupted,
    load_run,
    open_directory,
    stored_identity,
)
from knoi.estimators.base import BaseCCA
from knoi.estimators.minibatch import MinibatchCCA
from knoi.metrics import total_correlation
from knoi.solvers.loop import Run, train
from knoi.solvers.rule import Outcome

Rows = tuple[NDArray[Any], NDArray[Any]]

# Seconds between checkpoints of a run.
SAVE_EVERY = 120.0


def judged(model: BaseCCA, test: Rows) -> dict[str, float]:
    """Total correlation on held-out rows by both measures."""
    Zx, Zy = model.transform(*test)
    return {name: total_correlation(Zx, Zy, measure=name) for name in ("refit", "fitted")}


@dataclass
class Curve:
    """Judges the weights when the next minibatch would pass a mark, and when time is up.

    A point stands for at most as many samples as its mark says: the weights before the minibatch
    that would cross it. Points are added to the history of the run, so that a checkpoint has them.
    Seconds are those of set-up and training; judging takes none of them, nor of the budget.
    """

    fit: Fit
    test: Rows
    marks: Sequence[int]
    budget: float = float("inf")  # seconds of set-up and training
    undone: int = 0
    say: Any = print

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """The run, stopped after the last mark or when time is up."""
        self.undone += outcome.undone
        samples, b = run.weights.samples, self.fit.training.plan.batch_size
        passed = [mark for mark in self.marks if samples <= mark < samples + b]
        seconds = self.fit.setup_seconds + run.seconds - _judging(run)
        out_of_time = seconds >= self.budget
        if passed or out_of_time:
            run = self._judge(run, passed[-1] if passed else samples)
        if out_of_time:
            return replace(run, stopped="out of time")
        return run if samples + b <= self.marks[-1] else replace(run, stopped="samples")

    def _judge(self, run: Run, mark: int) -> Run:
        start = time.perf_counter()
        model = self.fit.finished(run)
        finishing = time.perf_counter() - start
        point = {
            "mark": mark,
            "samples": run.weights.samples,
            **judged(model, self.test),
            "train_seconds": run.seconds - _judging(run),
            "finish_seconds": finishing,
            "undone": self.undone,
        }
        self.say(
            f"  {point['samples']:>9,} samples: refit {point['refit']:.2f}, fitted "
            f"{point['fitted']:.2f}, {self.fit.setup_seconds + point['train_seconds']:.0f} s"
        )
        judging = _judging(run) + time.perf_counter() - start
        return replace(run, history=(*run.history, {**point, "judging_seconds": judging}))


def _judging(run: Run) -> float:
    """Seconds of the run that went into judging it."""
    return float(run.history[-1]["judging_seconds"]) if run.history else 0.0


def train_judged(
    model: MinibatchCCA,
    X: Any,
    Y: Any,
    test: Rows,
    marks: Sequence[int],
    *,
    budget: float = float("inf"),
    directory: Path,
    identity: Mapping[str, Any],
    say: Any = print,
) -> dict[str, Any]:
    """One pass of training, as a cell: its curve, seconds and memory.

    A run that was killed goes on from its last checkpoint in `directory`, which is removed at the
    end; set-up is done again, and counted once.
    """
    with PeakMemory() as peak, set_up(model, X, Y) as fit:
        b = fit.training.plan.batch_size
        say(f"  set up in {fit.setup_seconds:.0f} s, minibatches of {b:,}")
        run, backend = fit.run, fit.training.backend
        resumed = stored_identity(open_directory(directory)) is not None
        if resumed:
            run = load_run(directory, identity, backend)
            say(f"  goes on from {run.weights.samples:,} samples")
        undone = int(run.history[-1]["undone"]) if run.history else 0
        interrupted, clock = Interrupted(), Clock()
        save = Checkpoint(directory, identity, backend, interrupted, SAVE_EVERY)
        curve = Curve(fit, test, marks, budget, undone, say)
        with interrupted.noted(), save.rescuing(), iter(fit.stream(start=run.position)) as batches:
            run = train(run, batches, fit.training.rule, [curve, save])
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
        "plan": fit.training.plan.state_dict(),
    }
