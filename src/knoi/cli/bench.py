"""`knoi bench`: the experiments anyone can run again."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from knoi.cli.options import Debug
from knoi.cli.output import examples, paragraphs
from knoi.exceptions import InputError

EXAMPLES = examples(
    "knoi bench mnist8m --mnist data/mnist --list",
    "knoi bench mnist8m --mnist data/mnist --samples 20000 --ranks 512 --output try",
    "knoi bench mnist8m --methods knoi-nystrom --ranks 16384 --budget-minutes 20",
)

# What `knoi.bench.mnist8m` calls them; repeated here because that takes a second to import.
NAMES = ("linear", "fkcca", "nkcca", "dsgd", "knoi", "knoi-fourier", "knoi-nystrom")

bench = typer.Typer()


@bench.callback(invoke_without_command=True)
def _bench(context: typer.Context) -> None:
    """Run the experiments of the paper again."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def mnist8m(
    methods: Annotated[
        str, typer.Option(metavar="NAME,...", help=f"Methods to run: {', '.join(NAMES)}.")
    ] = "",
    ranks: Annotated[
        str, typer.Option(metavar="M,...", help="Ranks, instead of each method's own.")
    ] = "",
    samples: Annotated[
        str, typer.Option(metavar="N,...", help="Training samples, instead of the plan's.")
    ] = "",
    seeds: Annotated[str, typer.Option(metavar="S,...", help="Random seeds.")] = "0",
    budget_minutes: Annotated[
        float | None,
        typer.Option(metavar="T", help="Minutes after which a stochastic method stops."),
    ] = None,
    mnist: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of MNIST's idx files; else they are fetched."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to keep images in, 784 bytes each."),
    ] = None,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the results, a JSON file a cell.")
    ] = Path("benchmarks/results/mnist8m"),
    test_rows: Annotated[
        int, typer.Option(metavar="N", help="Held-out rows to judge on.")
    ] = 100_000,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory for each fit.")] = "12GiB",
    dry_run: Annotated[
        bool, typer.Option("--list", help="Show what would be run, and what is stored.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Table 1 and Figure 1 of the KNOI paper, on a stand-in for MNIST8M.

    Every finished cell is stored at once and not computed again; a run that was stopped goes on
    where it was. All of it takes most of a day on two cores.
    """
    from knoi.bench.cells import Cells
    from knoi.bench.mnist8m import Experiment, wanted_cells

    console = Console(highlight=False)

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    cells = list(
        wanted_cells(
            [name for name in methods.split(",") if name],
            _numbers(ranks, "--ranks"),
            _numbers(samples, "--samples"),
            _numbers(seeds, "--seeds"),
            budget_minutes,
        )
    )
    experiment = Experiment(output, mnist, cache, test_rows, memory, say)
    for cell in cells:
        if dry_run:
            say(f"{cell.key}: {'stored' if Cells(output).stored(cell.key) else 'to be run'}")
        else:
            experiment.run(cell)
    console.print(_table(Cells(output).all()))


bench.command(help=paragraphs(mnist8m.__doc__), epilog=EXAMPLES)(mnist8m)


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.replace("_", "").split(",") if part]
    except ValueError:
        raise InputError(f"{option} {text}: wanted whole numbers, separated by commas.") from None


def _table(cells: list[dict[str, Any]]) -> Table:
    from knoi.bench.mnist8m import METHODS, PAPER

    table = Table(
        title="Total correlation on held-out pairs of the MNIST8M stand-in, of 50",
        caption="paper: MNIST8M itself, 8 million samples, six cores",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("method", "M", "samples", "refit", "fitted", "minutes", "paper", "minutes"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, method in METHODS.items():
        own = [cell for cell in cells if cell["method"] == name]
        for cell in sorted(own, key=lambda cell: (cell["rank"] or 0, cell["samples"])):
            paper = PAPER.get((name, cell["rank"]))
            table.add_row(
                method.label,
                "" if cell["rank"] is None else f"{cell['rank']:,}",
                f"{cell['samples']:,}",
                f"{cell['refit']:.2f}",
                f"{cell['fitted']:.2f}",
                f"{cell['seconds'] / 60:.1f}",
                "" if paper is None else f"{paper[0]}",
                "" if paper is None else f"{paper[1]}",
            )
    return table
