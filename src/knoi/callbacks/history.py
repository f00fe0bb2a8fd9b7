"""The learning curve: one record every so many steps, with the held-out total correlation."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from knoi.solvers.loop import Run, Snapshot
from knoi.solvers.rule import Outcome, Weights

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
    "undone",
)


@dataclass
class History:
    """Records the run every `every` steps and whenever a step is undone; keeps the best snapshot.

    Parameters
    ----------
    every : int
        Steps between records.
    evaluate : callable or None
        Weights -> held-out total correlation; None if nothing is held out.
    """

    every: int
    evaluate: Callable[[Weights], float] | None
    _losses: list[float] = field(default_factory=list)
    _correlations: list[float] = field(default_factory=list)

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """The run with one more record where one is due."""
        if math.isfinite(outcome.loss) and not outcome.undone:
            self._losses.append(outcome.loss)
            self._correlations.append(outcome.correlation)
        if outcome.undone or run.weights.steps % self.every == 0:
            return self.record(run, outcome.learning_rate, undone=outcome.undone)
        return run
