"""Trying a grid of parameters: which combination does best on pairs that it was not fitted to."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from time import perf_counter
from typing import Any

from sklearn.base import clone

from knoi.arrays.random import TUNING_SPLIT, TUNING_SUBSET, Purpose, derived_seed, seed_from
from knoi.checks import count, is_real, suggestion
from knoi.data.pairs import PairSource
from knoi.estimators.base import BaseCCA
from knoi.estimators.closed_form import ClosedFormCCA
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError

HELD_OUT, MOST_HELD_OUT = 0.2, 10_000
# Closed forms need no further pass over the rows for another value of it.
SOLVED_AGAIN = "reg"

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """One combination of parameters.

    Attributes
    ----------
    params : dict
        For `set_params`.
    score : float
        Larger is better; minus infinity if the fit did not fit into memory.
    seconds : float
        Of the fit. Closed forms that differ in `reg` share the pass over the rows, which counts for
        the first.
    error : str or None
        Why there is no score.
    """

    params: dict[str, Any]
    score: float
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class TuningResult:
    """All trials of `tune`, in the order of the grid."""

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The trial of the highest score, the first of equal ones."""
        return max(self.trials, key=lambda trial: trial.score)


def tune(
    model: BaseCCA,
    X: Any,
    Y: Any,
    grid: Mapping[str, Sequence[Any]],
    *,
    test: tuple[Any, Any] | None = None,
    score: Callable[[BaseCCA, Any, Any], float] | None = None,
    subset: int | None = 100_000,
    held_out: float | None = None,
    random_state: Any = 0,
) -> TuningResult:
    """Fit every combination of a grid of parameters and score it on other pairs.

    Parameters
    ----------
    model : estimator
        What to tune; it is cloned and stays as it is.
    X, Y : array-like, path or other data, (n_samples, d)
        The two views, as in `fit`.
    grid : dict of lists
        Values by name of a parameter. Combinations that differ only in `reg` share the pass over
        the rows, if the method is a closed form.
    test : pair of views, default=None
        Pairs to score on. None: a random part of the rows is held out.
    score : callable (model, X_test, Y_test) -> float, default=None
        What to maximise, such as how well the projections serve another program; None: the total
        correlation of the test pairs (`model.score`). The model may be fitted again afterwards: do
        not keep it.
    subset : int or None, default=100_000
        Rows to use, drawn at random; None: all.
    held_out : float, int or None, default=None
        Rows of the subset to hold out, as a fraction or a number; None: a fifth, at most 10,000.
    random_state : int, RandomState, Generator or None, default=0
        Fixes which rows are used and held out.

    Returns
    -------
    TuningResult
        `best.params` goes to `set_params`; `trials` has all.

    Examples
    --------
    >>> from knoi import NystromCCA, tune
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(2000, correlations=(0.9,), nonlinear=True, random_state=0)
    >>> model = NystromCCA(n_components=1, rank=50, random_state=0)
    >>> found = tune(model, views.X, views.Y, {"width": ["0.1x", "1x"], "reg": [1e-6, 1e-3]})
    >>> found.best.params["width"]
    '1x'
    >>> model = model.set_params(**found.best.params).fit(views.X, views.Y)
    """
    points = _combinations(grid, model)
    if score is not None and not callable(score):
        raise InputTypeError(f"score={score!r}: wanted a function (model, X_test, Y_test).")
    if test is not None and (not isinstance(test, tuple | list) or len(test) != 2):
        raise InputTypeError("test: wanted a pair of views, (X_test, Y_test).")
    if test is not None and held_out is not None:
        raise InputError("test and held_out: pass one of them, the pairs or how many to hold out.")
    seed = seed_from(random_state)
    with PairSource.open(X, Y) as opened:
        rows = opened.n_rows if subset is None else min(count("subset", subset), opened.n_rows)
        views = opened.sample(rows, derived_seed(seed, Purpose.PARTS, TUNING_SUBSET))
    with PairSource.open(*views) as pairs:
        if test is None:
            split_seed = derived_seed(seed, Purpose.PARTS, TUNING_SPLIT)
            size = rows_to_hold_out(pairs.n_rows) if held_out is None else held_out
            train, other = pairs.split(size, split_seed)
            test = other.read(0, other.n_rows)
        else:
            train = pairs
        trials = []
        for fit in fits(lambda params: clone(model).set_params(**params), points, *train.views()):
            value = -math.inf
            if fit.model is not None:
                value = fit.model.score(*test) if score is None else score(fit.model, *test)
                if not is_real(value) or math.isnan(value):
                    raise InputError(
                        f"score returned {value!r} for {fit.params}: wanted a number, larger if "
                        "the model is better."
                    )
            trials.append(Trial(dict(fit.params), float(value), fit.seconds, fit.error))
    return TuningResult(tuple(trials))


def rows_to_hold_out(n_rows: int) -> int:
    """How many of the rows are held out by default."""
    return min(max(1, int(HELD_OUT * n_rows)), MOST_HELD_OUT)


@dataclass(frozen=True)
class Fit:
    """A fitted combination; no model if it did not fit into memory."""

    params: Params
    model: BaseCCA | None
    seconds: float
    error: str | None


def fits(
    make: Callable[[Params], BaseCCA],
    points: Sequence[Params],
    X: Any,
    Y: Any,
    before: Callable[[Params], None] = lambda params: None,
) -> Iterator[Fit]:
    """Fit one combination after the other; `before` is called before each.

    Successive ones that differ only in `reg` share the moments of a closed form. Their model is one
    object, so use it before the next.
    """
    for _, same in groupby(points, key=_without_solved_again):
        group = list(same)
        model: BaseCCA | None = None
        for params in group:
            before(params)
            began, error = perf_counter(), None
            try:
                if isinstance(model, ClosedFormCCA):
                    model.set_params(reg=params[SOLVED_AGAIN]).solve()
                else:
                    model = make(params)
                    if isinstance(model, ClosedFormCCA) and len(group) > 1:
                        model.partial_fit(X, Y)
                    else:
                        model.fit(X, Y)
            except MemoryBudgetError as raised:
                model, error = None, str(raised)
            yield Fit(params, model, perf_counter() - began, error)


def _without_solved_again(params: Params) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != SOLVED_AGAIN}


def _combinations(grid: Mapping[str, Sequence[Any]], model: BaseCCA) -> list[dict[str, Any]]:
    """All combinations, `reg` varying fastest."""
    if not isinstance(grid, Mapping) or not grid:
        raise InputTypeError(
            f"grid={grid!r}: wanted lists of values by name of a parameter, such as "
            "{'width': ['0.5x', '1x'], 'reg': [1e-6, 1e-4]}."
        )
    known = model.get_params(deep=False)
    for name, values in grid.items():
        if name not in known:
            raise InputError(
                f"grid: {type(model).__name__} has no parameter {name!r}.{suggestion(name, known)}"
            )
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise InputTypeError(f"grid: {name}={values!r}: wanted a list of values.")
    names = sorted(grid, key=lambda name: name == SOLVED_AGAIN)
    return [
        dict(zip(names, values, strict=True)) for values in product(*(grid[name] for name in names))
    ]
