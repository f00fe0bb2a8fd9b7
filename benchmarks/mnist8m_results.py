"""Cells of `knoi bench mnist8m`, for its tables and pictures."""

from pathlib import Path

from benchmarks.table_parts import Cell
from knoi.bench.cells import Cells
from knoi.bench.mnist8m import METHODS, TEST_ROWS

NAME = "mnist8m"
COMMAND = "benchmarks.paper.mnist8m"


def measured(results: Path) -> list[Cell]:
    """All cells judged on all test rows, in the order of methods, rank and samples."""
    cells = [cell for cell in Cells(results / NAME).all() if cell["test_rows"] == TEST_ROWS]
    order = list(METHODS)
    return sorted(
        cells,
        key=lambda c: (order.index(c["method"]), c["rank"] or 0, c["samples_given"], c["seed"]),
    )


def subsets(cell: Cell) -> list[Cell]:
    """What an exact method reached on fewer rows, as cells."""
    return [{**cell, **point, "subsets": []} for point in cell.get("subsets", ())]


def by_minutes(cell: Cell) -> list[tuple[float, float]]:
    """(minutes, refit) a user would have had the model after: set-up, training and final CCA."""
    if "curve" not in cell:
        return [(one["seconds"] / 60, one["refit"]) for one in (*subsets(cell), cell)]
    setup = cell["setup_seconds"]
    return [
        ((setup + p["train_seconds"] + p["finish_seconds"]) / 60, p["refit"]) for p in cell["curve"]
    ]
