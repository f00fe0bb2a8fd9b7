"""Fits that are evaluated on their way: exact ones at several sizes, stochastic ones at marks.

`exact_fits` solves closed forms of several sizes and regularisers from one pass over the data.
`train_evaluated` trains a stochastic model once, evaluates it on held-out rows as it passes given
numbers of samples, and continues from a checkpoint after a kill.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from benchmarks.harness import Clock, PeakMemory
from knoi import KNOI, DoublyStochasticCCA, total_correlation
from knoi.callbacks import FitContext, StepResult, TrainingState
from knoi.data.pairs import PairSource
from knoi.estimators.closed_form import ClosedFormCCA

Rows = tuple[NDArray[Any], NDArray[Any]]
Log = Callable[[str], None]

SAVE_EVERY = 120.0  # seconds between checkpoints


def evaluate(model: Any, test: Rows) -> dict[str, float]:
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


@dataclass
class Curve:
    """A callback that evaluates the model before the minibatch that would pass a mark.

    A point stands for at most as many samples as its mark says. Points are kept in `state.extra`,
    so that a checkpoint has them. Seconds are those of set-up and training; evaluation counts
    neither there nor in the budget.
    """

    test: Rows
    marks: Sequence[int]
    budget: float = float("inf")  # seconds of set-up and training
    log: Log = print
    clock: Clock = field(default_factory=Clock)
    points: list[dict[str, Any]] = field(default_factory=list)
    resumed: bool = False

    def on_fit_start(self, context: FitContext) -> None:
        """Note what set-up took."""
        self.context, self.setup_seconds = context, self.clock.wall
        self.points, self._stepped = [], False
        self.log(f"  set up in {self.setup_seconds:.0f} s, minibatches of {context.batch_size:,}")

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """Return the state, stopped after the last mark or when the budget is used up."""
        samples, b = state.optimizer.samples, self.context.batch_size
        if not self._stepped and "curve" in state.extra:
            self.points, self.resumed = list(state.extra["curve"]), True
            self.log(f"  resumed at {samples - b:,} samples")
        self._stepped = True
        passed = [mark for mark in self.marks if samples <= mark < samples + b]
        seconds = self.setup_seconds + state.seconds - self._evaluating
        out_of_time = seconds >= self.budget
        if passed or out_of_time:
            self._evaluate(state, passed[-1] if passed else samples)
        state = replace(state, extra={**state.extra, "curve": list(self.points)})
        if out_of_time:
            return replace(state, stopped="out of time")
        return state if samples + b <= self.marks[-1] else replace(state, stopped="samples")

    def _evaluate(self, state: TrainingState, mark: int) -> None:
        start, trained = time.perf_counter(), state.seconds - self._evaluating
        model = self.context.model_at(state)
        finishing = time.perf_counter() - start
        point = {
            "mark": mark,
            "samples": state.optimizer.samples,
            **evaluate(model, self.test),
            "train_seconds": trained,
            "finish_seconds": finishing,
            "rolled_back": sum(record["rolled_back"] for record in state.history),
        }
        self.log(
            f"  {point['samples']:>9,} samples: refit {point['refit']:.2f}, fitted "
            f"{point['fitted']:.2f}, {self.setup_seconds + trained:.0f} s"
        )
        point["evaluation_seconds"] = self._evaluating + time.perf_counter() - start
        self.points.append(point)

    @property
    def _evaluating(self) -> float:
        """Seconds of the run that evaluation took."""
        return float(self.points[-1]["evaluation_seconds"]) if self.points else 0.0


def train_evaluated(
    model: KNOI | DoublyStochasticCCA,
    X: Any,
    Y: Any,
    test: Rows,
    marks: Sequence[int],
    *,
    budget: float = float("inf"),
    directory: Path,
    log: Log = print,
) -> dict[str, Any]:
    """Train for one pass and return the cell: learning curve, seconds and memory.

    Nothing is held out of the training rows. A run that was killed continues from its last
    checkpoint in `directory`, which is removed at the end; set-up is repeated then, and counted
    once.
    """
    with PeakMemory() as peak:
        curve, clock = Curve(test, marks, budget, log), Clock()
        model.set_params(
            epochs=1,
            held_out=0,
            tol=None,
            checkpoint=directory,
            checkpoint_seconds=SAVE_EVERY,
            callbacks=[curve],
        )
        model.fit(X, Y, resume=True)
        if not curve.points:  # it was killed after its last step: repeat it
            shutil.rmtree(directory)
            model.fit(X, Y)
        busy = clock.cpu / clock.wall
    shutil.rmtree(directory)
    last = curve.points[-1]
    return {
        "refit": last["refit"],
        "fitted": last["fitted"],
        "samples": last["samples"],
        "seconds": curve.setup_seconds + last["train_seconds"] + last["finish_seconds"],
        "setup_seconds": curve.setup_seconds,
        "busy_cores": busy,
        "curve": curve.points,
        "stopped": model.stopped_,
        "resumed": curve.resumed,
        "batch_size": curve.context.batch_size,
        "peak_bytes": peak.rss,
        "peak_anonymous_bytes": peak.anonymous,
    }
