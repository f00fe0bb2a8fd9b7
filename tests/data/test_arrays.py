"""Views in memory: arrays, lists, sparse matrices, tensors, data frames."""

import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch

from knoi.data.open import open_view
from knoi.exceptions import InputTypeError
from tests.data.opening import IMAGES, TABLE, contract, converted, error_message, in_memory

SPARSE = np.where(TABLE > 0.3, TABLE, 0)
COLUMNS = {name: TABLE[:, j] for j, name in enumerate("abcd")}
NAMES = tuple("abcd")
POLARS = pl.DataFrame(COLUMNS)


class ArrayLike:
    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


NULLABLE = pd.DataFrame(
    {
        "a": pd.array([1, None] + [3] * 9, dtype="Int16"),
        "b": pd.array([True, None] + [False] * 9, dtype="boolean"),
        "c": pd.array([0.5, None] + [1.5] * 9, dtype="Float32"),
    }
)
ARROW = NULLABLE.convert_dtypes(dtype_backend="pyarrow")
NULLABLE_ROWS = np.array([[1, 1, 0.5], [np.nan] * 3] + [[3, 0, 1.5]] * 9, dtype=np.float32)
DECIMALS = [Decimal(k) / 4 for k in range(11)]

CASES = {
    "ndarray": in_memory(TABLE.copy()),
    "fortran": in_memory(np.asfortranarray(TABLE)),
    "strided": in_memory(np.repeat(TABLE, 2, axis=0)[::-2][::-1]),
    "read-only": in_memory(np.broadcast_to(TABLE, TABLE.shape)),
    "big-endian": in_memory(TABLE.astype(">f4")),
    "float16": in_memory(TABLE.astype(np.float16), TABLE.astype(np.float16)),
    "bool": in_memory(TABLE > 0, TABLE > 0),
    "matrix": in_memory(np.asarray(TABLE).view(np.matrix)),
    "unmasked": in_memory(np.ma.masked_array(TABLE, mask=False)),
    "object": in_memory(TABLE.astype(object), TABLE.astype(np.float64)),
    "lists": in_memory(TABLE.tolist(), TABLE.astype(np.float64)),
    "tuples": in_memory(tuple(map(tuple, IMAGES.tolist())), IMAGES.astype(np.int64)),
    "array-like": in_memory(ArrayLike(TABLE)),
    **{
        f"sparse-{layout}": in_memory(
            scipy.sparse.csr_array(SPARSE).asformat(layout), SPARSE, sparse=True
        )
        for layout in ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")
    },
    "sparse-matrix": in_memory(scipy.sparse.csc_matrix(SPARSE > 0), SPARSE > 0, sparse=True),
    "tensor": in_memory(torch.tensor(TABLE)),
    "tensor-parameter": in_memory(torch.nn.Parameter(torch.tensor(TABLE))),
    "tensor-transposed": in_memory(torch.tensor(IMAGES.T.copy()).T, IMAGES),
    "tensor-bfloat16": in_memory(torch.tensor(IMAGES).bfloat16(), IMAGES.astype(np.float32)),
    "pandas": in_memory(pd.DataFrame(COLUMNS), TABLE, NAMES),
    "pandas-one-block": in_memory(pd.DataFrame(TABLE, columns=[*"aabc"]), TABLE, (*"aabc",)),
    "pandas-unnamed": in_memory(pd.DataFrame(TABLE.copy()), TABLE),
    "pandas-mixed": converted(
        pd.DataFrame({"a": TABLE[:, 0], "n": np.arange(11)}),
        np.column_stack([TABLE[:, 0].astype(float), np.arange(11)]),
        ("a", "n"),
    ),
    "pandas-bool": in_memory(pd.DataFrame({"a": TABLE[:, 0] > 0}), TABLE[:, :1] > 0, ("a",)),
    "pandas-object": converted(
        pd.DataFrame({"a": pd.Series(DECIMALS, dtype=object)}), np.arange(11)[:, None] / 4, ("a",)
    ),
    "pandas-nullable": converted(NULLABLE, NULLABLE_ROWS, ("a", "b", "c")),
    "pandas-arrow": converted(ARROW[["a", "c"]], NULLABLE_ROWS[:, [0, 2]], ("a", "c")),
    "pandas-sparse": converted(
        pd.DataFrame({"a": pd.arrays.SparseArray(IMAGES[:, 0].astype(float)), "b": IMAGES[:, 1]}),
        IMAGES[:, :2].astype(float),
        ("a", "b"),
    ),
    "polars": converted(POLARS, TABLE, NAMES),
    "polars-chunked": converted(pl.concat([POLARS[:4], POLARS[4:]], rechunk=False), TABLE, NAMES),
    "polars-nulls": converted(pl.from_pandas(NULLABLE), NULLABLE_ROWS, ("a", "b", "c")),
    "polars-decimal": converted(
        pl.DataFrame({"a": pl.Series(DECIMALS), "b": IMAGES[:, 0]}),
        np.column_stack([np.arange(11) / 4, IMAGES[:, 0]]),
        ("a", "b"),
    ),
}
TestContract = contract(CASES)


def test_arrays_are_not_copied_and_stay_writable():
    array = TABLE.copy()
    rows = open_view(array, "X").read(2, 5)
    assert np.shares_memory(rows, array)
    assert not rows.flags.writeable
    array[2, 0] = 7  # the user's own array stays writable
    assert rows[0, 0] == 7
    matrix = scipy.sparse.csr_array(SPARSE)
    source = open_view(matrix, "X")
    matrix.data[:] = 1
    np.testing.assert_array_equal(source.read(0, 11).toarray(), SPARSE != 0)
    tensor = torch.tensor(TABLE, requires_grad=True)
    rows = open_view(tensor, "X").read(0, 2)
    assert rows.ctypes.data == tensor.data_ptr()
    assert not rows.flags.writeable
    assert tensor.requires_grad


def test_data_frames_are_converted_by_chunks(monkeypatch):
    lengths = []
    convert = pd.DataFrame.to_numpy

    def counted(self, *args, **kwargs):
        lengths.append(len(self))
        return convert(self, *args, **kwargs)

    monkeypatch.setattr(pd.DataFrame, "to_numpy", counted)
    source = open_view(pd.DataFrame(COLUMNS), "X")
    source.read(0, 2)
    source.read(5, 9)
    assert lengths == [2, 2, 2, 4]  # the first rows twice, to find out whether they are views


def test_polars_does_not_need_pyarrow(monkeypatch):
    frame = pl.DataFrame({"a": [1, None, 3], "b": [True, False, None], "c": [0.5, 1.5, 2.5]})
    for module in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    np.testing.assert_array_equal(
        open_view(frame, "X").read(0, 3), [[1, 1, 0.5], [np.nan, 0, 1.5], [3, np.nan, 2.5]]
    )


def test_shapes():
    for wrap in (np.asarray, np.ndarray.tolist, torch.tensor, ArrayLike, pd.Series, pl.Series):
        assert "X: Expected 2D array, got 1D array instead (shape=(4,)" in error_message(
            wrap(TABLE[0])
        )
    for scalar in (3, np.float64(1), torch.tensor(1.0)):
        assert "got 0D array instead (shape=())" in error_message(scalar)
    assert "Y: Expected 2D array, got 3D" in error_message(np.zeros((5, 3, 2)), name="Y")
    for wrap in (np.asarray, torch.tensor, scipy.sparse.csr_array, pd.DataFrame, pl.DataFrame):
        assert "X: Found array with 0 sample(s) (shape=(0, 5)" in error_message(
            wrap(np.ones((0, 5)))
        )
        if wrap is not pl.DataFrame:
            assert "with 0 feature(s) (shape=(5, 0)" in error_message(wrap(np.ones((5, 0))))
    for lists, fragment in [
        ([[1, 2], [3, 4], [5]], "X is ragged: row 0 has 2 values but row 2 has 1 value."),
        ([[1, 2], 3], "X is ragged: row 0 has 2 values but row 1 has a single number"),
        ([[[1], [2]], [[3], [4, 5]]], "X (a list) cannot be converted to an array"),
    ]:
        assert fragment in error_message(lists)


class TestValues:
    @pytest.mark.parametrize(
        "wrap", [np.asarray, np.ndarray.tolist, torch.tensor, scipy.sparse.csr_array]
    )
    def test_complex_numbers(self, wrap):
        message = error_message(wrap(TABLE + 1j), InputTypeError)
        assert "X: Complex data not supported (dtype=complex" in message

    def test_objects_that_are_numbers(self):
        objects = np.array([[1, Fraction(1, 2)], [Decimal("0.25"), np.int8(3)], [True, 10**30]])
        np.testing.assert_array_equal(
            open_view(objects, "X").read(0, 3), [[1, 0.5], [0.25, 3], [1, 1e30]]
        )

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (2j, "X has 2j at row 1, column 0: complex data not supported"),
            (np.complex64(2j), "X has 2j at row 1, column 0: complex data not supported"),
            (None, " at row 1, column 0: float() argument must be a string or a real number"),
            (10**400, " at row 1, column 0: int too large to convert to float"),
        ],
    )
    def test_objects_that_are_not_numbers(self, value, reason):
        message = error_message(np.array([[1, 2], [value, 3]], dtype=object), InputTypeError)
        assert reason in message

    def test_text(self):
        for data, name in [
            ([[1, 2.5], [3, "red"]], ""),
            (np.array([[1, 2.5], [3, "red"]], dtype=object), ""),
            (pd.DataFrame({"a": [1, 2], "b": pd.Series([1, "red"], dtype=object)}), " ('b')"),
        ]:
            message = error_message(data, InputTypeError)
            assert f"X has the string 'red' at row 1, column 1{name}: only" in message
            assert "Encode text as numbers first" in message

    @pytest.mark.parametrize("dtype", ["U8", "S8", object, np.dtypes.StringDType()])
    def test_numbers_stored_as_text(self, dtype):
        message = error_message(np.array([["1.5", "2"]], dtype=dtype), InputTypeError)
        assert "'1.5' at row 0, column 0: only numbers" in message
        assert "Convert numbers stored as text" in message

    @pytest.mark.parametrize("dtype", ["datetime64[D]", [("a", float)]])
    def test_dates_and_structured_arrays(self, dtype):
        data = np.zeros((2, 2), dtype=dtype)
        message = error_message(data, InputTypeError)
        assert f"X has dtype {data.dtype}: only real numbers can be used" in message

    def test_masked_values_and_sparse_tensors(self):
        data = np.ma.masked_greater(np.array([[1, 2, 3], [4, 5, 6]]), 4)
        assert "2 masked values, the first at row 1, column 1" in error_message(data)
        message = error_message(torch.tensor(SPARSE).to_sparse(), InputTypeError)
        assert "X is a torch tensor of layout torch.sparse_coo" in message

    @pytest.mark.parametrize(
        "column",
        [
            pd.Series(["x", "y"], dtype="str"),
            pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02"])),
            pd.Series(pd.interval_range(0, 2)),
            pl.Series(["x", "y"]),
            pl.Series([None, None], dtype=pl.Date),
            pl.Series([[1, 2], [3, 4]]),
        ],
        ids=lambda column: f"{type(column).__module__.partition('.')[0]}-{column.dtype}",
    )
    def test_columns_that_are_not_numbers(self, column):
        library = pd if isinstance(column, pd.Series) else pl
        data = library.DataFrame({"a": [1, 2], "when": column})
        message = error_message(data, InputTypeError)
        assert f"X has column 'when' of dtype {column.dtype}: only numbers" in message
