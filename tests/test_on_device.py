"""On a device everything gives what it gives on the CPU: kernels, feature maps, estimators."""

import numpy as np
import pytest

import knoi.arrays.fast
from knoi import KNOI, DeepCCA, DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.arrays.backend import torch_backend
from knoi.estimators import ESTIMATORS
from knoi.exceptions import InputError
from knoi.features import KernelColumns
from knoi.features.registry import REGISTRY
from knoi.kernels import KERNELS, RBF, ArcCosine, Cauchy, Laplacian, Linear, Matern, Polynomial
from tests.estimators.models import SOLVERS, made, related_views
from tests.estimators.test_approximations import KERNELS as KERNEL_OF
from tests.fake_cuda import FakeCuda
from tests.features.test_contract import CASES as MAPS

EVERY_KERNEL = {
    name: kernel(2.0) if "width" in kernel.__dataclass_fields__ else kernel()
    for name, kernel in KERNELS.items()
} | {
    "matern-1/2": Matern(2.0, nu=0.5),
    "matern-5/2": Matern(2.0, nu=2.5),
    "matern-bessel": Matern(2.0, nu=0.8),
    "arccosine-0": ArcCosine(0),
    "arccosine-2": ArcCosine(2),
    "sum": RBF(2.0) + 2 * Laplacian(3.0),
    "product": Cauchy(2.0) * Polynomial(2.0),
}


@pytest.fixture
def gpu():
    with FakeCuda() as device:
        yield device


def on_both(compute, dtype="float64"):
    """What `compute(backend)` returns on the device and on the CPU, as NumPy arrays."""
    backends = [torch_backend(device, dtype) for device in ("cuda", "cpu")]
    return [backend.to_numpy(compute(backend)) for backend in backends]


def histograms(n, d, seed):
    """Rows that every kernel takes, some of them repeated or empty."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X = np.maximum(X, 0.0)
    X[3:6] = X[2]
    X[7] = 0.0
    return X


class TestKernels:
    @pytest.mark.parametrize("name", EVERY_KERNEL)
    @pytest.mark.parametrize("at_once", [2**24, 200], ids=["whole", "in blocks"])
    def test_equal(self, name, at_once, gpu, monkeypatch):
        def numbers(like):
            return at_once

        for module in ("arrays.fast", "kernels.distances"):
            monkeypatch.setattr(f"knoi.{module}.numbers_at_once", numbers)
        kernel, X, Z = EVERY_KERNEL[name], histograms(30, 7, 0), histograms(20, 7, 1)
        Z[4:9] = X[4:9]
        K = on_both(lambda backend: kernel(backend.asarray(X), backend.asarray(Z)))
        np.testing.assert_allclose(*K, rtol=1e-9, atol=1e-12)
        K = on_both(lambda backend: kernel(one := backend.asarray(X), one))
        np.testing.assert_allclose(*K, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("name", EVERY_KERNEL)
    def test_few_launches_and_no_wait(self, name, gpu):
        backend = torch_backend("cuda", "float32")
        columns = KernelColumns(EVERY_KERNEL[name], histograms(64, 392, 1).astype(np.float32))
        columns, X = columns.to(backend), backend.asarray(histograms(32, 392, 0))
        columns.transform(X)
        gpu.counts.clear()
        columns.block(columns.prepare(X), slice(0, 64))
        assert gpu.counts["waits"] == 0
        assert gpu.counts["operations"] <= 70
        # Bessel functions are computed by SciPy, once for the block.
        transfers = int(name == "matern-bessel")
        assert gpu.counts["uploads"] == gpu.counts["downloads"] == transfers

    @pytest.mark.parametrize("width", [1e-30, 1e300])
    @pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Cauchy(), Matern()], ids=repr)
    def test_extreme_widths(self, kernel, width, gpu):
        X = histograms(9, 5, 0)
        X[3:] += np.arange(1, 7)[:, None]  # no equal rows
        backend = torch_backend("cuda", "float32")
        rows = backend.asarray(X)
        K = backend.to_numpy(kernel.with_width(width)(rows, rows))
        np.testing.assert_allclose(K, np.eye(9) if width < 1 else np.ones((9, 9)), atol=1e-30)


class TestFeatureMaps:
    @pytest.mark.parametrize("name", MAPS)
    def test_equal(self, name, gpu):
        case = MAPS[name]()

        def features(backend):
            return case.features.to(backend).transform(backend.asarray(case.X))

        np.testing.assert_allclose(*on_both(features), rtol=1e-9, atol=1e-11)

    @pytest.mark.parametrize("name", ["hadamard", "hadamard-phases", "fastfood"])
    def test_transforms_are_few_products(self, name, gpu):
        backend = torch_backend("cuda", "float32")
        features, X = MAPS[name]().larger.to(backend), backend.asarray(MAPS[name]().X)
        features.transform(X)
        gpu.counts.clear()
        features.block(features.prepare(X), slice(0, features.rank))
        assert gpu.counts["operations"] <= 60
        assert set(gpu.counts) == {"operations"}

    def test_several_blocks_of_frequencies_at_a_time(self, gpu, monkeypatch):
        case = MAPS["hadamard-phases"]()
        monkeypatch.setattr(
            "knoi.features.structured.numbers_at_once", lambda like: 2 * 512 * len(case.X)
        )

        def features(backend):
            return case.larger.to(backend).transform(backend.asarray(case.X))

        np.testing.assert_allclose(*on_both(features), atol=1e-12)
        monkeypatch.setattr(knoi.arrays.fast, "compiled", lambda: None)
        np.testing.assert_allclose(*on_both(features), atol=1e-12)


FITS = {
    "linear": LinearCCA(2, reg=1e-3),
    "kernel": KernelCCA(2, reg=1e-3),
    "dsgd": DoublyStochasticCCA(2, rank=64, feature_block=32, batch_size=60, epochs=2),
    "deep": DeepCCA(2, hidden=(8,), batch_size=100, epochs=3),
}
FITS |= {
    f"fourier-{name}": FourierCCA(2, rank=64, approximation=name, kernel=KERNEL_OF.get(name, RBF()))
    for name in REGISTRY
}
FITS |= {
    f"nystrom-{name}": NystromCCA(2, rank=20, kernel=kernel())
    for name, kernel in KERNELS.items()
    if kernel is not Linear
}
FITS |= {
    f"knoi-{name}": KNOI(2, rank=30, batch_size=60, extra_directions=3, epochs=2, **solver)
    for name, solver in (SOLVERS | {"hadamard": {"approximation": "hadamard"}}).items()
}


@pytest.mark.parametrize("name", FITS)
def test_fits_are_equal(name, gpu):
    X, Y = (np.abs(view) for view in related_views(300))
    params = FITS[name].get_params() | {"random_state": 0, "n_jobs": 1}
    fits = [
        made(type(FITS[name]), **params | {"device": device}).fit(X, Y)
        for device in ("cuda", "cpu")
    ]
    assert gpu.counts["uploads"] > 0
    np.testing.assert_allclose(*(model.correlations_ for model in fits), rtol=1e-7)
    Z, expected = (model.transform(X) for model in fits)
    np.testing.assert_allclose(Z, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("estimator", "message"),
    [(NystromCCA, "their squares overflow float32"), (KNOI, "kernel values .* overflow float32")],
)
def test_kernels_that_overflow_are_refused(estimator, message, gpu):
    X, Y = (1e6 * view for view in related_views(300, dtype=np.float32))
    own = {"solver": "stochastic"} if estimator is KNOI else {}
    own |= {"rank": 20, "metric": None, "scale": None, "device": "cuda", "n_jobs": 1}
    model = made(estimator, kernel=Polynomial(1.0, degree=4), **own)
    with pytest.raises(InputError, match=message):
        model.fit(X, Y)


def test_every_estimator_is_fitted():
    assert {type(model) for model in FITS.values()} == set(ESTIMATORS)
