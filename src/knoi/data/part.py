"""A part of a view as a view of its own."""

from knoi.data.checked import CheckedView
from knoi.data.row_source import RowSource
from knoi.data.runs import RowRuns


def part_source(view: CheckedView, rows: RowRuns) -> RowSource:
    """Rows of a view, numbered from 0. Values that are not finite are refused by their own row.

    The view is borrowed: closing the part leaves it open.
    """
    source = view.source
    return RowSource(
        view.name,
        shape=(rows.n_rows, source.n_cols),
        dtype=source.dtype,
        fetch=lambda start, stop: view.runs(rows.part(start, stop)),
        random_access=False,
        column_names=source.column_names,
        stored_bytes=source.row_bytes * rows.n_rows if source.sparse else None,
    )
