"""Views in memory: arrays, lists, sparse matrices, tensors; and what cannot be a view at all."""

import datetime
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knoi.data.open import open_view
from knoi.exceptions import InputError, InputTypeError
from tests.contracts.view_source import SourceCase, ViewSourceContract, dense

TABLE = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
IMAGES = np.random.default_rng(1).integers(0, 256, size=(11, 6)).astype(np.uint8)
SPARSE = np.where(TABLE > 0.3, TABLE, 0)


class ArrayLike:
    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


def in_memory(data, expected=TABLE):
    sparse = scipy.sparse.issparse(data)
    return SourceCase(lambda: open_view(data, "X"), expected, random_access=True, sparse=sparse)


CASES = {
    "ndarray": in_memory(TABLE.copy()),
    "fortran": in_memory(np.asfortranarray(TABLE)),
    "strided": in_memory(np.repeat(TABLE, 2, axis=0)[::2]),
    "reversed": in_memory(TABLE[::-1].copy()[::-1]),
    "read-only": in_memory(np.broadcast_to(TABLE, TABLE.shape)),
    "big-endian": in_memory(TABLE.astype(">f4")),
    "float16": in_memory(TABLE.astype(np.float16), TABLE.astype(np.float16)),
    "bool": in_memory(TABLE > 0, TABLE > 0),
    "uint8": in_memory(IMAGES.copy(), IMAGES),
    "matrix": in_memory(np.asarray(TABLE).view(np.matrix)),
    "unmasked": in_memory(np.ma.masked_array(TABLE, mask=False)),
    "object": in_memory(TABLE.astype(object), TABLE.astype(np.float64)),
    "lists": in_memory(TABLE.tolist(), TABLE.astype(np.float64)),
    "tuples": in_memory(tuple(map(tuple, IMAGES.tolist())), IMAGES.astype(np.int64)),
    "array-like": in_memory(ArrayLike(TABLE)),
    **{
        f"sparse-{form}": in_memory(scipy.sparse.csr_array(SPARSE).asformat(form), SPARSE)
        for form in ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")
    },
    "sparse-matrix": in_memory(scipy.sparse.csc_matrix(SPARSE), SPARSE),
    "sparse-bool": in_memory(scipy.sparse.csr_array(SPARSE > 0), SPARSE > 0),
    "tensor": in_memory(torch.tensor(TABLE)),
    "tensor-grad": in_memory(torch.tensor(TABLE, requires_grad=True)),
    "tensor-parameter": in_memory(torch.nn.Parameter(torch.tensor(TABLE))),
    "tensor-transposed": in_memory(torch.tensor(TABLE.T.copy()).T),
    "tensor-uint8": in_memory(torch.tensor(IMAGES), IMAGES),
    "tensor-bfloat16": in_memory(torch.tensor(IMAGES).bfloat16(), IMAGES.astype(np.float32)),
}


class TestEveryArray(ViewSourceContract):
    @pytest.fixture(params=CASES.values(), ids=CASES.keys())
    def case(self, request):
        return request.param


def test_a_source_is_returned_as_it_is():
    source = open_view(TABLE, "X")
    assert open_view(source, "Y") is source


def test_an_array_is_not_copied_and_stays_writable():
    array = TABLE.copy()
    rows = open_view(array, "X").read(2, 5)
    assert np.shares_memory(rows, array)
    assert not rows.flags.writeable
    array[2, 0] = 7  # the user's own array is not frozen
    assert rows[0, 0] == 7


def test_csr_is_not_copied():
    matrix = scipy.sparse.csr_array(SPARSE)
    source = open_view(matrix, "X")
    matrix.data[:] = 1
    np.testing.assert_array_equal(source.read(0, 11).toarray(), SPARSE != 0)


def test_a_tensor_is_not_copied_and_keeps_its_gradient():
    tensor = torch.tensor(TABLE, requires_grad=True)
    rows = open_view(tensor, "X").read(0, 2)
    assert rows.ctypes.data == tensor.data_ptr()
    assert not rows.flags.writeable
    assert tensor.requires_grad


@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int16, np.uint8, np.bool_]),
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
    ),
    st.data(),
)
def test_any_range_of_any_array(array, data):
    start = data.draw(st.integers(0, len(array)))
    stop = data.draw(st.integers(start, len(array)))
    for form in (array, np.asfortranarray(array), scipy.sparse.coo_array(array)):
        rows = open_view(form, "X").read(start, stop)
        np.testing.assert_array_equal(dense(rows), array[start:stop])


def refusal(data, error=InputError, name="X"):
    with pytest.raises(error) as caught:
        open_view(data, name)
    return str(caught.value)


@pytest.mark.parametrize(
    "wrap",
    [np.asarray, np.ndarray.tolist, torch.tensor, ArrayLike],
    ids=["ndarray", "list", "tensor", "array-like"],
)
def test_refuses_one_dimension(wrap):
    assert refusal(wrap(TABLE[0])) == (
        "X: Expected 2D array, got 1D array instead (shape=(4,)). Reshape your data with "
        "reshape(-1, 1) if it is a single feature or reshape(1, -1) if it is a single row."
    )


@pytest.mark.parametrize("wrap", [np.asarray, torch.tensor], ids=["ndarray", "tensor"])
def test_refuses_three_dimensions(wrap):
    assert refusal(wrap(np.zeros((5, 3, 2))), name="Y") == (
        "Y: Expected 2D array, got 3D array instead (shape=(5, 3, 2)). "
        "Reshape your data to one row per sample: reshape(5, -1)."
    )


@pytest.mark.parametrize("scalar", [3, 2.5, np.float64(1), np.array(1.0), torch.tensor(1.0)])
def test_refuses_a_scalar(scalar):
    assert "X: Expected 2D array, got 0D array instead (shape=())." in refusal(scalar)


@pytest.mark.parametrize(
    "wrap",
    [np.asarray, torch.tensor, scipy.sparse.csr_array],
    ids=["ndarray", "tensor", "sparse"],
)
def test_refuses_nothing(wrap):
    assert refusal(wrap(np.zeros((0, 5)))) == (
        "X: Found array with 0 sample(s) (shape=(0, 5)) while a minimum of 1 is required. "
        "Check how it was read or selected."
    )
    assert refusal(wrap(np.zeros((5, 0)))) == (
        "X: Found array with 0 feature(s) (shape=(5, 0)) while a minimum of 1 is required. "
        "Check how it was read or selected."
    )


@pytest.mark.parametrize(
    "wrap",
    [np.asarray, np.ndarray.tolist, torch.tensor, scipy.sparse.csr_array],
    ids=["ndarray", "list", "tensor", "sparse"],
)
def test_refuses_complex(wrap):
    message = refusal(wrap(TABLE + 1j), InputTypeError)
    assert message.startswith("X: Complex data not supported (dtype=complex")
    assert "Pass the real and imaginary parts as separate columns." in message


def test_refuses_a_complex_number_among_objects():
    assert refusal(np.array([[1, 2j]], dtype=object)) == (
        "X: Complex data not supported (2j at row 0, column 1). "
        "Pass the real and imaginary parts as separate columns."
    )


def test_takes_objects_that_are_numbers():
    objects = np.array([[1, Fraction(1, 2)], [Decimal("0.25"), np.int8(3)], [True, 10**30]], object)
    np.testing.assert_array_equal(
        open_view(objects, "X").read(0, 3), [[1, 0.5], [0.25, 3], [1, 1e30]]
    )


@pytest.mark.parametrize(
    "data",
    [
        [[1, 2.5], [3, "red"]],
        np.array([[1, 2.5], [3, "red"]], dtype=object),
    ],
)
def test_refuses_text_and_says_where(data):
    assert refusal(data, InputTypeError) == (
        "X has the string 'red' at row 1, column 1: only numbers can be used. Encode text as "
        "numbers first (e.g. sklearn.preprocessing.OneHotEncoder)."
    )


@pytest.mark.parametrize("dtype", ["U8", "S8", object, np.dtypes.StringDType()])
def test_refuses_numbers_stored_as_text(dtype):
    message = refusal(np.array([["1.5", "2"]], dtype=dtype), InputTypeError)
    assert message.endswith(
        "'1.5' at row 0, column 0: only numbers can be used. "
        "Convert numbers stored as text first, e.g. with astype(float)."
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"foo": "bar"}, "float() argument must be a string or a real number, not 'dict'"),
        (None, "float() argument must be a string or a real number, not 'NoneType'"),
        (10**400, "int too large to convert to float"),
        (datetime.date(2020, 1, 1), "float() argument must be a string or a real number"),
    ],
)
def test_refuses_objects_that_are_no_numbers(value, reason):
    message = refusal(np.array([[1, 2], [value, 3]], dtype=object), InputTypeError)
    assert message.startswith("X has ")
    assert f" at row 1, column 0: {reason}" in message
    assert message.endswith("Only numbers can be used: drop or encode this value first.")


@pytest.mark.parametrize("dtype", ["datetime64[D]", "timedelta64[s]"])
def test_refuses_dates(dtype):
    assert refusal(np.zeros((2, 2), dtype=dtype), InputTypeError) == (
        f"X has dtype {dtype}: dates and durations are not numbers. "
        "Convert them to features first, e.g. days since a date."
    )


def test_refuses_structured_arrays():
    data = np.zeros((2, 2), dtype=[("a", float)])
    assert "only real numbers can be used" in refusal(data, InputTypeError)


def test_refuses_none():
    assert refusal(None, InputTypeError, "Y") == (
        "Y: Expected array-like (array or non-string sequence), got None. CCA needs both views. "
        "Pass a 2-D array (NumPy, scipy.sparse, pandas, polars, torch, h5py, zarr), nested lists "
        "of numbers, or a path PATH or PATH:SELECTOR to a .npy, .npz, .h5, .zarr, .parquet, .csv "
        "or .mat file."
    )


@pytest.mark.parametrize("data", [{"a": [1]}, {1, 2}, iter([[1]]), object()])
def test_refuses_other_objects(data):
    message = refusal(data, InputTypeError)
    assert message.startswith(f"X is a {type(data).__name__}. Pass a 2-D array")


def test_refuses_ragged_lists():
    assert refusal([[1, 2], [3, 4], [5]]) == (
        "X is ragged: row 0 has 2 values but row 2 has 1 value. "
        "Give every row the same number of values."
    )
    assert "row 0 has 2 values but row 1 has a single number" in refusal([[1, 2], 3])
    assert "X (a list) cannot be converted to an array" in refusal([[[1], [2]], [[3], [4, 5]]])


def test_refuses_masked_values():
    data = np.ma.masked_greater(np.array([[1, 2, 3], [4, 5, 6]]), 4)
    assert refusal(data) == (
        "X is a masked array with 2 masked values, the first at row 1, column 1: CCA needs "
        "complete rows. Drop the rows or fill the values, e.g. with numpy.ma.filled."
    )


def test_refuses_sparse_tensors():
    message = refusal(torch.tensor(SPARSE).to_sparse(), InputTypeError)
    assert message.startswith("X is a torch tensor of layout torch.sparse_coo")


def test_opening_an_array_imports_no_optional_library():
    program = (
        "import sys, numpy; from knoi.data.open import open_view; "
        "open_view(numpy.ones((2, 2)), 'X').read(0, 1); "
        "wanted = {'torch', 'h5py', 'zarr', 'pyarrow', 'pandas', 'polars', 'dask'}; "
        "print(sorted(wanted & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
