import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.exceptions import ModelFileError
from knoi.features import Identity, KernelColumns, Nystrom, RandomFourier, map_from_state
from knoi.features.landmarks import select_landmarks
from knoi.kernels import RBF, Chi2, Laplacian, Matern, Polynomial
from tests.contracts.feature_map import FeatureMapContract, MapCase


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).standard_normal((60, 5))
    X.setflags(write=False)
    return X


def fourier(rows, kernel=RBF(2.0), rank=11, seed=0, view=View.X, **options):  # noqa: B008
    return RandomFourier.fit(rows, kernel, rank, seed, view, **options)


def nystrom(rows, kernel=RBF(2.0), rank=11, method="uniform", seed=0):  # noqa: B008
    return Nystrom.fit(select_landmarks(rows, kernel, rank, seed, View.X, method), kernel)


MAPS = {
    "identity": (lambda rows: Identity(5), 5),
    "nystrom": (lambda rows: nystrom(rows, method="kmeans"), 11),
    "nystrom-polynomial": (lambda rows: nystrom(rows, Polynomial(width=2.0)), 11),
    "nystrom-duplicates": (
        lambda rows: Nystrom.fit(np.vstack([rows[:8], rows[:4]]), RBF(2.0)),
        8,
    ),
    "kernel-columns": (lambda rows: KernelColumns(Laplacian(4.0), rows[:11]), 11),
}


@pytest.fixture(params=MAPS, scope="module")
def case(request, rows):
    make, rank = MAPS[request.param]
    return MapCase(make(rows), rows[:20], rank)


class TestEveryMap(FeatureMapContract):
    pass


def test_a_map_of_an_unknown_kind_raises():
    expected = (
        r"^the model uses a feature map of kind 'wavelet', which this version of knoi does not "
        r"know \(it knows .*identity, kernel_columns, .*\)\. "
        r"Upgrade knoi to read it\.$"
    )
    with pytest.raises(ModelFileError, match=expected):
        map_from_state({"kind": "wavelet"})


class TestRandomFourier:
    def test_paired_features_have_unit_length(self, rows):
        Phi = fourier(rows, rank=40, paired=True).transform(rows)
        np.testing.assert_allclose((Phi**2).sum(1), 1.0, atol=1e-12)

    def test_is_the_formula(self, rows):
        features = fourier(rows, rank=30)
        W, b, c = features.W, features.phases, rows.mean(0)
        expected = np.sqrt(2 / 30) * np.cos((rows - c) @ W + b)
        np.testing.assert_allclose(features.transform(rows), expected, atol=1e-12)

    def test_far_from_the_origin_float32_keeps_its_digits(self, rows):
        # Rows that float32 holds exactly after the shift, so that only the map can lose digits.
        near = np.round(rows * 64) / 64
        far = near + 1e4
        single = numpy_backend("float32")
        features = fourier(far.astype(np.float32), rank=50, paired=True).to(single)
        # The centre rounds in float32 and turns the phases by that much; no more may be lost.
        turned = near - (features.centre.astype(np.float64) - 1e4)
        argument = turned @ fourier(near, rank=50, paired=True).W + features.phases
        np.testing.assert_allclose(
            features.transform(far.astype(np.float32)), 0.2 * np.cos(argument), atol=1e-6
        )


class TestNystrom:
    @pytest.mark.parametrize("kernel", [Laplacian(6.0), Polynomial(width=2.0)])
    def test_reproduces_the_kernel_on_its_landmarks(self, rows, kernel):
        features = nystrom(rows, kernel, 20)
        Z = features.columns.landmarks
        Phi, Psi = features.transform(rows), features.transform(Z)
        exact = kernel(rows, Z)
        np.testing.assert_allclose(Phi @ Psi.T, exact, atol=1e-7 * np.abs(exact).max())

    @pytest.mark.parametrize("kernel", [Matern(2.0), Chi2(1.0)], ids=lambda k: k.name)
    def test_with_all_points_it_is_the_kernel(self, rows, kernel):
        positive = np.abs(rows)
        Phi = Nystrom.fit(positive, kernel).transform(positive)
        np.testing.assert_allclose(Phi @ Phi.T, kernel(positive, positive), atol=1e-7)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_duplicate_landmarks_cost_rank_and_nothing_else(self, rows, dtype):
        Z = rows[:10].astype(dtype)
        plain = Nystrom.fit(Z, RBF(1.0)).transform(rows.astype(dtype))
        double = Nystrom.fit(np.vstack([Z, Z, Z[:3]]), RBF(1.0))
        assert double.rank == 10
        Phi = double.transform(rows.astype(dtype))
        np.testing.assert_allclose(
            Phi @ Phi.T, plain @ plain.T, atol=1e-8 if dtype == np.float64 else 1e-3
        )

    @pytest.mark.parametrize("method", ["uniform", "kmeans"])
    def test_far_from_the_origin_float32_keeps_its_digits(self, rows, method):
        near = np.round(rows * 64) / 64
        far = (near + 1e4).astype(np.float32)
        features = nystrom(far, rank=20, method=method)
        assert features.rank > 15
        Phi = features.to(numpy_backend("float32")).transform(far).astype(np.float64)
        Z = features.columns.landmarks.astype(np.float64)
        K = RBF(2.0)(near + 1e4, Z)
        exact = K @ np.linalg.pinv(RBF(2.0)(Z, Z), hermitian=True) @ K.T
        np.testing.assert_allclose(Phi @ Phi.T, exact, atol=2e-3)
