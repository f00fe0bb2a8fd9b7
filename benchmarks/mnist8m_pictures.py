"""The paper's Figure 1, and the same against minutes: from the cells of `knoi bench mnist8m`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.mnist8m_results import by_minutes, measured
from benchmarks.table_parts import Cell
from knoi.bench.mnist8m import METHODS
from knoi.bench.mnist8m import L as COMPONENTS

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

# What is enlarged: this much below the best.
UPPER_END = 6.0


def _curves(cells: list[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Every cell that has a learning curve, and how its line looks."""
    for cell in cells:
        if "curve" in cell:
            colour, marker = STYLES[cell["method"]]
            dashes = ("-", "--", ":", "-.")[_rank_order(cells, cell) % 4]
            label = f"{METHODS[cell['method']].label}, M = {cell['rank']:,}"
            yield cell, {"color": colour, "marker": marker, "ms": 4, "ls": dashes, "label": label}


def figure_by_samples(plt: Any, results: Path) -> Any:
    """Figure 1 of the paper: correlation against samples, exact methods as horizontal lines."""
    cells = measured(results)
    figure, axes = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
    for cell, look in _curves(cells):
        samples = [point["samples"] / 1e6 for point in cell["curve"]]
        axes.plot(samples, [point["refit"] for point in cell["curve"]], **look)
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
    _scales(axes)
    return _with_legend(figure, axes)


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
    """Correlation against minutes on this machine, for all methods; its upper end enlarged."""
    cells = measured(results)
    figure, (whole, upper) = plt.subplots(
        2, sharex=True, figsize=(7.6, 8.0), height_ratios=(4, 5), layout="constrained"
    )
    for axes in (whole, upper):
        _draw_minutes(axes, cells)
        _scales(axes)
    best = max(refit for cell in cells for _, refit in by_minutes(cell))
    upper.set_ylim(best - UPPER_END, best + 0.05 * UPPER_END)
    upper.set_xlabel("minutes, set-up included")
    return _with_legend(figure, whole)


def _draw_minutes(axes: Any, cells: list[Cell]) -> None:
    for cell, look in _curves(cells):
        axes.plot(*zip(*by_minutes(cell), strict=True), **look)
    for name, method in METHODS.items():
        points = [
            p for c in cells if c["method"] == name and "curve" not in c for p in by_minutes(c)
        ]
        if points:
            colour, marker = STYLES[name]
            axes.scatter(
                *zip(*points, strict=True), color=colour, marker=marker, s=22, label=method.label
            )


def _rank_order(cells: list[Cell], cell: Cell) -> int:
    """The place of a cell's rank among those of its method, so that each has its line style."""
    own = sorted({c["rank"] for c in cells if c["method"] == cell["method"]})
    return own.index(cell["rank"])


def _scales(axes: Any) -> None:
    axes.set_xscale("log", subs=(2, 5))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(which="both", labelsize=8)
    axes.set_ylabel(f"total correlation of held-out pairs, of {COMPONENTS} (refit)", fontsize=9)
    axes.grid(alpha=0.3)


def _with_legend(figure: Any, axes: Any) -> Any:
    figure.legend(
        *axes.get_legend_handles_labels(),
        fontsize=7,
        loc="outside upper left",
        ncols=3,
        frameon=False,
    )
    return figure
