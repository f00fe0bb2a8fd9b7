"""The command line: `knoi demo`, `knoi info`.

Results go to stdout, errors to stderr as one line. Exit codes: 0 done, 1 it could not be done,
2 the command was not understood, 130 interrupted.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from knoi import __version__
from knoi.exceptions import InputError, KnoiError

if TYPE_CHECKING:
    from knoi.demo import DemoResult

# Every complaint about the command itself derives from it, whichever click typer was built on.
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

# Read by `main` from the arguments themselves, since it must work even where parsing fails.
_Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    try:
        code = app(args=arguments, prog_name="knoi", standalone_mode=False)
    except _UsageError as error:
        if debug:
            raise
        message = error.format_message().rstrip(".")
        return _fail(f"{message}. Options and commands: knoi --help", 2)
    except (KnoiError, OSError) as error:
        if debug:
            raise
        return _fail(str(error), 1)
    if code == 130:
        return _fail("interrupted.", 130)
    return int(code or 0)


def _fail(message: str, code: int) -> int:
    print("knoi:", " ".join(message.splitlines()), file=sys.stderr)
    return code


@app.callback(invoke_without_command=True)
def _knoi(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: _Debug = False,
) -> None:
    """Canonical correlation analysis of two views, linear and with kernels, at any size."""
    if show_version:
        print(f"knoi {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the report and the model are written.")
    ] = Path("knoi-demo"),
    samples: Annotated[
        int, typer.Option(metavar="N", help="Training images to make, at least 500.")
    ] = 30_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Makes the run repeatable.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    debug: _Debug = False,
) -> None:
    """Find the right half of a digit from its left half; needs no data and under a minute."""
    # A second of imports that `knoi --help` need not take.
    from knoi.demo import MIN_SAMPLES, N_STEPS, run_demo
    from knoi.demo_page import demo_report

    _at_least(MIN_SAMPLES, samples, "--samples")
    _at_least(0, seed, "--seed")
    # Learning that nothing can be written there must not take the time of the demo.
    _make_folder(output)
    console = Console(quiet=quiet, highlight=False)
    with _progress(console, N_STEPS) as step:
        result = run_demo(samples, seed, on_step=step)
    report, model = output / "report.html", output / "model.knoi"
    result.best.model.save(model)
    demo_report(result).write(report)
    console.print(_demo_table(result))
    _say_what_next(console, result, report, model)


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="A model file written by save.", metavar="MODEL")],
    debug: _Debug = False,
) -> None:
    """Show what a model file holds: method, parameters, shapes, correlations."""
    from knoi.estimators import load
    from knoi.persistence import read_model

    fitted, header = load(model), read_model(model).header
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    facts = [("file", f"{model} ({model.stat().st_size:,} bytes)")]
    facts.append(("written by", f"knoi {header['knoi_version']}, format {header['format']}"))
    facts.append(("method", type(fitted).__name__))
    params = fitted.get_params(deep=False).items()
    facts += [("parameters" if i == 0 else "", f"{k}={v!r}") for i, (k, v) in enumerate(params)]
    for name, view in (("X", fitted.projection_.x), ("Y", fitted.projection_.y)):
        rank, L = view.weights.shape
        columns, kernel = view.features.n_cols, view.features.kernel
        facts.append((f"view {name}", f"{columns} columns -> {rank} features -> {L} components"))
        facts.append(("", f"{kernel!r}, weights {view.weights.dtype}"))
    correlations = " ".join(f"{rho:.3f}" for rho in fitted.correlations_)
    facts.append(("correlations", f"{correlations} (training)"))
    facts.append(("", f"their sum: {fitted.correlations_.sum():.3f}"))
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    console.print(table)


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


@contextmanager
def _progress(console: Console, n_steps: int) -> Iterator[Callable[[str], None]]:
    """Yield what to call with each step: a bar on a terminal, plain lines elsewhere."""
    done = 0
    if not console.is_terminal:

        def say(step: str) -> None:
            nonlocal done
            done += 1
            console.print(f"[{done}/{n_steps}] {step}", markup=False, soft_wrap=True)
            console.file.flush()

        yield say
        return

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task("", total=n_steps)

        def advance(step: str) -> None:
            nonlocal done
            bar.update(task, description=step, completed=done)
            done += 1

        yield advance


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


def _say_what_next(console: Console, result: "DemoResult", report: Path, model: Path) -> None:
    best = result.best
    rank = best.model.get_params(deep=False).get("rank")
    arguments = f"n_components={best.model.n_components}" + (f", rank={rank}" if rank else "")
    lines = (
        f"Report: {report}",
        f"Model:  {model} ({best.name}, the highest total correlation; see: knoi info {model})",
        "",
        "Next, two views of your own, whose rows belong together:",
        f"  from knoi import {best.name}",
        f"  model = {best.name}({arguments}).fit(X, Y)",
        "  print(model.score(X_test, Y_test))",
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
