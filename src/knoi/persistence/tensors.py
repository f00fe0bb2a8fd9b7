"""What a tensor of a model file may be, and its bytes."""

from typing import Any

import numpy as np

from knoi.exceptions import InputError, InputTypeError

Array = np.ndarray[Any, Any]

# safetensors' names of the dtypes, by kind and item size.
DTYPES = {
    **{("f", size): f"F{8 * size}" for size in (2, 4, 8)},
    **{("i", size): f"I{8 * size}" for size in (1, 2, 4, 8)},
    **{("u", size): f"U{8 * size}" for size in (1, 2, 4, 8)},
    ("b", 1): "BOOL",
}


def checked_name(name: Any) -> str:
    """The name, if a safetensors file can hold a tensor so named."""
    if not isinstance(name, str):
        raise InputTypeError(
            f"A tensor has the name {name!r} of type {type(name).__name__}. Give it a string."
        )
    if name == "__metadata__" or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InputError(f"A safetensors file cannot hold a tensor named {name!r}. Rename it.")
    return str.__str__(name)


def storable(array: Any, name: str) -> Array:
    """Return the array C-contiguous and little-endian, itself if it already is."""
    # A masked array would silently lose its mask.
    if type(array) not in (np.ndarray, np.memmap):
        raise InputTypeError(
            f"Tensor {name!r} is of type {type(array).__name__}. Convert it to a plain NumPy array."
        )
    if (array.dtype.kind, array.itemsize) not in DTYPES:
        raise InputTypeError(
            f"Tensor {name!r} is of dtype {array.dtype}; a model file takes real floats up to 64 "
            "bits, integers and booleans. Convert it first."
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def raw_bytes(array: Array) -> memoryview:
    """The bytes of a C-contiguous array, without a copy."""
    # Flat first: an array without dimensions cannot be viewed as bytes.
    return array.reshape(-1).view(np.uint8).data
