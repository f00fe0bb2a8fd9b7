"""The public names: their types, what importing them loads, examples in their docstrings."""

import ast
import doctest
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import knoi

ROOT = Path(__file__).parents[1]
OPTIONAL = ["torch", "h5py", "zarr", "pyarrow", "pandas", "polars", "dask", "plotly", "matplotlib"]


def test_every_public_name_resolves_and_is_documented():
    assert sorted(dir(knoi)) == sorted([*knoi.__all__, "__version__"])
    for name in knoi.__all__:
        assert getattr(knoi, name).__name__ == name
        assert getattr(knoi, name).__doc__
    with pytest.raises(AttributeError, match=r"^module 'knoi' has no attribute 'PCA'$"):
        _ = knoi.PCA


def test_type_checkers_import_every_public_name_from_where_it_is():
    tree = ast.parse(Path(knoi.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name: line.module for line in block.body for alias in line.names}
    assert imported == knoi._HOMES
    assert sorted(imported) == sorted(knoi.__all__)


def test_mypy_finds_a_misspelt_parameter(tmp_path):
    pytest.importorskip("mypy")
    user = tmp_path / "user.py"
    user.write_text(
        "import numpy as np\n"
        "from knoi import KNOI, LinearCCA, load, total_correlation\n"
        "X = np.zeros((10, 3))\n"
        "model = KNOI(n_components=2, kernel='rbf').fit(X, X)\n"
        "score: float = model.score(X, X) + total_correlation(X, X)\n"
        "load('model.knoi').transform(X)\n"
        "LinearCCA(2, reg=1e-3)\n"
        "KNOI(n_components=2, kernal='rbf')\n"
        "from knoi import PCA\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    run = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), str(user)],
        env={**os.environ, "MYPYPATH": str(Path(knoi.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in run.stdout.splitlines() if ": error: " in line]
    assert [error.removeprefix(f"{user}:") for error in errors] == [
        '8: error: Unexpected keyword argument "kernal" for "KNOI"; did you mean "kernel"?  '
        "[call-arg]",
        '9: error: Module "knoi" has no attribute "PCA"  [attr-defined]',
    ]


def loaded_after(code):
    """Which optional modules a fresh interpreter has loaded after running `code`."""
    report = f"{code}\nimport sys\nprint(*(m for m in {OPTIONAL} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_and_fitting_arrays_loads_no_optional_dependency():
    assert loaded_after("import knoi") == []
    code = (
        "import numpy as np, knoi\n"
        "X = np.random.default_rng(0).standard_normal((50, 3))\n"
        "for name in ('LinearCCA', 'KernelCCA', 'FourierCCA', 'NystromCCA', 'KNOI'):\n"
        "    model = getattr(knoi, name)(1, n_jobs=1).fit(X, X[:, :2])\n"
        "    model.score(X, X[:, :2]), model._repr_html_()"
    )
    # scikit-learn imports pandas, and pandas pyarrow, where they are installed.
    by_scikit_learn = loaded_after("import sklearn.base, sklearn.utils.validation, sklearn.cluster")
    assert set(loaded_after(code)) <= set(by_scikit_learn)
    assert not {"torch", "h5py", "zarr", "polars", "matplotlib"} & set(by_scikit_learn)


@pytest.mark.parametrize("name", ["closed_form", "kernel_cca", "knoi", "dsgd"])
def test_examples_in_docstrings_run(name):
    module = import_module(f"knoi.estimators.{name}")
    results = doctest.testmod(module, raise_on_error=False)
    assert results.attempted > 0
    assert results.failed == 0
