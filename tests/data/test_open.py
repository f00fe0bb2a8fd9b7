"""Opening by path and selector, reading columns of labels, and what cannot be a view at all."""

import gzip
import subprocess
import sys
import warnings
from functools import partial

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io

from knoi.data.open import open_view, opened_view, read_column
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MissingExtraError,
    SourceFormatError,
    SourceNotFoundError,
)
from tests.data.opening import IMAGES, TABLE, error_message, read_all
from tests.data.recording import RecordingSource, numbered
from tests.data.test_npy import npy, npz, sparse_npz
from tests.data.test_stores import hdf5, zarr_array, zarr_group


def test_sources_are_returned_unchanged_and_left_open():
    source = RecordingSource(numbered(5))
    assert open_view(source, "Y") is source
    with opened_view(source, "X") as view:
        assert view is source
    assert not source.closed


def test_opened_view_closes_what_it_opened(tmp_path):
    path = hdf5(a=TABLE)(tmp_path)
    with opened_view(path, "X") as view:
        assert view.n_rows == 11
    with pytest.raises(InputError, match="is closed"):
        view.read(0, 1)


def test_a_missing_path(tmp_path):
    np.save(tmp_path / "digits_left.npy", TABLE)
    path = tmp_path / "digit_left.npy"
    message = error_message(path, SourceNotFoundError)
    assert f"no file or folder '{path}'. Similar names: 'digits_left.npy'." in message
    message = error_message(f"{tmp_path}/zzz.h5:a", FileNotFoundError)
    assert f"X ('{tmp_path}/zzz.h5:a'): there is no file or folder '{tmp_path}/zzz.h5'." in message
    assert "there is no folder" in error_message(tmp_path / "no" / "x.npy", SourceNotFoundError)


@pytest.mark.parametrize("text", ["", "nothing", "a" * 5000, "a\0b", ":", "::a"])
def test_text_that_is_not_a_path(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert error_message(text, SourceNotFoundError).startswith("X (")


def test_colons_in_paths_and_selectors(tmp_path):
    np.save(tmp_path / "a:b.npy", TABLE)
    np.testing.assert_array_equal(read_all(tmp_path / "a:b.npy"), TABLE)
    np.savez(tmp_path / "a:b.npz", c=TABLE, d=IMAGES)
    np.testing.assert_array_equal(read_all(f"{tmp_path}/a:b.npz:d"), IMAGES)
    assert f"'{tmp_path}/x:y.npy'. " in error_message(f"{tmp_path}/x:y.npy", SourceNotFoundError)
    path = hdf5(**{"a:b": TABLE, "c": IMAGES})(tmp_path)
    np.testing.assert_array_equal(read_all(f"{path}:a:b"), TABLE)


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "view.npy", TABLE)
    assert read_all("~/view.npy").shape == (11, 4)


def test_unknown_formats(tmp_path):
    path = tmp_path / "view.xlsx"
    path.write_text("1,2\n3,4\n")
    message = error_message(path, SourceFormatError)
    assert "'.xlsx' are not supported. Supported: .npy, .npz, .h5, .hdf5, .zarr, .parq" in message
    assert "is a folder, but neither a Zarr store" in error_message(tmp_path, SourceFormatError)


@pytest.mark.parametrize(
    "write", [partial(npz, np.savez), hdf5, zarr_group], ids=["npz", "hdf5", "zarr"]
)
def test_selecting_one_of_several_arrays(write, tmp_path):
    path = write(left=TABLE, right=IMAGES)(tmp_path)
    message = error_message(f"{path}:middle", SourceFormatError)
    assert "has no array 'middle'. Available: 'left', 'right'." in message
    message = error_message(path, SourceFormatError)
    assert "has 2 arrays. Select one with PATH:NAME. Available: 'left', 'right'." in message
    path = write()(tmp_path)
    for empty in (path, f"{path}:a"):
        assert "has no array. Pass a file that has one." in error_message(empty, SourceFormatError)


@pytest.mark.parametrize("write", [npy(TABLE), sparse_npz(), zarr_array()])
def test_a_selector_for_a_single_array(write, tmp_path):
    path = write(tmp_path)
    assert "'data' cannot be selected" in error_message(f"{path}:data", SourceFormatError)


def test_what_cannot_be_a_view():
    message = error_message(None, InputTypeError, "Y")
    assert "Y: Expected array-like (array or non-string sequence), got None." in message
    for data in ({"a": [1]}, iter([[1]]), object()):
        message = error_message(data, InputTypeError)
        assert f"X is a {type(data).__name__}. Pass a 2-D array (NumPy" in message


@pytest.mark.parametrize(
    ("name", "module", "purpose"),
    [
        ("view.h5", "h5py", "HDF5"),
        ("view.zarr", "zarr", "Zarr"),
        ("view.parquet", "pyarrow.parquet", "Parquet"),
        ("view.csv", "pyarrow", "CSV"),
        ("view.mat", "h5py", "a MATLAB file"),
    ],
)
def test_a_missing_library(name, module, purpose, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(bytes(512) + b"\x89HDF\r\n\x1a\n")  # as MATLAB begins a file
    monkeypatch.setitem(sys.modules, module, None)
    message = error_message(tmp_path / name, MissingExtraError)
    assert f"reading {purpose} needs {module.partition('.')[0]}, which is not installed" in message


def test_opening_an_array_imports_no_optional_library():
    program = (
        "import sys, numpy; from knoi.data.open import open_view; "
        "open_view(numpy.ones((2, 2)), 'X').read(0, 1); "
        "wanted = {'torch', 'h5py', 'zarr', 'pyarrow', 'pandas', 'polars', 'dask'}; "
        "print(sorted(wanted & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


class TestReadColumn:
    """Labels: integers or text, one per row, from every format."""

    NUMBERS, WORDS = np.array([3, 1, 2]), np.array(["red", "blue", "größe"])

    @pytest.mark.parametrize("values", [NUMBERS, WORDS], ids=["numbers", "words"])
    @pytest.mark.parametrize(
        "name", ["npy", "npz", "h5", "zarr", "parquet", "csv", "tsv.gz", "txt", "txt.gz", "mat"]
    )
    def test_every_format(self, values, name, tmp_path):
        path = tmp_path / f"labels.{name}"
        numbers = values.dtype.kind == "i"
        if name == "npy":
            np.save(path, values)
        elif name == "npz":
            np.savez(path, labels=values)
        elif name == "h5":
            with h5py.File(path, "w") as file:
                file["group/labels"] = values if numbers else [word.encode() for word in values]
        elif name == "zarr":
            with warnings.catch_warnings(action="ignore"):  # text in Zarr 3 is experimental
                path = zarr_group(labels=values)(tmp_path)
        elif name == "parquet":
            pd.DataFrame({"labels": values}).to_parquet(path)
        elif name == "mat":
            scipy.io.savemat(path, {"labels": values.astype(float if numbers else object)})
        else:
            text = "\n".join(map(str, values)).encode()
            path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        with warnings.catch_warnings(action="ignore"):
            labels = read_column(path, "--labels")
        assert labels.dtype.kind == values.dtype.kind
        np.testing.assert_array_equal(labels, values)

    def test_matlab_7_3(self, tmp_path):
        from tests.data.test_mat import save_73

        path = save_73(tmp_path, {"labels": self.NUMBERS[:, None].astype(float)})
        np.testing.assert_array_equal(read_column(path, "--labels"), self.NUMBERS)

    def test_headers_and_columns(self, tmp_path):
        path = tmp_path / "labels.csv"
        path.write_text("colour\nred\nblue\n")
        assert read_column(path, "--labels", n_rows=2).tolist() == ["red", "blue"]
        assert read_column(path, "--labels", n_rows=3).tolist() == ["colour", "red", "blue"]
        path.write_text("a,b\n1,x\n2,y\n")
        assert read_column(f"{path}:b", "--labels", n_rows=2).tolist() == ["x", "y"]
        assert read_column(f"{path}:a", "--labels").tolist() == [1, 2]
        with pytest.raises(SourceFormatError, match=r"^--labels .* has several columns\. Select"):
            read_column(path, "--labels")
        with pytest.raises(SourceFormatError, match=r"has no column 'c'\. Available: 'a', 'b'"):
            read_column(f"{path}:c", "--labels")

    def test_errors(self, tmp_path):
        (tmp_path / "labels.xlsx").write_text("a")
        np.save(tmp_path / "table.npy", TABLE)
        np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
        for name, error, message in [
            ("none.npy", SourceNotFoundError, r"^--labels .*: there is no file or folder"),
            ("labels.xlsx", SourceFormatError, "'.xlsx' are not supported. Supported: .npy"),
            ("table.npy", InputError, r"is an array of 11 x 4\. Pass one label per row"),
            ("objects.npy", SourceFormatError, "cannot be read as labels: "),
        ]:
            with pytest.raises(error, match=message):
                read_column(tmp_path / name, "--labels")
