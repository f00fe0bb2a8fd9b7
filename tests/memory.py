"""How much memory a piece of code takes."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def peak_memory_below(limit):
    """Fail if Python allocates more bytes than `limit` at a time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit
