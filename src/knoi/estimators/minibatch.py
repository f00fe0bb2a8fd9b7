"""What estimators that learn from minibatches share: the run of a fit, `partial_fit`."""

import sys
from abc import abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from knoi.arrays.backend import Backend
from knoi.callbacks.checkpoint import Checkpoint, Interrupted
from knoi.callbacks.history import History, as_columns
from knoi.callbacks.progress import Progress, wants_progress
from knoi.callbacks.stopping import EarlyStop, TimeLimit
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Engine, Threads, worker_count
from knoi.estimators.base import BaseCCA, unchanged_on_failure
from knoi.estimators.knoi_parameters import Limits
from knoi.estimators.plan import Sizes, epochs_for, sparse_bytes
from knoi.estimators.streaming import Stream
from knoi.estimators.training import Training
from knoi.projection import Projection
from knoi.solvers.loop import Callback, Run, train

# Evaluating rows held out takes at most about a tenth of the time.
STEPS_PER_HELD_OUT_BATCH = 10


class MinibatchCCA(BaseCCA):
    """Learns from minibatches. Leaves say what a fit is made of (`_solve`, `_begin`)."""

    verbose: bool | None
    _facts = (*BaseCCA._facts, "history_", "stopped_", "n_samples_seen_")

    @abstractmethod
    def _begin(self, pairs: PairSource, engine: Engine) -> Stream:
        """A stream that has taken no step; its first piece is `pairs`."""

    def _sizes(self, pairs: PairSource, backend: Backend, engine: Engine) -> Sizes:
        """What there is to plan with."""
        return Sizes(
            pairs.n_rows,
            pairs.n_cols,
            pairs.row_bytes,
            backend.itemsize,
            self._budget(backend),
            engine.n_workers,
            sparse_bytes(pairs, backend),
        )

    def _train(
        self,
        run: Run,
        training: Training,
        limits: Limits,
        pairs: PairSource,
        checkpoint: tuple[Path, dict[str, Any]] | None = None,
    ) -> Run:
        """Step through the epochs that are left.

        `checkpoint` is a directory to save to, the end of the run too, and the run's identity.
        """
        plan = training.plan
        epochs = epochs_for(pairs.n_rows) if limits.epochs is None else limits.epochs
        if run.stopped is not None or run.position.epoch >= epochs:
            return run
        stream = PairStream(
            pairs,
            plan.batch_size,
            plan.seed,
            window_bytes=plan.window_bytes,
            epochs=epochs,
            start=run.position,
        )
        last_step = epochs * stream.batches_per_epoch
        callbacks: list[Callback] = []
        if limits.max_time is not None:
            callbacks.append(TimeLimit(limits.max_time))
        watched = plan.n_held_out > 0
        every = -(-STEPS_PER_HELD_OUT_BATCH * max(plan.n_held_out, 1) // plan.batch_size)
        evaluate = training.held_out_correlation if watched else None
        callbacks.append(History(every, last_step, evaluate))
        if watched and limits.tol is not None:
            callbacks.append(EarlyStop(limits.tol))
        with ExitStack() as leaving:
            progress = None
            if wants_progress(self.verbose, sys.stderr):
                progress = Progress(
                    limits.n_components, last_step * plan.batch_size, method=type(self).__name__
                )
                leaving.callback(progress.close)
                callbacks.append(progress)
            interrupted, save = Interrupted(), None
            if checkpoint is not None:
                save = Checkpoint(
                    *checkpoint, training.backend, interrupted, limits.checkpoint_seconds
                )
                callbacks.append(save)
                leaving.enter_context(interrupted.noted())
                leaving.enter_context(save.rescuing())
            with iter(stream) as batches:
                run = train(run, batches, training.rule, callbacks)
            if save is not None:
                save.save(run)
                interrupted.act()  # told after the last step
            if progress is not None:
                progress.end(run)
        return run

    def _end(self, run: Run, training: Training, rows: PairSource | None = None) -> Projection:
        """The final linear CCA, of the best weights on rows held out or of the last ones."""
        U, V = run.weights.result if run.best is None else (run.best.U, run.best.V)
        projection = training.finish(U, V, rows, fall_back=run.weights.anchor)
        self.stopped_: str | None = run.stopped or "epochs"
        self.history_ = as_columns(run.history)
        self.n_samples_seen_ = run.weights.samples
        return projection

    def partial_fit(self, X: Any, Y: Any, *, solve: bool = True) -> Self:
        """Take steps on the rows of one more piece of a stream, which need never end.

        The first piece fixes widths, features and start, so let it be a fair sample, of more rows
        than `rank` if it can. Rows that do not fill a minibatch wait for the next piece; given the
        first piece, any cut of the rows into pieces gives the same model. A piece that fails leaves
        no trace. The components are aligned on the latest rows, which costs about as much as a
        step: pass `solve=False` for all pieces but the last to do it once. Nothing is held out, and
        what says how long `fit` trains, or where it saves, plays no part. `fit` starts a new
        stream; a pickled copy of the model goes on with this one.
        """
        with PairSource.open(X, Y) as pairs, unchanged_on_failure(self):
            stream = getattr(self, "_streaming", None)
            self._remember_columns(X, pairs, reset=stream is None)
            with Threads(worker_count(self.n_jobs)) as engine:
                if stream is None:
                    stream = self._begin(pairs, engine)
                stream.training.work_with(engine)
                callbacks: list[Callback] = [History(1, None, None)]
                if self.verbose:
                    callbacks.append(
                        Progress(stream.training.n_components, None, method=type(self).__name__)
                    )
                stream = stream.after(pairs, callbacks)
                if solve:
                    with PairSource.open(*stream.recent) as rows:
                        self._keep(self._end(stream.run, stream.training, rows))
                        self._fit_structure(rows, engine)
                    self.stopped_ = None
                    self.n_samples_ = stream.n_rows
                stream.training.rest()
            self._streaming = stream
        return self
