"""Sets of rows as runs; values that are not finite are found and located."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knoi.data.source import RowRuns, check_finite, random_runs
from knoi.exceptions import NonFiniteError


class TestRowRuns:
    @settings(max_examples=200)
    @given(st.sets(st.integers(0, 60)), st.data())
    def test_agrees_with_lists(self, members, data):
        rows = np.array(sorted(members), dtype=np.int64)
        runs = RowRuns.from_rows(rows)
        assert (runs.starts[1:] > runs.stops[:-1]).all()
        assert runs.rows().tolist() == rows.tolist()
        assert runs.complement(61).rows().tolist() == sorted(set(range(61)) - members)
        start = data.draw(st.integers(0, len(rows)))
        stop = data.draw(st.integers(start, len(rows)))
        assert runs.part(start, stop).rows().tolist() == rows[start:stop].tolist()
        chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if members else []
        picked = runs.select(RowRuns.from_rows(np.array(chosen, dtype=np.int64)))
        assert picked.rows().tolist() == rows[chosen].tolist()
        assert (picked.starts[1:] > picked.stops[:-1]).all()

    @settings(max_examples=200)
    @given(st.integers(1, 200), st.data(), st.integers(1, 40), st.integers(0, 9))
    def test_random_runs_have_the_count_and_few_pieces(self, n, data, run_rows, seed):
        count = data.draw(st.integers(1, n))
        runs = random_runs(n, count, run_rows, np.random.default_rng(seed))
        assert runs.n_rows == count
        assert runs.starts[0] >= 0
        assert runs.stops[-1] <= n
        assert len(runs) <= -(-count // run_rows) + 1
        assert (runs.starts[1:] > runs.stops[:-1]).all()


def error_for(rows, first_row=0, column_names=None):
    with pytest.raises(NonFiniteError) as caught:
        check_finite(rows, "X", first_row, column_names)
    return str(caught.value)


def test_nan_and_infinity_are_located():
    rows = np.ones((20, 5))
    rows[17, 3] = np.nan
    assert error_for(rows, 10_000_000, ("a", "b", "c", "f0", "d")) == (
        "X has NaN at row 10000017, column 3 ('f0'): CCA needs complete rows. Drop the row or "
        "impute the value (e.g. sklearn.impute.SimpleImputer) before fitting."
    )
    rows[2, 0] = -np.inf
    assert error_for(rows.astype(np.float32)) == (
        "X has -inf at row 2, column 0: CCA needs finite values. Drop the row or clip the value "
        "(e.g. numpy.clip) before fitting."
    )
    rows[1, 1] = np.inf  # infinities that cancel
    assert "row 1, column 1" in error_for(rows)
    strided = np.asfortranarray(rows)[1::2]
    strided.flags.writeable = False
    assert "row 0, column 1" in error_for(strided)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "?"])
def test_a_sum_that_overflows_is_not_an_error(dtype):
    largest = np.finfo(dtype).max if dtype[0] == "f" else 255
    check_finite(np.full((500, 3), largest, dtype=dtype), "X", 0, None)
    check_finite(np.empty((0, 3), dtype=dtype), "X", 0, None)


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    )
)
def test_agrees_with_a_search_of_every_value(rows):
    bad = np.argwhere(~np.isfinite(rows))
    for search_bytes in (16, 2**24):
        with patch("knoi.data.source._SEARCH_BYTES", search_bytes):
            if len(bad) == 0:
                check_finite(rows, "X", 0, None)
            else:
                assert f" at row {bad[0, 0]}, column {bad[0, 1]}: " in error_for(rows)
