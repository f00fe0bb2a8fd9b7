"""The public names, what importing them costs, and the examples in their docstrings."""

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

import knoi

PUBLIC = [
    "DoublyStochasticCCA",
    "FourierCCA",
    "KNOI",
    "KernelCCA",
    "KnoiError",
    "LinearCCA",
    "NystromCCA",
    "component_correlations",
    "cross_view_retrieval",
    "load",
    "total_correlation",
]
OPTIONAL = ["torch", "h5py", "zarr", "pyarrow", "pandas", "polars", "dask", "plotly"]


def test_all_is_the_public_names():
    assert knoi.__all__ == PUBLIC
    assert sorted(dir(knoi)) == sorted([*PUBLIC, "__version__"])


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves_and_is_documented(name):
    found = getattr(knoi, name)
    assert found.__name__ == name
    assert found.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'knoi' has no attribute 'PCA'$"):
        _ = knoi.PCA


def loaded_after(code):
    """Which optional modules a fresh interpreter has loaded after running `code`."""
    report = f"{code}\nimport sys\nprint(*(m for m in {OPTIONAL} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_loads_no_optional_dependency():
    assert loaded_after("import knoi") == []


def test_fitting_arrays_loads_no_optional_dependency():
    code = (
        "import numpy as np, knoi\n"
        "X = np.random.default_rng(0).standard_normal((50, 3))\n"
        "for name in ('LinearCCA', 'KernelCCA', 'FourierCCA', 'NystromCCA', 'KNOI'):\n"
        "    getattr(knoi, name)(1, n_jobs=1).fit(X, X[:, :2]).score(X, X[:, :2])"
    )
    # scikit-learn imports pandas, and pandas pyarrow, where they are installed.
    by_scikit_learn = loaded_after("import sklearn.base, sklearn.utils.validation, sklearn.cluster")
    assert set(loaded_after(code)) <= set(by_scikit_learn)
    assert not {"torch", "h5py", "zarr", "polars"} & set(by_scikit_learn)


@pytest.mark.parametrize("name", ["primal", "dual", "stochastic"])
def test_examples_in_docstrings_run(name):
    module = import_module(f"knoi.estimators.{name}")
    results = doctest.testmod(module, raise_on_error=False)
    assert results.attempted > 0
    assert results.failed == 0
