"""The pictures of the documents, drawn from `benchmarks/results/*.json`.

    python -m benchmarks.pictures [--only NAME ...] [--to FOLDER]

learning_curves: total correlation of held-out pairs (refit) against training samples, as in
Figure 1 of the KNOI paper; the closed form on the same data, where it was measured, as a horizontal
line. feature_maps: kernel error against the number of features. mnist8m_samples, mnist8m_minutes:
every method of Table 1. Written to docs/pictures as SVG.
Needs matplotlib: pip install '.[bench]'.
"""

import argparse
import sys
from pathlib import Path

from benchmarks import feature_picture, mnist8m_pictures, mnist8m_results
from benchmarks.harness import RESULTS
from benchmarks.paper import learning_curves as curves
from benchmarks.table_parts import cells_of, settings

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
# What tells the lines apart: colour and marker (colours safe for the colour-blind).
STYLES = {
    "published": ("published algorithm, Fourier", "#999999", "s"),
    "fourier": ("KNOI, Fourier", "#0072B2", "o"),
    "nystrom8192": ("KNOI, Nystrom", "#E69F00", "^"),
    "nystrom16384": ("KNOI, Nystrom", "#D55E00", "v"),
}


def lines(results):
    """(label, colour, marker, samples, refit) of each curve that was measured."""
    found = []
    for name, cell in curves.full_curves(cells_of(results, curves.NAME)).items():
        label, colour, marker = STYLES[name]
        points = sorted(cell["curve"].values(), key=lambda point: point["samples"])
        samples = [point["samples"] / 1000 for point in points]
        label = f"{label}, M = {curves.CASES[name].rank:,}"
        found.append((label, colour, marker, samples, [point["refit"] for point in points]))
    return found


def levels(results):
    """(label, refit) of each exact solution that was measured on the same data."""
    best = {}
    for key, cell in cells_of(results, "speed_against_exact").items():
        run, exact = settings(key), cell["exact"]
        label = f"exact, Nystrom, M = {int(run['rank']):,}, {int(run['samples']):,} pairs"
        best[label] = max(exact["refit"], best.get(label, 0.0))
    return sorted(best.items())


def learning_curves(plt, results):
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


# Whether there is anything to draw, how it is drawn, and what measures it.
DRAWN = {
    "learning_curves": (lines, learning_curves, "benchmarks.paper.learning_curves"),
    "feature_maps": (
        feature_picture.measured,
        feature_picture.figure,
        "benchmarks.features.accuracy",
    ),
    "mnist8m_samples": (
        mnist8m_results.measured,
        mnist8m_pictures.figure_by_samples,
        mnist8m_results.COMMAND,
    ),
    "mnist8m_minutes": (
        mnist8m_results.measured,
        mnist8m_pictures.figure_by_minutes,
        mnist8m_results.COMMAND,
    ),
}


def draw(name, results, path):
    """Write the picture, the same bytes for the same results."""
    import matplotlib as mpl

    mpl.use("svg")
    # The salt makes the names inside the file repeatable; text stays text.
    mpl.rcParams.update({"svg.hashsalt": "knoi", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    figure = DRAWN[name][1](plt, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=DRAWN, default=list(DRAWN))
    arguments.add_argument("--to", type=Path, default=PICTURES, help="folder")
    options = arguments.parse_args()
    for name in options.only:
        there, _, command = DRAWN[name]
        if not there(RESULTS):
            sys.exit(f"There is nothing to draw: run python -m {command} first.")
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
