"""What cannot be used is refused with what came, what was wanted and what to do."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from knoi import FourierCCA, KernelCCA, LinearCCA, NystromCCA, kernels
from knoi.exceptions import (
    InputError,
    InputTypeError,
    KnoiError,
    MemoryBudgetError,
    NonFiniteError,
    SourceFormatError,
    SourceNotFoundError,
)
from knoi.features import Identity
from knoi.kernels import RBF, Chi2
from tests.estimators.models import every_estimator, made
from tests.estimators.refusing import refused, with_value

INCOMPLETE = (
    "CCA needs complete rows. Drop the row or impute the value (e.g. sklearn.impute.SimpleImputer) "
    "before fitting."
)
UNBOUNDED = (
    "CCA needs finite values. Drop the row or clip the value (e.g. numpy.clip) before fitting."
)
KERNELS = ", ".join(map(repr, sorted(kernels.KERNELS)))


def small(estimator, **params):
    return made(estimator, **{"rank": 20, "random_state": 0, "n_jobs": 1} | params)


class TestData:
    @every_estimator
    def test_nan_and_infinity_are_named_by_view_row_and_column(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator)
        with refused(NonFiniteError, f"X has NaN at row 150, column 3: {INCOMPLETE}"):
            model.fit(with_value(X, 150, 3, np.nan), Y)
        with refused(NonFiniteError, f"Y has -inf at row 0, column 1: {UNBOUNDED}"):
            model.fit(X, with_value(Y, 0, 1, -np.inf))
        model.fit(X, Y)
        with refused(NonFiniteError, f"X has NaN at row 199, column 5: {INCOMPLETE}"):
            model.transform(with_value(X, 199, 5, np.nan))
        with refused(NonFiniteError, f"Y has inf at row 7, column 0: {UNBOUNDED}"):
            model.transform_y(with_value(Y, 7, 0, np.inf))

    @pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])
    def test_a_bad_value_in_a_later_chunk(self, estimator):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((3000, 5)), rng.standard_normal((3000, 4))
        model = small(estimator, memory_budget=450_000, kernel=RBF(1.0))
        with refused(NonFiniteError, f"Y has NaN at row 2777, column 2: {INCOMPLETE}"):
            model.fit(X, with_value(Y, 2777, 2, np.nan))

    @every_estimator
    def test_a_bad_value_inside_a_file(self, two_views, estimator, tmp_path):
        X, Y = two_views
        np.save(tmp_path / "y.npy", with_value(Y, 123, 2, np.inf))
        with refused(NonFiniteError, f"Y has inf at row 123, column 2: {UNBOUNDED}"):
            small(estimator).fit(X, tmp_path / "y.npy")

    def test_a_frame_names_its_column(self, two_views):
        X, Y = two_views
        frame = pd.DataFrame(with_value(X, 4, 2, np.nan), columns=list("abcdef"))
        with refused(NonFiniteError, f"X has NaN at row 4, column 2 ('c'): {INCOMPLETE}"):
            LinearCCA().fit(frame, Y)

    @every_estimator
    def test_rows_without_a_partner(self, two_views, estimator):
        X, Y = two_views
        one = (
            "X has 200 rows but Y has 199: the views are paired row by row. Drop the unpaired row."
        )
        many = (
            "X has 197 rows but Y has 200: the views are paired row by row. Drop the unpaired rows."
        )
        model = small(estimator)
        with refused(InputError, one):
            model.fit(X, Y[:-1])
        with refused(InputError, many):
            model.fit(X[3:], Y)
        model.fit(X, Y)
        with refused(InputError, one):
            model.score(X, Y[:-1])

    @every_estimator
    @pytest.mark.parametrize(
        ("spoil", "error", "text"),
        [
            (
                lambda Y: Y[:0],
                InputError,
                "Y: Found array with 0 sample(s) (shape=(0, 4)) while a minimum of 1 is required. "
                "Check how it was read or selected.",
            ),
            (
                lambda Y: Y[:, :0],
                InputError,
                "Y: Found array with 0 feature(s) (shape=(200, 0)) while a minimum of 1 is "
                "required. Check how it was read or selected.",
            ),
            (
                lambda Y: Y[:, 0],
                InputError,
                "Y: Expected 2D array, got 1D array instead (shape=(200,)). Reshape your data with "
                "reshape(-1, 1) if it is a single feature or reshape(1, -1) if it is a single row.",
            ),
            (
                lambda Y: Y + 1j,
                InputTypeError,
                "Y: Complex data not supported (dtype=complex128). Pass the real and imaginary "
                "parts as separate columns.",
            ),
            (
                lambda Y: np.full(Y.shape, "red"),
                InputTypeError,
                "Y has the string 'red' at row 0, column 0: only numbers can be used. Encode text "
                "as numbers first (e.g. sklearn.preprocessing.OneHotEncoder).",
            ),
            (
                lambda Y: with_value(Y.astype(object), 3, 2, {"a": 1}),
                InputTypeError,
                "Y has {'a': 1} at row 3, column 2: float() argument must be a string or a real "
                "number, not 'dict'. Only numbers can be used: drop or encode this value first.",
            ),
        ],
    )
    def test_what_is_no_table_of_numbers(self, two_views, estimator, spoil, error, text):
        X, Y = two_views
        model = small(estimator).fit(X, Y)
        with refused(error, text):
            model.fit(X, spoil(Y))
        with refused(error, text):
            model.transform_y(spoil(Y))

    def test_a_missing_view(self, two_views):
        with pytest.raises(
            InputTypeError, match=r"^Y: Expected array-like .* CCA needs both views"
        ):
            LinearCCA().fit(two_views[0], None)

    @pytest.mark.parametrize("estimator", [KernelCCA, NystromCCA])
    def test_negative_values_for_a_kernel_of_histograms(self, two_views, estimator):
        X, Y = (np.abs(view) for view in two_views)
        text = (
            "view {}: row {}, column 2 has -0.5, but the chi2 kernel compares histograms and needs "
            "nonnegative values. Pass counts or frequencies, or use another kernel, e.g. 'rbf'."
        )
        model = small(estimator, kernel=("rbf", "chi2"))
        with refused(InputError, text.format("Y", 111)):
            model.fit(X, with_value(Y, 111, 2, -0.5))
        model.set_params(kernel=Chi2(1.0)).fit(X, Y)
        with refused(InputError, text.format("X", 17)):
            model.transform(with_value(X, 17, 2, -0.5))

    def test_numbers_whose_squares_overflow(self, two_views):
        X, Y = two_views
        text = (
            "view X holds numbers so large that their squares overflow {} (feature 0). Divide X by "
            "a constant: a change of units changes no correlation."
        )
        with refused(InputError, text.format("float64")):
            LinearCCA().fit(X * 1e200, Y)
        with refused(InputError, text.format("float32")):
            LinearCCA().fit((X * 1e30).astype(np.float32), Y.astype(np.float32))


class TestFiles:
    def test_a_path_that_is_not_there(self, two_views, tmp_path):
        path = tmp_path / "views.npy"
        text = f"X ({str(path)!r}): there is no file or folder {str(path)!r}. Check the path."
        with refused(SourceNotFoundError, text):
            LinearCCA().fit(path, two_views[1])

    def test_a_dataset_that_is_not_there(self, two_views, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "views.h5", "w") as file:
            file["left"], file["right"] = two_views
        locator = f"{tmp_path}/views.h5:/lefft"
        text = f"X ({locator!r}) has no dataset '/lefft'. Available: 'left', 'right'."
        with refused(SourceFormatError, text):
            LinearCCA().fit(locator, f"{tmp_path}/views.h5:/right")

    def test_a_parquet_file_with_nulls(self, two_views, tmp_path):
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "views.parquet"
        values = [None if i == 50 else float(i) for i in range(200)]
        pq.write_table(pa.table({"a": values, "c": values[::-1]}), path)
        text = (
            f"X ({str(path)!r}) has a null in column 'a' at row 50: CCA needs complete rows. Drop "
            "the rows with nulls or fill the values (e.g. DataFrame.dropna or fillna) and write "
            "the data again."
        )
        with refused(InputError, text):
            LinearCCA(1).fit(path, two_views[1])

    @every_estimator
    def test_save_to_a_folder_that_is_not_there(self, two_views, estimator, tmp_path):
        model = small(estimator).fit(*two_views)
        text = (
            f"The directory {tmp_path / 'no'} does not exist, so m.knoi cannot be written there. "
            "Create it first."
        )
        with refused(SourceNotFoundError, text):
            model.save(tmp_path / "no" / "m.knoi")
        assert list(tmp_path.iterdir()) == []

    def test_save_with_a_parameter_no_file_can_hold(self, two_views, tmp_path):
        model = LinearCCA().fit(*two_views).set_params(n_jobs=object())
        with pytest.raises(InputTypeError, match=r"\['params'\]\['n_jobs'\] is of type object"):
            model.save(tmp_path / "m.knoi")
        assert list(tmp_path.iterdir()) == []


class TestFittedModels:
    @every_estimator
    def test_other_columns_than_in_fit(self, two_views, estimator):
        X, Y = two_views
        model = small(estimator).fit(X, Y)
        name = estimator.__name__
        text = (
            "{} has {} features, but {} is expecting {} features as input. Pass the columns used "
            "in fit."
        )
        with refused(InputError, text.format("X", 5, name, 6)):
            model.transform(X[:, :5])
        with refused(InputError, text.format("Y", 2, name, 4)):
            model.transform_y(Y[:, :2])
        with refused(InputError, text.format("Y", 6, name, 4)):
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
    @pytest.mark.parametrize("shape", [(6, 4), (5, 3)])
    def test_a_failed_fit_leaves_the_old_model_whole(self, two_views, estimator, shape):
        X, Y = two_views
        frame = pd.DataFrame(X, columns=list("abcdef"))
        model = small(estimator).fit(frame, Y)
        before, expected = dict(vars(model)), model.transform(frame, Y)
        bad = with_value(X[:, : shape[0]], 199, 1, np.nan), Y[:, : shape[1]] * 2
        for views in (bad, (X[:, :5], Y[:7]), (X[:2, :3], Y[:2, :3]), (np.ones((50, 3)), Y[:50])):
            with pytest.raises(KnoiError):
                model.fit(*views)
            assert vars(model) == before
        for Z, W in zip(model.transform(frame, Y), expected, strict=True):
            np.testing.assert_array_equal(Z, W)

    @pytest.mark.parametrize("estimator", [LinearCCA, FourierCCA, NystromCCA])
    def test_a_failed_piece_leaves_no_trace(self, two_views, estimator):
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
            "the columns of the first piece."
        )
        with refused(InputError, text):
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
    (KernelCCA(-1), InputError, "n_components=-1: wanted a whole number >= 1."),
    (LinearCCA(2.0), InputTypeError, "n_components=2.0: wanted a whole number >= 1."),
    (FourierCCA("2"), InputTypeError, "n_components='2': wanted a whole number >= 1."),
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
    (KernelCCA(reg=np.nan), InputError, "reg=nan: wanted a finite number >= 0."),
    (LinearCCA(reg="a"), InputTypeError, "reg='a': wanted a number >= 0."),
    (
        LinearCCA(reg=(1, 2, 3)),
        InputError,
        "reg=(1, 2, 3) has 3 entries: wanted one value, or a pair (one for X, one for Y).",
    ),
    (
        KernelCCA(width="foo"),
        InputTypeError,
        "width='foo': wanted a positive number, 'median', or a pair of these (one for X, one for "
        "Y).",
    ),
    (NystromCCA(width=0), InputError, "width=0: wanted a positive, finite number."),
    (
        FourierCCA(width=(1, 2, 3)),
        InputError,
        "width=(1, 2, 3) has 3 entries: wanted one value, or a pair (one for X, one for Y).",
    ),
    (KernelCCA(kernel="gauss"), InputError, f"there is no kernel 'gauss'. Pass one of {KERNELS}."),
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
        FourierCCA(approximation=("fourier", "hadamard"), kernel=("rbf", "laplacian")),
        InputError,
        "view Y: 'hadamard' features need an isotropic kernel: the spectral measure of the "
        "laplacian kernel is not invariant under rotation. Use 'fourier' or 'qmc' with it, or the "
        "kernel 'rbf' or 'matern'.",
    ),
    (
        FourierCCA(approximation=Identity(2)),
        InputError,
        "the feature map of X takes 2 columns but X has 6. Pass a map fitted on the columns of the "
        "data.",
    ),
    (
        FourierCCA(kernel=("rbf", "linear")),
        InputTypeError,
        "view Y: random Fourier features need a stationary kernel, not 'linear'. Use 'rbf', "
        "'laplacian', 'cauchy' or 'matern', or a Nystrom approximation, which takes any kernel.",
    ),
    (
        NystromCCA(landmarks="dpp"),
        InputError,
        "landmarks='dpp' is not a way to choose landmarks: wanted one of 'uniform', 'kmeans', "
        "'kmeans++', 'pivoted_cholesky', 'randomly_pivoted_cholesky', 'leverage'.",
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
]


@pytest.mark.parametrize(("model", "error", "text"), PARAMETERS, ids=lambda value: repr(value)[:40])
def test_parameters_are_refused_by_fit(two_views, model, error, text):
    with refused(error, text):
        model.fit(*two_views)


@every_estimator
def test_one_row_is_too_few(two_views, estimator):
    X, Y = two_views
    with refused(InputError, "n_samples=1: CCA needs at least 2 rows. Pass more rows."):
        small(estimator, n_components=1).fit(X[:1], Y[:1])


def test_a_rank_beyond_the_budget_is_refused_before_anything_is_allocated(two_views):
    # 100,000 features would need three scatter matrices of 75 GiB.
    expected = (
        r"^the closed form with 100000 features a view needs at least [\d.]+ GiB but "
        r"memory_budget is 1\.0 GiB\. Lower rank or raise memory_budget\.$"
    )
    model = FourierCCA(rank=100_000, memory_budget="1GiB", random_state=0)
    with pytest.raises(MemoryBudgetError, match=expected):
        model.fit(*two_views)


@every_estimator
def test_a_device_that_is_not_there(two_views, estimator):
    expected = r"^device='cuda:99' cannot be used here: .* Use device=None for NumPy on the CPU"
    with pytest.raises(InputError, match=expected):
        small(estimator, device="cuda:99").fit(*two_views)


def test_a_piece_added_without_solving_is_not_a_fitted_model(two_views):
    model = LinearCCA().partial_fit(*two_views, solve=False)
    with pytest.raises(NotFittedError):
        model.transform(two_views[0])


@pytest.mark.parametrize("view", ["X", "Y"])
def test_a_later_piece_outside_the_domain_of_the_kernel_is_named_by_row(view):
    rng = np.random.default_rng(0)
    pieces = {"X": rng.random((2500, 4)), "Y": rng.random((2500, 3))}
    model = NystromCCA(2, rank=20, kernel="chi2", random_state=0)
    model.partial_fit(pieces["X"], pieces["Y"])
    pieces[view][2000, 2] = -1.0
    with pytest.raises(InputError, match=rf"^view {view}: row 2000, column 2 has -1, but the chi2"):
        model.partial_fit(pieces["X"], pieces["Y"])


@pytest.mark.parametrize(("scale", "dtype"), [(1e-23, np.float32), (1e-170, np.float64)])
def test_numbers_whose_squares_vanish_are_refused(two_views, scale, dtype):
    X, Y = (view.astype(dtype) for view in two_views)
    expected = (
        rf"^view X holds numbers so small that their squares vanish in {np.dtype(dtype)}\. "
        r"Multiply X by a constant: a change of units changes no correlation\.$"
    )
    with pytest.raises(InputError, match=expected):
        LinearCCA().fit(X * dtype(scale), Y)


def test_the_view_with_too_few_columns_is_the_one_named(two_views):
    with pytest.raises(InputError, match=r"^n_components=5 but Y has n_features=4: "):
        LinearCCA(5).fit(*two_views)


def test_paired_is_a_yes_or_no(two_views):
    with pytest.raises(InputTypeError, match=r"^paired='no': wanted True or False\.$"):
        FourierCCA(paired="no").fit(*two_views)
