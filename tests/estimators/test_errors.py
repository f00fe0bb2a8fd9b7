"""Errors of estimators: what came and what was expected."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from knoi import KNOI, DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.exceptions import (
    InputError,
    InputTypeError,
    KnoiError,
    MemoryBudgetError,
    NonFiniteError,
)
from knoi.features import Identity, RandomFourier
from knoi.kernels import RBF, Chi2
from tests.estimators.models import (
    closed_forms,
    each_family,
    every_estimator,
    made,
    related_views,
    small_knoi,
    with_value,
)


def small(estimator, **params):
    return made(estimator, **{"rank": 20, "random_state": 0, "n_jobs": 1} | params)


class TestData:
    @each_family
    def test_values_and_shapes_that_no_estimator_takes(self, two_views, estimator):
        X, Y = two_views
        model, name = small(estimator, n_components=1).fit(X, Y), estimator.__name__
        for call, views, text in (
            (model.fit, (with_value(X, 150, 3, np.nan), Y), "X has NaN at row 150, column 3: CCA"),
            (model.fit, (X, with_value(Y, 0, 1, -np.inf)), "Y has -inf at row 0, column 1: CCA"),
            (model.transform, (with_value(X, 199, 5, np.nan),), "X has NaN at row 199, column 5"),
            (model.transform_y, (with_value(Y, 7, 0, np.inf),), "Y has inf at row 7, column 0"),
            (model.fit, (X, Y[:-1]), "X has 200 rows but Y has 199: the views are paired"),
            (model.score, (X, Y[:-1]), "X has 200 rows but Y has 199: the views are paired"),
            (model.fit, (X[:1], Y[:1]), "n_samples=1: CCA needs at least 2 rows"),
            (model.transform, (X[:, :5],), f"X has 5 features, but {name} is expecting 6 features"),
            (model.transform_y, (Y[:, :2],), f"Y has 2 features, but {name} is expecting 4"),
            (model.transform, (X, X), f"Y has 6 features, but {name} is expecting 4"),
        ):
            error = NonFiniteError if " at row " in text else InputError
            with pytest.raises(error, match=f"^{text}"):
                call(*views)

    @each_family
    def test_views_are_two_arguments(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator, n_components=1).fit(X, Y)
        missing = r"^Y: Expected array-like .* got None. CCA needs both views: fit\(X, Y\)\."
        for call in (model.fit, model.fit_transform, model.score):
            with pytest.raises(InputTypeError, match=missing):
                call(X)
        of_tables = (
            r"^X is a (list|tuple) of 2 tables: .* two arguments: fit\(X, Y\), transform\(X, Y\)"
        )
        for call in (model.fit, model.transform, model.score):
            frames = [pd.DataFrame(X), pd.DataFrame(Y)]
            for views in ([X, Y], frames, ["X.npy", "Y.npy"], (X, Y[:, 0]), [X, frames[1][0]]):
                with pytest.raises(InputTypeError, match=of_tables):
                    call(views)

    def test_names_that_were_probably_meant_are_suggested(self, two_views):
        for params, meant in (
            ({"kernel": "rfb"}, "rbf"),
            ({"width": "medain"}, "median"),
            ({"metric": "learnd"}, "learned"),
            ({"landmarks": "levrage"}, "leverage"),
            ({"approximation": "forier"}, "fourier"),
            ({"precondition": "column"}, "columns"),
        ):
            with pytest.raises(InputError, match=rf"Did you mean '{meant}'\?$"):
                small(KNOI, n_components=1, **params).fit(*two_views)

    def test_a_bad_value_in_a_later_chunk_a_file_or_a_frame(self, two_views, tmp_path):
        X, Y = two_views
        frame = pd.DataFrame(with_value(X, 4, 2, np.nan), columns=list("abcdef"))
        with pytest.raises(NonFiniteError, match=r"^X has NaN at row 4, column 2 \('c'\): "):
            LinearCCA().fit(frame, Y)
        X, Y = related_views(3000)
        np.save(tmp_path / "y.npy", with_value(Y, 2777, 2, np.nan))
        model = small(NystromCCA, memory_budget=450_000, kernel=RBF(1.0))
        with pytest.raises(NonFiniteError, match=r"^Y has NaN at row 2777, column 2: "):
            model.fit(X, tmp_path / "y.npy")

    @pytest.mark.parametrize("estimator", [KernelCCA, NystromCCA])
    def test_negative_values_with_a_kernel_for_histograms(self, two_views, estimator):
        X, Y = (np.abs(view) for view in two_views)
        model = small(estimator, kernel=("rbf", "chi2"))
        with pytest.raises(InputError, match=r"view Y: row 111, column 2 has -0\.5, but the"):
            model.fit(X, with_value(Y, 111, 2, -0.5))
        model.set_params(kernel=Chi2(1.0)).fit(X, Y)
        with pytest.raises(InputError, match=r"view X: row 17, column 2 has -0\.5, but the"):
            model.transform(with_value(X, 17, 2, -0.5))

    @pytest.mark.parametrize("estimator", [NystromCCA, KNOI])
    def test_a_later_piece_outside_the_domain_of_the_kernel(self, estimator):
        X, Y = (np.abs(view) for view in related_views(2500))
        model = small(estimator, kernel=Chi2(1.0)).partial_fit(X, Y)
        with pytest.raises(InputError, match=r"view Y: row 2000, column 2 has -0\.5"):
            model.partial_fit(X, with_value(Y, 2000, 2, -0.5))

    @pytest.mark.parametrize(
        ("scale", "dtype", "problem"),
        [
            (1e30, "float32", "large that their squares overflow float32"),
            (1e-170, "float64", "small that their squares vanish in float64"),
        ],
    )
    def test_numbers_whose_squares_overflow_or_vanish(self, two_views, scale, dtype, problem):
        X, Y = (view.astype(dtype) for view in two_views)
        with pytest.raises(InputError, match=f"^view X holds numbers so {problem}"):
            LinearCCA().fit(X * X.dtype.type(scale), Y)

    def test_sampled_rows_that_do_not_vary(self):
        X, Y = related_views(5000)
        with pytest.raises(InputError, match="view Y does not vary: all 4000 sampled rows are"):
            small_knoi(width=1.0).fit(X, np.full_like(Y, 3.3))


class TestFittedModels:
    @every_estimator
    def test_not_fitted(self, two_views, estimator, tmp_path):
        model, (X, Y) = small(estimator), two_views
        for call, args in (
            (model.transform, (X,)),
            (model.transform_y, (Y,)),
            (model.score, (X, Y)),
            (model.plot_correlations, ()),
            (model.save, (tmp_path / "m.knoi",)),
        ):
            with pytest.raises(NotFittedError, match=f"^This {estimator.__name__} instance is not"):
                call(*args)
        assert list(tmp_path.iterdir()) == []

    @every_estimator
    def test_a_failed_fit_keeps_the_old_model(self, two_views, estimator):
        X, Y = two_views
        frame = pd.DataFrame(X, columns=list("abcdef"))
        model = small(estimator).fit(frame, Y)
        before, expected = dict(vars(model)), model.transform(frame, Y)
        bad = with_value(X[:, :5], 199, 1, np.nan), Y[:, :3] * 2
        for views in (bad, (X[:, :5], Y[:7]), (X[:2, :3], Y[:2, :3]), (np.ones((50, 3)), Y[:50])):
            with pytest.raises(KnoiError):
                model.fit(*views)
            assert vars(model) == before
        for Z, W in zip(model.transform(frame, Y), expected, strict=True):
            np.testing.assert_array_equal(Z, W)

    @closed_forms
    def test_a_failed_piece_changes_nothing(self, two_views, estimator):
        X, Y = two_views
        params = {"memory_budget": 200_000, "rank": 5, "kernel": RBF(3.0)}
        model = small(estimator, **params)
        with pytest.raises(NonFiniteError):
            model.partial_fit(with_value(X[:100], 99, 0, np.nan), Y[:100])
        assert not hasattr(model, "n_features_in_")
        model.partial_fit(X[:100], Y[:100])
        with pytest.raises(NonFiniteError):  # after the first chunks of the piece were added
            model.partial_fit(with_value(X, 199, 0, np.nan), Y)
        with pytest.raises(InputError, match=r"Y has 3 features, but .* is expecting 4"):
            model.partial_fit(X, Y[:, :3])
        model.partial_fit(X[100:], Y[100:])
        straight = small(estimator, **params).partial_fit(X[:100], Y[:100])
        straight.partial_fit(X[100:], Y[100:])
        np.testing.assert_array_equal(model.x_weights_, straight.x_weights_)
        assert model.n_features_y_ == 4


FOURIER_X = RandomFourier.fit(np.eye(5), RBF(1.0), 30, 0, 0), "fourier"
FEW_FEATURES = "fourier", Identity(4)
MIXED = "rbf", "linear"
NOT_STATIONARY = "view Y: random Fourier features need the kernel 'rbf', 'laplacian', 'cauchy'"

OUT_OF_RANGE = [
    (LinearCCA(0), "n_components=0: wanted a whole number >= 1"),
    (LinearCCA(5), "n_components=5 but Y has n_features=4: linear CCA has no more components"),
    (KNOI(5, kernel="linear"), "n_components=5 but Y has n_features=4: linear CCA has no more"),
    (KernelCCA(200), "n_components=200 with n_samples=200: CCA needs more rows"),
    (FourierCCA(5, rank=4), "rank=4 is below n_components=5"),
    (
        NystromCCA(width=0),
        "width=0: wanted a positive, finite number, 'median', 'auto', a ",
    ),
    (
        FourierCCA(approximation="hadamard", paired=True),
        "paired=True with approximation=",
    ),
    (LinearCCA(memory_budget="much"), "memory_budget='much' is not a size: wanted None, a number"),
    (LinearCCA(memory_budget=-1), "memory_budget=-1 is not a size: wanted None, a number of bytes"),
    (LinearCCA(n_jobs=0), "n_jobs=0: wanted None (all cores), a number of threads, or -1"),
    (LinearCCA(reg=-1), "reg=-1: wanted a finite number >= 0"),
    (DoublyStochasticCCA(reg=-1), "reg=-1: wanted a finite number >= 0"),
    (DoublyStochasticCCA(feature_block=0), "feature_block=0: wanted a whole number >= 1"),
    (DoublyStochasticCCA(learning_rate=0.0), "learning_rate=0.0: wanted a finite number > 0"),
    (DoublyStochasticCCA(decay=-1.0), "decay=-1.0: wanted a number > 0"),
    (small_knoi(batch_size=201), "batch_size=201 but there are 200 rows to train on"),
    (small_knoi(batch_size=2), "batch_size=2 with n_components=2: a minibatch needs more rows"),
    (small_knoi(batch_size=0), "batch_size=0: wanted a whole number >= 1"),
    (small_knoi(approximation="chance"), "approximation='chance': wanted one of 'auto', 'nystrom'"),
    (small_knoi(approximation=("fourier", 3)), "approximation=3: wanted one of 'auto', 'nystrom'"),
    (small_knoi(approximation=FOURIER_X), "the feature map of X takes 5 columns but X has 6"),
    (KNOI(5, approximation=FEW_FEATURES), "feature map of Y has rank 4, below n_components=5"),
    (small_knoi(precondition="full"), "precondition='full': wanted one of 'auto', 'columns'"),
    (
        small_knoi(precondition="columns", approximation="fourier"),
        "precondition='columns' with approximation='fourier': it is for kernel columns",
    ),
    (
        small_knoi(landmarks="dpp", approximation="nystrom"),
        "landmarks='dpp': wanted one of",
    ),
    (small_knoi(momentum=1), "momentum=1: wanted a number from 0 to below 1"),
    (small_knoi(time_constant=1.0), "time_constant=1.0: wanted a number from 0 to below 1"),
    (small_knoi(held_out=-0.1), "held_out=-0.1: wanted a number from 0 to below 1"),
    (small_knoi(learning_rate=0), "learning_rate=0: wanted a finite number > 0"),
    (small_knoi(lr_decay=0.0), "lr_decay=0.0: wanted a number > 0"),
    (small_knoi(weight_decay=-1e-7), "weight_decay=-1e-07: wanted a finite number >= 0"),
    (small_knoi(extra_directions=-1), "extra_directions=-1: wanted a whole number >= 0"),
    (small_knoi(epochs=0), "epochs=0: wanted a whole number >= 1"),
    (small_knoi(max_time=0), "max_time=0: wanted a finite number > 0"),
    (small_knoi(tol=-1), "tol=-1: wanted a finite number >= 0"),
    (small_knoi(checkpoint_seconds=0), "checkpoint_seconds=0: wanted a finite number > 0"),
]
WRONG_TYPE = [
    (NystromCCA(rank=4.0), "rank=4.0: wanted a whole number >= 1"),
    (
        KernelCCA(width="foo"),
        "width='foo': wanted a positive, finite number, 'median', 'auto', a multiple",
    ),
    (NystromCCA(kernel=RBF), "kernel is the class RBF: wanted a name or a kernel object"),
    (FourierCCA(kernel=MIXED), NOT_STATIONARY),
    (FourierCCA(kernel=MIXED, paired=True), NOT_STATIONARY),
    (DoublyStochasticCCA(kernel=MIXED), NOT_STATIONARY),
    (FourierCCA(random_state=-1), "random_state=-1: wanted None, an integer >= 0, a numpy Random"),
    (FourierCCA(paired="no"), "paired='no': wanted True or False"),
    (small_knoi(approximation=RandomFourier), "approximation=RandomFourier is a class: wanted a"),
    (small_knoi(average=1), "average=1: wanted True or False"),
    (small_knoi(callbacks=print), f"callbacks={print!r}: wanted a list of callables"),
    (small_knoi(callbacks=[None]), "callbacks=[None]: wanted a list of callables"),
]
LITTLE_MEMORY = [
    (KernelCCA(memory_budget="1MiB"), "200 rows needs about 5.3 MiB but memory_budget is 1.0 MiB"),
    # Before anything is allocated: there would be three scatter matrices of 75 GiB.
    (
        FourierCCA(rank=100_000, memory_budget="1GiB"),
        "with 100000 features per view needs at",
    ),
    *(
        (
            estimator(2, rank=30, batch_size=60, memory_budget="20KiB"),
            f"{estimator.__name__} with rank 30 and minibatches of 60 rows needs about",
        )
        for estimator in (KNOI, DoublyStochasticCCA)
    ),
]


class TestParameters:
    @pytest.mark.parametrize(
        ("model", "text", "error"),
        [
            *((*case, InputError) for case in OUT_OF_RANGE),
            *((*case, InputTypeError) for case in WRONG_TYPE),
            *((*case, MemoryBudgetError) for case in LITTLE_MEMORY),
        ],
        ids=lambda value: repr(value)[:40],
    )
    def test_they_are_checked_by_fit(self, two_views, model, text, error):
        with pytest.raises(error, match=re.escape(text)):
            model.fit(*two_views)

    def test_errors_that_need_no_data_come_before_any_work(self, monkeypatch):
        def work(*_):
            raise AssertionError("too late")

        monkeypatch.setattr("knoi.estimators.knoi.make_plan", work)
        wrong = {"epochs": 0, "max_time": -1, "tol": -1, "momentum": 1, "checkpoint_seconds": -1}
        for name, value in wrong.items():
            with pytest.raises(InputError, match=f"^{name}="):
                small_knoi(**{name: value}).fit(*related_views(200))

    def test_resume_without_a_directory(self):
        model = small_knoi()
        with pytest.raises(InputError, match=r"^resume=True but checkpoint=None: there is nothing"):
            model.fit(*related_views(200), resume=True)
        assert vars(model) == vars(small_knoi())

    @pytest.mark.parametrize(
        ("held_out", "text"),
        [
            (0.01, "held_out=0.01 of 1000 rows is 10 rows: evaluating a fit needs at least 50"),
            (0.999, "held_out=0.999 leaves 1 of 1000 rows to train on: CCA needs more rows"),
        ],
    )
    def test_too_few_rows_to_hold_out_or_to_train_on(self, held_out, text):
        with pytest.raises(InputError, match=text):
            small_knoi(held_out=held_out, batch_size=None).fit(*related_views(1000))

    @each_family
    def test_a_device_that_does_not_exist(self, two_views, estimator):
        with pytest.raises(InputError, match=r"^device='cuda:99' .*NumPy"):
            small(estimator, device="cuda:99").fit(*two_views)
