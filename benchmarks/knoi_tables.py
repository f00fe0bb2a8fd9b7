"""The tables about KNOI: learning curves, exact solutions, a step, cost, data sets."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.paper import learning_curves as curves
from benchmarks.paper import variants as parts
from benchmarks.speed import linear_cost as cost
from benchmarks.table_parts import (
    MISSING,
    NO_VALUE,
    Cell,
    cells_of,
    closing_line,
    in_order,
    mebibytes,
    number,
    settings,
    table,
)

CURVE_NAMES = {
    "published": "`KNOI(precondition=None)`, the published algorithm, Fourier",
    "fourier": "`KNOI`, Fourier",
    "nystrom8192": "`KNOI`, Nystrom",
    "nystrom16384": "`KNOI`, Nystrom",
}
SOLVER_NAMES = {
    "published": "published, Fourier",
    "fourier": "accelerated, Fourier",
    "nystrom": "accelerated, Nystrom",
}
EXACT_METHODS = ("LinearCCA", "NystromCCA", "KernelCCA")
PARTS = ("project", "couple", "gradient", "precondition", "descend")


def learning_curves(results: Path) -> str:
    """Refit total correlation of KNOI on the MNIST8M stand-in as samples come in."""
    cells = curves.full_curves(cells_of(results, curves.NAME))
    rows = []
    for name, case in curves.CASES.items():
        cell = cells.get(name, {"curve": {}})
        points = cell["curve"]
        last = max(points.values(), key=lambda point: point["samples"]) if points else {}
        seconds = MISSING
        if last:
            seconds = f"{cell['setup_seconds']:.0f} + {last['train_seconds']:.0f}"
        rows.append(
            [
                CURVE_NAMES[name],
                f"{case.rank:,}",
                *(_reached(points, mark) for mark in curves.MARKS),
                _floor(name),
                number(last, "fitted", "{:.2f}".format),
                seconds,
                number(cell, "peak_bytes", mebibytes),
            ]
        )
    columns = (
        "method",
        "rank",
        *(f"{mark // 1000:,}k" for mark in curves.MARKS),
        "at least",
        "fitted, at the end",
        "set-up + training, s",
        "peak memory",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.learning_curves")


def _reached(points: dict[str, Cell], mark: int) -> str:
    if not points:
        return MISSING
    return f"{points[str(mark)]['refit']:.2f}" if str(mark) in points else NO_VALUE


def _floor(name: str) -> str:
    samples, least = curves.FLOORS.get(name, (0, 0.0))
    return f"{least} at {samples // 1000:,}k" if samples else NO_VALUE


def variants(results: Path) -> str:
    """What each part of the accelerated solver is worth."""
    cells = cells_of(results, parts.NAME)
    keys = {name: parts.key_of(name, parts.RANK, parts.TO) for name in parts.VARIANTS}
    rows = [
        [
            name,
            *(_reached(cells.get(key, {"curve": {}})["curve"], int(mark)) for mark in parts.MARKS),
        ]
        for name, key in keys.items()
        if key in cells or not cells
    ]
    columns = ("variant", *(f"{int(mark) // 1000}k samples, refit" for mark in parts.MARKS))
    used = {key: cells[key] for key in keys.values() if key in cells}
    return table(columns, rows) + closing_line(used, "benchmarks.paper.variants")


def against_exact(results: Path) -> str:
    """KNOI beside the closed form on the same landmarks."""
    cells = cells_of(results, "speed_against_exact")
    rows = []
    for key in in_order(cells) or ["rank=4096 samples=400000 epochs=1"]:
        run, cell = settings(key), cells.get(key, {})
        ours, exact = cell.get("knoi", {}), cell.get("exact", {})
        rows.append(
            [
                f"rank {run['rank']}, {int(run['samples']):,} pairs, epochs {run['epochs']}",
                *(number(one, "seconds", "{:.0f}".format) for one in (exact, ours)),
                number(cell, "ratio", "{:.2f}".format),
                *(number(one, "refit", "{:.2f}".format) for one in (exact, ours)),
                number(cell, "refit_difference", "{:+.2f}".format),
                *(number(one, "fitted", "{:.2f}".format) for one in (exact, ours)),
                number(exact, "reg", "{:g}".format),
            ]
        )
    columns = (
        "what",
        "exact, s",
        "`KNOI`, s",
        "exact / `KNOI`",
        "exact, refit",
        "`KNOI`, refit",
        "difference",
        "exact, fitted",
        "`KNOI`, fitted",
        "reg of the exact",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.against_exact")


def step_efficiency(results: Path) -> str:
    """A training step beside the bare products in it, and its parts."""
    cells = cells_of(results, "speed_step_efficiency")
    rows = []
    for key in in_order(cells) or ["rank=20480 batch=2500 columns=392 components=50"]:
        run, cell = settings(key), cells.get(key, {})
        for name in ("published", "accelerated"):
            rule = cell.get("rules", {}).get(name, {})
            rows.append(
                [
                    f"{name}, rank {run['rank']}, minibatches of {run['batch']}, "
                    f"{run['columns']} columns a view, {run['components']} components",
                    number(cell, "bare_seconds", _milliseconds),
                    number(rule, "step_seconds", _milliseconds),
                    number(rule, "efficiency", "{:.2f}".format),
                    *(number(rule.get("parts", {}), part, _milliseconds) for part in PARTS),
                ]
            )
    columns = ("rule", "bare products, ms", "step, ms", "bare / step", *PARTS)
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.step_efficiency")


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}"


def linear_cost(results: Path) -> str:
    """How the time of a fit grows with rows and with rank; 1 is linear."""
    cells = cells_of(results, cost.NAME)
    used, rows = {}, []
    for solver, name in SOLVER_NAMES.items():
        for axis in ("rows", "rank"):
            sizes = cost.sizes(axis)
            keys = [cost.key_of(solver, *size) for size in sizes]
            if used and not any(key in cells for key in keys):
                continue  # a series that was not measured takes no line beside those that were
            used |= {key: cells[key] for key in keys if key in cells}
            first, last = (cells.get(keys[at], {}) for at in (0, -1))
            fixed = f"rank {sizes[0][1]:,}" if axis == "rows" else f"{sizes[0][0]:,} rows"
            at = 0 if axis == "rows" else 1
            growth = [
                f"{cells[key]['seconds'] / first['seconds'] / factor:.2f}"
                if first and key in cells
                else MISSING
                for key, factor in zip(keys[1:], cost.FACTORS[1:], strict=True)
            ]
            rows.append(
                [
                    f"{name}, {axis} {sizes[0][at]:,} to {sizes[-1][at]:,} at {fixed}",
                    *(number(cell, "seconds", "{:.1f}".format) for cell in (first, last)),
                    *growth,
                ]
            )
    columns = (
        "what",
        "smallest, s",
        "largest, s",
        *(f"growth, × {factor}" for factor in cost.FACTORS[1:]),
    )
    return table(columns, rows) + closing_line(used, "benchmarks.speed.linear_cost")


def data_sets(results: Path) -> str:
    """KNOI as it comes beside tuned exact methods: fitted / refit total correlation."""
    # Other ranks than the default are trials.
    cells = {
        key: cell
        for key, cell in cells_of(results, "data_sets").items()
        if settings(key)["rank"] == "4000"
    }
    rows = []
    for key in cells or ["mnist rank=4000"]:
        cell = cells.get(key, {})
        methods = cell.get("methods", {})
        population = cell.get("population")
        rows.append(
            [
                key.partition(" ")[0],
                number(cell, "rows", "{:,}".format),
                number(cell, "n_components", str),
                NO_VALUE if population is None else f"{population:.2f}",
                _both(methods.get("KNOI")) if methods else MISSING,
                *(_both(methods.get(name)) if methods else MISSING for name in EXACT_METHODS),
                *(
                    number(methods.get(name, {}), "seconds", "{:.1f}".format)
                    for name in ("KNOI", "NystromCCA")
                ),
            ]
        )
    columns = (
        "data",
        "pairs",
        "components",
        "there is",
        "`KNOI`",
        *(f"`{name}`, tuned" for name in EXACT_METHODS),
        "`KNOI`, s",
        "`NystromCCA`, s a fit",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.data_sets")


def _both(method: Cell | None) -> str:
    return NO_VALUE if method is None else f"{method['fitted']:.2f} / {method['refit']:.2f}"


TABLES: dict[str, Callable[[Path], str]] = {
    "learning_curves": learning_curves,
    "variants": variants,
    "against_exact": against_exact,
    "step_efficiency": step_efficiency,
    "linear_cost": linear_cost,
    "data_sets": data_sets,
}
