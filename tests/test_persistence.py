"""Model files: what is written comes back, and anything else is refused with a clear sentence."""

import hashlib
import json
import math
import os
import pickle
import re
import struct
import tempfile
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import knoi
from knoi import persistence
from knoi.exceptions import InputError, InputTypeError, ModelFileError, SourceNotFoundError
from knoi.persistence import FORMAT, flatten_state, read_model, unflatten_state, write_model

HEADER = {
    "estimator": "FourierCCA",
    "params": {"rank": 1000, "width": [1.5, 1e-300], "reg": 0.1, "kernel": None, "center": True},
    "note": 'größe \U0001f600 "quoted" \\ \n',
    "zeros": "0" * 64,  # as those that stand for the digest
}
TENSORS = {
    "x/weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "mean": np.array([0.1, -0.0, np.nan, np.inf]),
    "n": np.array(7),
    "mask": np.array([True, False, True]),
    "none": np.empty((0, 3), dtype=np.float16),
}
SPARSE = scipy.sparse.random_array((5, 4), density=0.5, rng=0).tocsr()
LOOP = {}
LOOP["again"] = [LOOP]
ADDED = {"format", "knoi_version", "sha256"}
NOT_OUR_JSON = ('{"format": 1, "a": NaN}', '{"a": {"$float": "1e5"}}', "[" * 100_000)

keys = st.text(max_size=5).filter(lambda key: key not in ("$float", "$csr") and "/" not in key)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(keys.filter(lambda key: key not in ADDED), values, max_size=4)
dtypes = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
tensor_dicts = st.dictionaries(names.filter(lambda n: n != "__metadata__"), arrays, max_size=4)
states = st.recursive(
    st.dictionaries(keys, values | arrays, max_size=4),
    lambda inner: st.dictionaries(keys, inner | arrays | leaves, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.knoi"


@pytest.fixture
def content(path):
    write_model(path, HEADER, TENSORS)
    return path.read_bytes()


def exact(value):
    """Equal for two values only if they agree in type, in the sign of zeros and in every bit."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return repr(value)


def without_added(header):
    return {key: value for key, value in header.items() if key not in ADDED}


def write(path):
    write_model(path, {}, {})


@contextmanager
def little_memory():
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


class TestRoundTrip:
    def test_header_and_tensors_come_back(self, tmp_path, path, content):
        model = read_model(path)
        assert exact(without_added(model.header)) == exact(HEADER)
        assert model.header["format"] == FORMAT == 1
        assert model.header["knoi_version"] == knoi.__version__
        assert re.fullmatch("[0-9a-f]{64}", model.header["sha256"])
        assert exact(model.tensors) == exact(TENSORS)
        assert all(array.flags.writeable for array in model.tensors.values())
        assert model.path == path
        (tmp_path / "plain").write_bytes(b"")
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode

    @settings(deadline=None, max_examples=150)
    @given(header=headers, tensors=tensor_dicts)
    def test_any_content_comes_back(self, header, tensors):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "m"
            write_model(file, header, tensors)
            model = read_model(file)
            assert exact(without_added(model.header)) == exact(header)
            assert exact(model.tensors) == exact(tensors)
            with safetensors.safe_open(file, framework="numpy") as foreign_reader:
                assert set(foreign_reader.keys()) == set(tensors)

    def test_numpy_scalars_tuples_and_special_numbers_become_plain(self, path):
        same_in_json = {"c": [math.nan, -math.inf, {"d": math.inf}], "e": 2**200}
        header = {"a": np.float32(0.5), "b": (np.int64(3), np.bool_(True)), **same_in_json}
        expected = {"a": 0.5, "b": [3, True], **same_in_json}
        write_model(path, header, {})
        assert exact(without_added(read_model(path).header)) == exact(expected)
        assert exact(flatten_state(header)[0]) == exact(expected)
        text = safetensors.safe_open(path, framework="numpy").metadata()["knoi"]
        json.loads(text, parse_constant=pytest.fail)  # strict JSON: no NaN in it

    def test_memory_layout_and_byte_order_do_not_matter(self, tmp_path, path):
        base = np.arange(24.0).reshape(4, 6)
        np.save(tmp_path / "mapped.npy", base)
        tensors = {
            "fortran": np.asfortranarray(base),
            "strided": base[::-2, ::3],
            "big_endian": base.astype(">f4"),
            "broadcast": np.broadcast_to(np.int16(5), (2, 3)),
            "mapped": np.load(tmp_path / "mapped.npy", mmap_mode="r"),
        }
        write_model(path, {}, tensors)
        read = read_model(path).tensors
        for name, array in tensors.items():
            np.testing.assert_array_equal(read[name], array)
        assert read["big_endian"].dtype == np.dtype("<f4")

    def test_equal_content_gives_equal_bytes_in_any_order_of_tensors(self, tmp_path):
        write_model(tmp_path / "a", HEADER, TENSORS)
        write_model(str(tmp_path / "b"), HEADER, dict(reversed(TENSORS.items())))
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


class TestStates:
    @settings(deadline=None, max_examples=200)
    @given(state=states)
    def test_a_state_splits_and_comes_back(self, state):
        json_part, tensors = flatten_state(state)
        json.dumps(json_part)
        assert all(isinstance(array, np.ndarray) for array in tensors.values())
        assert exact(unflatten_state(json_part, tensors)) == exact(state)

    def test_tensors_are_named_by_their_path_and_nothing_is_shared(self):
        state = {"a": {"b": np.zeros(2), "c": [1], "d": {}}}
        json_part, tensors = flatten_state(state)
        assert list(tensors) == ["a/b"]
        again = unflatten_state(json_part, tensors)
        again["a"]["c"].append(2)
        again["new"] = 1
        assert json_part == {"a": {"c": [1], "d": {}}}
        assert state["a"]["c"] == [1]

    @pytest.mark.parametrize(
        ("json_part", "tensor"), [({"a": 1}, "a/b"), ({"a": {}}, "a"), ([], "a")]
    )
    def test_parts_that_do_not_belong_together(self, json_part, tensor):
        text = f"a value and a tensor on the way to {tensor!r}"
        with pytest.raises(ModelFileError, match=text):
            unflatten_state(json_part, {tensor: np.zeros(1)})

    def test_sparse_arrays_come_back(self):
        json_part, tensors = flatten_state({"deep": {"rows": SPARSE}, "none": SPARSE[:0]})
        again = unflatten_state(json.loads(json.dumps(json_part)), tensors)
        for found, wanted in ((again["deep"]["rows"], SPARSE), (again["none"], SPARSE[:0])):
            assert isinstance(found, scipy.sparse.csr_array)
            np.testing.assert_array_equal(found.toarray(), wanted.toarray())

    @pytest.mark.parametrize(
        ("part", "change"),
        [
            ("indices", lambda i: i + 4),
            ("indices", lambda i: -1 - i),
            ("indices", lambda i: i[:-1]),
            ("indptr", lambda p: p[:-1]),
            ("indptr", lambda p: p + 1),
            ("indptr", lambda p: p[[0, 2, 1, *range(3, len(p))]]),
            ("data", lambda v: v[None, :]),
            ("$csr", [5, -1]),
            ("$csr", [5.0, 4]),
            ("$csr", None),
            ("$csr", "54"),
        ],
    )
    def test_sparse_arrays_with_invalid_parts(self, part, change):
        json_part, tensors = flatten_state({"rows": SPARSE})
        if part == "$csr":
            json_part["rows"][part] = change
        else:
            tensors[f"rows/{part}"] = change(tensors[f"rows/{part}"])
        with pytest.raises(ModelFileError, match=r"^The sparse array 'rows' of .* is invalid"):
            unflatten_state(json_part, tensors)


class TestWriting:
    @pytest.mark.parametrize(
        ("value", "error", "text"),
        [
            (
                {"kernel": [1, object()]},
                InputTypeError,
                "header['a']['kernel'][1] is of type",
            ),
            ({"$float": "nan"}, InputError, "header['a'] has the key '$float'. Keys are strings"),
            ({2: 3}, InputError, "header['a'] has the key 2. Keys are strings"),
            (1 << 4096, InputError, "header['a'] is an integer of 4097 bits; "),
            ({"b": 1j}, InputTypeError, "header['a']['b'] is of type complex; "),
            (np.longdouble(1), InputTypeError, "header['a'] is of type longdouble; "),
            (LOOP, InputError, " is nested more than 100 deep; "),
            ("x" * 2000, InputError, " bytes; a model file takes at most 2000."),
        ],
        ids=range(8),
    )
    def test_a_header_that_cannot_be_stored(self, path, monkeypatch, value, error, text):
        monkeypatch.setattr(persistence, "_MAX_HEADER_BYTES", 2000)
        path.write_bytes(b"before")
        with pytest.raises(error, match=re.escape(text)):
            write_model(path, {"a": value}, {})
        assert os.listdir(path.parent) == [path.name]
        assert path.read_bytes() == b"before"

    @pytest.mark.parametrize("state", [{"b/c": 1}, {"$csr": 1}, {"b": [np.zeros(2)]}])
    def test_a_state_that_cannot_be_split(self, state):
        with pytest.raises(InputError, match=r"^state\['a'\].* (Rename the key|Convert it)"):
            flatten_state({"a": state})

    def test_what_is_nested_100_deep_can_be_read(self, path):
        deep = 1.5
        for _ in range(100):
            deep = [deep]
        write_model(path, {"deep": deep}, {})
        assert read_model(path).header["deep"] == deep

    def test_arrays_that_cannot_be_stored(self, path):
        masked = np.ma.masked_equal([1, 2], 1)
        for array in (np.array([None]), np.zeros(2, np.longdouble), masked, [1.0]):
            text = f"Tensor 'a' is of type {type(array).__name__} and dtype "
            with pytest.raises(InputTypeError, match=text):
                write_model(path, {}, {"a": array})
        assert os.listdir(path.parent) == []

    def test_a_failed_write_leaves_the_old_model(self, path, content, monkeypatch):
        def fail(*_, **__):
            raise safetensors.SafetensorError("disk full")

        monkeypatch.setattr(safetensors.numpy, "save_file", fail)
        with pytest.raises(OSError, match="disk full"):
            write_model(path, {}, {})
        assert path.read_bytes() == content
        assert os.listdir(path.parent) == [path.name]


BAD_PATH = "give a str or a Path, without null characters"


@pytest.mark.parametrize(
    ("call", "path", "error", "text"),
    [
        (write, "no/m", SourceNotFoundError, "m cannot be written: its directory does not"),
        (write, ".", InputError, "is not a file. Add a file name"),
        (write, 3, InputTypeError, BAD_PATH),
        (write, "a\0b", InputError, BAD_PATH),
        (read_model, "no", SourceNotFoundError, "There is no model file at no"),
        (read_model, ".", ModelFileError, "not a knoi model file: it is not a file"),
        (read_model, b"m", InputTypeError, BAD_PATH),
    ],
)
def test_paths_that_cannot_be_used(tmp_path, monkeypatch, call, path, error, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text):
        call(path)
    assert os.listdir(tmp_path) == []


class TestReading:
    def test_every_truncation_is_an_error(self, path, content):
        for damaged in (*(content[:length] for length in range(len(content))), content + b"\0"):
            path.write_bytes(damaged)
            with pytest.raises(ModelFileError, match=r"is truncated or altered: .* save the model"):
                read_model(path)

    # A flipped case, and a space made a tab (still JSON).
    @pytest.mark.parametrize("mask", [0x20, 0x20 ^ 0x09])
    def test_every_altered_byte_is_an_error(self, path, content, mask):
        for position in range(len(content)):
            altered = bytearray(content)
            altered[position] ^= mask
            path.write_bytes(altered)
            with pytest.raises(ModelFileError) as raised:
                read_model(path)
        assert "its bytes do not match their sha256" in str(raised.value)

    @settings(deadline=None, max_examples=100)
    @given(content=st.binary(max_size=200), valid_start=st.booleans())
    def test_random_bytes_are_an_error(self, content, valid_start):
        if valid_start:
            content = struct.pack("<Q", len(content) + 1) + b"{" + content
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "bytes.knoi"
            file.write_bytes(content)
            with pytest.raises(ModelFileError):
                read_model(file)

    @pytest.mark.parametrize(
        ("text", "finding"),
        [
            *((text, "is not the JSON that knoi writes") for text in NOT_OUR_JSON),
            ("[]", "has no format number"),
            ('{"format": 0}', "has no format number"),
            ('{"format": 1, "sha256": "0"}', "has no sha256"),
        ],
        ids=range(6),
    )
    def test_an_invalid_header(self, path, text, finding):
        safetensors.numpy.save_file({}, path, metadata={"knoi": text})
        with pytest.raises(ModelFileError, match=f"or altered: its model header {finding}"):
            read_model(path)

    @pytest.mark.parametrize(
        "entry",
        [
            {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]},
            {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
            {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]},
            {"dtype": "F64", "shape": [1], "data_offsets": [0, 10**15]},
            [],
        ],
        ids=range(5),
    )
    def test_tensors_that_do_not_fit_their_description_under_a_right_digest(self, path, entry):
        def build(digest):
            text = json.dumps({"format": 1, "sha256": digest})
            layout = json.dumps({"__metadata__": {"knoi": text}, "a": entry}).encode()
            return struct.pack("<Q", len(layout)) + layout + bytes(8)

        path.write_bytes(build(hashlib.sha256(build("0" * 64)).hexdigest()))
        with pytest.raises(ModelFileError, match="is truncated or altered"):
            read_model(path)

    def test_a_newer_format(self, path):
        safetensors.numpy.save_file({}, path, metadata={"knoi": '{"format": 2, "new": "thing"}'})
        with pytest.raises(ModelFileError, match=r"has format 2, but knoi .* reads up to format 1"):
            read_model(path)

    def test_a_large_safetensors_file_of_others_is_not_read(self, path):
        safetensors.numpy.save_file({"weight": np.zeros(4_000_000, np.uint8)}, path)
        foreign = "is not a knoi model file: its metadata has no 'knoi'"
        with little_memory(), pytest.raises(ModelFileError, match=foreign):
            read_model(path)

    @pytest.mark.parametrize("length", [150_000_000, 99_999_999])
    def test_a_gigantic_header_allocates_nothing(self, path, length):
        with path.open("wb") as file:
            file.write(struct.pack("<Q", length) + b"{}")
            file.truncate(200_000_000)  # a hole: it takes no disk space
        # 99,999,999 bytes are allowed, and zeros are not JSON.
        with little_memory(), pytest.raises(ModelFileError, match="is truncated or altered"):
            read_model(path)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("pickle-was-executed",))


def test_a_pickle_is_rejected_and_not_executed(tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path.write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "objects.npy", np.array([Bomb()]), allow_pickle=True)
    for file in (path, tmp_path / "objects.npy"):
        with pytest.raises(ModelFileError, match="not a knoi model file: it is not a safetensors"):
            read_model(file)
    assert not (tmp_path / "pickle-was-executed").exists()


def test_the_module_cannot_unpickle():
    source = Path(persistence.__file__).read_text(encoding="utf-8")
    unsafe = r"\b(eval|exec|allow_pickle|c?pickle|dill|cloudpickle|joblib|marshal)\b"
    assert re.search(unsafe, source, re.IGNORECASE) is None
