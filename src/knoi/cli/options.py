"""Options that several commands share, and what was typed as one."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from knoi.cli.parsing import image_size, memory_size, number_or, pair_of, seconds, setting, word

# Read by `main` from the arguments themselves, since it must work even where parsing fails.
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document, and nothing else.")
]

SOURCES = (
    ".npy, .npz, .h5:/DATASET, .zarr, .parquet, .csv, .tsv (either gzipped, too) or .mat; "
    "PATH:NAME picks an array, or columns, of a file that holds several."
)
ViewX = Annotated[
    Path, typer.Argument(metavar="X", show_default=False, help=f"One view: {SOURCES}")
]
ViewY = Annotated[
    Path, typer.Argument(metavar="Y", show_default=False, help="The other view, row by row.")
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", show_default=False, help="A model file, as `knoi fit` writes."),
]

Components = Annotated[
    int, typer.Option("--components", "-k", metavar="N", min=1, help="Dimensions to project to.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Makes the run repeatable.")]

_FIT = "How to fit"
Kernel = Annotated[
    Any,
    typer.Option(
        parser=pair_of(word),
        metavar="NAME",
        help="rbf, laplacian, cauchy, matern, linear, polynomial, chi2, ...; X:Y, one for each.",
        rich_help_panel=_FIT,
    ),
]
Rank = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Features a view: more is better and slower.", rich_help_panel=_FIT
    ),
]
Width = Annotated[
    Any,
    typer.Option(
        parser=pair_of(number_or("median")),
        metavar="W",
        help="Length scale of the kernel: a number or median (the default); X:Y, one for each.",
        rich_help_panel=_FIT,
    ),
]
Reg = Annotated[
    Any,
    typer.Option(
        parser=pair_of(number_or("auto")),
        metavar="R",
        help="Regularisation, relative to the variance of a view; X:Y, one for each.",
        rich_help_panel=_FIT,
    ),
]
Approximation = Annotated[
    Any,
    typer.Option(
        parser=pair_of(word),
        metavar="NAME",
        help="Features that stand for the kernel: nystrom, fourier, random (suits the kernel), ...",
        rich_help_panel=_FIT,
    ),
]
Landmarks = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How nystrom features choose their rows: uniform, kmeans, leverage, ...",
        rich_help_panel=_FIT,
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Passes over the data.", rich_help_panel=_FIT),
]
Settings = Annotated[
    list[Any] | None,
    typer.Option(
        "--set",
        parser=setting,
        metavar="NAME=VALUE",
        help="Any other parameter of the Python class, e.g. --set momentum=0.99; may be repeated.",
        rich_help_panel=_FIT,
    ),
]

_MACHINE = "The machine"
Memory = Annotated[
    str | None,
    typer.Option(
        parser=memory_size,
        metavar="SIZE",
        help="Memory to keep to, e.g. 4GiB; by default half of what is free.",
        rich_help_panel=_MACHINE,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="Threads; by default every core.", rich_help_panel=_MACHINE),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="cpu or cuda, by torch.", rich_help_panel=_MACHINE),
]

_REPORT = "The report"
Test = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--test",
        metavar="X_TEST Y_TEST",
        help="Two files of pairs that were not fitted to.",
        rich_help_panel=_REPORT,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What each row is, to colour the report by: a text a line, or one array or column of "
        "any format that a view may have.",
        rich_help_panel=_REPORT,
    ),
]
Images = Annotated[
    list[Any] | None,
    typer.Option(
        "--images",
        parser=image_size,
        metavar="HxW",
        help="Rows are pictures of this height and width; given twice, for X and for Y.",
        rich_help_panel=_REPORT,
    ),
]
Title = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Heading of the report.", rich_help_panel=_REPORT),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--time",
        parser=seconds,
        metavar="TIME",
        help="Stop training after 90s, 10m or 1h30m.",
        rich_help_panel=_FIT,
    ),
]


@dataclass(frozen=True)
class Invocation:
    """What was typed."""

    arguments: tuple[str, ...]

    def command(self, *more: str) -> str:
        """The command line, ready to be pasted, with what is to be added to it."""
        added = (argument for argument in more if argument not in self.arguments)
        return shlex.join(["knoi", *self.arguments, *added])


def invocation(context: typer.Context) -> Invocation:
    """What was typed; the bare command where nothing was, as in a test."""
    typed = context.obj
    if isinstance(typed, Invocation):
        return typed
    return Invocation((context.info_name or "",))
