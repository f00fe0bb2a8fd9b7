"""From bytes to block sizes: pure functions that decide how work is cut to fit a memory budget."""

import re
from itertools import pairwise
from numbers import Real
from typing import Any

from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}

# Fewer rows than this a chunk and BLAS no longer runs at speed; more than the upper bound buys
# nothing and delays the first sign of progress.
MIN_CHUNK_ROWS = 64
MAX_CHUNK_ROWS = 8192


def parse_bytes(size: int | float | str) -> int:
    """Bytes from a number or a text like "4GiB", "500 MB"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            raise InputError(
                f"memory_budget={size!r} is not a size: wanted bytes, or a number with a unit "
                "such as '500MB' or '4GiB'."
            )
        size = float(match[1]) * _UNITS[match[2].lower()]
    if isinstance(size, bool) or not isinstance(size, Real):
        raise InputTypeError(
            f"memory_budget={size!r} is not a size: wanted None, bytes, or a text like '4GiB'."
        )
    if not 0 < size < float("inf"):
        raise InputError(f"memory_budget={size!r}: wanted a positive number of bytes.")
    return int(size)


def format_bytes(size: float) -> str:
    """A size for people, e.g. "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def rows_that_fit(
    budget: int, *, fixed: int, per_row: int, n_rows: int, purpose: str, remedy: str
) -> int:
    """How many rows a chunk may have so that `fixed + rows * per_row` bytes stay within `budget`.

    Raises `MemoryBudgetError` when not even a small chunk fits: `purpose` says what needs the
    memory and `remedy` what to do about it.
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
    """Cut `range(total)` into the fewest slices of at most `largest`, as equal as can be."""
    pieces = max(1, -(-total // max(1, largest)))
    edges = [total * piece // pieces for piece in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def budget_or_default(memory_budget: Any, free_bytes: int) -> int:
    """The stated budget in bytes, or half of what is free when none was stated."""
    return free_bytes // 2 if memory_budget is None else parse_bytes(memory_budget)
