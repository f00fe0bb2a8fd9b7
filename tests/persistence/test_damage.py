"""Files that were cut or changed are told from whole ones."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.exceptions import ModelFileError
from knoi.persistence import (
    read_model,
    write_model,
)
from tests.persistence.models import headers, raises_exactly, read_bytes_as_model, tensor_dicts


def test_an_empty_file(path):
    path.write_bytes(b"")
    with raises_exactly(
        ModelFileError,
        f"{path} is empty: writing or copying it was cut short. Copy or save it again.",
    ):
        read_model(path)


def test_every_truncation_is_an_error(path, content):
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"is empty|is truncated or altered"):
            read_model(path)


def test_a_truncation_says_how_much_is_missing(path, content):
    path.write_bytes(content[:-1])
    with raises_exactly(
        ModelFileError,
        f"{path} is truncated or altered: it has {len(content) - 1} bytes instead of "
        f"{len(content)}. Copy or save the model again.",
    ):
        read_model(path)


def test_appended_bytes_are_an_error(path, content):
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match="is truncated or altered"):
        read_model(path)


# A flipped case, a space made a tab (still JSON), a lowest and a highest bit.
@pytest.mark.parametrize("mask", [0x20, 0x20 ^ 0x09, 0x01, 0x80])
def test_every_altered_byte_is_an_error(path, content, mask):
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= mask
        path.write_bytes(altered)
        with pytest.raises(ModelFileError):
            read_model(path)


def test_an_altered_tensor_is_named_as_such(path, content):
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with raises_exactly(
        ModelFileError,
        f"{path} is truncated or altered: its bytes do not match their sha256. "
        "Copy or save the model again.",
    ):
        read_model(path)


@settings(deadline=None, max_examples=150)
@given(header=headers, tensors=tensor_dicts, data=st.data())
def test_any_model_truncated_or_altered_anywhere_is_an_error(header, tensors, data):
    tensors.pop("__metadata__", None)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "m"
        write_model(file, header, tensors)
        content = file.read_bytes()
        position = data.draw(st.integers(0, len(content) - 1))
        mask = data.draw(st.integers(1, 255))
        with pytest.raises(ModelFileError):
            read_bytes_as_model(content[:position], directory)
        altered = bytearray(content)
        altered[position] ^= mask
        with pytest.raises(ModelFileError):
            read_bytes_as_model(altered, directory)


@settings(deadline=None, max_examples=100)
@given(content=st.binary(max_size=200), valid_start=st.booleans())
def test_random_bytes_are_an_error(content, valid_start):
    if valid_start:
        content = struct.pack("<Q", len(content) + 1) + b"{" + content
    with tempfile.TemporaryDirectory() as directory, pytest.raises(ModelFileError):
        read_bytes_as_model(content, directory)
