"""Sparse rows in a model file: three tensors and a shape, checked before anything indexes by them.

A file may claim any places for its numbers; compiled code would look there without asking.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from knoi.exceptions import ModelFileError

# The key by which the JSON part marks sparse rows; its value is their shape.
CSR_TAG = "$csr"
_PARTS = ("data", "indices", "indptr")


def csr_parts(rows: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sparse rows as (what goes into the JSON part, tensors by name)."""
    rows = scipy.sparse.csr_array(rows)
    return {CSR_TAG: list(rows.shape)}, {part: getattr(rows, part) for part in _PARTS}


def joined_csr(state: Any, path: tuple[str, ...] = ()) -> Any:
    """The state with sparse rows in the place of their parts, wherever they are nested."""
    if not isinstance(state, dict):
        return state
    if CSR_TAG in state:
        return _checked(state, "/".join(path))
    return {key: joined_csr(value, (*path, key)) for key, value in state.items()}


def _checked(state: Mapping[str, Any], name: str) -> scipy.sparse.csr_array:
    def refuse(finding: str) -> ModelFileError:
        return ModelFileError(
            f"The sparse rows {name!r} of the state do not fit together: {finding}. Save the model "
            "again."
        )

    if set(state) != {CSR_TAG, *_PARTS} or not all(
        isinstance(state[part], np.ndarray) and state[part].ndim == 1 for part in _PARTS
    ):
        raise refuse(f"wanted the tensors {', '.join(_PARTS)}, of one dimension")
    shape = state[CSR_TAG]
    if not (
        isinstance(shape, list)
        and len(shape) == 2
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    ):
        raise refuse(f"{shape!r} is not a shape")
    n, d = shape
    data, indices, indptr = (state[part] for part in _PARTS)
    if indices.dtype.kind != "i" or indptr.dtype.kind != "i":
        raise refuse("places are not integers")
    if len(indptr) != n + 1 or len(indices) != len(data):
        raise refuse("the lengths of its tensors do not agree with its shape")
    if indptr[0] != 0 or indptr[-1] != len(data) or np.any(indptr[1:] < indptr[:-1]):
        raise refuse("its rows do not follow each other")
    if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < d):
        raise refuse(f"it has a column outside 0 to {d - 1}")
    return scipy.sparse.csr_array((data, indices, indptr), shape=(n, d))
