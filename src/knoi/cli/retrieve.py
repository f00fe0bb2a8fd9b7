"""`knoi retrieve`: find the rows of one view that are nearest to given rows of the other."""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from knoi.cli import options
from knoi.cli.files import check_columns, load_model, read_texts
from knoi.cli.output import examples, one_line, print_json, results, table
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi retrieve model.knoi X_test.npy Y_test.npy --rows 0,5,10-20",
    "knoi retrieve model.knoi images.npy texts.npz --from y --rows 3 --top 10",
    "knoi retrieve model.knoi X_test.npy Y_test.npy --rows 0-99 --csv > matches.csv",
    "knoi retrieve model.knoi X.npz Y.npz --rows 3 --texts verses.csv:english",
)
USAGE = "knoi retrieve MODEL X Y --rows 0,5,10-20"
_ROWS = "Rows to look up, from 0: numbers and ranges, e.g. 0,5,10-20."
_TEXTS = (
    "A text to show for each row: one per line of a text file, or one array or column of any "
    "format (rows.csv:title); give it twice if X and Y differ."
)
_SIMILARITY = options.choice("cosine", "euclidean", "dot")


def retrieve(
    model: options.Model,
    x: options.ViewX,
    y: options.ViewY,
    rows: Annotated[Any, options.option("ROWS", _ROWS, parser=options.row_numbers)],
    top: Annotated[int, options.option("N", "Matches per row.", min=1)] = 5,
    source: Annotated[str, options.view_option("The view the rows are from.", "--from")] = "x",
    similarity: Annotated[
        Any, options.option("NAME", "cosine, euclidean or dot.", parser=_SIMILARITY)
    ] = "cosine",
    texts: Annotated[list[Path] | None, options.option("FILE", _TEXTS, "--texts")] = None,
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
        raise options.usage_error("csv", "choose one of --json and --csv.")
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    files = options.text_files(texts)
    queries = _search(fitted, (x, y), rows, top, source, similarity, files)
    if as_json:
        names = {"model": str(model), "from": source, "similarity": similarity}
        print_json({**names, "queries": queries})
    elif as_csv:
        _write_csv(queries)
    else:
        made = _table if texts is None else _table_of_texts
        results().print(made(queries, source, similarity))


def _search(
    fitted: "BaseCCA",
    paths: tuple[Path, Path],
    rows: list[int],
    top: int,
    source: str,
    kind: Any,
    files: tuple[Path | None, Path | None],
) -> list[dict[str, Any]]:
    """Return the matches of each row, best first, and the rank of its partner if it has one."""
    import numpy as np

    from knoi.arrays.random import View
    from knoi.data.open import open_view, opened_view
    from knoi.data.source import CheckedView
    from knoi.metrics.retrieval import partner_ranks, top_matches

    with opened_view(paths[0], "X") as X, opened_view(paths[1], "Y") as Y:
        check_columns((X.n_cols, Y.n_cols), (fitted.n_features_in_, fitted.n_features_y_))
        texts: list[Any] = [
            path and read_texts("--texts", path, view.n_rows, name)
            for name, view, path in zip("XY", (X, Y), files, strict=True)
        ]
        for view, file in zip(View, (X, Y), strict=True):
            fitted._check_columns(view, file)
        sides = ("X", X, fitted.projection_.x), ("Y", Y, fitted.projection_.y)
        (name, ours, own), (other, theirs, their) = sides if source == "x" else sides[::-1]
        if max(rows) >= ours.n_rows:
            raise InputError(
                f"--rows has {max(rows)}, but {name} has rows 0 to {ours.n_rows - 1}. Give rows in "
                "that range."
            )
        wanted = CheckedView(ours, name).take(np.asarray(rows, dtype=np.int64))
        queries = fitted._project(open_view(wanted, name), name, own)
        gallery = fitted._project(theirs, other, their)
    indices, values = top_matches(queries, gallery, min(top, len(gallery)), similarity=kind)
    ranks = [None] * len(rows)
    if ours.n_rows == theirs.n_rows:
        ranks = partner_ranks(queries, gallery, rows, similarity=kind).tolist()
    own_texts, others = texts if source == "x" else texts[::-1]
    return [
        {
            **_row(row, own_texts),
            "rank_of_partner": rank,
            "matches": [
                {**_row(int(i), others), "similarity": float(v)}
                for i, v in zip(*found, strict=True)
            ],
        }
        for row, rank, *found in zip(rows, ranks, indices, values, strict=True)
    ]


def _row(row: int, texts: Any) -> dict[str, Any]:
    return {"row": row} if texts is None else {"row": row, "text": str(texts[row])}


def _write_csv(queries: list[dict[str, Any]]) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    texts = ["text", "text_of_match"] if "text" in queries[0] else []
    lines.writerow(["row", "place", "match", "similarity", *texts])
    for query in queries:
        for place, match in enumerate(query["matches"], start=1):
            found = [query["row"], place, match["row"], f"{match['similarity']:.6g}"]
            lines.writerow([*found, *(one["text"] for one in (query, match) if texts)])


def _table_of_texts(queries: list[dict[str, Any]], source: str, similarity: str) -> Table:
    """The matches below each row, one per line, with their texts."""
    paired = queries[0]["rank_of_partner"] is not None
    ours, theirs = ("X", "Y") if source == "x" else ("Y", "X")
    made = table(
        "place",
        "row",
        similarity,
        title=f"rows of {ours}, and the nearest rows of {theirs}",
        caption="✓ the partner" if paired else None,
    )
    made.add_column("text", overflow="fold")
    for query in queries:
        rank = query["rank_of_partner"]
        note = "" if rank is None else f"  (partner: rank {rank:,.10g})"
        text = Text(one_line(query["text"])).append(note, "dim")
        made.add_row(ours, str(query["row"]), "", text, style="bold")
        for place, match in enumerate(query["matches"], start=1):
            row = str(match["row"])
            if paired and match["row"] == query["row"]:
                row = f"[bold green]{row} ✓"
            value = f"{match['similarity']:.3f}"
            made.add_row(str(place), row, value, Text(one_line(match["text"])))
        made.add_section()
    return made


def _table(queries: list[dict[str, Any]], source: str, similarity: str) -> Table:
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
        found = [match["row"] for match in query["matches"]]
        cells = [str(row) for row in found]
        if paired:
            cells = [f"[bold green]{i} ✓" if i == query["row"] else str(i) for i in found]
            cells.insert(0, f"[dim]{query['rank_of_partner']:,.10g}")
        made.add_row(str(query["row"]), *cells)
    return made
