"""What tests of solvers share: who does the work, and no more torch threads than can be used."""

from contextlib import nullcontext

import pytest
import torch

from knoi.engine import Serial, Threads

ENGINES = {
    "serial": lambda: nullcontext(Serial()),
    "one thread": lambda: Threads(1),
    "two threads": lambda: Threads(2),
}


@pytest.fixture(params=list(ENGINES))
def engine(request):
    with ENGINES[request.param]() as workers:
        yield workers


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread():
    """Steps this small only make waiting threads spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
