"""Who does the work: the calling thread, or a pool of threads with BLAS held to one thread each.

An engine maps a function over items and adds results up. It never looks inside an array, so the
same calls can be served by remote workers.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from numbers import Integral
from typing import Any, Protocol, Self, TypeVar

from threadpoolctl import ThreadpoolController

from knoi.exceptions import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What solvers ask of whoever does the work."""

    n_workers: int

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """`[fn(item, *shared) for item in items]`, in order, on any worker."""
        ...

    def reduce(self, op: Callable[[Result, Result], Result], items: Iterable[Result]) -> Result:
        """Fold results together, in order, so that sums come out the same every time."""
        ...

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """A block in which BLAS keeps to the calling thread.

        A BLAS thread spins for a while after its work; between two maps it would take a core from
        the workers.
        """
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


class Serial:
    """Everything in the calling thread; BLAS threads as it likes."""

    n_workers = 1

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """Apply `fn` to one item after the other."""
        return [fn(item, *shared) for item in items]

    def reduce(self, op: Callable[[Result, Result], Result], items: Iterable[Result]) -> Result:
        """Fold from the left."""
        return reduce(op, items)

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """No workers to take a core from: BLAS stays as it is."""
        return nullcontext()

    def close(self) -> None:
        """Nothing to let go."""


class Threads:
    """A pool of `n_workers` threads; while they map, BLAS runs one thread in each of them.

    Use as a context manager: inside it BLAS calls of the calling thread also keep to `n_workers`
    threads, and leaving restores what was set before.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._blas = ThreadpoolController().select(user_api="blas")
        self._pool = ThreadPoolExecutor(n_workers, thread_name_prefix="knoi")
        # Only ever lowered: who has set BLAS to fewer threads had a reason.
        allowed = min((pool.num_threads for pool in self._blas.lib_controllers), default=1)
        self._outer = self._blas.limit(limits=min(n_workers, allowed))

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """Apply `fn` to the items side by side; the first error is raised once all have ended."""
        if self.n_workers == 1 or len(items) == 1:
            return [fn(item, *shared) for item in items]
        with self._blas.limit(limits=1):
            futures = [self._pool.submit(fn, item, *shared) for item in items]
            # The limit is global: it must not be lifted while a worker still computes.
            failures = [future.exception() for future in futures]
        for failure in failures:
            if failure is not None:
                raise failure
        return [future.result() for future in futures]

    def reduce(self, op: Callable[[Result, Result], Result], items: Iterable[Result]) -> Result:
        """Fold from the left."""
        return reduce(op, items)

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """BLAS at one thread until the block is left."""
        context: AbstractContextManager[Any] = self._blas.limit(limits=1)
        return context

    def close(self) -> None:
        """End the pool and give BLAS its threads back."""
        self._pool.shutdown()
        self._outer.restore_original_limits()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def worker_count(n_jobs: int | None) -> int:
    """Threads to use: all cores this process may run on for None or -1, else `n_jobs`."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if n_jobs is None:
        return cores
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise InputError(
            f"n_jobs={n_jobs!r}: wanted None (all cores), a number of threads, or -1 for all cores."
        )
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))
