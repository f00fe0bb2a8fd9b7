"""A nested state split into a header's JSON part and named tensors, and put together again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from knoi.exceptions import InputError, ModelFileError
from knoi.persistence.plain import check_depth, checked_key, plain_mapping, plain_value
from knoi.persistence.sparse import CSR_TAG, csr_parts, joined_csr
from knoi.persistence.tensors import Array, storable


def flatten_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split a nested state into a header's JSON part and tensors named "a/b/c".

    Parameters
    ----------
    state : mapping
        Nested dicts whose leaves are arrays, sparse rows (each becomes three tensors) or what a
        header may hold; keys without "/".

    Returns
    -------
    json_part : dict
        The state without its arrays; dicts stay where they were, even if nothing is left in them.
    tensors : dict of str to ndarray
        The arrays, by the path of keys that leads to them.
    """
    tensors: dict[str, Array] = {}
    return _without_arrays(state, (), tensors), tensors


def unflatten_state(json_part: Mapping[str, Any], tensors: Mapping[str, Array]) -> dict[str, Any]:
    """Put back together what `flatten_state` has split."""
    state = plain_mapping(json_part, "state")
    for name, array in tensors.items():
        *parents, leaf = name.split("/")
        place: Any = state
        for key in parents:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                break
        if not isinstance(place, dict) or leaf in place:
            raise ModelFileError(
                f"The state has both a value and a tensor on the way to {name!r}: its two parts do "
                "not belong together. Save the model again."
            )
        place[leaf] = array
    joined: dict[str, Any] = joined_csr(state)
    return joined


def _without_arrays(
    state: Mapping[str, Any], path: tuple[str, ...], tensors: dict[str, Array]
) -> dict[str, Any]:
    json_part: dict[str, Any] = {}
    where = "".join(f"[{key!r}]" for key in path)
    check_depth(len(path), f"state{where}")
    for key, value in state.items():
        name = checked_key(key, f"state{where}")
        if "/" in name:
            raise InputError(
                f"state{where} has the key {name!r}, but '/' separates the keys in a tensor's "
                "name. Rename the key."
            )
        if name == CSR_TAG:
            raise InputError(
                f"state{where} has the key {name!r}, by which a model file marks sparse rows. "
                "Rename the key."
            )
        if isinstance(value, np.ndarray):
            tensor = "/".join((*path, name))
            tensors[tensor] = storable(value, tensor)
        elif scipy.sparse.issparse(value):
            json_part[name], parts = csr_parts(value)
            for part, array in parts.items():
                tensor = "/".join((*path, name, part))
                tensors[tensor] = storable(array, tensor)
        elif isinstance(value, Mapping):
            json_part[name] = _without_arrays(value, (*path, name), tensors)
        else:
            json_part[name] = plain_value(value, f"state{where}[{name!r}]", len(path) + 1)
    return json_part
