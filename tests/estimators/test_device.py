"""Fits on a device: few transfers, and usable where there is none."""

import pickle

import numpy as np
import pytest
import torch

import knoi
from knoi import DeepCCA, DoublyStochasticCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.data.pairs import PairSource
from knoi.exceptions import InputError, NonFiniteError
from tests.estimators.models import (
    AS_PUBLISHED,
    every_estimator,
    related_views,
    small,
    small_knoi,
    streamed,
    with_value,
)
from tests.fake_cuda import FakeCuda


@every_estimator
def test_a_model_fitted_on_a_device_is_used_where_there_is_none(estimator, tmp_path):
    X, Y = related_views(300)
    with FakeCuda():
        model = small(estimator, device="cuda", n_jobs=1).fit(X, Y)
        Z = model.transform(X)
        model.save(tmp_path / "m.knoi")
    with pytest.warns(UserWarning, match=r"fitted with device='cuda'; here it projects with NumPy"):
        again = knoi.load(tmp_path / "m.knoi")
    assert again.device is None
    np.testing.assert_allclose(again.transform(X), Z, atol=1e-6)


# The scores of each view come down; residuals go up, and minibatches that are not there yet.
STEPS = {
    "fourier": small_knoi("published", epochs=1, held_out=0),
    "columns": small_knoi(epochs=1, held_out=0),
    "deep": DeepCCA(2, hidden=(16, 16), batch_size=60, epochs=1, held_out=0, head="linear"),
}


def fitted(model, X, Y, gpu, **params):
    """The model fitted on the device, and the counts after every step."""
    seen = []

    def record(state, result):
        seen.append(gpu.counts.copy())
        return state

    given = model.get_params() | {"device": "cuda", "n_jobs": 1} | params
    if "random_state" in given:
        given["random_state"] = 0
    if "callbacks" in given:
        given["callbacks"] = [record]
    gpu.counts.clear()
    return type(model)(**given).fit(X, Y), seen


def tensors(X, Y):
    return [torch.tensor(view, device="cuda") for view in (X, Y)]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(("where", "uploads"), [("host", 4), ("device", 2)])
def test_transfers_of_a_step(name, where, uploads):
    X, Y = related_views(1200, dtype=np.float32)
    with FakeCuda() as gpu:
        _, seen = fitted(STEPS[name], *(tensors(X, Y) if where == "device" else (X, Y)), gpu)
    step = seen[10] - seen[9]
    assert step["uploads"] <= uploads
    assert step["downloads"] <= 2
    assert step["operations"] <= 100
    assert step["waits"] == 0


@pytest.mark.parametrize("name", ["columns", "deep"])
def test_held_out_rows_are_uploaded_once(name):
    X, Y = related_views(2000, dtype=np.float32)
    with FakeCuda() as gpu:
        model, seen = fitted(STEPS[name], X, Y, gpu, held_out=0.1, epochs=8, tol=None)
    evaluated = [k for k, value in enumerate(model.history_["held_out"]) if np.isfinite(value)]
    assert len(evaluated) > 2
    first = model.history_["step"][evaluated[0]]
    assert (seen[-1] - seen[first])["uploads"] == 4 * (len(seen) - 1 - first)


# The fit that a tensor on the device has must be that of an array, to the bit.
MODELS = {
    "linear": LinearCCA(2, reg=1e-3),
    "kernel": KernelCCA(2, reg=1e-3, **AS_PUBLISHED),
    "chi2": NystromCCA(2, rank=30, kernel="chi2", **AS_PUBLISHED),
    "dsgd": DoublyStochasticCCA(
        2, rank=64, feature_block=32, batch_size=60, epochs=2, **AS_PUBLISHED
    ),
    "columns": small_knoi(epochs=2, held_out=0.1),
    "deep": DeepCCA(2, hidden=(8,), batch_size=100, epochs=2, head="linear"),
}


@pytest.mark.parametrize("name", MODELS)
def test_tensors_stay_on_the_device(name):
    X, Y = (np.abs(view) for view in related_views(1200, dtype=np.float32))
    with FakeCuda() as gpu:
        model, _ = fitted(MODELS[name], X, Y, gpu)
        host, before = gpu.counts.copy(), gpu.counts["uploads"]
        Z, score = model.transform(X, Y), model.score(X, Y)
        projecting = gpu.counts["uploads"] - before
        there = tensors(X, Y)
        model, _ = fitted(MODELS[name], *there, gpu)
        # A few samples come down: for widths, landmarks, the start and the final passes.
        assert gpu.counts["downloads"] - host["downloads"] <= 20
        assert gpu.counts["uploads"] <= host["uploads"]
        gpu.counts.clear()
        np.testing.assert_array_equal(model.transform(*there), Z)
        assert model.score(*there) == score
        assert gpu.counts["uploads"] == projecting - 4  # without the rows of each view


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["columns", "deep"])
def test_tensors_of_any_precision(name, dtype):
    X, Y = related_views(1200)
    with FakeCuda() as gpu:
        there = [(8 * abs(one)).to(dtype) for one in tensors(X, Y)]
        here = [one.cpu().to(torch.float32 if dtype == torch.bfloat16 else dtype) for one in there]
        found = [fitted(MODELS[name], *views, gpu)[0] for views in (here, there)]
    np.testing.assert_array_equal(*(model.correlations_ for model in found))


def test_tensors_on_another_device_are_downloaded_once():
    X, Y = related_views(1200, dtype=np.float32)
    expected = small_knoi(epochs=2).fit(X, Y)
    with FakeCuda() as gpu:
        model, _ = fitted(small_knoi(epochs=2), *tensors(X, Y), gpu, device=None)
        assert gpu.counts["downloads"] <= 4  # those of no rows included, which show the dtype
        # If they do not fit, they are read like files; rows that are far apart come in one piece.
        pairs = PairSource.open(*tensors(X, Y))
        pairs.settle(numpy_backend("float32"), budget=X.nbytes)
        assert not pairs.random_access
        gpu.counts.clear()
        assert len(pairs.sample(100, 0)[0]) == 100
        assert gpu.counts["downloads"] == 2
    np.testing.assert_array_equal(model.correlations_, expected.correlations_)


@pytest.mark.parametrize("device", ["cuda", None])
def test_bad_values_of_a_tensor_are_named(device):
    X, Y = related_views(300)
    Y = with_value(Y, 211, 2, np.inf)
    with FakeCuda(), pytest.raises(NonFiniteError, match=r"^Y has inf at row 211, column 2: "):
        small(LinearCCA, device=device, n_jobs=1).fit(*tensors(X, Y))


def test_free_memory_is_that_of_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: 200)
    with FakeCuda(free_bytes=12345):
        for name in ("cuda", "cuda:0"):  # blocks that torch caches but does not use are free
            assert torch_backend(name, "float32").free_bytes() == 12345 + 500


@every_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_device_without_float64(estimator, dtype, tmp_path):
    X, Y = related_views(300, dtype=dtype)
    with FakeCuda("mps") as device:
        model = small(estimator, device="mps", n_jobs=1)
        if estimator is not DeepCCA:
            message = r"^device='mps' has no float64, which every method but DeepCCA needs"
            with pytest.raises(InputError, match=message):
                model.fit(X, Y)
            assert device.counts["operations"] <= 2
            return
        model.fit(X, Y).save(tmp_path / "m.knoi")
        assert device.counts["uploads"] > 0
        np.testing.assert_array_equal(
            model.transform(X), knoi.load(tmp_path / "m.knoi").transform(X)
        )
        streamed(model, X, Y, (0, 150, 300))
        streamed(pickle.loads(pickle.dumps(model)), X, Y, (0, 300))
