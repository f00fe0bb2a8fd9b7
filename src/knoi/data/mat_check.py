"""A look at an older `.mat` file before scipy reads it, which crashes on data of unknown types.

Compressed variables carry a checksum and are not looked at; nor are files older than version 5,
whose reader does not mind.
"""

import os
import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = 128
_BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS_AND_TEXT = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}
_NUMERIC_CLASSES = range(5, 16)


def check_elements(path: Path) -> None:
    """Refuse, by `ValueError`, arrays of numbers that consist of anything else."""
    with open(path, "rb") as file:
        order = _BYTE_ORDERS.get(file.read(_HEADER)[126:])
        end = os.path.getsize(path)
        while order is not None and file.tell() < end:
            kind, size = _read(file, order + "II")
            stop = file.tell() + size
            if kind not in (_MATRIX, _COMPRESSED):
                raise ValueError(f"there is an element of the unknown type {kind}")
            if kind == _MATRIX:
                _check_matrix(file, order, stop)
            file.seek(stop)


def _check_matrix(file: BinaryIO, order: str, stop: int) -> None:
    _, _, flags, _ = _read(file, order + "IIII")
    if flags & 0xFF not in _NUMERIC_CLASSES:
        return  # never read further
    while file.tell() < stop:
        (kind,) = _read(file, order + "I")
        (size,) = _read(file, order + "I")
        if kind >> 16:  # up to 4 bytes stand in the place of the size
            kind, size = kind & 0xFFFF, 0
        if kind not in _NUMBERS_AND_TEXT:
            raise ValueError(f"there is data of the unknown type {kind}")
        file.seek(size + -size % 8, os.SEEK_CUR)  # to the next multiple of 8 bytes


def _read(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
