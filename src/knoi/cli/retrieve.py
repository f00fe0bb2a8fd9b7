"""`knoi retrieve`: the rows of one view that are nearest to given rows of the other."""

import csv
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from knoi.cli.files import check_columns, load_model
from knoi.cli.options import AsJson, Debug, Device, Jobs, Memory, Model, ViewX, ViewY
from knoi.cli.parsing import row_numbers
from knoi.cli.screen import examples, print_json, results, table
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi retrieve model.knoi X_test.npy Y_test.npy --rows 0,5,10-20",
    "knoi retrieve model.knoi images.npy texts.npz --from y --rows 3 --top 10",
    "knoi retrieve model.knoi X_test.npy Y_test.npy --rows 0-99 --csv > matches.csv",
)
USAGE = "knoi retrieve MODEL X Y --rows 0,5,10-20"
SIMILARITIES = ("cosine", "euclidean", "dot")
# Rows compared at a time: 8 MiB of similarities.
_QUERIES, _GALLERY = 256, 4096


def retrieve(
    model: Model,
    x: ViewX,
    y: ViewY,
    rows: Annotated[
        Any,
        typer.Option(
            parser=row_numbers,
            metavar="ROWS",
            show_default=False,
            help="Rows to look up, from 0: numbers and ranges, e.g. 0,5,10-20.",
        ),
    ],
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Matches a row.")] = 5,
    source: Annotated[
        str, typer.Option("--from", metavar="x|y", help="The view that the rows are of.")
    ] = "x",
    similarity: Annotated[
        str, typer.Option(metavar="NAME", help="cosine, euclidean or dot.")
    ] = "cosine",
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print one match a line, comma-separated.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Find the rows of the other view that belong to given rows of one, best first.

    Where X and Y have as many rows, row i of one belongs to row i of the other: its own partner is
    marked, and "own" is the place it takes among all rows. Else Y (or X) is only searched.
    """
    _choice(source, ("x", "y"), "--from")
    _choice(similarity, SIMILARITIES, "--similarity")
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.", param_hint="'--csv'")
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    found = _find(fitted, (x, y), rows, top, source, similarity)
    if as_json:
        print_json(found.document(str(model)))
    elif as_csv:
        found.write_csv()
    else:
        results().print(found.table())


@dataclass(frozen=True)
class Found:
    """Matches of some rows.

    Attributes
    ----------
    source : {"x", "y"}
        The view of the rows looked up.
    rows : list of int
    matches : array (n, k) of rows of the other view, best first
    similarities : array (n, k)
    own : array (n,) or None
        Place of each row's partner among all rows; None where rows have none.
    """

    source: str
    similarity: str
    rows: list[int]
    matches: Any
    similarities: Any
    own: Any

    def document(self, model: str) -> dict[str, Any]:
        """Everything, ready for JSON."""
        queries = []
        for i, row in enumerate(self.rows):
            pairs = zip(self.matches[i].tolist(), self.similarities[i].tolist(), strict=True)
            matches = [{"row": int(at), "similarity": value} for at, value in pairs]
            own = None if self.own is None else float(self.own[i])
            queries.append({"row": row, "rank_of_partner": own, "matches": matches})
        return {
            "model": model,
            "from": self.source,
            "similarity": self.similarity,
            "queries": queries,
        }

    def write_csv(self) -> None:
        """One match a line on stdout."""
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(["row", "place", "match", "similarity"])
        for i, row in enumerate(self.rows):
            for place, (at, value) in enumerate(
                zip(self.matches[i].tolist(), self.similarities[i].tolist(), strict=True), start=1
            ):
                lines.writerow([row, place, at, f"{value:.6g}"])

    def table(self) -> Table:
        """A line a row, its partner marked."""
        other = "Y" if self.source == "x" else "X"
        k = self.matches.shape[1]
        headings = [f"{'best' if place == 1 else place}" for place in range(1, k + 1)]
        made = table(
            f"row of {self.source.upper()}",
            *([] if self.own is None else ["own"]),
            *headings,
            title=f"nearest rows of {other} ({self.similarity})",
            caption=None if self.own is None else "✓ the partner; own: its place among all rows",
        )
        for i, row in enumerate(self.rows):
            cells = [
                Text(f"{at} ✓", style="bold green")
                if self.own is not None and at == row
                else Text(str(at))
                for at in self.matches[i].tolist()
            ]
            own = [] if self.own is None else [Text(f"{self.own[i]:,.10g}", style="dim")]
            made.add_row(Text(str(row)), *own, *cells)
        return made


def _find(
    fitted: "BaseCCA", paths: tuple[Any, Any], rows: list[int], top: int, source: str, kind: Any
) -> Found:
    import numpy as np

    from knoi.cli.projecting import projected_pieces, projected_rows
    from knoi.data.views import open_view
    from knoi.metrics import top_matches

    views = [open_view(path, name) for path, name in zip(paths, "XY", strict=True)]
    try:
        wanted = fitted.n_features_in_, fitted.n_features_y_
        check_columns((views[0].n_cols, views[1].n_cols), wanted)
        asked, searched = ("X", "Y") if source == "x" else ("Y", "X")
        ours, theirs = views if source == "x" else views[::-1]
        if max(rows) >= ours.n_rows:
            raise InputError(
                f"--rows has {max(rows)}, but {asked} has rows 0 to {ours.n_rows - 1}. Give rows "
                "that are there."
            )
        queries = projected_rows(fitted, ours, asked, rows)
        gallery = np.concatenate([Z for _, Z in projected_pieces(fitted, theirs, searched)])
    finally:
        for view in views:
            view.close()
    matches, similarities = top_matches(queries, gallery, min(top, len(gallery)), similarity=kind)
    paired = ours.n_rows == theirs.n_rows
    own = _places(queries, gallery, rows, kind) if paired else None
    return Found(source, kind, rows, matches, similarities, own)


def _places(queries: Any, gallery: Any, rows: list[int], kind: Any) -> Any:
    """Place of each query's partner among all rows of the gallery; 1 is best, ties share."""
    import numpy as np

    from knoi.metrics.similarity import compare, slices

    comparison = compare(queries, gallery, kind)
    partners = np.asarray(rows)
    places = np.empty(len(rows))
    for some in slices(len(rows), _QUERIES):
        Q = comparison.queries.rows(some)
        own, rounding = comparison.paired_scores(Q, comparison.gallery.rows(partners[some]))
        above, below = (own + rounding)[:, None], (own - rounding)[:, None]
        better, no_worse = np.zeros((2, len(Q)))
        for part in slices(len(gallery), _GALLERY):
            S = comparison.scores(Q, comparison.gallery.rows(part))
            better += (above < S).sum(axis=1)
            no_worse += (below <= S).sum(axis=1)
        # The partner itself is among those that are no worse.
        places[some] = better + 1 + np.maximum(no_worse - better - 1, 0) / 2
    return places


def _choice(value: str, known: tuple[str, ...], option: str) -> None:
    if value not in known:
        raise typer.BadParameter(
            f"{value!r}: wanted {' or '.join(known)}.", param_hint=f"'{option}'"
        )
