"""`knoi demo`: from the left half of a digit to its right half, with nothing but the package."""

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from knoi.cli.options import Debug, Quiet
from knoi.cli.output import examples, show_steps
from knoi.exceptions import InputError, MissingExtraError

if TYPE_CHECKING:
    from knoi.demo import DemoResult

EXAMPLES = examples("knoi demo", "knoi demo --samples 3000 --output quick-demo")


def demo(
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the report and the model are written.")
    ] = Path("knoi-demo"),
    samples: Annotated[
        int, typer.Option(metavar="N", help="Training images to make, at least 500.")
    ] = 30_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Makes the run repeatable.")] = 0,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the right half of a digit from its left half; needs no data and under a minute."""
    # A second of imports that `knoi --help` need not take.
    from knoi.demo import MIN_SAMPLES, N_STEPS, demo_report, run_demo

    _at_least(MIN_SAMPLES, samples, "--samples")
    _at_least(0, seed, "--seed")
    # Learning that nothing can be written there must not take the time of the demo.
    _make_folder(output)
    console = Console(quiet=quiet, highlight=False)
    with show_steps(console, N_STEPS) as step:
        result = run_demo(samples, seed, on_step=step)
    report, model = output / "report.html", output / "model.knoi"
    result.best.model.save(model)
    console.print(_demo_table(result))
    try:
        demo_report(result).write(report)
        console.print(f"Report: {report}", markup=False, soft_wrap=True)
    except MissingExtraError as error:
        console.print(f"Report: not written. {error}", markup=False, soft_wrap=True)
    _say_what_next(console, result, model)


def _at_least(least: int, value: int, option: str) -> None:
    if value < least:
        raise typer.BadParameter(
            f"{value} is too small, wanted {least} or more.", param_hint=f"'{option}'"
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InputError(
            f"Nothing can be written to {folder} as a folder ({error.strerror}). "
            "Give another one: --output DIR."
        ) from error


def _demo_table(result: "DemoResult") -> Table:
    from knoi.demo import best_cells, table_rows

    n = result.linear.retrieval.n_queries
    table = Table(
        title=f"{n:,} held-out digits: from the left half, find the right half",
        caption=f"total correlation: at most {result.linear.model.n_components}; "
        f"recall@k: the true half is among the k nearest of {n:,}",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method", overflow="fold")
    headings = ("total corr.\nfitted", "\nrefit", "recall\n@1", "\n@10", "median\nrank", "fit\ns")
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    best, rows = best_cells(result), table_rows(result)
    for i, row in enumerate(rows):
        cells = [Text(cell, style="bold" if (i, j) in best else "") for j, cell in enumerate(row)]
        table.add_row(*cells, style="dim" if i == len(rows) - 1 else None)
    return table


def _say_what_next(console: Console, result: "DemoResult", model: Path) -> None:
    best = result.best
    rank = best.model.get_params(deep=False).get("rank")
    arguments = f"n_components={best.model.n_components}" + (f", rank={rank}" if rank else "")
    lines = (
        f"Model:  {model} ({best.name}, the highest total correlation; see: knoi info {model})",
        "",
        "Next, two views of your own, whose rows belong together:",
        f"  from knoi import {best.name}",
        f"  model = {best.name}({arguments}).fit(X, Y)",
        "  print(model.score(X_test, Y_test))",
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
