"""Workers and their BLAS threads, sizes in bytes, chunks that fit a memory budget."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from knoi.engine import (
    Serial,
    Threads,
    even_slices,
    format_bytes,
    parse_bytes,
    rows_that_fit,
    worker_count,
)
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(params=[Serial, lambda: Threads(3)], ids=["serial", "threads"])
def engine(request):
    engine = request.param()
    yield engine
    engine.close()


def test_map_keeps_the_order(engine):
    mapped = engine.map(lambda item, a, b: item * a + b, range(20), 3, 1)
    assert mapped == [3 * i + 1 for i in range(20)]


def test_an_error_in_a_worker_reaches_the_caller(engine):
    def fail(item):
        if item == 5:
            raise KeyError("five")
        return item

    with pytest.raises(KeyError, match="five"):
        engine.map(fail, range(10))
    assert engine.map(fail, range(5)) == list(range(5))


def test_blas_has_one_thread_per_worker_and_its_limits_are_restored():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(3, "blas"):
        with Threads(2) as engine:
            assert engine.map(lambda _: blas_threads(), range(8)) == [{1}] * 8
            assert blas_threads() == {2}
        assert blas_threads() == {3}


def test_torch_has_one_thread_per_worker_and_the_caller_keeps_its_number():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with Threads(2) as engine:
            assert engine.map(lambda _: torch.get_num_threads(), range(8)) == [1] * 8
            assert torch.get_num_threads() == 3
            with engine.one_blas_thread():
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_the_lowest_limit_of_several_blas_libraries_is_never_raised():
    import scipy.linalg  # noqa: F401 - loads a second BLAS

    pools = ThreadpoolController().select(user_api="blas").lib_controllers
    with threadpool_limits(2, "blas"):
        pools[0].set_num_threads(1)
        with Threads(2):
            assert blas_threads() == {1}


def test_worker_counts():
    assert worker_count(3) == 3
    assert worker_count(None) == worker_count(-1) >= 1
    with pytest.raises(InputError, match=r"n_jobs=0: wanted None"):
        worker_count(0)


def test_sizes_in_bytes():
    sizes = {"4GiB": 4 * 2**30, "500 MB": 500_000_000, "1.5kib": 1536, "7": 7, 10**9: 10**9}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    assert [format_bytes(s) for s in (12, 2048, 3 * 2**40)] == ["12 bytes", "2.0 KiB", "3.0 TiB"]


@pytest.mark.parametrize("bad", ["4 giraffes", "", "-1GB", "0GB", -5, float("nan"), True])
def test_what_is_not_a_size_raises(bad):
    with pytest.raises(InputError, match=r"^memory_budget=.* is not a size: wanted None") as raised:
        parse_bytes(bad)
    assert isinstance(raised.value, InputTypeError) == (bad is True)


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
    job = {"fixed": fixed, "per_row": per_row, "n_rows": n_rows, "purpose": "it", "remedy": "Rest."}
    if fixed + min(64, n_rows) * per_row > budget:
        with pytest.raises(MemoryBudgetError, match=r"it needs at least .*_budget is .* Rest"):
            rows_that_fit(budget, **job)
    else:
        rows = rows_that_fit(budget, **job)
        assert 1 <= rows <= n_rows
        assert fixed + rows * per_row <= budget
