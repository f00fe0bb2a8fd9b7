"""NaN and infinity are found, named by place, and never imagined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knoi.data.checked import check_finite
from knoi.exceptions import NonFiniteError


def refusal(rows, first_row=0, column_names=None):
    with pytest.raises(NonFiniteError) as caught:
        check_finite(rows, "X", first_row, column_names)
    return str(caught.value)


def test_nan_is_named_by_view_row_and_column():
    rows = np.ones((20, 5))
    rows[17, 3] = np.nan
    assert refusal(rows, 10_000_000, ("a", "b", "c", "f0", "d")) == (
        "X has NaN at row 10000017, column 3 ('f0'): CCA needs complete rows. Drop the row or "
        "impute the value (e.g. sklearn.impute.SimpleImputer) before fitting."
    )


@pytest.mark.parametrize(("value", "text"), [(np.inf, "inf"), (-np.inf, "-inf")])
def test_infinity_is_named_by_view_row_and_column(value, text):
    rows = np.ones((3, 2), dtype=np.float32)
    rows[2, 0] = value
    assert refusal(rows) == (
        f"X has {text} at row 2, column 0: CCA needs finite values. Drop the row or clip the value "
        "(e.g. numpy.clip) before fitting."
    )


def test_infinities_that_cancel_are_found():
    rows = np.ones((4, 2))
    rows[1, 1], rows[3, 0] = np.inf, -np.inf
    assert "row 1, column 1" in refusal(rows)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_sum_that_overflows_is_no_alarm(dtype):
    largest = np.finfo(dtype).max
    check_finite(np.full((500, 3), largest, dtype=dtype), "X", 0, None)
    check_finite(np.array([[largest, largest], [-largest, -largest]], dtype=dtype), "X", 0, None)


def test_the_search_crosses_its_pieces(monkeypatch):
    monkeypatch.setattr("knoi.data.checked._SEARCH_BYTES", 64)
    rows = np.ones((100, 4))
    rows[73, 2] = np.nan
    assert "row 1073, column 2" in refusal(rows, 1000)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.bool_])
def test_integers_are_finite(dtype):
    check_finite(np.full((3, 2), np.iinfo(np.int8).max).astype(dtype), "X", 0, None)


def test_an_empty_chunk_is_finite():
    check_finite(np.empty((0, 3)), "X", 0, None)


def test_rows_need_not_be_contiguous_or_writable():
    rows = np.asfortranarray(np.ones((6, 4)))[::2]
    rows[1, 3] = np.nan
    rows.flags.writeable = False
    assert "row 1, column 3" in refusal(rows)


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    )
)
def test_agrees_with_looking_at_every_value(rows):
    places = np.argwhere(~np.isfinite(rows))
    if len(places) == 0:
        check_finite(rows, "X", 0, None)
    else:
        row, column = places[0]
        assert f" at row {row}, column {column}: " in refusal(rows)
