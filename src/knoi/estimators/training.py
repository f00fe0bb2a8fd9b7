"""The parts of a stochastic fit, built in order: start, preconditioners, step sizes, the rule.

Then what surrounds its steps: judging weights on rows held out, and the final linear CCA.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, numpy_backend
from knoi.arrays.random import Purpose, View, generator
from knoi.data.pairs import PairSource, RowPair
from knoi.engine import Engine, Serial
from knoi.estimators.plan import Plan
from knoi.exceptions import InputError
from knoi.features import FeatureMap
from knoi.features.nystrom import KernelColumns
from knoi.metrics import total_correlation
from knoi.projection import Projection, ViewProjection
from knoi.solvers.exact import Solution, solve_primal
from knoi.solvers.moments import Moments
from knoi.solvers.noi import MinibatchFeatures, ViewState
from knoi.solvers.precondition import Columns, LowRank, Preconditioner, largest_curvature, plain
from knoi.solvers.rule import Anchor, Rule, StepSize, Weights, collapsed
from knoi.solvers.warm_start import Start, rows_wanted, warm_start

Maps = tuple[FeatureMap, FeatureMap]

# Rows of the training set that the final linear CCA looks at: many times its L + L dimensions.
FINAL_ROWS = 65_536
# The regularisation where nothing could be learned about it, and the least shift of `Columns`.
UNKNOWN_REG = 1e-3
LEAST_SHIFT = {"float32": 5e-7, "float64": 1e-9}


@dataclass(frozen=True)
class StepParameters:
    """What the user may set of the steps; None where the default depends on the preconditioner."""

    learning_rate: float | None
    fall: float | None
    momentum: float | None
    weight_decay: float | None
    time_constant: float
    average: bool | None
    reg: tuple[float | None, float | None]  # None: found by the warm start


@dataclass(frozen=True)
class _StepDefaults:
    """What suits one way to precondition; benchmarks/paper/variants.py holds it against others."""

    learning_rate: float
    fall: float | None
    momentum: float
    weight_decay: float
    average: bool


# The paper's, in the convention of unscaled features: its eta = 0.01, weight decay 1e-5 and initial
# deviation 0.1 are for features multiplied by ten.
PUBLISHED = _StepDefaults(1.0, None, 0.995, 1e-7, average=False)
PUBLISHED_DEVIATION = 1.0
COLUMNS = _StepDefaults(1.0, 6.0, 0.0, 0.0, average=True)
LOW_RANK = _StepDefaults(1.0, None, 0.0, 0.0, average=True)
# Rows that judge features must not be those the features were made from: a minibatch of landmarks
# shows a curvature no other has.
FRESH = 1
# Averaging starts once the fast directions have settled.
AVERAGE_FROM = 10


class Training:
    """One fit: feature maps on the backend, the rule of a step, rows held out."""

    def __init__(
        self,
        plan: Plan,
        maps: Maps,
        steps: StepParameters,
        n_components: int,
        train: PairSource,
        held_out: PairSource | None,
        backend: Backend,
        engine: Engine,
    ) -> None:
        # A map may have fewer features than were asked for: monomials, distinct landmarks.
        ranks = maps[0].rank, maps[1].rank
        self.plan = replace(plan, rank=ranks, directions=min(plan.directions, *ranks))
        self.n_components = n_components
        self.backend = backend
        self.engine = engine
        self.maps = maps[0].to(backend), maps[1].to(backend)
        self._train: PairSource | None = train
        self._held_out = None if held_out is None else held_out.read(0, held_out.n_rows)
        self._work = self._minibatches(keep=plan.keep_features)
        self.start, self.rule = self._build(steps)

    def _minibatches(self, *, keep: bool) -> tuple[MinibatchFeatures, MinibatchFeatures]:
        x, y = (
            MinibatchFeatures(features, self.plan.batch_size, self.backend, keep=keep)
            for features in self.maps
        )
        return x, y

    def _build(self, given: StepParameters) -> tuple[Weights, Rule]:
        defaults = {"columns": COLUMNS, "low_rank": LOW_RANK, None: PUBLISHED}
        ours = [defaults[choice] for choice in self.plan.precondition]
        start = self._warm_start()
        precondition = self._preconditioners(start, given.reg)
        minibatch = self._sample(self.plan.batch_size, FRESH)
        rates = self._unit_steps(minibatch, precondition)
        sizes = [
            StepSize(
                (own.learning_rate if given.learning_rate is None else given.learning_rate) * unit,
                own.fall if given.fall is None else given.fall,
            )
            for own, unit in zip(ours, rates, strict=True)
        ]
        average = ours[0].average if given.average is None else given.average
        rule = Rule(
            self._work,
            precondition,
            (sizes[0], sizes[1]),
            self.n_components,
            given.time_constant,
            ours[0].momentum if given.momentum is None else given.momentum,
            ours[0].weight_decay if given.weight_decay is None else given.weight_decay,
            AVERAGE_FROM if average else None,
            self.backend,
            self.engine,
        )
        weights = self._random_start(minibatch, precondition) if start is None else start.weights
        x, y = (ViewState(U, self.backend.zeros(tuple(U.shape))) for U in weights)
        return Weights(x, y), rule

    def _sample(self, n: int, address: int = 0) -> RowPair:
        assert self._train is not None
        x, y = self._train.sample(n, self.plan.seed + address)
        return x.astype(self.backend.dtype, copy=False), y.astype(self.backend.dtype, copy=False)

    def _warm_start(self) -> Start | None:
        if self.plan.precondition == (None, None):
            return None
        sample = self._sample(rows_wanted(max(self.plan.rank)), FRESH)
        return warm_start(
            self.maps,
            sample,
            self.plan.directions,
            self.backend,
            self.engine,
            wanted=self.n_components,
        )

    def _preconditioners(
        self, start: Start | None, given: tuple[float | None, float | None]
    ) -> tuple[Preconditioner, Preconditioner]:
        parts: list[Preconditioner] = []
        for view, features, choice in zip(View, self.maps, self.plan.precondition, strict=True):
            reg, ridge = self._regularisation(start, given[view])
            if choice == "columns":
                assert isinstance(features, KernelColumns)
                shift = max(reg, LEAST_SHIFT[self.backend.dtype])
                parts.append(Columns.fit(features, shift, ridge, self.backend, self.engine))
            elif choice == "low_rank":
                rows = self._sample(LowRank.rows_wanted(features.rank))[view]
                part, b = self.backend.asarray(rows), self.plan.batch_size
                parts.append(LowRank.fit(features, part, b, ridge, self.backend, self.engine))
            else:
                parts.append(plain)
        return parts[0], parts[1]

    def _regularisation(self, start: Start | None, given: float | None) -> tuple[float, float]:
        """What suits the data, and the ridge to train with, both relative to total variance.

        What suited the rows of the small problem suits N of them N / n times weaker. A single pass
        cannot overfit and needs no ridge; the more passes, the more of it.
        """
        if given is not None:
            return given, given
        assert self._train is not None
        reg = UNKNOWN_REG if start is None else start.reg * start.n_rows / self._train.n_rows
        return reg, reg * (1 - 1 / self.plan.passes)

    def _unit_steps(
        self, minibatch: RowPair, precondition: tuple[Preconditioner, Preconditioner]
    ) -> list[float]:
        """The step a learning rate of 1 stands for: the inverse of the largest curvature."""
        units = []
        for work, features, rows, apply, choice in zip(
            self._work, self.maps, minibatch, precondition, self.plan.precondition, strict=True
        ):
            if choice is None:
                units.append(1.0)
                continue
            work.load(self.backend.asarray(rows))
            curvature = largest_curvature(work, features.rank, apply, self.backend, self.engine)
            units.append(1 / curvature if 0 < curvature < float("inf") else 1.0)
        return units

    def _random_start(
        self, minibatch: RowPair, precondition: tuple[Preconditioner, Preconditioner]
    ) -> tuple[Array, Array]:
        """The paper's normal weights; preconditioned, what one step makes of random targets."""
        weights, k = [], self.plan.directions
        for view, choice in zip(View, self.plan.precondition, strict=True):
            draw = generator(self.plan.seed, Purpose.START, view)
            if choice is None:
                normal = draw.standard_normal((self.plan.rank[view], k))
                weights.append(self.backend.asarray(PUBLISHED_DEVIATION * normal))
                continue
            rows = minibatch[view]
            self._work[view].load(self.backend.asarray(rows))
            targets = draw.standard_normal((rows.shape[0], k))
            targets -= targets.mean(axis=0)
            R = self.backend.asarray(targets / rows.shape[0])
            zero = self.backend.zeros((self.plan.rank[view], k))
            self._work[view].project(zero, self.engine)  # makes the features
            G = self._work[view].gradient(R, self.engine)
            weights.append(precondition[view](G, zero))
        return weights[0], weights[1]

    def held_out_correlation(self, weights: Weights) -> float:
        """Fitted total correlation of the rows held out, aligned on the minibatch in use."""
        assert self._held_out is not None
        U, V = weights.result
        moments = self._score_moments()
        moments.update(*(self._scores(work, W) for work, W in self._each(self._work, U, V)))
        apart = self._minibatches(keep=False)
        pieces: list[list[NDArray[Any]]] = [[], []]
        for start in range(0, self._held_out[0].shape[0], self.plan.batch_size):
            for v, (work, W) in enumerate(self._each(apart, U, V)):
                rows = self._held_out[v][start : start + self.plan.batch_size]
                work.load(self.backend.asarray(rows))
                pieces[v].append(self._scores(work, W))
        try:
            aligned = self._aligned(moments, U, V)
        except InputError:  # too few directions in this minibatch
            return float("nan")
        Zx, Zy = (np.concatenate(part) for part in pieces)
        return total_correlation(Zx @ aligned.U, Zy @ aligned.V, measure="fitted")

    def _each(self, work: tuple[MinibatchFeatures, MinibatchFeatures], U: Array, V: Array) -> Any:
        return zip(work, (U, V), strict=True)

    def _scores(self, work: MinibatchFeatures, W: Array) -> NDArray[Any]:
        """Phi W of the rows loaded, (b, k), float64."""
        return self.backend.to_numpy(work.project(W, self.engine)).astype(np.float64)

    def _score_moments(self) -> Moments:
        return Moments((self.plan.directions, self.plan.directions), numpy_backend("float64"))

    def _aligned(self, moments: Moments, U: Array, V: Array) -> Solution:
        """Linear CCA of scores, with the ridge of training: the wanted components, in order."""
        covariances = moments.covariances(consume=True)
        for S, apply, W in zip(
            (covariances.Sxx, covariances.Syy), self.rule.precondition, (U, V), strict=True
        ):
            if (penalty := apply.penalty(W)) is not None:
                S += self.backend.to_numpy(penalty)
        return solve_primal(covariances, self.n_components, (0.0, 0.0), moments.backend)

    def work_with(self, engine: Engine) -> None:
        """Go on with other workers."""
        self.engine = engine
        self.rule = replace(self.rule, engine=engine)

    def rest(self) -> None:
        """Let go of the workers and of the rows it was built from, until `work_with`."""
        self.work_with(Serial())
        self._train = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the room for a minibatch's features, which a copy makes anew."""
        rule = replace(self.rule, features=None)  # type: ignore[arg-type]
        return {**self.__dict__, "_work": None, "rule": rule}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._work = self._minibatches(keep=self.plan.keep_features)
        self.rule = replace(self.rule, features=self._work)

    def finish(
        self,
        U: Array,
        V: Array,
        rows: PairSource | None = None,
        *,
        fall_back: Anchor | None = None,
    ) -> Projection:
        """Linear CCA of the training scores, so that components are uncorrelated and ordered.

        No minibatch has judged the very last step: if it was bad, the weights are `fall_back`'s.
        """
        rows = self._train if rows is None else rows
        assert rows is not None
        found = self._final_cca(U, V, rows)
        if fall_back is not None and fall_back.correlation is not None:
            reached = 0.0 if found is None else float(found.correlations.sum())
            if collapsed(reached, fall_back):
                other = self._final_cca(fall_back.U, fall_back.V, rows)
                if other is not None and float(other.correlations.sum()) > reached:
                    found = other
        if found is None:
            raise InputError(
                "the features of the training rows are not finite. Check the scale of the data."
            )
        return found

    def _final_cca(self, U: Array, V: Array, pairs: PairSource) -> Projection | None:
        """None if the scores are not finite."""
        sample = pairs.sample(min(FINAL_ROWS, pairs.n_rows), self.plan.seed)
        b = self.plan.batch_size
        moments = self._score_moments()
        sums = [np.zeros(features.rank) for features in self.maps]
        n = int(sample[0].shape[0])
        for start in range(0, n, b):
            scores = []
            for v, (work, W) in enumerate(self._each(self._work, U, V)):
                X = self.backend.asarray(sample[v][start : start + b])
                work.load(X)
                scores.append(self._scores(work, W))
                one = self.backend.asarray(np.ones((X.shape[0], 1)))
                sums[v] += self.backend.to_numpy(work.gradient(one, self.engine))[:, 0]
            if not all(np.isfinite(P).all() for P in scores):
                return None
            moments.update(*scores)
        solution = self._aligned(moments, U, V)
        keep = numpy_backend(self.backend.dtype)
        x, y = (
            ViewProjection(
                features.to(keep), total / n, self.backend.to_numpy(W).astype(np.float64) @ A
            )
            for features, total, W, A in zip(
                self.maps, sums, (U, V), (solution.U, solution.V), strict=True
            )
        )
        return Projection(x, y, solution.correlations)
