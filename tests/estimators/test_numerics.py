"""Views of any unit and precision, and views that hardly vary or not at all."""

import numpy as np
import pytest

from knoi import DeepCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.exceptions import InputError, InSampleWarning
from knoi.kernels import RBF
from tests.estimators.models import (
    assert_same_model,
    assert_same_up_to_sign,
    every_estimator,
    small,
)

CHANGES = {
    "shift": lambda X: X + 1e3 * X.std(),
    "1e-12": lambda X: X * 1e-12,
    "1e12": lambda X: X * 1e12,
    "1e12 and shift": lambda X: (X - 1e3 * X.std()) * 1e12,
}


class TestUnits:
    @every_estimator
    @pytest.mark.parametrize(
        ("change", "changed", "dtype", "device"),
        [
            ("shift", "both", np.float64, "cpu"),
            ("1e-12", "X", np.float64, None),
            ("1e12", "Y", np.float32, None),
            ("1e12 and shift", "both", np.float32, None),
        ],
    )
    def test_shift_and_scale_change_nothing(
        self, two_views, estimator, change, dtype, changed, device
    ):
        X, Y = (np.round(view * 64) / 64 for view in two_views)
        # The means are not 0.
        A = CHANGES[change](X + 0.5) if changed != "Y" else X
        B = CHANGES[change](Y - 0.25) if changed != "X" else Y
        X, Y, A, B = (view.astype(dtype) for view in (X, Y, A, B))
        plain = small(estimator, device=device).fit(X, Y)
        other = small(estimator, device=device).fit(A, B)
        tolerance = 1e-7 if dtype == np.float64 else 2e-3
        np.testing.assert_allclose(other.correlations_, plain.correlations_, atol=tolerance)
        assert other.score(A, B) == pytest.approx(plain.score(X, Y), abs=2 * tolerance)
        for Z, W in zip(other.transform(A, B), plain.transform(X, Y), strict=True):
            assert Z.dtype == dtype
            found = np.diag(np.corrcoef(Z.T, W.T)[:2, 2:])
            np.testing.assert_allclose(np.abs(found), 1.0, atol=tolerance)

    @pytest.mark.parametrize(
        "change",
        [
            lambda X: X * np.array([1e-12, 1.0, 1e12, 1e-3, 1.0, 1e6]),
            lambda X: np.hstack([X, X[:, :2]]),
        ],
        ids=["units of columns", "duplicated columns"],
    )
    def test_unregularised_linear_cca_stays_the_same(self, two_views, change):
        X, Y = two_views
        plain, other = (LinearCCA(3, reg=0).fit(view, Y) for view in (X, change(X)))
        np.testing.assert_allclose(other.correlations_, plain.correlations_, atol=1e-9)
        assert_same_up_to_sign(other.transform(change(X)), plain.transform(X), atol=1e-7)

    def test_an_offset_of_1e9_costs_no_digits(self, two_views):
        X, Y = (np.round(view * 64) / 64 for view in two_views)
        plain = LinearCCA(3).fit(X, Y).correlations_
        found = LinearCCA(3).fit(X + 1e9, Y - 1e9).correlations_
        np.testing.assert_allclose(found, plain, atol=1e-9)


class TestDegenerateViews:
    @every_estimator
    @pytest.mark.parametrize(
        ("value", "dtype", "device"),
        [(0.0, np.float64, "cpu"), (3.7, np.float64, None), (1e9 / 3, np.float32, None)],
    )
    def test_a_constant_column_is_harmless(self, two_views, estimator, value, dtype, device):
        X, Y = (view.astype(dtype) for view in two_views)
        constant = np.full((200, 1), value, dtype)
        plain = small(estimator, device=device).fit(X, Y)
        wider = np.hstack([X, constant])
        padded = small(estimator, device=device).fit(wider, Y)
        if estimator in (FourierCCA, DeepCCA):
            # One more column means other frequencies, or other initial weights.
            assert np.isfinite(padded.transform(wider)).all()
            return
        tolerance = 1e-7 if dtype == np.float64 else 2e-3
        np.testing.assert_allclose(padded.correlations_, plain.correlations_, atol=tolerance)
        assert np.isfinite(padded.transform(wider)).all()

    @pytest.mark.parametrize(("device", "dtype"), [(None, np.float64), ("cpu", np.float32)])
    def test_more_columns_than_rows(self, device, dtype):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((30, 80)).astype(dtype), rng.standard_normal((30, 3))
        with pytest.warns(InSampleWarning):
            model = LinearCCA(3, device=device).fit(X, Y.astype(dtype))
        # 30 rows in 80 dimensions can be fitted exactly.
        tolerance = 1e-8 if dtype == np.float64 else 1e-3
        np.testing.assert_allclose(model.correlations_, 1.0, atol=tolerance)
        Zx, Zy = model.transform(X, Y.astype(dtype))
        np.testing.assert_allclose(Zx, Zy, atol=tolerance * 10)

    @every_estimator
    def test_more_columns_than_rows_regularised(self, estimator):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((30, 80)), rng.standard_normal((30, 60))
        model = small(estimator, reg=0.1).fit(X, Y)
        assert np.all((model.correlations_ > 0) & (model.correlations_ < 1))
        assert all(np.isfinite(Z).all() for Z in model.transform(X, Y))

    @every_estimator
    def test_repeated_rows(self, two_views, estimator):
        X, Y = (np.repeat(view[:20], 10, axis=0) for view in two_views)
        model = small(estimator, reg=1e-2, kernel=RBF(3.0)).fit(X, Y)
        assert np.isfinite(model.transform(X)).all()
        if estimator in (LinearCCA, KernelCCA):
            once = small(estimator, reg=1e-2, kernel=RBF(3.0)).fit(X[::10], Y[::10])
            assert_same_model(model, once, X, Y)

    @pytest.mark.parametrize("estimator", [LinearCCA, KernelCCA, FourierCCA, NystromCCA])
    def test_more_components_than_directions(self, two_views, estimator):
        X, Y = (np.repeat(view[:4], 50, axis=0) for view in two_views)
        params = {"kernel": RBF(3.0), "reg": 0.0, "paired": True}
        model = small(estimator, n_components=4, **params)
        with pytest.raises(InputError, match="n_components=4 but view X varies in only 3 "):
            model.fit(X, Y)

    @every_estimator
    def test_a_view_that_does_not_vary(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator, n_components=1, kernel=RBF(1.0))
        with pytest.raises(InputError, match="view Y does not vary: all "):
            model.fit(X, np.full_like(Y, 3.3))

    @pytest.mark.parametrize(("device", "dtype"), [(None, np.float64), ("cpu", np.float32)])
    def test_many_equal_rows_do_not_vary_by_rounding(self, device, dtype):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((16_384, 1)).astype(dtype)
        # Sums over this many rows have visible rounding errors, which are not variance.
        Y = np.tile((rng.standard_normal(40) * 10).astype(dtype), (16_384, 1))
        with pytest.raises(InputError, match=r"^view Y does not vary"):
            LinearCCA(1, device=device).fit(X, Y)


class TestPrecision:
    @pytest.mark.parametrize(
        "model",
        [KernelCCA(2, reg=0.0), NystromCCA(2, rank=60, reg=1e-12, random_state=0)],
        ids=lambda model: type(model).__name__,
    )
    @pytest.mark.filterwarnings("ignore::knoi.exceptions.InSampleWarning")
    def test_a_model_projects_in_the_precision_of_its_fit(self, two_views, model):
        X, Y = (view.astype(np.float32) for view in two_views)
        model.fit(X.astype(np.float64), Y.astype(np.float64))
        exact = model.transform(X.astype(np.float64), Y.astype(np.float64))
        for Z, wanted in zip(model.transform(X, Y), exact, strict=True):
            assert Z.dtype == np.float32
            np.testing.assert_allclose(Z, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())

    def test_whole_numbers_far_from_zero_are_not_constant(self):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 4, (3000, 3))
        Y = X[:, :2] + rng.integers(0, 2, (3000, 2))
        near = LinearCCA(2).fit(X.astype(np.float32), Y.astype(np.float32))
        far = LinearCCA(2).fit((X + 4_000_000).astype(np.float32), Y.astype(np.float32))
        np.testing.assert_allclose(far.correlations_, near.correlations_, atol=1e-5)

    def test_a_torch_device_object_is_a_device(self, two_views):
        torch = pytest.importorskip("torch")
        found = LinearCCA(device=torch.device("cpu")).fit(*two_views).correlations_
        np.testing.assert_allclose(found, LinearCCA().fit(*two_views).correlations_)
