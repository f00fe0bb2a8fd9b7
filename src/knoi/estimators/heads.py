"""Heads of deep CCA: closed forms on what the networks have learned, and the choice among them.

Candidates are the trained outputs, linear CCA of the features before them, kernel CCA of these
features, and linear CCA of the columns themselves, so that a network that does not help does no
harm. Held-out rows decide: the simplest head that is not worse than the best by more than a
standard error. Then the chosen head is solved with them as well.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from knoi.arrays.backend import Array, numpy_backend
from knoi.arrays.sparse import stack
from knoi.data.pairs import PairSource, RowPair
from knoi.engine import Serial, Threads, worker_count
from knoi.estimators.closed_form import FourierCCA
from knoi.estimators.linear import LinearCCA
from knoi.estimators.structure import structure_rows
from knoi.features import FeatureMap, Identity, Nystrom
from knoi.features.composite import Chain, all_features
from knoi.kernels import RBF, with_default_width
from knoi.projection import Projection, ViewProjection, features_of
from knoi.solvers.exact import (
    Covariances,
    HeldOutScore,
    Moments,
    RidgePath,
    choose_reg,
    solve_primal,
)

logger = logging.getLogger("knoi")

HEADS = ("auto", "linear", "nystrom")
# Training rows that heads are solved on, and landmarks of the kernel.
HEAD_ROWS = 100_000
HEAD_LANDMARKS = 2000
# Fewer rows per landmark than this are not worth a kernel.
MIN_ROWS_PER_LANDMARK = 10
# Regularisers that are tried, and where the search starts.
REGS = tuple(10.0**k for k in range(-8, 1))
FIRST_REG = {"network": 1e-5, "nystrom": 1e-5, "inputs": 1e-4}
# More columns than this are not tried without a network.
MAX_INPUT_COLUMNS = 2000
# With a time limit, heads get at most this share of it.
SHARE_OF_TIME = 0.4
# Decompositions of M x M matrices, in products of such matrices in float32.
DECOMPOSITIONS = 220

Maps = tuple[FeatureMap, FeatureMap]


@dataclass(frozen=True)
class HeadPlan:
    """What heads are solved on, and how long that takes about."""

    rows: int
    landmarks: int  # 0: no kernel
    seconds: float = 0.0


def plan_head(
    head: str,
    n_rows: int,
    n_weights: int,
    widths: tuple[int, int],
    seconds: float,
    rate: float,
) -> HeadPlan:
    """The largest head that takes at most `seconds` at `rate` floating-point operations per second.

    The pass over a sample of rows for predictions and loadings, which follows, is included.
    `n_weights` are those of both networks, `widths` the columns of their features.
    """

    def cost(rows: int, landmarks: int) -> float:
        M = max(*widths, landmarks)
        projecting = 2 * n_weights + 2 * landmarks * sum(widths)  # per row
        moments = 2 * sum(width**2 for width in widths) + 8 * landmarks**2
        total = rows * (projecting + moments) + structure_rows(n_rows) * projecting
        return (total + 2 * DECOMPOSITIONS * M**3) / rate

    most = min(HEAD_ROWS, n_rows)
    landmarks = 0 if head == "linear" else max(1, min(HEAD_LANDMARKS, n_rows // 2))
    plans = [(most, landmarks)]
    plans += [
        (most // part, fewer)
        for fewer in (landmarks, landmarks // 2)
        for part in (1, 2, 4)
        if fewer and most // part >= MIN_ROWS_PER_LANDMARK * fewer
    ]
    if head == "auto":
        plans += [(most, 0), (most // 4, 0)]
    for plan in plans:
        if cost(*plan) <= seconds:
            break
    return HeadPlan(*plan, cost(*plan))


@dataclass(frozen=True)
class Candidate:
    """A head that was tried: its features, their moments, and its score on held-out rows."""

    name: str
    maps: Maps
    moments: Moments
    reg: tuple[float, float]
    score: HeldOutScore | None = None
    last: tuple[NDArray[Any], NDArray[Any]] | None = None  # weights of the trained last layers

    def solution(self, n_components: int) -> Projection:
        """The projection of this head."""
        covariances = self.moments.covariances()
        means = covariances.mean_x, covariances.mean_y
        if self.last is not None:
            covariances = _of_outputs(covariances, *self.last)
        solved = solve_primal(covariances, n_components, self.reg, self.moments.backend)
        weights: Any = (solved.U, solved.V)
        if self.last is not None:
            weights = [W @ A for W, A in zip(self.last, weights, strict=True)]
        x, y = (ViewProjection(*view) for view in zip(self.maps, means, weights, strict=True))
        return Projection(x, y, solved.correlations, solved.singular_values)


@dataclass(frozen=True)
class HeadSearch:
    """The heads for trained networks, and the choice among them."""

    head: str
    plan: HeadPlan
    networks: Maps  # without their last layers
    last: tuple[NDArray[Any], NDArray[Any]]  # weights of the last layers
    rows: RowPair  # training rows to solve on
    held_out: RowPair | None
    solver: FourierCCA  # accumulates moments within its memory budget

    def best(self) -> Projection:
        """The head for the held-out rows; without them, the one that was asked for."""
        tried = list(self._candidates())
        chosen = tried[0]
        if self.held_out is not None:
            chosen = simplest(tried)
            scores = ", ".join(f"{one.name} {one.score.total:.2f}" for one in tried if one.score)
            logger.info("head: %s, by correlation of held-out pairs: %s.", chosen.name, scores)
            if chosen.name == "inputs":
                return self._linear()
            if chosen.last is None:
                chosen.moments.merge(self._moments(chosen.maps, self.held_out))
        return chosen.solution(self.solver.n_components)

    def _linear(self) -> Projection:
        """Linear CCA of the columns, with the regulariser that it chooses itself for all rows."""
        assert self.held_out is not None
        x, y = (stack(parts) for parts in zip(self.rows, self.held_out, strict=True))
        own = {name: getattr(self.solver, name) for name in ("memory_budget", "n_jobs")}
        linear = LinearCCA(self.solver.n_components, **own)
        with PairSource.open(x, y) as pairs, Threads(worker_count(self.solver.n_jobs)) as engine:
            return linear._solve(pairs, numpy_backend(pairs.dtype), engine)

    def _candidates(self) -> Iterator[Candidate]:
        """The heads to try, from the simplest to the largest."""
        L, auto = self.solver.n_components, self.head == "auto"
        n_cols = [int(view.shape[1]) for view in self.rows]
        # An error if the outputs have collapsed, whatever head is taken in the end.
        moments = self._moments(self.networks, self.rows)
        outputs = Candidate("outputs", self.networks, moments, (0.0, 0.0), last=self.last)
        projection = outputs.solution(L)
        if self.held_out is None and self.head != "nystrom":
            yield outputs
            return
        if auto and min(n_cols) >= L and max(n_cols) <= MAX_INPUT_COLUMNS:
            yield self._solved("inputs", (Identity(n_cols[0]), Identity(n_cols[1])))
        if auto and self.held_out is not None:
            yield replace(outputs, score=_score(projection, self.held_out))
        if self.head != "nystrom":
            yield self._solved("network", self.networks, moments)
        if self.plan.landmarks:
            x, y = (
                _kernel_on(features, own, self.plan.landmarks)
                for features, own in zip(self.networks, self.rows, strict=True)
            )
            yield self._solved("nystrom", (x, y))

    def _solved(self, name: str, maps: Maps, moments: Moments | None = None) -> Candidate:
        """A closed form on these features, with the regulariser for the held-out rows."""
        moments = self._moments(maps, self.rows) if moments is None else moments
        found = Candidate(name, maps, moments, (FIRST_REG[name], FIRST_REG[name]))
        if self.held_out is None:
            return found
        backend = moments.backend
        x, y = (
            features_of(one.to(backend), own, backend, Serial())
            for one, own in zip(maps, self.held_out, strict=True)
        )
        path = RidgePath.of(moments.covariances(), (x, y), backend)
        reg, score = choose_reg([path], self.solver.n_components, REGS, FIRST_REG[name])
        return replace(found, reg=reg, score=score)

    def _moments(self, maps: Maps, rows: RowPair) -> Moments:
        """The moments of these features of the rows."""
        workers = Threads(worker_count(self.solver.n_jobs))
        with PairSource.open(*rows) as pairs, workers as engine:
            backend = numpy_backend(pairs.dtype)
            return self.solver._accumulate(pairs, maps, backend, engine, keep=True)


def simplest(tried: list[Candidate]) -> Candidate:
    """The first candidate that is not below the best by more than a standard error."""
    scores = [one.score for one in tried if one.score is not None]
    best = max(scores, key=lambda score: score.total)
    return next(one for one in tried if one.score is not None and one.score.close_to(best))


def _kernel_on(features: FeatureMap, rows: Array, landmarks: int) -> FeatureMap:
    """Nystrom features on top of learned ones; linear views stay as they are."""
    if features.is_identity:
        return features
    # Rows are a random sample in row order: every k-th is one, too.
    n = max(1, min(landmarks, rows.shape[0] // 2))
    Z = all_features(features, rows[:: rows.shape[0] // n][:n])
    kernel = with_default_width(RBF(), Z)
    return Chain(features, Nystrom.fit(Z, kernel), kernel)


def _of_outputs(moments: Covariances, Wx: NDArray[Any], Wy: NDArray[Any]) -> Covariances:
    """The moments of outputs Phi Wx and Psi Wy, from those of the features."""
    return Covariances(
        moments.n,
        moments.mean_x @ Wx,
        moments.mean_y @ Wy,
        Wx.T @ moments.Sxx @ Wx,
        Wx.T @ moments.Sxy @ Wy,
        Wy.T @ moments.Syy @ Wy,
        moments.precision,
    )


def _score(projection: Projection, rows: RowPair) -> HeldOutScore:
    backend = numpy_backend("float64")
    Zx, Zy = (
        backend.to_numpy(side(own))
        for side, own in zip((projection.x, projection.y), rows, strict=True)
    )
    return HeldOutScore.of(Zx, Zy)
