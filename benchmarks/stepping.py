"""A KNOI fit taken apart, so that a benchmark can look at its steps: set-up, rule, minibatches.

What `KNOI.fit` does in one go, from the same parts in the same order. Nothing is held out,
whatever the model says: the benchmarks hold rows out themselves.
"""

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Threads, worker_count
from knoi.estimators.training import Training
from knoi.solvers.loop import Run


@dataclass(frozen=True)
class Fit:
    """A fit that is set up and has taken no step."""

    model: Any
    pairs: PairSource
    training: Training
    run: Run
    setup_seconds: float

    def stream(self, epochs=1):
        """The minibatches the fit would step through."""
        plan = self.training.plan
        return PairStream(
            self.pairs, plan.batch_size, plan.seed, window_bytes=plan.window_bytes, epochs=epochs
        )

    def finished(self, run):
        """The model as it would be if training had ended with `run`."""
        U, V = run.weights.result
        self.model._keep(self.training.finish(U, V, fall_back=run.weights.anchor))
        return self.model


@contextmanager
def set_up(model, X, Y):
    """Plan, feature maps, warm start and preconditioners of `model` for X and Y."""
    with PairSource.open(X, Y) as pairs, Threads(worker_count(model.n_jobs)) as engine:
        start = time.perf_counter()
        model._remember_columns(X, pairs)
        begun = model._begin(
            pairs, engine
        )  # as for a stream of pieces, whose first is all there is
        seconds = time.perf_counter() - start
        yield Fit(model, pairs, begun.training, begun.run, seconds)
