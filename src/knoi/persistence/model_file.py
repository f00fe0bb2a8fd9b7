"""The model file: a JSON header and raw tensors in one safetensors file; nothing in it is executed.

The layout is that of safetensors, so any of its readers opens a model: eight bytes of length, a
JSON text, then the tensors' bytes. The JSON text's metadata holds our own header, itself JSON,
under the key "knoi". Its "sha256" is the digest of the whole file with the digest's own 64
characters taken as zeros; so one altered byte, even of padding, is noticed.
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.numpy

from knoi import __version__
from knoi.exceptions import InputError, InputTypeError, ModelFileError, SourceNotFoundError
from knoi.fileio import atomic_write
from knoi.persistence.plain import plain_mapping, refuse_constant, tag_non_finite, untag_non_finite
from knoi.persistence.tensors import DTYPES, Array, checked_name, raw_bytes, storable

FORMAT: int = 1

_METADATA_KEY = "knoi"
_ADDED_KEYS = ("format", "knoi_version", "sha256")
_NO_DIGEST = "0" * 64
# safetensors' own limit.
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds.

    Attributes
    ----------
    header : dict
        The header as written, plus "format", "knoi_version" and "sha256".
    tensors : dict of str to ndarray
        C-contiguous, little-endian, writable.
    """

    header: dict[str, Any]
    tensors: dict[str, Array]


def write_model(path: str | Path, header: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Write a model file whole or not at all.

    Parameters
    ----------
    path : str or Path
        An existing file is replaced only once the new one is safely on disk.
    header : mapping
        Strings, integers, floats (NaN and infinities too), booleans, None, lists and dicts of
        them. NumPy scalars become Python's, tuples become lists.
    tensors : mapping of str to ndarray
        Real floats up to 64 bits, integers or booleans, of any shape and memory layout.
    """
    plain = plain_mapping(header, "header")
    for key in _ADDED_KEYS:
        if key in plain:
            raise InputError(
                f"The header has a key {key!r}, which the model file writes itself. Rename it."
            )
    stored = {checked_name(name): storable(array, name) for name, array in tensors.items()}
    # Widest first, as safetensors does it: every tensor then starts at a multiple of its item size.
    ordered = dict(sorted(stored.items(), key=lambda item: (-item[1].itemsize, item[0])))
    target = _writable_target(path)

    digest = hashlib.sha256(_prefix(plain, ordered, _NO_DIGEST))
    for array in ordered.values():
        digest.update(raw_bytes(array))
    prefix = _prefix(plain, ordered, digest.hexdigest())

    with atomic_write(target) as temporary, open(temporary, "xb") as file:
        file.write(prefix)
        for array in ordered.values():
            file.write(raw_bytes(array))


def read_model(path: str | Path) -> ModelFile:
    """Read a model file and verify every byte of it.

    Raises
    ------
    SourceNotFoundError
        There is no such file.
    ModelFileError
        The file is empty, truncated, altered, foreign, or of a newer format.
    """
    source = _checked_path(path)
    if not os.path.exists(source):
        raise SourceNotFoundError(f"There is no model file at {source}. Check the path.")
    if not os.path.isfile(source):
        raise ModelFileError(
            f"{source} is not a file, so it holds no model. Give the path of a model file."
        )
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # The header is judged before the body is read: a foreign file may be of any size.
        prefix = _read_prefix(file, size, source)
        layout = _parse_layout(prefix[8:], source)
        header = _parse_header(layout, source)
        _check_layout(layout, len(prefix), size, source)
        file.seek(0)
        content = file.read()
    _check_digest(prefix, content, header["sha256"], source)
    try:
        tensors = safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise _altered(source, f"its tensors do not fit their description ({error})") from error
    return ModelFile(header, tensors)


def _prefix(plain: dict[str, Any], tensors: dict[str, Array], digest: str) -> bytes:
    """Return all that precedes the tensors' bytes; its length does not depend on the digest."""
    header = {**plain, "format": FORMAT, "knoi_version": __version__, "sha256": digest}
    text = json.dumps(tag_non_finite(header), allow_nan=False, separators=(",", ":"))
    layout: dict[str, Any] = {"__metadata__": {_METADATA_KEY: text}}
    begin = 0
    for name, array in tensors.items():
        end = begin + array.nbytes
        layout[name] = {
            "dtype": DTYPES[array.dtype.kind, array.itemsize],
            "shape": array.shape,
            "data_offsets": (begin, end),
        }
        begin = end
    encoded = json.dumps(layout, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # the tensors' bytes begin aligned
    if len(encoded) > _MAX_HEADER_BYTES:
        raise InputError(
            f"The header takes {len(encoded)} bytes; a model file takes at most "
            f"{_MAX_HEADER_BYTES}. Store long lists of numbers as tensors."
        )
    return struct.pack("<Q", len(encoded)) + encoded


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | Path):
        raise InputTypeError(f"path is of type {type(path).__name__}. Give a str or a Path.")
    if "\0" in str(path):
        raise InputError(f"The path {str(path)!r} contains a null character. Remove it.")
    return Path(path)


def _writable_target(path: str | Path) -> Path:
    # Resolved, so that a symbolic link stays one and the file it points to is replaced.
    target = Path(os.path.realpath(_checked_path(path)))
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(
            f"{target} is not a file, so no model can be written there. "
            "Add a file name, such as model.knoi."
        )
    if not os.path.isdir(target.parent):
        raise SourceNotFoundError(
            f"The directory {target.parent} does not exist, so {target.name} cannot be written "
            "there. Create it first."
        )
    return target


def _read_prefix(file: BinaryIO, size: int, source: Path) -> bytes:
    if size == 0:
        raise ModelFileError(
            f"{source} is empty: writing or copying it was cut short. Copy or save it again."
        )
    start = file.read(9)
    if len(start) == 9 and start[8:] != b"{":
        raise _foreign(source, "it is not a safetensors file")
    if len(start) < 9:
        raise _altered(source, f"it ends after {size} bytes, within its header")
    (length,) = struct.unpack("<Q", start[:8])
    # Compared before it is used: a wrong length must not become an allocation.
    if length > _MAX_HEADER_BYTES:
        raise _altered(source, f"it claims a header of {length} bytes")
    if length > size - 8:
        raise _altered(source, f"it ends after {size} bytes, within its header")
    file.seek(0)
    return file.read(8 + length)


def _parse_layout(text: bytes, source: Path) -> dict[str, Any]:
    try:
        layout = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _altered(source, "its safetensors header is not JSON") from error
    if not isinstance(layout, dict):
        raise _foreign(source, "it is not a safetensors file")
    return layout


def _parse_header(layout: dict[str, Any], source: Path) -> dict[str, Any]:
    metadata = layout.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_METADATA_KEY), str):
        raise _foreign(source, f"its metadata has no {_METADATA_KEY!r}")
    try:
        header = json.loads(
            metadata[_METADATA_KEY],
            object_hook=untag_non_finite,
            parse_constant=refuse_constant,
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _altered(source, "its model header is not the JSON knoi writes") from error
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


def _check_layout(layout: dict[str, Any], begin: int, size: int, source: Path) -> None:
    entries = [entry for name, entry in layout.items() if name != "__metadata__"]
    try:
        expected = begin + max((entry["data_offsets"][1] for entry in entries), default=0)
        unknown = {entry["dtype"] for entry in entries} - set(DTYPES.values())
    except (TypeError, KeyError, IndexError) as error:
        raise _altered(source, "its tensors are not described as safetensors are") from error
    if unknown:
        raise _altered(source, f"its tensors are of dtype {min(unknown, key=str)}")
    if size != expected:
        raise _altered(source, f"it has {size} bytes instead of {expected}")


def _check_digest(prefix: bytes, content: bytes, digest: str, source: Path) -> None:
    found = hashlib.sha256(prefix.replace(digest.encode(), _NO_DIGEST.encode()))
    found.update(memoryview(content)[len(prefix) :])
    if found.hexdigest() != digest:
        raise _altered(source, "its bytes do not match their sha256")


def _altered(source: Path, finding: str) -> ModelFileError:
    return ModelFileError(
        f"{source} is truncated or altered: {finding}. Copy or save the model again."
    )


def _foreign(source: Path, finding: str) -> ModelFileError:
    return ModelFileError(
        f"{source} is not a knoi model: {finding}. Give a file written by a model's save method."
    )
