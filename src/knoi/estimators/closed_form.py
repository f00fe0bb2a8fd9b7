"""CCA in closed form from the moments of features: the base of all, random Fourier, Nystrom."""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from knoi.arrays.backend import Array, Backend, numpy_backend
from knoi.arrays.random import Purpose, View, derived_seed, seed_from
from knoi.arrays.sparse import nested_bytes, stack
from knoi.checks import at_least_zero_or_auto, count, flag, one_of, one_per_view
from knoi.data.pairs import PairSource
from knoi.engine import Engine, Threads, even_slices, format_bytes, worker_count
from knoi.estimators.base import BaseCCA, unchanged_on_failure
from knoi.estimators.metric import check_scale
from knoi.estimators.setup import (
    MANY_COLUMNS,
    Maps,
    check_approximation,
    check_domain,
    check_given,
    fit_random,
    named,
    rank_for,
)
from knoi.exceptions import InputError, MemoryBudgetError
from knoi.features import FeatureMap, Nystrom, RandomFourier
from knoi.features.landmarks import Selection, n_candidates, select_landmarks
from knoi.features.registry import is_dense
from knoi.projection import PIECE_ROWS, Projection, ViewProjection, features_of
from knoi.solvers.exact import (
    HeldOutScore,
    Moments,
    RidgePath,
    ScoredPath,
    choose_reg,
    solve_primal,
)

logger = logging.getLogger("knoi")

# M x M matrices in memory at the peak of a solution, which consumes the covariances or copies them.
SOLVING = 6
SOLVING_COPIES = 9
# The same with torch, which factorises and solves into new memory; measured on the CPU.
SOLVING_TORCH = 10
SOLVING_COPIES_TORCH = 15
# The same while a regulariser is chosen with one part of the rows held out, and with each further
# part; and copies of the features of the rows in a part, in float64.
CHOOSING, CHOOSING_COPIES, CHOOSING_TORCH, CHOOSING_AGAIN = 14, 18, 20, 3
CHOOSING_ROWS, CHOOSING_ROWS_AGAIN = 4, 2
# Regularisers that `reg="auto"` tries.
REGS = tuple(10.0**k for k in range(-8, 1))
# A fifth of the rows is held out for that, at most so many, and several times until it is enough of
# them. Once if there are more features than this: every time costs as much as a solution.
MAX_HELD_OUT, ENOUGH_HELD_OUT, MOST_TIMES = 5000, 1000, 5
MAX_FEATURES_AGAIN = 2000
# Fewer rows are not worth it.
MIN_ROWS = 50
# `partial_fit` holds out parts of all rows as long as there are at most so many, then every fifth
# run of this many rows.
FEW_ROWS, RUN_ROWS = 5000, 32
# (n, dx), (n, dy), (n,): paired rows and their weights
WeightedRows = tuple[Array, Array, NDArray[np.float64]]


class ClosedFormCCA(BaseCCA):
    """CCA of the moments of features. Subclasses define the features (`_fit_maps`)."""

    reg: Any
    reg_: tuple[float, float]
    _facts = (*BaseCCA._facts, "reg_")
    _remedy = "Lower rank"  # how to save memory
    _first_reg = 1e-6  # where the search for a regulariser starts, and what it is for a few rows
    # Whether the features are the columns, so that `scale` is a matter of their covariances.
    _scales_features = False
    _partial: "_Stream"  # between calls of `partial_fit`

    @abstractmethod
    def _fit_maps(self, pairs: PairSource) -> Maps:
        """The feature map of each view, from a sample of the rows where it needs one."""

    def partial_fit(
        self, X: Any, Y: Any = None, sample_weight: Any = None, *, solve: bool = True
    ) -> Self:
        """Add the rows of the next piece of the data.

        The first piece fixes the feature maps (widths, landmarks) and the precision, so it should
        be a representative sample: `NystromCCA` takes at most as many landmarks as it has rows.
        Given the maps, any partition into pieces gives the same model. `fit` keeps no moments: the
        first call after it starts again. A piece that fails changes nothing. Solving costs far more
        than adding a small piece: pass `solve=False` for all pieces but the last, or call `solve`.
        `sample_weight` as in `fit`: weights of all pieces are on one scale, and rows of a piece
        without weights have weight 1.
        """
        if getattr(self, "solver", None) == "iterative":
            raise InputError(
                "partial_fit with solver='iterative', which reads all rows many times. Call fit, "
                "which streams files of any size, or set solver to 'auto' or 'exact'."
            )
        with PairSource.open(X, Y) as opened, unchanged_on_failure(self):
            pairs = opened.weighted(sample_weight)
            earlier: _Stream | None = getattr(self, "_partial", None)
            self._remember_columns(pairs, reset=earlier is None)
            backend = self._backend(pairs.dtype)
            pairs.settle(backend, self._host_budget())
            held = 0
            if earlier is None:
                stream = _Stream(self._fit_maps(pairs))
            else:
                stream, backend = earlier, earlier.moments.backend
                held = stream.held_bytes
            with Threads(worker_count(self.n_jobs)) as engine:
                # Summed separately, so that a bad row in the piece leaves the earlier sums intact.
                moments = self._accumulate(
                    pairs, stream.maps, backend, engine, held=held, keep=True
                )
                stream = stream.followed_by(moments, pairs)
                if solve:
                    self._keep(self._finish_stream(stream, engine))
                    self._fit_structure(pairs, engine, held=stream.held_bytes)
                    self.n_samples_ = stream.moments.n
            self._partial = stream
        return self

    def solve(self) -> Self:
        """Solve again for all rows that `partial_fit` has seen, with the current parameters.

        Another `reg` or `n_components` needs no further pass over the data::

            model.partial_fit(X, Y, solve=False)
            for reg in (1e-7, 1e-6, 1e-5):
                print(reg, model.set_params(reg=reg).solve().score(X_test, Y_test))

        `predict`, `inverse_transform` and loadings need rows: call `fit` or `partial_fit` with the
        chosen parameters.
        """
        if not hasattr(self, "_partial"):
            raise NotFittedError(
                f"This {type(self).__name__} has no moments to solve for: only partial_fit keeps "
                "them. Call partial_fit(X, Y, solve=False) first."
            )
        stream = self._partial
        with unchanged_on_failure(self), Threads(worker_count(self.n_jobs)) as engine:
            self._keep(self._finish_stream(stream, engine))
            self.n_samples_ = stream.moments.n
        return self

    def _from_moments(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        """The solution for all rows: what `_solve` is, unless there are other ways."""
        maps = self._fit_maps(pairs)
        moments = self._accumulate(pairs, maps, backend, engine)
        held_out = held_out_parts(pairs, max(_ranks(maps)))
        return self._finish(maps, moments, held_out, engine, consume=True)

    def _accumulate(
        self,
        pairs: PairSource,
        maps: Maps,
        backend: Backend,
        engine: Engine,
        *,
        held: int = 0,
        keep: bool = False,
    ) -> Moments:
        """One sequential pass: read a chunk, compute its features in pieces, add its moments."""
        # Errors that need no data come before any data is read.
        one_per_view("reg", self.reg, at_least_zero_or_auto)
        rows = self._rows_per_chunk(pairs, maps, backend, engine, held=held, keep=keep)
        placed = [features.to(backend) for features in maps]
        moments = Moments(_ranks(maps), backend)

        def fill(piece: slice, *views: tuple[FeatureMap, Any, Array, Array]) -> None:
            for features, chunk, buffer, shift in views:
                out = buffer[piece, :]
                prepared = features.prepare(backend.asarray(chunk[piece]))
                features.block(prepared, slice(0, features.rank), out=out)
                out -= shift

        start, weights = 0, pairs.weights
        moments.buffer(rows)  # the largest that will be needed
        with pairs.iterate(rows, near=True) as chunks:
            for x, y in chunks:
                for name, features, chunk in zip("XY", placed, (x, y), strict=True):
                    check_domain(name, features.kernel, chunk, start)
                x, y = backend.uploaded(x), backend.uploaded(y)
                n_chunk = int(x.shape[0])
                # The first rows go alone, so that the others are shifted by a mean close to theirs.
                head = min(PIECE_ROWS, n_chunk) if moments.n == 0 else 0
                for part in (slice(0, head), slice(head, n_chunk)):
                    n = part.stop - part.start
                    views = zip(
                        placed, (x[part], y[part]), moments.buffer(n), moments.shifts, strict=True
                    )
                    engine.map(fill, even_slices(n, PIECE_ROWS), *views)
                    moments.add_buffered(n, None if weights is None else weights[start : start + n])
                    start += n
        moments.free_buffer()
        return moments

    def _finish_stream(self, stream: "_Stream", engine: Engine) -> Projection:
        with stream.rows() as rows:
            few = bool(stream.first)
            held_out = held_out_parts(rows, max(_ranks(stream.maps))) if few else [rows]
            return self._finish(stream.maps, stream.moments, held_out, engine, consume=False)

    def _finish(
        self,
        maps: Maps,
        moments: Moments,
        held_out: Sequence[PairSource],
        engine: Engine,
        *,
        consume: bool,
    ) -> Projection:
        """The solution; `held_out` are parts of the rows to choose a regulariser on."""
        L = count("n_components", self.n_components)
        self.reg_, views = self._choose_reg(maps, moments, held_out, engine)
        if self._scales_features:
            self.scale_ = _scale(views[0]), _scale(views[1])
        covariances = moments.covariances(consume=consume)
        to_numpy = moments.backend.to_numpy
        means = [to_numpy(covariances.mean_x), to_numpy(covariances.mean_y)]
        covariances, factors = covariances.standardised(views)
        solution = solve_primal(covariances, L, self.reg_, moments.backend)
        wx, wy = (to_numpy(w)[:, None] for w in factors)
        # Stored in the precision of the data: float64 frequencies for float32 data would only
        # double the size of the model.
        keep = numpy_backend(moments.backend.dtype)
        x, y = (
            ViewProjection(features.to(keep), mean, weights)
            for features, mean, weights in zip(
                maps, means, (solution.U * wx, solution.V * wy), strict=True
            )
        )
        return Projection(x, y, solution.correlations, solution.singular_values)

    def _choose_reg(
        self, maps: Maps, moments: Moments, held_out: Sequence[PairSource], engine: Engine
    ) -> tuple[tuple[float, float], tuple[bool, bool]]:
        """The regulariser of each view, and whether its features are standardised.

        "auto" is what does best on held-out rows.
        """
        backend = moments.backend

        def paths(views: tuple[bool, bool]) -> Iterator[RidgePath]:
            for part in held_out:
                rows = part.read(0, part.n_rows, near=True)
                x, y = (
                    features_of(features.to(backend), own, backend, engine)
                    for features, own in zip(maps, rows, strict=True)
                )
                rest = moments.without(x, y, part.weights)
                rest, (wx, wy) = rest.standardised(views)
                yield RidgePath.of(rest, (x * wx, y * wy), backend, weights=part.weights)

        given = one_per_view("reg", self.reg, at_least_zero_or_auto)
        L, first = self.n_components, self._first_reg
        wanted: tuple[bool | None, bool | None] = False, False
        if self._scales_features:
            wanted = one_per_view("scale", self.scale, check_scale)
        views = wanted[0] is True, wanted[1] is True
        reg, score = chosen_reg(given, paths(views), L, first)
        if score is not None and None in wanted:
            others = wanted[0] is not False, wanted[1] is not False
            other_reg, other = chosen_reg(given, paths(others), L, first)
            if other is not None and other.total > score.total:
                reg, views = other_reg, others
            done = "standardised" if views == others else "as they are"
            logger.info("scale: columns %s, by correlation of held-out rows.", done)
        return reg, views

    def _rows_per_chunk(
        self,
        pairs: PairSource,
        maps: Maps,
        backend: Backend,
        engine: Engine,
        *,
        held: int,
        keep: bool,
    ) -> int:
        """Rows per chunk within `memory_budget`, besides moments, `held` bytes and solution.

        With `keep` the moments stay in memory while copies of them are solved.
        """
        ranks = _ranks(maps)
        scratch = sum(f.scratch_per_row() for f in maps) * backend.itemsize
        scratch += sum(pairs.bytes_on(backend))
        adding = Moments.fixed_bytes(ranks, backend.itemsize)
        adding += min(engine.n_workers * PIECE_ROWS, pairs.n_rows) * scratch
        matrices = SOLVING_COPIES if keep else SOLVING
        if not backend.is_numpy:
            matrices = SOLVING_COPIES_TORCH if keep else SOLVING_TORCH
        solving = 8 * matrices * max(ranks) ** 2
        remedy = self._remedy
        if None in one_per_view("reg", self.reg, at_least_zero_or_auto):
            solving = max(solving, choosing_bytes(pairs.n_rows, max(ranks), backend, keep=keep))
            remedy = f"{remedy}, set reg to a number"
        uploaded = 0 if backend.in_main_memory else sum(pairs.bytes_on(backend))
        return self._rows_that_fit(
            backend,
            there=(held + max(adding, solving), uploaded + sum(ranks) * backend.itemsize),
            here=(0, 2 * pairs.row_bytes),  # in use and read ahead
            n_rows=pairs.n_rows,
            purpose=f"the closed form with {max(ranks)} features per view",
            remedy=f"{remedy} or raise memory_budget.",
        )


def held_out_parts(pairs: PairSource, n_features: int) -> list[PairSource]:
    """Parts of the pairs to hold out, one after the other, to choose a regulariser on.

    They do not depend on the seed of an estimator, so that methods are compared on the same rows.
    """
    times, rows = held_out_sizes(pairs.n_rows, n_features)
    return [pairs.split(rows, derived_seed(0, Purpose.REG, k))[1] for k in range(times)]


def held_out_sizes(n_rows: int, n_features: int) -> tuple[int, int]:
    """How many parts to hold out, and the rows of each."""
    if n_rows < MIN_ROWS:
        return 0, 0
    rows = min(MAX_HELD_OUT, n_rows // 5)
    times = 1 if n_features > MAX_FEATURES_AGAIN else min(MOST_TIMES, -(-ENOUGH_HELD_OUT // rows))
    return times, rows


def choosing_bytes(n_rows: int, n_features: int, backend: Backend, *, keep: bool = False) -> int:
    """Bytes at the peak while a regulariser is chosen; with `keep` the moments stay in memory."""
    times, rows = held_out_sizes(n_rows, n_features)
    matrices = CHOOSING_COPIES if keep else CHOOSING
    if not backend.is_numpy:
        matrices += CHOOSING_TORCH - CHOOSING
    matrices += CHOOSING_AGAIN * max(0, times - 1)
    copies = CHOOSING_ROWS + CHOOSING_ROWS_AGAIN * max(0, times - 1)
    return 8 * n_features * (matrices * n_features + copies * rows)


def chosen_reg(
    given: tuple[float | None, float | None],
    paths: Iterable[ScoredPath],
    n_components: int,
    first: float,
    regs: Sequence[float] = REGS,
) -> tuple[tuple[float, float], HeldOutScore | None]:
    """The regulariser of each view: the one given, or the one that does best on held-out rows.

    And its score there; `first` and None where there are too few rows to hold some out.
    """
    if None in given and (made := list(paths)):
        try:
            found, score = choose_reg(made, n_components, regs, max(first, regs[0]), given)
        except InputError:  # without the held-out rows there are too few directions
            made = []
        else:
            n = len(score.influence)
            what = "reg: %g for X, %g for Y; correlation %.2f on %d held-out rows."
            logger.info(what, *found, score.total, n)
            return found, score
    x, y = (first if reg is None else reg for reg in given)
    return (x, y), None


@dataclass(frozen=True)
class _Stream:
    """What `partial_fit` has seen: moments, and some rows to choose a regulariser on."""

    maps: Maps
    seen: Moments | None = None
    first: tuple[WeightedRows, ...] = ()  # all rows, as long as they are few
    runs: tuple[WeightedRows, ...] = ()  # every fifth run of rows

    @property
    def moments(self) -> Moments:
        assert self.seen is not None
        return self.seen

    @property
    def held_bytes(self) -> int:
        """Bytes that stay as long as rows may follow."""
        kept = sum(nested_bytes(part) for run in (*self.first, *self.runs) for part in run)
        return self.moments.held_bytes + kept

    def followed_by(self, moments: Moments, pairs: PairSource) -> "_Stream":
        """After one more piece, whose moments these are."""
        start = 0 if self.seen is None else self.seen.n
        stop = start + pairs.n_rows
        first, runs = self.first, list(self.runs)
        first = () if stop > FEW_ROWS else (*first, _copied(pairs, 0, pairs.n_rows))
        kept = sum(len(weights) for *_, weights in runs)
        for run in range(start // RUN_ROWS, -(-stop // RUN_ROWS)):
            if run % 5 == 4 and kept < MAX_HELD_OUT:
                at = max(run * RUN_ROWS, start)
                end = min((run + 1) * RUN_ROWS, stop, at + MAX_HELD_OUT - kept)
                runs.append(_copied(pairs, at - start, end - start))
                kept += end - at
        if self.seen is not None:
            moments.merge(self.seen)
        return replace(self, seen=moments, first=first, runs=tuple(runs))

    @contextmanager
    def rows(self) -> Iterator[PairSource]:
        """The rows that are kept."""
        x, y, weights = zip(*(self.first or self.runs), strict=True)
        with PairSource.open(stack(x), stack(y)) as pairs:
            yield pairs.weighted(np.concatenate(weights))


def _copied(pairs: PairSource, start: int, stop: int) -> WeightedRows:
    x, y = pairs.read(start, stop)
    weights = np.ones(stop - start) if pairs.weights is None else pairs.weights[start:stop]
    return stack([x]), stack([y]), weights.copy()


class FourierCCA(ClosedFormCCA):
    r"""Kernel CCA approximated by random Fourier features, solved exactly (the paper's FKCCA).

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    rank : int, default=2000
        Number of random features per view, M. Accuracy and cost grow with it (time N M^2).
    kernel : str, Kernel or a pair of these, default="rbf"
        With the default `approximation` a stationary kernel: "rbf", "laplacian", "cauchy",
        "matern".
    width : float, "auto", "median", "0.5x" or a pair of these, default="auto"
        Length scale of kernels without one; "median" takes the median distance among 4000 rows of
        each view, "0.5x" so many times that, "auto" the multiple of it that does best on held-out
        rows of a sample.
    metric : {"auto", "learned", "diagonal", "none"}, None or a pair of these, default="auto"
        A transform of the columns in front of the kernel, learned from the gradients of
        projections in a few rounds on a sample, if held-out rows of the sample do better with it.
        "learned": a matrix, whose small directions are cut off. "diagonal": a weight per column,
        for views of more than 2000 columns. "auto": whichever suits the view. None or
        "none": no metric, as published.
    scale : {"auto", "standard", "none"}, None or a pair of these, default="auto"
        "standard" divides each column by its spread before the kernel, and before a metric is
        learned, so that no unit counts more than another; columns are not centred, so sparse rows
        stay sparse. The spread is the fourth root of the mean fourth power, so that columns that
        are 0 in nearly all rows are not blown up. "auto" does so for a view where held-out rows of
        a sample do better with it. None or "none": the columns as they are.
    approximation : str, FeatureMap, or a pair of these, default="fourier"
        The random features. "fourier": independent frequencies, as published. "random": the best
        ones for the kernel, if there are any, also for sums and products of kernels. For "rbf" and
        "matern": "orthogonal" (less error), "hadamard" (less error, and a fraction of the time at
        hundreds of columns), "fastfood", "hashed_fourier" (for sparse data of very many columns);
        "qmc" for any stationary kernel (much less error at few columns). For "polynomial":
        "tensor_sketch", "maclaurin", "compact_maclaurin", "spherical". "arccosine"; "taylor"
        (for "rbf", few columns or sparse rows); "additive" (for "additive_chi2", "intersection" and
        "chi2"). A fitted feature map is used as it is.
    paired : bool, default=False
        With "fourier": use each frequency as a cosine and a sine instead of a cosine with random
        phase. "orthogonal", "qmc" and "hadamard" always do.
    reg : float, "auto", or a pair of these, default="auto"
        Regularisation relative to the total variance of the features of the view:
        r_x = reg * trace(Sigma_xx). "auto" as in `LinearCCA`.
    random_state : int, RandomState, Generator or None, default=None
        Fixes the draw of the features.
    memory_budget, n_jobs, device
        As in `LinearCCA`.

    Attributes
    ----------
    correlations_, reg_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `LinearCCA`, weights and means being those of the features.

    References
    ----------
    D. Lopez-Paz et al., Randomized nonlinear component analysis, ICML 2014.
    W. Wang and K. Livescu, Large-scale approximate kernel CCA, ICLR 2016.

    Examples
    --------
    >>> from knoi import FourierCCA
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(3000, correlations=(0.9,), nonlinear=True, random_state=0)
    >>> model = FourierCCA(n_components=1, rank=200, random_state=0).fit(views.X, views.Y)
    >>> model.transform(views.X).shape
    (3000, 1)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int = 2000,
        kernel: Any = "rbf",
        width: Any = "auto",
        metric: Any = "auto",
        scale: Any = "auto",
        approximation: Any = "fourier",
        paired: bool = False,
        reg: Any = "auto",
        random_state: Any = None,
        memory_budget: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.kernel = kernel
        self.width = width
        self.metric = metric
        self.scale = scale
        self.approximation = approximation
        self.paired = paired
        self.reg = reg
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def _fit_maps(self, pairs: PairSource) -> Maps:
        rank = rank_for(self.rank, self.n_components)
        seed = seed_from(self.random_state)
        requested = one_per_view("approximation", self.approximation, check_approximation)
        if flag("paired", self.paired) and requested != ("fourier", "fourier"):
            raise InputError(
                f"paired=True with approximation={self.approximation!r}: it is for 'fourier'. "
                "Leave it out; 'orthogonal', 'qmc' and 'hadamard' are paired anyway."
            )
        self._check_frequencies(pairs, requested, rank)
        space = self._kernel_space(pairs, seed, requested)
        maps: list[FeatureMap] = []
        for view, one in zip(View, requested, strict=True):
            sample, kernel = space.samples[view], space.kernels[view]
            if isinstance(one, FeatureMap):
                check_given(one, view, pairs.n_cols[view], self.n_components)
                maps.append(one)
                continue
            if self.paired:
                with named(view.name):
                    made: FeatureMap = RandomFourier.fit(
                        sample, kernel, rank, seed, view, paired=True
                    )
            else:
                made = fit_random(one, sample, kernel, rank, seed, view, self.n_components)
            maps.append(space.features(view, made))
        return maps[0], maps[1]

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        return self._from_moments(pairs, backend, engine)

    def _check_frequencies(self, pairs: PairSource, requested: tuple[Any, Any], rank: int) -> None:
        """Raise if the frequencies would not fit in memory."""
        dense = [d for d, one in zip(pairs.n_cols, requested, strict=True) if is_dense(one)]
        if not dense:
            return
        budget = self._host_budget()
        needed = 8 * rank * (sum(dense) + max(dense))  # while drawn, those of one view count twice
        if needed > budget:
            raise MemoryBudgetError(
                f"{rank} random Fourier features of {max(dense)} columns need about "
                f"{format_bytes(needed)} but memory_budget is {format_bytes(budget)}. "
                f"{MANY_COLUMNS}"
            )


class NystromCCA(ClosedFormCCA):
    r"""Kernel CCA approximated by the Nystrom method, solved exactly (the paper's NKCCA).

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    rank : int, default=1000
        Number of landmarks per view, M. With fewer rows, all rows are landmarks and the result is
        exact kernel CCA.
    kernel : str, Kernel, callable or a pair of these, default="rbf"
        Any kernel. A callable gets two tables of rows (NumPy arrays, or CSR if the view is sparse)
        and returns the kernel values between them, (A, B) -> (n_a, n_b), as the functions of
        `sklearn.metrics.pairwise` do. It has no width and no metric, may be called by `n_jobs`
        threads at once, and a model with one can be pickled but not saved.
    width, metric, scale
        As in `FourierCCA`.
    landmarks : str, default="uniform"
        How landmarks are chosen. All but "uniform" choose among 5 rows per landmark, at least 4000:

        - "uniform": at random. Costs nothing; hard to beat where no group of rows is rare.
        - "kmeans": cluster centres. The most accurate at a given rank on image data, and the
          slowest. Centres are dense even if rows are sparse.
        - "kmeans++": rows far from each other. Cheap; finds small clusters, also in sparse rows.
        - "randomly_pivoted_cholesky": rows that the others explain badly, drawn at random. For rare
          groups, kernels that are not of distances, and spectra that decay fast.
        - "pivoted_cholesky": always the row that is explained worst (incomplete Cholesky, partial
          Gram-Schmidt). For kernels of low rank; on noisy data it chooses outliers and can be worse
          than "uniform".
        - "leverage": at random by ridge leverage scores; between "uniform" and
          "randomly_pivoted_cholesky".
    reg, random_state, memory_budget, n_jobs, device
        As in `FourierCCA`.

    Attributes
    ----------
    correlations_, reg_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `FourierCCA`.

    Examples
    --------
    >>> from knoi import NystromCCA
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(3000, correlations=(0.9,), nonlinear=True, random_state=0)
    >>> model = NystromCCA(n_components=1, rank=200, random_state=0).fit(views.X, views.Y)
    >>> model.transform_y(views.Y).shape
    (3000, 1)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int = 1000,
        kernel: Any = "rbf",
        width: Any = "auto",
        metric: Any = "auto",
        scale: Any = "auto",
        landmarks: Selection = "uniform",
        reg: Any = "auto",
        random_state: Any = None,
        memory_budget: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.kernel = kernel
        self.width = width
        self.metric = metric
        self.scale = scale
        self.landmarks = landmarks
        self.reg = reg
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def _fit_maps(self, pairs: PairSource) -> Maps:
        one_of("landmarks", self.landmarks, get_args(Selection))
        rank = min(rank_for(self.rank, self.n_components), pairs.n_rows)
        seed = seed_from(self.random_state)
        space = self._kernel_space(pairs, seed)
        rows = space.sample(n_candidates(self.landmarks, rank), seed)
        maps = []
        for view, kernel, sample in zip(View, space.kernels, rows, strict=True):
            Z = select_landmarks(sample, kernel, rank, seed, view, self.landmarks)
            maps.append(space.features(view, Nystrom.fit(Z, kernel)))
        return maps[0], maps[1]

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        return self._from_moments(pairs, backend, engine)


def _scale(standardised: bool) -> str | None:
    return "standard" if standardised else None


def _ranks(maps: Maps) -> tuple[int, int]:
    return maps[0].rank, maps[1].rank
