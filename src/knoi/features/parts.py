"""What maps made of maps share: rows for all parts, their states, the room they need."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from knoi.arrays.backend import Array
from knoi.arrays.sparse import PreparedParts, is_sparse
from knoi.exceptions import InputError
from knoi.features.base import FeatureMap, map_from_state


def check_parts(parts: tuple[FeatureMap, ...]) -> None:
    """Refuse no maps, and maps of different columns."""
    if not parts:
        raise InputError("a map made of maps needs at least one of them. Pass a fitted map.")
    if len({part.n_cols for part in parts}) > 1:
        raise InputError(
            f"the maps take rows of {[part.n_cols for part in parts]} columns: they must be of the "
            "same view. Fit them on the same rows."
        )


def prepared_parts(parts: tuple[FeatureMap, ...]) -> PreparedParts:
    """Where each part finds its prepared rows."""
    return PreparedParts.of(parts, np.zeros((1, parts[0].n_cols)))


def room(prepared: Array, n_columns: int) -> Array:
    """An array (b, n_columns) beside prepared rows."""
    if is_sparse(prepared):
        return np.empty((prepared.shape[0], n_columns), prepared.dtype)
    xp = array_namespace(prepared)
    shape = (prepared.shape[0], n_columns)
    return xp.empty(shape, dtype=prepared.dtype, device=device(prepared))


def scratch(parts: tuple[FeatureMap, ...]) -> int:
    """What parts take for a row, twice where their rows are copied side by side."""
    copies = 2 if len(parts) > 1 else 1
    return copies * sum(part.scratch_per_row() for part in parts)


def states(parts: tuple[FeatureMap, ...]) -> dict[str, Any]:
    """By number: a model file has arrays in dicts, not in lists."""
    return {str(i): part.state_dict() for i, part in enumerate(parts)}


def from_states(states: Mapping[str, Any]) -> tuple[FeatureMap, ...]:
    """The inverse of `states`."""
    return tuple(map_from_state(states[str(i)]) for i in range(len(states)))
