"""The learning curve: one record every so many steps, and the best weights seen on the way."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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

# Records lie at least this part of the run so far apart: enough for any picture, and the history
# of an endless stream grows with its logarithm.
MOST_RECORDS_PER_RUN = 100


@dataclass
class History:
    """Records the run now and then, at its end and when a step is undone; keeps the best weights.

    Parameters
    ----------
    every : int
        Steps between records at least; later in a long run records are a hundredth of it apart.
    last_step : int or None
        The number of the last step, if that is known.
    evaluate : callable or None
        Weights -> held-out total correlation; None if nothing is held out.
    """

    every: int
    last_step: int | None
    evaluate: Callable[[Weights], float] | None

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """The run with one more record where one is due."""
        if not (outcome.undone or self._due(run)):
            return run
        held_out = math.nan
        if self.evaluate is not None and not outcome.undone:
            held_out = self.evaluate(run.weights)
        record = {
            "step": run.weights.steps,
            "epoch": run.position.epoch,
            "samples": run.weights.samples,
            "seconds": run.seconds,
            "loss": outcome.loss,
            "correlation": outcome.correlation,
            "held_out": held_out,
            "learning_rate": outcome.learning_rate,
            "undone": outcome.undone,
        }
        best = run.best
        # The comparison is false for NaN: nothing held out, or an undone step.
        if held_out > (-math.inf if best is None else best.held_out):
            U, V = run.weights.result
            best = Snapshot(U, V, held_out, run.weights.samples)
        return replace(run, history=(*run.history, record), best=best)

    def _due(self, run: Run) -> bool:
        step = run.weights.steps
        if run.stopped is not None or step == self.last_step:
            return True
        since = step - (run.history[-1]["step"] if run.history else 0)
        return step % self.every == 0 and since * MOST_RECORDS_PER_RUN >= step


def as_columns(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The records as one list a column, ready for a data frame."""
    records = list(records)
    return {name: [record[name] for record in records] for name in COLUMNS}
