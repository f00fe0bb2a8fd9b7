"""What every estimator shares: opening data, projecting, scoring, saving; `_solve` is the rest."""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._set_output import _get_container_adapter
from sklearn.utils.validation import check_is_fitted

from knoi.arrays.backend import (
    Array,
    Backend,
    DType,
    available_ram,
    compute_dtype,
    pick_backend,
    projecting_backend,
)
from knoi.arrays.random import View
from knoi.checks import count
from knoi.data.open import one_column, opened_view
from knoi.data.pairs import PairSource
from knoi.data.source import CheckedView, ViewSource
from knoi.engine import Engine, Threads, budget_or_default, even_slices, rows_that_fit, worker_count
from knoi.estimators.metric import KernelSpace, MetricRequest, kernel_space
from knoi.estimators.plotting import PlotMixin, describe_views, model_facts
from knoi.estimators.setup import check_domain, metric_rows
from knoi.estimators.structure import Structure, StructureMixin, in_sample_warning
from knoi.exceptions import InputError, InSampleWarning, MissingExtraError, ModelFileError
from knoi.features import FeatureMap
from knoi.kernels import Kernel, kernel_from_state
from knoi.metrics import PermutationTest, permutation_test, total_correlation
from knoi.persistence import ModelFile, flatten_state, read_model, unflatten_state, write_model
from knoi.projection import PIECE_ROWS, Projection, ViewProjection
from knoi.solvers.exact import HeldOutScore

logger = logging.getLogger("knoi")

# The attributes for the number of columns and their names, of X and of Y.
COLUMNS = (("n_features_in_", "feature_names_in_"), ("n_features_y_", "feature_names_y_in_"))
# Parameters and columns of the history in model files of earlier versions.
RENAMED = {"fall": "lr_decay", "undone": "rolled_back"}


class BaseCCA(
    StructureMixin,
    PlotMixin,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """Two views in, projections out. Leaves say how the projection is found (`_solve`)."""

    n_components: int
    memory_budget: Any
    n_jobs: int | None
    device: str | None
    scale_: tuple[str | None, str | None]
    # Fitted attributes of plain values, for the model file.
    _facts: ClassVar[tuple[str, ...]] = ("n_samples_", "scale_")

    @abstractmethod
    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        """Find the projection of paired views: methods differ only in this."""

    def fit(self, X: Any, Y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the projections from paired rows.

        Parameters
        ----------
        X, Y : array-like, sparse, data frame, tensor, h5py/zarr array, or path, (n_samples, d)
            The two views; row i of X belongs to row i of Y. Paths may name `.npy`, `.npz`, HDF5,
            Zarr and Parquet files (`file.h5:/dataset`), which are streamed.
        sample_weight : array-like (n_samples,), default=None
            How much each pair of rows counts: weight 2 is the row twice, weight 0 not at all; their
            scale does not matter. Means, covariances, the choice of `reg`, predictions and loadings
            are weighted. Width, metric, landmarks and which rows are held out do not depend on
            positive weights.

        Returns
        -------
        self
        """
        return self._fit(X, Y, self._solve, sample_weight)

    def _fit(
        self,
        X: Any,
        Y: Any,
        solve: Callable[[PairSource, Backend, Engine], Projection],
        sample_weight: Any = None,
    ) -> Self:
        with PairSource.open(X, Y) as opened, unchanged_on_failure(self):
            pairs = opened.weighted(sample_weight)
            self._remember_columns(pairs)
            self._check_size(pairs)
            backend = self._backend(pairs.dtype)
            pairs.settle(backend, self._host_budget())
            with Threads(worker_count(self.n_jobs)) as engine:
                self._keep(solve(pairs, backend, engine))
                self._fit_structure(pairs, engine)
                self.n_samples_ = pairs.n_rows
                self.__dict__.pop("_partial", None)
                warning = in_sample_warning(self.projection_, pairs, self._reg_used())
        if logger.isEnabledFor(logging.INFO):
            for view, text in describe_views(model_facts(self)["views"]):
                logger.info("view %s: %s.", view, text)
        if warning is not None:
            # After the model is complete. The stack level points to the caller of `fit`.
            warnings.warn(f"{type(self).__name__}: {warning}", InSampleWarning, stacklevel=3)
        return self

    def transform(self, X: Any, Y: Any = None) -> Any:
        """Project X, or both views, to `n_components` dimensions.

        Returns
        -------
        Zx : ndarray (n_samples, n_components), or the pair (Zx, Zy) if Y is given
        """
        check_is_fitted(self)
        with opened_view(X, "X") as x:
            self._check_columns(View.X, x)
            Zx = self._project(x, "X", self.projection_.x)
        return Zx if Y is None else (Zx, self.transform_y(Y))  # scikit-learn makes Zx a frame

    def transform_y(self, Y: Any) -> Any:
        """Project the second view alone, to (n_samples, n_components)."""
        check_is_fitted(self)
        with opened_view(one_column(Y), "Y") as y:
            self._check_columns(View.Y, y)
            Zy = self._project(y, "Y", self.projection_.y)
        return self._framed(Zy, Y, self._variate_names(View.Y))

    def fit_transform(self, X: Any, Y: Any = None, **fit_params: Any) -> tuple[Any, Any]:
        """Fit, then project both views: the pair (Zx, Zy)."""
        fitted = self.fit(X, Y, **fit_params)
        projected: tuple[Any, Any] = fitted.transform(X, Y)
        return projected

    def permutation_test(
        self, X: Any, Y: Any, n_permutations: int = 999, random_state: Any = None
    ) -> PermutationTest:
        """Test whether the views are related, on pairs that were not used to fit.

        The same as `knoi.metrics.permutation_test` of the projections. On training pairs every fit
        would be significant.
        """
        check_is_fitted(self)
        Zx, Zy = self._transform_pairs(X, Y)
        return permutation_test(Zx, Zy, n_permutations, random_state)

    def score(self, X: Any, Y: Any = None, sample_weight: Any = None) -> float:
        """Total correlation: the sum over components of corr(Zx, Zy) on these pairs.

        Use held-out pairs: on training pairs the score is optimistic. `sample_weight` (n_samples,)
        says how much each pair counts.
        """
        check_is_fitted(self)
        with PairSource.open(X, Y) as opened:
            self._remember_columns(opened, reset=False)
            pairs = opened.weighted(sample_weight)
            Zx, Zy = self._project_pairs(pairs)
        if pairs.weights is None:
            return total_correlation(Zx, Zy, measure="fitted")
        return HeldOutScore.of(Zx, Zy, pairs.weights).total

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, atomically. Loading it never runs code."""
        check_is_fitted(self)
        write_model(path, *self._contents())

    def _contents(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and tensors of the model file."""
        state = self.projection_.state_dict()
        if hasattr(self, "structure_"):
            structure = self.structure_
            state["structure"] = None if structure is None else structure.state_dict()
        plain, tensors = flatten_state(state)
        names = [getattr(self, name, None) for _, name in COLUMNS]
        header = {
            "class": type(self).__name__,
            "params": {
                name: portable(v)
                for name, v in self.get_params(deep=False).items()
                if name != "callbacks"  # code is never saved
            },
            "projection": plain,
            "feature_names": None if names[0] is None else names[0].tolist(),
            "feature_names_y": None if names[1] is None else names[1].tolist(),
            # Models loaded from files of earlier versions may lack some.
            "facts": {name: getattr(self, name) for name in self._facts if hasattr(self, name)},
        }
        return header, tensors

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model written by `save`."""
        return cls._from_file(read_model(path))

    @classmethod
    def _from_file(cls, model: ModelFile) -> Self:
        header = model.header
        if header.get("class") != cls.__name__:
            raise ModelFileError(
                f"{model.path} holds a {header.get('class')!r}, not a {cls.__name__}. Load it with "
                "knoi.load, which finds the class."
            )
        state = unflatten_state(header["projection"], model.tensors)
        structure = None  # files of earlier versions have none
        if state.get("structure") is not None:
            structure = Structure.from_state_dict(state["structure"])
        projection = Projection.from_state_dict(state)
        if "singular_values" not in state and structure is not None:
            projection = replace(projection, correlations=structure.correlations())
        maps = projection.x.features, projection.y.features
        params = {
            RENAMED.get(name, name): _from_portable(v, maps) for name, v in header["params"].items()
        }
        estimator = cls(**params)
        estimator._keep(projection)
        if "structure" in state:
            estimator.structure_ = structure
        for name, value in header.get("facts", {}).items():
            if name in ("reg_", "scale_"):
                value = tuple(value)
            if name == "history_":
                value = {RENAMED.get(column, column): one for column, one in value.items()}
            setattr(estimator, name, value)
        estimator._leave_missing_device()
        estimator.n_features_in_ = estimator.projection_.x.features.n_cols
        estimator.n_features_y_ = estimator.projection_.y.features.n_cols
        for (_, name), key in zip(COLUMNS, ("feature_names", "feature_names_y"), strict=True):
            if header.get(key) is not None:  # files of earlier versions have no names of Y
                setattr(estimator, name, np.array(header[key], dtype=object))
        return estimator

    def _leave_missing_device(self) -> None:
        """A model fitted on a device is used with NumPy where there is none."""
        try:
            projecting_backend(self.device, "float32")
        except (InputError, MissingExtraError) as error:
            reason = str(error).partition(". ")[0]
            warnings.warn(
                f"the model was fitted with device={self.device!r}; here it projects with NumPy "
                f"(device=None): {reason}.",
                UserWarning,
                stacklevel=5,
            )
            self.device = None

    def _check_size(self, pairs: PairSource) -> None:
        """Raise if there are not more rows than components."""
        if pairs.n_rows < 2:
            raise InputError("n_samples=1: CCA needs at least 2 rows. Pass more rows.")
        if pairs.n_rows <= count("n_components", self.n_components):
            raise InputError(
                f"n_components={self.n_components} with n_samples={pairs.n_rows}: CCA needs more "
                f"rows than components. Pass more rows, or set n_components to at most "
                f"{pairs.n_rows - 1}."
            )

    def _remember_columns(self, pairs: PairSource, *, reset: bool = True) -> None:
        for view, source in zip(View, pairs.views(), strict=True):
            self._check_columns(view, source, reset=reset)

    def _check_columns(self, view: View, source: ViewSource, *, reset: bool = False) -> None:
        """Set or check number and names of the columns of a view, as scikit-learn does those of X.

        Its messages, too: its estimator checks look for them.
        """
        number, names = COLUMNS[view]
        known = source.column_names
        given = None if known is None else np.array(known, dtype=object)
        if reset:
            setattr(self, number, source.n_cols)
            self.__dict__.pop(names, None)
            if given is not None:
                setattr(self, names, given)
            return
        fitted, model = getattr(self, names, None), type(self).__name__
        if given is not None and fitted is not None:
            check_names(view.name, given, fitted)
        if source.n_cols != getattr(self, number):
            raise InputError(
                f"{view.name} has {source.n_cols} features, but {model} is expecting "
                f"{getattr(self, number)} features as input. Pass the columns used in fit."
            )
        if given is None and fitted is not None:
            warnings.warn(
                f"{view.name} does not have valid feature names, but {model} was fitted with "
                "feature names",
                UserWarning,
                stacklevel=4,
            )
        if given is not None and fitted is None:
            warnings.warn(
                f"{view.name} has feature names, but {model} was fitted without feature names",
                UserWarning,
                stacklevel=4,
            )

    def _column_names(self, view: View) -> list[str]:
        """Names of the columns of a view: those seen in fit, or x0, x1, ... and y0, y1, ..."""
        number, names = COLUMNS[view]
        known = getattr(self, names, None)
        if known is not None:
            return list(known)
        return [f"{view.name.lower()}{j}" for j in range(getattr(self, number))]

    def _variate_names(self, view: View) -> list[str]:
        """Names of the variates: scikit-learn's for X; for Y others, as both may be in a table."""
        prefix = type(self).__name__.lower() + ("" if view == View.X else "_y")
        return [f"{prefix}{i}" for i in range(self._n_features_out)]

    def _framed(self, values: NDArray[Any], like: Any, columns: list[str]) -> Any:
        """A table of results as `set_output` asks for, with the index of `like` if that has one."""
        adapter = _get_container_adapter("transform", self)
        return values if adapter is None else adapter.create_container(values, like, columns)

    def _keep(self, projection: Projection) -> None:
        """Set the fitted attributes."""
        self.projection_ = projection
        self.correlations_ = projection.correlations
        self.x_weights_, self.y_weights_ = projection.x.weights, projection.y.weights
        self.x_mean_, self.y_mean_ = projection.x.mean, projection.y.mean
        self.__dict__.pop("structure_", None)  # of the previous projection

    def _reg_used(self) -> Any:
        """Regularisation of both views; models of earlier versions have only the parameter."""
        return getattr(self, "reg_", getattr(self, "reg", None))

    def _kernel_space(
        self,
        pairs: PairSource,
        seed: int,
        approximations: Sequence[Any] = (None, None),
        max_rows: int | None = None,
        kernel: Any = None,
    ) -> KernelSpace:
        """The space that the kernels of an estimator with `kernel`, `width`, `metric` work in."""
        parameters: Any = self
        backend = self._backend(pairs.dtype)
        if max_rows is None:
            row_bytes = sum(pairs.bytes_on(backend))
            rank = getattr(self, "rank", pairs.n_rows)
            max_rows = metric_rows(rank, row_bytes, backend.itemsize, self._budget(backend))
        x, y = (not isinstance(one, FeatureMap) for one in approximations)
        with Threads(worker_count(self.n_jobs)) as engine:
            request = MetricRequest(
                parameters.metric,
                parameters.scale,
                parameters.kernel if kernel is None else kernel,
                parameters.width,
                self.n_components,
                backend,
                engine,
                (x, y),
                max_rows,
            )
            space = kernel_space(request, pairs, seed)
        self.scale_ = space.scaled
        return space

    def _backend(self, dtype: DType) -> Backend:
        """Where and in which precision a fit to data of this precision computes."""
        return pick_backend(self.device, dtype)

    def _budget(self, backend: Backend) -> int:
        """Bytes that arrays of the backend may take."""
        return budget_or_default(self.memory_budget, backend.free_bytes())

    def _host_budget(self) -> int:
        """Bytes of main memory that may be taken; also the limit of a backend that uses it."""
        return budget_or_default(self.memory_budget, available_ram())

    def _rows_that_fit(
        self,
        backend: Backend,
        *,
        there: tuple[int, int],
        here: tuple[int, int],
        n_rows: int,
        purpose: str,
        remedy: str,
    ) -> int:
        """Rows per chunk that fit in the memory of the backend (`there`) and main memory (`here`).

        Both are bytes however many rows there are, and bytes per row.
        """
        if backend.own_memory:
            limits = [
                (self._budget(backend), *there, f" on device={backend.device!r}"),
                (self._host_budget(), *here, " in main memory"),
            ]
        else:
            limits = [(self._budget(backend), there[0] + here[0], there[1] + here[1], "")]
        return min(
            rows_that_fit(
                budget,
                fixed=fixed,
                per_row=per_row,
                n_rows=n_rows,
                purpose=f"{purpose}{where}",
                remedy=remedy,
            )
            for budget, fixed, per_row, where in limits
        )

    def _transform_pairs(self, X: Any, Y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Project both views of paired rows; each view is opened once."""
        with PairSource.open(X, Y) as pairs:
            self._remember_columns(pairs, reset=False)
            return self._project_pairs(pairs)

    def _project_pairs(self, pairs: PairSource) -> tuple[NDArray[Any], NDArray[Any]]:
        x, y = pairs.views()
        sides = self.projection_.x, self.projection_.y
        return self._project(x, "X", sides[0]), self._project(y, "Y", sides[1])

    def _project(self, view: ViewSource, name: str, projection: ViewProjection) -> NDArray[Any]:
        """Project a view chunk by chunk, rows shared among threads."""
        given = compute_dtype(view.dtype)
        # At least the precision of the fit: weights may balance features to more digits than the
        # data has. The result has the precision of the data.
        precision = compute_dtype(view.dtype, projection.features.dtype)
        backend = projecting_backend(self.device, precision)
        placed = projection.folded.to(backend)
        Z = np.empty((view.n_rows, projection.weights.shape[1]), dtype=given)
        checked = CheckedView(view, name)
        checked.stay_near(backend)
        with Threads(worker_count(self.n_jobs)) as engine:
            own = checked.bytes_on(backend)
            scratch = own + placed.numbers_per_row() * backend.itemsize
            rows = self._rows_that_fit(
                backend,
                there=(min(engine.n_workers * PIECE_ROWS, view.n_rows) * scratch, own),
                here=(0, view.row_bytes),
                n_rows=view.n_rows,
                purpose="projecting",
                remedy="Raise memory_budget.",
            )

            def project(piece: slice, chunk: Array, start: int) -> None:
                X = backend.asarray(chunk[piece])
                Z[start + piece.start : start + piece.stop] = backend.to_numpy(placed(X))

            for start in range(0, view.n_rows, rows):
                chunk = checked.read(start, min(start + rows, view.n_rows), near=True)
                check_domain(name, projection.features.kernel, chunk, start)
                chunk = backend.uploaded(chunk)
                engine.map(project, even_slices(chunk.shape[0], PIECE_ROWS), chunk, start)
        return Z

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "projection_")

    @property
    def _n_features_out(self) -> int:
        return int(self.x_weights_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False  # Y is a table, and so is what `predict` returns
        tags.target_tags.two_d_labels = True
        return tags


def check_names(view: str, given: NDArray[Any], fitted: NDArray[Any]) -> None:
    """Raise unless columns have the names seen in fit, in the same order."""
    if np.array_equal(given, fitted):
        return
    lines = [f"{view}: The feature names should match those that were passed during fit."]
    unseen, missing = sorted({*given} - {*fitted}), sorted({*fitted} - {*given})
    for names, which in (
        (unseen, "Feature names unseen at fit time:"),
        (missing, "Feature names seen at fit time, yet now missing:"),
    ):
        if names:
            lines += [which, *(f"- {name}" for name in names[:5]), *(["- ..."] * (len(names) > 5))]
    if not unseen and not missing:
        lines.append("Feature names must be in the same order as they were in fit.")
    raise InputError("\n".join([*lines, "Pass the columns used in fit, in their order."]))


@contextmanager
def unchanged_on_failure(estimator: BaseCCA) -> Iterator[None]:
    """Restore the attributes of an estimator if fitting fails: the earlier model stays intact."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def portable(value: Any) -> Any:
    """A constructor parameter as JSON; random generators are not kept."""
    if isinstance(value, Kernel):
        return {"kernel": value.state_dict()}
    if isinstance(value, FeatureMap):
        return {"feature_map": value.kind}  # its arrays are in the projection
    if isinstance(value, Path):
        return str(value)
    if callable(value):  # networks of the user's: code is never saved, only its name
        named = value if hasattr(value, "__qualname__") else type(value)
        return f"{named.__module__}.{named.__qualname__}"
    if isinstance(value, list | tuple):
        return [portable(one) for one in value]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    return value


def _from_portable(value: Any, maps: tuple[FeatureMap, ...]) -> Any:
    """The inverse of `portable`; feature maps are taken from the projection (`maps`)."""
    if isinstance(value, dict):
        if "kernel" in value:
            return kernel_from_state(value["kernel"])
        return maps[0]  # one map for both views
    if isinstance(value, list):
        views = [(one,) for one in maps] if len(value) == len(maps) else [maps] * len(value)
        return tuple(_from_portable(one, own) for one, own in zip(value, views, strict=True))
    return value
