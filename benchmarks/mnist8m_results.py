"""The paper's Table 1 beside ours, and its Figure 1: from the cells of `knoi bench mnist8m`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table_parts import MISSING, NO_VALUE, Cell, closing_line, table
from knoi.bench.cells import Cells
from knoi.bench.mnist8m import METHODS, PAPER, TEST_ROWS
from knoi.bench.mnist8m import L as COMPONENTS

NAME = "mnist8m"
COMMAND = "benchmarks.paper.mnist8m"
# Times at which the methods are compared, in minutes.
BUDGETS = (2, 5, 10, 20, 40, 60)
# What tells the methods apart: colour and marker (colours safe for the colour-blind).
STYLES = {
    "linear": ("#000000", "x"),
    "fkcca": ("#56B4E9", "s"),
    "nkcca": ("#009E73", "D"),
    "dsgd": ("#CC79A7", "P"),
    "knoi": ("#999999", "o"),
    "knoi-fourier": ("#0072B2", "v"),
    "knoi-nystrom": ("#D55E00", "^"),
}


def measured(results: Path) -> list[Cell]:
    """All cells judged on all test rows, in the order of methods, rank and samples."""
    cells = [cell for cell in Cells(results / NAME).all() if cell["test_rows"] == TEST_ROWS]
    order = list(METHODS)
    return sorted(
        cells,
        key=lambda c: (order.index(c["method"]), c["rank"] or 0, c["samples_given"], c["seed"]),
    )


def mnist8m(results: Path) -> str:
    """Every cell beside the paper's number for the same method and rank."""
    cells = measured(results)
    rows = [_row(point) for cell in cells for point in (*_subsets(cell), cell)]
    there = {(cell["method"], cell["rank"]) for cell in cells}
    for name, rank in PAPER:
        if (name, rank) not in there:
            rows.append([*_named(name, rank), *[MISSING if not cells else NO_VALUE] * 5])
            rows[-1] += _paper(name, rank)
    columns = (
        "method",
        "M",
        "samples",
        "refit",
        "fitted",
        "minutes",
        "cores busy",
        "paper, 8M samples",
        "paper, minutes on 6 cores",
    )
    return table(columns, rows) + closing_line(dict(enumerate(cells)), COMMAND)  # type: ignore[arg-type]


def _subsets(cell: Cell) -> list[Cell]:
    """What an exact method reached on fewer rows, as cells."""
    return [{**cell, **point, "subsets": []} for point in cell.get("subsets", ())]


def _row(cell: Cell) -> list[str]:
    return [
        *_named(cell["method"], cell["rank"]),
        f"{cell['samples']:,}",
        f"{cell['refit']:.2f}",
        f"{cell['fitted']:.2f}",
        f"{cell['seconds'] / 60:.1f}",
        f"{cell['busy_cores']:.1f}",
        *_paper(cell["method"], cell["rank"]),
    ]


def _named(name: str, rank: int | None) -> list[str]:
    return [METHODS[name].label, NO_VALUE if rank is None else f"{rank:,}"]


def _paper(name: str, rank: int | None) -> list[str]:
    if (name, rank) not in PAPER:
        return [NO_VALUE, NO_VALUE]
    return [f"{value}" for value in PAPER[name, rank]]


def mnist8m_minutes(results: Path) -> str:
    """The best each method has reached within so many minutes, whatever its rank and samples."""
    cells = measured(results)
    rows = []
    for name, method in METHODS.items():
        points = [point for cell in cells if cell["method"] == name for point in by_minutes(cell)]
        reached = [
            max((refit for minutes, refit in points if minutes <= budget), default=None)
            for budget in BUDGETS
        ]
        if points or not cells:
            texts = [NO_VALUE if value is None else f"{value:.2f}" for value in reached]
            rows.append([method.label, *(texts if cells else [MISSING] * len(BUDGETS))])
    columns = ("method", *(f"{budget} min" for budget in BUDGETS))
    return table(columns, rows) + closing_line(dict(enumerate(cells)), COMMAND)  # type: ignore[arg-type]


def by_minutes(cell: Cell) -> list[tuple[float, float]]:
    """(minutes, refit) a user would have had the model after: set-up, training and final CCA."""
    if "curve" not in cell:
        return [(one["seconds"] / 60, one["refit"]) for one in (*_subsets(cell), cell)]
    setup = cell["setup_seconds"]
    return [
        ((setup + p["train_seconds"] + p["finish_seconds"]) / 60, p["refit"]) for p in cell["curve"]
    ]


def _curves(cells: list[Cell]) -> Iterator[tuple[Cell, str]]:
    for cell in cells:
        if "curve" in cell:
            yield cell, f"{METHODS[cell['method']].label}, M = {cell['rank']:,}"


def figure_by_samples(plt: Any, results: Path) -> Any:
    """Figure 1 of the paper: correlation against samples, exact methods as horizontal lines."""
    cells = measured(results)
    figure, axes = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
    for cell, label in _curves(cells):
        colour, marker = STYLES[cell["method"]]
        samples = [point["samples"] / 1e6 for point in cell["curve"]]
        refit = [point["refit"] for point in cell["curve"]]
        style = ("-", "--", ":", "-.")[_rank_order(cells, cell) % 4]
        axes.plot(samples, refit, color=colour, marker=marker, ms=4, ls=style, label=label)
    exact = [cell for cell in cells if "curve" not in cell and cell["samples"] >= 1_000_000]
    exact.sort(key=lambda cell: cell["refit"])
    heights = spread([cell["refit"] for cell in exact], 0.03 * _height(cells))
    for cell, height in zip(exact, heights, strict=True):
        colour, _ = STYLES[cell["method"]]
        axes.axhline(cell["refit"], color=colour, lw=0.8, ls="--")
        rank = "" if cell["rank"] is None else f" {cell['rank']:,}"
        axes.annotate(
            f"{METHODS[cell['method']].label}{rank}, {cell['samples'] / 1e6:.0f}M",
            xy=(1.0, cell["refit"]),
            xytext=(1.02, height),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5},
            annotation_clip=False,
        )
    axes.set_xlabel("training samples, millions")
    return _finished(figure, axes)


def spread(values: list[float], gap: float) -> list[float]:
    """Rising values moved up as little as makes them `gap` apart: places for labels."""
    places: list[float] = []
    for value in values:
        places.append(value if not places else max(value, places[-1] + gap))
    return places


def _height(cells: list[Cell]) -> float:
    """From the lowest to the highest point of a picture."""
    refits = [refit for cell in cells for _, refit in by_minutes(cell)]
    return max(refits) - min(refits)


def figure_by_minutes(plt: Any, results: Path) -> Any:
    """Correlation against minutes on this machine, for all methods."""
    cells = measured(results)
    figure, axes = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
    for cell, label in _curves(cells):
        colour, marker = STYLES[cell["method"]]
        points = by_minutes(cell)
        style = ("-", "--", ":", "-.")[_rank_order(cells, cell) % 4]
        axes.plot(
            *zip(*points, strict=True), color=colour, marker=marker, ms=4, ls=style, label=label
        )
    for name, method in METHODS.items():
        points = [
            p for c in cells if c["method"] == name and "curve" not in c for p in by_minutes(c)
        ]
        if points:
            colour, marker = STYLES[name]
            axes.scatter(
                *zip(*points, strict=True), color=colour, marker=marker, s=22, label=method.label
            )
    axes.set_xlabel("minutes, set-up included")
    return _finished(figure, axes)


def _rank_order(cells: list[Cell], cell: Cell) -> int:
    """The place of a cell's rank among those of its method, so that each has its line style."""
    own = sorted({c["rank"] for c in cells if c["method"] == cell["method"]})
    return own.index(cell["rank"])


def _finished(figure: Any, axes: Any) -> Any:
    axes.set_xscale("log", subs=(2, 5))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(which="both", labelsize=8)
    axes.set_ylabel(f"total correlation of held-out pairs, of {COMPONENTS} (refit)")
    axes.grid(alpha=0.3)
    figure.legend(fontsize=7, loc="outside upper left", ncols=3, frameon=False)
    return figure


TABLES = {"mnist8m": mnist8m, "mnist8m_minutes": mnist8m_minutes}
