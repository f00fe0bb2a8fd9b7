"""What a model file cannot hold is refused before it is written."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from knoi.exceptions import InputError, InputTypeError
from knoi.persistence import (
    flatten_state,
    model_file,
    read_model,
    write_model,
)
from tests.persistence.models import raises_exactly


@pytest.mark.parametrize(
    ("header", "error", "text"),
    [
        (
            {"params": {"kernel": [1, object()]}},
            InputTypeError,
            "header['params']['kernel'][1] is of type object; a model file takes strings, numbers, "
            "booleans, None, lists and dicts. Convert it first.",
        ),
        (
            {"a": np.zeros(2)},
            InputTypeError,
            "header['a'] is of type ndarray; a model file takes strings, numbers, booleans, None, "
            "lists and dicts. Store arrays as tensors, in dicts and not in lists.",
        ),
        (
            {"a": {3: 1}},
            InputTypeError,
            "header['a'] has the key 3 of type int; the keys of a model file are strings. "
            "Convert it first.",
        ),
        (
            {"a": {"$float": "nan"}},
            InputError,
            "header['a'] has the key '$float', by which a model file marks NaN and infinities. "
            "Rename the key.",
        ),
        (
            {"format": 3},
            InputError,
            "The header has a key 'format', which the model file writes itself. Rename it.",
        ),
        (
            {"a": 1 << 4096},
            InputError,
            "header['a'] is an integer of 4097 bits; a model file takes at most 4096. "
            "Store it as a string.",
        ),
        ([1], InputTypeError, "header is of type list. Give a dict."),
    ],
)
def test_a_header_that_is_not_json_is_refused_by_its_key_path(path, header, error, text):
    path.write_bytes(b"before")
    with raises_exactly(error, text):
        write_model(path, header, {})
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize(
    "value", [1j, b"x", {1}, np.longdouble(1), np.complex64(1), np.datetime64(1, "s"), len, Path()]
)
def test_other_kinds_of_values_are_refused(path, value):
    with pytest.raises(InputTypeError, match=re.escape("header['a']['b'] is of type ")):
        write_model(path, {"a": {"b": value}}, {})
    assert not path.exists()


def test_a_header_that_contains_itself_is_refused(path):
    loop = {}
    loop["again"] = [loop]
    with pytest.raises(InputError, match="nested more than 100 deep"):
        write_model(path, loop, {})
    with pytest.raises(InputError, match="nested more than 100 deep"):
        flatten_state({"loop": loop})


def test_a_header_no_safetensors_reader_would_take_is_refused(path, monkeypatch):
    monkeypatch.setattr(model_file, "_MAX_HEADER_BYTES", 1000)
    with pytest.raises(InputError, match="a model file takes at most 1000"):
        write_model(path, {"a": "x" * 1000}, {})
    assert os.listdir(path.parent) == []


def test_the_deepest_header_allowed_can_be_read(path):
    deep = 1.5
    for _ in range(100):
        deep = [deep]
    write_model(path, {"deep": deep}, {})
    assert read_model(path).header["deep"] == deep


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([b"text"]),
        np.array([None]),
        np.zeros(2, complex),
        np.zeros(2, np.longdouble),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "f4,i4"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_other_dtypes_are_refused(path, array):
    text = (
        f"Tensor 'a' is of dtype {array.dtype}; a model file takes real floats up to 64 bits, "
        "integers and booleans. Convert it first."
    )
    with raises_exactly(InputTypeError, text):
        write_model(path, {}, {"a": array})
    with raises_exactly(InputTypeError, text):
        flatten_state({"a": array})
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("array", [np.ma.masked_equal([1, 2], 1), [1.0], 1.0, np.float64(1)])
def test_only_plain_arrays_are_tensors(path, array):
    with raises_exactly(
        InputTypeError,
        f"Tensor 'a' is of type {type(array).__name__}. Convert it to a plain NumPy array.",
    ):
        write_model(path, {}, {"a": array})


@pytest.mark.parametrize(
    ("name", "error"),
    [("__metadata__", InputError), ("\ud800", InputError), (1, InputTypeError)],
)
def test_names_safetensors_cannot_hold_are_refused(path, name, error):
    with pytest.raises(error, match="tensor"):
        write_model(path, {}, {name: np.zeros(1)})
    assert os.listdir(path.parent) == []
