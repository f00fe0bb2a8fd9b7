"""A stochastic fit taken apart, so that a benchmark can look at its steps.

What `fit` does in one go, from the same parts in the same order: set-up, rule, minibatches. Nothing
is held out, whatever the model says: the benchmarks hold rows out themselves.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Threads, worker_count
from knoi.estimators.minibatch import MinibatchCCA
from knoi.estimators.training import Training
from knoi.solvers.loop import BEGINNING, Run


@dataclass(frozen=True)
class Fit:
    """A fit that is set up and has taken no step."""

    model: MinibatchCCA
    pairs: PairSource
    training: Training
    run: Run
    setup_seconds: float

    def stream(self, epochs: int = 1, start: Any = BEGINNING) -> PairStream:
        """The minibatches the fit would step through, from a position on."""
        plan = self.training.plan
        return PairStream(
            self.pairs,
            plan.batch_size,
            plan.seed,
            window_bytes=plan.window_bytes,
            epochs=epochs,
            start=start,
        )

    def finished(self, run: Run) -> MinibatchCCA:
        """The model as it would be if training had ended with `run`."""
        U, V = run.weights.result
        self.model._keep(self.training.finish(U, V, fall_back=run.weights.anchor))
        return self.model


@contextmanager
def set_up(model: MinibatchCCA, X: Any, Y: Any) -> Iterator[Fit]:
    """Plan, feature maps, warm start and preconditioners of `model` for X and Y."""
    with PairSource.open(X, Y) as pairs, Threads(worker_count(model.n_jobs)) as engine:
        start = time.perf_counter()
        model._remember_columns(X, pairs)
        # As for a stream of pieces, whose first is all there is.
        begun = model._begin(pairs, engine)
        seconds = time.perf_counter() - start
        yield Fit(model, pairs, begun.training, begun.run, seconds)
