"""Projections of a view that need not fit in memory, a piece of rows at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.checked import CheckedView
from knoi.estimators.parameters import check_domain

if TYPE_CHECKING:
    from knoi.data.source import ViewSource
    from knoi.estimators.base import BaseCCA

# Bytes of a view that are read at a time, and rows at most.
_PIECE_BYTES = 64 * 2**20
_MOST_ROWS = 65_536


def projected_pieces(
    model: "BaseCCA", view: "ViewSource", side: str
) -> Iterator[tuple[int, NDArray[Any]]]:
    """First row and projection (b, L) of each piece of view "X" or "Y"; errors name true rows."""
    projection = model.projection_.x if side == "X" else model.projection_.y
    project = model.transform if side == "X" else model.transform_y
    checked = CheckedView(view, side)
    rows = max(1, min(_MOST_ROWS, _PIECE_BYTES // view.row_bytes))
    for start in range(0, view.n_rows, rows):
        chunk = checked.run(start, min(start + rows, view.n_rows))
        check_domain(side, projection.features.kernel, chunk, start)
        yield start, project(chunk)


def projected_rows(
    model: "BaseCCA", view: "ViewSource", side: str, rows: list[int]
) -> NDArray[Any]:
    """Projections of the given rows, in the order given."""
    chunk = CheckedView(view, side).rows(np.asarray(rows, dtype=np.int64))
    project = model.transform if side == "X" else model.transform_y
    Z: NDArray[Any] = project(chunk)
    return Z
