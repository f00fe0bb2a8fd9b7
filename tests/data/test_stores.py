"""HDF5 and Zarr, by path and as objects; who closes what."""

import h5py
import numpy as np
import pytest
import zarr

from knoi.data.open import open_view
from knoi.data.stores import stored_array_source
from knoi.exceptions import InputError, InputTypeError, SourceFormatError
from tests.contracts.view_source import SourceCase
from tests.data.opening import IMAGES, TABLE, contract, damaged, error_message, on_disk, read_all


def hdf5(suffix=".h5", options=None, **arrays):
    def write(folder):
        path = folder / f"views{suffix}"
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name.replace("__", "/"), data=array, **(options or {}))
        return path

    return write


def zarr_group(**arrays):
    def write(folder):
        path = folder / "views.zarr"
        group = zarr.open_group(str(path), mode="w")
        for name, array in arrays.items():
            chunks = (4, 3, 2)[: array.ndim]
            group.create_array(name.replace("__", "/"), data=array, chunks=chunks)
        return path

    return write


def zarr_array(zarr_format=3):
    def write(folder):
        path = folder / "view.zarr"
        zarr.create_array(str(path), data=TABLE, chunks=(4, 4), zarr_format=zarr_format)
        return path

    return write


def hdf5_dataset(folder):
    file = h5py.File(hdf5(a=TABLE)(folder), "r")
    return SourceCase(lambda: open_view(file["a"], "X"), TABLE, False)


def zarr_object(folder):
    array = zarr.open(str(zarr_array()(folder)), mode="r")
    return SourceCase(lambda: open_view(array, "X"), TABLE, False)


CASES = {
    "hdf5-only": on_disk(hdf5(group__a=TABLE)),
    "hdf5-named": on_disk(hdf5(".hdf5", a=TABLE, group__b=IMAGES), ":/group/b", IMAGES),
    "hdf5-chunked": on_disk(hdf5(options={"chunks": (3, 2), "compression": "gzip"}, a=TABLE)),
    "hdf5-big-endian": on_disk(hdf5(a=TABLE.astype(">f4"))),
    "hdf5-bool": on_disk(hdf5(a=TABLE > 0), expected=TABLE > 0),
    "hdf5-dataset": hdf5_dataset,
    "zarr-array": on_disk(zarr_array()),
    "zarr-array-v2": on_disk(zarr_array(2)),
    "zarr-only": on_disk(zarr_group(a=TABLE)),
    "zarr-named": on_disk(zarr_group(a=TABLE, group__b=IMAGES), ":group/b", IMAGES),
    "zarr-object": zarr_object,
}
TestContract = contract(CASES)
TestDamaged = damaged({"hdf5": hdf5(a=TABLE)})


def test_closes_what_was_opened_here(tmp_path):
    good, bad = hdf5(a=TABLE)(tmp_path), hdf5(".hdf5", a=TABLE[0])(tmp_path)
    open_view(good, "X").close()
    error_message(bad)
    for path in (good, bad):
        h5py.File(path, "r+").close()  # HDF5 does not write to a file that is still open


def test_leaves_open_what_the_user_opened(tmp_path):
    file = h5py.File(hdf5(a=TABLE)(tmp_path), "r")
    dataset = file["a"]
    open_view(dataset, "Y").close()
    np.testing.assert_array_equal(dataset[:], TABLE)
    source = open_view(dataset, "Y")
    file.close()
    with pytest.raises(InputError, match="Y is a dataset of a closed HDF5 file"):
        source.read(0, 1)
    assert "Y is a dataset of a closed HDF5 file" in error_message(dataset, name="Y")


def test_groups(tmp_path):
    path = hdf5(group__a=TABLE, b=IMAGES)(tmp_path)
    message = error_message(f"{path}:group", SourceFormatError)
    assert "has no array 'group'. Available: 'b', 'group/a'." in message
    with h5py.File(path, "r") as file:
        message = error_message(file, InputTypeError)
    assert "X is a group, not an array. Pass one of its arrays: 'b', 'group/a'." in message
    group = zarr.open(str(zarr_group(a=TABLE, b=IMAGES)(tmp_path)), mode="r")
    assert "Pass one of its arrays: 'a', 'b'." in error_message(group, InputTypeError)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (hdf5(a=np.zeros((0, 5))), "Found array with 0 sample(s) (shape=(0, 5))"),
        (hdf5(a=h5py.Empty("f")), "Expected 2D array"),
        (hdf5(a=np.array([[b"a", b"b"]], dtype=object)), "only real numbers"),
        (zarr_group(a=np.zeros((3, 2, 2))), "Expected 2D array, got 3D array instead"),
    ],
)
def test_arrays_that_are_not_tables_of_numbers(write, message, tmp_path):
    assert message in error_message(write(tmp_path))


def test_a_chunk_of_zarr_is_decoded_once_for_all_its_rows():
    reads = []

    class Recording:
        shape, dtype, chunks = TABLE.shape, TABLE.dtype, (4, 2)

        def __getitem__(self, rows):
            reads.append((rows.start, rows.stop))
            return TABLE[rows]

    source = stored_array_source(Recording(), "X")
    for row in range(11):
        np.testing.assert_array_equal(source.read(row, row + 1), TABLE[row : row + 1])
    assert reads == [(0, 4), (4, 8), (8, 11)]
    np.testing.assert_array_equal(source.read(3, 9), TABLE[3:9])
    assert reads[3:] == [(3, 9)]


def test_a_zarr_store_of_another_name(tmp_path):
    path = zarr_array()(tmp_path).rename(tmp_path / "store")
    np.testing.assert_array_equal(read_all(path), TABLE)


def test_damaged_chunks(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 50))
    path = hdf5(options={"chunks": (10, 50), "compression": "gzip"}, a=rows)(tmp_path)
    content = bytearray(path.read_bytes())
    content[-2000:-100] = bytes(1900)
    path.write_bytes(content)
    source = open_view(path, "X")
    with pytest.raises(SourceFormatError, match=r"^X .* cannot be read as HDF5"):
        source.read(0, 100)
    source.close()
    path = zarr_array()(tmp_path)
    for chunk in (path / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"garbage")
    with pytest.raises(SourceFormatError, match=r"^X .* cannot be read as Zarr"):
        open_view(path, "X").read(0, 11)
    (path / "zarr.json").write_text("{")
    assert "cannot be read as Zarr" in error_message(path, SourceFormatError)
