"""CSV and TSV files: numbers read without loss, and errors that name the bad cell."""

import errno
import gzip
import os
import sys
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from knoi import LinearCCA
from knoi.data.open import open_view
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
    MissingExtraError,
    NonFiniteError,
    SourceFormatError,
)
from tests.contracts.view_source import ViewSourceContract
from tests.data.opening import error_message, on_disk, read_all

TABLE = np.random.default_rng(0).normal(size=(11, 4)) * 10.0 ** np.arange(-8, 8, 4)
COUNTS = np.random.default_rng(1).integers(-(2**60), 2**60, size=(11, 3))
NAMES = ("a", "b b", "c,d", "e")
HEADER = 'a, b b ,"c,d",e'


def as_text(table, delimiter=",", end="\n", header=None):
    lines = [delimiter.join(repr(value) for value in row) for row in table.tolist()]
    return end.join([*([header] if header else []), *lines, ""])


def write(path, text):
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def case(text, names=None, file="view.csv", selector="", expected=TABLE):
    return on_disk(lambda folder: write(folder / file, text), selector, expected, names)


@pytest.fixture
def file(tmp_path):
    """Writes a text to a file: `file(text)` returns its path."""
    return lambda text, name="view.csv": write(tmp_path / name, text)


@pytest.fixture
def small_blocks(monkeypatch):
    """A block holds a few rows, so that a small file has many."""
    monkeypatch.setattr("knoi.data.csv._BLOCK_BYTES", (64, 64))
    monkeypatch.setattr("knoi.data.csv._NUMBER_BYTES", 1)
    monkeypatch.setattr("knoi.data.csv._WRITE_BYTES", 48)


HEADED = as_text(TABLE, header=HEADER)
QUOTED = "\n".join(",".join(f'"{value!r}"' for value in row) for row in TABLE.tolist())

CASES = {
    "header": case(HEADED, NAMES),
    "selected-twice": case(
        HEADED, ("e", "a", "e"), selector=":e,a,e", expected=TABLE[:, [3, 0, 3]]
    ),
    "gzip": case(HEADED, NAMES, "VIEW.CSV.gz"),
    "tsv-gzip": case(
        as_text(TABLE, "\t", header="a\tb;c\td\te"), ("a", "b;c", "d", "e"), "v.tsv.gz"
    ),
    "integers": case(as_text(COUNTS), expected=COUNTS),
    "integers-then-floats": case(
        "1,2\n" * 10 + "1,2.5\n", expected=np.array([[1, 2.0]] * 10 + [[1, 2.5]])
    ),
    "cr": case(as_text(TABLE, end="\r")),
}


@pytest.mark.parametrize("blocks", ["one", "many"])
class TestContract(ViewSourceContract):
    @pytest.fixture(params=CASES.values(), ids=CASES.keys())
    def case(self, request, tmp_path, blocks):
        if blocks == "many":
            request.getfixturevalue("small_blocks")
        return request.param(tmp_path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (as_text(TABLE), None),
        (as_text(TABLE, ";", header="a;b,c;d;e"), ("a", "b,c", "d", "e")),
        (as_text(TABLE, ";"), None),
        (as_text(TABLE, header="a;b,c,d,e"), ("a;b", "c", "d", "e")),
        (as_text(TABLE, end="\r\n", header=HEADER), NAMES),
        (b"\xef\xbb\xbf" + HEADED.encode(), NAMES),
        (b"\xef\xbb\xbf" + as_text(TABLE).encode(), None),
        (HEADED.rstrip("\n"), NAMES),
        ("\n\n" + HEADED.replace("\n", "\n\n"), NAMES),
        (as_text(TABLE, header='"a\n\nb",c,d,e'), ("a\n\nb", "c", "d", "e")),
        (QUOTED, None),
        (as_text(TABLE, " , "), None),
        (as_text(TABLE, header="a,a,b,a"), ("a", "a", "b", "a")),
        (as_text(TABLE, header="id,1,2,3"), ("id", "1", "2", "3")),
    ],
    ids=[
        *("plain", "semicolons", "semicolons-no-header", "semicolon-in-name", "crlf", "bom"),
        *("bom-no-header", "no-final-newline", "blank-lines", "newline-in-name", "quoted"),
        *("spaces", "repeated-names", "numbers-as-names"),
    ],
)
def test_layouts(file, text, names):
    source = open_view(file(text), "X")
    assert source.column_names == names
    np.testing.assert_array_equal(source.read(0, source.n_rows), TABLE)


def test_one_column(file):
    np.testing.assert_array_equal(read_all(file(as_text(TABLE[:, :1]))), TABLE[:, :1])
    source = open_view(file(as_text(TABLE[:, :1], header="x")), "X")
    assert source.column_names == ("x",)
    np.testing.assert_array_equal(read_all(f"{file(HEADED)}:c,d"), TABLE[:, 2:3])


@settings(max_examples=50)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 4), st.integers(1, 3)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_numbers_are_read_bit_for_bit(tmp_path_factory, table):
    rows = read_all(write(tmp_path_factory.mktemp("csv") / "view.csv", as_text(table)))
    np.testing.assert_array_equal(rows, table)
    np.testing.assert_array_equal(np.signbit(rows), np.signbit(table))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("1,2\n-3,04\n", np.int64),
        ("1,2\n3,4.0\n", np.float64),
        ("1.0,2\n3,4\n", np.float64),
        ("1,2\n3,9223372036854775808\n", np.float64),  # one more than int64 holds
        ("1,2\n3,1e3\n", np.float64),
        ("a,b\n1,2\n", np.int64),
    ],
)
def test_dtype(file, text, dtype):
    assert read_all(file(text)).dtype == dtype


def test_integers_of_the_selected_columns(file):
    path = file("a,b,c\n1,2.5,3\n")
    rows = read_all(f"{path}:c,a")
    assert rows.dtype == np.int64
    assert rows.tolist() == [[3, 1]]


def test_many_columns_and_long_rows(file, monkeypatch):
    table = np.random.default_rng(0).normal(size=(3, 5000))
    header = ",".join(f"a column with a long name {i}" for i in range(5000))
    np.testing.assert_array_equal(read_all(file(as_text(table, header=header))), table)
    # Blocks of text must hold rows that are much longer than the first.
    monkeypatch.setattr("knoi.data.csv._BLOCK_BYTES", (1, 1))
    table = np.full((2, 300), -1.2345678901234567e-100)
    rows = read_all(file((",".join("0" * 300) + "\n") * 3 + as_text(table)))
    np.testing.assert_array_equal(rows[3:], table)


def test_fits_and_scores_like_arrays_with_one_conversion_per_view(
    two_views, tmp_path, csv_conversions
):
    X, Y = two_views
    x = write(tmp_path / "x.csv.gz", as_text(X, header=",".join("abcdef")))
    y = write(tmp_path / "y.tsv", as_text(Y, "\t"))
    before = x.read_bytes(), y.read_bytes(), sorted(os.listdir(tmp_path))
    ours = LinearCCA(2).fit(x, y)
    arrays = LinearCCA(2).fit(X, Y)
    np.testing.assert_array_equal(ours.transform(x), arrays.transform(X))
    csv_conversions.clear()
    assert ours.score(x, y) == arrays.score(X, Y)
    assert csv_conversions == [x, y]
    ours.permutation_test(x, y, 9, 0)
    assert csv_conversions == [x, y] * 2
    assert before == (x.read_bytes(), y.read_bytes(), sorted(os.listdir(tmp_path)))


@pytest.mark.skipif(os.name != "posix", reason="a file without a name is POSIX only")
def test_the_temporary_file_is_never_left_behind(file, tmp_path, monkeypatch):
    path = file(as_text(TABLE))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    source = open_view(path, "X")
    assert list(folder.iterdir()) == []  # it has no name even while it is in use
    assert not source.read(0, 2).flags.owndata  # and it is mapped, not read
    open_files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    source.close()
    for text in ("1,2\n3,x\n", "1,2\n3\n", "1,2\n3,\n"):
        error_message(file(text), InputTypeError if "x" in text else InputError)
    assert list(folder.iterdir()) == []
    if open_files is not None:
        assert len(os.listdir("/proc/self/fd")) < open_files  # closing freed the file


def test_a_full_disk(file, monkeypatch):
    path = file(as_text(TABLE))

    def full_disk(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full_disk)
    assert error_message(path, MemoryBudgetError) == (
        f"X ('{path}') is converted to a temporary file of 8 bytes per number, which cannot be "
        "written: No space left on device. Set TMPDIR to a folder with more space, or pass "
        "a Parquet or .npy file."
    )


def test_a_disk_that_fills_up(file, monkeypatch):
    path = file(as_text(TABLE))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: _FullDisk())
    assert "cannot be written: No space left on device." in error_message(path, MemoryBudgetError)


class _FullDisk:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("blocks", ["one", "many"])
class TestBadCells:
    @pytest.fixture(autouse=True)
    def _blocks(self, request, blocks):
        if blocks == "many":
            request.getfixturevalue("small_blocks")

    def test_text(self, file):
        path = file(as_text(TABLE, header=HEADER) + "1,2,x y,4\n1,z,2,3\n")
        assert error_message(path, InputTypeError) == (
            f"X ('{path}') has the string 'x y' at row 11, column 2 ('c,d'): only numbers can be "
            "used. Select other columns with PATH:a,b, or encode text as numbers first."
        )
        assert "row 12, column 0 ('b b')" in error_message(f"{path}:b b", InputTypeError)
        np.testing.assert_array_equal(read_all(f"{path}:a")[:11, 0], TABLE[:, 0])

    def test_the_first_text_in_reading_order(self, file):
        path = file(as_text(COUNTS) + "1,2,3\n" * 3 + "1,2,x\ny,2,3\n")
        assert error_message(path, InputTypeError) == (
            f"X ('{path}') has the string 'x' at row 14, column 2: only numbers can be used. "
            "Encode text as numbers first, or leave it out."
        )

    @pytest.mark.parametrize("text", ["True", "1_000", "1d5", "2024-01-01", "ü", "٣"])
    def test_what_only_looks_like_a_number(self, file, text):
        path = file(as_text(COUNTS) + f"1,2,{text}\n")
        assert f"has the string '{text}' at row 11, column 2:" in error_message(
            path, InputTypeError
        )

    def test_bytes_that_are_not_text(self, file):
        path = file(as_text(COUNTS).encode() + b"1,2,\xff\n")
        assert "has the string '\ufffd' at row 11, column 2:" in error_message(path, InputTypeError)

    def test_decimal_commas(self, file):
        path = file("1,5;2,5\n" * 20)
        assert error_message(path, InputTypeError) == (
            f"X ('{path}') has the string '1,5' at row 0, column 0: only numbers can be used. "
            "Write decimals with a point, not a comma."
        )

    @pytest.mark.parametrize("gap", ["", "NA", '""', " NA "])
    @pytest.mark.parametrize("number", ["4", "4.5"])
    def test_missing_values(self, file, gap, number):
        path = file("a,b,c\n" + f"1,2,{number}\n" * 9 + f"1,{gap},3\n,2,3\n1,2,3\n")
        assert error_message(path) == (
            f"X ('{path}') has a missing value at row 9, column 1 ('b'): CCA needs complete rows. "
            "Drop the row or impute the value (e.g. sklearn.impute.SimpleImputer) and write the "
            "file again."
        )
        assert "at row 10, column 1 ('a')" in error_message(f"{path}:c,a")
        assert read_all(f"{path}:c").shape == (12, 1)

    def test_a_missing_value_in_the_first_row_is_not_a_header(self, file):
        assert "missing value at row 0, column 1:" in error_message(file("1,,3\n4,5,6\n"))

    def test_a_blank_line_in_a_single_column_is_a_missing_value(self, file):
        assert "missing value at row 1, column 0:" in error_message(file("1.5\n\n2.5\n"))
        assert "missing value at row 2, column 0 ('x'):" in error_message(file("x\n1\n2\n\n3\n"))

    @pytest.mark.parametrize(
        ("row", "has"), [("1,2", "2 values"), ("7", "1 value"), ("1,2,3,4", "4 values")]
    )
    def test_ragged_rows(self, file, row, has):
        path = file("a,b,c\n" + "1,2,3\n\n" * 9 + row + "\n1,2,3\n")
        assert error_message(path) == (
            f"X ('{path}') is ragged: row 9 has {has} but the header has 3. "
            "Give every row the same number of values."
        )
        path = file("1.5,2,3\n" * 9 + row)
        assert f"row 9 has {has} but the first row has 3." in error_message(path)

    def test_a_header_of_another_length(self, file):
        path = file("a,b\n1,2,3\n")
        assert "row 0 has 3 values but the header has 2." in error_message(path)
        path = file("a;b;c\n1;2\n")
        assert "row 0 has 2 values but the header has 3." in error_message(path)


def test_nan_and_infinity(file, two_views):
    path = file("a,b\n" + "1.5,2.5\n" * 5 + "1,nan\n" + "1.5,2.5\n" * 194)
    with pytest.raises(NonFiniteError, match=r"X has NaN at row 5, column 1 \('b'\)"):
        LinearCCA(1).fit(path, two_views[1])
    path = file("inf,2.5\n" * 200)
    with pytest.raises(NonFiniteError, match=r"X has inf at row 0, column 0:"):
        LinearCCA(1).fit(path, two_views[1])


@pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["view.csv", "view.tsv.gz"])
def test_an_empty_file(file, text, name):
    path = file(text, name)
    assert error_message(path, SourceFormatError) == (
        f"X ('{path}') is empty. Write rows of numbers to it."
    )


def test_a_header_alone(file):
    path = file("a,b,c\n")
    assert error_message(path) == (
        f"X ('{path}') has a header of 3 columns and no rows. Write at least 1 row."
    )
    assert "a header of 1 column and no rows" in error_message(file("a"))


def test_a_column_that_is_not_there(file):
    path = file(HEADED)
    assert error_message(f"{path}:a,z", SourceFormatError) == (
        f"X ('{path}:a,z') has no column 'z'. Available: 'a', 'b b', 'c,d', 'e'."
    )


def test_a_name_that_two_columns_have(file):
    path = file("a,b,a\n1,2,3\n")
    assert error_message(f"{path}:a", SourceFormatError) == (
        f"X ('{path}:a') has 2 columns called 'a'. Rename them, or select others with PATH:a,b."
    )
    assert read_all(f"{path}:b").tolist() == [[2]]


def test_names_without_a_header(file):
    path = file(as_text(TABLE))
    assert error_message(f"{path}:a", SourceFormatError) == (
        f"X ('{path}:a') has no header, so columns cannot be selected by name. "
        "Write their names into the first line."
    )


def test_row_numbers_are_not_a_feature(file):
    path = file(",a,b\n0,1.5,2.5\n1,2.5,3.5\n")  # what pandas writes unless told not to
    assert error_message(path, SourceFormatError) == (
        f"X ('{path}') has a first column without a name, which usually holds row numbers and is "
        "not a feature. Select columns with PATH:a,b, or write the file without it, "
        "e.g. with DataFrame.to_csv(index=False)."
    )
    assert read_all(f"{path}:a,b").tolist() == [[1.5, 2.5], [2.5, 3.5]]


@pytest.mark.parametrize(
    "text", ["größe,b\n1,2\n".encode("latin-1"), "a,b\n1,2\n".encode("utf-16")]
)
def test_other_encodings(file, text):
    path = file(text)
    assert error_message(path, SourceFormatError) == (
        f"X ('{path}'): its first line is not UTF-8 text. Save it in UTF-8."
    )


@pytest.mark.parametrize("kept", [0, 5, 0.5, 0.99])
def test_a_truncated_gzip(file, kept):
    table = np.random.default_rng(0).normal(size=(3000, 4))
    path = file(as_text(table), "view.csv.gz")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    message = error_message(path, SourceFormatError)
    assert message.startswith(
        f"X ('{path}') " + ("cannot be read as CSV: " if kept else "is empty")
    )


def test_a_gzip_that_is_not_one(file, tmp_path):
    path = file(as_text(TABLE)).rename(tmp_path / "view.csv.gz")
    assert "cannot be read as CSV: Not a gzipped file" in error_message(path, SourceFormatError)


def test_a_gzip_of_several_parts(tmp_path):
    path = tmp_path / "view.csv.gz"
    halves = as_text(TABLE[:6]).encode(), as_text(TABLE[6:]).encode()
    path.write_bytes(b"".join(map(gzip.compress, halves)))
    np.testing.assert_array_equal(read_all(path), TABLE)


def test_garbage(file):
    refused = (SourceFormatError, InputError)
    for seed in range(20):
        path = file(np.random.default_rng(seed).bytes(300))
        with pytest.raises(refused):
            open_view(path, "X")


def test_a_missing_library_names_the_command(file, monkeypatch):
    path = file(as_text(TABLE))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError) as caught:
        open_view(path, "X")
    assert str(caught.value) == (
        "reading CSV needs pyarrow, which is not installed. Run: pip install 'knoi[io]'"
    )
