"""Fits on a device: few transfers, and usable where there is none."""

import numpy as np
import pytest
import torch

import knoi
from knoi import DeepCCA
from knoi.arrays.backend import torch_backend
from knoi.exceptions import InputError
from tests.estimators.models import every_estimator, related_views, small, small_knoi
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


# A minibatch and the residuals of each view go up, the scores of each view come down.
STEPS = {
    "fourier": small_knoi("published", epochs=1, held_out=0),
    "columns": small_knoi(epochs=1, held_out=0),
    "deep": DeepCCA(2, hidden=(16, 16), batch_size=60, epochs=1, held_out=0, head="linear"),
}


@pytest.mark.parametrize("name", STEPS)
def test_transfers_of_a_step(name):
    X, Y = related_views(1200, dtype=np.float32)
    seen = []
    with FakeCuda() as gpu:

        def record(state, result):
            seen.append(gpu.counts.copy())
            return state

        params = STEPS[name].get_params() | {"device": "cuda", "n_jobs": 1, "random_state": 0}
        type(STEPS[name])(**params | {"callbacks": [record]}).fit(X, Y)
    step = seen[10] - seen[9]
    assert step["uploads"] <= 4
    assert step["downloads"] <= 2
    assert step["operations"] <= 100
    assert step["waits"] == 0


def test_free_memory_is_that_of_the_device():
    with FakeCuda(free_bytes=12345):
        assert torch_backend("cuda", "float32").free_bytes() == 12345
        assert torch_backend("cuda:0", "float32").free_bytes() == 12345


def test_a_device_without_float64(monkeypatch):
    plain = torch.empty

    def empty(*args, dtype=None, **kwargs):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return plain(*args, **kwargs | {"device": "cpu"})

    monkeypatch.setattr(torch, "empty", empty)
    message = r"^device='mps' has no float64, which every method but DeepCCA needs"
    with pytest.raises(InputError, match=message):
        torch_backend("mps", "float32")
    assert torch_backend("mps", "float32", float64=False).device == "mps"
