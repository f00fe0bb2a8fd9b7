"""`knoi demo`: find the right half of a digit from its left half, without data or network."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from knoi.cli.options import Debug, Quiet, Seed, option
from knoi.cli.output import examples, results, say, show_steps, table
from knoi.exceptions import InputError, MissingExtraError

if TYPE_CHECKING:
    from knoi.demo import DemoResult

EXAMPLES = examples("knoi demo", "knoi demo --samples 3000 --output quick-demo")
_OUTPUT = "Where the report and the model are written."


def demo(
    output: Annotated[Path, option("DIR", _OUTPUT)] = Path("knoi-demo"),
    # With fewer images a kernel method cannot have the 20 components of the demo.
    samples: Annotated[int, option("N", "Training images to generate.", min=500)] = 30_000,
    seed: Seed = 0,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the right half of a digit from its left half; needs no data and takes under a minute."""
    from knoi.demo import N_STEPS, demo_report, run_demo

    try:  # before the work, in case nothing can be written there
        output.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=output).close()
    except OSError as error:
        raise InputError(
            f"Nothing can be written to {output} as a folder ({error.strerror}). "
            "Give another one: --output DIR."
        ) from error
    console = results(quiet)
    with show_steps(console, N_STEPS) as step:
        result = run_demo(samples, seed, on_step=step)
    report, model = output / "report.html", output / "model.knoi"
    result.best.model.save(model)
    console.print(_demo_table(result))
    try:
        demo_report(result).write(report)
        say(console, f"Report: {report}")
    except MissingExtraError as error:
        say(console, f"Report: not written. {error}")
    _print_next_steps(console, result, model)


def _demo_table(result: "DemoResult") -> Table:
    from knoi.demo import best_cells, table_rows

    n = result.linear.retrieval.n_queries
    headings = ("total corr.\nfitted", "\nrefit", "recall\n@1", "\n@10", "median\nrank", "fit\ns")
    made = table(
        "method",
        *headings,
        title=f"{n:,} held-out digits: from the left half, find the right half",
        caption=f"total correlation: at most {result.linear.model.n_components}; "
        f"recall@k: the true half is among the k nearest of {n:,}",
    )
    best, rows = best_cells(result), table_rows(result)
    for i, row in enumerate(rows):
        cells = [Text(cell, style="bold" if (i, j) in best else "") for j, cell in enumerate(row)]
        made.add_row(*cells, style="dim" if i == len(rows) - 1 else None)
    return made


def _print_next_steps(console: Console, result: "DemoResult", model: Path) -> None:
    best = result.best
    rank = best.model.get_params(deep=False).get("rank")
    arguments = f"n_components={best.model.n_components}" + (f", rank={rank}" if rank else "")
    say(
        console,
        f"Model:  {model} ({best.name}, the highest total correlation; see: knoi info {model})",
        "",
        "Next, with your own two views, paired row by row:",
        f"  from knoi import {best.name}",
        f"  model = {best.name}({arguments}).fit(X, Y)",
        "  print(model.score(X_test, Y_test))",
    )
