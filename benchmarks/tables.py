"""Generated parts of the documents: tables of results, the module list, the path of a fit.

    python -m benchmarks.tables [--check]

A document marks a generated part by `<!-- table:NAME -->` and `<!-- /table -->`, each on its own
line; what stands between them is rewritten, never edited by hand. Tables of results come from
`benchmarks/results`. With `--check` nothing is written and the exit code is 1 if a document is out
of date.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

PROJECT = Path(__file__).parents[1]
NO_VALUE = "–"

Cell = dict[str, Any]
Tables = Mapping[str, Callable[[Path], str]]  # name -> from the folder of results to Markdown

_MARKED = re.compile(
    r"^<!-- table:(?P<name>\w+) -->\n(?P<body>.*?)^<!-- /table -->$", re.MULTILINE | re.DOTALL
)
_MARKER = re.compile(r"^<!-- (table:\w+|/table) -->$", re.MULTILINE)


# What tables are made of.


def cells_of(results: Path, name: str) -> dict[str, Cell]:
    """Read the cells of one result file."""
    cells: dict[str, Cell] = json.loads((results / f"{name}.json").read_text())["cells"]
    return cells


def settings(key: str) -> dict[str, str]:
    """`fourier rank=1000 seed=0` -> {"rank": "1000", "seed": "0"}."""
    return dict(part.split("=", 1) for part in key.split() if "=" in part)


def by_numbers(key: str) -> list[int]:
    """Sort key: rank=512 comes before rank=4096."""
    return [int(n) for n in re.findall(r"\d+", key)]


def mebibytes(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table: the first column to the left, the others to the right."""
    rule = ["---" if i == 0 else "---:" for i in range(len(columns))]
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, rule, *rows))


def closing_line(cells: Mapping[str, Cell], *commands: str) -> str:
    """The line below a table: how, on what machine, when and at which commits it was measured."""
    run = " and ".join(f"`python -m {command}`" for command in commands)
    origins = sorted((cell["origin"] for cell in cells.values()), key=lambda one: one["date"])
    machines = dict.fromkeys(f"{o['processor']}, {o['cores']} cores" for o in origins)
    days = [origin["date"][:10] for origin in (origins[0], origins[-1])]
    when = days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    commits = ", ".join(dict.fromkeys(f"`{origin['commit']}`" for origin in origins))
    return f"\nMeasured by {run} on {'; '.join(machines)}; {when}; commit {commits}.\n"


# The documents.


def all_tables() -> Tables:
    """Every generated part, by name."""
    from benchmarks import architecture
    from benchmarks.paper import tables as paper
    from benchmarks.speech import tables as speech
    from benchmarks.speed import tables as speed

    return {**paper.TABLES, **speech.TABLES, **speed.TABLES, **architecture.TABLES}


def refreshed(text: str, results: Path, tables: Tables) -> str:
    """Return `text` with every marked part generated again."""

    def renewed(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            known = ", ".join(sorted(tables))
            raise ValueError(f"There is no table {name!r} to generate. Known are: {known}.")
        if _MARKER.search(match["body"]):
            raise ValueError(f"Table {name!r} is not closed by <!-- /table --> before the next.")
        return f"<!-- table:{name} -->\n{tables[name](results)}<!-- /table -->"

    done, n_tables = _MARKED.subn(renewed, text)
    if len(_MARKER.findall(text)) != 2 * n_tables:
        raise ValueError("A <!-- table:NAME --> and its <!-- /table --> do not pair.")
    return done


def documents(project: Path) -> list[Path]:
    """Where generated parts may stand."""
    return [project / "README.md", *sorted((project / "docs").glob("**/*.md"))]


def main(
    arguments: Sequence[str] | None = None,
    *,
    project: Path = PROJECT,
    results: Path = RESULTS,
    tables: Tables | None = None,
) -> int:
    """Rewrite the documents, or check them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if outdated")
    options = parser.parse_args(arguments)
    tables = all_tables() if tables is None else tables
    outdated = []
    for path in documents(project):
        text = path.read_text(encoding="utf-8")
        new = refreshed(text, results, tables)
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


if __name__ == "__main__":
    sys.exit(main())
