"""Checks of an estimator's rank, kernels and widths, made once in `fit`."""

from numbers import Real
from typing import Any

import numpy as np

from knoi.checks import count, one_per_view
from knoi.data.pairs import PairSource, RowPair
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels import Kernel, resolve, with_default_width, with_learned_weights

# The median trick of the paper looks at this many rows.
WIDTH_SAMPLE = 4000
CHECK_ROWS = 4096


def rank_for(rank: Any, n_components: int) -> int:
    """A rank that can hold the components."""
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
    """One kernel a view, its width decided: its own, else `width`, else the median trick.

    Of a sum or product, every part so; then weights are learned where a sum asks for it. The sample
    of rows that all this came from is handed on.

    A kernel that is not defined everywhere has all the data checked first, so that a value it
    cannot take is named by its row before anything is computed.
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


def check_domain(view: str, kernel: Kernel, rows: Any, first_row: int) -> None:
    """Refuse rows the kernel is not defined for, naming the view."""
    try:
        kernel.check(rows, first_row=first_row)
    except InputError as error:
        raise InputError(f"view {view}: {error}") from None


def _width(name: str, value: Any) -> float | None:
    if isinstance(value, str) and value == "median":
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(
            f"{name}={value!r}: wanted a positive number, 'median', or a pair of these (one for X, "
            "one for Y)."
        )
    if not 0 < float(value) < np.inf:
        raise InputError(f"{name}={value!r}: wanted a positive, finite number.")
    return float(value)


def _with_width(view: str, kernel: Kernel, width: float | None, sample: Any) -> Kernel:
    try:
        if width is None:
            return with_default_width(kernel, sample)
        return kernel.decide_width(lambda _part: width)
    except InputError as error:
        raise InputError(f"view {view}: {error}") from None
