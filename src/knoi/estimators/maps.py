"""Kernels and feature maps of an estimator, from its parameters and a sample of the rows."""

from typing import Any

from knoi.arrays.backend import Array
from knoi.arrays.random import LANDMARK_ORDER, Purpose, View, generator
from knoi.arrays.sparse import same_rows
from knoi.checks import count, is_real, one_per_view
from knoi.data.pairs import PairSource, RowPair
from knoi.exceptions import InputError, InputTypeError
from knoi.features import FeatureMap, KernelColumns
from knoi.features.landmarks import Selection, n_candidates, select_landmarks
from knoi.features.registry import APPROXIMATIONS, approximate
from knoi.kernels import Kernel, resolve, with_default_width, with_learned_weights

Maps = tuple[FeatureMap, FeatureMap]

# Rows that the median of distances is taken over, as in the paper.
WIDTH_SAMPLE = 4000
CHECK_ROWS = 4096


def rank_for(rank: Any, n_components: int) -> int:
    """Check a rank that is at least the number of components."""
    checked = count("rank", rank)
    if checked < count("n_components", n_components):
        raise InputError(
            f"rank={rank} is below n_components={n_components}: features of that rank hold no more "
            "components. Raise rank (a few thousand is usual) or lower n_components."
        )
    return checked


def kernels_for(
    kernel: Any, width: Any, pairs: PairSource, seed: int
) -> tuple[tuple[Kernel, Kernel], RowPair]:
    """One kernel per view with its width, and the sample of rows used for that.

    A kernel without a width takes `width`, or the median distance of the sample; so does each part
    of a sum or product. Weights of sums are learned where requested. If a kernel is not defined for
    all values, all rows are checked first, so that the error names the row.
    """
    kernels = one_per_view("kernel", kernel, lambda _name, one: resolve(one))
    widths = one_per_view("width", width, _width)
    if any(one.nonnegative for one in kernels):
        for start, stop in pairs.chunks(CHECK_ROWS):
            for name, one, rows in zip("XY", kernels, pairs.read(start, stop), strict=True):
                check_domain(name, one, rows, start)
    samples = pairs.sample(WIDTH_SAMPLE, seed)
    x, y = (_with_width(*view) for view in zip("XY", kernels, widths, samples, strict=True))
    return with_learned_weights((x, y), samples, seed), samples


def varying_kernels(
    kernel: Any, width: Any, pairs: PairSource, seed: int
) -> tuple[tuple[Kernel, Kernel], RowPair]:
    """`kernels_for`, checking that the views vary: rounding would give constant scores variance."""
    kernels, samples = kernels_for(kernel, width, pairs, seed)
    for name, rows in zip("XY", samples, strict=True):
        if same_rows(rows):
            n = "all its" if rows.shape[0] == pairs.n_rows else f"all {rows.shape[0]} sampled"
            raise InputError(
                f"view {name} does not vary: {n} rows are the same. Check the data of {name}."
            )
    return kernels, samples


def check_domain(view: str, kernel: Kernel, rows: Any, first_row: int) -> None:
    """Check that the kernel is defined for these rows; errors name the view."""
    try:
        kernel.check(rows, first_row=first_row)
    except InputError as error:
        raise InputError(f"view {view}: {error}") from None


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
    try:
        features = approximate(name, sample, kernel, rank, seed, view)
    except (InputError, InputTypeError) as error:
        raise type(error)(f"view {view.name}: {error}") from None
    _check_rank(features, view, n_components)
    return features


def fit_columns(
    pairs: PairSource, kernel: Kernel, rank: int, view: View, seed: int, landmarks: Selection
) -> KernelColumns:
    """Kernel values at `rank` landmarks, in random order: the first ones are a fair sample too."""
    candidates = pairs.sample(n_candidates(landmarks, rank), seed)[view]
    candidates = candidates.astype(pairs.dtype, copy=False)
    Z = select_landmarks(candidates, kernel, rank, seed, view, landmarks)
    order = generator(seed, Purpose.LANDMARKS, view, LANDMARK_ORDER).permutation(Z.shape[0])
    return KernelColumns(kernel, Z[order])


def _check_rank(features: FeatureMap, view: View, n_components: int) -> None:
    if features.rank < n_components:
        raise InputError(
            f"the feature map of {view.name} has rank {features.rank}, below "
            f"n_components={n_components}. Pass a map of higher rank, or lower n_components."
        )


def _width(name: str, value: Any) -> float | None:
    if isinstance(value, str) and value == "median":
        return None
    if not is_real(value):
        raise InputTypeError(
            f"{name}={value!r}: wanted a positive number, 'median', or a pair of these (one for X, "
            "one for Y)."
        )
    if not 0 < float(value) < float("inf"):
        raise InputError(f"{name}={value!r}: wanted a positive, finite number.")
    return float(value)


def _with_width(view: str, kernel: Kernel, width: float | None, sample: Any) -> Kernel:
    try:
        if width is None:
            return with_default_width(kernel, sample)
        return kernel.decide_width(lambda _part: width)
    except InputError as error:
        raise InputError(f"view {view}: {error}") from None
