"""What surrounds the steps of a stochastic fit: maps, held-out rows, the final linear CCA.

How to start and how to step is handed in: a `Recipe`.
"""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, numpy_backend
from knoi.data.pairs import PairSource, RowPair
from knoi.engine import Engine, Serial
from knoi.estimators.plan import Plan
from knoi.exceptions import InputError
from knoi.features import FeatureMap
from knoi.metrics import total_correlation
from knoi.projection import Projection, ViewProjection
from knoi.solvers.exact import Solution, solve_primal
from knoi.solvers.loop import Steps
from knoi.solvers.moments import Moments
from knoi.solvers.noi import MinibatchFeatures
from knoi.solvers.rule import Anchor, Weights, collapsed

Maps = tuple[FeatureMap, FeatureMap]

# Rows of the training set that the final linear CCA looks at: many times its L + L dimensions.
FINAL_ROWS = 65_536
# Rows that judge features must not be those the features were made from: a minibatch of landmarks
# shows a curvature no other has.
FRESH = 1


class Recipe(Protocol):
    """Where a fit starts and how it steps."""

    def __call__(self, training: "Training") -> tuple[Weights, Steps]:
        """The weights to start from and the rule, for maps and rows of `training`."""
        ...


class Training:
    """One fit: feature maps on the backend, the rule of a step, rows held out."""

    def __init__(
        self,
        plan: Plan,
        maps: Maps,
        recipe: Recipe,
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
        self.work = self.minibatches(keep=plan.keep_features)
        self.start, self.rule = recipe(self)

    def minibatches(self, *, keep: bool) -> tuple[MinibatchFeatures, MinibatchFeatures]:
        """Features of a minibatch of each view."""
        x, y = (
            MinibatchFeatures(features, self.plan.batch_size, self.backend, keep=keep)
            for features in self.maps
        )
        return x, y

    @property
    def n_rows(self) -> int:
        """Rows to train on."""
        assert self._train is not None
        return self._train.n_rows

    def sample(self, n: int, address: int = 0) -> RowPair:
        """Rows to train on, at most n, in the precision of the backend."""
        assert self._train is not None
        x, y = self._train.sample(n, self.plan.seed + address)
        return x.astype(self.backend.dtype, copy=False), y.astype(self.backend.dtype, copy=False)

    def held_out_correlation(self, weights: Weights) -> float:
        """Fitted total correlation of the rows held out, aligned on the minibatch in use."""
        assert self._held_out is not None
        U, V = weights.result
        moments = self._score_moments()
        moments.update(*(self._scores(work, W) for work, W in self._each(self.work, U, V)))
        apart = self.minibatches(keep=False)
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
        for v, (S, W) in enumerate(zip((covariances.Sxx, covariances.Syy), (U, V), strict=True)):
            if (penalty := self.rule.penalty(v, W)) is not None:
                S += self.backend.to_numpy(penalty)
        return solve_primal(covariances, self.n_components, (0.0, 0.0), moments.backend)

    def work_with(self, engine: Engine) -> None:
        """Go on with other workers."""
        self.engine = engine
        self.rule = self._changed(engine=engine)

    def rest(self) -> None:
        """Let go of the workers and of the rows it was built from, until `work_with`."""
        self.work_with(Serial())
        self._train = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the room for a minibatch's features, which a copy makes anew."""
        return {**self.__dict__, "work": None, "rule": self._changed(features=None)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.work = self.minibatches(keep=self.plan.keep_features)
        self.rule = self._changed(features=self.work)

    def _changed(self, **changes: Any) -> Steps:
        """The rule with other parts."""
        changed: Steps = replace(self.rule, **changes)  # type: ignore[type-var]
        return changed

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
            for v, (work, W) in enumerate(self._each(self.work, U, V)):
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
