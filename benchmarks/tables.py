"""Tables of measured results in the documents, generated from `benchmarks/results/*.json`.

    python -m benchmarks.tables [--check]

A document marks a table by `<!-- table:NAME -->` and `<!-- /table -->`, each on a line of its own;
what stands between them is rewritten, never edited by hand. With `--check` nothing is written and
the exit code is 1 if a document is out of date. A cell that is not there reads "not measured yet".
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from benchmarks import feature_tables, knoi_tables, mnist8m_tables
from benchmarks.harness import RESULTS
from benchmarks.paper.lopez_paz import COMMON, PUBLISHED
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

PROJECT = Path(__file__).parents[1]
METHODS = ("LinearCCA", "KernelCCA", "FourierCCA", "NystromCCA")  # in the order of the README

_MARKED = re.compile(
    r"^<!-- table:(?P<name>\w+) -->\n(?P<body>.*?)^<!-- /table -->$", re.MULTILINE | re.DOTALL
)
_MARKER = re.compile(r"^<!-- (table:\w+|/table) -->$", re.MULTILINE)


def lopez_paz(results: Path) -> str:
    """Total correlation on MNIST halves, method by rank, beside the published numbers."""
    cells = cells_of(results, "lopez_paz")
    by_run: dict[tuple[str, int, str], list[Cell]] = {}
    for key, cell in cells.items():
        method, run = key.partition(" ")[0], settings(key)
        by_run.setdefault((method, int(run["rank"]), run["width"]), []).append(cell)
    # The ranks the benchmark runs unless told otherwise, and whatever else was run.
    ranks = sorted({1000, 2000} | {rank for method, rank, _ in by_run if method != "linear"})
    rows = []
    for method, rank in [("linear", 0), *((m, r) for m in ("fourier", "nystrom") for r in ranks)]:
        tuned = by_run.get((method, rank, "median"), [])
        width, reg = COMMON
        # Linear CCA has no kernel and needs no reg, so its one run stands in both columns.
        common = tuned
        if method != "linear":
            runs = by_run.get((method, rank, width), [])
            common = [run["by_reg"][f"{reg:g}"] for run in runs]
        published = PUBLISHED[method].get(rank)
        rows.append(
            [
                method.capitalize() + "CCA",
                str(rank or NO_VALUE),
                NO_VALUE if published is None else str(published),
                _mean(common, "fitted"),
                _mean(tuned, "fitted"),
                _mean(tuned, "refit"),
                _regs(tuned),
            ]
        )
    columns = (
        "method",
        "rank",
        "published, fitted",
        f"ours, fitted, width {COMMON[0].replace('sqrt', '√')}, reg {COMMON[1]:g}",
        "ours, fitted, width median, reg chosen",
        "the same, refit",
        "reg chosen",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.lopez_paz")


def speed(results: Path) -> str:
    """Time against the yardstick of each benchmark, and peak memory against the budget."""
    moments = cells_of(results, "speed_moments")
    memmap = cells_of(results, "speed_linear_memmap")
    rows = []
    for key in in_order(moments) or ["rank=4096 columns=392"]:
        run = settings(key)
        what = f"moments of `FourierCCA`, rank {run['rank']}, {run['columns']} columns a view"
        cell = moments.get(key, {})
        seconds = _seconds(cell, "bare_seconds")
        rows.append([what, "bare BLAS calls", *seconds, NO_VALUE, NO_VALUE])
    for key in in_order(memmap) or ["rows=1000000 columns=784"]:
        run = settings(key)
        shape = f"2 × {int(run['rows']):,} × {run['columns']}"
        what = f"`LinearCCA` on {shape} memory-mapped float32"
        cell = memmap.get(key, {})
        memory = [number(cell, name, mebibytes) for name in ("peak_bytes", "budget_bytes")]
        rows.append([what, "a plain pass", *_seconds(cell, "plain_seconds"), *memory])
    columns = (
        "what",
        "yardstick",
        "yardstick, s",
        "ours, s",
        "ratio",
        "at most",
        "peak memory",
        "memory_budget",
    )
    both = {**moments, **memmap}
    commands = ("benchmarks.speed.moments", "benchmarks.speed.linear_memmap")
    return table(columns, rows) + closing_line(both, *commands)


def memory(results: Path) -> str:
    """Peak memory of a fit over its data, against the budget it was given."""
    cells = cells_of(results, "memory")

    def order(key: str) -> tuple[int, int, float]:
        budget = cells[key].get("budget_bytes", 0)
        return METHODS.index(key.partition(" ")[0]), int(settings(key).get("rank", 0)), budget

    rows = []
    unmeasured = ["FourierCCA rank=2048 rows=50000 columns=392 budget=384MiB"]
    for key in sorted(cells, key=order) or unmeasured:
        run, cell = settings(key), cells.get(key, {})
        rank = f", rank {run['rank']}" if "rank" in run else ""
        shape = f"2 × {int(run['rows']):,} × {run['columns']}"
        share = MISSING
        if "peak_bytes" in cell:
            share = f"{cell['peak_bytes'] / cell['budget_bytes']:.2f}"
        rows.append(
            [
                f"`{key.partition(' ')[0]}`{rank}, on {shape} float32 from files",
                number(cell, "budget_bytes", mebibytes),
                number(cell, "peak_bytes", mebibytes),
                share,
            ]
        )
    columns = ("what", "memory_budget", "peak memory", "peak / budget")
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.memory")


TABLES: dict[str, Callable[[Path], str]] = {
    "lopez_paz": lopez_paz,
    "speed": speed,
    "memory": memory,
    **knoi_tables.TABLES,
    **feature_tables.TABLES,
    **mnist8m_tables.TABLES,
}


def refreshed(text: str, results: Path) -> str:
    """`text` with every marked table made anew."""

    def renewed(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            known = ", ".join(sorted(TABLES))
            raise ValueError(f"There is no table {name!r} to generate. Known are: {known}.")
        if _MARKER.search(match["body"]):
            raise ValueError(f"Table {name!r} is not closed by <!-- /table --> before the next.")
        return f"<!-- table:{name} -->\n{TABLES[name](results)}<!-- /table -->"

    done, n_tables = _MARKED.subn(renewed, text)
    if len(_MARKER.findall(text)) != 2 * n_tables:
        raise ValueError("A <!-- table:NAME --> and its <!-- /table --> do not pair.")
    return done


def documents(project: Path) -> list[Path]:
    """Where tables may stand."""
    return [project / "README.md", *sorted((project / "docs").glob("**/*.md"))]


def main(
    arguments: Sequence[str] | None = None, *, project: Path = PROJECT, results: Path = RESULTS
) -> int:
    """Rewrite the documents, or check them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if outdated")
    options = parser.parse_args(arguments)
    outdated = []
    for path in documents(project):
        text = path.read_text(encoding="utf-8")
        new = refreshed(text, results)
        if new != text:
            outdated.append(path.relative_to(project))
            if not options.check:
                path.write_text(new, encoding="utf-8")
    for path in outdated:
        print(f"{path} {'is out of date' if options.check else 'rewritten'}")
    if options.check and outdated:
        print("Run: python -m benchmarks.tables")
        return 1
    return 0


def _seconds(cell: Cell, yardstick: str) -> list[str]:
    """Yardstick and own seconds, their ratio and what it may be."""
    return [
        number(cell, yardstick, "{:.2f}".format),
        number(cell, "ours_seconds", "{:.2f}".format),
        number(cell, "ratio", "{:.2f}".format),
        number(cell, "floor", "{:.1f}".format),
    ]


def _mean(runs: list[Cell], name: str) -> str:
    """The mean over seeds, and over how many where there are several."""
    values = [run[name] for run in runs if name in run]
    if not values:
        return MISSING
    several = f" (mean of {len(values)})" if len(values) > 1 else ""
    return f"{mean(values):.2f}{several}"


def _regs(runs: list[Cell]) -> str:
    chosen = sorted({run["reg"] for run in runs if "reg" in run})
    return ", ".join(f"{reg:g}" for reg in chosen) if chosen else MISSING


if __name__ == "__main__":
    sys.exit(main())
