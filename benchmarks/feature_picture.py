"""The picture of kernel error against the number of features, a panel for each kind of kernel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.features import accuracy
from benchmarks.features.accuracy import Series
from benchmarks.table_parts import cells_of

LOWEST = 1e-7  # of the errors shown; below, nothing is told apart
Line = tuple[Series, str]  # what is drawn, and its label

# What tells the maps apart: colour and marker (colours safe for the colour-blind).
STYLES = {
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
# Where one map stands for several kernels, they are told apart instead.
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


def measured(results: Path) -> bool:
    """Whether there is anything to draw."""
    cells = cells_of(results, accuracy.NAME)
    return any(series.key() in cells for series in accuracy.SERIES)


def figure(plt: Any, results: Path) -> Any:
    """Log error against log M, as measured."""
    cells = cells_of(results, accuracy.NAME)
    drawn, axes = plt.subplots(2, 3, figsize=(11, 7.6), sharex=True, layout="constrained")
    legend = {}
    for panel, place in zip(_panels(), axes.flat, strict=True):
        for series, label in panel.lines:
            if series.key() not in cells:
                continue
            points = accuracy.points(cells[series.key()])
            colour, marker = KERNEL_STYLES.get(series.kernel) or STYLES[series.map]
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
