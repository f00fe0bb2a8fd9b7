"""Files of `scipy.sparse.save_npz`: recognised, checked, and sparse to the end."""

import zipfile
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi import LinearCCA
from knoi.data.open import open_view
from knoi.exceptions import InputError, MemoryBudgetError, SourceFormatError
from tests.contracts.view_source import SourceCase, ViewSourceContract

TABLE = np.random.default_rng(0).normal(size=(12, 6)) * (
    np.random.default_rng(1).random((12, 6)) < 0.4
)


def save(folder, layout="csr", table=TABLE, **options):
    path = folder / "view.npz"
    scipy.sparse.save_npz(path, scipy.sparse.coo_array(table).asformat(layout), **options)
    return path


def refusal(data, error=SourceFormatError):
    with pytest.raises(error) as caught:
        open_view(data, "X")
    return str(caught.value)


class TestEverySparseNpz(ViewSourceContract):
    @pytest.fixture(params=["csr", "csc", "coo", "bsr", "dia", "stored", "float32", "matrix"])
    def case(self, request, tmp_path):
        expected = TABLE
        if request.param == "stored":
            path = save(tmp_path, compressed=False)
        elif request.param == "float32":
            expected = TABLE.astype(np.float32)
            path = save(tmp_path, table=expected)
        elif request.param == "matrix":
            path = tmp_path / "view.npz"
            scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(TABLE))
        else:
            path = save(tmp_path, request.param)
        return SourceCase(lambda: open_view(path, "X"), expected, True, sparse=True)


def test_fits_as_arrays_do(two_views, tmp_path):
    X, Y = two_views
    sparse = scipy.sparse.csr_array(np.where(np.abs(X) > 1, X, 0))
    path = save(tmp_path, table=sparse)
    ours, arrays = LinearCCA(2).fit(path, Y), LinearCCA(2).fit(sparse, Y)
    np.testing.assert_array_equal(ours.transform(path), arrays.transform(sparse))


def test_a_selector_where_there_is_nothing_to_select(tmp_path):
    path = save(tmp_path)
    assert refusal(f"{path}:data") == (
        f"X ('{path}:data'): the file holds a single sparse matrix, so 'data' cannot "
        "be selected. Remove ':data'."
    )


@pytest.mark.parametrize(
    "form", [np.ones((2, 3)), np.array("png"), np.array(3), np.array([b"csr"])]
)
def test_arrays_that_only_have_such_names(tmp_path, form):
    path = tmp_path / "views.npz"
    np.savez(path, format=form, shape=np.ones(2), data=TABLE)
    np.testing.assert_array_equal(open_view(f"{path}:data", "X").read(0, 12), TABLE)


def test_larger_than_memory(tmp_path, monkeypatch):
    path = save(tmp_path, table=np.ones((1000, 300)))
    monkeypatch.setattr("knoi.data.npy.available_ram", lambda: 2**20)
    assert refusal(path, MemoryBudgetError) == (
        f"X ('{path}') is a sparse matrix that takes 3 MiB in memory, but only 1 MiB are free. "
        "Split its rows over several files."
    )


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_pickled_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "bomb.npz"
    rows = scipy.sparse.csr_array(TABLE)
    np.savez(
        path,
        format=np.array(b"csr"),
        shape=rows.shape,
        data=np.array([Bomb()] * rows.nnz, dtype=object),
        indices=rows.indices,
        indptr=rows.indptr,
    )
    assert "allow_pickle=False" in refusal(path)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_places_outside_the_matrix(tmp_path, layout):
    path = tmp_path / "view.npz"
    matrix = scipy.sparse.coo_array(TABLE).asformat(layout)
    matrix.indices[3] = 10**9  # converting this would write outside of memory
    scipy.sparse.save_npz(path, matrix)
    assert "is an invalid sparse matrix" in refusal(path, InputError)


def test_a_part_that_is_missing(tmp_path):
    whole, path = save(tmp_path), tmp_path / "part.npz"
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(path, "w") as part:
        for name in archive.namelist():
            if name != "indptr.npy":
                part.writestr(name, archive.read(name))
    assert "cannot be read as .npz: 'indptr is not a file in the archive'." in refusal(path)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "dia"])
@settings(max_examples=30)
@given(st.data())
def test_a_flipped_byte_gives_numbers_or_a_clear_error(tmp_path_factory, layout, data):
    path = save(tmp_path_factory.mktemp("flipped"), layout, compressed=False)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    # Any other error, or a crash, fails the test.
    with suppress(InputError, SourceFormatError, MemoryBudgetError):
        source = open_view(path, "X")
        assert source.read(0, source.n_rows).shape == (source.n_rows, source.n_cols)
