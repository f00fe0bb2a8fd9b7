"""Labels of rows: categories, or numbers to colour by."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.exceptions import InputError
from knoi.report.packing import packed

# Colours that can be told apart; further categories are one, "other".
MOST_CATEGORIES = 10
# Numbers of more different values are coloured by a scale.
_MOST_WHOLE_NUMBERS = 20
_MOST_CHARACTERS = 60
OTHER = "other"


def checked_labels(labels: Any, n_rows: int, which: str) -> NDArray[Any] | None:
    """One label a row; `which` says of which rows."""
    if labels is None:
        return None
    found = np.asarray(labels)
    if found.ndim != 1 or len(found) != n_rows:
        raise InputError(
            f"labels has shape {found.shape}, but there are {n_rows} {which} rows: wanted one "
            f"label for each, shape ({n_rows},). Pass the labels of the {which} rows."
        )
    return found


def label_data(labels: NDArray[Any]) -> dict[str, Any]:
    """The labels of the rows shown, for the page."""
    if labels.dtype.kind in "iuf" and len(np.unique(labels)) > _MOST_WHOLE_NUMBERS:
        values = labels.astype(np.float64)
        if np.isfinite(values).all():
            return {"kind": "number", "values": packed(values[:, None])}
    texts = [_text(label) for label in labels.tolist()]
    names, codes, counts = np.unique(texts, return_inverse=True, return_counts=True)
    order = _sorted(names)
    if len(names) > MOST_CATEGORIES:
        frequent = set(np.argsort(-counts, kind="stable")[: MOST_CATEGORIES - 1].tolist())
        order = [k for k in order if k in frequent]
    group = np.full(len(names), len(order))
    group[order] = np.arange(len(order))
    groups = [str(names[k]) for k in order]
    if len(order) < len(names):
        groups.append(OTHER)
    return {
        "kind": "category",
        "names": [str(name) for name in names],
        "codes": packed(codes[:, None], whole=True),
        "groups": groups,
        "group_of": [int(k) for k in group],
    }


def _text(label: Any) -> str:
    text = f"{label:g}" if isinstance(label, float) else str(label)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _sorted(names: NDArray[Any]) -> list[int]:
    """Numbers by value, else by the alphabet."""
    try:
        return [int(k) for k in np.argsort(names.astype(np.float64), kind="stable")]
    except ValueError:
        return list(range(len(names)))
