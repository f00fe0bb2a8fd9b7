"""Tables: Parquet files and folders, Arrow tables, pandas and polars frames."""

import sys
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.data import parquet as tabular
from knoi.data.open import open_view
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MissingExtraError,
    SourceFormatError,
    SourceNotFoundError,
)
from tests.contracts.view_source import SourceCase, ViewSourceContract

TABLE = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
IMAGES = np.random.default_rng(1).integers(0, 256, size=(11, 6)).astype(np.uint8)
NAMES = ("a", "b", "c")
IMAGE_NAMES = tuple(f"image[{i}]" for i in range(6))


def scalar_columns(rows=TABLE, names=NAMES):
    return {name: rows[:, j] for j, name in enumerate(names)}


def fixed_lists(rows):
    return pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])


def nested_lists(rows, inner):
    return pa.FixedSizeListArray.from_arrays(
        pa.FixedSizeListArray.from_arrays(rows.ravel(), inner), rows.shape[1] // inner
    )


def write(path, columns, rows_a_group=4):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, row_group_size=rows_a_group)
    return path


def parquet(columns, expected, names, selector=""):
    def make(folder):
        locator = f"{write(folder / 'view.parquet', columns)}{selector}"
        return SourceCase(lambda: open_view(locator, "X"), expected, False, names)

    return make


def parquet_folder(folder):
    # Files of different sizes in two subfolders, one empty, beside what is no data.
    for k, (start, stop) in enumerate([(0, 3), (3, 3), (3, 9), (9, 11)]):
        part = folder / f"part={k // 2}"
        part.mkdir(exist_ok=True)
        write(part / f"{k}.parquet", scalar_columns(TABLE[start:stop]))
    (folder / "_metadata.parquet").write_bytes(b"")
    (folder / "_SUCCESS").write_bytes(b"")
    return SourceCase(lambda: open_view(folder, "X"), TABLE, False, NAMES)


def in_memory(data, expected, names):
    return lambda folder: SourceCase(lambda: open_view(data, "X"), expected, True, names)


MIXED = {"a": TABLE[:, 0], "image": fixed_lists(IMAGES), "id": np.arange(11)}
MIXED_TABLE = np.column_stack([TABLE[:, 0], IMAGES, np.arange(11)]).astype(np.float64)
FRAME = pd.DataFrame(scalar_columns())
NULLABLE = pd.DataFrame(
    {
        "a": pd.array([1, None] + [3] * 9, dtype="Int16"),
        "b": pd.array([True, None] + [False] * 9, dtype="boolean"),
        "c": pd.array([0.5, None] + [1.5] * 9, dtype="Float32"),
    }
)
NULLABLE_ROWS = np.array([[1, 1, 0.5], [np.nan] * 3] + [[3, 0, 1.5]] * 9, dtype=np.float32)

CASES = {
    "parquet": parquet(scalar_columns(), TABLE, NAMES),
    "parquet-ints": parquet({"a": np.arange(11)}, np.arange(11)[:, None], ("a",)),
    "parquet-selected": parquet(
        {**scalar_columns(), "s": ["x"] * 11}, TABLE[:, [2, 0]], ("c", "a"), ":c, a"
    ),
    "parquet-comma": parquet({"a,b": TABLE[:, 0], "c": ["x"] * 11}, TABLE[:, :1], ("a,b",), ":a,b"),
    "parquet-fixed-list": parquet({"image": fixed_lists(IMAGES)}, IMAGES, IMAGE_NAMES),
    "parquet-list": parquet(
        {"image": pa.array(IMAGES.tolist(), pa.list_(pa.uint8()))}, IMAGES, IMAGE_NAMES
    ),
    "parquet-large-list": parquet(
        {"image": pa.array(IMAGES.tolist(), pa.large_list(pa.uint8()))}, IMAGES, IMAGE_NAMES
    ),
    "parquet-nested": parquet(
        {"image": nested_lists(IMAGES, 3)},
        IMAGES,
        tuple(f"image[{i}][{j}]" for i in range(2) for j in range(3)),
    ),
    "parquet-mixed": parquet(MIXED, MIXED_TABLE, ("a", *IMAGE_NAMES, "id")),
    "parquet-small-mixed": parquet(
        {"a": TABLE[:, 0], "b": TABLE[:, 1] > 0, "c": IMAGES[:, 0], "d": TABLE[:, 2].astype("f2")},
        np.column_stack(
            [TABLE[:, 0], TABLE[:, 1] > 0, IMAGES[:, 0], TABLE[:, 2].astype("f2")]
        ).astype(np.float32),
        ("a", "b", "c", "d"),
    ),
    "parquet-pandas-index": parquet(
        pa.Table.from_pandas(
            FRAME.set_index(pd.Index(range(5, 16), name="id")), preserve_index=True
        ),
        TABLE,
        NAMES,
    ),
    "parquet-dotted": parquet({"a.b": TABLE[:, 0], "a": TABLE[:, 1]}, TABLE[:, :2], ("a.b", "a")),
    "parquet-twice": parquet(scalar_columns(), TABLE[:, [0, 0]], ("a", "a"), ":a,a"),
    "parquet-folder": parquet_folder,
    "arrow": in_memory(pa.table(MIXED), MIXED_TABLE, ("a", *IMAGE_NAMES, "id")),
    "arrow-chunked": in_memory(
        pa.concat_tables(
            [pa.table(scalar_columns(TABLE[:4])), pa.table(scalar_columns(TABLE[4:]))]
        ),
        TABLE,
        NAMES,
    ),
    "pandas": in_memory(FRAME, TABLE, NAMES),
    "pandas-one-block": in_memory(pd.DataFrame(TABLE.copy(), columns=list(NAMES)), TABLE, NAMES),
    "pandas-unnamed": in_memory(pd.DataFrame(TABLE.copy()), TABLE, None),
    "pandas-mixed": in_memory(
        pd.DataFrame({"a": TABLE[:, 0], "n": np.arange(11)}),
        np.column_stack([TABLE[:, 0].astype(float), np.arange(11)]),
        ("a", "n"),
    ),
    "pandas-bool": in_memory(pd.DataFrame({"a": TABLE[:, 0] > 0}), TABLE[:, :1] > 0, ("a",)),
    "pandas-object": in_memory(
        pd.DataFrame({"a": pd.Series([Decimal(k) for k in range(11)], dtype=object)}),
        np.arange(11.0)[:, None],
        ("a",),
    ),
    "pandas-nullable": in_memory(NULLABLE, NULLABLE_ROWS, NAMES),
    "pandas-arrow": in_memory(
        NULLABLE.convert_dtypes(dtype_backend="pyarrow")[["a", "c"]],
        NULLABLE_ROWS[:, [0, 2]],
        ("a", "c"),
    ),
    "pandas-sparse": in_memory(
        pd.DataFrame({"a": pd.arrays.SparseArray(IMAGES[:, 0].astype(float)), "b": IMAGES[:, 1]}),
        IMAGES[:, :2].astype(float),
        ("a", "b"),
    ),
    "pandas-same-names": in_memory(
        pd.DataFrame(TABLE.copy(), columns=["a", "a", "b"]), TABLE, ("a", "a", "b")
    ),
    "polars": in_memory(pl.DataFrame(scalar_columns()), TABLE, NAMES),
    "polars-chunked": in_memory(
        pl.concat(
            [pl.DataFrame(scalar_columns(TABLE[:4])), pl.DataFrame(scalar_columns(TABLE[4:]))],
            rechunk=False,
        ),
        TABLE,
        NAMES,
    ),
    "polars-nulls": in_memory(
        pl.DataFrame(
            {
                "a": [1, None] + [3] * 9,
                "b": [True, None] + [False] * 9,
                "c": [0.5, None] + [1.5] * 9,
            },
            schema={"a": pl.Int16, "b": pl.Boolean, "c": pl.Float32},
        ),
        NULLABLE_ROWS,
        NAMES,
    ),
    "polars-decimal": in_memory(
        pl.DataFrame({"a": pl.Series([Decimal(k) / 4 for k in range(11)]), "b": IMAGES[:, 0]}),
        np.column_stack([np.arange(11) / 4, IMAGES[:, 0]]),
        ("a", "b"),
    ),
}


class TestEveryTable(ViewSourceContract):
    @pytest.fixture(params=CASES.values(), ids=CASES.keys())
    def case(self, request, tmp_path):
        return request.param(tmp_path)


def refusal(data, error=InputError):
    with pytest.raises(error) as caught:
        open_view(data, "X")
    return str(caught.value)


# ---------------------------------------------------------------------------- how Parquet is read


def test_reads_in_order_decode_each_row_group_once(tmp_path, monkeypatch):
    path = write(tmp_path / "view.parquet", scalar_columns(), rows_a_group=4)
    decoded = []
    fill = tabular._Layout.fill

    def counted(self, rows, batch, first_row):
        decoded.append(first_row)
        fill(self, rows, batch, first_row)

    monkeypatch.setattr(tabular._Layout, "fill", counted)
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
    monkeypatch.setattr(tabular, "_BATCH_BYTES", 36)  # three rows of three float32
    path = write(tmp_path / "view.parquet", scalar_columns(), rows_a_group=8)
    np.testing.assert_array_equal(open_view(path, "X").read(0, 11), TABLE)


def test_a_folder_keeps_one_file_open(tmp_path):
    parquet_folder(tmp_path)
    source = open_view(tmp_path, "X")
    source.read(0, 11)
    open_file = source._fetch.__self__._open_file[1]
    assert not open_file.closed
    source.close()
    assert open_file.closed


@settings(max_examples=30)
@given(st.data())
def test_any_range_of_any_row_groups(tmp_path_factory, data):
    n_rows = data.draw(st.integers(1, 30))
    rows = np.arange(n_rows * 2.0).reshape(n_rows, 2)
    path = write(
        tmp_path_factory.mktemp("parquet") / "view.parquet",
        scalar_columns(rows, ("a", "b")),
        data.draw(st.integers(1, 30)),
    )
    source = open_view(path, "X")
    for _ in range(3):
        start = data.draw(st.integers(0, n_rows))
        stop = data.draw(st.integers(start, n_rows))
        np.testing.assert_array_equal(source.read(start, stop), rows[start:stop])
    source.close()


# ------------------------------------------------------------------------------ refused: Parquet


def with_null(row):
    return pa.array([None if k == row else float(k) for k in range(11)])


@pytest.mark.parametrize("statistics", [True, False], ids=["footer-tells", "footer-silent"])
def test_nulls_are_named_by_column_and_row(tmp_path, statistics):
    path = tmp_path / "view.parquet"
    table = pa.table({"a": TABLE[:, 0], "b": with_null(9)})
    pq.write_table(table, path, row_group_size=4, write_statistics=statistics)
    with pytest.raises(InputError) as caught:
        open_view(path, "X").read(0, 11)
    assert str(caught.value) == (
        f"X ('{path}') has a null in column 'b' at row 9: CCA needs complete rows. Drop the rows "
        "with nulls or fill the values (e.g. DataFrame.dropna or fillna) and write the data again."
    )


def test_nulls_are_refused_on_opening_where_the_footer_tells(tmp_path):
    path = write(tmp_path / "view.parquet", {"a": TABLE[:, 0], "b": with_null(9)})
    assert "has a null in column 'b' at row 9" in refusal(path)
    open_view(f"{path}:a", "X").close()  # a column that is not read may hold nulls


def test_nulls_in_a_folder_are_counted_from_its_first_file(tmp_path):
    write(tmp_path / "0.parquet", {"b": np.arange(11.0)})
    write(tmp_path / "1.parquet", {"b": with_null(2)})
    assert "has a null in column 'b' at row 13" in refusal(tmp_path)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float32())], ids=["fixed", "variable"]
)
@pytest.mark.parametrize("row", [0, 6])
@pytest.mark.parametrize("null", [None, [1.0, None]], ids=["list", "number"])
def test_nulls_in_lists(tmp_path, kind, row, null):
    lists = [null if k == row else [0.0, 1.0] for k in range(11)]
    path = write(tmp_path / "view.parquet", {"v": pa.array(lists, kind)})
    assert f"has a null in column 'v' at row {row}:" in refusal(path)


def test_lists_of_different_lengths(tmp_path):
    lists = [[1.0, 2.0, 3.0]] * 7 + [[1.0, 2.0]] + [[1.0]] * 3
    path = write(tmp_path / "view.parquet", {"v": lists})
    with pytest.raises(InputError) as caught:
        open_view(path, "X").read(0, 11)
    assert str(caught.value) == (
        f"X ('{path}') has lists of different lengths in column 'v': 3 values in the first row but "
        "2 at row 7. Every row must have the same number of features."
    )


def test_empty_lists_are_no_features(tmp_path):
    path = write(tmp_path / "view.parquet", {"v": pa.array([[]] * 3, pa.list_(pa.float32()))})
    assert "Found array with 0 feature(s) (shape=(3, 0))" in refusal(path)


def test_columns_that_are_no_numbers(tmp_path):
    columns = {**scalar_columns(), "name": ["x"] * 11, "day": pa.array([0] * 11, pa.date32())}
    path = write(tmp_path / "view.parquet", columns)
    assert refusal(path, InputTypeError) == (
        f"X ('{path}') has columns that are not numbers: 'name (string)', 'day (date32[day])'. "
        "Select numeric columns with PATH:a,b. Available: 'a', 'b', 'c'."
    )
    assert "'name (string)'" in refusal(f"{path}:a,name", InputTypeError)
    path = write(tmp_path / "words.parquet", {"name": ["x"] * 11})
    assert refusal(path, InputTypeError).endswith("Encode them as numbers first.")


def test_a_column_that_is_not_there(tmp_path):
    path = write(tmp_path / "view.parquet", scalar_columns())
    assert refusal(f"{path}:a,z", SourceFormatError) == (
        f"X ('{path}:a,z') has no column 'z'. Available: 'a', 'b', 'c'."
    )


def test_two_columns_of_one_name(tmp_path):
    table = pa.table([TABLE[:, 0], TABLE[:, 1], TABLE[:, 2]], names=["a", "a", "b"])
    path = write(tmp_path / "view.parquet", table)
    assert "has 2 columns called 'a'" in refusal(path, SourceFormatError)
    np.testing.assert_array_equal(open_view(f"{path}:b", "X").read(0, 11), TABLE[:, 2:])


def test_files_of_a_folder_must_agree(tmp_path):
    write(tmp_path / "0.parquet", {"a": TABLE[:, 0]})
    write(tmp_path / "1.parquet", {"a": np.arange(11)})
    assert refusal(tmp_path, SourceFormatError) == (
        f"X ('{tmp_path}'): column 'a' is int64 in '1.parquet' but float in '0.parquet'. "
        "Write all files of a folder with the same columns."
    )


def test_no_rows_and_no_columns(tmp_path):
    path = write(tmp_path / "view.parquet", scalar_columns(TABLE[:0]))
    assert "Found array with 0 sample(s) (shape=(0, 3))" in refusal(path)
    path = write(tmp_path / "lists.parquet", {"v": pa.array([], pa.list_(pa.float32()))})
    assert "Found array with 0 sample(s)" in refusal(path)
    assert "Found array with 0 sample(s)" in refusal(pa.table(scalar_columns(TABLE[:0])))
    assert "Found array with 0 feature(s)" in refusal(pa.table({"a": [1]}).select([]))


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_truncated_files(tmp_path, kept):
    path = write(tmp_path / "view.parquet", scalar_columns())
    path.write_bytes(path.read_bytes()[:kept])
    assert refusal(path, SourceFormatError).startswith(f"X ('{path}') cannot be read as Parquet: ")


def test_a_damaged_file_of_a_folder_is_named(tmp_path):
    write(tmp_path / "0.parquet", scalar_columns())
    (tmp_path / "1.parquet").write_bytes(b"garbage")
    assert refusal(tmp_path, SourceFormatError).startswith(
        f"X ('{tmp_path}') (file '1.parquet') cannot be read as Parquet: "
    )


def test_a_damaged_row_group(tmp_path):
    path = tmp_path / "view.parquet"
    values = np.random.default_rng(0).normal(size=10_000)
    pq.write_table(pa.table({"a": values}), path, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[100:5000] = bytes(4900)
    path.write_bytes(content)
    with pytest.raises(SourceFormatError, match=r"^X .* cannot be read as Parquet"):
        open_view(path, "X").read(0, 10_000)


def test_a_parquet_folder_may_be_called_anything(tmp_path):
    for name in ("data", "data.parquet"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.parquet", scalar_columns())
        locator = f"{tmp_path / name}:c"
        np.testing.assert_array_equal(open_view(locator, "X").read(0, 11), TABLE[:, 2:])
    (tmp_path / "empty.parquet").mkdir()
    assert "folder without .parquet files" in refusal(tmp_path / "empty.parquet", SourceFormatError)
    with pytest.raises(SourceNotFoundError):
        open_view(tmp_path / "other.parquet", "X")


def test_a_missing_pyarrow_names_the_command(tmp_path, monkeypatch):
    path = write(tmp_path / "view.parquet", scalar_columns())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError) as caught:
        open_view(path, "X")
    assert str(caught.value) == (
        "reading Parquet needs pyarrow, which is not installed. Run: pip install 'knoi[io]'"
    )


# ------------------------------------------------------------------------------- frames in memory


def test_frames_are_converted_by_chunks(monkeypatch):
    lengths = []
    convert = pd.DataFrame.to_numpy

    def counted(self, *args, **kwargs):
        lengths.append(len(self))
        return convert(self, *args, **kwargs)

    monkeypatch.setattr(pd.DataFrame, "to_numpy", counted)
    source = open_view(FRAME, "X")
    source.read(0, 2)
    source.read(5, 9)
    assert lengths == [2, 4]


def test_polars_does_not_need_pyarrow(monkeypatch):
    frame = pl.DataFrame({"a": [1, None, 3], "b": [True, False, None], "c": [0.5, 1.5, 2.5]})
    for module in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    np.testing.assert_array_equal(
        open_view(frame, "X").read(0, 3), [[1, 1, 0.5], [np.nan, 0, 1.5], [3, np.nan, 2.5]]
    )


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["x", "y"], dtype="str"),
        pd.Series(["x", "y"], dtype="category"),
        pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02"])),
        pd.Series(pd.interval_range(0, 2)),
    ],
    ids=["str", "category", "datetime", "interval"],
)
def test_refuses_pandas_columns_that_are_no_numbers(column):
    assert refusal(pd.DataFrame({"a": [1, 2], "when": column}), InputTypeError) == (
        f"X has column 'when' of dtype {column.dtype}: only numbers can be used. "
        "Drop the column or encode it as numbers first."
    )


def test_refuses_text_in_object_columns_and_says_where():
    frame = pd.DataFrame({"a": [1, 2], "b": pd.Series([1, "red"], dtype=object)})
    assert refusal(frame, InputTypeError) == (
        "X has the string 'red' at row 1, column 1 ('b'): only numbers can be used. Encode text as "
        "numbers first (e.g. sklearn.preprocessing.OneHotEncoder)."
    )


@pytest.mark.parametrize(
    "column",
    [pl.Series(["x"]), pl.Series(["x"], dtype=pl.Categorical), pl.Series([None], dtype=pl.Date)],
    ids=["string", "categorical", "date"],
)
def test_refuses_polars_columns_that_are_no_numbers(column):
    assert refusal(pl.DataFrame({"a": [1], "when": column}), InputTypeError) == (
        f"X has column 'when' of dtype {column.dtype}: only numbers can be used. "
        "Drop the column or encode it as numbers first."
    )


def test_refuses_nested_polars_columns():
    message = refusal(pl.DataFrame({"v": [[1, 2], [3, 4]]}), InputTypeError)
    assert message.startswith("X has the nested column 'v' (List(Int64))")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_refuses_empty_frames(frame):
    assert "Found array with 0 sample(s) (shape=(0, 2))" in refusal(frame({"a": [], "b": []}))


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_refuses_a_single_column_as_a_series(series):
    assert "Expected 2D array, got 1D array instead" in refusal(series([1.0, 2.0]))
