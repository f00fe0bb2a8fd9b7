"""Two sparse views, and the same views as dense tables."""

import numpy as np
import pytest
import scipy.sparse
import torch

from tests.bilingual_text import two_languages
from tests.sparse.cases import D, N


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def views():
    X, Y, _ = two_languages(N, D, dtype=np.float64)
    empty = scipy.sparse.csr_array((4, D))  # documents without words
    return scipy.sparse.vstack([X[:-4], empty], format="csr"), Y


@pytest.fixture(scope="module")
def tables(views):
    tables = tuple(view.toarray() for view in views)
    for table in tables:
        table.setflags(write=False)
    return tables
