"""Methods that solve the same problem give the same model, and approximations converge."""

import numpy as np
import pytest

from knoi import FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.kernels import RBF, Laplacian, Matern, Polynomial
from tests.estimators.models import assert_same_model, assert_same_up_to_sign, both_devices
from tests.oracles.cca import kernel_cca, linear_cca


class TestMethodsAgree:
    @both_devices
    @pytest.mark.parametrize("reg", [0.0, (1e-3, 0.1)])
    def test_linear_cca_is_the_formula(self, two_views, reg, device):
        X, Y = two_views
        model = LinearCCA(3, reg=reg, device=device).fit(X, Y)
        rx, ry = (np.broadcast_to(reg, 2) * [np.var(X, 0).sum(), np.var(Y, 0).sum()]).tolist()
        U, V, correlations = linear_cca(X, Y, 3, rx, ry)
        np.testing.assert_allclose(model.projection_.singular_values, correlations, atol=1e-10)
        assert_same_up_to_sign(model.x_weights_, U, atol=1e-9)
        assert_same_up_to_sign(model.y_weights_, V, atol=1e-9)
        np.testing.assert_allclose(model.transform(X), (X - X.mean(0)) @ model.x_weights_)
        np.testing.assert_allclose(model.transform_y(Y), (Y - Y.mean(0)) @ model.y_weights_)

    @pytest.mark.parametrize(("reg", "device"), [(1e-4, None), ((1e-2, 1e-3), "cpu")])
    def test_kernel_cca_is_the_papers_eigenproblem(self, two_views, reg, device):
        X, Y = two_views
        kernels = RBF(3.0), Laplacian(8.0)
        model = KernelCCA(4, kernel=kernels, reg=reg, device=device, metric=None, scale=None).fit(
            X, Y
        )
        Ks = kernels[0](X, X), kernels[1](Y, Y)
        H = np.eye(200) - 1 / 200
        r = [
            one * np.trace(H @ K @ H) / 200
            for one, K in zip(np.broadcast_to(reg, 2), Ks, strict=True)
        ]
        found = model.projection_.singular_values
        np.testing.assert_allclose(found, kernel_cca(*Ks, 4, *r), atol=1e-8)

    @pytest.mark.parametrize(("reg", "device"), [(1e-10, None), (1e-3, "cpu"), ((0.1, 1e-2), None)])
    def test_kernel_cca_with_a_linear_kernel_is_linear_cca(self, two_views, reg, device):
        given = {"reg": reg, "scale": None, "device": device}
        linear = LinearCCA(3, **given).fit(*two_views)
        kernel = KernelCCA(3, kernel="linear", **given).fit(*two_views)
        assert_same_model(kernel, linear, *two_views)
        new = [np.random.default_rng(1).standard_normal((7, v.shape[1])) for v in two_views]
        assert_same_model(kernel, linear, *new)

    @pytest.mark.parametrize(
        ("kernel", "landmarks", "device"),
        [
            ("rbf", "uniform", "cpu"),
            (Polynomial(degree=2), "pivoted_cholesky", None),
            ((Matern(), "linear"), "uniform", None),
        ],
    )
    def test_nystrom_with_all_points_is_kernel_cca(self, two_views, kernel, landmarks, device):
        same = {"kernel": kernel, "reg": 1e-3, "random_state": 0, "device": device}
        exact = KernelCCA(3, **same).fit(*two_views)
        for rank in (200, 1000):
            model = NystromCCA(3, rank=rank, landmarks=landmarks, **same).fit(*two_views)
            assert_same_model(model, exact, *two_views, tolerance=1e-7)
        new = [v[:9] + 0.1 for v in two_views]
        assert_same_model(model, exact, *new, tolerance=1e-6)

    @pytest.mark.parametrize("paired", [False, True])
    def test_fourier_approaches_kernel_cca_as_rank_grows(self, two_views, paired):
        same = {"kernel": RBF(4.0), "reg": 1e-2}
        exact = KernelCCA(3, **same).fit(*two_views).correlations_

        def error(rank):
            found = [
                FourierCCA(3, rank=rank, random_state=seed, paired=paired, **same)
                .fit(*two_views)
                .correlations_
                for seed in range(3)
            ]
            return np.sqrt(np.mean((np.array(found) - exact) ** 2))

        errors = [error(rank) for rank in (16, 128, 1024)]
        assert errors[0] > 1.7 * errors[1] > 1.7**2 * errors[2]
        assert errors[2] < 2e-2

    def test_nystrom_approaches_kernel_cca_as_rank_grows(self, two_views):
        same = {"kernel": RBF(4.0), "reg": 1e-2, "random_state": 0}
        exact = KernelCCA(3, **same).fit(*two_views).projection_
        models = [NystromCCA(3, rank=rank, **same).fit(*two_views) for rank in (10, 50, 150)]
        errors = [
            np.abs(model.projection_.singular_values - exact.singular_values).max()
            for model in models
        ]
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 1e-3
