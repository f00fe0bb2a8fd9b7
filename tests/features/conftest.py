"""Rows that most tests of feature maps start from."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def rows():
    """60 read-only rows of 5 columns."""
    X = np.random.default_rng(0).standard_normal((60, 5))
    X.setflags(write=False)
    return X
