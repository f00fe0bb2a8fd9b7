"""What is written comes back, to the last bit."""

import dataclasses
import json
import math
import re
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings

import knoi
from knoi.persistence import (
    FORMAT,
    flatten_state,
    read_model,
    write_model,
)
from tests.persistence.models import HEADER, TENSORS, headers, same, tensor_dicts, without_added


def test_round_trip(path):
    write_model(path, HEADER, TENSORS)
    model = read_model(path)
    assert same(without_added(model.header), HEADER)
    assert model.header["format"] == FORMAT == 1
    assert model.header["knoi_version"] == knoi.__version__
    assert re.fullmatch("[0-9a-f]{64}", model.header["sha256"])
    assert same(model.tensors, TENSORS)
    assert all(array.flags.writeable for array in model.tensors.values())


@settings(deadline=None, max_examples=150)
@given(header=headers, tensors=tensor_dicts)
def test_any_header_and_any_tensors_round_trip(header, tensors):
    tensors.pop("__metadata__", None)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "m"
        write_model(file, header, tensors)
        model = read_model(file)
        with safetensors.safe_open(file, framework="numpy") as foreign_reader:
            assert set(foreign_reader.keys()) == set(tensors)
            assert json.loads(foreign_reader.metadata()["knoi"])["format"] == FORMAT
            for name, array in tensors.items():
                assert same(foreign_reader.get_tensor(name), array)
    assert same(without_added(model.header), header)
    assert same(model.tensors, tensors)


def test_non_finite_floats_survive_and_the_header_is_still_strict_json(path):
    write_model(path, {"history": [math.nan, math.inf, {"low": -math.inf}]}, {})
    history = read_model(path).header["history"]
    assert math.isnan(history[0])
    assert history[1:] == [math.inf, {"low": -math.inf}]

    def refuse(token):
        raise AssertionError(token)

    with safetensors.safe_open(path, framework="numpy") as file:
        json.loads(file.metadata()["knoi"], parse_constant=refuse)


def test_numpy_scalars_and_tuples_become_python_values(path):
    header = {
        "a": np.float32(0.1),
        "b": np.int64(-3),
        "c": np.bool_(True),
        "d": np.str_("text"),
        "e": (1, (2.0, np.uint8(3))),
        "f": 2**200,
    }
    expected = {
        "a": float(np.float32(0.1)),
        "b": -3,
        "c": True,
        "d": "text",
        "e": [1, [2.0, 3]],
        "f": 2**200,
    }
    write_model(path, header, {})
    assert same(without_added(read_model(path).header), expected)
    assert same(flatten_state(header), (expected, {}))


def test_memory_layout_and_byte_order_do_not_matter(path):
    base = np.arange(24.0).reshape(4, 6)
    tensors = {
        "fortran": np.asfortranarray(base),
        "strided": base[::-2, ::3],
        "transposed": base.T,
        "big_endian": base.astype(">f4"),
        "broadcast": np.broadcast_to(np.int16(5), (2, 3)),
    }
    write_model(path, {}, tensors)
    read = read_model(path).tensors
    for name, array in tensors.items():
        np.testing.assert_array_equal(read[name], array, strict=name != "big_endian")
    assert read["big_endian"].dtype == np.dtype("<f4")


def test_a_memmap_is_a_tensor(tmp_path, path):
    np.save(tmp_path / "a.npy", np.arange(5))
    write_model(path, {}, {"a": np.load(tmp_path / "a.npy", mmap_mode="r")})
    assert same(read_model(path).tensors["a"], np.arange(5))


def test_equal_content_gives_equal_bytes_in_any_order_of_tensors(tmp_path):
    write_model(tmp_path / "a", HEADER, TENSORS)
    write_model(str(tmp_path / "b"), HEADER, dict(reversed(TENSORS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_header_may_contain_the_placeholder_of_the_digest(path):
    write_model(path, {"zeros": "0" * 64}, {})
    assert read_model(path).header["zeros"] == "0" * 64


def test_tensors_are_aligned(path):
    write_model(path, HEADER, TENSORS)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    layout = json.loads(content[8 : 8 + length])
    for name, array in TENSORS.items():
        assert (8 + length + layout[name]["data_offsets"][0]) % array.itemsize == 0


def test_a_model_file_is_frozen(path):
    write_model(path, {}, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_model(path).header = {}
