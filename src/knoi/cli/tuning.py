"""A grid of fits to a subset of the pairs, each measured on pairs left out of it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.table import Table
from rich.text import Text

from knoi.arrays.random import TUNING_SPLIT, TUNING_SUBSET, Purpose, derived_seed
from knoi.checks import one_per_view
from knoi.cli.files import about, check_output, open_pairs
from knoi.cli.measured import Measured, measure
from knoi.cli.methods import make_model
from knoi.cli.parsing import Factor, per_view
from knoi.cli.screen import print_json, remarks, results, say, stepping, table
from knoi.cli.stopped import Stopped
from knoi.cli.tuning_plot import check_plot, write_plot
from knoi.data.pairs import PairSource
from knoi.estimators.base import BaseCCA
from knoi.estimators.parameters import kernels_for
from knoi.estimators.primal import MomentCCA
from knoi.exceptions import InputError, MemoryBudgetError
from knoi.kernels import resolve
from knoi.kernels.kernel import WidthKernel

USAGE = "knoi tune X Y"
FACTORS = (0.5, 1.0, 2.0)
# By default: around what was measured to do best, or what the method finds by itself.
REGS: Mapping[str, tuple[Any, ...]] = {
    "linear": (0.0, 1e-6, 1e-4, 1e-2),
    "kernel": (1e-5, 1e-4, 1e-3, 1e-2),
    "fourier": (1e-7, 1e-6, 1e-5, 1e-4),
    "nystrom": (1e-7, 1e-6, 1e-5, 1e-4),
    "knoi": ("auto",),
    "dsgd": (0.0,),
}
HELD_OUT, MOST_HELD_OUT = 0.2, 10_000


@dataclass(frozen=True)
class Tuning:
    """What `knoi tune` was told."""

    x: Path
    y: Path
    method: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    ranks: Sequence[int] | None
    widths: Sequence[Any] | None
    regs: Sequence[Any] | None
    subset: int
    held_out: int | float | None
    seed: int
    plot: Path | None
    as_json: bool
    quiet: bool


@dataclass(frozen=True)
class Point:
    """One combination: values an estimator takes, and the width as a multiple of the median."""

    values: Mapping[str, Any]  # some of rank, width, reg
    factor: float | None = None

    def describe(self) -> str:
        """For a line of progress."""
        return ", ".join(f"{name} {self.shown(name)}" for name in self.values)

    def shown(self, name: str) -> str:
        """A value for people."""
        text = per_view(self.values[name])
        return f"{text} ({self.factor:g}x)" if name == "width" and self.factor else text


@dataclass(frozen=True)
class Trial:
    """What came of a combination; `measured` is None where it did not fit into memory."""

    point: Point
    seconds: float
    measured: Measured | None
    why_not: str | None = None

    @property
    def score(self) -> float:
        """What it is judged by: the fitted total correlation."""
        return float("-inf") if self.measured is None else float(self.measured.fitted.sum())


def run(tuning: Tuning) -> None:
    """Fit the grid, show it, and say how to fit the best of it."""
    if tuning.plot is not None:
        check_output(tuning.plot, "--plot", (tuning.x, tuning.y))
        check_plot(tuning.plot)
    with open_pairs(tuning.x, tuning.y, USAGE) as pairs:
        subset = pairs.sample(
            tuning.subset, derived_seed(tuning.seed, Purpose.PARTS, TUNING_SUBSET)
        )
    trials: list[Trial] = []
    with PairSource.open(*subset) as pairs:
        train, left_out = _split(tuning, pairs)
        points = _points(tuning, train)
        console = remarks(tuning.quiet)
        say(
            console,
            f"{len(points)} fits of {tuning.method} to {train.n_rows:,} pairs, measured on "
            f"{left_out.n_rows:,} others",
        )
        try:
            with stepping(console, len(points)) as step:
                for group in _groups(points, tuning):
                    trials.extend(_tried(group, tuning, train, left_out, step))
        except KeyboardInterrupt:
            if not tuning.as_json and trials:
                _tell(tuning, trials)
            raise Stopped(f"interrupted after {len(trials)} of {len(points)} fits.", 130) from None
    best = max(trials, key=lambda trial: trial.score)
    if best.measured is None:
        raise MemoryBudgetError(best.why_not or "nothing fits into memory")
    if tuning.plot is not None:
        write_plot(tuning.plot, trials, int(tuning.options["components"]))
    if tuning.as_json:
        print_json(_document(tuning, trials, best, train.n_rows, left_out.n_rows))
    else:
        _tell(tuning, trials)


def _split(tuning: Tuning, pairs: PairSource) -> tuple[PairSource, PairSource]:
    count = tuning.held_out
    if count is None:
        count = min(max(1, int(HELD_OUT * pairs.n_rows)), MOST_HELD_OUT)
    if not count:
        raise InputError("--held-out 0: there must be pairs to measure on. Give e.g. 0.2.")
    with about("--held-out"):
        return pairs.split(count, derived_seed(tuning.seed, Purpose.PARTS, TUNING_SPLIT))


def _points(tuning: Tuning, train: PairSource) -> list[Point]:
    """The grid, in order: rank by rank, width by width, regularisation by regularisation."""
    model = make_model(tuning.method, tuning.options, tuning.settings)
    known = model.get_params(deep=False)
    ranks: Sequence[int | None] = tuning.ranks or ([known["rank"]] if "rank" in known else [None])
    regs = tuning.regs or REGS[tuning.method]
    widths = _widths(tuning, known, train) if "width" in known else [(None, None)]
    points = []
    for rank, (width, factor), reg in product(ranks, widths, regs):
        values = {"rank": rank, "width": width, "reg": reg}
        given = {name: value for name, value in values.items() if value is not None}
        points.append(Point(given, factor))
    return points


def _widths(
    tuning: Tuning, known: Mapping[str, Any], train: PairSource
) -> list[tuple[Any, float | None]]:
    """Widths as numbers, with what multiple of the median both are, if they are the same."""
    kernels = one_per_view("kernel", known["kernel"], lambda _name, one: resolve(one))
    if not any(isinstance(kernel, WidthKernel) for kernel in kernels):
        if tuning.widths:
            raise InputError(f"--widths: the {kernels[0].name} kernel has no width. Leave it out.")
        return [(None, None)]
    asked = tuning.widths or [Factor(times) for times in FACTORS]
    decided, _ = kernels_for(known["kernel"], "median", train, tuning.seed)
    medians = [getattr(kernel, "width", None) for kernel in decided]
    widths: list[tuple[Any, float | None]] = []
    for one in asked:
        both = one if isinstance(one, tuple) else (one, one)
        numbers = tuple(_width(value, median) for value, median in zip(both, medians, strict=True))
        same = isinstance(one, Factor)
        width = numbers[0] if numbers[0] == numbers[1] else numbers
        widths.append((width, one.times if same else None))
    return widths


def _width(value: float | Factor, median: float | None) -> float:
    if not isinstance(value, Factor):
        return value
    # A view whose kernel has no width ignores the number.
    return float(f"{value.times * (1.0 if median is None else median):.6g}")


def _groups(points: list[Point], tuning: Tuning) -> Iterator[list[Point]]:
    """Points that differ in nothing but regularisation, which closed forms share the work of."""
    group: list[Point] = []
    for point in points:
        features = {name: value for name, value in point.values.items() if name != "reg"}
        if group and features != {n: v for n, v in group[0].values.items() if n != "reg"}:
            yield group
            group = []
        group.append(point)
    yield group


def _tried(
    group: list[Point], tuning: Tuning, train: PairSource, left_out: PairSource, step: Any
) -> Iterator[Trial]:
    model: BaseCCA | None = None
    for point in group:
        step(point.describe())
        began = perf_counter()
        try:
            if isinstance(model, MomentCCA):
                # Moments of the features are there already: only the last step is another.
                model.set_params(reg=point.values["reg"]).solve()
            else:
                options = {**tuning.options, **point.values}
                model = make_model(tuning.method, options, tuning.settings)
                if isinstance(model, MomentCCA) and len(group) > 1:
                    model.partial_fit(*train.views())
                else:
                    model.fit(*train.views())
        except MemoryBudgetError as error:
            model = None
            yield Trial(point, perf_counter() - began, None, str(error))
            continue
        seconds = perf_counter() - began
        yield Trial(point, seconds, measure(model, *left_out.views()))


def fit_command(tuning: Tuning, point: Point) -> str:
    """The command that fits this combination to all pairs."""
    arguments = ["knoi", "fit", str(tuning.x), str(tuning.y), "-o", "model.knoi"]
    arguments += ["--method", tuning.method]
    for name, value in {**tuning.options, **point.values}.items():
        if value is None or name == "verbose" or (tuning.method, name) == ("linear", "kernel"):
            continue
        typed = f"{value:g}s" if name == "time" else per_view(value)
        arguments += [f"--{name}", typed]
    for name, value in tuning.settings.items():
        arguments += ["--set", f"{name}={'none' if value is None else value}"]
    return shlex.join(arguments)


def _document(
    tuning: Tuning, trials: list[Trial], best: Trial, n_train: int, n_left_out: int
) -> dict[str, Any]:
    def described(trial: Trial) -> dict[str, Any]:
        measured = trial.measured
        return {
            **trial.point.values,
            "width_factor": trial.point.factor,
            "total_correlation": None if measured is None else float(measured.fitted.sum()),
            "total_correlation_refit": None if measured is None else float(measured.refit.sum()),
            "seconds": trial.seconds,
            "error": trial.why_not,
        }

    return {
        "method": tuning.method,
        "components": tuning.options["components"],
        "rows": n_train,
        "rows_left_out": n_left_out,
        "trials": [described(trial) for trial in trials],
        "best": described(best),
        "command": fit_command(tuning, best.point),
    }


def _tell(tuning: Tuning, trials: list[Trial]) -> None:
    best = max(trials, key=lambda trial: trial.score)
    console = results(tuning.quiet)
    console.print(_table(tuning, trials, best))
    if tuning.plot is not None and tuning.plot.exists():
        say(console, f"Plot: {tuning.plot}")
    say(console, "The best of them on all pairs:", f"  {fit_command(tuning, best.point)}")


def _table(tuning: Tuning, trials: list[Trial], best: Trial) -> Table:
    names = list(trials[0].point.values)
    title = f"{tuning.method}: total correlation of pairs left out, at most "
    title += str(tuning.options["components"])
    made = table("", *names, "total", "refit", "s", title=title)
    for trial in trials:
        measured = trial.measured
        cells = [trial.point.shown(name) for name in names]
        if measured is None:
            cells += ["no room", "-", "-"]
        else:
            cells += [f"{measured.fitted.sum():.3f}", f"{measured.refit.sum():.3f}"]
            cells.append(f"{trial.seconds:.1f}")
        is_best = trial is best
        shown = [Text(cell, style="bold" if is_best else "") for cell in cells]
        made.add_row(Text("best" if is_best else "", style="bold"), *shown)
    return made
