"""NumPy's files: mapped where possible, never unpickled; sparse matrices of save_npz."""

import zipfile

import numpy as np
import pytest
import scipy.sparse

from knoi.data.open import open_view
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, SourceFormatError
from tests.contracts.view_source import SourceCase
from tests.data.opening import IMAGES, TABLE, contract, damaged, error_message, on_disk, read_all

SPARSE = np.where(np.random.default_rng(1).random(TABLE.shape) < 0.4, TABLE, 0)


def npy(array):
    def write(folder):
        np.save(folder / "view.npy", array)
        return folder / "view.npy"

    return write


def npz(save, **arrays):
    def write(folder):
        save(folder / "views.npz", **arrays)
        return folder / "views.npz"

    return write


def sparse_npz(layout="csr", table=SPARSE, container=scipy.sparse.coo_array, **options):
    def write(folder):
        path = folder / "view.npz"
        scipy.sparse.save_npz(path, container(table).asformat(layout), **options)
        return path

    return write


def memmap(columns, mode):
    def make(folder):
        mapped = np.asarray(np.load(npy(TABLE)(folder), mmap_mode=mode))[:, :columns]
        return SourceCase(lambda: open_view(mapped, "X"), TABLE[:, :columns], False)

    return make


CASES = {
    "memmap": memmap(4, "r+"),
    "memmap-view": memmap(2, "r"),
    "npy": on_disk(npy(TABLE)),
    "npy-fortran": on_disk(npy(np.asfortranarray(TABLE))),
    "npy-big-endian-uint": on_disk(npy(IMAGES.astype(">u2")), "", IMAGES.astype(np.uint16)),
    "npz-only": on_disk(npz(np.savez, a=TABLE)),
    "npz-fortran": on_disk(npz(np.savez, b=IMAGES, a=np.asfortranarray(TABLE)), ":a.npy"),
    "npz-compressed": on_disk(
        npz(np.savez_compressed, b=IMAGES, a=TABLE), ":b", IMAGES, random_access=True
    ),
    **{
        f"sparse-{layout}": on_disk(sparse_npz(layout), "", SPARSE, None, True, sparse=True)
        for layout in ("csr", "csc", "coo", "bsr", "dia")
    },
    "sparse-matrix-stored": on_disk(
        sparse_npz("csc", SPARSE.astype(float), scipy.sparse.csr_matrix, compressed=False),
        "",
        SPARSE.astype(float),
        random_access=True,
        sparse=True,
    ),
}
WRITERS = {
    "npy": npy(TABLE),
    "npz": npz(np.savez, a=TABLE),
    "compressed": npz(np.savez_compressed, a=TABLE),
    **{f"sparse-{kind}": sparse_npz(kind, compressed=False) for kind in ("csr", "csc", "dia")},
}
TestContract = contract(CASES)
TestDamaged = damaged(WRITERS, flipped=True)


def test_npy_and_stored_npz_members_are_mapped(tmp_path):
    assert not open_view(npy(TABLE)(tmp_path), "X").read(3, 6).flags.owndata
    path = npz(np.savez, b=IMAGES, a=TABLE)(tmp_path)
    source = open_view(f"{path}:a", "X")
    with open(path, "r+b") as file:  # what is written to the file shows in the map
        file.seek(path.read_bytes().index(TABLE.tobytes()))
        file.write(np.float32(42).tobytes())
    assert source.read(0, 1)[0, 0] == 42


def test_an_npz_of_another_program(tmp_path):
    # np.savez gives local headers an extra field; other writers do not, and add other files.
    np.save(tmp_path / "a.npy", TABLE)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", b"not an array")
        archive.write(tmp_path / "a.npy", "a.npy")
    np.testing.assert_array_equal(read_all(tmp_path / "a.npz"), TABLE)


def test_a_truncated_npy(tmp_path):
    path = npy(TABLE)(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert "takes 176 bytes, but the file has 166" in error_message(path, SourceFormatError)


class Bomb:
    """Fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_pickled_objects_are_never_unpickled(tmp_path):
    bombs = np.array([[Bomb(), Bomb()]], dtype=object)
    np.save(tmp_path / "bomb.npy", bombs, allow_pickle=True)
    np.savez(tmp_path / "bomb.npz", a=bombs)
    np.savez_compressed(tmp_path / "packed.npz", a=bombs)
    for name in ("bomb.npy", "bomb.npz", "packed.npz"):
        message = error_message(tmp_path / name, SourceFormatError)
        assert "holds pickled Python objects, which are never unpickled" in message
    rows = scipy.sparse.csr_array(SPARSE)
    parts = {"shape": rows.shape, "indices": rows.indices, "indptr": rows.indptr}
    path = tmp_path / "sparse.npz"
    np.savez(path, format=np.array(b"csr"), data=np.array([Bomb()] * rows.nnz), **parts)
    assert "allow_pickle=False" in error_message(path, SourceFormatError)


def test_arrays_that_are_not_tables_of_numbers(tmp_path):
    path = npy(np.zeros((0, 5)))(tmp_path)
    assert f"X ('{path}'): Found array with 0 sample(s) (shape=(0, 5))" in error_message(path)
    path = npy(np.array([["a", "b"]]))(tmp_path)
    assert "only real numbers" in error_message(path, InputTypeError)
    with pytest.warns(UserWarning, match=r"format 3\.0"):
        path = npy(np.zeros((2, 2), dtype=[("дата", float)]))(tmp_path)
    assert "structured arrays" in error_message(path, SourceFormatError)


def test_larger_than_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("knoi.data.source.available_ram", lambda: 2**20)
    path = npz(np.savez_compressed, a=np.zeros((1000, 1000)))(tmp_path)
    message = error_message(path, MemoryBudgetError)
    assert "compressed array that takes 8 MiB in memory, but only 1 MiB are free" in message
    path = sparse_npz(table=np.ones((1000, 300)))(tmp_path)
    message = error_message(path, MemoryBudgetError)
    assert "sparse matrix that takes 3 MiB in memory, but only 1 MiB are free" in message


@pytest.mark.parametrize(
    "form", [np.ones((2, 3)), np.array("png"), np.array(3), np.array([b"csr"])]
)
def test_arrays_named_like_those_of_a_sparse_matrix(tmp_path, form):
    path = tmp_path / "views.npz"
    np.savez(path, format=form, shape=np.ones(2), data=TABLE)
    np.testing.assert_array_equal(read_all(f"{path}:data"), TABLE)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_sparse_indices_out_of_bounds(tmp_path, layout):
    path = tmp_path / "view.npz"
    matrix = scipy.sparse.coo_array(SPARSE).asformat(layout)
    matrix.indices[3] = 10**9  # converting this would write out of bounds
    scipy.sparse.save_npz(path, matrix)
    assert "is an invalid sparse matrix" in error_message(path, InputError)
