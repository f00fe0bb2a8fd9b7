"""CSV and TSV files: numbers read without loss, and errors that name the bad cell."""

import errno
import gzip
import os
import tempfile
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from knoi import LinearCCA
from knoi.data.open import open_view, opened_view
from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
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
    "selected-twice": case(HEADED, (*"eae",), selector=":e,a,e", expected=TABLE[:, [3, 0, 3]]),
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
        (as_text(TABLE[:, :1]), None),
        (as_text(TABLE[:, :1], header="x"), ("x",)),
    ],
)
def test_layouts(file, text, names):
    source = open_view(file(text), "X")
    assert source.column_names == names
    np.testing.assert_array_equal(source.read(0, source.n_rows), TABLE[:, : source.n_cols])


def test_columns_of_files_that_cannot_be_read_whole(file):
    np.testing.assert_array_equal(read_all(f"{file(HEADED)}:c,d"), TABLE[:, 2:3])
    path = file(",a,b,b,c,d\n0,1.5,2,2,x,\n1,2.5,3,3,y,4\n")
    assert read_all(f"{path}:a").tolist() == [[1.5], [2.5]]


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


def test_dtype(file):
    for text, selector, dtype in [
        ("1,2\n-3,04\n", "", np.int64),
        ("1,2\n3,4.0\n", "", np.float64),
        ("1,2\n3,9223372036854775808\n", "", np.float64),  # one more than int64 holds
        ("a,b,c\n1,2.5,3\n", ":c,a", np.int64),
    ]:
        assert read_all(f"{file(text)}{selector}").dtype == dtype


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
    path, full = file(as_text(TABLE)), OSError(errno.ENOSPC, "No space left on device")
    unwritable = MagicMock()
    unwritable.return_value.__enter__.return_value.write.side_effect = full
    for temporary_file in (MagicMock(side_effect=full), unwritable):
        monkeypatch.setattr(tempfile, "TemporaryFile", temporary_file)
        message = error_message(path, MemoryBudgetError)
        assert "cannot be written: No space left on device. Set TMPDIR" in message


WITH_TEXT = HEADED + "1,2,x y,4\n1,z,2,3\n"
FIRST_OF_TWO = as_text(COUNTS) + "1,2,3\n" * 3 + "1,2,x\ny,2,3\n"
WITH_GAPS = "a,b,c\n" + "1,2,{0}\n" * 9 + "1,{1},3\n,2,3\n1,2,3\n"
GAPLESS = "a,b,c\n" + "1,2,3\n\n" * 9
MISSING = "has a missing value at {}: CCA needs complete rows"
RAGGED = "is ragged: row {} has {} but the {} has 3"


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize(
    ("text", "selector", "fragment"),
    [
        (WITH_TEXT, "", "has the string 'x y' at row 11, column 2 ('c,d'): only numbers"),
        (WITH_TEXT, ":b b", "has the string 'z' at row 12, column 0 ('b b'):"),
        (FIRST_OF_TWO, "", "has the string 'x' at row 14, column 2: only numbers"),
        ("1,5;2,5\n" * 20, "", "Write decimals with a point, not a comma."),
        *(
            (as_text(COUNTS) + f"1,2,{text}", "", f"has the string '{text}' at row 11, column 2:")
            for text in ("True", "1_000", "1d5", "٣")
        ),
        (as_text(COUNTS).encode() + b"\xff,2,3", "", "has the string '\ufffd' at row 11,"),
        *(
            (WITH_GAPS.format(number, gap), "", MISSING.format("row 9, column 1 ('b')"))
            for number in ("4", "4.5")
            for gap in ("", "NA", '""', " NA ")
        ),
        (WITH_GAPS.format(4, "NA"), ":c,a", MISSING.format("row 10, column 1 ('a')")),
        ("1,,3\n4,5,6\n", "", MISSING.format("row 0, column 1")),  # not a header
        ("1.5\n\n2.5\n", "", MISSING.format("row 1, column 0")),
        ("x\n1\n2\n\n3\n", "", MISSING.format("row 2, column 0 ('x')")),
        *(
            (f"{first}{row}\n1,2,3\n", "", RAGGED.format(9, has, length))
            for row, has in [("1,2", "2 values"), ("7", "1 value"), ("1,2,3,4", "4 values")]
            for first, length in [(GAPLESS, "header"), ("1.5,2,3\n" * 9, "first row")]
        ),
        ("a;b;c\n1;2\n", "", RAGGED.format(0, "2 values", "header")),
    ],
)
def test_bad_cells(request, file, text, selector, fragment, blocks):
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    typed = "string" in fragment or "decimals" in fragment
    path = f"{file(text)}{selector}"
    raised = error_message(path, InputTypeError if typed else InputError)
    assert raised.startswith(f"X ('{path}') ")
    assert fragment in raised


def test_nan_and_infinity(file, two_views):
    for cell, place in [("nan", "NaN at row 5, column 1"), ("-inf", "-inf at row 5, column 1")]:
        path = file("a,b\n" + "1.5,2.5\n" * 5 + f"1,{cell}\n" + "1.5,2.5\n" * 194)
        with pytest.raises(NonFiniteError, match=rf"^X has {place} \('b'\)"):
            LinearCCA(1).fit(path, two_views[1])


@pytest.mark.parametrize(
    ("text", "selector", "error", "fragment"),
    [
        ("", "", SourceFormatError, "is empty"),
        ("\r\n\r\n", "", SourceFormatError, "is empty"),
        (b"\xef\xbb\xbf", "", SourceFormatError, "is empty"),
        ("a,b\n", "", InputError, "has a header of 2 columns and no rows"),
        ("a", "", InputError, "has a header of 1 column and no rows"),
        (HEADED, ":a,z", SourceFormatError, "no column 'z'. Available: 'a', 'b b', 'c,d', 'e'."),
        ("a,b,a\n1,2,3\n", ":a", SourceFormatError, "has 2 columns called 'a'"),
        ("1,2\n3,4\n", ":a", SourceFormatError, "has no header, so columns cannot be selected"),
        (",a,b\n7,1.5,2.5\n", "", SourceFormatError, "has a first column without a name"),
        (",a,b\n0,1.5,2.5\n5,1,2\n", "", SourceFormatError, "does not number the rows"),
        (",a,b\n0,1.5,2.5\nx,1,2\n", "", SourceFormatError, "does not number the rows"),
        (",a,b\n0,1.5,2.5\n1,x,2\n", "", InputTypeError, "has the string 'x' at row 1"),
        ("größe,b\n1,2\n".encode("latin-1"), "", SourceFormatError, "first line is not UTF-8 text"),
        ("a,b\n1,2\n".encode("utf-16"), "", SourceFormatError, "first line is not UTF-8 text"),
    ],
)
@pytest.mark.parametrize("name", ["view.csv", "view.csv.gz"])
def test_headers(file, name, text, selector, error, fragment):
    assert fragment in error_message(f"{file(text, name)}{selector}", error)


@pytest.mark.parametrize("first", [0, 1])  # as pandas writes by default, and R
@pytest.mark.parametrize("table", [TABLE, COUNTS], ids=["floats", "integers"])
@pytest.mark.parametrize("names", [None, list("abcd")])
def test_an_index_without_a_name_is_left_out(file, caplog, small_blocks, first, table, names):
    n, d = table.shape
    frame = pd.DataFrame(table, np.arange(first, first + n), names and names[:d])
    path = file(frame.to_csv())
    caplog.set_level("INFO", "knoi")
    np.testing.assert_array_equal(read_all(path), table)
    assert "its first column numbers the rows and has no name: left out" in caplog.text
    selected = f"{path}:{frame.columns[2]},{frame.columns[0]}"
    np.testing.assert_array_equal(read_all(selected), table[:, [2, 0]])


def test_numbers_of_columns_are_a_header(file):
    path = file(pd.DataFrame(TABLE).to_csv(index=False))
    with pytest.warns(UserWarning, match="its first line, 0, 1, 2, ..., is taken for the names"):
        np.testing.assert_array_equal(read_all(path), TABLE)
    with pytest.warns(UserWarning, match="its first line"), opened_view(path, "X") as source:
        assert source.column_names is None  # as those of the frame
    np.testing.assert_array_equal(read_all(file("0,1\n2,3\n")), [[0, 1], [2, 3]])


@pytest.mark.parametrize("kept", [1e-4, 0.5, 0.99])
def test_a_truncated_gzip(file, kept):
    path = file(as_text(np.random.default_rng(0).normal(size=(3000, 4))), "view.csv.gz")
    os.truncate(path, int(kept * os.path.getsize(path)))
    assert f"X ('{path}') cannot be read as CSV: " in error_message(path, SourceFormatError)


def test_other_gzips(file, tmp_path):
    path = file(as_text(TABLE)).rename(tmp_path / "view.csv.gz")
    assert "cannot be read as CSV: Not a gzipped file" in error_message(path, SourceFormatError)
    halves = as_text(TABLE[:6]).encode(), as_text(TABLE[6:]).encode()
    path.write_bytes(b"".join(map(gzip.compress, halves)))
    np.testing.assert_array_equal(read_all(path), TABLE)


def test_garbage(file):
    for seed in range(20):
        with pytest.raises((SourceFormatError, InputError)):
            open_view(file(np.random.default_rng(seed).bytes(300)), "X")
