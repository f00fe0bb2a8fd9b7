"""Parallel execution: in the calling thread, or in a pool of threads with one BLAS thread each.

An engine maps a function over items and folds results together. It never looks inside an array,
so remote workers could offer the same interface.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any, Protocol, Self, TypeVar

from threadpoolctl import ThreadpoolController

from knoi.checks import is_integer
from knoi.exceptions import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What solvers need to run work in parallel."""

    n_workers: int

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """`[fn(item, *shared) for item in items]`, in order, on any worker."""
        ...

    def reduce(self, op: Callable[[Result, Result], Result], items: Iterable[Result]) -> Result:
        """Fold results together, in order, so that sums come out the same every time."""
        ...

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """A context in which BLAS uses the calling thread only.

        BLAS threads keep spinning for a while after their work; between two maps they would take
        cores from the workers.
        """
        ...

    def close(self) -> None:
        """Release the workers."""
        ...


class Serial:
    """Run everything in the calling thread; the number of BLAS threads is left alone."""

    n_workers = 1

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """Apply `fn` to one item after the other."""
        return [fn(item, *shared) for item in items]

    def reduce(self, op: Callable[[Result, Result], Result], items: Iterable[Result]) -> Result:
        """Fold from the left."""
        return reduce(op, items)

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """Change nothing: there are no workers."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing."""


class Threads:
    """A pool of `n_workers` threads; during a map, BLAS runs one thread in each of them.

    Use as a context manager: inside it BLAS calls of the calling thread use at most `n_workers`
    threads; leaving it restores the previous limits.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._blas = ThreadpoolController().select(user_api="blas")
        self._pool = ThreadPoolExecutor(n_workers, thread_name_prefix="knoi")
        # Only ever lowered: a lower limit was set by the user for a reason.
        allowed = min((pool.num_threads for pool in self._blas.lib_controllers), default=1)
        self._outer = self._blas.limit(limits=min(n_workers, allowed))

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """Apply `fn` to the items in parallel; raise the first error after all have ended."""
        if self.n_workers == 1 or len(items) == 1:
            return [fn(item, *shared) for item in items]
        with self._blas.limit(limits=1):
            futures = [self._pool.submit(fn, item, *shared) for item in items]
            # The limit is global: it must stay until every worker has finished.
            failures = [future.exception() for future in futures]
        for failure in failures:
            if failure is not None:
                raise failure
        return [future.result() for future in futures]

    def reduce(self, op: Callable[[Result, Result], Result], items: Iterable[Result]) -> Result:
        """Fold from the left."""
        return reduce(op, items)

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """Limit BLAS to one thread inside the context."""
        context: AbstractContextManager[Any] = self._blas.limit(limits=1)
        return context

    def close(self) -> None:
        """Shut down the pool and restore the BLAS limits."""
        self._pool.shutdown()
        self._outer.restore_original_limits()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def worker_count(n_jobs: int | None) -> int:
    """Number of threads: `n_jobs`, or all cores available to this process for None or -1."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if n_jobs is None:
        return cores
    if not is_integer(n_jobs) or n_jobs == 0:
        raise InputError(
            f"n_jobs={n_jobs!r}: wanted None (all cores), a number of threads, or -1 for all cores."
        )
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))
