"""Fixtures every numeric test shares: one backend after the other, and small paired views."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import knoi.data.csv
from knoi.arrays.backend import numpy_backend, torch_backend

# Examples are drawn the same way every time: a failure in CI is a failure here.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(params=["numpy", "torch"])
def backend(request):
    """Each backend in turn, in float64."""
    return numpy_backend("float64") if request.param == "numpy" else torch_backend("cpu", "float64")


@pytest.fixture
def two_views():
    """200 rows of two correlated views, read-only so that no code can damage them."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((200, 3))
    X = np.hstack([shared, rng.standard_normal((200, 3))]) @ rng.standard_normal((6, 6))
    Y = np.hstack([shared, rng.standard_normal((200, 1))]) @ rng.standard_normal((4, 4))
    Y += 0.5 * rng.standard_normal(Y.shape)
    for view in (X, Y):
        view.setflags(write=False)
    return X, Y


@pytest.fixture
def csv_conversions(monkeypatch):
    """The paths of the CSV files converted during the test, one entry per conversion."""
    paths = []
    convert = knoi.data.csv._convert

    def counted(layout, dtype, label):
        paths.append(layout.path)
        return convert(layout, dtype, label)

    monkeypatch.setattr("knoi.data.csv._convert", counted)
    return paths


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data sets, beside the project; tests that need it skip without it."""
    folder = Path(os.environ.get("KNOI_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data sets at {folder}: set KNOI_DATA to where they are")
    return folder


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, or another that is installed; headless, one for all tests."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"no browser ({', '.join(names)}): apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
