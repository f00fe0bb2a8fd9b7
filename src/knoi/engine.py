"""Workers, block sizes and memory budgets: how work is divided and who does it.

An engine maps a function over items. It never looks inside an array, so the same calls can be
served by remote workers. Block sizes follow from a memory budget in bytes.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar

from threadpoolctl import ThreadpoolController

from knoi.checks import is_integer, is_real
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What solvers need to run work in parallel."""

    n_workers: int

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """`[fn(item, *shared) for item in items]`, in order, on any worker."""

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """A context in which BLAS, and torch, use the calling thread only.

        Their threads keep spinning for a while after their work; between two maps they would take
        cores from the workers.
        """

    def close(self) -> None:
        """Release the workers."""


class Serial:
    """Run everything in the calling thread; the number of BLAS threads is left alone."""

    n_workers = 1

    def map(self, fn: Callable[..., Result], items: Sequence[Item], *shared: Any) -> list[Result]:
        """Apply `fn` to one item after the other."""
        return [fn(item, *shared) for item in items]

    def one_blas_thread(self) -> AbstractContextManager[Any]:
        """Change nothing: there are no workers."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing."""


class Threads:
    """A pool of `n_workers` threads; during a map, BLAS and torch run one thread in each of them.

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
        with self.one_blas_thread():
            futures = [self._pool.submit(fn, item, *shared) for item in items]
            # The limit is global: it must stay until every worker has finished.
            failures = [future.exception() for future in futures]
        for failure in failures:
            if failure is not None:
                raise failure
        return [future.result() for future in futures]

    @contextmanager
    def one_blas_thread(self) -> Iterator[None]:
        """Limit BLAS and torch to one thread inside the context."""
        with self._blas.limit(limits=1), _one_torch_thread():
            yield

    def close(self) -> None:
        """Shut down the pool and restore the BLAS limits."""
        self._pool.shutdown()
        self._outer.restore_original_limits()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Limit torch to one thread, if it is used: the caller, and threads that use it first inside.

    Workers, which use it in a map only, keep that number; the caller gets its own back.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}

# With fewer rows per chunk BLAS is slow; more rows are not faster and delay the first progress.
MIN_CHUNK_ROWS = 64
MAX_CHUNK_ROWS = 8192


def parse_bytes(size: int | float | str) -> int:
    """Parse a size in bytes: a number, or a string like "4GiB" or "500 MB"."""
    number: Any = size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        number = float(match[1]) * _UNITS.get(match[2].lower(), 0) if match else 0
    if is_real(number) and 0 < number < float("inf"):
        return int(number)
    raise (InputError if is_real(number) else InputTypeError)(
        f"memory_budget={size!r} is not a size: wanted None, a number of bytes > 0, or a string "
        "such as '500MB' or '4GiB'."
    )


def format_bytes(size: float) -> str:
    """A human-readable size, e.g. "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def rows_that_fit(
    budget: int, *, fixed: int, per_row: int, n_rows: int, purpose: str, remedy: str
) -> int:
    """Rows per chunk such that `fixed + rows * per_row` bytes fit in `budget`.

    Raises `MemoryBudgetError` if not even a small chunk fits; `purpose` and `remedy` go into its
    message: what needs the memory, and what to do.
    """
    smallest = min(MIN_CHUNK_ROWS, n_rows)
    needed = fixed + smallest * per_row
    if needed > budget:
        raise MemoryBudgetError(
            f"{purpose} needs at least {format_bytes(needed)} but memory_budget is "
            f"{format_bytes(budget)}. {remedy}"
        )
    return max(1, min((budget - fixed) // max(per_row, 1), n_rows, MAX_CHUNK_ROWS))


def even_slices(total: int, largest: int) -> list[slice]:
    """Split `range(total)` into the fewest slices of at most `largest`, of nearly equal size."""
    pieces = max(1, -(-total // max(1, largest)))
    edges = [total * piece // pieces for piece in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def budget_or_default(memory_budget: Any, free_bytes: int) -> int:
    """`memory_budget` in bytes, or half of the free memory if it is None."""
    return free_bytes // 2 if memory_budget is None else parse_bytes(memory_budget)
