"""Stochastic fits: set-up, training loop and final CCA, for all rows (`fit`) or for a stream.

`StochasticCCA._solve` is the whole of a fit, top to bottom: parameters, plan, maps, start, loop,
finish. Estimators differ in four methods that it calls: `_settings`, `_make_plan`, `_fit_maps` and
`_start`.
"""

import copy
import hashlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, numpy_backend
from knoi.arrays.sparse import stack
from knoi.callbacks.checkpoint import (
    Checkpoint,
    check_same_run,
    load_state,
    open_directory,
    stored_identity,
)
from knoi.callbacks.history import (
    CONVERGED,
    EarlyStopping,
    FitContext,
    History,
    ProgressBar,
    TimeLimit,
    as_columns,
)
from knoi.checks import at_least_zero, count, flag, optional, positive
from knoi.data.pairs import PairSource, RowPair
from knoi.data.stream import Batch, PairStream, Position
from knoi.engine import Engine, Serial, Threads, worker_count
from knoi.estimators.base import BaseCCA, portable, unchanged_on_failure
from knoi.estimators.closed_form import ClosedFormCCA
from knoi.estimators.setup import (
    Maps,
    Plan,
    Setup,
    Sizes,
    check_domain,
)
from knoi.estimators.structure import structure_rows
from knoi.exceptions import InputError, InputTypeError
from knoi.persistence import flatten_state
from knoi.projection import Projection, ViewProjection
from knoi.solvers.exact import Moments, Solution, columnwise_correlation, solve_primal
from knoi.solvers.loop import (
    Callback,
    OptimizerState,
    TrainingState,
    UpdateRule,
    collapsed,
    train,
)
from knoi.solvers.noi import MinibatchFeatures

# Evaluating held-out rows takes at most about a tenth of the time.
STEPS_PER_HELD_OUT_BATCH = 10
# Training rows that the final linear CCA uses: many times its L + L dimensions. They come in short
# runs, because so many single rows of a large file would take longer to read than to compute with.
FINAL_ROWS, FINAL_RUN_ROWS = 65_536, 16
# The time that a row takes there and in the pass for predictions and loadings, of that of a step.
FINAL_SHARE = 0.75
# Rows that stand for the data in the identity of a run.
IDENTITY_ROWS = 256
# Parameters that decide how long a run takes or what it shows, but not its steps.
NOT_IDENTITY = frozenset(
    (
        *("epochs", "max_time", "tol", "checkpoint", "checkpoint_seconds", "callbacks", "verbose"),
        *("memory_budget", "n_jobs", "device"),
    )
)
# Why there were no steps.
SOLVED = "closed form"
# Latest rows of a stream that the components are aligned on, per direction learned.
RECENT_PER_DIRECTION = 50


@dataclass(frozen=True)
class Training:
    """A fit that is set up: it evaluates weights and turns them into a projection."""

    setup: Setup
    update: UpdateRule
    held_out: RowPair | None = None
    # Rows that the components are aligned on before held-out rows are scored; None: the minibatch.
    aligned_on: RowPair | None = None
    # How weights become a projection, (training, weights, pairs) -> Projection; None: `final_cca`.
    finish: Callable[..., Projection | None] | None = None
    # Seconds from the last step to the end of `fit`, about; None: as `final_cca`.
    finish_seconds: float | None = None

    def with_engine(self, engine: Engine) -> "Training":
        """The same with other workers."""
        update: UpdateRule = replace(self.update, engine=engine)  # type: ignore[type-var]
        return replace(self, setup=replace(self.setup, engine=engine), update=update)

    def held_out_correlation(self, state: OptimizerState) -> float:
        """Fitted total correlation of the held-out rows."""
        assert self.held_out is not None
        setup, weights = self.setup, state.weights
        # The features of the loaded minibatch may be kept: use others for the held-out rows.
        features = setup.other_features()
        moments = self._score_moments()
        if self.aligned_on is None:
            x, y = (self._scores(*view) for view in zip(setup.features, weights, strict=True))
            moments.update(x, y)
        else:
            moments.update(*self._scores_of(self._aligned_batches, features, weights))
        Zx, Zy = self._scores_of(self._held_out_batches, features, weights)
        try:
            aligned = self._align(moments, weights)
        except InputError:  # too few directions in these rows
            return float("nan")
        return columnwise_correlation(Zx @ aligned.U, Zy @ aligned.V)

    def _scores_of(
        self, minibatches: list[Any], features: Sequence[Any], weights: tuple[Array, Array]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores of any number of rows, minibatch by minibatch."""
        pieces: list[list[NDArray[Any]]] = [[], []]
        for rows in minibatches:
            for v, (minibatch, W) in enumerate(zip(features, weights, strict=True)):
                minibatch.load(rows[v])
                pieces[v].append(self._scores(minibatch, W))
        return np.concatenate(pieces[0]), np.concatenate(pieces[1])

    @cached_property
    def _held_out_batches(self) -> list[Any]:
        return self._batches(self.held_out)

    @cached_property
    def _aligned_batches(self) -> list[Any]:
        return self._batches(self.aligned_on)

    def _batches(self, rows: RowPair | None) -> list[Any]:
        """Minibatches of rows that are used again and again: uploaded once."""
        assert rows is not None
        b, n = self.setup.plan.batch_size, int(rows[0].shape[0])
        x, y = self.setup.features
        return [
            (x.place(rows[0][start : start + b]), y.place(rows[1][start : start + b]))
            for start in range(0, n, b)
        ]

    def projection(self, state: TrainingState, pairs: PairSource) -> Projection:
        """The result of training: linear CCA of the scores of `pairs` with the best weights.

        The components are then uncorrelated and ordered. Where no held-out rows have chosen the
        weights, no minibatch has checked the very last step: if it was bad, the last good weights
        are taken.
        """
        best, last_good = state.best, state.optimizer.last_good
        weights = state.optimizer.weights if best is None else (best.U, best.V)
        finish = Training.final_cca if self.finish is None else self.finish
        found = finish(self, weights, pairs)
        if best is None and last_good is not None and last_good.correlation is not None:
            reached = 0.0 if found is None else float(found.singular_values.sum())
            if collapsed(reached, last_good):
                other = finish(self, (last_good.U, last_good.V), pairs)
                if other is not None and float(other.singular_values.sum()) > reached:
                    found = other
        if found is None:
            raise InputError(
                "the features of the training rows are not finite. Check the scale of the data."
            )
        return found

    def final_cca(self, weights: tuple[Array, Array], pairs: PairSource) -> Projection | None:
        """Linear CCA of the scores; None if they are not finite."""
        setup, backend, b = self.setup, self.setup.backend, self.setup.plan.batch_size
        sample = pairs.sample(FINAL_ROWS, setup.plan.seed, run_rows=FINAL_RUN_ROWS, near=True)
        n = int(sample[0].shape[0])
        moments = self._score_moments()
        sums = [np.zeros(features.rank) for features in setup.maps]
        ones = backend.asarray(np.ones((min(b, n), 1)))
        for start in range(0, n, b):
            scores = []
            for v, (minibatch, W) in enumerate(zip(setup.features, weights, strict=True)):
                minibatch.load(sample[v][start : start + b])
                scores.append(self._scores(minibatch, W))
                totals = minibatch.gradient(ones[: len(scores[v]), :], setup.engine)
                sums[v] += backend.to_numpy(totals)[:, 0]
            if not all(np.isfinite(P).all() for P in scores):
                return None
            moments.update(*scores)
        solution = self._align(moments, weights)
        stored = numpy_backend(backend.dtype)
        x, y = (
            ViewProjection(
                features.to(stored), total / n, backend.to_numpy(W).astype(np.float64) @ A
            )
            for features, total, W, A in zip(
                setup.maps, sums, weights, (solution.U, solution.V), strict=True
            )
        )
        return Projection(x, y, solution.correlations, solution.singular_values)

    def time_limit(self, deadline: float, n_rows: int) -> TimeLimit:
        """Ends training so that what follows is done by the deadline."""
        if self.finish_seconds is not None:
            return TimeLimit(deadline, self.finish_seconds)
        rows = min(FINAL_ROWS, n_rows) + structure_rows(n_rows)
        return TimeLimit(deadline, steps_after=FINAL_SHARE * rows / self.setup.plan.batch_size)

    def _scores(self, minibatch: Any, W: Array) -> NDArray[Any]:
        """Phi W of the loaded rows, (b, k), float64."""
        scores = minibatch.project(W, self.setup.engine)
        return self.setup.backend.to_numpy(scores).astype(np.float64)

    def _score_moments(self) -> Moments:
        k = self.setup.directions
        return Moments((k, k), numpy_backend("float64"))

    def _align(self, moments: Moments, weights: tuple[Array, Array]) -> Solution:
        """Linear CCA of scores with the ridge of training: the leading components, in order."""
        to_numpy = self.setup.backend.to_numpy
        penalties = [self.update.penalty(v, W) for v, W in enumerate(weights)]
        return solve_primal(
            moments.covariances(consume=True),
            self.setup.n_components,
            (0.0, 0.0),
            moments.backend,
            [None if penalty is None else to_numpy(penalty) for penalty in penalties],
        )


class StochasticCCA(BaseCCA):
    """Learns from minibatches."""

    epochs: int | None
    max_time: float | None
    tol: float | None
    checkpoint: str | Path | None
    checkpoint_seconds: float
    callbacks: Sequence[Callback]
    verbose: bool | None
    random_state: Any
    reg_: tuple[float, float]
    stopped_: str | None
    _facts = (*BaseCCA._facts, "history_", "stopped_", "n_samples_seen_")
    _minibatch: ClassVar[Callable[..., Any]] = MinibatchFeatures

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """The checked parameters of the update rule, by name."""

    @abstractmethod
    def _make_plan(self, pairs: PairSource, sizes: Sizes, *, streaming: bool) -> Plan:
        """Check the parameters that the plan depends on, and make it."""

    @abstractmethod
    def _closed_form(self, plan: Plan, pairs: PairSource, backend: Backend) -> ClosedFormCCA | None:
        """The closed form of the same features, where that is to be solved instead; or None."""

    @abstractmethod
    def _fit_maps(self, plan: Plan, pairs: PairSource) -> Maps:
        """The feature map of each view, from a sample of the training rows."""

    @abstractmethod
    def _start(
        self,
        settings: dict[str, Any],
        setup: Setup,
        pairs: PairSource,
        held_out: RowPair | None,
    ) -> tuple[OptimizerState, Training]:
        """The state before the first step, and the fit that is set up."""

    # Without the weights of closed forms, which a step has no use for.
    def fit(  # type: ignore[override]
        self, X: Any, Y: Any = None, *, resume: bool = False
    ) -> Self:
        """Learn the projections from paired rows.

        Parameters
        ----------
        X, Y : array-like, sparse, data frame, tensor, h5py/zarr array, or path, (n_samples, d)
            The two views; row i of X belongs to row i of Y.
        resume : bool, default=False
            Continue from the checkpoint in the directory `checkpoint`, if there is one. It must be
            of the same data and parameters, except for those that decide how long to train:
            `epochs`, `max_time`, `tol`.

        Returns
        -------
        self
        """
        solve = partial(self._solve, resume=flag("resume", resume), began=monotonic())
        return self._fit(X, Y, solve)

    def _solve(
        self,
        pairs: PairSource,
        backend: Backend,
        engine: Engine,
        *,
        resume: bool = False,
        began: float = 0.0,
    ) -> Projection:
        # Parameters: errors that need no data come before any work.
        settings = self._settings()
        self._check_limits()
        directory = None if self.checkpoint is None else open_directory(self.checkpoint)
        stored = self._stored_identity(directory, pairs) if resume else None
        # Plan: every choice that depends on sizes and memory. A resumed run keeps its plan.
        if stored is None:
            plan = self._plan(pairs, backend, engine, streaming=False)
        else:
            plan = Plan.from_state_dict(stored["plan"])
        closed_form = None if resume else self._closed_form(plan, pairs, backend)
        if closed_form is not None:
            return self._solved_by(closed_form, pairs, backend, engine)
        rows, held_out = pairs, None
        if plan.n_held_out:
            rows, rest = pairs.split(plan.n_held_out, plan.seed)
            held_out = rest.read(0, rest.n_rows)
        # Maps and start.
        maps = self._fit_maps(plan, rows)
        deadline = None if self.max_time is None else began + self.max_time
        setup = Setup.build(
            plan, maps, self.n_components, backend, engine, self._minibatch, deadline
        )
        start, training = self._start(settings, setup, rows, held_out)
        state, save = TrainingState(start), None
        if directory is not None:
            identity = self._identity(plan, maps, pairs)
            if stored is not None:
                state = self._resumed(load_state(directory, identity, backend))
            save = Checkpoint(directory, identity, backend, self.checkpoint_seconds)
        # Loop and finish.
        epochs = plan.epochs if self.epochs is None else self.epochs
        if state.stopped is None and state.position.epoch < epochs:
            state = self._train(state, training, rows, epochs, save)
        return self._finish(state, training, rows)

    def _solved_by(
        self, closed_form: ClosedFormCCA, pairs: PairSource, backend: Backend, engine: Engine
    ) -> Projection:
        """The projection of the closed form, and the record of a run without steps."""
        projection = closed_form._solve(pairs, backend, engine)
        self.reg_, self.scale_ = closed_form.reg_, closed_form.scale_
        self.stopped_ = SOLVED
        self.history_ = as_columns([])
        self.n_samples_seen_ = pairs.n_rows
        return projection

    def _train(
        self,
        state: TrainingState,
        training: Training,
        pairs: PairSource,
        epochs: int,
        save: Checkpoint | None,
    ) -> TrainingState:
        """Step through the remaining epochs; `save` also saves the end of the run."""
        plan = training.setup.plan
        stream = PairStream(
            pairs,
            plan.batch_size,
            plan.seed,
            window_bytes=plan.window_bytes,
            epochs=epochs,
            start=state.position,
            place=[features.place for features in training.setup.features],
        )
        last_step = epochs * stream.batches_per_epoch
        n_samples = last_step * plan.batch_size
        evaluate = None if training.held_out is None else training.held_out_correlation
        every = -(-STEPS_PER_HELD_OUT_BATCH * max(plan.n_held_out, 1) // plan.batch_size)
        callbacks: list[Callback] = []
        if training.setup.deadline is not None:
            callbacks.append(training.time_limit(training.setup.deadline, pairs.n_rows))
        history = History(every, last_step, evaluate)
        callbacks.append(history)
        if evaluate is not None and self.tol is not None:
            callbacks.append(EarlyStopping(self.tol))
        context = FitContext(plan.batch_size, n_samples, self._model_maker(training, pairs))
        for callback in self.callbacks:
            if hasattr(callback, "on_fit_start"):
                callback.on_fit_start(context)
            callbacks.append(callback)
        if self.callbacks:
            callbacks.append(history)  # records the step at which a callback stops the run
        with ExitStack() as exits:
            bar = None
            if sys.stderr.isatty() if self.verbose is None else self.verbose:
                n_components = training.setup.n_components
                bar = ProgressBar(type(self).__name__, n_components, n_samples)
                exits.callback(bar.close)
                callbacks.append(bar)
            if save is not None:
                exits.enter_context(save.guarding())
                callbacks.append(save)
            with iter(stream) as batches:
                state = train(state, batches, training.update, callbacks)
            if save is not None:
                save.finish(state)
            if bar is not None:
                bar.finish(state)
        return state

    def _finish(self, state: TrainingState, training: Training, pairs: PairSource) -> Projection:
        """The projection and the record of the run."""
        projection = training.projection(state, pairs)
        self.stopped_ = state.stopped or "epochs"
        self.history_ = as_columns(state.history)
        self.n_samples_seen_ = state.optimizer.samples
        return projection

    def _model_maker(self, training: Training, pairs: PairSource) -> Any:
        def model_at(state: TrainingState) -> StochasticCCA:
            # A copy: callbacks of the original see no half-fitted attributes.
            model = copy.copy(self)
            # The current weights, not the best so far: what training has reached.
            model._keep(model._finish(replace(state, best=None), training, pairs))
            return model

        return model_at

    def partial_fit(self, X: Any, Y: Any = None, *, solve: bool = True) -> Self:
        """Take steps on the rows of the next piece of a stream, which may be endless.

        The first piece fixes widths, features and start, so it should be a representative sample,
        with more rows than `rank` if possible. Rows that do not fill a minibatch wait for the next
        piece: given the first piece, any partition of the rows into pieces gives the same model. A
        piece that fails changes nothing. The components are aligned on the latest rows, which costs
        about as much as a step: pass `solve=False` for all pieces but the last to do it once.
        Nothing is held out, and parameters that decide how long `fit` trains, what it calls or
        where it saves have no effect. `fit` starts a new stream; a pickled copy of the model
        continues this one.
        """
        with PairSource.open(X, Y) as pairs, unchanged_on_failure(self):
            stream = getattr(self, "_partial", None)
            self._remember_columns(pairs, reset=stream is None)
            pairs.settle(self._backend(pairs.dtype), self._host_budget())
            with Threads(worker_count(self.n_jobs)) as engine:
                if stream is None:
                    stream = self._open_stream(pairs, engine)
                callbacks: list[Callback] = [History(1, None, None)]
                if self.verbose:
                    n_components = stream.training.setup.n_components
                    callbacks.append(ProgressBar(type(self).__name__, n_components, None))
                stream = replace(stream, training=stream.training.with_engine(engine))
                stream = stream.after(pairs, callbacks)
                if solve:
                    with PairSource.open(*stream.recent) as rows:
                        self._keep(self._finish(stream.state, stream.training, rows))
                        self._fit_structure(rows, engine)
                    self.stopped_ = None
                    self.n_samples_ = stream.n_rows
            self._partial = replace(stream, training=stream.training.with_engine(Serial()))
        return self

    def _open_stream(self, pairs: PairSource, engine: Engine) -> "Stream":
        """Set up on the first piece, as `_solve` does on all rows."""
        self._check_size(pairs)
        settings, backend = self._settings(), self._backend(pairs.dtype)
        plan = self._plan(pairs, backend, engine, streaming=True)
        maps = self._fit_maps(plan, pairs)
        setup = Setup.build(plan, maps, self.n_components, backend, engine, self._minibatch)
        start, training = self._start(settings, setup, pairs, None)
        return Stream(training, TrainingState(start))

    def _check_limits(self) -> None:
        """Check how long to train and what to call on the way: what a resumed run may change."""
        optional(count, "epochs", self.epochs)
        optional(positive, "max_time", self.max_time)
        optional(at_least_zero, "tol", self.tol)
        positive("checkpoint_seconds", self.checkpoint_seconds)
        callbacks = self.callbacks
        if not isinstance(callbacks, Sequence) or not all(callable(one) for one in callbacks):
            raise InputTypeError(
                f"callbacks={callbacks!r}: wanted a list of callables (state, result) -> state, as "
                "described by knoi.callbacks.Callback."
            )

    def _resumed(self, state: TrainingState) -> TrainingState:
        """The state to resume from: the run is over only if it had converged, by this `tol` too."""
        converged = state.stopped == CONVERGED and self.tol is not None
        if converged and EarlyStopping(self.tol or 0.0).converged(state.history):
            return state
        return replace(state, stopped=None)

    def _plan(
        self, pairs: PairSource, backend: Backend, engine: Engine, *, streaming: bool
    ) -> Plan:
        """The plan for the sizes of the data and the memory of the machine."""
        sizes = Sizes(
            n_rows=pairs.n_rows,
            n_cols=pairs.n_cols,
            row_bytes=pairs.row_bytes,
            working_bytes=pairs.bytes_on(backend),
            backend=backend,
            budget=self._budget(backend),
            host_budget=self._host_budget(),
            n_workers=engine.n_workers,
            sparse=pairs.sparse if backend.is_numpy else (False, False),
        )
        return self._make_plan(pairs, sizes, streaming=streaming)

    def _stored_identity(self, directory: Path | None, pairs: PairSource) -> dict[str, Any] | None:
        """The identity of the checkpoint to resume from, if there is one."""
        if directory is None:
            raise InputError(
                "resume=True but checkpoint=None: there is nothing to resume from. Set checkpoint "
                "to the directory of the run."
            )
        stored = stored_identity(directory)
        if stored is not None:
            check_same_run(directory, stored, self._requested_identity(pairs))
        return stored

    def _requested_identity(self, pairs: PairSource) -> dict[str, Any]:
        """The part of the identity that is known before any work."""
        parameters = self.get_params(deep=False).items()
        return {
            "estimator": type(self).__name__,
            "n_rows": pairs.n_rows,
            "n_cols": list(pairs.n_cols),
            **{name: portable(v) for name, v in parameters if name not in NOT_IDENTITY},
        }

    def _identity(self, plan: Plan, maps: Maps, pairs: PairSource) -> dict[str, Any]:
        """What a checkpoint must agree with to be resumed: parameters, plan, data, maps."""
        return {
            **self._requested_identity(pairs),
            "plan": plan.state_dict(),
            "rows": _digest(dict(zip("XY", pairs.sample(IDENTITY_ROWS, plan.seed), strict=True))),
            "features": [_digest(features.state_dict()) for features in maps],
        }


def _digest(state: dict[str, Any]) -> str:
    """A fingerprint of a map, and so of the data it was fitted to, or of rows."""
    plain, tensors = flatten_state(state)
    digest = hashlib.sha256(repr(sorted(plain.items())).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Stream:
    """What `partial_fit` remembers between calls."""

    training: Training
    state: TrainingState
    waiting: RowPair | None = None  # rows that do not fill a minibatch yet
    recent: RowPair = (np.empty((0, 0)), np.empty((0, 0)))  # the latest rows
    n_rows: int = 0  # of all pieces

    def after(self, pairs: PairSource, callbacks: Sequence[Callback]) -> "Stream":
        """The stream after the rows of `pairs`; the stream itself does not change."""
        setup = self.training.setup
        b = setup.plan.batch_size
        keep = max(b, RECENT_PER_DIRECTION * setup.directions)
        rest: list[RowPair] = []
        recent = [self.recent] if self.recent[0].shape[0] else []

        def minibatches() -> Iterator[Batch]:
            pieces = [] if self.waiting is None else [self.waiting]
            step, read = self.state.optimizer.steps, 0
            with pairs.iterate(b) as chunks:
                for x, y in chunks:
                    for name, features, rows in zip("XY", setup.maps, (x, y), strict=True):
                        check_domain(name, features.kernel, rows, read)
                    read += int(x.shape[0])
                    piece = x.astype(pairs.dtype), y.astype(pairs.dtype)
                    recent[:] = [_last(_joined([*recent, piece]), keep)]
                    joined = _joined([*pieces, piece])
                    at, n = 0, int(joined[0].shape[0])
                    while n - at >= b:
                        part = slice(at, at + b)
                        yield Batch(
                            joined[0][part],
                            joined[1][part],
                            np.arange(at, at + b),
                            Position(0, step),
                            Position(0, step + 1),
                        )
                        step, at = step + 1, at + b
                    pieces = [(joined[0][at:], joined[1][at:])] if at < n else []
            rest[:] = pieces

        state = train(self.state, minibatches(), self.training.update, callbacks)
        return replace(
            self,
            state=state,
            waiting=rest[0] if rest else None,
            recent=_joined(recent),
            n_rows=self.n_rows + pairs.n_rows,
        )


def _joined(pieces: list[RowPair]) -> RowPair:
    if len(pieces) == 1:
        return pieces[0]
    x, y = zip(*pieces, strict=True)
    return stack(x), stack(y)


def _last(rows: RowPair, n: int) -> RowPair:
    x, y = (view[max(0, view.shape[0] - n) :].copy() for view in rows)
    return x, y
