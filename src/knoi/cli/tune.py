"""`knoi tune`: a grid search over width, regularisation and rank, on a subset of the pairs."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from knoi.cli import options
from knoi.cli.files import check_output, open_pairs, prefix_errors
from knoi.cli.output import (
    Interrupted,
    examples,
    messages,
    print_json,
    results,
    say,
    show_steps,
    table,
)
from knoi.cli.score import Evaluation, evaluate
from knoi.exceptions import InputError, MemoryBudgetError

if TYPE_CHECKING:
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi tune X.npy Y.npy --components 50",
    "knoi tune X.npy Y.npy --components 50 --method nystrom --ranks 1000,2000 --plot tune.svg",
    "knoi tune X.npy Y.npy --method fourier --widths 0.5x,0.7x,1x,1.4x --regs 1e-7,1e-6,1e-5",
    "knoi tune X.npy Y.npy --json | jq -r .command   (the command that fits the best)",
)
USAGE = "knoi tune X Y"
DEFAULT_FACTORS = (0.5, 1.0, 2.0)
HELD_OUT, MOST_HELD_OUT = 0.2, 10_000
PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def tune(
    context: typer.Context,
    x: options.ViewX,
    y: options.ViewY,
    components: Annotated[
        int,
        typer.Option("--components", "-k", metavar="N", min=1, help="Dimensions to project to."),
    ] = 10,
    method: options.MethodName = "auto",
    ranks: Annotated[
        Any,
        typer.Option(
            parser=options.list_of(options.count),
            metavar="LIST",
            help="Features per view, e.g. 1000,2000,4000; by default the method's default.",
        ),
    ] = None,
    widths: Annotated[
        Any,
        typer.Option(
            parser=options.list_of(options.pair_of(options.width_or_factor)),
            metavar="LIST",
            help="Numbers, or multiples of the median distance; by default 0.5x,1x,2x.",
        ),
    ] = None,
    regs: Annotated[
        Any,
        typer.Option(
            parser=options.list_of(options.pair_of(options.number_or("auto"))),
            metavar="LIST",
            help="E.g. 1e-7,1e-6,1e-5; the default depends on the method.",
        ),
    ] = None,
    subset: Annotated[
        int, typer.Option(metavar="N", min=10, help="Pairs to use, drawn at random.")
    ] = 100_000,
    held_out: Annotated[
        Any,
        typer.Option(
            parser=options.held_out_size,
            metavar="SIZE",
            help="Pairs of the subset to score on: a fraction or a number; by default a fifth, at "
            "most 10,000.",
        ),
    ] = None,
    seed: options.Seed = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Plot the results: a .png, .svg or .pdf (needs matplotlib)."
        ),
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    kernel: options.Kernel = None,
    approximation: options.Approximation = None,
    landmarks: options.Landmarks = None,
    epochs: options.Epochs = None,
    time: options.Seconds = None,
    settings: options.Settings = None,
    memory: options.Memory = None,
    jobs: options.Jobs = None,
    device: options.Device = None,
    debug: options.Debug = False,
) -> None:
    """Try a grid of widths, regularisations and ranks on a subset, and print which does best.

    As in the KNOI paper, every combination is fitted to a random subset and scored by the total
    correlation of held-out pairs. The last line printed is the command that fits the best
    combination to all pairs. Larger ranks are nearly always better; the table shows by how much.
    """
    # The options of the estimator, from `components` to `device`, are taken from the context.
    chosen, others = options.estimator_options(context), dict(settings or ())
    grid = {"rank": ranks, "width": widths, "reg": regs}
    first = {name: values[0] for name, values in grid.items() if values}
    method = options.resolve_method(method, {**chosen, **first})
    options.make_model(method, {**chosen, **first}, others)  # raises for options it does not have
    if plot is not None:
        _check_plot(plot, (x, y))
    search = Search(x, y, method, chosen, others)
    trials, sizes = _run(search, grid, subset, held_out, seed, as_json, quiet)
    best = _best(trials)
    if best.evaluation is None:
        raise MemoryBudgetError(best.error or "nothing fits into memory")
    if plot is not None:
        _write_plot(plot, trials, components)
    if as_json:
        print_json(_document(search, trials, sizes))
    else:
        _print_results(search, trials, plot, quiet)


@dataclass(frozen=True)
class Search:
    """What all fits of a grid search have in common."""

    x: Path
    y: Path
    method: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]

    def model(self, values: Mapping[str, Any]) -> "BaseCCA":
        """Return the estimator with these values."""
        return options.make_model(self.method, {**self.options, **values}, self.settings)

    def fit_command(self, values: Mapping[str, Any]) -> str:
        """Return the command that fits this combination to all pairs."""
        arguments = ["knoi", "fit", str(self.x), str(self.y), "-o", "model.knoi"]
        arguments += ["--method", self.method]
        for name, value in {**self.options, **values}.items():
            if value is None or (self.method, name) == ("linear", "kernel"):
                continue
            arguments += [f"--{name}", f"{value:g}s" if name == "time" else options.as_typed(value)]
        for name, value in self.settings.items():
            arguments += ["--set", f"{name}={'none' if value is None else value}"]
        return shlex.join(arguments)


@dataclass(frozen=True)
class Point:
    """One combination: some of rank, width, reg; and the width as a multiple of the median."""

    values: Mapping[str, Any]
    factor: float | None = None

    def format(self, name: str) -> str:
        """Format one value for the screen."""
        text = options.as_typed(self.values[name])
        return f"{text} ({self.factor:g}x)" if name == "width" and self.factor else text

    def without_reg(self) -> dict[str, Any]:
        """Return the values that determine the features."""
        return {name: value for name, value in self.values.items() if name != "reg"}


@dataclass(frozen=True)
class Trial:
    """The result of one combination; `evaluation` is None if it did not fit into memory."""

    point: Point
    seconds: float
    evaluation: Evaluation | None
    error: str | None = None

    @property
    def score(self) -> float:
        """Total correlation of the held-out pairs, by which trials are compared."""
        return float("-inf") if self.evaluation is None else self.evaluation.total


def _best(trials: list[Trial]) -> Trial:
    return max(trials, key=lambda trial: trial.score)


def _run(
    search: Search,
    grid: Mapping[str, Sequence[Any] | None],
    n_rows: int,
    held_out: int | float | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> tuple[list[Trial], tuple[int, int]]:
    """Fit and score the grid; return the trials, and the numbers of pairs fitted and held out."""
    from knoi.arrays.random import TUNING_SPLIT, TUNING_SUBSET, Purpose, derived_seed
    from knoi.data.pairs import PairSource

    with open_pairs(search.x, search.y, USAGE) as pairs:
        subset = pairs.sample(n_rows, derived_seed(seed, Purpose.PARTS, TUNING_SUBSET))
    trials: list[Trial] = []
    with PairSource.open(*subset) as pairs:
        if held_out is None:
            held_out = min(max(1, int(HELD_OUT * pairs.n_rows)), MOST_HELD_OUT)
        if not held_out:
            raise InputError("--held-out 0: there must be pairs to score on. Give e.g. 0.2.")
        with prefix_errors("--held-out"):
            train, test = pairs.split(held_out, derived_seed(seed, Purpose.PARTS, TUNING_SPLIT))
        points = _points(search, grid, train, seed)
        console = messages(quiet)
        say(
            console,
            f"{len(points)} fits of {search.method} to {train.n_rows:,} pairs, scored on "
            f"{test.n_rows:,} others",
        )
        try:
            with show_steps(console, len(points)) as step:
                for _, group in groupby(points, key=Point.without_reg):
                    trials.extend(_fit_group(list(group), search, train, test, step))
        except KeyboardInterrupt:
            if not as_json and trials:
                _print_results(search, trials, None, quiet)
            message = f"interrupted after {len(trials)} of {len(points)} fits."
            raise Interrupted(message, 130) from None
    return trials, (train.n_rows, test.n_rows)


def _points(
    search: Search, grid: Mapping[str, Sequence[Any] | None], train: "PairSource", seed: int
) -> list[Point]:
    """Return all combinations: rank by rank, width by width, regularisation by regularisation."""
    known = search.model({}).get_params(deep=False)
    ranks = grid["rank"] or [known.get("rank")]
    widths = _widths(grid["width"], known["kernel"], train, seed) if "width" in known else [None]
    points = []
    for rank, width, reg in product(
        ranks, widths, grid["reg"] or options.METHODS[search.method].regs
    ):
        number, factor = width or (None, None)
        values = {"rank": rank, "width": number, "reg": reg}
        points.append(Point({k: v for k, v in values.items() if v is not None}, factor))
    return points


def _widths(
    widths: Sequence[Any] | None, kernel: Any, train: "PairSource", seed: int
) -> Sequence[tuple[Any, float | None] | None]:
    """Return widths as numbers, with the multiple of the median if it is one for both views."""
    from knoi.checks import one_per_view
    from knoi.estimators.maps import kernels_for
    from knoi.kernels import resolve
    from knoi.kernels.base import WidthKernel

    kernels = one_per_view("kernel", kernel, lambda _name, one: resolve(one))
    if not any(isinstance(one, WidthKernel) for one in kernels):
        if widths:
            raise InputError(f"--widths: the {kernels[0].name} kernel has no width. Leave it out.")
        return [None]
    decided, _ = kernels_for(kernel, "median", train, seed)
    medians = [getattr(one, "width", None) for one in decided]
    numbers: list[tuple[Any, float | None]] = []
    for one in widths or [options.Factor(times) for times in DEFAULT_FACTORS]:
        both = one if isinstance(one, tuple) else (one, one)
        x, y = (_width(value, median) for value, median in zip(both, medians, strict=True))
        factor = one.times if isinstance(one, options.Factor) else None
        numbers.append((x if x == y else (x, y), factor))
    return numbers


def _width(value: float | options.Factor, median: float | None) -> float:
    if not isinstance(value, options.Factor):
        return value
    # A view whose kernel has no width ignores the number.
    return float(f"{value.times * (1.0 if median is None else median):.6g}")


def _fit_group(
    group: list[Point],
    search: Search,
    train: "PairSource",
    test: "PairSource",
    step: Callable[[str], None],
) -> Iterator[Trial]:
    """Fit points that differ in regularisation only; closed forms share the moments."""
    from knoi.estimators.closed_form import ClosedFormCCA

    model: BaseCCA | None = None
    for point in group:
        step(", ".join(f"{name} {point.format(name)}" for name in point.values))
        began = perf_counter()
        try:
            if isinstance(model, ClosedFormCCA):
                model.set_params(reg=point.values["reg"]).solve()
            else:
                model = search.model(point.values)
                if isinstance(model, ClosedFormCCA) and len(group) > 1:
                    model.partial_fit(*train.views())
                else:
                    model.fit(*train.views())
        except MemoryBudgetError as error:
            model = None
            yield Trial(point, perf_counter() - began, None, str(error))
            continue
        seconds = perf_counter() - began
        yield Trial(point, seconds, evaluate(model, *test.views()))


def _document(search: Search, trials: list[Trial], sizes: tuple[int, int]) -> dict[str, Any]:
    def described(trial: Trial) -> dict[str, Any]:
        evaluation = trial.evaluation
        return {
            **trial.point.values,
            "width_factor": trial.point.factor,
            "total_correlation": None if evaluation is None else evaluation.total,
            "total_correlation_refit": None if evaluation is None else evaluation.total_refit,
            "seconds": trial.seconds,
            "error": trial.error,
        }

    best = _best(trials)
    return {
        "method": search.method,
        "components": search.options["components"],
        "rows": sizes[0],
        "rows_left_out": sizes[1],
        "trials": [described(trial) for trial in trials],
        "best": described(best),
        "command": search.fit_command(best.point.values),
    }


def _print_results(search: Search, trials: list[Trial], plot: Path | None, quiet: bool) -> None:
    console, best = results(quiet), _best(trials)
    console.print(_table(search, trials, best))
    if plot is not None:
        say(console, f"Plot: {plot}")
    say(console, "To fit the best to all pairs:", f"  {search.fit_command(best.point.values)}")


def _table(search: Search, trials: list[Trial], best: Trial) -> Table:
    names = list(trials[0].point.values)
    total = f"total correlation of held-out pairs, at most {search.options['components']}"
    made = table("", *names, "total", "refit", "s", title=f"{search.method}: {total}")
    for trial in trials:
        cells = [trial.point.format(name) for name in names]
        if trial.evaluation is None:
            cells += ["out of memory", "-", "-"]
        else:
            cells += [f"{trial.evaluation.total:.3f}", f"{trial.evaluation.total_refit:.3f}"]
            cells.append(f"{trial.seconds:.1f}")
        style = "bold" if trial is best else ""
        made.add_row("best" if trial is best else "", *(Text(cell) for cell in cells), style=style)
    return made


def _check_plot(path: Path, inputs: Sequence[Path]) -> None:
    """Check that the plot can be drawn and written, before anything is computed."""
    from knoi.exceptions import require

    check_output(path, "--plot", inputs)
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise InputError(f"--plot {path}: wanted a name that ends in {', '.join(PLOT_SUFFIXES)}.")
    require("matplotlib.figure", "plot", "a plot")


def _write_plot(path: Path, trials: list[Trial], n_components: int) -> None:
    """Plot the score against the value that varies most, one line per combination of the others."""
    from matplotlib.figure import Figure

    from knoi.fileio import atomic_write

    done = [trial for trial in trials if trial.evaluation is not None]
    values = {
        name: list(dict.fromkeys(trial.point.format(name) for trial in done))
        for name in done[0].point.values
    }
    axis = max(values, key=lambda name: len(values[name]))
    others = [name for name in values if name != axis and len(values[name]) > 1]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    lines: dict[str, list[Trial]] = {}
    for trial in done:
        name = ", ".join(f"{other} {trial.point.format(other)}" for other in others)
        lines.setdefault(name, []).append(trial)
    for name, line in lines.items():
        places = [values[axis].index(trial.point.format(axis)) for trial in line]
        axes.plot(places, [trial.score for trial in line], marker="o", label=name or None)
    axes.set_xticks(range(len(values[axis])), values[axis])
    axes.set_xlabel(axis)
    axes.set_ylabel(f"total correlation of held-out pairs, of {n_components}")
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="small")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)
