"""What tables are made of: cells read from results, numbers as text, and the closing line."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MISSING = "not measured yet"
NO_VALUE = "–"

Cell = dict[str, Any]


def cells_of(results: Path, name: str) -> dict[str, Cell]:
    """The cells of one result file; none if it is not there."""
    path = results / f"{name}.json"
    cells: dict[str, Cell] = json.loads(path.read_text())["cells"] if path.exists() else {}
    return cells


def settings(key: str) -> dict[str, str]:
    """`fourier rank=1000 seed=0` -> {"rank": "1000", "seed": "0"}."""
    return dict(part.split("=", 1) for part in key.split() if "=" in part)


def in_order(cells: dict[str, Cell]) -> list[str]:
    """Keys by their numbers, so that rank=512 comes before rank=4096."""
    return sorted(cells, key=lambda key: [int(n) for n in re.findall(r"\d+", key)])


def number(cell: Cell, name: str, form: Callable[[float], str]) -> str:
    """A number of the cell as text, or that it is missing."""
    return form(cell[name]) if name in cell else MISSING


def mebibytes(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown: the first column to the left, the others to the right."""
    rule = ["---" if i == 0 else "---:" for i in range(len(columns))]
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, rule, *rows))


def closing_line(cells: dict[str, Cell], *commands: str) -> str:
    """The closing line: on what machine, when, and at which commit the cells were made."""
    origins = [cell["origin"] for cell in cells.values() if "origin" in cell]
    run = " and ".join(f"`python -m {command}`" for command in commands)
    if not origins:
        return f"\nNot measured yet: {run}, then `python -m benchmarks.tables`.\n"
    origins.sort(key=lambda origin: origin["date"])
    machines = dict.fromkeys(f"{o['processor']}, {o['cores']} cores" for o in origins)
    days = [origin["date"][:10] for origin in (origins[0], origins[-1])]
    when = days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    commits = ", ".join(dict.fromkeys(f"`{origin['commit']}`" for origin in origins))
    return f"\nMeasured by {run} on {'; '.join(machines)}; {when}; commit {commits}.\n"
