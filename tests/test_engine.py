import operator
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from knoi.engine import Serial, Threads, worker_count
from knoi.exceptions import InputError


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(params=[Serial, lambda: Threads(3)], ids=["serial", "threads"])
def engine(request):
    engine = request.param()
    yield engine
    engine.close()


def test_map_and_reduce_keep_the_order(engine):
    mapped = engine.map(lambda item, a, b: item * a + b, range(20), 3, 1)
    assert mapped == [3 * i + 1 for i in range(20)]
    assert engine.reduce(operator.add, [[1], [2], [3]]) == [1, 2, 3]


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
            names, limits = zip(
                *engine.map(lambda _: (threading.current_thread().name, blas_threads()), range(8)),
                strict=True,
            )
            assert all(limit == {1} for limit in limits)
            assert all(name.startswith("knoi") for name in names)
            assert blas_threads() == {2}
        assert blas_threads() == {3}


def test_the_blas_limit_is_never_raised():
    with threadpool_limits(1, "blas"), Threads(3):
        assert blas_threads() == {1}


def test_the_lowest_limit_of_several_blas_libraries_counts():
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
