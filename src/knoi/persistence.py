"""Model files: a JSON header and raw tensors in one safetensors file; nothing in it is executed.

Any safetensors reader opens a model file. Its metadata holds the header, a JSON text, under the key
"knoi". The header's "sha256" is the digest of the whole file with the digest's 64 characters taken
as zeros, so that any altered byte is detected.

`flatten_state` splits a nested state, as `state_dict` methods return it, into a part of the header
and named tensors; `unflatten_state` puts it together again.
"""

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import scipy.sparse

from knoi import __version__
from knoi.exceptions import InputError, InputTypeError, ModelFileError, SourceNotFoundError
from knoi.fileio import atomic_write

Array = np.ndarray[Any, Any]

FORMAT: int = 1

_METADATA_KEY = "knoi"
_NO_DIGEST = b"0" * 64
# The limit of safetensors readers.
_MAX_HEADER_BYTES = 100_000_000
_DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"]

# JSON has no NaN or infinity: they are stored as {"$float": "nan"}.
_FLOAT_TAG = "$float"
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# Marks a sparse array in a state; its value is the shape.
_CSR_TAG = "$csr"
_CSR_PARTS = ("data", "indices", "indptr")
# Limits of Python's JSON reader: its recursion, and 4300 digits per integer.
_MAX_DEPTH = 100
_MAX_INTEGER_BITS = 4096


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file."""

    path: Path
    header: dict[str, Any]  # as written, plus "format", "knoi_version" and "sha256"
    tensors: dict[str, Array]  # C-contiguous, little-endian, writable


def write_model(path: str | Path, header: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Write a model file, complete or not at all.

    The header holds strings, numbers, booleans, None, lists and dicts. NumPy scalars become
    Python's, tuples become lists. The tensors may have any shape and memory layout.
    """
    # The file is written with a random placeholder, which the digest then replaces.
    placeholder = secrets.token_hex(32)
    added = {"format": FORMAT, "knoi_version": __version__, "sha256": placeholder}
    whole = _plain_mapping(header, ("header",)) | added
    stored = {name: _storable(array, name) for name, array in tensors.items()}
    text = json.dumps(_tagged(whole), allow_nan=False, separators=(",", ":"))
    with atomic_write(_writable_target(path)) as temporary:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # the usual one; safetensors may create the file anew
        try:
            safetensors.numpy.save_file(stored, temporary, metadata={_METADATA_KEY: text})
        except safetensors.SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from error
        temporary.chmod(mode)
        with open(temporary, "rb+") as file:
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if length > _MAX_HEADER_BYTES:
                raise InputError(
                    f"The header takes {length} bytes; a model file takes at most "
                    f"{_MAX_HEADER_BYTES}. Store long lists of numbers as tensors."
                )
            prefix += file.read(length)
            digest = hashlib.sha256(prefix.replace(placeholder.encode(), _NO_DIGEST))
            while chunk := file.read(1 << 20):
                digest.update(chunk)
            file.seek(prefix.index(placeholder.encode()))
            file.write(digest.hexdigest().encode())


def read_model(path: str | Path) -> ModelFile:
    """Read a model file and verify every byte of it.

    `ModelFileError`: the file is empty, truncated, altered, foreign, or of a newer format.
    """
    source = _checked_path(path)
    if not os.path.exists(source):
        raise SourceNotFoundError(f"There is no model file at {source}. Check the path.")
    if not os.path.isfile(source):
        raise _foreign(source, "it is not a file")
    with open(source, "rb") as file:
        start = file.read(9)
    if len(start) == 9 and not start.endswith(b"{"):
        raise _foreign(source, "it is not a safetensors file")
    # The header is checked before the tensors are read: a foreign file may be of any size.
    try:
        with safetensors.safe_open(source, framework="numpy") as opened:
            metadata = opened.metadata() or {}
    except (safetensors.SafetensorError, ValueError) as error:
        raise _altered(source, f"it is not a complete safetensors file ({error})") from error
    if _METADATA_KEY not in metadata:
        raise _foreign(source, f"its metadata has no {_METADATA_KEY!r}")
    header = _parse_header(metadata[_METADATA_KEY], source)

    content = source.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    digest = hashlib.sha256(content[:end].replace(header["sha256"].encode(), _NO_DIGEST))
    digest.update(memoryview(content)[end:])
    if digest.hexdigest() != header["sha256"]:
        raise _altered(source, "its bytes do not match their sha256")
    try:
        tensors = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise _altered(source, f"its tensors do not fit their description ({error})") from error
    for array in tensors.values():
        if array.dtype.str[1:] not in _DTYPES:
            raise _altered(source, f"its tensors are of dtype {array.dtype}")
    return ModelFile(source, header, tensors)


def flatten_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split a nested state into its JSON part and tensors named by their keys, as "a/b/c".

    The leaves are arrays, sparse arrays (each becomes three tensors) or what a header may hold.
    Dicts stay in the JSON part, even if they become empty.
    """
    tensors: dict[str, Array] = {}
    return _plain_mapping(state, ("state",), tensors), tensors


def unflatten_state(json_part: Mapping[str, Any], tensors: Mapping[str, Array]) -> dict[str, Any]:
    """Put together what `flatten_state` has split."""
    state = _plain(json_part, ("state",))
    for name, array in tensors.items():
        *parents, leaf = name.split("/")
        place = state
        for key in parents:
            place = place.setdefault(key, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict) or leaf in place:
            raise ModelFileError(
                f"The state has both a value and a tensor on the way to {name!r}: its two parts do "
                "not belong together. Save the model again."
            )
        place[leaf] = array
    whole: dict[str, Any] = _with_sparse(state, ())
    return whole


def _with_sparse(state: Any, path: tuple[str, ...]) -> Any:
    """The state with sparse arrays in the place of their parts, at any depth."""
    if not isinstance(state, dict):
        return state
    if _CSR_TAG not in state:
        return {key: _with_sparse(value, (*path, key)) for key, value in state.items()}
    try:
        n, d = state[_CSR_TAG]
        rows = scipy.sparse.csr_array(tuple(state[part] for part in _CSR_PARTS), shape=(n, d))
        rows.check_format(full_check=True)  # compiled code uses the indices unchecked
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(
            f"The sparse array {'/'.join(path)!r} of the state is invalid ({error}). "
            "Save the model again."
        ) from error
    return rows


def _plain_mapping(
    value: Mapping[str, Any], path: tuple[str | int, ...], tensors: dict[str, Array] | None = None
) -> dict[str, Any]:
    """The mapping in Python's own types; arrays move to `tensors`, named by their path."""
    plain: dict[str, Any] = {}
    for key, item in value.items():
        reserved = (_FLOAT_TAG,) if tensors is None else (_FLOAT_TAG, _CSR_TAG)
        if not isinstance(key, str) or key in reserved or (tensors is not None and "/" in key):
            raise InputError(
                f"{_where(path)} has the key {key!r}. Keys are strings, {_FLOAT_TAG!r} and "
                f"{_CSR_TAG!r} are reserved, and '/' separates the keys in a tensor's name. Rename "
                "the key."
            )
        name = str.__str__(key)  # a subclass may print as something else
        inner = (*path, name)
        tensor = "/".join(map(str, inner[1:]))
        if tensors is not None and isinstance(item, np.ndarray):
            tensors[tensor] = item
        elif tensors is not None and scipy.sparse.issparse(item):
            rows = scipy.sparse.csr_array(item)
            plain[name] = {_CSR_TAG: list(rows.shape)}
            tensors.update({f"{tensor}/{part}": getattr(rows, part) for part in _CSR_PARTS})
        else:
            plain[name] = _plain(item, inner, tensors)
    return plain


def _plain(value: Any, path: tuple[str | int, ...], tensors: dict[str, Array] | None = None) -> Any:
    """The value in Python's own types."""
    if isinstance(value, np.number | np.bool_) and value.itemsize <= 8:
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        if value.bit_length() > _MAX_INTEGER_BITS:
            raise InputError(
                f"{_where(path)} is an integer of {value.bit_length()} bits; a model file takes at "
                f"most {_MAX_INTEGER_BITS}. Store it as a string."
            )
        return int(value)
    if len(path) > _MAX_DEPTH + 1:
        raise InputError(
            f"{_where(path)[:60]}... is nested more than {_MAX_DEPTH} deep; perhaps it contains "
            "itself. Flatten it."
        )
    if isinstance(value, list | tuple):
        return [_plain(item, (*path, i)) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _plain_mapping(value, path, tensors)
    raise InputTypeError(
        f"{_where(path)} is of type {type(value).__name__}; a model file takes strings, numbers, "
        "booleans, None, lists and dicts, and arrays in the dicts of a state. Convert it first."
    )


def _where(path: tuple[str | int, ...]) -> str:
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])


def _tagged(value: Any) -> Any:
    """The value with NaN and infinities as tagged dicts."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_TAG: repr(value)}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if isinstance(value, dict):
        return {key: _tagged(item) for key, item in value.items()}
    return value


def _parse_header(text: str, source: Path) -> dict[str, Any]:
    def untagged(value: dict[str, Any]) -> Any:
        return _NON_FINITE[value[_FLOAT_TAG]] if _FLOAT_TAG in value else value

    def not_json(token: str) -> None:
        raise ValueError(f"{token} is not JSON")

    try:
        header = json.loads(text, object_hook=untagged, parse_constant=not_json)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _altered(source, "its model header is not the JSON that knoi writes") from error
    number = header.get("format") if isinstance(header, dict) else None
    if type(number) is not int or number < 1:
        raise _altered(source, "its model header has no format number")
    if number > FORMAT:
        raise ModelFileError(
            f"{source} has format {number}, but knoi {__version__} reads up to format {FORMAT}. "
            "Upgrade knoi: pip install --upgrade knoi"
        )
    digest = header.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise _altered(source, "its model header has no sha256")
    return dict(header)


def _storable(array: Any, name: str) -> Array:
    """The array C-contiguous and little-endian; the same array if it already is."""
    # A masked array would silently lose its mask.
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.str[1:] not in _DTYPES:
        raise InputTypeError(
            f"Tensor {name!r} is of type {type(array).__name__} and dtype "
            f"{getattr(array, 'dtype', None)}; a model file takes plain NumPy arrays of real "
            "floats up to 64 bits, integers or booleans. Convert it first."
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise InputTypeError(f"path={path!r}: give a str or a Path, without null characters.")
    return Path(path)


def _writable_target(path: str | Path) -> Path:
    target = Path(os.path.realpath(_checked_path(path)))
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(f"{target} is not a file. Add a file name, such as model.knoi.")
    if not os.path.isdir(target.parent):
        raise SourceNotFoundError(
            f"{target} cannot be written: its directory does not exist. Create it first."
        )
    return target


def _altered(source: Path, finding: str) -> ModelFileError:
    return ModelFileError(
        f"{source} is truncated or altered: {finding}. Copy or save the model again."
    )


def _foreign(source: Path, finding: str) -> ModelFileError:
    return ModelFileError(
        f"{source} is not a knoi model file: {finding}. Give a file written by a model's save "
        "method."
    )
