"""CSV and TSV files: read without loss, in blocks, and refused with the place of what is wrong."""

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
from tests.contracts.view_source import SourceCase, ViewSourceContract

TABLE = np.random.default_rng(0).normal(size=(11, 4)) * 10.0 ** np.arange(-8, 8, 4)
COUNTS = np.random.default_rng(1).integers(-(2**60), 2**60, size=(11, 3))
NAMES = ("a", "b b", "c,d", "e")
HEADER = 'a, b b ,"c,d",e'


def as_text(table, delimiter=",", end="\n", header=None):
    lines = [delimiter.join(repr(value) for value in row) for row in table.tolist()]
    return end.join([*([header] if header else []), *lines, ""])


def case(text, name="view.csv", selector="", expected=TABLE, names=None):
    def make(folder):
        path = write(folder / name, text)
        return SourceCase(lambda: open_view(f"{path}{selector}", "X"), expected, False, names)

    return make


def write(path, text):
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path):
    source = open_view(path, "X")
    rows = source.read(0, source.n_rows)
    source.close()
    return rows


def refusal(path, error=InputError):
    with pytest.raises(error) as caught:
        open_view(path, "X")
    assert type(caught.value) is error
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    """Writes a text to a file: `file(text)` gives its path."""
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
    "plain": case(as_text(TABLE)),
    "header": case(HEADED, names=NAMES),
    "named": case(HEADED, selector=":e,a", expected=TABLE[:, [3, 0]], names=("e", "a")),
    "comma-in-name": case(HEADED, selector=":c,d", expected=TABLE[:, 2:3], names=("c,d",)),
    "twice": case(HEADED, selector=":a,e,a", expected=TABLE[:, [0, 3, 0]], names=("a", "e", "a")),
    "gzip": case(HEADED, "view.csv.gz", names=NAMES),
    "gzip-upper-case": case(as_text(TABLE), "VIEW.CSV.gz"),
    "tsv": case(as_text(TABLE, "\t"), "view.tsv"),
    "tsv-gzip": case(
        as_text(TABLE, "\t", header="a\tb;c\td\te"), "v.tsv.gz", names=("a", "b;c", "d", "e")
    ),
    "semicolons": case(as_text(TABLE, ";", header="a;b,c;d;e"), names=("a", "b,c", "d", "e")),
    "semicolons-no-header": case(as_text(TABLE, ";")),
    "semicolon-in-name": case(as_text(TABLE, header="a;b,c,d,e"), names=("a;b", "c", "d", "e")),
    "crlf": case(as_text(TABLE, end="\r\n", header=HEADER), names=NAMES),
    "cr": case(as_text(TABLE, end="\r")),
    "bom": case(b"\xef\xbb\xbf" + HEADED.encode(), names=NAMES),
    "bom-no-header": case(b"\xef\xbb\xbf" + as_text(TABLE).encode()),
    "no-trailing-newline": case(HEADED.rstrip("\n"), names=NAMES),
    "blank-lines": case("\n\n" + HEADED.replace("\n", "\n\n"), names=NAMES),
    "newline-in-name": case(
        as_text(TABLE, header='"a\n\nb",c,d,e'), names=("a\n\nb", "c", "d", "e")
    ),
    "quoted": case(QUOTED),
    "spaces": case(as_text(TABLE, " , ")),
    "names-that-repeat": case(as_text(TABLE, header="a,a,b,a"), names=("a", "a", "b", "a")),
    "names-that-are-numbers": case(as_text(TABLE, header="id,1,2,3"), names=("id", "1", "2", "3")),
    "integers": case(as_text(COUNTS), expected=COUNTS),
    "integers-then-floats": case(
        "1,2\n" * 10 + "1,2.5\n", expected=np.array([[1, 2.0]] * 10 + [[1, 2.5]])
    ),
    "one-column": case(as_text(TABLE[:, :1]), expected=TABLE[:, :1]),
    "one-named-column": case(
        as_text(TABLE[:, :1], header="x"), expected=TABLE[:, :1], names=("x",)
    ),
}


class TestEveryCsv(ViewSourceContract):
    @pytest.fixture(params=CASES.values(), ids=CASES.keys())
    def case(self, request, tmp_path):
        return request.param(tmp_path)


@pytest.mark.usefixtures("small_blocks")
class TestManyBlocks(ViewSourceContract):
    @pytest.fixture(params=["header", "named", "gzip", "integers", "integers-then-floats", "cr"])
    def case(self, request, tmp_path):
        return CASES[request.param](tmp_path)


@settings(max_examples=50)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 4), st.integers(1, 3)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_every_number_comes_back_bit_for_bit(tmp_path_factory, table):
    rows = read(write(tmp_path_factory.mktemp("csv") / "view.csv", as_text(table)))
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
def test_integers_stay_integers_where_all_are(file, text, dtype):
    assert read(file(text)).dtype == dtype


def test_integers_of_the_columns_that_are_chosen(file):
    path = file("a,b,c\n1,2.5,3\n")
    rows = read(f"{path}:c,a")
    assert rows.dtype == np.int64
    assert rows.tolist() == [[3, 1]]


def test_thousands_of_columns(file):
    table = np.random.default_rng(0).normal(size=(3, 5000))
    header = ",".join(f"a column with a long name {i}" for i in range(5000))
    np.testing.assert_array_equal(read(file(as_text(table, header=header))), table)


def test_a_row_that_is_much_longer_than_the_first(file, monkeypatch):
    # The first rows say how long rows are; blocks of text must hold any other.
    monkeypatch.setattr("knoi.data.csv._BLOCK_BYTES", (1, 1))
    table = np.full((2, 300), -1.2345678901234567e-100)
    rows = read(file((",".join("0" * 300) + "\n") * 3 + as_text(table)))
    np.testing.assert_array_equal(rows[3:], table)


def test_fits_as_arrays_do(two_views, tmp_path):
    X, Y = two_views
    x = write(tmp_path / "x.csv.gz", as_text(X, header=",".join("abcdef")))
    y = write(tmp_path / "y.tsv", as_text(Y, "\t"))
    ours = LinearCCA(2).fit(x, y)
    arrays = LinearCCA(2).fit(X, Y)
    np.testing.assert_array_equal(ours.transform(x), arrays.transform(X))
    assert ours.score(x, y) == arrays.score(X, Y)


@pytest.mark.skipif(os.name != "posix", reason="a file without a name is a POSIX thing")
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
        refusal(file(text), InputTypeError if "x" in text else InputError)
    assert list(folder.iterdir()) == []
    if open_files is not None:
        assert len(os.listdir("/proc/self/fd")) < open_files  # closing freed the file


def test_the_file_itself_stays_as_it_is(file):
    path = file(HEADED)
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["view.csv"]


def test_a_full_disk(file, monkeypatch):
    path = file(as_text(TABLE))

    def no_room(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    assert refusal(path, MemoryBudgetError) == (
        f"X ('{path}') is converted to a temporary file of 8 bytes per number, which cannot be "
        "written: No space left on device. Set TMPDIR to a folder with more space, or pass "
        "a Parquet or .npy file."
    )


def test_a_disk_that_fills_up(file, monkeypatch):
    path = file(as_text(TABLE))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: _FullDisk())
    assert "cannot be written: No space left on device." in refusal(path, MemoryBudgetError)


class _FullDisk:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("blocks", ["one", "many"])
class TestRefusals:
    @pytest.fixture(autouse=True)
    def _blocks(self, request, blocks):
        if blocks == "many":
            request.getfixturevalue("small_blocks")

    def test_text(self, file):
        path = file(as_text(TABLE, header=HEADER) + "1,2,x y,4\n1,z,2,3\n")
        assert refusal(path, InputTypeError) == (
            f"X ('{path}') has the string 'x y' at row 11, column 2 ('c,d'): only numbers can be "
            "used. Select other columns with PATH:a,b, or encode text as numbers first."
        )
        assert "row 12, column 0 ('b b')" in refusal(f"{path}:b b", InputTypeError)
        np.testing.assert_array_equal(read(f"{path}:a")[:11, 0], TABLE[:, 0])

    def test_the_first_text_in_reading_order(self, file):
        path = file(as_text(COUNTS) + "1,2,3\n" * 3 + "1,2,x\ny,2,3\n")
        assert refusal(path, InputTypeError) == (
            f"X ('{path}') has the string 'x' at row 14, column 2: only numbers can be used. "
            "Encode text as numbers first, or leave it out."
        )

    @pytest.mark.parametrize("text", ["True", "1_000", "1d5", "2024-01-01", "ü", "1 2"])
    def test_what_only_looks_like_a_number(self, file, text):
        path = file(as_text(COUNTS) + f"1,2,{text}\n")
        assert f"has the string '{text}' at row 11, column 2:" in refusal(path, InputTypeError)

    def test_bytes_that_are_no_text(self, file):
        path = file(as_text(COUNTS).encode() + b"1,2,\xff\n")
        assert "has the string '\ufffd' at row 11, column 2:" in refusal(path, InputTypeError)

    def test_decimal_commas(self, file):
        path = file("1,5;2,5\n" * 20)
        assert refusal(path, InputTypeError) == (
            f"X ('{path}') has the string '1,5' at row 0, column 0: only numbers can be used. "
            "Write decimals with a point, not a comma."
        )

    @pytest.mark.parametrize("gap", ["", "NA", "N/A", "null", "None", '""', " ", " NA "])
    @pytest.mark.parametrize("number", ["4", "4.5"])
    def test_missing_values(self, file, gap, number):
        path = file("a,b,c\n" + f"1,2,{number}\n" * 9 + f"1,{gap},3\n,2,3\n1,2,3\n")
        assert refusal(path) == (
            f"X ('{path}') has a missing value at row 9, column 1 ('b'): CCA needs complete rows. "
            "Drop the row or impute the value (e.g. sklearn.impute.SimpleImputer) and write the "
            "file again."
        )
        assert "at row 10, column 1 ('a')" in refusal(f"{path}:c,a")
        assert read(f"{path}:c").shape == (12, 1)

    def test_a_missing_value_in_the_first_row_is_no_header(self, file):
        assert "missing value at row 0, column 1:" in refusal(file("1,,3\n4,5,6\n"))

    def test_a_blank_line_in_a_single_column_is_a_missing_value(self, file):
        assert "missing value at row 1, column 0:" in refusal(file("1.5\n\n2.5\n"))
        assert "missing value at row 2, column 0 ('x'):" in refusal(file("x\n1\n2\n\n3\n"))

    @pytest.mark.parametrize(
        ("row", "has"), [("1,2", "2 values"), ("7", "1 value"), ("1,2,3,4", "4 values")]
    )
    def test_ragged_rows(self, file, row, has):
        path = file("a,b,c\n" + "1,2,3\n\n" * 9 + row + "\n1,2,3\n")
        assert refusal(path) == (
            f"X ('{path}') is ragged: row 9 has {has} but the header has 3. "
            "Give every row the same number of values."
        )
        path = file("1.5,2,3\n" * 9 + row)
        assert f"row 9 has {has} but the first row has 3." in refusal(path)

    def test_a_header_of_another_length(self, file):
        path = file("a,b\n1,2,3\n")
        assert "row 0 has 3 values but the header has 2." in refusal(path)
        path = file("a;b;c\n1;2\n")
        assert "row 0 has 2 values but the header has 3." in refusal(path)


def test_nan_and_infinity_are_refused_as_everywhere(file, two_views):
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
    assert refusal(path, SourceFormatError) == (
        f"X ('{path}') is empty. Write rows of numbers to it."
    )


def test_a_header_alone(file):
    path = file("a,b,c\n")
    assert refusal(path) == (
        f"X ('{path}') has a header of 3 columns and no rows. Write at least 1 row."
    )
    assert "a header of 1 column and no rows" in refusal(file("a"))


def test_a_column_that_is_not_there(file):
    path = file(HEADED)
    assert refusal(f"{path}:a,z", SourceFormatError) == (
        f"X ('{path}:a,z') has no column 'z'. Available: 'a', 'b b', 'c,d', 'e'."
    )


def test_a_name_that_two_columns_have(file):
    path = file("a,b,a\n1,2,3\n")
    assert refusal(f"{path}:a", SourceFormatError) == (
        f"X ('{path}:a') has 2 columns called 'a'. Rename them, or select others with PATH:a,b."
    )
    assert read(f"{path}:b").tolist() == [[2]]


def test_names_without_a_header(file):
    path = file(as_text(TABLE))
    assert refusal(f"{path}:a", SourceFormatError) == (
        f"X ('{path}:a') has no header, so columns cannot be selected by name. "
        "Write their names into the first line."
    )


def test_row_numbers_are_no_feature(file):
    path = file(",a,b\n0,1.5,2.5\n1,2.5,3.5\n")  # what pandas writes unless told not to
    assert refusal(path, SourceFormatError) == (
        f"X ('{path}') has a first column without a name, which usually holds row numbers and is "
        "not a feature. Select columns with PATH:a,b, or write the file without it, "
        "e.g. with DataFrame.to_csv(index=False)."
    )
    assert read(f"{path}:a,b").tolist() == [[1.5, 2.5], [2.5, 3.5]]


@pytest.mark.parametrize(
    "text", ["größe,b\n1,2\n".encode("latin-1"), "a,b\n1,2\n".encode("utf-16")]
)
def test_other_encodings(file, text):
    path = file(text)
    assert refusal(path, SourceFormatError) == (
        f"X ('{path}'): its first line is not UTF-8 text. Save it in UTF-8."
    )


@pytest.mark.parametrize("kept", [0, 5, 0.5, 0.99])
def test_a_truncated_gzip(file, kept):
    table = np.random.default_rng(0).normal(size=(3000, 4))
    path = file(as_text(table), "view.csv.gz")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    message = refusal(path, SourceFormatError)
    assert message.startswith(
        f"X ('{path}') " + ("cannot be read as CSV: " if kept else "is empty")
    )


def test_a_gzip_that_is_none(file, tmp_path):
    path = file(as_text(TABLE)).rename(tmp_path / "view.csv.gz")
    assert "cannot be read as CSV: Not a gzipped file" in refusal(path, SourceFormatError)


def test_a_gzip_of_several_parts(tmp_path):
    path = tmp_path / "view.csv.gz"
    halves = as_text(TABLE[:6]).encode(), as_text(TABLE[6:]).encode()
    path.write_bytes(b"".join(map(gzip.compress, halves)))
    np.testing.assert_array_equal(read(path), TABLE)


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
