"""The space that kernels work in: scaled columns, a metric learned for each view, and widths.

A few cheap rounds on a sample: kernel CCA with few landmarks, of the columns as they are and of
standardised ones; the gradients of its projections, a linear transform of the columns from these,
and again. Held-out rows of the sample decide which round is taken, and whether any is better than
the columns as they are.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, DType
from knoi.arrays.random import LANDMARK_ORDER, Purpose, View, derived_seed, generator
from knoi.arrays.sparse import dense
from knoi.checks import one_of, one_per_view
from knoi.data.pairs import PairSource, RowPair
from knoi.engine import Engine, even_slices
from knoi.estimators.setup import (
    METRIC_COLUMNS,
    METRIC_FEATURES,
    check_varying,
    column_spreads,
    kernels_for,
    sized_kernels,
)
from knoi.exceptions import InputError
from knoi.features import FeatureMap, KernelColumns, Nystrom
from knoi.features.composite import Chain, all_features
from knoi.features.landmarks import Selection, n_candidates, select_landmarks
from knoi.features.metric import (
    ColumnScale,
    ColumnWeights,
    LinearTransform,
    gradient_products,
)
from knoi.kernels import RBF, Kernel, Linear, resolve
from knoi.kernels.supplied import SUPPLIED, Precomputed
from knoi.projection import PIECE_ROWS, features_of
from knoi.solvers.exact import HeldOutScore, Moments, RidgePath, Solution, choose_reg

logger = logging.getLogger("knoi")

METRICS = ("auto", "learned", "diagonal", "none")
SCALES = ("auto", "standard", "none")
# Columns whose spreads differ by a smaller factor are of one scale: nothing is tried.
SAME_SPREAD = 1.5
# Landmarks of a round: one for so many rows, but all of few rows: fewer leave more to chance.
LANDMARKS, ROWS_PER_LANDMARK = 600, 30
# A fifth of the rows, in so many runs of neighbours, is held out.
HELD_OUT_RUNS = 20
# Fewer rows are not worth a round.
MIN_ROWS = 100
MAX_ROUNDS = 5
# Rounds go on while they raise the total correlation by this fraction.
MIN_GAIN = 0.003
# What is learned is used if it is better by so many standard errors: it is the best of many trials.
STANDARD_ERRORS = 2.0
# A scale is chosen on so many held-out rows, on all five parts of few rows in turn.
ENOUGH_HELD_OUT = 400
# Rows of the first rounds. The last ones take all rows of the sample, if these are more by half:
# few rows find the directions, many rows weigh them.
FIRST_ROWS = 25_000
MAX_LAST_ROUNDS = 2
# Rows that gradients are taken at, a quarter of the rows if that is more, and several sums of them
# per row if they are few. Fewer if rows have so many columns that the gradients would be more
# numbers than this.
GRADIENT_ROWS, GRADIENT_NUMBERS = 5000, 2**28
# The part of the mean squared distance between rows that directions left out may have.
CUT = 1e-3
# Rows that the median distance is taken over in a round.
MEDIAN_ROWS = 1000
# Widths that are tried, as multiples of the median distance, from 1 on.
FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
REGS = tuple(10.0**k for k in range(-8, 1))
FIRST_REG = 1e-5


# A transform for each view.
Transforms = tuple[FeatureMap | None, FeatureMap | None]
Scales = tuple[ColumnScale | None, ColumnScale | None]


@dataclass(frozen=True)
class KernelSpace:
    """What kernels of both views are fitted on: rows, scaled or transformed by a metric."""

    pairs: PairSource
    kernels: tuple[Kernel, Kernel]
    samples: RowPair  # transformed rows, for maps that need some
    transforms: Transforms = (None, None)
    scales: Scales = (None, None)  # that the transforms started from

    @classmethod
    def of(
        cls,
        request: "MetricRequest",
        pairs: PairSource,
        samples: RowPair,
        seed: int,
        transforms: Transforms,
        scales: Scales,
        factor: float = 1.0,
    ) -> "KernelSpace":
        """From rows as they are; kernels get their widths in the space."""
        x, y = (_transformed(*one) for one in zip(samples, transforms, strict=True))
        kernels = sized_kernels(request.kernels, request.width, (x, y), seed, factor)
        return cls(pairs, kernels, (x, y), transforms, scales)

    @property
    def scaled(self) -> tuple[str | None, str | None]:
        """How the columns of each view are scaled, or were before the metric was learned."""
        x, y = (None if scale is None else "standard" for scale in self.scales)
        return x, y

    def transformed(self, rows: RowPair) -> RowPair:
        """Rows of both views in this space."""
        x, y = (_transformed(*one) for one in zip(rows, self.transforms, strict=True))
        return x, y

    def sample(self, n: int, seed: int) -> RowPair:
        """`n` random rows of both views, transformed, in the precision of computations."""
        x, y = self.transformed(self.pairs.sample(n, seed))
        return x.astype(self.pairs.dtype, copy=False), y.astype(self.pairs.dtype, copy=False)

    def features(self, view: int, features: FeatureMap) -> FeatureMap:
        """A map of transformed rows as a map of the rows of the view."""
        transform = self.transforms[view]
        return features if transform is None else Chain(transform, features, features.kernel)


def fit_columns(
    space: KernelSpace, rank: int, view: View, seed: int, landmarks: Selection
) -> KernelColumns:
    """Kernel values at `rank` landmarks, in random order: the first ones are a fair sample too."""
    uniform = landmarks == "uniform"
    Z = space.sample(rank if uniform else n_candidates(landmarks, rank), seed)[view]
    if not uniform:
        Z = select_landmarks(Z, space.kernels[view], rank, seed, view, landmarks)
    order = generator(seed, Purpose.LANDMARKS, view, LANDMARK_ORDER).permutation(Z.shape[0])
    return KernelColumns(space.kernels[view], Z[order])


@dataclass(frozen=True)
class MetricRequest:
    """The parameters of an estimator that the space depends on."""

    metric: Any
    scale: Any
    kernel: Any
    width: Any
    n_components: int
    backend: Backend
    engine: Engine
    learnable: tuple[bool, bool]  # False for a view with a map of the user's
    max_rows: int

    @property
    def kernels(self) -> tuple[Kernel, Kernel]:
        """The kernels, some without a width."""
        return one_per_view("kernel", self.kernel, lambda _name, one: resolve(one))

    @property
    def has_rows(self) -> bool:
        """Whether kernels can be evaluated between rows of a sample, or values were given."""
        return not any(isinstance(kernel, Precomputed) for kernel in self.kernels)

    @property
    def tunes_width(self) -> bool:
        """Whether the width of a view is to be tuned."""
        widths = one_per_view("width", self.width, lambda _name, one: one)
        pairs = zip(widths, self.kernels, strict=True)
        return self.has_rows and any(
            width == "auto" and kernel.needs_width for width, kernel in pairs
        )


def kernel_space(request: MetricRequest, pairs: PairSource, seed: int) -> KernelSpace:
    """Kernels with their widths, on scaled columns and in the metric that was learned, if any.

    What is left open is decided by held-out rows, where there are enough rows.
    """
    kinds, standard = metric_kinds(request, pairs), scale_kinds(request)
    kernels, samples = kernels_for(request.kernel, request.width, pairs, seed)
    plain = KernelSpace(pairs, kernels, samples)
    x, y = (
        column_scale(X, pairs.dtype) if one else None
        for one, X in zip(standard, samples, strict=True)
    )
    if x is not None or y is not None:
        plain = KernelSpace.of(request, pairs, samples, seed, (x, y), (x, y))
    if min(pairs.n_rows, request.max_rows) < MIN_ROWS:
        return plain
    open_x, open_y = (
        column_scale(X, pairs.dtype) if one is None and not same_spread(X, pairs.dtype) else None
        for one, X in zip(standard, samples, strict=True)
    )
    if not (any(kinds) or request.tunes_width or open_x or open_y):
        return plain
    check_varying(pairs, samples)
    found = Learner(request, kinds, plain.scales, (open_x, open_y), pairs).best()
    if found is None:
        return plain
    return KernelSpace.of(
        request, pairs, samples, seed, found.transforms, found.scales, found.factor
    )


def scale_kinds(request: MetricRequest) -> tuple[bool | None, bool | None]:
    """Whether the columns of each view are standardised; None where held-out rows decide."""
    wanted = one_per_view("scale", request.scale, check_scale)
    kinds: list[bool | None] = []
    for view, scale, kernel in zip(View, wanted, request.kernels, strict=True):
        can = request.learnable[view] and not isinstance(kernel, Precomputed)
        if scale and not can:
            raise InputError(
                f"scale='standard' for {view.name}: its features are given, as a fitted map or as "
                "kernel values, or are the columns themselves. Scale the columns first, e.g. by "
                "sklearn.preprocessing.StandardScaler, or set scale=None or 'auto'."
            )
        undecided = scale is None and can and request.has_rows and not isinstance(kernel, SUPPLIED)
        kinds.append(None if undecided else bool(scale))
    return kinds[0], kinds[1]


def check_scale(name: str, value: Any) -> bool | None:
    """Check a scale: True for "standard", False for none, None for "auto"."""
    chosen = one_of(name, value, (*SCALES, None))
    return None if chosen == "auto" else chosen == "standard"


def column_scale(rows: Array, dtype: DType) -> ColumnScale | None:
    """Division of each column by its spread, with the mean squared distance of rows as before.

    Columns that do not vary get weight 0. None if no column varies.
    """
    spread, deviation = column_spreads(rows, dtype)
    if not spread.any():
        return None
    w = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    w *= scipy.linalg.norm(deviation) / scipy.linalg.norm(deviation * w)
    return ColumnScale(w.astype(dtype))


def same_spread(rows: Array, dtype: DType) -> bool:
    """Whether all columns that vary have about the same spread."""
    spread, _ = column_spreads(rows, dtype)
    varying = spread[spread > 0]
    return varying.size == 0 or bool(varying.max() <= SAME_SPREAD * varying.min())


def metric_kinds(request: MetricRequest, pairs: PairSource) -> tuple[str | None, str | None]:
    """What is learned for each view: "learned", "diagonal" or None."""
    wanted = one_per_view("metric", request.metric, _metric)
    kinds = []
    for view, metric, kernel in zip(View, wanted, request.kernels, strict=True):
        wide = pairs.n_cols[view] > METRIC_COLUMNS
        can = kernel.has_gradient and not isinstance(kernel, Linear)
        can = can and request.learnable[view] and request.has_rows
        if metric == "auto":
            metric = ("diagonal" if wide else "learned") if can and pairs.n_cols[view] > 1 else None
        elif metric is not None and not can:
            raise InputError(
                f"metric={metric!r} with the {kernel.name} kernel of {view.name}: a metric is "
                "learned from gradients, for kernels that have one and are not linear, and not "
                "where a fitted feature map or kernel values were passed. Set metric=None or "
                "'auto'."
            )
        elif metric == "learned" and wide:
            raise InputError(
                f"metric='learned' with {pairs.n_cols[view]} columns of {view.name}: a transform "
                f"is learned for at most {METRIC_COLUMNS}. Set metric='diagonal', which learns a "
                "weight for each column and keeps sparse rows sparse."
            )
        kinds.append(metric)
    return kinds[0], kinds[1]


@dataclass(frozen=True)
class Sample:
    """Rows to fit on and rows to evaluate on."""

    fitted: RowPair
    held_out: RowPair

    @property
    def n(self) -> int:
        """Rows to fit on."""
        return int(self.fitted[0].shape[0])

    @property
    def landmarks(self) -> int:
        """Landmarks for so many rows."""
        return min(METRIC_FEATURES, max(LANDMARKS, self.n // ROWS_PER_LANDMARK), self.n)


@dataclass(frozen=True)
class Trial:
    """Transforms and a width that were tried: what kernel CCA found with them."""

    transforms: Transforms
    scales: Scales  # that the transforms are, or started from
    factor: float  # of the median distance
    maps: tuple[FeatureMap, FeatureMap]  # of the rows as they are, on the backend
    solution: Solution
    score: HeldOutScore

    @property
    def total(self) -> float:
        """Total correlation of the held-out rows."""
        return self.score.total


@dataclass(frozen=True)
class Learner:
    """The rounds on a sample of the rows.

    They do not depend on the seed of an estimator, so that what is learned is the same for all.
    """

    request: MetricRequest
    kinds: tuple[str | None, str | None]  # of the metric
    fixed: Scales
    open: Scales  # to be tried
    pairs: PairSource

    def best(self) -> Trial | None:
        """The trial that does best on held-out rows; None for the columns as they are.

        Standardised columns are taken if they are better, a metric and a width only if they are
        clearly better: these are chosen among many.
        """
        first, *more = self._samples()
        scales = self._best_scales()
        plain = self._tried(first, scales, scales, 1.0)
        best = self._rounds(first, plain, MAX_ROUNDS)
        if self.request.tunes_width:
            best = self._best_width(first, best)
        if plain.score.close_to(best.score, STANDARD_ERRORS):
            logger.info("metric: none, by held-out pairs.")
            return None if scales is self.fixed else plain
        dims = [None if t is None else t.rank for t in best.transforms]
        logger.info(
            "metric: held-out correlation %.2f instead of %.2f; columns %s of %s, %g x median.",
            *(best.total, plain.total, dims, self.pairs.n_cols, best.factor),
        )
        for sample in more:
            start = self._tried(sample, best.transforms, best.scales, best.factor)
            best = self._rounds(sample, start, MAX_LAST_ROUNDS)
            what = "metric: held-out correlation %.2f instead of %.2f on %d rows."
            logger.info(what, best.total, start.total, sample.n)
        return best

    def _samples(self) -> list[Sample]:
        """The rows of the first rounds, and those of the last ones."""
        x, y = self.pairs.sample(self.request.max_rows, derived_seed(0, Purpose.METRIC))
        n = int(x.shape[0])
        sizes = [FIRST_ROWS, n] if n > 1.5 * FIRST_ROWS else [n]
        return [self._sample(x, y, size) for size in sizes]

    def _sample(self, x: Array, y: Array, size: int, part: int = 4) -> Sample:
        """Evenly spread rows, of which one part of five is held out: the same for all sizes."""
        rows = np.arange(size) * int(x.shape[0]) // size
        held_out = np.arange(size) * 5 * HELD_OUT_RUNS // size % 5 == part
        fitted, rest = (
            (x[part].astype(self.pairs.dtype), y[part].astype(self.pairs.dtype))
            for part in (rows[~held_out], rows[held_out])
        )
        return Sample(fitted, rest)

    def _best_scales(self) -> Scales:
        """The scales that do best on held-out rows; of few rows, each part is held out in turn.

        Both views are standardised if that is better, one alone only if that is clearly better.
        """
        if not any(self.open):
            return self.fixed
        x, y = self.pairs.sample(self.request.max_rows, derived_seed(0, Purpose.METRIC))
        size = min(FIRST_ROWS, int(x.shape[0]))
        parts = min(5, -(-5 * ENOUGH_HELD_OUT // size))
        samples = [self._sample(x, y, size, 4 - part) for part in range(parts)]

        def score(scales: Scales) -> HeldOutScore:
            tried = (self._tried(sample, scales, scales, 1.0) for sample in samples)
            return HeldOutScore.mean([trial.score for trial in tried])

        (x0, y0), (x1, y1) = self.fixed, self.open
        both = x1 or x0, y1 or y0
        best, at = self.fixed, score(self.fixed)
        plain, scaled = at.total, score(both)
        if scaled.total > at.total:
            best, at = both, scaled
        if x1 and y1:
            for one in ((x1, y0), (x0, y1)):
                alone = score(one)
                if not at.close_to(alone, STANDARD_ERRORS):
                    best, at = one, alone
        of = " and ".join(view.name for view in View if best[view] is not None) or "no view"
        what = "scale: standardised columns of %s; held-out correlation %.2f, %.2f as they are."
        logger.info(what, of, at.total, plain)
        return best

    def _rounds(self, sample: Sample, best: Trial, most: int) -> Trial:
        """The best trial after rounds that start from this one."""
        for _ in range(most if any(self.kinds) else 0):
            found = self._from_gradients(sample, best)
            trial = self._tried(sample, found, best.scales, best.factor)
            gain = trial.total - best.total
            best = max(best, trial, key=lambda one: one.total)
            if gain < MIN_GAIN * best.total:
                break
        return best

    def _tried(
        self, sample: Sample, transforms: Transforms, scales: Scales, factor: float
    ) -> Trial:
        """Kernel CCA with these transforms and this width."""
        request, backend, landmarks = self.request, self.request.backend, sample.landmarks
        chosen = self._some(sample.n, max(landmarks, MEDIAN_ROWS))
        rows = [
            _transformed(view[chosen], transform)
            for view, transform in zip(sample.fitted, transforms, strict=True)
        ]
        kernels = sized_kernels(request.kernels, request.width, (rows[0], rows[1]), 0, factor)
        maps = []
        for view, kernel, transform in zip(rows, kernels, transforms, strict=True):
            features: FeatureMap = Nystrom.fit(view[:landmarks], kernel)
            features = features if transform is None else Chain(transform, features, kernel)
            maps.append(features.to(backend))
        moments = Moments((maps[0].rank, maps[1].rank), backend)
        for part in even_slices(sample.n, 8 * PIECE_ROWS):
            Phi, Psi = (
                features_of(one, view[part], backend, request.engine)
                for one, view in zip(maps, sample.fitted, strict=True)
            )
            moments.update(Phi, Psi)
        held = [
            features_of(one, view, backend, request.engine)
            for one, view in zip(maps, sample.held_out, strict=True)
        ]
        L = min(request.n_components, maps[0].rank, maps[1].rank)
        path = RidgePath.of(moments.covariances(consume=True), (held[0], held[1]), backend)
        reg, score = choose_reg([path], L, REGS, FIRST_REG)
        solution = path.solution(reg, L)
        return Trial(transforms, scales, factor, (maps[0], maps[1]), solution, score)

    def _some(self, n: int, count: int) -> NDArray[np.int64]:
        """At most `count` of n rows, in random order."""
        return generator(0, Purpose.METRIC).permutation(n)[:count]

    def _from_gradients(self, sample: Sample, trial: Trial) -> Transforms:
        """The metric J' J of the projections of a trial, as a transform of each view."""
        weights = (trial.solution.U, trial.solution.V)
        made: list[FeatureMap | None] = []
        for view, kind, rows in zip(View, self.kinds, sample.fitted, strict=True):
            if kind is None:
                made.append(trial.scales[view])
                continue
            most = max(GRADIENT_ROWS, sample.n // 4)
            most = max(1, min(most, GRADIENT_NUMBERS // int(rows.shape[1])))
            some = rows[self._some(sample.n, most)]
            G = gradient_products(
                trial.maps[view],
                weights[view],
                some,
                draws=-(-most // sample.n),
                seed=0,
                view=view,
                diagonal=kind == "diagonal",
                backend=self.request.backend,
                engine=self.request.engine,
            )
            made.append(transform_for(G, some[:MEDIAN_ROWS], trial.scales[view]))
        return made[0], made[1]

    def _best_width(self, sample: Sample, trial: Trial) -> Trial:
        """The best of smaller and larger widths, until one is clearly worse."""
        best, at = trial, FACTORS.index(trial.factor)
        for further in (FACTORS[:at][::-1], FACTORS[at + 1 :]):
            for factor in further:
                other = self._tried(sample, trial.transforms, trial.scales, factor)
                if not other.score.close_to(best.score, STANDARD_ERRORS):
                    break
                best = max(best, other, key=lambda one: one.total)
        return best


def transform_for(G: Any, rows: Array, scale: ColumnScale | None = None) -> FeatureMap | None:
    """The transform T with T T' = G up to a factor, which keeps the median distance of the rows.

    G is (d, d), or its diagonal. Directions with next to no part in distances are left out; with a
    `scale`, directions of scaled columns. None if G is zero.
    """
    if not np.isfinite(G).all() or not G.any():
        return None
    kind = rows.dtype
    if G.ndim == 1:
        weights = ColumnWeights(np.sqrt(G / G.max()).astype(kind))
        return ColumnWeights((weights.w * _rescaling(rows, weights)).astype(kind))
    rows = dense(rows)
    centre = rows.mean(axis=0, dtype=np.float64)
    w = np.ones(len(centre)) if scale is None else scale.w.astype(np.float64)
    inverse = np.divide(1.0, w, out=np.zeros_like(w), where=w > 0)
    values, vectors = np.linalg.eigh(inverse[:, None] * G * inverse)
    values, vectors = np.maximum(values[::-1], 0.0) / values[-1], vectors[:, ::-1]
    parts = values * np.mean(np.square((rows - centre) * w @ vectors), axis=0)
    kept = max(1, int(np.searchsorted(np.cumsum(parts), (1 - CUT) * parts.sum())) + 1)
    T = w[:, None] * vectors[:, :kept] * np.sqrt(values[:kept])
    made = LinearTransform(T.astype(kind), centre.astype(kind))
    return LinearTransform((T * _rescaling(rows, made)).astype(kind), centre.astype(kind))


def _rescaling(rows: Array, transform: FeatureMap) -> float:
    """The median distance of rows over that of transformed rows."""
    return RBF().default_width(rows) / RBF().default_width(_transformed(rows, transform))


def _transformed(rows: Array, transform: FeatureMap | None) -> Array:
    return rows if transform is None else all_features(transform, rows)


def _metric(name: str, value: Any) -> str | None:
    chosen = one_of(name, value, (*METRICS, None))
    return None if chosen == "none" else chosen
