import ast
import dataclasses
import errno
import hashlib
import io
import json
import math
import os
import pickle
import re
import stat
import struct
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import knoi
from knoi.exceptions import InputError, InputTypeError, ModelFileError, SourceNotFoundError
from knoi.persistence import (
    FORMAT,
    flatten_state,
    model_file,
    read_model,
    unflatten_state,
    write_model,
)

HEADER = {
    "estimator": "FourierCCA",
    "params": {"rank": 1000, "width": [1.5, 1e-300], "reg": 0.1, "kernel": None, "center": True},
    "note": 'größe \U0001f600 "quoted" \\ \n',
}
TENSORS = {
    "x/weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "mean": np.array([0.1, -0.0, np.nan, np.inf]),
    "n": np.array(7),
    "mask": np.array([True, False, True]),
    "none": np.empty((0, 3), dtype=np.float16),
}
ADDED = {"format", "knoi_version", "sha256"}

json_keys = st.text(max_size=5).filter(lambda key: key not in ("$float", "$csr") and "/" not in key)
json_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_keys, inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(json_keys.filter(lambda key: key not in ADDED), json_values, max_size=4)
dtypes = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
tensor_dicts = st.dictionaries(names, arrays, max_size=4)


def same(a, b):
    """Equality that tells 1 from 1.0 and True, -0.0 from 0.0, and finds NaN equal to NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def without_added(header):
    return {key: value for key, value in header.items() if key not in ADDED}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.knoi"


def raises_exactly(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def read_bytes_as_model(content, directory):
    file = Path(directory) / "bytes.knoi"
    file.write_bytes(content)
    return read_model(file)


def forged(header_text, tensors=None):
    """A safetensors file with any text where the model header belongs."""
    return safetensors.numpy.save(tensors or {}, metadata={"knoi": header_text})


# --- round trips


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


# --- what is refused before anything is written


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


# --- paths


def test_paths_that_cannot_be_written(tmp_path):
    root = Path(os.path.realpath(tmp_path))
    with raises_exactly(
        SourceNotFoundError,
        f"The directory {root / 'no'} does not exist, so m.knoi cannot be written there. "
        "Create it first.",
    ):
        write_model(tmp_path / "no" / "m.knoi", {}, {})
    with raises_exactly(
        InputError,
        f"{root} is not a file, so no model can be written there. "
        "Add a file name, such as model.knoi.",
    ):
        write_model(str(tmp_path), {}, {})
    with raises_exactly(InputTypeError, "path is of type int. Give a str or a Path."):
        write_model(3, {}, {})
    with pytest.raises(InputError, match="null character"):
        write_model(str(tmp_path / "a\0b"), {}, {})
    assert os.listdir(tmp_path) == []


def test_paths_that_cannot_be_read(tmp_path):
    with raises_exactly(
        SourceNotFoundError, f"There is no model file at {tmp_path / 'no'}. Check the path."
    ):
        read_model(tmp_path / "no")
    with raises_exactly(
        ModelFileError,
        f"{tmp_path} is not a file, so it holds no model. Give the path of a model file.",
    ):
        read_model(str(tmp_path))
    with raises_exactly(InputTypeError, "path is of type bytes. Give a str or a Path."):
        read_model(b"model.knoi")


@pytest.mark.skipif(os.name != "posix", reason="permissions and links as POSIX has them")
def test_a_link_stays_a_link_and_permissions_are_the_usual_ones(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    target = tmp_path / "target.knoi"
    link = tmp_path / "link.knoi"
    link.symlink_to(target)
    write_model(link, {"a": 1}, {})
    assert link.is_symlink()
    assert read_model(target).header["a"] == 1
    usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE(target.stat().st_mode) == usual


# --- whole or not at all


class FailingFile:
    """A file that takes `room` writes and then fails as a full disk or an interrupt does."""

    def __init__(self, file, room, error):
        self.file, self.room, self.error = file, room, error

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        if self.room == 0:
            raise self.error
        self.room -= 1
        return self.file.write(data)


FAILURES = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", FAILURES, ids=["disk_full", "interrupt"])
@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("failing", [0, 1, 3, "fsync", "replace"])
def test_a_failed_write_leaves_everything_as_it_was(path, monkeypatch, error, existing, failing):
    if existing:
        write_model(path, {"old": 1}, {})
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    seen = []

    def fail(*_):
        seen.extend(os.listdir(path.parent))
        raise error

    if isinstance(failing, str):
        monkeypatch.setattr(os, failing, fail)
    else:
        monkeypatch.setattr(
            model_file,
            "open",
            lambda *args: FailingFile(io.FileIO(*args), failing, error),
            raising=False,
        )
    with pytest.raises(type(error)):
        write_model(path, HEADER, TENSORS)
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    # The new content was in the same directory, beside the old, when the late steps failed.
    assert not isinstance(failing, str) or len(seen) == len(before) + 1


def test_content_is_on_disk_before_it_gets_its_name(path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def traced_fsync(descriptor):
        steps.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def traced_replace(*names):
        steps.append(("replace", os.path.getsize(names[0])))
        replace(*names)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "replace", traced_replace)
    write_model(path, HEADER, TENSORS)
    size = path.stat().st_size
    assert steps == [("fsync", size), ("replace", size)]
    assert os.listdir(path.parent) == [path.name]


# --- files that are not what they were


@pytest.fixture
def content(path):
    write_model(path, HEADER, TENSORS)
    return path.read_bytes()


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


# --- nested states

states = st.recursive(
    st.dictionaries(json_keys, json_values | arrays, max_size=4),
    lambda inner: st.dictionaries(json_keys, inner | arrays | json_leaves, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(state=states)
def test_a_state_splits_and_comes_back(state):
    json_part, tensors = flatten_state(state)
    json.dumps(json_part)
    assert all(isinstance(array, np.ndarray) for array in tensors.values())
    assert same(unflatten_state(json_part, tensors), state)


def test_a_state_through_a_file(path):
    state = {
        "map": {"W": np.ones((2, 3), np.float32).T, "kernel": {"name": "rbf", "width": 1.5}},
        "mean": np.array(2.0),
        "only_arrays": {"inner": {"u": np.empty((0, 2))}},
        "nothing": {},
        "steps": [1, 2],
    }
    json_part, tensors = flatten_state(state)
    assert set(tensors) == {"map/W", "mean", "only_arrays/inner/u"}
    assert json_part["map"] == {"kernel": {"name": "rbf", "width": 1.5}}
    write_model(path, {"state": json_part}, tensors)
    model = read_model(path)
    assert same(unflatten_state(model.header["state"], model.tensors), state)


def test_splitting_changes_neither_the_state_nor_the_parts():
    state = {"a": {"b": np.zeros(2), "c": [1]}}
    json_part, tensors = flatten_state(state)
    again = unflatten_state(json_part, tensors)
    again["a"]["c"].append(2)
    again["new"] = 1
    assert json_part == {"a": {"c": [1]}}
    assert same(state, {"a": {"b": np.zeros(2), "c": [1]}})


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (
            {"a": {"b/c": 1}},
            InputError,
            "state['a'] has the key 'b/c', but '/' separates the keys in a tensor's name. "
            "Rename the key.",
        ),
        (
            {"a": [np.zeros(2)]},
            InputTypeError,
            "state['a'][0] is of type ndarray; a model file takes strings, numbers, booleans, "
            "None, lists and dicts. Store arrays as tensors, in dicts and not in lists.",
        ),
        (
            {"a": {"b": {0}}},
            InputTypeError,
            "state['a']['b'] is of type set; a model file takes strings, numbers, booleans, None, "
            "lists and dicts. Convert it first.",
        ),
        (
            {"a": {2: np.zeros(2)}},
            InputTypeError,
            "state['a'] has the key 2 of type int; the keys of a model file are strings. "
            "Convert it first.",
        ),
    ],
)
def test_a_state_that_cannot_be_split(state, error, text):
    with raises_exactly(error, text):
        flatten_state(state)


@pytest.mark.parametrize(
    ("json_part", "tensor"), [({"a": 1}, "a"), ({"a": 1}, "a/b"), ({"a": {}}, "a")]
)
def test_parts_that_do_not_belong_together(json_part, tensor):
    with raises_exactly(
        ModelFileError,
        f"The state has both a value and a tensor on the way to {tensor!r}: its two parts do not "
        "belong together. Save the model again.",
    ):
        unflatten_state(json_part, {tensor: np.zeros(1)})
