"""One thread a test process: the runner already uses every core, and BLAS spins when they wait."""

import os

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_core():
    """Default `n_jobs` sees one core; tests that are about threads say how many they want."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
        yield
    torch.set_num_threads(threads)
