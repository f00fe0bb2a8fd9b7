"""Fit maps, measure the error of their inner products, and expect errors."""

import math
import re

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.random import View
from knoi.exceptions import InputError


def fit(kind, X, kernel, rank, seed=0, **options):
    """The map of view X; `kind` is a class or a function that fits."""
    return getattr(kind, "fit", kind)(X, kernel, rank, seed, View.X, **options)


def errors(kind, X, kernel, rank, seeds=6, **options):
    """Errors of inner products over seeds, (seeds, n, n)."""
    exact = kernel(X, X)
    maps = (fit(kind, X, kernel, rank, seed, **options) for seed in range(seeds))
    return np.stack([Phi @ Phi.T - exact for Phi in (m.transform(X) for m in maps)])


def rms(values):
    return math.sqrt(np.mean(values**2))


def relative(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def kernel_error(features, X):
    """What the kernel matrix of X is off by, as a part of it."""
    Phi = features.transform(X)
    return relative(Phi @ Phi.T, features.kernel(X, X))


def sparse_rows(n, columns, per_row):
    """CSR rows with a few numbers in [0, 1) each."""
    rng = np.random.default_rng(0)
    at = np.repeat(np.arange(n), per_row), rng.integers(columns, size=n * per_row)
    return scipy.sparse.csr_array((rng.random(n * per_row), at), shape=(n, columns))


def raises(message):
    """Expect an `InputError` whose text begins with `message`."""
    return pytest.raises(InputError, match=f"^{re.escape(message)}")
