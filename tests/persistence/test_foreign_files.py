"""Files of others, newer ones and forged ones: nothing of them is run."""

import ast
import hashlib
import json
import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import knoi
from knoi.exceptions import ModelFileError
from knoi.persistence import (
    model_file,
    read_model,
)
from tests.persistence.models import (
    forged,
    raises_exactly,
)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("pickle-was-executed",))


def test_a_pickle_is_refused_and_not_executed(tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path.write_bytes(pickle.dumps(Bomb()))
    with raises_exactly(
        ModelFileError,
        f"{path} is not a knoi model: it is not a safetensors file. "
        "Give a file written by a model's save method.",
    ):
        read_model(path)
    np.save(tmp_path / "objects.npy", np.array([Bomb()]), allow_pickle=True)
    with pytest.raises(ModelFileError, match="is not a knoi model"):
        read_model(tmp_path / "objects.npy")
    assert not (tmp_path / "pickle-was-executed").exists()


def test_no_module_of_it_can_unpickle():
    folder = Path(model_file.__file__).parent
    tree = ast.parse("\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py")))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
        )
    }
    assert "json" in imported
    assert not imported & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal"}
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert "dumps" in called
    called |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not called & {"eval", "exec", "allow_pickle"}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_safetensors_file_of_others(path, metadata):
    safetensors.numpy.save_file({"weight": np.zeros(3)}, path, metadata=metadata)
    with raises_exactly(
        ModelFileError,
        f"{path} is not a knoi model: its metadata has no 'knoi'. "
        "Give a file written by a model's save method.",
    ):
        read_model(path)


def test_a_newer_format(path):
    path.write_bytes(forged('{"format": 2, "what": "nobody knows"}'))
    with raises_exactly(
        ModelFileError,
        f"{path} has format 2, but knoi {knoi.__version__} reads up to format 1. "
        "Upgrade knoi: pip install --upgrade knoi",
    ):
        read_model(path)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{bad", "its model header is not the JSON knoi writes"),
        ("", "its model header is not the JSON knoi writes"),
        ('{"format": 1, "a": NaN}', "its model header is not the JSON knoi writes"),
        ('{"a": {"$float": "1e5"}}', "its model header is not the JSON knoi writes"),
        ('{"a": {"$float": []}}', "its model header is not the JSON knoi writes"),
        ("[" * 100_000, "its model header is not the JSON knoi writes"),
        ("[]", "its model header has no format number"),
        ("{}", "its model header has no format number"),
        ('{"format": true}', "its model header has no format number"),
        ('{"format": 0}', "its model header has no format number"),
        ('{"format": 1}', "its model header has no sha256"),
        ('{"format": 1, "sha256": "0"}', "its model header has no sha256"),
        (json.dumps({"format": 1, "sha256": "a" * 64}), "its bytes do not match their sha256"),
    ],
    ids=range(13),
)
def test_an_invalid_header(path, text, finding):
    path.write_bytes(forged(text))
    with raises_exactly(
        ModelFileError,
        f"{path} is truncated or altered: {finding}. Copy or save the model again.",
    ):
        read_model(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [1], "data_offsets": [8, 8]},
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]},
        {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [1], "data_offsets": [0, 10**15]},
        {"dtype": "F64", "shape": [1], "data_offsets": "08"},
        {"dtype": "F64", "shape": [1]},
        [],
    ],
    ids=range(10),
)
def test_tensors_that_lie_about_themselves_are_refused_even_under_a_right_digest(path, entry):
    def build(digest):
        text = json.dumps({"format": 1, "sha256": digest})
        layout = json.dumps({"__metadata__": {"knoi": text}, "a": entry}).encode()
        return struct.pack("<Q", len(layout)) + layout + bytes(8)

    path.write_bytes(build(hashlib.sha256(build("0" * 64)).hexdigest()))
    with pytest.raises(ModelFileError, match="is truncated or altered"):
        read_model(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 99_999_999])
def test_a_gigantic_header_length_allocates_nothing(path, length):
    path.write_bytes(struct.pack("<Q", length) + b"{}" + b" " * 100)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="is truncated or altered"):
            read_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_header_beyond_the_limit_is_not_read_though_the_file_is_as_long(path):
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 150_000_000) + b"{}")
        file.truncate(200_000_000)  # a hole: no disk space is taken
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="it claims a header of 150000000 bytes"):
            read_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_large_foreign_file_is_refused_before_it_is_read(path):
    safetensors.numpy.save_file({"weight": np.zeros(4_000_000, np.uint8)}, path)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="is not a knoi model"):
            read_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
