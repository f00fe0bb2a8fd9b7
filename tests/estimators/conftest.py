"""One thread per test process: the runner already uses every core."""

import os

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_core():
    """The default of `n_jobs` sees one core; tests of threads set it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
        yield
    torch.set_num_threads(threads)
