"""`knoi retrieve`: find the rows of one view that are nearest to given rows of the other."""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from knoi.cli import options
from knoi.cli.files import check_columns, load_model
from knoi.cli.output import examples, print_json, results, table
from knoi.cli.transform import projected_pieces
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi retrieve model.knoi X_test.npy Y_test.npy --rows 0,5,10-20",
    "knoi retrieve model.knoi images.npy texts.npz --from y --rows 3 --top 10",
    "knoi retrieve model.knoi X_test.npy Y_test.npy --rows 0-99 --csv > matches.csv",
)
USAGE = "knoi retrieve MODEL X Y --rows 0,5,10-20"


def retrieve(
    model: options.Model,
    x: options.ViewX,
    y: options.ViewY,
    rows: Annotated[
        Any,
        typer.Option(
            parser=options.row_numbers,
            metavar="ROWS",
            show_default=False,
            help="Rows to look up, from 0: numbers and ranges, e.g. 0,5,10-20.",
        ),
    ],
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Matches per row.")] = 5,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            parser=options.choice("x", "y"),
            metavar="x|y",
            help="The view the rows are from.",
        ),
    ] = "x",
    similarity: Annotated[
        str,
        typer.Option(
            parser=options.choice("cosine", "euclidean", "dot"),
            metavar="NAME",
            help="cosine, euclidean or dot.",
        ),
    ] = "cosine",
    memory: options.Memory = None,
    jobs: options.Jobs = None,
    device: options.Device = None,
    as_json: options.AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print one match per line, comma-separated.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Find the rows of one view that match given rows of the other, best first.

    If X and Y have the same number of rows, row i of X is the partner of row i of Y: the partner is
    marked, and its rank among all rows is shown. Otherwise the other view is only searched.
    """
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.", param_hint="'--csv'")
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    found = _search(fitted, (x, y), rows, top, source, similarity)
    if as_json:
        print_json(found.document(str(model)))
    elif as_csv:
        found.write_csv()
    else:
        results().print(found.table())


@dataclass(frozen=True)
class RetrievalResult:
    """Matches of some rows.

    Attributes
    ----------
    source : {"x", "y"}
        The view of the rows looked up.
    similarity : {"cosine", "euclidean", "dot"}
    rows : list of int
    matches : array of shape (n, k)
        Rows of the other view, best first.
    similarities : array of shape (n, k)
    partner_ranks : array of shape (n,) or None
        Rank of each row's partner among all rows; None if rows have no partners.
    """

    source: str
    similarity: str
    rows: list[int]
    matches: Any
    similarities: Any
    partner_ranks: Any

    def document(self, model: str) -> dict[str, Any]:
        """Return everything, for JSON."""
        queries = []
        for i, row in enumerate(self.rows):
            matches = [{"row": at, "similarity": value} for at, value in self._matches(i)]
            rank = None if self.partner_ranks is None else float(self.partner_ranks[i])
            queries.append({"row": row, "rank_of_partner": rank, "matches": matches})
        return {
            "model": model,
            "from": self.source,
            "similarity": self.similarity,
            "queries": queries,
        }

    def write_csv(self) -> None:
        """Print one match per line."""
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(["row", "place", "match", "similarity"])
        for i, row in enumerate(self.rows):
            for place, (at, value) in enumerate(self._matches(i), start=1):
                lines.writerow([row, place, at, f"{value:.6g}"])

    def table(self) -> Table:
        """Return a table with one line per row, its partner marked."""
        other, paired = "Y" if self.source == "x" else "X", self.partner_ranks is not None
        headings = ["best", *(str(place) for place in range(2, self.matches.shape[1] + 1))]
        made = table(
            f"row of {self.source.upper()}",
            *(["partner rank"] if paired else []),
            *headings,
            title=f"nearest rows of {other} ({self.similarity})",
            caption="✓ the partner" if paired else None,
        )
        for i, row in enumerate(self.rows):
            rank = [Text(f"{self.partner_ranks[i]:,.10g}", style="dim")] if paired else []
            cells = [
                Text(f"{at} ✓", style="bold green") if paired and at == row else Text(str(at))
                for at, _ in self._matches(i)
            ]
            made.add_row(Text(str(row)), *rank, *cells)
        return made

    def _matches(self, i: int) -> list[tuple[int, float]]:
        return list(zip(self.matches[i].tolist(), self.similarities[i].tolist(), strict=True))


def _search(
    fitted: "BaseCCA", paths: tuple[Path, Path], rows: list[int], top: int, source: str, kind: Any
) -> RetrievalResult:
    import numpy as np

    from knoi.data.checked import CheckedView
    from knoi.data.open import opened_view
    from knoi.metrics.retrieval import partner_ranks, top_matches

    with opened_view(paths[0], "X") as X, opened_view(paths[1], "Y") as Y:
        check_columns((X.n_cols, Y.n_cols), (fitted.n_features_in_, fitted.n_features_y_))
        queried, searched = ("X", "Y") if source == "x" else ("Y", "X")
        ours, theirs = (X, Y) if source == "x" else (Y, X)
        project = fitted.transform if source == "x" else fitted.transform_y
        if max(rows) >= ours.n_rows:
            raise InputError(
                f"--rows has {max(rows)}, but {queried} has rows 0 to {ours.n_rows - 1}. Give rows "
                "in that range."
            )
        queries = project(CheckedView(ours, queried).take(np.asarray(rows, dtype=np.int64)))
        gallery = np.concatenate([Z for _, Z in projected_pieces(fitted, theirs, searched)])
    matches, similarities = top_matches(queries, gallery, min(top, len(gallery)), similarity=kind)
    paired = ours.n_rows == theirs.n_rows
    ranks = partner_ranks(queries, gallery, rows, similarity=kind) if paired else None
    return RetrievalResult(source, kind, rows, matches, similarities, ranks)
