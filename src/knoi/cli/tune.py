"""`knoi tune`: width, regularisation, rank or number of components, on a subset of the pairs."""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from knoi.checks import Factor
from knoi.cli import options
from knoi.cli.files import check_output, hold_out, open_pairs
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
from knoi.cli.score import evaluate
from knoi.exceptions import InputError, MemoryBudgetError

if TYPE_CHECKING:
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA
    from knoi.estimators.tune import Fit

EXAMPLES = examples(
    "knoi tune X.npy Y.npy --components 50",
    "knoi tune X.npy Y.npy --components 50 --method nystrom --ranks 1000,2000 --plot tune.svg",
    "knoi tune X.npy Y.npy --method fourier --widths 0.5x,0.7x,1x,1.4x --regs 1e-7,1e-6,1e-5",
    "knoi tune X.npy Y.npy --json | jq -r .command   (the command that fits the best)",
    "knoi tune X.npy Y.npy --components auto --plot scree.svg   (how many components)",
)
USAGE = "knoi tune X Y"
DEFAULT_FACTORS = (0.5, 1.0, 2.0)
PLOT_SUFFIXES = (".png", ".svg", ".pdf")
# Components that are fitted to see how many are above chance, and shuffles behind "chance".
MOST_TRIED, N_PERMUTATIONS, LEVEL = 50, 199, 0.05

# A trial is one combination and its results, as in the JSON document: some of these three values;
# "width_factor", the width as a multiple of the median; "total_correlation" and
# "total_correlation_refit" of the held-out pairs, None if it did not fit into memory; "error".
GRID = ("rank", "width", "reg")
TOTALS = ("total_correlation", "total_correlation_refit")
Trial = dict[str, Any]

_COMPONENTS = (
    "Dimensions to project to; by default 10, or the number of columns if smaller. auto: as many "
    "as correlate on held-out pairs, of at most 50; nothing else is tried then."
)
_RANKS = "Features per view, e.g. 1000,2000,4000; by default the method's default."
_WIDTHS = "Numbers, or multiples of the median distance; by default 0.5x,1x,2x."
_REGS = "E.g. 1e-7,1e-6,1e-5; the default depends on the method."
_HELD_OUT = (
    "Pairs of the subset to score on: a fraction or a number; by default a fifth, at most 10,000."
)
_PLOT = "Plot the results: a .png, .svg or .pdf (needs matplotlib)."


def _grid(text: str, one: Callable[[str], Any]) -> Any:
    return options.option("LIST", text, parser=options.list_of(one))


def tune(
    context: typer.Context,
    x: options.ViewX,
    y: options.ViewY,
    components: Annotated[
        Any,
        options.option("N", _COMPONENTS, "--components", "-k", parser=options.count_or_auto),
    ] = None,
    method: options.MethodName = "auto",
    ranks: Annotated[Any, _grid(_RANKS, options.count)] = None,
    widths: Annotated[Any, _grid(_WIDTHS, options.pair_of(options.width_or_factor))] = None,
    regs: Annotated[Any, _grid(_REGS, options.pair_of(options.number_or("auto")))] = None,
    subset: Annotated[int, options.option("N", "Pairs to use, drawn at random.", min=10)] = 100_000,
    held_out: Annotated[
        Any, options.option("SIZE", _HELD_OUT, parser=options.held_out_size)
    ] = None,
    seed: options.Seed = 0,
    plot: Annotated[Path | None, options.option("FILE", _PLOT)] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    kernel: options.Kernel = None,
    metric: options.Metric = None,
    scale: options.Scale = None,
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

    With --components auto the number of components is chosen instead: many are fitted, and their
    correlations on held-out pairs are compared with those of the same pairs shuffled.
    """
    from knoi.arrays.random import TUNING_SPLIT, TUNING_SUBSET, Purpose, derived_seed
    from knoi.data.pairs import PairSource
    from knoi.estimators.tune import fits, rows_to_hold_out

    # The options of the estimator, from `components` to `device`, are taken from the context.
    chosen, others = options.estimator_options(context), dict(settings or ())
    grid = {"rank": ranks, "width": widths, "reg": regs}
    first = {name: values[0] for name, values in grid.items() if values}
    scree = components == "auto"
    if scree:
        chosen["components"] = None
        if several := [name for name, values in grid.items() if values and len(values) > 1]:
            message = f"auto takes one value of --{several[0]}s. Tune them first."
            raise options.usage_error("components", message)
    method = options.resolve_method(method, {**chosen, **first})
    options.make_model(method, {**chosen, **first}, others)  # raises for options it does not have
    if plot is not None:
        _check_plot(plot, (x, y))
    with open_pairs(x, y, USAGE) as pairs:
        if components is None and "n_components" not in others:
            chosen["components"] = min(options.MOST_COMPONENTS, *pairs.n_cols)
        sample = pairs.sample(subset, derived_seed(seed, Purpose.PARTS, TUNING_SUBSET))
    trials: list[Trial] = []

    def make(values: Mapping[str, Any]) -> "BaseCCA":
        return options.make_model(method, {**chosen, **values}, others)

    def document() -> dict[str, Any]:
        best = max(trials, key=_score)
        return {
            "method": method,
            "components": make({}).n_components,
            "rows": train.n_rows,
            "rows_left_out": test.n_rows,
            "trials": trials,
            "best": best,
            "command": _fit_command(x, y, method, {**chosen, **_values(best)}, others),
        }

    with PairSource.open(*sample) as pairs:
        if held_out is None:
            held_out = rows_to_hold_out(pairs.n_rows)
        train, test = hold_out(pairs, held_out, seed, TUNING_SPLIT)
        if scree:
            if widths:
                defaults = make({}).get_params(deep=False)
                first |= _values(_widths(widths, defaults["kernel"], train, seed)[0])
            model = _fit_many(make(first), train, messages(quiet))
            if plot is not None:
                _save_plot(plot, lambda axes: model.plot_correlations(*test.views(), ax=axes))
            found = _describe_scree(model, train, test, seed)
            n = found["components"]
            values = {**chosen, **first, "components": n}
            found["command"] = _fit_command(x, y, method, values, others) if n else None
            print_json(found) if as_json else _print_scree(found, plot, quiet)
            return
        points = _points(grid, make({}).get_params(deep=False), method, train, seed)
        console = messages(quiet)
        what = f"{len(points)} fits of {method} to {train.n_rows:,} pairs"
        say(console, f"{what}, scored on {test.n_rows:,} others")
        try:
            with show_steps(console, len(points)) as step:

                def announce(point: Mapping[str, Any]) -> None:
                    step(", ".join(f"{name} {_format(point, name)}" for name in _values(point)))

                fitted = fits(lambda point: make(_values(point)), points, *train.views(), announce)
                trials.extend(_trial(fit, test) for fit in fitted)
        except KeyboardInterrupt:
            if trials and not as_json:
                _print_results(document(), None, quiet)
            message = f"interrupted after {len(trials)} of {len(points)} fits."
            raise Interrupted(message, 130) from None
    found = document()
    if found["best"]["error"] is not None:
        raise MemoryBudgetError(found["best"]["error"])
    if plot is not None:
        _save_plot(plot, lambda axes: _draw(axes, found))
    if as_json:
        print_json(found)
    else:
        _print_results(found, plot, quiet)


def _fit_many(model: "BaseCCA", train: "PairSource", console: Console) -> "BaseCCA":
    """Fit as many components as can exist, up to a number."""
    from knoi.exceptions import RankError

    most = min(MOST_TRIED, train.n_rows - 1, getattr(model, "rank", MOST_TRIED))
    what = f"Fitting {type(model).__name__}: {most} components of {train.n_rows:,} pairs"
    say(console, what)
    try:
        model.set_params(n_components=most).fit(*train.views())
    except RankError as error:
        if not 0 < error.most < most:
            raise
        model.set_params(n_components=error.most).fit(*train.views())
    return model


def _describe_scree(
    model: "BaseCCA", train: "PairSource", test: "PairSource", seed: int
) -> dict[str, Any]:
    """Return the correlations of held-out pairs, and which are above chance, for JSON."""
    found = model.permutation_test(*test.views(), N_PERMUTATIONS, seed)
    return {
        "method": type(model).__name__,
        "components": found.n_components(LEVEL),
        "tried": len(found.correlations),
        "rows": train.n_rows,
        "rows_left_out": test.n_rows,
        "in_sample": model.correlations_,
        "correlations": found.correlations,
        "corrected_p_values": found.corrected_p_values,
        "significant": found.significant(LEVEL),
        "chance": float(found.null_largest_quantiles[-1]),
    }


def _print_scree(found: dict[str, Any], plot: Path | None, quiet: bool) -> None:
    console, n = results(quiet), int(found["components"])
    title = f"{found['method']}: correlation of {found['rows_left_out']:,} held-out pairs"
    made = table(
        "component",
        "in-sample",
        "held out",
        "p, corrected",
        title=title,
        caption=f"95% of random pairings have no component above {found['chance']:.3f}",
    )
    columns = (found[name] for name in ("in_sample", "correlations", "corrected_p_values"))
    rows = zip(found["significant"], *columns, strict=True)
    # Those after the last that counts, but a few, say nothing more.
    for k, (counts, inside, outside, p) in enumerate(islice(rows, n + 3), start=1):
        made.add_row(
            str(k),
            f"{inside:.3f}",
            f"{outside:.3f}",
            f"{p:.2g}",
            style="bold" if counts else "dim",
        )
    console.print(made)
    if plot is not None:
        say(console, f"Plot: {plot}")
    if not n:
        say(console, "No component correlates more than chance: the views may not be related.")
        return
    say(
        console,
        f"{found['significant'].sum()} of {found['tried']} components correlate more than chance "
        f"(p < {LEVEL}), the last of them is component {n}. To fit {n} to all pairs:",
        f"  {found['command']}",
    )


def _score(trial: Trial) -> Any:
    """Return the total correlation by which trials are compared."""
    return -math.inf if trial["error"] is not None else trial["total_correlation"]


def _values(trial: Mapping[str, Any]) -> dict[str, Any]:
    return {name: trial[name] for name in GRID if name in trial}


def _format(trial: Mapping[str, Any], name: str) -> str:
    text = options.as_typed(trial[name])
    factor = trial.get("width_factor") if name == "width" else None
    return f"{text} ({factor:g}x)" if factor else text


def _fit_command(
    x: Path, y: Path, method: str, values: Mapping[str, Any], settings: Mapping[str, Any]
) -> str:
    """Return the command that fits a combination to all pairs."""
    arguments = ["knoi", "fit", str(x), str(y), "-o", "model.knoi", "--method", method]
    for name, value in values.items():
        if value is None or (method, name) == ("linear", "kernel"):
            continue
        arguments += [f"--{name}", f"{value:g}s" if name == "time" else options.as_typed(value)]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join(arguments)


def _points(
    grid: Mapping[str, Sequence[Any] | None],
    defaults: Mapping[str, Any],
    method: str,
    train: "PairSource",
    seed: int,
) -> list[dict[str, Any]]:
    """Return all combinations: rank by rank, width by width, regularisation by regularisation."""
    ranks = grid["rank"] or [defaults.get("rank")]
    widths: list[dict[str, Any]] = [{}]
    if "width" in defaults:
        widths = _widths(grid["width"], defaults["kernel"], train, seed)
    regs = grid["reg"] or options.METHODS[method].regs
    points = ({"rank": r, **width, "reg": g} for r, width, g in product(ranks, widths, regs))
    return [{k: v for k, v in point.items() if v is not None} for point in points]


def _widths(
    widths: Sequence[Any] | None, kernel: Any, train: "PairSource", seed: int
) -> list[dict[str, Any]]:
    """Return widths as numbers, with the multiple of the median if it is one for both views."""
    from knoi.checks import one_per_view
    from knoi.estimators.setup import kernels_for
    from knoi.kernels import resolve
    from knoi.kernels.base import WidthKernel

    kernels = one_per_view("kernel", kernel, lambda _name, one: resolve(one))
    if not any(isinstance(one, WidthKernel) for one in kernels):
        if widths:
            raise InputError(f"--widths: the {kernels[0].name} kernel has no width. Leave it out.")
        return [{}]
    decided, _ = kernels_for(kernel, "median", train, seed)
    # A view whose kernel has no width ignores the number.
    medians = [getattr(one, "width", 1.0) for one in decided]
    numbers = []
    for one in widths or [Factor(times) for times in DEFAULT_FACTORS]:
        both = one if isinstance(one, tuple) else (one, one)
        x, y = (
            float(f"{width.times * median:.6g}") if isinstance(width, Factor) else width
            for width, median in zip(both, medians, strict=True)
        )
        factor = one.times if isinstance(one, Factor) else None
        numbers.append({"width": x if x == y else (x, y), "width_factor": factor})
    return numbers


def _trial(fit: "Fit", test: "PairSource") -> Trial:
    """Score a fit by both measures."""
    evaluation = {} if fit.model is None else evaluate(fit.model, *test.views())
    totals = {name: evaluation.get(name) for name in TOTALS}
    found = {"seconds": fit.seconds, "error": fit.error}
    return {"width_factor": None, **fit.params, **totals, **found}


def _print_results(found: dict[str, Any], plot: Path | None, quiet: bool) -> None:
    console = results(quiet)
    console.print(_table(found))
    if plot is not None:
        say(console, f"Plot: {plot}")
    say(console, "To fit the best to all pairs:", f"  {found['command']}")


def _table(found: dict[str, Any]) -> Table:
    names = list(_values(found["best"]))
    total = f"total correlation of held-out pairs, at most {found['components']}"
    made = table("", *names, "total", "refit", "s", title=f"{found['method']}: {total}")
    for trial in found["trials"]:
        cells = [_format(trial, name) for name in names]
        if trial["error"] is not None:
            cells += ["out of memory", "-", "-"]
        else:
            cells += [*(f"{trial[name]:.3f}" for name in TOTALS), f"{trial['seconds']:.1f}"]
        mark, style = ("best", "bold") if trial is found["best"] else ("", "")
        made.add_row(mark, *cells, style=style)
    return made


def _check_plot(path: Path, inputs: Sequence[Path]) -> None:
    from knoi.exceptions import require

    check_output(path, "--plot", inputs)
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise InputError(f"--plot {path}: wanted a name that ends in {', '.join(PLOT_SUFFIXES)}.")
    require("matplotlib.figure", "plot", "a plot")


def _save_plot(path: Path, draw: Callable[[Any], Any]) -> None:
    """Write a plot that `draw` draws on matplotlib's Axes."""
    from matplotlib.figure import Figure

    from knoi.fileio import atomic_write

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    draw(figure.subplots())
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _draw(axes: Any, found: dict[str, Any]) -> None:
    """Draw the score against the value that varies most, one line per combination of the others."""
    done = [trial for trial in found["trials"] if trial["error"] is None]
    values = {
        name: list(dict.fromkeys(_format(trial, name) for trial in done))
        for name in _values(found["best"])
    }
    axis = max(values, key=lambda name: len(values[name]))
    others = [name for name in values if name != axis and len(values[name]) > 1]
    lines: dict[str, list[tuple[int, float]]] = {}
    for trial in done:
        name = ", ".join(f"{other} {_format(trial, other)}" for other in others)
        place = values[axis].index(_format(trial, axis))
        lines.setdefault(name, []).append((place, _score(trial)))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name or None)
    axes.set_xticks(range(len(values[axis])), values[axis])
    total = f"total correlation of held-out pairs, of {found['components']}"
    axes.set(xlabel=axis, ylabel=total)
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="small")
