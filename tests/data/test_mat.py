"""MATLAB's files, of version 7.3 and older: rows as MATLAB shows them."""

import struct

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from knoi.data.open import open_view
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, SourceFormatError
from tests.data.opening import IMAGES, contract, damaged, error_message, on_disk, read_all

TABLE = np.random.default_rng(0).normal(size=(11, 4))
SINGLE = TABLE.astype(np.float32)
SPARSE = scipy.sparse.random_array((11, 7), density=0.3, rng=np.random.default_rng(2))
CLASSES = {"float64": "double", "float32": "single", "bool": "logical"}


def save_older(folder, variables, **options):
    scipy.io.savemat(folder / "views.mat", variables, **options)
    return folder / "views.mat"


def save_73(folder, variables, **options):
    """The layout of MATLAB's `save('-v7.3')`: HDF5 after 512 bytes, every matrix transposed."""
    path = folder / "views.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_group("#refs#")
        for name, value in variables.items():
            if scipy.sparse.issparse(value):
                _save_73_sparse(file.create_group(name), value)
                continue
            if isinstance(value, str):
                kind, value = "char", np.array([[ord(letter) for letter in value]], np.uint16)
            elif isinstance(value, dict):
                kind, value = "struct", None
            elif np.asarray(value).dtype == object:
                kind, value = "cell", np.zeros(np.shape(value))
            elif np.iscomplexobj(value):
                kind, value = "double", np.zeros(value.shape, [("real", "f8"), ("imag", "f8")])
            else:
                value = np.atleast_2d(value)
                kind = CLASSES.get(value.dtype.name, value.dtype.name)
                value = value.astype(np.uint8) if kind == "logical" else value
            if value is None:
                node = file.create_group(name)
            elif value.size:
                node = file.create_dataset(name, data=value.T, **options)
            else:  # only the shape of an empty matrix is stored
                node = file.create_dataset(name, data=np.array(value.shape, np.uint64))
                node.attrs["MATLAB_empty"] = np.uint8(1)
            node.attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def _save_73_sparse(group, matrix):
    columns = matrix.tocsc()
    group.attrs["MATLAB_class"] = np.bytes_("double")
    group.attrs["MATLAB_sparse"] = np.uint64(columns.shape[0])
    group["jc"] = columns.indptr.astype(np.uint64)
    if columns.nnz:
        group["ir"] = columns.indices.astype(np.uint64)
        group["data"] = columns.data


SAVES = {"older": save_older, "7.3": save_73}
SEVERAL = {"a": TABLE, "b": IMAGES, "n": 3.0, "t": "text"}


@pytest.fixture(params=SAVES.values(), ids=SAVES.keys())
def save(request, tmp_path):
    """Writes variables to a file of each version: `save(variables)` gives its path."""
    return lambda variables: request.param(tmp_path, variables)


def case(save, variables, selector="", expected=TABLE, sparse=False, **options):
    return on_disk(
        lambda folder: save(folder, variables, **options),
        selector,
        expected,
        random_access=save is save_older or sparse,
        sparse=sparse,
    )


def cases(name, save):
    logical = TABLE > 0
    return {
        f"{name}-only": case(save, {"a": TABLE}),
        f"{name}-only-matrix": case(save, {"n": 3.0, "a": TABLE, "t": "text", "s": {"x": 1.0}}),
        f"{name}-single": case(save, {"a": SINGLE}, expected=SINGLE),
        f"{name}-uint8": case(save, SEVERAL, ":b", IMAGES),
        f"{name}-logical": case(save, {"a": logical}, expected=logical.astype(np.uint8)),
        f"{name}-sparse": case(save, {"a": SPARSE}, expected=SPARSE.toarray(), sparse=True),
    }


ZEROS = scipy.sparse.csc_array((11, 3))
CASES = {
    **cases("older", save_older),
    **cases("7.3", save_73),
    "older-compressed": case(save_older, SEVERAL, ":a", do_compression=True),
    "version-4": case(save_older, {"a": TABLE, "t": "text"}, format="4"),
    "older-sparse-logical": case(
        save_older, {"a": SPARSE > 0.5}, "", (SPARSE > 0.5).toarray().astype(np.uint8), sparse=True
    ),
    "7.3-chunked": case(save_73, {"a": TABLE}, chunks=(2, 3), compression="gzip"),
    "7.3-sparse-zeros": case(save_73, {"a": ZEROS}, expected=ZEROS.toarray(), sparse=True),
}
OLDER = {
    "dense": lambda folder: save_older(folder, {"a": TABLE}),
    "sparse": lambda folder: save_older(folder, {"a": SPARSE}),
}
TestContract = contract(CASES)
TestDamagedOlder = damaged(OLDER, flipped=True)
TestDamaged73 = damaged({"7.3": lambda folder: save_73(folder, {"a": TABLE})})


def test_doubles_stored_as_bytes_are_doubles(tmp_path):
    # MATLAB stores doubles that are small integers in a byte each; savemat does not.
    values = np.arange(8.0).reshape(2, 4)
    path = save_older(tmp_path, {"a": values})
    content = path.read_bytes()
    place = content.index(struct.pack("<II", 9, 64))  # the doubles
    size = int.from_bytes(content[132:136], "little") - 64 + 8
    small = struct.pack("<II", 2, 8) + values.T.astype(np.uint8).tobytes()  # unsigned bytes
    path.write_bytes(content[:132] + struct.pack("<I", size) + content[136:place] + small)
    assert scipy.io.loadmat(path)["a"].dtype == np.uint8
    rows = read_all(path)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows, values)


def test_selecting_a_variable(save):
    path = save(SEVERAL)
    message = error_message(path, SourceFormatError)
    assert "has 2 numeric arrays." in message
    assert "Available: 'a (11 x 4 double)', 'b (11 x 6 uint8)'." in message
    path = save({"n": 3.0, "three": np.ones((2, 3, 4))})
    available = "Available: 'n (1 x 1 double)', 'three (2 x 3 x 4 double)'."
    message = error_message(f"{path}:z", SourceFormatError)
    assert f"X ('{path}:z') has no variable 'z'. {available}" in message
    assert "has no numeric array" in error_message(path, SourceFormatError)
    assert read_all(f"{path}:n").tolist() == [[3.0]]


@pytest.mark.parametrize(
    ("value", "error", "fragment"),
    [
        (np.array([[1.0, "a"]], dtype=object), InputTypeError, "v (1 x 2 cell) is not a matrix"),
        ({"x": TABLE}, InputTypeError, ": v (1 x 1 struct) is not a matrix of numbers"),
        ("text", InputTypeError, " char) is not a matrix of numbers"),
        (TABLE * 1j, InputTypeError, ": Complex data not supported (dtype=complex128)"),
        (np.ones((2, 3, 4)), InputError, "got 3D array instead (shape=(2, 3, 4))"),
        (np.ones((0, 3)), InputError, ": Found array with 0 sample(s) (shape=(0, 3))"),
    ],
)
def test_variables_that_are_not_tables_of_numbers(save, value, error, fragment):
    path = save({"a": TABLE, "v": value})
    raised = error_message(f"{path}:v", error)
    assert fragment in raised
    assert "cell)" not in fragment or "Available: 'a (11 x 4 double)', 'v (" in raised


def test_workspaces_of_functions_are_not_variables(tmp_path, monkeypatch):
    path = save_older(tmp_path, {"a": TABLE})
    listed = scipy.io.whosmat(path)
    workspace = ("__function_workspace__", (1, 900), "uint8")  # how scipy calls it
    monkeypatch.setattr(scipy.io, "whosmat", lambda *_, **__: [*listed, workspace])
    assert open_view(path, "X").n_cols == 4


def test_hdf5_that_matlab_did_not_write(tmp_path):
    path = tmp_path / "views.mat"
    with h5py.File(path, "w") as file:
        file["a"] = TABLE
    assert "an HDF5 file that MATLAB did not write" in error_message(path, SourceFormatError)


def test_a_matrix_larger_than_memory(tmp_path, monkeypatch):
    path = save_older(tmp_path, {"a": np.zeros((1000, 1000))}, do_compression=True)
    monkeypatch.setattr("knoi.data.source.available_ram", lambda: 2**20)
    assert "takes 15 MiB in memory, but only 1 MiB" in error_message(path, MemoryBudgetError)
    path = save_older(tmp_path, {"a": scipy.sparse.csc_array((200_000, 2))})
    assert "takes 3 MiB in memory" in error_message(path, MemoryBudgetError)


def test_close_closes_the_file(tmp_path):
    path = save_73(tmp_path, {"a": TABLE, "s": SPARSE})
    open_view(f"{path}:a", "X").close()
    source = open_view(f"{path}:s", "X")  # in memory: the file is closed at once
    error_message(f"{path}:z", SourceFormatError)
    with h5py.File(path, "r+") as file:  # HDF5 does not write to a file that is still open
        assert "a" in file
    source.close()


def test_unknown_types(tmp_path):
    path = save_older(tmp_path, {"a": TABLE})
    content = path.read_bytes()
    doubles = struct.pack("<II", 9, TABLE.nbytes)
    assert content.count(doubles) == 1
    # scipy alone would crash here.
    path.write_bytes(content.replace(doubles, struct.pack("<I", 200) + doubles[4:]))
    assert "has data of the unknown type 200." in error_message(path, SourceFormatError)
    path.write_bytes(content[:128] + b"\x63" + content[129:])
    assert "has an element of the unknown type 99." in error_message(path, SourceFormatError)
