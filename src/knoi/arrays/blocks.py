"""Memory budgets and block sizes: how work is split so that it fits in memory."""

import re
from itertools import pairwise
from typing import Any

from knoi.checks import is_real
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}

# With fewer rows per chunk BLAS is slow; more rows are not faster and delay the first progress.
MIN_CHUNK_ROWS = 64
MAX_CHUNK_ROWS = 8192


def parse_bytes(size: int | float | str) -> int:
    """Parse a size in bytes: a number, or a string like "4GiB" or "500 MB"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            raise InputError(
                f"memory_budget={size!r} is not a size: wanted bytes, or a number with a unit "
                "such as '500MB' or '4GiB'."
            )
        size = float(match[1]) * _UNITS[match[2].lower()]
    if not is_real(size):
        raise InputTypeError(
            f"memory_budget={size!r} is not a size: wanted None, bytes, or a string like '4GiB'."
        )
    if not 0 < size < float("inf"):
        raise InputError(f"memory_budget={size!r}: wanted a positive number of bytes.")
    return int(size)


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
