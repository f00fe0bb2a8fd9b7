"""Which inputs a component is made of: correlations of the columns of a view with its variates."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.estimators.base import BaseCCA
from knoi.exceptions import NotKeptError
from knoi.report.images import Shape, shrunk
from knoi.report.measures import MOST_COMPONENTS
from knoi.report.packing import packed, rounded
from knoi.report.rows import Names

# Columns shown of a view that is no picture.
N_COLUMNS = 15
# Numbers of all images of a view.
_MOST_NUMBERS = 500_000
_MOST_CHARACTERS = 40


@dataclass(frozen=True)
class Importance:
    """What the page shows of the columns of one view, or why it shows nothing."""

    data: dict[str, Any] | None
    missing: str | None = None


def importance(model: BaseCCA, view: int, shape: Shape | None, names: Names) -> Importance:
    """An image for each component where columns are pixels, else the strongest columns."""
    try:
        loadings = (model.x_loadings_ if view == 0 else model.y_loadings_)[:, :MOST_COMPONENTS]
    except NotKeptError as error:
        return Importance(None, str(error))
    if shape is not None:
        return Importance(_images(loadings, shape))
    return Importance(_columns(loadings, names))


def _images(loadings: NDArray[Any], shape: Shape) -> dict[str, Any]:
    pictures = loadings.T.reshape(-1, *shape)
    step = math.ceil(math.sqrt(pictures.size / _MOST_NUMBERS))
    pictures = shrunk(pictures, min(step, *shape))
    L, height, width = pictures.shape
    values = packed(pictures.reshape(L, -1).T)
    return {"kind": "image", "height": height, "width": width, "values": values}


def _columns(loadings: NDArray[Any], names: Names) -> dict[str, Any]:
    strength = np.abs(loadings)
    n = min(N_COLUMNS, len(loadings))
    strongest = np.argsort(-strength, axis=0, kind="stable")[:n].T  # (L, n)
    return {
        "kind": "columns",
        "n_columns": len(loadings),
        "names": [[_name(int(j), names) for j in row] for row in strongest],
        "values": [rounded(loadings[row, k], 3) for k, row in enumerate(strongest)],
    }


def _name(column: int, names: Names) -> str:
    name = f"column {column}" if names is None else str(names[column])
    return name if len(name) <= _MOST_CHARACTERS else name[: _MOST_CHARACTERS - 1] + "…"
