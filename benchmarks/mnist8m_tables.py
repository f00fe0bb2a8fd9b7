"""The paper's Table 1 beside ours: from the cells of `knoi bench mnist8m`."""

from collections.abc import Collection
from pathlib import Path

from benchmarks.mnist8m_results import COMMAND, by_minutes, measured, subsets
from benchmarks.paper import dsgd_tuning
from benchmarks.table_parts import MISSING, NO_VALUE, Cell, cells_of, closing_line, settings, table
from knoi.bench.mnist8m import METHODS, PAPER
from knoi.bench.mnist8m import L as COMPONENTS

# Times at which the methods are compared, in minutes.
BUDGETS = (2, 5, 10, 20, 40, 60)
# Ours: the others are what they are compared with.
ACCELERATED = ("knoi-fourier", "knoi-nystrom")
_OTHERS = [name for name in METHODS if name not in ACCELERATED]
_PAPERS_BEST = max(PAPER.values())

Points = list[tuple[float, float]]


def mnist8m(results: Path) -> str:
    """Every cell beside the paper's number for the same method and rank."""
    return _beside_the_paper(measured(results), with_subsets=False)


def mnist8m_subsets(results: Path) -> str:
    """The same, with what exact methods reach on fewer rows."""
    return _beside_the_paper(measured(results), with_subsets=True)


def _beside_the_paper(cells: list[Cell], *, with_subsets: bool) -> str:
    rows = [
        _row(point) for cell in cells for point in (*(subsets(cell) if with_subsets else ()), cell)
    ]
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
    return table(columns, rows) + _closing(cells)


def _closing(cells: list[Cell]) -> str:
    return closing_line({str(place): cell for place, cell in enumerate(cells)}, COMMAND)


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
        points = _points(cells, [name])
        reached = [_best(points, budget) for budget in BUDGETS]
        if points or not cells:
            texts = [NO_VALUE if value is None else f"{value:.2f}" for value in reached]
            rows.append([method.label, *(texts if cells else [MISSING] * len(BUDGETS))])
    columns = ("method", *(f"{budget} min" for budget in BUDGETS))
    return table(columns, rows) + _in_words(cells) + _closing(cells)


def mnist8m_headline(results: Path) -> str:
    """When the paper's best is passed, and the best that others reach, for a reader in a hurry."""
    cells = measured(results)
    passed = _passed(_points(cells, ACCELERATED))
    others = [(refit, when, name) for name in _OTHERS for when, refit in _points(cells, [name])]
    if passed is None or not others:
        return f"Not measured yet: `python -m {COMMAND}`.\n"
    goal, minutes = _PAPERS_BEST
    refit, when, name = max(others)
    cores = cells[0]["origin"]["cores"]
    return (
        f"The paper's best total correlation is {goal} of {COMPONENTS}, after {minutes:.0f} "
        f"minutes on six cores. On a stand-in for its data, `KNOI` with nothing tuned is there "
        f"after {passed:.1f} minutes on {cores} cores; the best of the other methods run there, "
        f"{METHODS[name].label}, reaches {refit:.2f} after {when:.0f}.\n"
    )


def _points(cells: list[Cell], names: Collection[str]) -> Points:
    """(minutes, refit) of all cells of these methods."""
    return [point for cell in cells if cell["method"] in names for point in by_minutes(cell)]


def _best(points: Points, minutes: float) -> float | None:
    return max((refit for when, refit in points if when <= minutes), default=None)


def _passed(points: Points) -> float | None:
    """The minutes after which the paper's best is passed."""
    return min((when for when, refit in points if refit >= _PAPERS_BEST[0]), default=None)


def smallest_lead(cells: list[Cell]) -> tuple[float, float] | None:
    """How little accelerated KNOI is ahead of all others from the first budget on, and when.

    Between two points of the others their best stays what it was while ours can only rise, so
    the first budget and their later points are all the times to look at.
    """
    ours = _points(cells, ACCELERATED)
    others = _points(cells, _OTHERS)
    times = [float(BUDGETS[0]), *(when for when, _ in others if when > BUDGETS[0])]
    leads = [
        (own - other, when)
        for when in times
        if (own := _best(ours, when)) is not None and (other := _best(others, when)) is not None
    ]
    return min(leads, default=None)


def _in_words(cells: list[Cell]) -> str:
    """When the paper's best is passed, what is reached in the end, and how far the others are."""
    said = []
    ours = _points(cells, ACCELERATED)
    goal, minutes = _PAPERS_BEST
    passed = _passed(ours)
    if passed is not None:
        refit, when = max((refit, when) for when, refit in ours)
        said.append(
            f"The paper's best, {goal} after {minutes:.0f} minutes on six cores, is passed here "
            f"after {passed:.1f}; {refit:.2f} is reached after {when:.0f}."
        )
    found = smallest_lead(cells)
    if found is not None:
        said.append(
            f"The smallest lead of accelerated KNOI over the best of the other cells, at any time "
            f"from {BUDGETS[0]} minutes on, is {found[0]:.2f}, after {found[1]:.1f} minutes."
        )
    return f"\n{' '.join(said)}\n" if said else ""


def mnist8m_tuning(results: Path) -> str:
    """Learning rates on a subset: what DSGD was tuned to, and where the paper's for KNOI stands."""
    cells = cells_of(results, dsgd_tuning.NAME)
    rows = []
    for key, cell in cells.items():
        setting = settings(key)
        decay = setting.get("decay", NO_VALUE).replace("inf", "none")
        label = {"DSGD": "DSGD", "KNOI": "KNOI, published"}[key.partition(" ")[0]]
        rows.append((label, int(setting["samples"]), float(setting["rate"]), decay, cell["refit"]))
    columns = ("method", "samples", "learning rate", "decay, steps", "refit")
    texts = [
        [label, f"{samples:,}", f"{rate:g}", decay, f"{refit:.2f}"]
        for label, samples, rate, decay, refit in sorted(rows)
    ]
    return table(columns, texts) + closing_line(cells, "benchmarks.paper.dsgd_tuning")


TABLES = {
    "mnist8m_headline": mnist8m_headline,
    "mnist8m": mnist8m,
    "mnist8m_subsets": mnist8m_subsets,
    "mnist8m_minutes": mnist8m_minutes,
    "mnist8m_tuning": mnist8m_tuning,
}
