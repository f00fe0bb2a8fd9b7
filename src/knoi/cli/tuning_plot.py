"""A picture of a grid search: total correlation against what was varied most."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knoi.data.optional import require
from knoi.exceptions import InputError
from knoi.fileio import atomic_write

if TYPE_CHECKING:
    from knoi.cli.tuning import Trial

SUFFIXES = (".png", ".svg", ".pdf")
NAMES = ("rank", "width", "reg")


def check_plot(path: Path) -> None:
    """Refuse what cannot be drawn, before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--plot {path}: wanted a name that ends in {', '.join(SUFFIXES)}.")
    require("matplotlib.figure", "plot", "a plot")


def write_plot(path: Path, trials: "Sequence[Trial]", n_components: int) -> None:
    """Draw one line for each combination of what is not on the axis."""
    figures = require("matplotlib.figure", "plot", "a plot")
    axis, lines = lines_of(trials)
    figure = figures.Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    labels = list(dict.fromkeys(label for line in lines.values() for label, _ in line))
    for name, line in lines.items():
        places = [labels.index(label) for label, _ in line]
        axes.plot(places, [score for _, score in line], marker="o", label=name or None)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel(axis)
    axes.set_ylabel(f"total correlation of pairs left out, of {n_components}")
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="small")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)


def lines_of(trials: "Sequence[Trial]") -> tuple[str, dict[str, list[tuple[str, float]]]]:
    """What is on the axis, and lines by their names, each (label on the axis, total correlation).

    On the axis is what took the most values. What took one value is not named.
    """
    tried = [trial for trial in trials if trial.measured is not None]
    values: dict[str, list[Any]] = {
        name: list(dict.fromkeys(t.point.shown(name) for t in tried if name in t.point.values))
        for name in NAMES
    }
    axis = max(NAMES, key=lambda name: len(values[name]))
    others = [name for name in NAMES if name != axis and len(values[name]) > 1]
    lines: dict[str, list[tuple[str, float]]] = {}
    for trial in tried:
        name = ", ".join(f"{other} {trial.point.shown(other)}" for other in others)
        lines.setdefault(name, []).append((trial.point.shown(axis), trial.score))
    return axis, lines
