"""Two sparse views, and the same as tables."""

import numpy as np
import pytest
import scipy.sparse
import torch

from tests.sparse.models import D, N
from tests.topics import two_languages


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def views():
    X, Y, _ = two_languages(N, D, dtype=np.float64)
    X = scipy.sparse.vstack(
        [X[:-4], scipy.sparse.csr_array((4, D))], format="csr"
    )  # some rows have no words
    return X, Y


@pytest.fixture(scope="module")
def tables(views):
    tables = tuple(view.toarray() for view in views)
    for table in tables:
        table.setflags(write=False)
    return tables
