"""`knoi transform`: projections of files, to files."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knoi.cli.files import check_columns, load_model, open_pairs
from knoi.cli.options import SOURCES, Debug, Device, Jobs, Memory, Model, Quiet
from knoi.cli.screen import counting_rows, examples, remarks, results, say
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.cli.writing import Pieces
    from knoi.data.source import ViewSource
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi transform model.knoi X.npy -o Zx.npy",
    "knoi transform model.knoi X.npy Y.npy -o Z.npz   (arrays Zx and Zy)",
    "knoi transform model.knoi X.npy Y.npy -o Zx.npy -o Zy.npy",
    "knoi transform model.knoi Y.csv --view y -o Z.h5:/test/y",
)
USAGE = "knoi transform MODEL X [Y] -o OUTPUT"


def transform(
    model: Model,
    x: Annotated[
        Path, typer.Argument(metavar="X", show_default=False, help=f"One view: {SOURCES}")
    ],
    output: Annotated[
        list[Path],
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help=".npy (given twice for two views), .npz, or .h5:/NAME, which is added to the "
            "file if it is there.",
        ),
    ],
    y: Annotated[
        Path | None, typer.Argument(metavar="[Y]", show_default=False, help="The other view.")
    ] = None,
    view: Annotated[str, typer.Option(metavar="x|y", help="Which view a single file holds.")] = "x",
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Project rows to the model's components, from files to a file, in pieces that fit memory."""
    if view not in ("x", "y") or (view == "y" and y is not None):
        raise typer.BadParameter(
            f"{view!r}: wanted x or y, and y only with a single file.", param_hint="'--view'"
        )
    from knoi.cli.writing import Projected, writer

    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    names = ("Zx", "Zy") if y is not None else (f"Z{view}",)
    write = writer(output, names, [model, x, y])
    with ExitStack() as opened:
        views = _open(fitted, x, y, view, opened)
        rows = sum(source.n_rows for _, source in views)
        what = f"Projecting {rows:,} rows to {fitted.projection_.x.weights.shape[1]} components"
        with counting_rows(remarks(quiet), what, rows) as tell:
            made, before = {}, 0
            for name, (side, source) in zip(names, views, strict=True):
                pieces = _told(fitted, source, side, before, tell)
                made[name] = Projected(source.n_rows, pieces)
                before += source.n_rows
            write(made)
    say(results(quiet), f"Written: {' '.join(map(str, output))} ({', '.join(names)})")


def _open(
    fitted: "BaseCCA", x: Path, y: Path | None, view: str, opened: ExitStack
) -> list[tuple[str, "ViewSource"]]:
    from knoi.data.views import open_view

    if y is not None:
        pairs = opened.enter_context(open_pairs(x, y, USAGE))
        check_columns(pairs.n_cols, (fitted.n_features_in_, fitted.n_features_y_))
        return list(zip("XY", pairs.views(), strict=True))
    side = view.upper()
    source = open_view(x, side)
    opened.callback(source.close)
    wanted = {"X": fitted.n_features_in_, "Y": fitted.n_features_y_}
    if source.n_cols != wanted[side]:
        other = "Y" if side == "X" else "X"
        hint = "Give a file with the columns that were fitted."
        if source.n_cols == wanted[other]:
            hint = f"It looks like {other}: add --view {other.lower()}."
            hint = "It looks like X: leave out --view y." if other == "X" else hint
        raise InputError(
            f"{x} has {source.n_cols} columns, but {side} was fitted with {wanted[side]}. {hint}"
        )
    return [(side, source)]


def _told(
    fitted: "BaseCCA", source: Any, side: str, before: int, tell: Callable[[int], None]
) -> "Pieces":
    from knoi.cli.projecting import projected_pieces

    def pieces() -> Iterator[tuple[int, Any]]:
        for start, Z in projected_pieces(fitted, source, side):
            yield start, Z
            tell(before + start + len(Z))

    return pieces()
