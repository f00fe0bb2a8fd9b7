"""Fixtures for tests of solvers: the engine, and a single torch thread."""

from contextlib import nullcontext

import pytest
import torch

from knoi.engine import Serial, Threads

ENGINES = {
    "serial": lambda: nullcontext(Serial()),
    "two threads": lambda: Threads(2),
}


@pytest.fixture(params=list(ENGINES))
def engine(request):
    with ENGINES[request.param]() as workers:
        yield workers


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread():
    """Steps this small would only make waiting threads spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
