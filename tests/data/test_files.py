"""Views on disk: locators, .npy, .npz, HDF5, Zarr; missing, wrong and damaged files."""

import sys
import zipfile
from contextlib import suppress

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from knoi.data.open import open_view
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
    MissingExtraError,
    SourceFormatError,
    SourceNotFoundError,
)
from tests.contracts.view_source import SourceCase, ViewSourceContract

TABLE = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
IMAGES = np.random.default_rng(1).integers(0, 256, size=(11, 6)).astype(np.uint8)


def refusal(data, error=InputError, name="X"):
    with pytest.raises(error) as caught:
        open_view(data, name)
    return str(caught.value)


def on_disk(write, selector="", expected=TABLE, random_access=False):
    """A case whose locator is the path that `write(folder)` returns, with a selector."""

    def make(folder):
        locator = f"{write(folder)}{selector}"
        return SourceCase(lambda: open_view(locator, "X"), expected, random_access)

    return make


def save_npy(array):
    def write(folder):
        np.save(folder / "view.npy", array)
        return folder / "view.npy"

    return write


def save_npz(save, **arrays):
    def write(folder):
        save(folder / "views.npz", **arrays)
        return folder / "views.npz"

    return write


def save_hdf5(suffix=".h5", options=None, **arrays):
    def write(folder):
        path = folder / f"views{suffix}"
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name.replace("__", "/"), data=array, **(options or {}))
        return path

    return write


def save_zarr(**arrays):
    def write(folder):
        path = folder / "views.zarr"
        group = zarr.open_group(str(path), mode="w")
        for name, array in arrays.items():
            stored = group.create_array(
                name.replace("__", "/"),
                shape=array.shape,
                dtype=array.dtype,
                chunks=(4, 3, 2)[: array.ndim],
            )
            stored[:] = array
        return path

    return write


def save_zarr_array(zarr_format):
    def write(folder):
        path = folder / "view.zarr"
        array = zarr.create_array(
            str(path), shape=TABLE.shape, dtype=TABLE.dtype, chunks=(4, 4), zarr_format=zarr_format
        )
        array[:] = TABLE
        return path

    return write


def user_memmap(folder):
    path = save_npy(TABLE)(folder)
    return SourceCase(lambda: open_view(np.load(path, mmap_mode="r+"), "X"), TABLE, False)


def plain_view_of_memmap(folder):
    path = save_npy(TABLE)(folder)
    return SourceCase(
        lambda: open_view(np.asarray(np.load(path, mmap_mode="r"))[:, :2], "X"), TABLE[:, :2], False
    )


def user_hdf5_dataset(folder):
    file = h5py.File(save_hdf5(a=TABLE)(folder), "r")
    return SourceCase(lambda: open_view(file["a"], "X"), TABLE, False)


def user_zarr_array(folder):
    array = zarr.open(str(save_zarr_array(3)(folder)), mode="r")
    return SourceCase(lambda: open_view(array, "X"), TABLE, False)


CASES = {
    "memmap": user_memmap,
    "memmap-view": plain_view_of_memmap,
    "npy": on_disk(save_npy(TABLE)),
    "npy-fortran": on_disk(save_npy(np.asfortranarray(TABLE))),
    "npy-uint8": on_disk(save_npy(IMAGES), expected=IMAGES),
    "npy-big-endian": on_disk(save_npy(TABLE.astype(">f4"))),
    "npz-only": on_disk(save_npz(np.savez, a=TABLE)),
    "npz-named": on_disk(save_npz(np.savez, b=IMAGES, a=TABLE), ":a"),
    "npz-fortran": on_disk(save_npz(np.savez, b=IMAGES, a=np.asfortranarray(TABLE)), ":a.npy"),
    "npz-compressed": on_disk(
        save_npz(np.savez_compressed, b=IMAGES, a=TABLE), ":b", IMAGES, random_access=True
    ),
    "hdf5-only": on_disk(save_hdf5(group__a=TABLE)),
    "hdf5-named": on_disk(save_hdf5(a=TABLE, group__b=IMAGES), ":group/b", IMAGES),
    "hdf5-rooted": on_disk(save_hdf5(".hdf5", a=TABLE, group__b=IMAGES), ":/group/b", IMAGES),
    "hdf5-chunked": on_disk(save_hdf5(options={"chunks": (3, 2), "compression": "gzip"}, a=TABLE)),
    "hdf5-big-endian": on_disk(save_hdf5(a=TABLE.astype(">f4"))),
    "hdf5-bool": on_disk(save_hdf5(a=TABLE > 0), expected=TABLE > 0),
    "hdf5-dataset": user_hdf5_dataset,
    "zarr-array": on_disk(save_zarr_array(3)),
    "zarr-array-v2": on_disk(save_zarr_array(2)),
    "zarr-only": on_disk(save_zarr(a=TABLE)),
    "zarr-named": on_disk(save_zarr(a=TABLE, group__b=IMAGES), ":group/b", IMAGES),
    "zarr-object": user_zarr_array,
}


class TestEveryFile(ViewSourceContract):
    @pytest.fixture(params=CASES.values(), ids=CASES.keys())
    def case(self, request, tmp_path):
        return request.param(tmp_path)


def test_npy_is_mapped_not_read(tmp_path):
    rows = open_view(save_npy(TABLE)(tmp_path), "X").read(3, 6)
    assert not rows.flags.owndata
    assert not rows.flags.writeable


def test_a_stored_npz_member_is_mapped_not_read(tmp_path):
    path = save_npz(np.savez, b=IMAGES, a=TABLE)(tmp_path)
    source = open_view(f"{path}:a", "X")
    data = bytearray(path.read_bytes())
    place = data.index(TABLE.tobytes())
    with open(path, "r+b") as file:  # what is written to the file shows through the map
        file.seek(place)
        file.write(np.float32(42).tobytes())
    assert source.read(0, 1)[0, 0] == 42


def test_an_npz_that_another_program_wrote(tmp_path):
    # np.savez gives local headers an extra field; other writers do not, and add other files.
    path = tmp_path / "a.npz"
    np.save(tmp_path / "a.npy", TABLE)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", b"not an array")
        archive.write(tmp_path / "a.npy", "a.npy")
    np.testing.assert_array_equal(open_view(path, "X").read(0, 11), TABLE)


def test_close_closes_what_was_opened_here(tmp_path):
    path = save_hdf5(a=TABLE)(tmp_path)
    source = open_view(path, "X")
    source.close()
    with h5py.File(path, "r+") as file:  # HDF5 refuses to write to a file that is still open
        assert "a" in file


def test_a_refused_hdf5_file_is_not_left_open(tmp_path):
    path = save_hdf5(a=TABLE[0])(tmp_path)
    with pytest.raises(InputError):
        open_view(path, "X")
    with h5py.File(path, "r+") as file:
        assert "a" in file


def test_close_leaves_open_what_the_user_opened(tmp_path):
    with h5py.File(save_hdf5(a=TABLE)(tmp_path), "r") as file:
        open_view(file["a"], "X").close()
        np.testing.assert_array_equal(file["a"][:], TABLE)


def test_reading_a_dataset_whose_file_the_user_closed(tmp_path):
    file = h5py.File(save_hdf5(a=TABLE)(tmp_path), "r")
    dataset = file["a"]
    source = open_view(dataset, "Y")
    file.close()
    with pytest.raises(InputError, match=r"^Y: the HDF5 file was closed\. Keep it open"):
        source.read(0, 1)
    with pytest.raises(InputError, match=r"^Y is a dataset of a closed HDF5 file"):
        open_view(dataset, "Y")


def test_refuses_nothing_on_disk(tmp_path):
    path = save_npy(np.zeros((0, 5)))(tmp_path)
    assert refusal(path) == (
        f"X ('{path}'): Found array with 0 sample(s) (shape=(0, 5)) while a minimum of 1 is "
        "required. Check how it was read or selected."
    )
    path = save_hdf5(a=np.zeros((0, 5)))(tmp_path)
    assert "Found array with 0 sample(s) (shape=(0, 5))" in refusal(path)
    path = save_hdf5(a=h5py.Empty("f"))(tmp_path)
    assert "Expected 2D array" in refusal(path)
    path = save_zarr(a=np.zeros((3, 2, 2)))(tmp_path)
    assert "Expected 2D array, got 3D array instead" in refusal(path)


def test_refuses_groups_handed_in(tmp_path):
    with h5py.File(save_hdf5(a=TABLE, b=IMAGES)(tmp_path), "r") as file:
        assert refusal(file, InputTypeError) == (
            "X is an HDF5 group, not a dataset. Pass one of its datasets: 'a', 'b'."
        )
    group = zarr.open(str(save_zarr(a=TABLE, b=IMAGES)(tmp_path)), mode="r")
    assert refusal(group, InputTypeError) == (
        "X is a Zarr group, not an array. Pass one of its arrays: 'a', 'b'."
    )


def test_a_path_that_is_not_there(tmp_path):
    np.save(tmp_path / "digits_left.npy", TABLE)
    path = tmp_path / "digit_left.npy"
    assert refusal(path, SourceNotFoundError) == (
        f"X ('{path}'): there is no file or folder '{path}'. Similar names: 'digits_left.npy'."
    )
    assert refusal(f"{tmp_path}/zzz.h5:a", FileNotFoundError) == (
        f"X ('{tmp_path}/zzz.h5:a'): there is no file or folder '{tmp_path}/zzz.h5'. "
        "Check the path."
    )
    assert "there is no folder" in refusal(tmp_path / "no" / "x.npy", SourceNotFoundError)


@pytest.mark.parametrize("text", ["", "nothing", "a" * 5000, "a\0b", ":", "::a"])
def test_text_that_is_no_path(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal(text, SourceNotFoundError).startswith("X (")


def test_a_path_that_holds_a_colon_wins(tmp_path):
    np.save(tmp_path / "a:b.npy", TABLE)
    np.testing.assert_array_equal(open_view(tmp_path / "a:b.npy", "X").read(0, 11), TABLE)
    np.savez(tmp_path / "a:b.npz", c=TABLE, d=IMAGES)
    np.testing.assert_array_equal(open_view(f"{tmp_path}/a:b.npz:d", "X").read(0, 11), IMAGES)
    missing = refusal(f"{tmp_path}/x:y.npy", SourceNotFoundError)
    assert f"'{tmp_path}/x:y.npy'. " in missing


def test_a_selector_may_hold_a_colon(tmp_path):
    path = save_hdf5(**{"a:b": TABLE, "c": IMAGES})(tmp_path)
    np.testing.assert_array_equal(open_view(f"{path}:a:b", "X").read(0, 11), TABLE)


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "view.npy", TABLE)
    assert open_view("~/view.npy", "X").n_rows == 11


def test_an_unknown_extension(tmp_path):
    path = tmp_path / "view.xlsx"
    path.write_text("1,2\n3,4\n")
    assert refusal(path, SourceFormatError) == (
        f"X ('{path}'): files ending in '.xlsx' are not supported. Supported: .npy, .npz, .h5, "
        ".hdf5, .zarr, .parquet, .csv, .csv.gz, .tsv, .tsv.gz, .mat, and folders of .parquet files."
    )


def test_a_folder_of_nothing(tmp_path):
    assert "is a folder, but neither a Zarr store nor a folder of .parquet files" in refusal(
        tmp_path, SourceFormatError
    )


def test_a_zarr_store_of_another_name(tmp_path):
    path = save_zarr_array(3)(tmp_path).rename(tmp_path / "store")
    np.testing.assert_array_equal(open_view(path, "X").read(0, 11), TABLE)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (save_npz(np.savez, left=TABLE, right=IMAGES), "array"),
        (save_hdf5(left=TABLE, right=IMAGES), "dataset"),
        (save_zarr(left=TABLE, right=IMAGES), "array"),
    ],
    ids=["npz", "hdf5", "zarr"],
)
def test_a_name_that_is_not_in_the_file(write, what, tmp_path):
    path = write(tmp_path)
    assert refusal(f"{path}:middle", SourceFormatError) == (
        f"X ('{path}:middle') has no {what} 'middle'. Available: 'left', 'right'."
    )
    assert refusal(path, SourceFormatError) == (
        f"X ('{path}') has 2 {what}s. Select one with PATH:NAME. Available: 'left', 'right'."
    )


@pytest.mark.parametrize("write", [save_npz(np.savez), save_hdf5(), save_zarr()])
def test_a_file_that_holds_nothing(write, tmp_path):
    path = write(tmp_path)
    assert "Pass a file that has one." in refusal(path, SourceFormatError)
    assert ". The file has no " in refusal(f"{path}:a", SourceFormatError)


def test_a_group_instead_of_a_dataset(tmp_path):
    path = save_hdf5(group__a=TABLE, b=IMAGES)(tmp_path)
    assert refusal(f"{path}:group", SourceFormatError) == (
        f"X ('{path}:group'): 'group' is a group, not a dataset. "
        "Select one of its datasets: 'group/a'."
    )


@pytest.mark.parametrize("write", [save_npy(TABLE), save_zarr_array(3)], ids=["npy", "zarr"])
def test_a_selector_where_there_is_nothing_to_select(write, tmp_path):
    path = write(tmp_path)
    assert refusal(f"{path}:a", SourceFormatError).endswith(
        "so 'a' cannot be selected. Remove ':a'."
    )


def test_text_in_files(tmp_path):
    words = np.array([["a", "b"]])
    assert "only real numbers" in refusal(save_npy(words)(tmp_path), InputTypeError)
    path = save_hdf5(a=np.array([[b"a", b"b"]], dtype=object))(tmp_path)
    assert "only real numbers" in refusal(path, InputTypeError)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_pickled_objects_are_never_unpickled(tmp_path):
    bombs = np.array([[Bomb(), Bomb()]], dtype=object)
    np.save(tmp_path / "bomb.npy", bombs, allow_pickle=True)
    np.savez(tmp_path / "bomb.npz", a=bombs)
    np.savez_compressed(tmp_path / "packed.npz", a=bombs)
    for name in ("bomb.npy", "bomb.npz", "packed.npz"):
        path = tmp_path / name
        assert refusal(path, SourceFormatError) == (
            f"X ('{path}') holds pickled Python objects, which are never unpickled because that "
            "can run code. Save numbers instead: numpy.save(path, array.astype(float))."
        )


def test_a_truncated_npy(tmp_path):
    path = save_npy(TABLE)(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert refusal(path, SourceFormatError) == (
        f"X ('{path}') is truncated: an array of shape (11, 4) and dtype float32 takes 176 bytes, "
        "but the file has 166. Copy or write it again."
    )


WRITERS = {
    "npy": save_npy(TABLE),
    "npz": save_npz(np.savez, a=TABLE),
    "npz-compressed": save_npz(np.savez_compressed, a=TABLE),
    "hdf5": save_hdf5(a=TABLE),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("kept", [0, 1, 5, 20, 70, 0.5, 0.9])
def test_truncated_files(write, kept, tmp_path):
    path = write(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    assert refusal(path, SourceFormatError).startswith(f"X ('{path}') ")


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_files_of_garbage(write, tmp_path):
    path = write(tmp_path)
    path.write_bytes(np.random.default_rng(0).bytes(3000))
    assert refusal(path, SourceFormatError).startswith(f"X ('{path}') cannot be read as ")


@pytest.mark.parametrize("name", ["npy", "npz", "npz-compressed"])
@given(st.data())
def test_a_flipped_byte_gives_numbers_or_a_clear_error(tmp_path_factory, name, data):
    path = WRITERS[name](tmp_path_factory.mktemp("flipped"))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    # Any other error, or a crash, fails the test.
    with suppress(InputError, SourceFormatError, MemoryBudgetError):
        source = open_view(path, "X")
        rows = source.read(0, source.n_rows)
        assert rows.shape == (source.n_rows, source.n_cols)


def test_a_damaged_hdf5_chunk(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 50))
    path = save_hdf5(options={"chunks": (10, 50), "compression": "gzip"}, a=rows)(tmp_path)
    content = bytearray(path.read_bytes())
    content[-2000:-100] = bytes(1900)
    path.write_bytes(content)
    source = open_view(path, "X")
    with pytest.raises(SourceFormatError, match=r"^X .* cannot be read as HDF5"):
        source.read(0, 100)
    source.close()


def test_a_damaged_zarr_chunk(tmp_path):
    path = save_zarr_array(3)(tmp_path)
    for chunk in (path / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"garbage")
    with pytest.raises(SourceFormatError, match=r"^X .* cannot be read as Zarr"):
        open_view(path, "X").read(0, 11)


def test_a_damaged_zarr_header(tmp_path):
    path = save_zarr_array(3)(tmp_path)
    (path / "zarr.json").write_text("{")
    assert "cannot be read as Zarr" in refusal(path, SourceFormatError)


def test_a_compressed_array_larger_than_memory(tmp_path, monkeypatch):
    path = save_npz(np.savez_compressed, a=np.zeros((1000, 1000)))(tmp_path)
    monkeypatch.setattr("knoi.data.npy.available_ram", lambda: 2**20)
    assert refusal(path, MemoryBudgetError) == (
        f"X ('{path}') is a compressed array that takes 8 MiB in memory, but only 1 MiB are free. "
        "Save it as .npy (or with numpy.savez), which streams from disk."
    )


@pytest.mark.parametrize(
    ("write", "module", "purpose"),
    [(save_hdf5(a=TABLE), "h5py", "HDF5"), (save_zarr_array(3), "zarr", "Zarr")],
)
def test_a_missing_library_names_the_command(write, module, purpose, tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        open_view(path, "X")
    assert str(caught.value) == (
        f"reading {purpose} needs {module}, which is not installed. Run: pip install 'knoi[io]'"
    )
