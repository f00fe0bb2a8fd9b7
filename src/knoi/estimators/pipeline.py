"""Two views prepared by a transformer each, or cut out of one table, in front of an estimator.

A model file holds parameters and arrays only, so it takes transformers of a fixed list (`STORED`):
those of scikit-learn whose parameters are plain values and whose fitted state is public arrays.
Names of classes in a file are looked up in that list and nowhere else.
"""

from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

from knoi.arrays.random import View
from knoi.checks import is_integer, suggestion
from knoi.data.open import opened_view
from knoi.estimators.base import BaseCCA
from knoi.exceptions import InputError, InputTypeError, ModelFileError
from knoi.metrics import PermutationTest
from knoi.persistence import ModelFile, flatten_state, read_model, unflatten_state, write_model

Columns = list[str] | list[int] | None

# What a model file holds of a fitted transformer besides its parameters: arrays by the columns d
# that go in and k that come out, and numbers (""). Each may be None; some numbers may be arrays.
SPREAD = {"scale_": "d", "n_samples_seen_": "d"}
DIRECTIONS = {
    "components_": "kd",
    "explained_variance_": "k",
    "explained_variance_ratio_": "k",
    "singular_values_": "k",
}
STORED: dict[type[BaseEstimator], dict[str, str]] = {
    StandardScaler: {"mean_": "d", "var_": "d", **SPREAD},
    MinMaxScaler: {"min_": "d", "data_min_": "d", "data_max_": "d", "data_range_": "d", **SPREAD},
    MaxAbsScaler: {"max_abs_": "d", **SPREAD},
    RobustScaler: {"center_": "d", "scale_": "d"},
    Normalizer: {},
    SimpleImputer: {"statistics_": "d"},
    PCA: {"mean_": "d", **DIRECTIONS, "n_components_": "", "n_samples_": "", "noise_variance_": ""},
    TruncatedSVD: DIRECTIONS,
    TfidfTransformer: {"idf_": "d"},
}
NAMES = {kind.__name__: kind for kind in (*STORED, Pipeline)}


class TwoViewPipeline(BaseEstimator):  # type: ignore[misc]
    """An estimator with a transformer in front of each view, or a list of columns, or both.

    It fits, scores and is tuned as a whole: in `cross_val_score` and `GridSearchCV` the
    transformers see the training rows only. Parameters of the parts are named
    `x__strategy`, `y__n_components`, `estimator__reg`.

    Parameters
    ----------
    estimator : estimator of knoi
        Any of them, such as `KNOI(10)`.
    x, y : transformer or None, default=None
        A transformer or pipeline of scikit-learn for each view; None passes the view on as it is.
    x_columns, y_columns : list of str, list of int, or None, default=None
        Names or positions of the columns of each view. If `fit` gets one table, both views are
        columns of it, and None stands for all columns that are not in the other view.

    Attributes
    ----------
    estimator_, x_, y_
        The fitted parts. Attributes such as `correlations_`, loadings and plots are those of
        `estimator_`; columns are named there if the tables are pandas data frames.
    x_columns_, y_columns_ : list or None
        The columns of each view; None for all of its table.

    Examples
    --------
    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from knoi import LinearCCA, TwoViewPipeline
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(1000, correlations=(0.9,), random_state=0)
    >>> model = TwoViewPipeline(
    ...     LinearCCA(1), x=make_pipeline(SimpleImputer(), StandardScaler()), y=StandardScaler()
    ... )
    >>> model.fit(views.X, views.Y).predict(views.X).shape == views.Y.shape
    True
    """

    def __init__(
        self,
        estimator: Any,
        x: Any = None,
        y: Any = None,
        *,
        x_columns: Any = None,
        y_columns: Any = None,
    ) -> None:
        self.estimator = estimator
        self.x = x
        self.y = y
        self.x_columns = x_columns
        self.y_columns = y_columns

    def fit(self, X: Any, Y: Any = None, **fit_params: Any) -> Self:
        """Fit the transformers, then the estimator.

        Parameters
        ----------
        X, Y : tables (n_samples, d)
            The two views, or one table with the columns of both as X. A view with a transformer
            is read into memory.
        **fit_params
            Passed to the `fit` of the estimator, such as `sample_weight`.

        Returns
        -------
        self
        """
        if not isinstance(self.estimator, BaseCCA):
            raise InputTypeError(
                f"estimator={self.estimator!r}: wanted an estimator of knoi, such as KNOI(10)."
            )
        columns = self._resolved_columns(X, Y)
        tables, fitted, views = (X, X if Y is None else Y), [], []
        for view, given, own in zip(View, (self.x, self.y), columns, strict=True):
            rows = _selected(tables[view], own, view.name)
            transformer = given if given is None else clone(given)
            if transformer is not None:
                rows = _in_memory(rows, view.name)
                rows = _named(transformer.fit_transform(rows), rows, transformer)
            fitted.append(transformer)
            views.append(rows)
        # Attributes are set at the end: a fit that fails leaves the earlier model.
        estimator = clone(self.estimator).fit(*views, **fit_params)
        self.estimator_, (self.x_, self.y_) = estimator, fitted
        self.x_columns_, self.y_columns_ = columns
        return self

    def transform(self, X: Any, Y: Any = None) -> Any:
        """Project X, or both views, to `n_components` dimensions.

        With column lists X may be the table of both views; of each table only the columns of its
        view are used.
        """
        check_is_fitted(self)
        Zx = self.estimator_.transform(self._prepared(View.X, X))
        return Zx if Y is None else (Zx, self.transform_y(Y))

    def transform_y(self, Y: Any) -> Any:
        """Project the second view alone, to (n_samples, n_components)."""
        check_is_fitted(self)
        return self.estimator_.transform_y(self._prepared(View.Y, Y))

    def fit_transform(self, X: Any, Y: Any = None, **fit_params: Any) -> tuple[Any, Any]:
        """Fit, then project both views: the pair (Zx, Zy)."""
        Zx, Zy = self.fit(X, Y, **fit_params).transform(X, X if Y is None else Y)
        return Zx, Zy

    def predict(self, X: Any) -> Any:
        """Predict the second view from the first.

        In the units of the table, if the transformer of the second view can be inverted
        (`inverse_transform`; imputed values stay as they are); else what it makes of the table.
        """
        check_is_fitted(self)
        return _in_units(self.y_, self.estimator_.predict(self._prepared(View.X, X)))

    def predict_x(self, Y: Any) -> Any:
        """Predict the first view from the second, as `predict` does the second from the first."""
        check_is_fitted(self)
        return _in_units(self.x_, self.estimator_.predict_x(self._prepared(View.Y, Y)))

    def score(self, X: Any, Y: Any = None, sample_weight: Any = None) -> float:
        """Total correlation of these pairs, as the estimator's `score`; Y=None as in `fit`."""
        views = self._prepared_pair(X, Y)
        return float(self.estimator_.score(*views, sample_weight=sample_weight))

    def permutation_test(
        self, X: Any, Y: Any = None, n_permutations: int = 999, random_state: Any = None
    ) -> PermutationTest:
        """Test whether the views are related, on pairs that were not used to fit."""
        views = self._prepared_pair(X, Y)
        test: PermutationTest = self.estimator_.permutation_test(
            *views, n_permutations, random_state
        )
        return test

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the variates of X."""
        check_is_fitted(self)
        names: NDArray[Any] = self.estimator_.get_feature_names_out()
        return names

    def set_output(self, *, transform: Any = None) -> Self:
        """Set what `transform` returns, as scikit-learn's estimators do: "pandas", "polars"..."""
        for estimator in (self.estimator, getattr(self, "estimator_", None)):
            if estimator is not None:
                estimator.set_output(transform=transform)
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted pipeline to one file, atomically. Loading it never runs code.

        Transformers that a file may hold: StandardScaler, MinMaxScaler, MaxAbsScaler,
        RobustScaler, Normalizer, SimpleImputer, PCA, TruncatedSVD, TfidfTransformer, and pipelines
        of these. With others an error is raised before anything is written.
        """
        check_is_fitted(self)
        transformers = {"x": _stored("x", self.x_), "y": _stored("y", self.y_)}
        plain, arrays = flatten_state(transformers)
        header, tensors = self.estimator_._contents()
        parts = {"transformers": arrays, "estimator": tensors}
        write_model(
            path,
            {
                "class": type(self).__name__,
                "columns": [self.x_columns_, self.y_columns_],
                "transformers": plain,
                "estimator": header,
            },
            {f"{part}/{name}": own for part, held in parts.items() for name, own in held.items()},
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a pipeline written by `save`."""
        return cls._from_file(read_model(path))

    @classmethod
    def _from_file(cls, model: ModelFile) -> Self:
        from knoi.estimators import from_model_file

        header = model.header
        if header.get("class") != cls.__name__:
            raise ModelFileError(
                f"{model.path} holds a {header.get('class')!r}, not a {cls.__name__}. Load it with "
                "knoi.load, which finds the class."
            )

        def tensors(part: str) -> dict[str, NDArray[Any]]:
            start = f"{part}/"
            held = model.tensors.items()
            return {name.removeprefix(start): one for name, one in held if name.startswith(start)}

        try:
            estimator = from_model_file(
                ModelFile(model.path, header["estimator"], tensors("estimator"))
            )
            state = unflatten_state(header["transformers"], tensors("transformers"))
            x, y = (_restored(state[view]) for view in "xy")
            x_columns, y_columns = (
                _checked_columns(f"{view}_columns", own)
                for view, own in zip("xy", header["columns"], strict=True)
            )
        except ModelFileError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"the pipeline in {model.path} is damaged ({error}). The file was altered after it "
                "was saved: save the pipeline again."
            ) from None
        if not isinstance(estimator, BaseCCA):
            raise ModelFileError(f"{model.path} holds a pipeline in a pipeline, which none is.")
        unfitted = [one if one is None else clone(one) for one in (x, y)]
        pipeline = cls(clone(estimator), *unfitted, x_columns=x_columns, y_columns=y_columns)
        pipeline.estimator_, pipeline.x_, pipeline.y_ = estimator, x, y
        pipeline.x_columns_, pipeline.y_columns_ = x_columns, y_columns
        return pipeline

    def _resolved_columns(self, X: Any, Y: Any) -> tuple[Columns, Columns]:
        """The columns of each view; those of one table in full."""
        x: Any = _checked_columns("x_columns", self.x_columns)
        y: Any = _checked_columns("y_columns", self.y_columns)
        if Y is not None:
            return x, y
        if x is None and y is None:
            raise InputError(
                "fit got one table: wanted two, fit(X, Y), or x_columns or y_columns, the columns "
                "of a view in one table."
            )
        x = _others(X, y) if x is None else x
        y = _others(X, x) if y is None else y
        if both := set(x) & set(y):
            raise InputError(
                f"x_columns and y_columns share {sorted(both)[0]!r}: a column of both views "
                "correlates with itself. Leave it out of one of them."
            )
        return x, y

    def _prepared(self, view: View, table: Any) -> Any:
        """The rows of a view as the estimator takes them."""
        transformer = (self.x_, self.y_)[view]
        rows = _selected(table, (self.x_columns_, self.y_columns_)[view], view.name)
        if transformer is None:
            return rows
        rows = _in_memory(rows, view.name)
        return _named(transformer.transform(rows), rows, transformer)

    def _prepared_pair(self, X: Any, Y: Any) -> tuple[Any, Any]:
        check_is_fitted(self)
        if Y is None and self.x_columns_ is None and self.y_columns_ is None:
            raise InputError("got one table, but the pipeline was fitted to two. Pass X and Y.")
        return self._prepared(View.X, X), self._prepared(View.Y, X if Y is None else Y)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")


def _checked_columns(name: str, value: Any) -> Columns:
    """Check a list of names or of positions."""
    if value is None:
        return None
    columns = [value] if isinstance(value, str) or is_integer(value) else list(value)
    if columns and all(isinstance(one, str) for one in columns):
        return [str(one) for one in columns]
    if columns and all(is_integer(one) and one >= 0 for one in columns):
        return [int(one) for one in columns]
    raise InputTypeError(
        f"{name}={value!r}: wanted a list of names, a list of positions from 0, or None."
    )


def _others(table: Any, columns: Columns) -> Columns:
    """The columns of the table that are not among these."""
    assert columns is not None
    rows, names = _table(table, "X")
    every = names if isinstance(columns[0], str) else range(rows.shape[1])
    return [one for one in every or () if one not in set(columns)]  # type: ignore[return-value]


def _table(table: Any, view: str) -> tuple[Any, list[str] | None]:
    """A table that columns can be taken from, and their names."""
    if hasattr(table, "columns"):
        return table, [str(name) for name in table.columns]
    if scipy.sparse.issparse(table):
        return scipy.sparse.csr_array(table), None
    if hasattr(table, "shape"):
        return table, None
    with opened_view(table, view) as opened:
        names = opened.column_names
        return opened.read(0, opened.n_rows), None if names is None else list(names)


def _selected(table: Any, columns: Columns, view: str) -> Any:
    """These columns of the table."""
    if columns is None:
        return table
    rows, names = _table(table, view)
    if not isinstance(columns[0], str):
        if max(columns) >= rows.shape[1]:
            raise InputError(
                f"{view.lower()}_columns has {max(columns)}, but the table has {rows.shape[1]} "
                "columns, from 0. Pass positions of its columns."
            )
        return rows.iloc[:, columns] if hasattr(rows, "iloc") else rows[:, columns]
    missing = [one for one in columns if one not in set(names or ())]
    if names is None or missing:
        have = "has no names of columns" if names is None else f"has no column {missing[0]!r}"
        raise InputError(
            f"{view.lower()}_columns are names, but the table of {view} {have}. Pass a data frame "
            f"with these columns, or positions.{suggestion(missing[0], names or ())}"
        )
    return rows[columns] if hasattr(rows, "columns") else rows[:, [names.index(c) for c in columns]]


def _in_memory(rows: Any, view: str) -> Any:
    """Rows that a transformer takes; files are read."""
    return rows if hasattr(rows, "shape") else _table(rows, view)[0]


def _named(values: Any, rows: Any, transformer: Any) -> Any:
    """Transformed rows of a pandas data frame as another one, with names and index."""
    if not (isinstance(values, np.ndarray) and hasattr(rows, "iloc") and hasattr(rows, "columns")):
        return values
    try:
        names = transformer.get_feature_names_out()
    except AttributeError:  # it does not name what it makes
        return values
    return type(rows)(values, index=rows.index, columns=names)


def _in_units(transformer: Any, predicted: Any) -> Any:
    """Predictions as the table of the view has them, where the transformer can be inverted."""
    found = _inverse(transformer, np.asarray(predicted))
    return predicted if found is None or transformer is None else found


def _inverse(transformer: Any, values: NDArray[Any]) -> NDArray[Any] | None:
    """What the transformer would make these values of; None if that is not known."""
    if transformer is None or isinstance(transformer, str):  # "passthrough"
        return values
    if isinstance(transformer, Pipeline):
        found: NDArray[Any] | None = values
        for _, step in reversed(transformer.steps):
            found = None if found is None else _inverse(step, found)
        return found
    if isinstance(transformer, SimpleImputer):
        complete = values.shape[1] == transformer.n_features_in_ and not transformer.add_indicator
        return values if complete else None
    if not hasattr(transformer, "inverse_transform"):
        return None
    return np.asarray(transformer.inverse_transform(values))


def _stored(view: str, transformer: Any) -> dict[str, Any] | None:
    """A fitted transformer as plain values and arrays; raises if it cannot be."""
    if transformer is None or isinstance(transformer, str):
        return None
    kind, params = type(transformer), {}
    if kind is Pipeline:
        names, steps = zip(*transformer.steps, strict=True)
        held = {str(i): _stored(view, step) for i, step in enumerate(steps)}
        return {"class": kind.__name__, "names": list(names), "steps": held}
    if kind not in STORED:
        raise _not_stored(view, f"a {kind.__name__}")
    for name, value in transformer.get_params(deep=False).items():
        if isinstance(value, np.random.RandomState):
            value = None
        if not _is_plain(value):
            raise _not_stored(view, f"{kind.__name__}({name}={value!r})")
        params[name] = value
    if params.get("add_indicator"):
        raise _not_stored(view, f"{kind.__name__}(add_indicator=True)")
    fitted: dict[str, Any] = {name: getattr(transformer, name, None) for name in STORED[kind]}
    if kind is SimpleImputer and params["strategy"] == "constant":
        fitted["statistics_"] = _numbers(fitted["statistics_"])  # stored as objects
    if any(getattr(value, "dtype", np.dtype(float)).kind not in "iuf" for value in fitted.values()):
        raise _not_stored(view, f"a {kind.__name__} of values that are not numbers")
    columns = getattr(transformer, "feature_names_in_", None)
    return {
        "class": kind.__name__,
        "params": params,
        "n_features_in_": transformer.n_features_in_,
        "feature_names_in_": None if columns is None else [str(name) for name in columns],
        "fitted": fitted,
    }


def _numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers that are stored as objects as floats; other values as they are."""
    plain = all(isinstance(one, int | float | np.number) for one in values)
    return values.astype(np.float64) if plain else values


def _not_stored(view: str, what: str) -> InputError:
    known = ", ".join(name for name in NAMES)
    return InputError(
        f"{view} has {what}, which a model file cannot hold: it holds no code, and of transformers "
        f"only {known}. Save the estimator alone, pipeline.estimator_.save(path), or pickle the "
        "pipeline, at your own risk."
    )


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | np.number)


def _restored(state: Any) -> Any:
    """The transformer that `_stored` described; errors mean that the state is damaged."""
    if state is None:
        return None
    kind = NAMES[state["class"]]
    if kind is Pipeline:
        steps = [_restored(state["steps"][str(i)]) for i in range(len(state["names"]))]
        steps = ["passthrough" if step is None else step for step in steps]
        names = [_checked(name, str) for name in state["names"]]
        return Pipeline(list(zip(names, steps, strict=True)))
    params = {name: tuple(v) if isinstance(v, list) else v for name, v in state["params"].items()}
    if not all(map(_is_plain, params.values())):
        raise ValueError(f"parameters of {state['class']}")
    transformer = kind(**params)  # a parameter that it does not have is a TypeError
    sizes = {"d": _checked(state["n_features_in_"], int)}
    fitted = {name: state["fitted"][name] for name in STORED[kind]}
    for name, value in fitted.items():
        _check_fitted_value(name, value, STORED[kind][name], sizes)
    if kind is SimpleImputer:
        # It keeps more than its statistics, which it finds again in one row of them.
        row = fitted["statistics_"][None, :]
        transformer.fit(np.where(np.isnan(row), transformer.missing_values, row))
    for name, value in fitted.items():
        if value is not None:
            setattr(transformer, name, value)
    transformer.n_features_in_ = sizes["d"]
    if state["feature_names_in_"] is not None:
        columns = [_checked(name, str) for name in state["feature_names_in_"]]
        if len(columns) != sizes["d"]:
            raise ValueError(f"{len(columns)} names of {sizes['d']} columns")
        transformer.feature_names_in_ = np.array(columns, dtype=object)
    return transformer


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind or value == 0:
        raise ValueError(f"{value!r} is not a valid {kind.__name__}")
    return value


def _check_fitted_value(name: str, value: Any, shape: str, sizes: dict[str, int]) -> None:
    """Check type, size and finiteness of a fitted attribute; `sizes` grows by those first seen."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        raise TypeError(f"{name} is not an array of numbers")
    expected = tuple(
        sizes.setdefault(letter, size) for letter, size in zip(shape, value.shape, strict=True)
    )
    if value.shape != expected or 0 in expected:
        raise ValueError(f"{name} has shape {value.shape}, expected {expected}")
    if name != "statistics_" and not np.isfinite(value).all():
        raise ValueError(f"{name} holds NaN or infinite values")
