import pytest
from hypothesis import given
from hypothesis import strategies as st

from knoi.engine import even_slices, format_bytes, parse_bytes, rows_that_fit
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 4 * 2**30), ("500 MB", 500_000_000), ("1.5kib", 1536), ("7", 7), (10**9, 10**9)],
)
def test_parse_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("bad", ["4 giraffes", "", "-1GB", "0GB", -5, float("nan")])
def test_parse_bytes_rejects_what_is_not_a_size(bad):
    with pytest.raises(InputError, match="memory_budget="):
        parse_bytes(bad)


def test_parse_bytes_rejects_other_types():
    with pytest.raises(InputTypeError, match=r"wanted None, bytes, or a string like '4GiB'"):
        parse_bytes(True)


def test_format_bytes():
    assert [format_bytes(s) for s in (12, 2048, 3 * 2**40)] == ["12 bytes", "2.0 KiB", "3.0 TiB"]


@given(total=st.integers(0, 500), largest=st.integers(1, 600))
def test_even_slices_cover_everything_once(total, largest):
    slices = even_slices(total, largest)
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(total))
    sizes = [s.stop - s.start for s in slices]
    assert max(sizes) <= largest
    assert max(sizes) - min(sizes) <= 1


@given(
    budget=st.integers(1, 10**9),
    fixed=st.integers(0, 10**8),
    per_row=st.integers(1, 10**6),
    n_rows=st.integers(1, 10**6),
)
def test_a_chunk_fits_the_budget_or_raises(budget, fixed, per_row, n_rows):
    try:
        rows = rows_that_fit(
            budget, fixed=fixed, per_row=per_row, n_rows=n_rows, purpose="it", remedy="Do less."
        )
    except MemoryBudgetError:
        assert fixed + min(64, n_rows) * per_row > budget
    else:
        assert 1 <= rows <= n_rows
        assert fixed + rows * per_row <= budget


def test_the_error_says_what_is_needed_and_what_to_do():
    with pytest.raises(MemoryBudgetError) as error:
        rows_that_fit(2**20, fixed=2**21, per_row=0, n_rows=9, purpose="The job", remedy="Rest.")
    assert str(error.value) == (
        "The job needs at least 2.0 MiB but memory_budget is 1.0 MiB. Rest."
    )
