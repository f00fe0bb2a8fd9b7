"""Fixtures for tests of solvers: the engine, minibatches, and a single torch thread."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from knoi.engine import Serial, Threads
from tests.solvers.steps import BATCH


@pytest.fixture(params=["serial", "two threads"])
def engine(request):
    with nullcontext(Serial()) if request.param == "serial" else Threads(2) as workers:
        yield workers


@pytest.fixture
def minibatches(two_views):
    """Eight minibatches of 40 rows."""
    orders = (np.random.default_rng(t).permutation(200)[:BATCH] for t in range(8))
    return [tuple(view[rows] for view in two_views) for rows in orders]


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread():
    """Steps this small would only make waiting threads spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
