"""What KNOI refuses, and in which words."""

import numpy as np
import pytest

from knoi.exceptions import (
    InputError,
    InputTypeError,
    MemoryBudgetError,
)
from knoi.features import Identity, RandomFourier
from knoi.features.registry import APPROXIMATIONS
from knoi.kernels import RBF
from tests.estimators.knoi_models import every_solver, small, views
from tests.estimators.refusing import refused

NAMES = ", ".join(map(repr, ("auto", "nystrom", *APPROXIMATIONS)))


def a_map(n_cols=4, rank=30):
    return RandomFourier.fit(np.eye(n_cols), RBF(1.0), rank, 0, 0)


PARAMETERS = [
    (
        {"batch_size": 201},
        InputError,
        "batch_size=201 but there are 200 rows to train on. Set batch_size to at most 200, or "
        "leave it None.",
    ),
    (
        {"batch_size": 2},
        InputError,
        "batch_size=2 with n_components=2: a minibatch needs more rows than components to tell "
        "their covariance. Set batch_size to at least 20, or leave it None.",
    ),
    ({"batch_size": 0}, InputError, "batch_size=0: wanted a whole number >= 1."),
    ({"batch_size": 1e3}, InputTypeError, "batch_size=1000.0: wanted a whole number >= 1."),
    (
        {"rank": 1},
        InputError,
        "rank=1 is below n_components=2: features of that rank hold no more components. Raise rank "
        "(a few thousand is usual) or lower n_components.",
    ),
    (
        {"approximation": "chance"},
        InputError,
        f"approximation='chance': wanted one of {NAMES}, or a fitted feature map.",
    ),
    (
        {"approximation": None},
        InputError,
        f"approximation=None: wanted one of {NAMES}, or a fitted feature map.",
    ),
    (
        {"approximation": ("fourier", 3)},
        InputError,
        f"approximation=3: wanted one of {NAMES}, or a fitted feature map.",
    ),
    (
        {"approximation": RandomFourier},
        InputTypeError,
        "approximation=RandomFourier is a class: wanted a fitted map, e.g. RandomFourier.fit(...), "
        f"or a name: {NAMES}.",
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
        {"precondition": False},
        InputError,
        "precondition=False: wanted one of 'auto', 'columns', 'low_rank', None.",
    ),
    (
        {"precondition": "columns", "approximation": "fourier"},
        InputError,
        "precondition='columns' with approximation='fourier': it is for kernel columns. Set "
        "approximation='nystrom', or precondition='low_rank', which takes any features.",
    ),
    ({"momentum": 1}, InputError, "momentum=1: wanted a number from 0 to below 1."),
    ({"momentum": "0.9"}, InputTypeError, "momentum='0.9': wanted a number from 0 to below 1."),
    ({"time_constant": 1.0}, InputError, "time_constant=1.0: wanted a number from 0 to below 1."),
    ({"held_out": -0.1}, InputError, "held_out=-0.1: wanted a number from 0 to below 1."),
    ({"learning_rate": 0}, InputError, "learning_rate=0: wanted a finite number > 0."),
    ({"learning_rate": np.nan}, InputError, "learning_rate=nan: wanted a finite number > 0."),
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
]


class TestRefusals:
    @pytest.mark.parametrize(
        ("params", "error", "text"), PARAMETERS, ids=lambda value: repr(value)[:40]
    )
    def test_parameters_are_refused_by_fit(self, params, error, text):
        model = small().set_params(**params)
        with refused(error, text):
            model.fit(*views(200))

    @pytest.mark.parametrize(
        "params",
        [{"epochs": 0}, {"max_time": -1}, {"tol": -1}, {"momentum": 1}, {"checkpoint_seconds": -1}],
        ids=str,
    )
    def test_what_needs_no_data_is_refused_before_any_work(self, params, monkeypatch):
        def work(*_):
            raise AssertionError("too late")

        monkeypatch.setattr("knoi.estimators.knoi.fit_maps", work)
        with pytest.raises(InputError):
            small(**params).fit(*views(200))

    def test_resume_without_a_directory(self):
        text = (
            "resume=True but checkpoint=None: there is nothing to resume from. Set checkpoint to "
            "the directory of the run."
        )
        model = small()
        with refused(InputError, text):
            model.fit(*views(200), resume=True)
        assert vars(model) == vars(small())

    @pytest.mark.parametrize("n", [200, 5000])
    @every_solver
    def test_a_view_that_does_not_vary(self, solver, n):
        X, Y = views(n)
        rows = "all its rows" if n == 200 else "all 4000 sampled rows"
        text = f"view Y does not vary: {rows} are the same. Check the data of Y."
        with refused(InputError, text):
            small(solver, width=1.0).fit(X, np.full_like(Y, 3.3))

    def test_resume_is_a_yes_or_no(self):
        with refused(InputTypeError, "resume='yes': wanted True or False."):
            small().fit(*views(200), resume="yes")

    @pytest.mark.parametrize("call", ["fit", "partial_fit"])
    def test_views_of_different_length(self, call):
        X, Y = views(200)
        text = "X has 200 rows but Y has 198: the views are paired row by row. Drop the unpaired "
        with refused(InputError, text + "rows."):
            getattr(small(), call)(X, Y[2:])

    def test_too_few_rows_held_out_to_judge_by(self):
        text = (
            "held_out=0.01 of 1000 rows are 10: fewer than 50 cannot judge a fit. Raise held_out, "
            "or set it to 0."
        )
        with refused(InputError, text):
            small(held_out=0.01).fit(*views(1000))

    def test_too_few_rows_left_to_train_on(self):
        text = (
            "held_out=0.999 leaves 1 of 1000 rows to train on: CCA needs more rows than "
            "n_components=2. Lower held_out."
        )
        with refused(InputError, text):
            small(held_out=0.999, batch_size=None).fit(*views(1000))

    def test_a_budget_too_small(self):
        expected = (
            r"^KNOI with rank 30 and minibatches of 60 rows needs about [\d.]+ [KM]iB but "
            r"memory_budget is 100\.0 KiB\. Lower rank or batch_size, or raise memory_budget\.$"
        )
        with pytest.raises(MemoryBudgetError, match=expected):
            small(memory_budget="100KiB").fit(*views(200))
