"""Parquet files and folders, and Arrow tables: features, nulls, memory, damaged files."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from knoi.data import parquet
from knoi.data.open import open_view, read_column
from knoi.exceptions import InputError, InputTypeError, SourceFormatError
from tests.contracts.view_source import SourceCase
from tests.data.opening import (
    IMAGES,
    contract,
    converted,
    damaged,
    error_message,
    on_disk,
    read_all,
)
from tests.data.opening import TABLE as FOUR_COLUMNS

TABLE = FOUR_COLUMNS[:, :3]
NAMES = ("a", "b", "c")
IMAGE_NAMES = tuple(f"image[{i}]" for i in range(6))


def columns_of(rows=TABLE, names=NAMES):
    return {name: rows[:, j] for j, name in enumerate(names)}


def fixed_lists(rows):
    return pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])


def write(path, columns, group_rows=4):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, row_group_size=group_rows)
    return path


def case(columns, expected, names, selector=""):
    return on_disk(
        lambda folder: write(folder / "view.parquet", columns), selector, expected, names
    )


def folder_case(folder):
    # Files of different sizes in two subfolders, one of them empty, and files that are not data.
    for k, (start, stop) in enumerate([(0, 3), (3, 3), (3, 9), (9, 11)]):
        part = folder / f"part={k // 2}"
        part.mkdir(exist_ok=True)
        write(part / f"{k}.parquet", columns_of(TABLE[start:stop]))
    (folder / "_metadata.parquet").write_bytes(b"")
    (folder / "_SUCCESS").write_bytes(b"")
    return SourceCase(lambda: open_view(folder, "X"), TABLE, False, NAMES)


MIXED = {"a": TABLE[:, 0], "image": fixed_lists(IMAGES), "id": np.arange(11)}
MIXED_ROWS = np.column_stack([TABLE[:, 0], IMAGES, np.arange(11)]).astype(np.float64)
MIXED_NAMES = ("a", *IMAGE_NAMES, "id")
SMALL = {"a": TABLE[:, 0], "b": TABLE[:, 1] > 0, "c": IMAGES[:, 0], "d": TABLE[:, 2].astype("f2")}
SMALL_ROWS = np.column_stack(list(SMALL.values())).astype(np.float32)
WITH_INDEX = pd.DataFrame(columns_of(), index=pd.Index(range(5, 16), name="id"))
NESTED = pa.FixedSizeListArray.from_arrays(fixed_lists(IMAGES.reshape(-1, 3)), 2)
NESTED_NAMES = tuple(f"image[{i}][{j}]" for i in range(2) for j in range(3))
LARGE_LISTS = pa.array(IMAGES.tolist(), pa.large_list(pa.uint8()))
CHUNKED = pa.concat_tables([pa.table(columns_of(TABLE[:4])), pa.table(columns_of(TABLE[4:]))])

CASES = {
    "scalars": case(columns_of(), TABLE, NAMES),
    "integers": case({"a": np.arange(11)}, np.arange(11)[:, None], ("a",)),
    "selected": case({**columns_of(), "s": ["x"] * 11}, TABLE[:, [2, 0]], ("c", "a"), ":c, a"),
    "twice": case(columns_of(), TABLE[:, [0, 0]], ("a", "a"), ":a,a"),
    "comma": case({"a,b": TABLE[:, 0], "c": ["x"] * 11}, TABLE[:, :1], ("a,b",), ":a,b"),
    "dotted": case({"a.b": TABLE[:, 0], "a": TABLE[:, 1]}, TABLE[:, :2], ("a.b", "a")),
    "fixed-list": case({"image": fixed_lists(IMAGES)}, IMAGES, IMAGE_NAMES),
    "list": case({"image": pa.array(IMAGES.tolist(), pa.list_(pa.uint8()))}, IMAGES, IMAGE_NAMES),
    "large-list": case({"image": LARGE_LISTS}, IMAGES, IMAGE_NAMES),
    "nested": case({"image": NESTED}, IMAGES, NESTED_NAMES),
    "mixed": case(MIXED, MIXED_ROWS, MIXED_NAMES),
    "small-mixed": case(SMALL, SMALL_ROWS, tuple(SMALL)),
    "pandas-index": case(pa.Table.from_pandas(WITH_INDEX, preserve_index=True), TABLE, NAMES),
    "folder": folder_case,
    "arrow": converted(pa.table(MIXED), MIXED_ROWS, MIXED_NAMES),
    "arrow-chunked": converted(CHUNKED, TABLE, NAMES),
}
TestContract = contract(CASES)
TestDamaged = damaged({"parquet": lambda folder: write(folder / "view.parquet", columns_of())})


def test_reads_in_order_decode_each_row_group_once(tmp_path, monkeypatch):
    path = write(tmp_path / "view.parquet", columns_of(), group_rows=4)
    decoded = []
    rows = parquet._ColumnLayout.rows

    def counted(self, n_rows, batches, first_row):
        decoded.append(first_row)
        return rows(self, n_rows, batches, first_row)

    monkeypatch.setattr(parquet._ColumnLayout, "rows", counted)
    source = open_view(path, "X")
    for row in range(11):
        source.read(row, row + 1)
    assert decoded == [0, 4, 8]
    source.close()


def test_memory_is_about_one_row_group(tmp_path):
    rows, groups, width = 20_000, 10, 8
    values = np.random.default_rng(0).normal(size=(rows * groups, width))
    path = write(tmp_path / "view.parquet", {f"f{j}": values[:, j] for j in range(width)}, rows)
    group_bytes = rows * width * 8
    pa.default_memory_pool().release_unused()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    source = open_view(path, "X")
    for start in range(0, len(values), 5000):
        source.read(start, start + 5000)
        assert pa.total_allocated_bytes() - before < 2 * group_bytes
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    source.close()
    assert peak < 2 * group_bytes


def test_a_row_group_is_decoded_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 36)  # three rows of three float32
    path = write(tmp_path / "view.parquet", columns_of(), group_rows=8)
    np.testing.assert_array_equal(read_all(path), TABLE)


@pytest.mark.parametrize("statistics", [True, False])
def test_nulls_are_located(tmp_path, statistics):
    path = tmp_path / "view.parquet"
    b = pa.array([None if k == 9 else float(k) for k in range(11)])
    table = pa.table({"a": TABLE[:, 0], "b": b})
    pq.write_table(table, path, row_group_size=4, write_statistics=statistics)
    with pytest.raises(InputError, match="has a null in column 'b' at row 9: CCA needs complete"):
        read_all(path)
    if statistics:  # then it is an error on opening
        assert "at row 9" in error_message(path)
    assert read_all(f"{path}:a").shape == (11, 1)  # other columns may have nulls
    write(tmp_path / "earlier.parquet", {"a": TABLE[:, 0], "b": np.arange(11.0)})
    with pytest.raises(InputError, match="has a null in column 'b' at row 20"):
        read_all(tmp_path)  # of a folder, counted from its first file


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float32())])
@pytest.mark.parametrize(("row", "null"), [(0, [1.0, None]), (0, None), (6, None)])
def test_nulls_in_lists(tmp_path, kind, row, null):
    lists = [null if k == row else [0.0, 1.0] for k in range(11)]
    path = write(tmp_path / "view.parquet", {"v": pa.array(lists, kind)})
    assert f"has a null in column 'v' at row {row}:" in error_message(path)


def test_lists_of_different_or_no_length(tmp_path):
    path = write(tmp_path / "view.parquet", {"v": [[1.0, 2.0, 3.0]] * 7 + [[1.0, 2.0]] + [[1.0]]})
    with pytest.raises(InputError, match="'v': 3 values in the first row but 2 at row 7"):
        read_all(path)
    path = write(tmp_path / "view.parquet", {"v": pa.array([[]] * 3, pa.list_(pa.float32()))})
    assert "Found array with 0 feature(s) (shape=(3, 0))" in error_message(path)


def test_columns_that_are_not_numbers(tmp_path):
    columns = {**columns_of(), "name": ["x"] * 11, "day": pa.array([0] * 11, pa.date32())}
    path = write(tmp_path / "view.parquet", columns)
    message = error_message(path, InputTypeError)
    assert "has columns that are not numbers: 'name (string)', 'day (date32[day])'" in message
    assert "Available: 'a', 'b', 'c'." in message
    assert "'name (string)'" in error_message(f"{path}:a,name", InputTypeError)
    path = write(tmp_path / "words.parquet", {"name": ["x"] * 11})
    assert "Encode them as numbers first." in error_message(path, InputTypeError)


def test_column_names(tmp_path):
    table = pa.table([TABLE[:, 0], TABLE[:, 1], TABLE[:, 2]], names=["a", "a", "b"])
    path = write(tmp_path / "view.parquet", table)
    assert "has 2 columns called 'a'" in error_message(path, SourceFormatError)
    np.testing.assert_array_equal(read_all(f"{path}:b"), TABLE[:, 2:])
    message = error_message(f"{path}:b,z", SourceFormatError)
    assert "has no column 'z'. Available: 'a', 'a', 'b'." in message


def test_files_of_a_folder_must_agree(tmp_path):
    write(tmp_path / "0.parquet", {"a": TABLE[:, 0]})
    write(tmp_path / "1.parquet", {"a": np.arange(11)})
    message = error_message(tmp_path, SourceFormatError)
    assert "column 'a' is int64 in '1.parquet' but float in '0.parquet'" in message
    (tmp_path / "1.parquet").write_bytes(b"garbage")
    message = error_message(tmp_path, SourceFormatError)
    assert f"X ('{tmp_path}') (file '1.parquet') cannot be read as Parquet: " in message


def test_no_rows_and_no_columns(tmp_path):
    path = write(tmp_path / "view.parquet", columns_of(TABLE[:0]))
    assert "Found array with 0 sample(s) (shape=(0, 3))" in error_message(path)
    path = write(tmp_path / "lists.parquet", {"v": pa.array([], pa.list_(pa.float32()))})
    assert "Found array with 0 sample(s)" in error_message(path)
    assert "Found array with 0 sample(s)" in error_message(pa.table(columns_of(TABLE[:0])))
    assert "Found array with 0 feature(s)" in error_message(pa.table({"a": [1]}).select([]))


def test_a_damaged_row_group(tmp_path):
    path = tmp_path / "view.parquet"
    values = np.random.default_rng(0).normal(size=10_000)
    pq.write_table(pa.table({"a": values}), path, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[100:5000] = bytes(4900)
    path.write_bytes(content)
    with pytest.raises(SourceFormatError, match=r"^X .* cannot be read as Parquet"):
        read_all(path)


def test_a_folder_may_have_any_name(tmp_path):
    for name in ("data", "data.parquet"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.parquet", columns_of())
        np.testing.assert_array_equal(read_all(f"{tmp_path / name}:c"), TABLE[:, 2:])
        np.testing.assert_array_equal(read_column(f"{tmp_path / name}:c", "labels"), TABLE[:, 2])
    empty = tmp_path / "empty.parquet"
    empty.mkdir()
    assert "is a folder, but neither a Zarr store" in error_message(empty, SourceFormatError)
