"""MATLAB's files, of version 7.3 and older: rows as MATLAB shows them, or a clear refusal."""

import os
import sys
from contextlib import suppress

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi import LinearCCA
from knoi.data.open import open_view
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
    MissingExtraError,
    SourceFormatError,
)
from tests.contracts.view_source import SourceCase, ViewSourceContract

TABLE = np.random.default_rng(0).normal(size=(11, 4))
SINGLE = TABLE.astype(np.float32)
IMAGES = np.random.default_rng(1).integers(0, 256, size=(11, 6)).astype(np.uint8)
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
                parts = np.zeros(value.shape, dtype=[("real", "f8"), ("imag", "f8")])
                kind, value = "double", parts
            else:
                value = np.atleast_2d(value)
                kind = CLASSES.get(value.dtype.name, value.dtype.name)
                value = value.astype(np.uint8) if kind == "logical" else value
            if value is None:
                node = file.create_group(name)
            elif value.size:
                node = file.create_dataset(name, data=value.T, **options)
            else:  # of an empty matrix the shape is all there is
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
    def make(folder):
        locator = f"{save(folder, variables, **options)}{selector}"
        random_access = save is save_older or sparse
        return SourceCase(
            lambda: open_view(locator, "X"), expected, random_access, None, sparse=sparse
        )

    return make


def cases(name, save):
    logical = TABLE > 0
    return {
        f"{name}-only": case(save, {"a": TABLE}),
        f"{name}-only-matrix": case(save, {"n": 3.0, "a": TABLE, "t": "text", "s": {"x": 1.0}}),
        f"{name}-named": case(save, SEVERAL, ":a"),
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


class TestEveryMat(ViewSourceContract):
    @pytest.fixture(params=CASES.values(), ids=CASES.keys())
    def case(self, request, tmp_path):
        return request.param(tmp_path)


def refusal(data, error=SourceFormatError):
    with pytest.raises(error) as caught:
        open_view(data, "X")
    assert type(caught.value) is error
    return str(caught.value)


def test_doubles_are_doubles_however_few_bytes_hold_them(tmp_path):
    # MATLAB stores doubles that are small integers in a byte each; savemat does not.
    path = save_older(tmp_path, {"a": np.arange(8.0).reshape(2, 4)})
    content = path.read_bytes()
    small = np.arange(8.0).reshape(2, 4).T.astype(np.uint8).tobytes()
    doubles = (9).to_bytes(4, "little") + (64).to_bytes(4, "little")
    place = content.index(doubles)
    size = int.from_bytes(content[132:136], "little") - 64 + 8
    content = (
        content[:132]
        + size.to_bytes(4, "little")
        + content[136:place]
        + (2).to_bytes(4, "little")  # the type of unsigned bytes
        + (8).to_bytes(4, "little")
        + small
    )
    path.write_bytes(content)
    assert scipy.io.loadmat(path)["a"].dtype == np.uint8
    rows = open_view(path, "X").read(0, 2)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows, np.arange(8.0).reshape(2, 4))


@pytest.mark.parametrize("right", [TABLE[:, :2] + 1, SPARSE], ids=["dense", "sparse"])
def test_fits_as_arrays_do(save, right):
    path = save({"left": TABLE, "right": right})
    ours = LinearCCA(2, reg=1e-3).fit(f"{path}:left", f"{path}:right")
    arrays = LinearCCA(2, reg=1e-3).fit(TABLE, right)
    np.testing.assert_array_equal(ours.transform(f"{path}:left"), arrays.transform(TABLE))
    np.testing.assert_array_equal(ours.transform_y(f"{path}:right"), arrays.transform_y(right))


def test_several_matrices(save):
    path = save(SEVERAL)
    assert refusal(path) == (
        f"X ('{path}') has 2 matrices of numbers. Select one with PATH:NAME. "
        "Available: 'a (11 x 4 double)', 'b (11 x 6 uint8)'."
    )


def test_a_variable_that_is_not_there(save):
    path = save({"a": TABLE, "n": 3.0})
    assert refusal(f"{path}:z") == (
        f"X ('{path}:z') has no variable 'z'. Available: 'a (11 x 4 double)', 'n (1 x 1 double)'."
    )


def test_no_matrix_at_all(save):
    path = save({"n": 3.0, "three": np.ones((2, 3, 4))})
    assert refusal(path) == (
        f"X ('{path}') has no matrix of numbers. Pass a file that has one. "
        "Available: 'n (1 x 1 double)', 'three (2 x 3 x 4 double)'."
    )
    path = save({})
    assert refusal(path).endswith("Available: no variables.")


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (np.array([[1.0, "a"]], dtype=object), "1 x 2 cell"),
        ({"x": TABLE}, "1 x 1 struct"),
    ],
)
def test_other_kinds(save, value, described):
    path = save({"a": TABLE, "v": value})
    assert refusal(f"{path}:v", InputTypeError) == (
        f"X ('{path}:v'): v ({described}) is not a matrix of numbers; cells, structs, tables, text "
        "and functions cannot be used. Save its numbers as a matrix. "
        f"Available: 'a (11 x 4 double)', 'v ({described})'."
    )


def test_text(save):
    assert "char) is not a matrix of numbers" in refusal(f"{save({'t': 'text'})}:t", InputTypeError)


def test_complex_numbers(save):
    path = save({"a": TABLE * 1j})
    assert refusal(path, InputTypeError) == (
        f"X ('{path}'): Complex data not supported (dtype=complex128). "
        "Pass the real and imaginary parts as separate columns."
    )


def test_shapes_that_are_no_tables(save):
    path = save({"three": np.ones((2, 3, 4)), "none": np.ones((0, 3))})
    assert "Expected 2D array, got 3D array instead (shape=(2, 3, 4))" in refusal(
        f"{path}:three", InputError
    )
    assert "Found array with 0 sample(s) (shape=(0, 3))" in refusal(f"{path}:none", InputError)


def test_a_scalar_can_be_asked_for(save):
    assert open_view(f"{save({'n': 3.0})}:n", "X").read(0, 1).tolist() == [[3.0]]


def test_what_functions_refer_to_is_no_variable(tmp_path, monkeypatch):
    path = save_older(tmp_path, {"a": TABLE})
    listed = scipy.io.whosmat(path)
    workspace = ("__function_workspace__", (1, 900), "uint8")  # how scipy calls it
    monkeypatch.setattr(scipy.io, "whosmat", lambda *_, **__: [*listed, workspace])
    assert open_view(path, "X").n_cols == 4


def test_hdf5_that_matlab_did_not_write(tmp_path):
    path = tmp_path / "views.mat"
    with h5py.File(path, "w") as file:
        file["a"] = TABLE
    assert refusal(path) == (
        f"X ('{path}') is an HDF5 file that MATLAB did not write, so it is unknown whether its "
        "rows are stored as columns. Rename it to .h5."
    )


def test_a_matrix_larger_than_memory(tmp_path, monkeypatch):
    path = save_older(tmp_path, {"a": np.zeros((1000, 1000))}, do_compression=True)
    monkeypatch.setattr("knoi.data.mat.available_ram", lambda: 2**20)
    assert refusal(path, MemoryBudgetError) == (
        f"X ('{path}') is read whole and takes 15 MiB while its rows are put in order, but only 1 "
        "MiB are free. Save it with save(..., '-v7.3'), which streams from disk."
    )


def test_close_closes_the_file(tmp_path):
    path = save_73(tmp_path, {"a": TABLE, "s": SPARSE})
    open_view(f"{path}:a", "X").close()
    source = open_view(f"{path}:s", "X")  # in memory: the file is closed at once
    refusal(f"{path}:z")
    with h5py.File(path, "r+") as file:  # HDF5 refuses to write to a file that is still open
        assert "a" in file
    source.close()


def test_a_missing_library_names_the_command(tmp_path, monkeypatch):
    path = save_73(tmp_path, {"a": TABLE})
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError) as caught:
        open_view(path, "X")
    assert str(caught.value) == (
        "reading a MATLAB file needs h5py, which is not installed. Run: pip install 'knoi[io]'"
    )


def test_a_sparse_matrix_whose_places_lie_outside_it(tmp_path):
    path = save_73(tmp_path, {"a": SPARSE})
    with h5py.File(path, "r+") as file:
        file["a/ir"][0] = 10**9
    assert "is an invalid sparse matrix" in refusal(path, InputError)


def test_data_of_an_unknown_type(tmp_path):
    # scipy alone ends the process here.
    path = save_older(tmp_path, {"a": TABLE})
    content = path.read_bytes()
    doubles = (9).to_bytes(4, "little") + TABLE.nbytes.to_bytes(4, "little")
    assert content.count(doubles) == 1
    path.write_bytes(content.replace(doubles, (200).to_bytes(4, "little") + doubles[4:]))
    assert "the file has data of the unknown type 200." in refusal(path)


def test_an_element_of_an_unknown_type(tmp_path):
    path = save_older(tmp_path, {"a": TABLE})
    content = bytearray(path.read_bytes())
    content[128] = 99
    path.write_bytes(content)
    assert "the file has an element of the unknown type 99." in refusal(path)


def test_a_sparse_matrix_of_too_many_rows(tmp_path, monkeypatch):
    path = save_older(tmp_path, {"a": scipy.sparse.csc_array((200_000, 2))})
    monkeypatch.setattr("knoi.data.mat.available_ram", lambda: 2**20)
    assert "takes 3 MiB while its rows are put in order" in refusal(path, MemoryBudgetError)


@pytest.mark.parametrize("kept", [0, 1, 100, 130, 300, 520, 0.5, 0.9])
def test_truncated_files(save, kept):
    path = save({"a": TABLE})
    data = path.read_bytes()
    os.truncate(path, int(kept * len(data)) if isinstance(kept, float) else kept)
    assert refusal(path).startswith(f"X ('{path}') ")


def test_garbage(tmp_path):
    path = tmp_path / "views.mat"
    for seed in range(10):
        path.write_bytes(np.random.default_rng(seed).bytes(3000))
        assert refusal(path).startswith(f"X ('{path}') cannot be read as a MATLAB file: ")


@pytest.mark.parametrize("variable", [TABLE, SPARSE], ids=["dense", "sparse"])
@settings(max_examples=50)
@given(st.data())
def test_a_flipped_byte_gives_numbers_or_a_clear_error(tmp_path_factory, variable, data):
    path = save_older(tmp_path_factory.mktemp("flipped"), {"a": variable})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    # Any other error, or a crash, fails the test.
    with suppress(InputError, SourceFormatError, MemoryBudgetError):
        source = open_view(path, "X")
        rows = source.read(0, source.n_rows)
        assert rows.shape == (source.n_rows, source.n_cols)
