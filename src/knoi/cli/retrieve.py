"""`knoi retrieve`: find the rows of one view that are nearest to given rows of the other."""

import csv
import sys
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
_ROWS = "Rows to look up, from 0: numbers and ranges, e.g. 0,5,10-20."
_SIMILARITY = options.choice("cosine", "euclidean", "dot")


def retrieve(
    model: options.Model,
    x: options.ViewX,
    y: options.ViewY,
    rows: Annotated[Any, options.option("ROWS", _ROWS, parser=options.row_numbers)],
    top: Annotated[int, options.option("N", "Matches per row.", min=1)] = 5,
    source: Annotated[
        str,
        options.option(
            "x|y", "The view the rows are from.", "--from", parser=options.choice("x", "y")
        ),
    ] = "x",
    similarity: Annotated[
        Any, options.option("NAME", "cosine, euclidean or dot.", parser=_SIMILARITY)
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
    queries = _search(fitted, (x, y), rows, top, source, similarity)
    if as_json:
        names = {"model": str(model), "from": source, "similarity": similarity}
        print_json({**names, "queries": queries})
    elif as_csv:
        _write_csv(queries)
    else:
        results().print(_table(queries, source, similarity))


def _search(
    fitted: "BaseCCA", paths: tuple[Path, Path], rows: list[int], top: int, source: str, kind: Any
) -> list[dict[str, Any]]:
    """Return the matches of each row, best first, and the rank of its partner if it has one."""
    import numpy as np

    from knoi.data.open import opened_view
    from knoi.data.source import CheckedView
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
    indices, values = top_matches(queries, gallery, min(top, len(gallery)), similarity=kind)
    ranks = [None] * len(rows)
    if ours.n_rows == theirs.n_rows:
        ranks = partner_ranks(queries, gallery, rows, similarity=kind).tolist()
    return [
        {
            "row": row,
            "rank_of_partner": rank,
            "matches": [
                {"row": int(i), "similarity": float(v)} for i, v in zip(*found, strict=True)
            ],
        }
        for row, rank, *found in zip(rows, ranks, indices, values, strict=True)
    ]


def _write_csv(queries: list[dict[str, Any]]) -> None:
    """Print one match per line."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(["row", "place", "match", "similarity"])
    for query in queries:
        for place, match in enumerate(query["matches"], start=1):
            lines.writerow([query["row"], place, match["row"], f"{match['similarity']:.6g}"])


def _table(queries: list[dict[str, Any]], source: str, similarity: str) -> Table:
    """Return a table with one line per query, its partner marked."""
    paired = queries[0]["rank_of_partner"] is not None
    made = table(
        f"row of {source.upper()}",
        *(["partner rank"] if paired else []),
        "best",
        *(str(place) for place in range(2, len(queries[0]["matches"]) + 1)),
        title=f"nearest rows of {'Y' if source == 'x' else 'X'} ({similarity})",
        caption="✓ the partner" if paired else None,
    )
    for query in queries:
        rank = [Text(f"{query['rank_of_partner']:,.10g}", style="dim")] if paired else []
        found = (match["row"] for match in query["matches"])
        cells = [
            Text(f"{row} ✓", style="bold green")
            if paired and row == query["row"]
            else Text(str(row))
            for row in found
        ]
        made.add_row(Text(str(query["row"])), *rank, *cells)
    return made
