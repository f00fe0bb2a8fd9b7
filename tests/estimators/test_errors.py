"""Errors of estimators: what came, what was expected, what to do."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from knoi import KNOI, DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA, kernels
from knoi.exceptions import (
    InputError,
    InputTypeError,
    KnoiError,
    MemoryBudgetError,
    NonFiniteError,
    SourceFormatError,
    SourceNotFoundError,
)
from knoi.features import Identity, RandomFourier
from knoi.features.registry import APPROXIMATIONS
from knoi.kernels import RBF, Chi2
from tests.estimators.models import (
    closed_forms,
    each_family,
    every_estimator,
    made,
    raises_message,
    related_views,
    small_knoi,
    with_value,
)

INCOMPLETE = (
    "CCA needs complete rows. Drop the row or impute the value (e.g. sklearn.impute.SimpleImputer) "
    "before fitting."
)
UNBOUNDED = (
    "CCA needs finite values. Drop the row or clip the value (e.g. numpy.clip) before fitting."
)
KERNELS = ", ".join(map(repr, sorted(kernels.KERNELS)))
MAPS = ", ".join(map(repr, ("auto", "nystrom", *APPROXIMATIONS)))


def small(estimator, **params):
    return made(estimator, **{"rank": 20, "random_state": 0, "n_jobs": 1} | params)


class TestData:
    @each_family
    def test_nan_and_infinity_are_named_by_view_row_and_column(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator)
        with raises_message(NonFiniteError, f"X has NaN at row 150, column 3: {INCOMPLETE}"):
            model.fit(with_value(X, 150, 3, np.nan), Y)
        with raises_message(NonFiniteError, f"Y has -inf at row 0, column 1: {UNBOUNDED}"):
            model.fit(X, with_value(Y, 0, 1, -np.inf))
        model.fit(X, Y)
        with raises_message(NonFiniteError, f"X has NaN at row 199, column 5: {INCOMPLETE}"):
            model.transform(with_value(X, 199, 5, np.nan))
        with raises_message(NonFiniteError, f"Y has inf at row 7, column 0: {UNBOUNDED}"):
            model.transform_y(with_value(Y, 7, 0, np.inf))

    def test_a_bad_value_in_a_later_chunk(self):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((3000, 5)), rng.standard_normal((3000, 4))
        model = small(NystromCCA, memory_budget=450_000, kernel=RBF(1.0))
        with raises_message(NonFiniteError, f"Y has NaN at row 2777, column 2: {INCOMPLETE}"):
            model.fit(X, with_value(Y, 2777, 2, np.nan))

    def test_a_bad_value_in_a_file_or_frame(self, two_views, tmp_path):
        X, Y = two_views
        np.save(tmp_path / "y.npy", with_value(Y, 123, 2, np.inf))
        with raises_message(NonFiniteError, f"Y has inf at row 123, column 2: {UNBOUNDED}"):
            LinearCCA().fit(X, tmp_path / "y.npy")
        frame = pd.DataFrame(with_value(X, 4, 2, np.nan), columns=list("abcdef"))
        with raises_message(NonFiniteError, f"X has NaN at row 4, column 2 ('c'): {INCOMPLETE}"):
            LinearCCA().fit(frame, Y)

    @each_family
    def test_rows_without_a_partner(self, two_views, estimator):
        X, Y = two_views
        one = (
            "X has 200 rows but Y has 199: the views are paired row by row. Drop the unpaired rows."
        )
        many = (
            "X has 197 rows but Y has 200: the views are paired row by row. Drop the unpaired rows."
        )
        model = small(estimator)
        with raises_message(InputError, one):
            model.fit(X, Y[:-1])
        with raises_message(InputError, many):
            model.fit(X[3:], Y)
        model.fit(X, Y)
        with raises_message(InputError, one):
            model.score(X, Y[:-1])

    def test_text_instead_of_numbers(self, two_views):
        X, Y = two_views
        text = (
            "Y has the string 'red' at row 0, column 0: only numbers can be used. Encode text as "
            "numbers first (e.g. sklearn.preprocessing.OneHotEncoder)."
        )
        model = LinearCCA().fit(X, Y)
        for call in (lambda Z: model.fit(X, Z), model.transform_y):
            with raises_message(InputTypeError, text):
                call(np.full(Y.shape, "red"))

    def test_a_missing_view(self, two_views):
        with pytest.raises(
            InputTypeError, match=r"^Y: Expected array-like .* CCA needs both views"
        ):
            LinearCCA().fit(two_views[0], None)

    @pytest.mark.parametrize("estimator", [KernelCCA, NystromCCA])
    def test_negative_values_with_a_kernel_for_histograms(self, two_views, estimator):
        X, Y = (np.abs(view) for view in two_views)
        text = (
            "view {}: row {}, column 2 has -0.5, but the chi2 kernel compares histograms and needs "
            "nonnegative values. Pass counts or frequencies, or use another kernel, e.g. 'rbf'."
        )
        model = small(estimator, kernel=("rbf", "chi2"))
        with raises_message(InputError, text.format("Y", 111)):
            model.fit(X, with_value(Y, 111, 2, -0.5))
        model.set_params(kernel=Chi2(1.0)).fit(X, Y)
        with raises_message(InputError, text.format("X", 17)):
            model.transform(with_value(X, 17, 2, -0.5))

    def test_numbers_whose_squares_overflow(self, two_views):
        X, Y = two_views
        text = (
            "view X holds numbers so large that their squares overflow {} (feature 0). Divide X by "
            "a constant: a change of units changes no correlation."
        )
        with raises_message(InputError, text.format("float64")):
            LinearCCA().fit(X * 1e200, Y)
        with raises_message(InputError, text.format("float32")):
            LinearCCA().fit((X * 1e30).astype(np.float32), Y.astype(np.float32))


class TestFiles:
    def test_a_path_that_does_not_exist(self, two_views, tmp_path):
        path = tmp_path / "views.npy"
        text = f"X ({str(path)!r}): there is no file or folder {str(path)!r}. Check the path."
        with raises_message(SourceNotFoundError, text):
            LinearCCA().fit(path, two_views[1])

    def test_a_dataset_that_does_not_exist(self, two_views, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "views.h5", "w") as file:
            file["left"], file["right"] = two_views
        locator = f"{tmp_path}/views.h5:/lefft"
        text = f"X ({locator!r}) has no array '/lefft'. Available: 'left', 'right'."
        with raises_message(SourceFormatError, text):
            LinearCCA().fit(locator, f"{tmp_path}/views.h5:/right")

    def test_saving_a_parameter_that_no_file_can_hold(self, two_views, tmp_path):
        model = LinearCCA().fit(*two_views).set_params(n_jobs=object())
        with pytest.raises(InputTypeError, match=r"\['params'\]\['n_jobs'\] is of type object"):
            model.save(tmp_path / "m.knoi")
        assert list(tmp_path.iterdir()) == []


class TestFittedModels:
    @each_family
    def test_other_columns_than_in_fit(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).fit(X, Y)
        name = estimator.__name__
        text = (
            "{} has {} features, but {} is expecting {} features as input. Pass the columns used "
            "in fit."
        )
        with raises_message(InputError, text.format("X", 5, name, 6)):
            model.transform(X[:, :5])
        with raises_message(InputError, text.format("Y", 2, name, 4)):
            model.transform_y(Y[:, :2])
        with raises_message(InputError, text.format("Y", 6, name, 4)):
            model.transform(X, X)

    @every_estimator
    def test_not_fitted(self, two_views, estimator, tmp_path):
        X, Y = two_views
        calls = (
            lambda model: model.transform(X),
            lambda model: model.transform_y(Y),
            lambda model: model.score(X, Y),
            lambda model: model.save(tmp_path / "m.knoi"),
        )
        for call in calls:
            with pytest.raises(NotFittedError, match=f"^This {estimator.__name__} instance is not"):
                call(small(estimator))
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
        text = (
            f"Y has 3 features, but {estimator.__name__} is expecting 4 features as input. Pass "
            "the columns used in fit."
        )
        with raises_message(InputError, text):
            model.partial_fit(X, Y[:, :3])
        model.partial_fit(X[100:], Y[100:])
        straight = small(estimator, **params).partial_fit(X[:100], Y[:100])
        straight.partial_fit(X[100:], Y[100:])
        np.testing.assert_array_equal(model.x_weights_, straight.x_weights_)
        assert model.n_features_y_ == 4

    def test_a_failed_fit_keeps_what_partial_fit_has_seen(self, two_views):
        X, Y = two_views
        model = LinearCCA().partial_fit(X[:100], Y[:100])
        with pytest.raises(NonFiniteError):
            model.fit(with_value(X, 0, 0, np.nan), Y)
        model.partial_fit(X[100:], Y[100:])
        expected = LinearCCA().fit(X, Y).correlations_
        np.testing.assert_allclose(model.correlations_, expected, atol=1e-10)


PARAMETERS = [
    (LinearCCA(0), InputError, "n_components=0: wanted a whole number >= 1."),
    (
        LinearCCA(5),
        InputError,
        "n_components=5 but Y has n_features=4: linear CCA has no more components than columns. "
        "Set n_components to at most 4.",
    ),
    (
        KernelCCA(200),
        InputError,
        "n_components=200 with n_samples=200: CCA needs more rows than components. Pass more rows, "
        "or set n_components to at most 199.",
    ),
    (
        FourierCCA(5, rank=4),
        InputError,
        "rank=4 is below n_components=5: features of that rank hold no more components. Raise rank "
        "(a few thousand is usual) or lower n_components.",
    ),
    (NystromCCA(rank=4.0), InputTypeError, "rank=4.0: wanted a whole number >= 1."),
    (LinearCCA(reg=-1), InputError, "reg=-1: wanted a finite number >= 0."),
    (
        KernelCCA(width="foo"),
        InputTypeError,
        "width='foo': wanted a positive, finite number, 'median', or a pair of these (one for X, "
        "one for Y).",
    ),
    (
        NystromCCA(width=0),
        InputError,
        "width=0: wanted a positive, finite number, 'median', or a pair of these (one for X, one "
        "for Y).",
    ),
    (
        NystromCCA(kernel=RBF),
        InputTypeError,
        f"kernel is the class RBF: wanted a name or a kernel object. Pass one of {KERNELS}, or "
        "an instance such as RBF(width=1.0).",
    ),
    (
        FourierCCA(approximation="hadamard", paired=True),
        InputError,
        "paired=True with approximation='hadamard': it is for 'fourier'. Leave it out; "
        "'orthogonal', 'qmc' and 'hadamard' are paired anyway.",
    ),
    (
        FourierCCA(kernel=("rbf", "linear")),
        InputTypeError,
        "view Y: random Fourier features need the kernel 'rbf', 'laplacian', 'cauchy' or 'matern', "
        "not 'linear'. Change the kernel, or use a Nystrom approximation, which takes any kernel.",
    ),
    (
        LinearCCA(memory_budget="much"),
        InputError,
        "memory_budget='much' is not a size: wanted bytes, or a number with a unit such as '500MB' "
        "or '4GiB'.",
    ),
    (
        LinearCCA(memory_budget=-1),
        InputError,
        "memory_budget=-1: wanted a positive number of bytes.",
    ),
    (
        KernelCCA(memory_budget="1MiB"),
        MemoryBudgetError,
        "exact kernel CCA on 200 rows needs about 2.5 MiB but memory_budget is 1.0 MiB. Use "
        "NystromCCA or FourierCCA, which do not form N x N matrices, or fit on fewer rows.",
    ),
    (
        LinearCCA(n_jobs=0),
        InputError,
        "n_jobs=0: wanted None (all cores), a number of threads, or -1 for all cores.",
    ),
    (
        FourierCCA(random_state=-1),
        InputTypeError,
        "random_state=-1: wanted None, an integer >= 0, a numpy RandomState or a numpy Generator. "
        "Pass an integer for reproducible results.",
    ),
    (FourierCCA(paired="no"), InputTypeError, "paired='no': wanted True or False."),
    (
        DoublyStochasticCCA(feature_block=0),
        InputError,
        "feature_block=0: wanted a whole number >= 1.",
    ),
    (
        DoublyStochasticCCA(learning_rate=0.0),
        InputError,
        "learning_rate=0.0: wanted a finite number > 0.",
    ),
    (
        DoublyStochasticCCA(kernel=("rbf", "linear")),
        InputTypeError,
        "view Y: random Fourier features need the kernel 'rbf', 'laplacian', 'cauchy' or 'matern', "
        "not 'linear'. Change the kernel, or use a Nystrom approximation, which takes any kernel.",
    ),
    (DoublyStochasticCCA(decay=-1.0), InputError, "decay=-1.0: wanted a number > 0."),
    (DoublyStochasticCCA(reg=-1), InputError, "reg=-1: wanted a finite number >= 0."),
    (
        DoublyStochasticCCA(batch_size=2),
        InputError,
        "batch_size=2 with n_components=2: a minibatch needs more rows than components to estimate "
        "their covariance. Set batch_size to at least 20, or leave it None.",
    ),
]


@pytest.mark.parametrize(("model", "error", "text"), PARAMETERS, ids=lambda value: repr(value)[:40])
def test_parameters_are_checked_by_fit(two_views, model, error, text):
    with raises_message(error, text):
        model.fit(*two_views)


@each_family
def test_one_row_is_too_few(two_views, estimator):
    X, Y = two_views
    with raises_message(InputError, "n_samples=1: CCA needs at least 2 rows. Pass more rows."):
        small(estimator, n_components=1).fit(X[:1], Y[:1])


def test_a_rank_beyond_the_budget_is_an_error_before_anything_is_allocated(two_views):
    # 100,000 features would need three scatter matrices of 75 GiB.
    expected = (
        r"^the closed form with 100000 features per view needs at least [\d.]+ GiB but "
        r"memory_budget is 1\.0 GiB\. Lower rank or raise memory_budget\.$"
    )
    model = FourierCCA(rank=100_000, memory_budget="1GiB", random_state=0)
    with pytest.raises(MemoryBudgetError, match=expected):
        model.fit(*two_views)


@each_family
def test_a_device_that_does_not_exist(two_views, estimator):
    expected = r"^device='cuda:99' .*NumPy"
    with pytest.raises(InputError, match=expected):
        small(estimator, device="cuda:99").fit(*two_views)


def test_a_later_piece_outside_the_domain_of_the_kernel():
    rng = np.random.default_rng(0)
    X, Y = rng.random((2500, 4)), rng.random((2500, 3))
    model = NystromCCA(2, rank=20, kernel="chi2", random_state=0).partial_fit(X, Y)
    with pytest.raises(InputError, match=r"^view Y: row 2000, column 2 has -1, but the chi2"):
        model.partial_fit(X, with_value(Y, 2000, 2, -1.0))


@pytest.mark.parametrize(("scale", "dtype"), [(1e-23, np.float32), (1e-170, np.float64)])
def test_numbers_whose_squares_vanish(two_views, scale, dtype):
    X, Y = (view.astype(dtype) for view in two_views)
    expected = (
        rf"^view X holds numbers so small that their squares vanish in {np.dtype(dtype)}\. "
        r"Multiply X by a constant: a change of units changes no correlation\.$"
    )
    with pytest.raises(InputError, match=expected):
        LinearCCA().fit(X * dtype(scale), Y)


def a_map(n_cols=4, rank=30):
    return RandomFourier.fit(np.eye(n_cols), RBF(1.0), rank, 0, 0)


KNOI_PARAMETERS = [
    (
        {"batch_size": 201},
        InputError,
        "batch_size=201 but there are 200 rows to train on. Set batch_size to at most 200, or "
        "leave it None.",
    ),
    (
        {"batch_size": 2},
        InputError,
        "batch_size=2 with n_components=2: a minibatch needs more rows than components to estimate "
        "their covariance. Set batch_size to at least 20, or leave it None.",
    ),
    ({"batch_size": 0}, InputError, "batch_size=0: wanted a whole number >= 1."),
    (
        {"approximation": "chance"},
        InputError,
        f"approximation='chance': wanted one of {MAPS}, or a fitted feature map.",
    ),
    (
        {"approximation": ("fourier", 3)},
        InputError,
        f"approximation=3: wanted one of {MAPS}, or a fitted feature map.",
    ),
    (
        {"approximation": RandomFourier},
        InputTypeError,
        "approximation=RandomFourier is a class: wanted a fitted map, e.g. RandomFourier.fit(...), "
        f"or a name: {MAPS}.",
    ),
    (
        {"approximation": (a_map(5), "fourier")},
        InputError,
        "the feature map of X takes 5 columns but X has 4. Pass a map fitted on the columns of the "
        "data.",
    ),
    (
        {"approximation": ("fourier", Identity(3)), "n_components": 4},
        InputError,
        "the feature map of Y has rank 3, below n_components=4. Pass a map of higher rank, or "
        "lower n_components.",
    ),
    (
        {"kernel": "linear", "n_components": 4},
        InputError,
        "n_components=4 but Y has n_features=3: linear CCA has no more components than columns. "
        "Set n_components to at most 3.",
    ),
    (
        {"precondition": "full"},
        InputError,
        "precondition='full': wanted one of 'auto', 'columns', 'low_rank', None.",
    ),
    (
        {"precondition": "columns", "approximation": "fourier"},
        InputError,
        "precondition='columns' with approximation='fourier': it is for kernel columns. Set "
        "approximation='nystrom', or precondition='low_rank', which takes any features.",
    ),
    ({"momentum": 1}, InputError, "momentum=1: wanted a number from 0 to below 1."),
    ({"time_constant": 1.0}, InputError, "time_constant=1.0: wanted a number from 0 to below 1."),
    ({"held_out": -0.1}, InputError, "held_out=-0.1: wanted a number from 0 to below 1."),
    ({"learning_rate": 0}, InputError, "learning_rate=0: wanted a finite number > 0."),
    ({"lr_decay": 0.0}, InputError, "lr_decay=0.0: wanted a number > 0."),
    ({"weight_decay": -1e-7}, InputError, "weight_decay=-1e-07: wanted a finite number >= 0."),
    ({"average": 1}, InputTypeError, "average=1: wanted True or False."),
    ({"extra_directions": -1}, InputError, "extra_directions=-1: wanted a whole number >= 0."),
    ({"epochs": 0}, InputError, "epochs=0: wanted a whole number >= 1."),
    ({"max_time": 0}, InputError, "max_time=0: wanted a finite number > 0."),
    ({"tol": -1}, InputError, "tol=-1: wanted a finite number >= 0."),
    (
        {"checkpoint_seconds": 0},
        InputError,
        "checkpoint_seconds=0: wanted a finite number > 0.",
    ),
    (
        {"landmarks": "dpp", "approximation": "nystrom"},
        InputError,
        "landmarks='dpp' is not a way to choose landmarks: wanted one of 'uniform', 'kmeans', "
        "'kmeans++', 'pivoted_cholesky', 'randomly_pivoted_cholesky', 'leverage'.",
    ),
    (
        {"callbacks": print},
        InputTypeError,
        f"callbacks={print!r}: wanted a list of callables (state, result) -> state, as described "
        "by knoi.callbacks.Callback.",
    ),
    (
        {"callbacks": [None]},
        InputTypeError,
        "callbacks=[None]: wanted a list of callables (state, result) -> state, as described by "
        "knoi.callbacks.Callback.",
    ),
]


class TestKNOI:
    @pytest.mark.parametrize(
        ("params", "error", "text"), KNOI_PARAMETERS, ids=lambda value: repr(value)[:40]
    )
    def test_parameters_are_checked_by_fit(self, params, error, text):
        model = small_knoi().set_params(**params)
        with raises_message(error, text):
            model.fit(*related_views(200))

    def test_errors_that_need_no_data_come_before_any_work(self, monkeypatch):
        def work(*_):
            raise AssertionError("too late")

        monkeypatch.setattr("knoi.estimators.training.make_plan", work)
        wrong = {"epochs": 0, "max_time": -1, "tol": -1, "momentum": 1, "checkpoint_seconds": -1}
        for name, value in wrong.items():
            with pytest.raises(InputError, match=f"^{name}="):
                small_knoi(**{name: value}).fit(*related_views(200))

    def test_resume_without_a_directory(self):
        text = (
            "resume=True but checkpoint=None: there is nothing to resume from. Set checkpoint to "
            "the directory of the run."
        )
        model = small_knoi()
        with raises_message(InputError, text):
            model.fit(*related_views(200), resume=True)
        assert vars(model) == vars(small_knoi())

    @pytest.mark.parametrize("n", [200, 5000])
    def test_a_view_that_does_not_vary(self, n):
        X, Y = related_views(n)
        rows = "all its rows" if n == 200 else "all 4000 sampled rows"
        text = f"view Y does not vary: {rows} are the same. Check the data of Y."
        with raises_message(InputError, text):
            small_knoi(width=1.0).fit(X, np.full_like(Y, 3.3))

    @pytest.mark.parametrize(
        ("held_out", "text"),
        [
            (
                0.01,
                "held_out=0.01 of 1000 rows is 10 rows: evaluating a fit needs at least 50. Raise "
                "held_out, or set it to 0.",
            ),
            (
                0.999,
                "held_out=0.999 leaves 1 of 1000 rows to train on: CCA needs more rows than "
                "n_components=2. Lower held_out.",
            ),
        ],
    )
    def test_too_few_rows_to_hold_out_or_to_train_on(self, held_out, text):
        with raises_message(InputError, text):
            small_knoi(held_out=held_out, batch_size=None).fit(*related_views(1000))

    @pytest.mark.parametrize("estimator", [KNOI, DoublyStochasticCCA])
    def test_a_budget_too_small(self, estimator):
        model = estimator(2, rank=30, batch_size=60, memory_budget="20KiB")
        expected = (
            rf"^{estimator.__name__} with rank 30 and minibatches of 60 rows needs about "
            r"[\d.]+ [KM]iB but memory_budget is [\d.]+ KiB\. Lower rank or batch_size, or raise "
            r"memory_budget\.$"
        )
        with pytest.raises(MemoryBudgetError, match=expected):
            model.fit(*related_views(200))
