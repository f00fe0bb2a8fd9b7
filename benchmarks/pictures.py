"""The pictures of the documents, drawn from `benchmarks/results`.

    python -m benchmarks.pictures [--only NAME ...] [--to FOLDER]

mnist8m_minutes, mnist8m_samples: every method of Table 1 of the KNOI paper. learning_curves: total
correlation of held-out pairs (refit) against training samples; the closed form on the same data as
a horizontal line. feature_maps: kernel error against the number of features. speech: phone error
rates against those of MFCC. Written to docs/pictures as SVG. Needs matplotlib: pip install
'.[bench]'.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.features import accuracy
from benchmarks.features.accuracy import Series
from benchmarks.harness import RESULTS
from benchmarks.paper import learning_curves as curves
from benchmarks.paper.mnist8m import METHODS, PART, by_minutes, measured
from benchmarks.paper.mnist8m import L as COMPONENTS
from benchmarks.speech import methods as speech
from benchmarks.speech.tables import KINDS, label_of
from benchmarks.speech.tables import measured as speech_cells
from benchmarks.tables import Cell, cells_of, settings

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

# Methods, curves and maps differ in colour (safe for the colour-blind) and marker.

# Table 1 and Figure 1 of the KNOI paper.

METHOD_STYLES = {
    "linear": ("#000000", "x"),
    "fkcca": ("#56B4E9", "s"),
    "nkcca": ("#009E73", "D"),
    "dsgd": ("#CC79A7", "P"),
    "knoi": ("#999999", "o"),
    "knoi-fourier": ("#0072B2", "v"),
    "knoi-nystrom": ("#D55E00", "^"),
    "knoi-metric": ("#7F3C8D", "D"),
    "deep": ("#E69F00", "*"),
}

# The enlarged part reaches this far below the best.
UPPER_END = 6.0


def _curves(cells: list[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Every cell that has a learning curve, and how its line looks."""
    for cell in cells:
        if "curve" in cell:
            colour, marker = METHOD_STYLES[cell["method"]]
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
    planned = [cell for cell in cells if cell["method"] == "deep"]
    if planned:
        axes.scatter(
            [cell["samples"] / 1e6 for cell in planned],
            [cell["refit"] for cell in planned],
            color=METHOD_STYLES["deep"][0],
            marker=METHOD_STYLES["deep"][1],
            label=METHODS["deep"].label,
        )
    exact = [cell for cell in cells if METHODS[cell["method"]].regs and cell["samples"] >= PART]
    exact.sort(key=lambda cell: cell["refit"])
    heights = spread([cell["refit"] for cell in exact], 0.03 * _height(cells))
    for cell, height in zip(exact, heights, strict=True):
        colour, _ = METHOD_STYLES[cell["method"]]
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
            colour, marker = METHOD_STYLES[name]
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


# Learning curves of KNOI.

CURVE_STYLES = {
    "published": ("published algorithm, Fourier", "#999999", "s"),
    "fourier": ("KNOI, Fourier", "#0072B2", "o"),
    "nystrom8192": ("KNOI, Nystrom", "#E69F00", "^"),
    "nystrom16384": ("KNOI, Nystrom", "#D55E00", "v"),
}


def lines(results: Path) -> list[tuple[str, str, str, list[float], list[float]]]:
    """(label, colour, marker, samples, refit) of each curve that was measured."""
    found = []
    for name, cell in curves.full_curves(cells_of(results, curves.NAME)).items():
        label, colour, marker = CURVE_STYLES[name]
        points = sorted(cell["curve"].values(), key=lambda point: point["samples"])
        samples = [point["samples"] / 1000 for point in points]
        label = f"{label}, M = {curves.CASES[name].rank:,}"
        found.append((label, colour, marker, samples, [point["refit"] for point in points]))
    return found


def levels(results: Path) -> list[tuple[str, float]]:
    """(label, refit) of each exact solution that was measured on the same data."""
    best: dict[str, float] = {}
    for key, cell in cells_of(results, "speed_against_exact").items():
        run, exact = settings(key), cell["exact"]
        label = f"exact, Nystrom, M = {int(run['rank']):,}, {int(run['samples']):,} pairs"
        best[label] = max(exact["refit"], best.get(label, 0.0))
    return sorted(best.items())


def figure_of_curves(plt: Any, results: Path) -> Any:
    """The figure of learning curves."""
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    for label, colour, marker, samples, refit in lines(results):
        axes.plot(samples, refit, color=colour, marker=marker, markersize=5, label=label)
    for k, (label, value) in enumerate(levels(results)):
        axes.axhline(value, color="black", linestyle=("--", ":", "-.")[k % 3], label=label)
    axes.set_xlabel("training samples, thousands")
    axes.set_ylabel(f"total correlation of held-out pairs, of {curves.L} (refit)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    return figure


# Feature maps.

LOWEST = 1e-7  # lower limit of the errors shown
Line = tuple[Series, str]  # what is drawn, and its label

MAP_STYLES = {
    "fourier": ("#999999", "s"),
    "fourier-paired": ("#000000", "x"),
    "orthogonal": ("#0072B2", "o"),
    "qmc": ("#009E73", "^"),
    "hadamard": ("#D55E00", "v"),
    "fastfood": ("#CC79A7", "D"),
    "nystrom-uniform": ("#E69F00", "<"),
    "nystrom-kmeans": ("#E69F00", ">"),
    "taylor": ("#56B4E9", "P"),
    "tensor_sketch": ("#0072B2", "o"),
    "maclaurin": ("#D55E00", "v"),
    "compact_maclaurin": ("#E69F00", "^"),
    "spherical": ("#CC79A7", "D"),
    "arccosine": ("#999999", "s"),
}
# Panels with one map for several kernels tell the kernels apart.
KERNEL_STYLES = {
    "matern": ("#0072B2", "o"),
    "laplacian": ("#D55E00", "v"),
    "cauchy": ("#009E73", "^"),
    "additive_chi2": ("#0072B2", "o"),
    "intersection": ("#D55E00", "v"),
    "chi2": ("#009E73", "^"),
}


@dataclass(frozen=True)
class Panel:
    """A title and its lines; those of `shared` have one legend for all."""

    title: str
    lines: tuple[Line, ...]
    shared: bool = False


def _panels() -> Iterator[Panel]:
    names = {"mnist": "MNIST halves, 392", "mocha-windows": "MOCHA windows, 98"}
    for data, name in {**names, "mocha": "MOCHA frames, 14"}.items():
        lines = ((s, s.map) for s in accuracy.SERIES if (s.data, s.kernel) == (data, "rbf"))
        yield Panel(f"RBF: {name} columns", tuple(lines), shared=True)
    kernels = ("polynomial", "spherical_polynomial", "arccosine")
    lines = ((s, s.map) for s in accuracy.SERIES if s.data == "mnist" and s.kernel in kernels)
    yield Panel("polynomial, arc-cosine: MNIST halves", tuple(lines))
    lines = (
        (s, f"{s.kernel}, {s.map}")
        for s in accuracy.SERIES
        if s.data == "mnist"
        and s.kernel in ("matern", "laplacian", "cauchy")
        and s.map in ("fourier", "qmc")
    )
    yield Panel("other stationary kernels: MNIST halves", tuple(lines))
    lines = ((s, s.kernel) for s in accuracy.SERIES if s.data == "wikipedia")
    yield Panel("histograms: Wikipedia, 128 columns", tuple(lines))


def figure_of_maps(plt: Any, results: Path) -> Any:
    """Log error against log M, as measured."""
    cells = cells_of(results, accuracy.NAME)
    drawn, axes = plt.subplots(2, 3, figsize=(11, 7.6), sharex=True, layout="constrained")
    legend = {}
    for panel, place in zip(_panels(), axes.flat, strict=True):
        for series, label in panel.lines:
            if series.key() not in cells:
                continue
            points = accuracy.points(cells[series.key()])
            colour, marker = KERNEL_STYLES.get(series.kernel) or MAP_STYLES[series.map]
            (line,) = place.plot(
                [point["features"] for point in points],
                [point["error"] for point in points],
                color=colour,
                marker=marker,
                markersize=4.5,
                linewidth=1.2,
                linestyle="--" if _dashed(series) else "-",
                label=label,
            )
            if panel.shared:
                legend.setdefault(label, line)
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.set_title(panel.title, fontsize="medium")
        place.grid(alpha=0.3)
        if not panel.shared:
            place.legend(fontsize="small", loc="lower left")
        _root(place)
    for place in axes[:, 0]:
        place.set_ylabel("relative error of the kernel")
    for place in axes[1]:
        place.set_xlabel("features, M")
    drawn.legend(
        legend.values(), legend.keys(), loc="outside upper center", ncols=5, fontsize="small"
    )
    return drawn


def _dashed(series: Series) -> bool:
    """Lines of the same colour that must differ."""
    return series.map == "nystrom-kmeans" or (series.kernel != "rbf" and series.map == "fourier")


def _root(place: Any) -> None:
    """A line that falls like one over the root of M, to compare with."""
    low, high = place.get_ylim()
    low = max(low, LOWEST)
    left, right = accuracy.RANKS[0], accuracy.RANKS[-1]
    top = high / 1.3
    ends = [top, top * (left / right) ** 0.5]
    place.plot([left, right], ends, color="black", linewidth=0.8, linestyle=":")
    place.set_ylim(low, high)


# Phone error rates.

SPEECH_STYLES = {"gmm": ("#0072B2", "o"), "softmax": ("#D55E00", "s")}


def figure_of_speech(plt: Any, results: Path) -> Any:
    """How far below or above MFCC: the paper's error rates, and ours with two standard errors."""
    found = speech_cells(results)
    base = found.row("mfcc")
    rows = [row for row in found.rows() if row != base]
    labels = [label_of(row) for row in rows]
    figure, axes = plt.subplots(figsize=(7.2, 1.4 + 0.42 * len(rows)), layout="constrained")
    places = range(len(rows))[::-1]
    for k, (kind, (colour, marker)) in enumerate(SPEECH_STYLES.items()):
        for place, row in zip(places, rows, strict=True):
            difference = found.difference(row, base, kind)
            if difference is not None:
                axes.errorbar(
                    difference[0],
                    place + 0.12 - 0.24 * k,
                    xerr=2 * difference[1],
                    color=colour,
                    marker=marker,
                    ms=5,
                    capsize=3,
                    label=f"{KINDS[kind]}, MOCHA" if place == places[0] else None,
                )
    published = speech.METHODS["mfcc"].per
    known = [
        (speech.METHODS[name].per - published, place)
        for place, (name, _) in zip(places, rows, strict=True)
        if speech.METHODS[name].per is not None
    ]
    if known:
        axes.scatter(*zip(*known, strict=True), color="#999999", marker="x", label="paper, XRMB")
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(places, labels)
    axes.set_xlabel("phone error rate against MFCC alone, in points; two standard errors")
    axes.grid(alpha=0.3, axis="x")
    if rows:
        axes.legend(fontsize="small", loc="lower left")
    return figure


DRAWN: dict[str, Callable[[Any, Path], Any]] = {
    "mnist8m_minutes": figure_by_minutes,
    "mnist8m_samples": figure_by_samples,
    "learning_curves": figure_of_curves,
    "feature_maps": figure_of_maps,
    "speech": figure_of_speech,
}


def draw(name: str, results: Path, path: Path) -> None:
    """Write the picture, the same bytes for the same results."""
    import matplotlib as mpl

    mpl.use("svg")
    # The salt makes the names inside the file repeatable; text stays text.
    mpl.rcParams.update({"svg.hashsalt": "knoi", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    figure = DRAWN[name](plt, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=DRAWN, default=list(DRAWN))
    arguments.add_argument("--to", type=Path, default=PICTURES, help="folder")
    options = arguments.parse_args()
    for name in options.only:
        path = options.to / f"{name}.svg"
        try:
            draw(name, RESULTS, path)
        except ModuleNotFoundError as error:
            if error.name != "matplotlib":
                raise
            sys.exit("Pictures need matplotlib: pip install '.[bench]'")
        print(f"{path} written")


if __name__ == "__main__":
    main()
