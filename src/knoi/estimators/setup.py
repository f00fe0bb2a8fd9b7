"""The set-up of a fit: kernels and feature maps, and the plan of a stochastic fit.

A plan holds every choice that depends on sizes and memory, made once. It is plain values stored in
the checkpoint: a run that is resumed with less free memory must still take the same steps.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, derived_seed
from knoi.arrays.sparse import column_means, is_sparse, same_rows, with_data
from knoi.checks import Factor, count, one_per_view, suggestion
from knoi.checks import width as check_width
from knoi.data.pairs import PairSource, RowPair
from knoi.engine import Engine, format_bytes
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, RankError
from knoi.features import FeatureMap
from knoi.features.registry import APPROXIMATIONS, approximate, choose, is_dense, numbers_kept
from knoi.kernels import Kernel, SumKernel, resolve, with_default_width, with_learned_weights
from knoi.kernels.supplied import SUPPLIED
from knoi.solvers.acceleration import Columns, LowRank, warm_start_bytes
from knoi.solvers.noi import MinibatchFeatures, tile_shape

logger = logging.getLogger("knoi")

Maps = tuple[FeatureMap, FeatureMap]
Precondition = Literal["columns", "low_rank"]

# Rows that the median of distances is taken over, as in the paper.
WIDTH_SAMPLE = 4000
CHECK_ROWS = 4096
# A column varies if it does so by more than the rounding of its mean, in units of the last place.
MEAN_ROUNDING = 8
# A sparse column varies if its variance is a larger part of its mean square.
SPARSE_ROUNDING = 1e-12
# Rows that a metric is learned from: some per feature of the fit, so that it takes a part of its
# time, within limits; at most so many per second of a time limit. They and their features may take
# an eighth of the memory budget.
METRIC_ROWS_PER_FEATURE, MIN_METRIC_ROWS, MAX_METRIC_ROWS = 6, 5000, 100_000
METRIC_ROWS_PER_SECOND = 300
METRIC_FEATURES = 2000  # at most, per view
# Views of more columns get a weight per column instead of a transform.
METRIC_COLUMNS = 2000
# Advice where frequencies, one per column and feature, take too much memory.
MANY_COLUMNS = (
    "Use NystromCCA or KNOI(approximation='nystrom'), whose landmarks stay sparse, hash the "
    "columns to fewer (e.g. by scikit-learn's HashingVectorizer), lower rank, or raise "
    "memory_budget."
)


@contextmanager
def named(view: str) -> Iterator[None]:
    """Put the name of the view before errors about its data or its kernel."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"view {view}: {error}") from None


def rank_for(rank: Any, n_components: int) -> int:
    """Check a rank that is at least the number of components."""
    checked = count("rank", rank)
    if checked < count("n_components", n_components):
        raise InputError(
            f"rank={rank} is below n_components={n_components}: features of that rank hold no more "
            "components. Raise rank (a few thousand is usual) or lower n_components."
        )
    return checked


def check_n_cols(view: View, n_cols: int, n_components: int) -> None:
    """Check that linear CCA of a view can have so many components."""
    if n_cols < n_components:
        raise RankError(
            f"n_components={n_components} but {view.name} has n_features={n_cols}: linear CCA has "
            f"no more components than columns. Set n_components to at most {n_cols}.",
            n_cols,
        )


def kernels_for(
    kernel: Any, width: Any, pairs: PairSource, seed: int
) -> tuple[tuple[Kernel, Kernel], RowPair]:
    """One kernel per view with its width, and the sample of rows used for that.

    A kernel without a width takes `width`, or the median distance of the sample; so does each part
    of a sum or product. Weights of sums are learned where requested. If a kernel is not defined for
    all values, all rows are checked first, so that the error names the row.
    """
    kernels = one_per_view("kernel", kernel, lambda _name, one: resolve(one))
    if any(one.nonnegative for one in kernels):
        for start, stop in pairs.chunks(CHECK_ROWS):
            views = pairs.read(start, stop, near=True)
            for name, one, rows in zip("XY", kernels, views, strict=True):
                check_domain(name, one, rows, start)
    samples = pairs.sample(WIDTH_SAMPLE, seed)
    return sized_kernels(kernels, width, samples, seed), samples


def sized_kernels(
    kernels: tuple[Kernel, Kernel], width: Any, samples: RowPair, seed: int, factor: float = 1.0
) -> tuple[Kernel, Kernel]:
    """The kernels with their widths; "auto" is `factor` times the median for these rows."""
    widths = one_per_view("width", width, check_width)
    _check_no_width(kernels, width)
    sized = []
    for name, one, own, sample in zip("XY", kernels, widths, samples, strict=True):
        with named(name):
            sized.append(_with_width(one, own, sample, factor))
    x, y = sized
    if any(isinstance(one, SumKernel) and one.learn for one in (x, y)):
        x, y = with_learned_weights((x, y), samples, seed)
    return x, y


def metric_rows(
    rank: int, row_bytes: int, itemsize: int, budget: int, max_time: float | None = None
) -> int:
    """Rows to learn a metric from for a fit of this rank; a row of both views has `row_bytes`."""
    wanted = min(MAX_METRIC_ROWS, max(MIN_METRIC_ROWS, METRIC_ROWS_PER_FEATURE * rank))
    if max_time is not None:
        wanted = min(wanted, int(METRIC_ROWS_PER_SECOND * max_time))
    return min(wanted, budget // 8 // (3 * row_bytes + 2 * METRIC_FEATURES * itemsize))


def check_varying(pairs: PairSource, samples: RowPair) -> None:
    """Check that the views vary: rounding would give constant scores variance."""
    for name, rows in zip("XY", samples, strict=True):
        if same_rows(rows):
            n = "all its" if rows.shape[0] == pairs.n_rows else f"all {rows.shape[0]} sampled"
            raise InputError(
                f"view {name} does not vary: {n} rows are the same. Check the data of {name}."
            )


def column_spreads(
    rows: Array, dtype: DTypeLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The spread and the deviation of each column, (d,), both 0 where it is constant in `dtype`.

    The spread is (mean c^4)^(1/4) of the centred values c. Division by the deviation would blow up
    columns that are 0 in nearly all rows, such as border pixels.
    """
    # Values are divided by the largest, so that their powers neither overflow nor vanish.
    if is_sparse(rows):
        largest = abs(rows).max(axis=0).toarray().ravel().astype(np.float64)
        shares = rows.data / np.where(largest > 0, largest, 1.0)[rows.indices]
        mean, second, third, fourth = (
            column_means(with_data(rows, shares**k)) for k in (1, 2, 3, 4)
        )
        squares = second - mean**2
        varies = squares > SPARSE_ROUNDING * second
        fourths = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
        squares, fourths = (np.where(varies, np.maximum(v, 0.0), 0.0) for v in (squares, fourths))
    else:
        mean = rows.mean(axis=0, dtype=np.float64)
        C = rows - mean
        C -= C.mean(axis=0)  # what rounding has left of the mean
        largest = np.abs(C).max(axis=0)
        largest[largest <= MEAN_ROUNDING * np.finfo(dtype).eps * np.abs(mean)] = 0.0
        C /= np.where(largest > 0, largest, np.inf)
        C *= C
        squares, fourths = C.mean(axis=0), np.mean(C * C, axis=0)
    return largest * fourths**0.25, largest * squares**0.5


def check_domain(view: str, kernel: Kernel, rows: Any, first_row: int) -> None:
    """Check that the kernel is defined for these rows; errors name the view."""
    with named(view):
        kernel.check(rows, first_row=first_row)


def check_approximation(name: str, value: Any, *, others: tuple[str, ...] = ()) -> Any:
    """Check the name of an approximation (random features or one of `others`), or a fitted map."""
    if isinstance(value, FeatureMap):
        return value
    known = (*others, *APPROXIMATIONS)
    if isinstance(value, type) and issubclass(value, FeatureMap):
        raise InputTypeError(
            f"{name}={value.__name__} is a class: wanted a fitted map, e.g. {value.__name__}.fit("
            f"...), or a name: {', '.join(map(repr, known))}."
        )
    if isinstance(value, str) and value in known:
        return value
    raise InputError(
        f"{name}={value!r}: wanted one of {', '.join(map(repr, known))}, or a fitted feature map."
        f"{suggestion(value, known)}"
    )


def check_given(features: FeatureMap, view: View, n_cols: int, n_components: int) -> None:
    """Check that a fitted map passed by the user suits the view."""
    if features.n_cols != n_cols:
        raise InputError(
            f"the feature map of {view.name} takes {features.n_cols} columns but {view.name} has "
            f"{n_cols}. Pass a map fitted on the columns of the data."
        )
    _check_rank(features, view, n_components)


def fit_random(
    name: str, sample: Array, kernel: Kernel, rank: int, seed: int, view: View, n_components: int
) -> FeatureMap:
    """The random features called `name`; errors name the view."""
    with named(view.name):
        features = approximate(name, sample, kernel, rank, seed, view)
    _check_rank(features, view, n_components)
    return features


def _check_rank(features: FeatureMap, view: View, n_components: int) -> None:
    if features.rank < n_components:
        raise InputError(
            f"the feature map of {view.name} has rank {features.rank}, below "
            f"n_components={n_components}. Pass a map of higher rank, or lower n_components."
        )


def _with_width(kernel: Kernel, width: float | Factor | None, sample: Any, factor: float) -> Kernel:
    if isinstance(width, float):
        return kernel.decide_width(lambda _part: width)
    return with_default_width(kernel, sample, factor if width is None else width.times)


def _check_no_width(kernels: tuple[Kernel, Kernel], width: Any) -> None:
    """Check that no width is given for a view whose kernel the user supplies."""
    given = one_per_view("width", width, lambda _name, one: one)
    shared = not isinstance(width, list | tuple)
    supplied = [isinstance(one, SUPPLIED) for one in kernels]
    for view in View:
        if supplied[view] and given[view] != "auto" and not (shared and not all(supplied)):
            raise InputError(
                f"width={width!r} with the kernel {kernels[view]!r} of {view.name}: a kernel that "
                "you supply has no width of ours. Leave width out, or give it to your function, "
                "e.g. by functools.partial."
            )


# The paper's minibatch, and the largest of the preconditioned solver. In between, a minibatch has
# as many rows as there are landmarks, so that preconditioning costs less than the features.
MIN_BATCH_ROWS = 2500
MAX_BATCH_ROWS = 10_000
# Directions learned beyond n_components: components converge much sooner when they are not the last
# of the directions learned.
EXTRA_DIRECTIONS = 30
# Limits on the number of held-out rows; data with fewer rows than the last holds none out.
MAX_HELD_OUT = 5000
MIN_HELD_OUT = 50
MIN_ROWS_TO_HOLD_OUT = 1000
# Samples to train on when the number of epochs is not given.
DEFAULT_SAMPLES = 1_000_000
MAX_EPOCHS = 100
# Arrays of M x L per view at the peak of a step: weights, velocity, gradient, direction, the new
# weights and velocity, the last good weights, the average, the best snapshot, one temporary.
WEIGHT_ARRAYS = 10
# Minibatches of rows that the stream and the step hold. On a device with memory of its own are only
# the one in use, those ahead and the one being made.
BATCHES_ALIVE = 8
BATCHES_UPLOADED = 4


@dataclass(frozen=True)
class Plan:
    """The choices, in the order they are made."""

    seed: int
    epochs: int
    approximation: tuple[str, str]  # "nystrom", "identity", "given", or random features by name
    rank: tuple[int, int]
    precondition: tuple[Precondition | None, Precondition | None]
    n_held_out: int
    batch_size: int
    directions: int
    keep_features: bool
    window_bytes: int
    metric_rows: int = 0  # that a metric is learned from

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "Plan":
        """The inverse of `state_dict`."""
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in state.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class Request:
    """The checked parameters that the plan depends on; None where the plan chooses."""

    n_components: int
    rank: tuple[int, int]
    approximation: tuple[str, str]  # "auto" where the plan chooses
    kernels: tuple[Kernel, Kernel]
    precondition: str | None
    batch_size: int | None
    extra_directions: int | None
    held_out: float
    epochs: int | None
    map_bytes: tuple[int, int] = (0, 0)  # of feature maps passed by the user
    keep_features: bool = True  # of a minibatch between projection and gradient, if they fit
    method: str = "KNOI"
    max_time: float | None = None


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data and the machine."""

    n_rows: int
    n_cols: tuple[int, int]
    row_bytes: int  # of a stored pair of rows
    working_bytes: tuple[int, int]  # of a row of each view in computations
    backend: Backend
    budget: int  # bytes for arrays of the backend
    host_budget: int  # bytes of main memory; of no account where the backend uses that, too
    n_workers: int
    sparse: tuple[bool, bool] = (False, False)  # whether rows stay sparse in computations

    @property
    def itemsize(self) -> int:
        """Bytes of a number in computations."""
        return self.backend.itemsize

    def rows_uploaded(self, batch_size: int, n_held_out: int) -> int:
        """Bytes of rows on a device: minibatches, held-out rows, as many to align them with."""
        minibatches = BATCHES_UPLOADED * batch_size if self.backend.own_memory else 0
        kept = 0 if self.backend.is_numpy else 2 * n_held_out
        return (minibatches + kept) * sum(self.working_bytes)

    def left(self, there: int, here: int, method: str, remedy: str) -> tuple[int, int]:
        """Bytes left of both budgets after `there` on the backend and `here` in main memory.

        Where these are the same memory, so are the bytes left. Raises if `method` does not fit.
        """
        needs = [(there + here, self.budget, "")]
        if self.backend.own_memory:
            needs = [
                (there, self.budget, f" on device={self.backend.device!r}"),
                (here, self.host_budget, " of main memory"),
            ]
        for needed, budget, where in needs:
            if needed > budget:
                raise MemoryBudgetError(
                    f"{method} needs about {format_bytes(needed)}{where} but memory_budget is "
                    f"{format_bytes(budget)}. {remedy}"
                )
        found = [budget - needed for needed, budget, _ in needs]
        return found[0], found[-1]


def make_plan(request: Request, sizes: Sizes, seed: int) -> Plan:
    """Choose what the request leaves open; raise if it cannot be met."""
    n_held_out = held_out_rows(request.held_out, sizes.n_rows)
    n_train = sizes.n_rows - n_held_out
    if n_train <= request.n_components:
        raise InputError(
            f"held_out={request.held_out!r} leaves {n_train} of {sizes.n_rows} rows to train on: "
            f"CCA needs more rows than n_components={request.n_components}. Lower held_out."
        )
    chosen: Any = zip(*(_choose_view(request, sizes, v, n_train) for v in (0, 1)), strict=True)
    approximation, rank, precondition = chosen
    batch_size = _batch_size(request, rank, precondition, n_train)
    extra = request.extra_directions
    if extra is None:
        extra = 0 if precondition == (None, None) else EXTRA_DIRECTIONS
    L = request.n_components
    directions = max(L, min(L + extra, *rank, batch_size - 1))
    # Maps are in main memory, as they were fitted, and on the backend.
    maps = sum(_map_bytes(request, sizes, v, approximation[v], rank[v]) for v in (0, 1))
    held = maps + _held_bytes(sizes, rank, precondition, directions)
    batch = BATCHES_ALIVE * batch_size * (sizes.row_bytes + sum(sizes.working_bytes))
    batch += 6 * 8 * batch_size * directions
    step = sizes.rows_uploaded(batch_size, n_held_out) + _scratch_bytes(sizes, rank, batch_size)
    remedy = "Lower rank or batch_size, or raise memory_budget."
    if 4 * maps > held + maps + batch + step and any(map(is_dense, approximation)):
        remedy = MANY_COLUMNS
    method = f"{request.method} with rank {max(rank)} and minibatches of {batch_size} rows"
    sizes.left(held + _start_bytes(sizes, rank, precondition, n_train), maps, method, remedy)
    left, left_here = sizes.left(held + step, maps + batch, method, remedy)
    # Features of sparse rows that go through the identity are never computed.
    made = [v for v in (0, 1) if not sizes.sparse[v] or approximation[v] != "identity"]
    features = batch_size * sum(rank[v] for v in made) * sizes.itemsize
    keep = request.keep_features and features <= left * 3 // 4
    return Plan(
        seed,
        # A million samples, at most 100 epochs.
        request.epochs or min(MAX_EPOCHS, max(1, -(-DEFAULT_SAMPLES // n_train))),
        approximation,
        rank,
        precondition,
        n_held_out,
        batch_size,
        directions,
        keep,
        batch + (left_here - (features if keep and not sizes.backend.own_memory else 0)) // 2,
        metric_rows(
            max(rank), sum(sizes.working_bytes), sizes.itemsize, sizes.budget, request.max_time
        ),
    )


def held_out_rows(held_out: float, n_rows: int) -> int:
    """Number of rows to hold out: none of few rows, at most `MAX_HELD_OUT`."""
    if held_out == 0 or n_rows < MIN_ROWS_TO_HOLD_OUT:
        return 0
    n = min(MAX_HELD_OUT, int(held_out * n_rows))
    if n < MIN_HELD_OUT:
        raise InputError(
            f"held_out={held_out!r} of {n_rows} rows is {n} rows: evaluating a fit needs at least "
            f"{MIN_HELD_OUT}. Raise held_out, or set it to 0."
        )
    return n


def _choose_view(
    request: Request, sizes: Sizes, v: int, n_train: int
) -> tuple[str, int, Precondition | None]:
    """Feature map, rank and preconditioner of one view."""
    name, rank = request.approximation[v], request.rank[v]
    # The triangles of both views together may take two fifths of the budget.
    needed, limit = Columns.bytes_needed(min(rank, n_train), sizes.itemsize), sizes.budget // 5
    columns_fit = needed <= limit
    if name == "auto":
        matrix = f"{min(rank, n_train)} x {min(rank, n_train)} matrix"
        if columns_fit:
            # On all data measured, kernel columns were the most accurate at equal rank and time.
            name = "nystrom"
            reason = (
                f"kernel columns are the most accurate at equal time, and their {matrix} "
                f"({format_bytes(needed)}) fits the {format_bytes(limit)} it may take"
            )
        else:
            name, why = choose(request.kernels[v], sizes.n_cols[v], sparse=sizes.sparse[v])
            reason = f"the {matrix} of kernel columns would not fit {format_bytes(limit)}; {why}"
        logger.info("view %s: approximation=%r, because %s.", "XY"[v], name, reason)
    if name == "nystrom":
        rank = min(rank, n_train)
    if name == "identity":
        rank = sizes.n_cols[v]
    precondition = request.precondition
    if precondition == "auto":
        precondition = "columns" if name == "nystrom" and columns_fit else "low_rank"
    if precondition == "columns" and name != "nystrom":
        raise InputError(
            f"precondition='columns' with approximation={name!r}: it is for kernel columns. Set "
            "approximation='nystrom', or precondition='low_rank', which takes any features."
        )
    return name, rank, precondition  # type: ignore[return-value]


def _batch_size(request: Request, rank: Any, precondition: Any, n_train: int) -> int:
    if request.batch_size is None:
        landmarks = [rank[v] for v in (0, 1) if precondition[v] == "columns"]
        return min(n_train, max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, max(landmarks, default=0))))
    b, L = request.batch_size, request.n_components
    if b > n_train:
        raise InputError(
            f"batch_size={b} but there are {n_train} rows to train on. Set batch_size to at most "
            f"{n_train}, or leave it None."
        )
    if b <= L:
        raise InputError(
            f"batch_size={b} with n_components={L}: a minibatch needs more rows than components to "
            f"estimate their covariance. Set batch_size to at least {10 * L}, or leave it None."
        )
    return b


def _map_bytes(request: Request, sizes: Sizes, v: int, approximation: str, rank: int) -> int:
    """Bytes of the feature map of a view."""
    if approximation == "nystrom" and sizes.sparse[v]:
        own = sizes.working_bytes[v] + 2 * sizes.itemsize
        if sizes.n_cols[v] <= METRIC_COLUMNS:  # a learned metric may make them dense
            own = max(own, sizes.n_cols[v] * sizes.itemsize)
        return own * rank
    if approximation in APPROXIMATIONS:
        kept = numbers_kept(approximation, request.kernels[v], sizes.n_cols[v], rank)
        return kept * sizes.itemsize
    if sizes.sparse[v]:
        return request.map_bytes[v]
    return (sizes.n_cols[v] + 2) * rank * sizes.itemsize


def _scratch_bytes(sizes: Sizes, rank: Any, batch_size: int) -> int:
    """Bytes of the features that workers compute at a time, and of what they come from."""
    in_main_memory = sizes.backend.in_main_memory
    rows, columns = tile_shape(batch_size, in_main_memory, keep=False)
    tile = min(rows, batch_size) * min(columns, max(rank))
    blocks = -(-max(rank) // columns)
    workers = sizes.n_workers if in_main_memory else min(sizes.n_workers, blocks)
    return 3 * workers * int(tile) * sizes.itemsize


def _start_bytes(sizes: Sizes, rank: Any, precondition: Any, n_train: int) -> int:
    """Bytes on the backend while the start and the preconditioners are computed."""
    if precondition == (None, None):
        return 0
    columns = [rank[v] for v in (0, 1) if precondition[v] == "columns"]
    # torch does not factorise in place.
    copied = 0 if sizes.backend.is_numpy else max(columns, default=0)
    return max(
        warm_start_bytes(rank, n_train, sizes.itemsize),
        Columns.bytes_needed(copied, sizes.itemsize),
    )


def _held_bytes(sizes: Sizes, rank: Any, precondition: Any, directions: int) -> int:
    """Bytes held through the whole fit besides the maps: weights, preconditioners."""
    held = 0
    for v in (0, 1):
        held += WEIGHT_ARRAYS * rank[v] * directions * sizes.itemsize
        if precondition[v] == "columns":
            held += Columns.bytes_needed(rank[v], sizes.itemsize)
        elif precondition[v] == "low_rank":
            held += LowRank.bytes_needed(rank[v], sizes.itemsize)
    return held


@dataclass(frozen=True)
class Setup:
    """Plan, feature maps and workers of a fit: what an update rule is built from."""

    plan: Plan
    n_components: int
    directions: int  # columns of the weights
    maps: Maps  # on the backend
    features: tuple[Any, Any]  # of the current minibatch
    minibatch: Callable[..., Any]  # (map, batch_size, backend, keep=) -> features of a minibatch
    backend: Backend
    engine: Engine
    deadline: float | None = None  # of `time.monotonic`, by which the call of `fit` is to end

    @classmethod
    def build(
        cls,
        plan: Plan,
        maps: Maps,
        n_components: int,
        backend: Backend,
        engine: Engine,
        minibatch: Callable[..., Any] = MinibatchFeatures,
        deadline: float | None = None,
    ) -> Self:
        """Place the maps on the backend."""
        placed = maps[0].to(backend), maps[1].to(backend)
        # A map may have fewer features than planned: monomials, distinct landmarks.
        directions = min(plan.directions, *(features.rank for features in maps))
        b, keep = plan.batch_size, plan.keep_features
        x, y = (minibatch(one, b, backend, keep=keep) for one in placed)
        return cls(
            plan, n_components, directions, placed, (x, y), minibatch, backend, engine, deadline
        )

    def seconds_left(self) -> float | None:
        """Seconds until the call of `fit` is to end; None without a limit."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    def other_features(self) -> list[Any]:
        """Features of other rows than those of the current minibatch."""
        b = self.plan.batch_size
        return [self.minibatch(one, b, self.backend, keep=False) for one in self.maps]

    def sample(self, pairs: PairSource, n: int) -> RowPair:
        """At most n random rows in the precision of the backend."""
        return self._rounded(pairs.sample(n, self.plan.seed))

    def fresh_sample(self, pairs: PairSource, n: int) -> RowPair:
        """The same, drawn independently of the rows that the maps were fitted to.

        A minibatch of landmarks shows a curvature that no other minibatch has.
        """
        return self._rounded(pairs.sample(n, derived_seed(self.plan.seed, Purpose.FRESH_SAMPLE)))

    def _rounded(self, rows: RowPair) -> RowPair:
        x, y = (view.astype(self.backend.dtype, copy=False) for view in rows)
        return x, y
