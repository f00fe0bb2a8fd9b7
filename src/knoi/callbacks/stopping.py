"""When enough is enough: held-out correlation no longer rises, or time is up."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from knoi.solvers.loop import Run
from knoi.solvers.rule import Outcome

CONVERGED = "converged"
OUT_OF_TIME = "out of time"

# Progress is judged against the record that had seen this part of the samples: learning curves rise
# with the logarithm of the samples, so a fixed number of steps would end long runs too early.
LOOK_BACK = 0.5
# Fewer records than this say nothing about a trend.
FEWEST_RECORDS = 6


@dataclass(frozen=True)
class EarlyStop:
    """Stops when held-out total correlation has risen by less than `tol`, relative.

    The rise is that of the best value over the second half of the samples seen so far.
    """

    tol: float

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """The run, stopped if it no longer improves."""
        if not run.history or run.history[-1]["step"] != run.weights.steps:
            return run
        return replace(run, stopped=CONVERGED) if self.converged(run.history) else run

    def converged(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these records no longer rise."""
        curve = [
            (record["samples"], record["held_out"])
            for record in history
            if not math.isnan(record["held_out"])
        ]
        if len(curve) < FEWEST_RECORDS:
            return False
        earlier = [value for samples, value in curve if samples <= LOOK_BACK * curve[-1][0]]
        if not earlier:
            return False
        best, before = max(value for _, value in curve), max(earlier)
        return bool(best - before < self.tol * abs(before))


@dataclass(frozen=True)
class TimeLimit:
    """Stops `seconds` after it was made."""

    seconds: float
    now: Callable[[], float] = monotonic
    _deadline: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_deadline", self.now() + self.seconds)

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """The run, stopped if time is up."""
        return replace(run, stopped=OUT_OF_TIME) if self.now() >= self._deadline else run
