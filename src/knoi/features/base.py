"""The contract of a feature map, and what every map gets from its fields: sizes, device, state.

A fitted map is an immutable value: a frozen dataclass of arrays, numbers, kernels and other maps.
`ArraySpec` and `Size` annotations say what the fields may hold, so that number of columns, dtype,
placement on a backend and the stored state are derived once, here. A new map declares its fields
and writes `fit`, `prepare`, `block` and `scratch_per_row`.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, is_torch_array

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import View
from knoi.arrays.sparse import dense, empty_rows, is_sparse
from knoi.engine import even_slices
from knoi.exceptions import InputTypeError, ModelFileError, NonFiniteError
from knoi.kernels import KERNELS, Kernel, Linear, kernel_from_state

MAPS: dict[str, type["FeatureMap"]] = {}
# Columns of features that a projection computes at a time. Wide enough for BLAS, narrow enough that
# rank 100,000 does not need 100,000 numbers per row.
PROJECTED_COLUMNS = 8192

# Advice where random features do not serve the kernel.
TAKE_ANY_KERNEL = (
    "landmarks, which take any kernel: NystromCCA, KNOI(approximation='nystrom') or KernelCCA"
)


@dataclass(frozen=True)
class ArraySpec:
    """What an array field may hold.

    A dimension is "d" (columns of the input), "M" (features), a number, or the name of an integer
    attribute such as "size" or "columns.rank"; perhaps with " + 1". Any other name stands for
    whatever its first array has. Floats must be finite.
    """

    shape: tuple[str, ...]
    dtype: str = "float"  # "float": the precision of the map; else an integer dtype
    signs: bool = False  # floats -1 and 1, which the state has as int8
    below: str | None = None  # integers are indices below this dimension ...
    signed: bool = False  # ... or, with a negative sign, i as -i - 1
    optional: bool = False  # may be empty
    sparse: bool = False  # may be CSR
    on_host: bool = False  # stays a NumPy array on every device


@dataclass(frozen=True)
class Size:
    """An integer field that is a dimension: "d" or "M"."""

    name: str


class Stored:
    """A frozen dataclass that is placed on a backend and stored field by field."""

    kind: ClassVar[str] = ""  # the name in a model file; "" for what is only part of a map

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision the map was fitted in: the widest of its arrays; float32 without any."""
        dtypes = [
            value.dtype
            for name, mark in _marks(type(self)).items()
            for value in _parts(getattr(self, name))
            if isinstance(value, Stored)
            or (isinstance(mark, ArraySpec) and mark.dtype == "float" and not mark.signs)
        ]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float32)

    def to(self, backend: Backend) -> Self:
        """The same values with their arrays on `backend`, in its precision."""
        moved = {
            name: _placed(getattr(self, name), mark, backend)
            for name, mark in _marks(type(self)).items()
        }
        return replace(self, **moved)  # type: ignore[type-var]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to build it again: NumPy arrays and JSON values."""
        state: dict[str, Any] = {"kind": self.kind} if self.kind else {}
        for name, mark in _marks(type(self)).items():
            value = getattr(self, name)
            if isinstance(mark, ArraySpec) and mark.signs:
                state[name] = np.asarray(value, dtype=np.int8)
            elif isinstance(value, Stored | Kernel):
                state[name] = value.state_dict()
            elif isinstance(value, tuple) and isinstance(value[0], Stored):
                # By number: a model file has arrays in dicts, not in lists.
                state[name] = {str(i): part.state_dict() for i, part in enumerate(value)}
            else:
                state[name] = list(value) if isinstance(value, tuple) else value
        return state

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`; `ModelFileError` if the state cannot be one."""
        try:
            types = {field.name: field.type for field in fields(cls)}  # type: ignore[arg-type]
            values = {name: _loaded(state[name], types[name], name) for name in types}
            made = cls(**values)
            signs = {
                name: values[name].astype(made.dtype)
                for name, mark in _marks(cls).items()
                if isinstance(mark, ArraySpec) and mark.signs
            }
            made = replace(made, **signs) if signs else made  # type: ignore[type-var]
            _check_sizes(made)
            made.check_state()
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
            missing = " is missing" if isinstance(error, KeyError) else ""
            raise ModelFileError(
                f"the stored feature map {cls.kind or cls.__name__!r} is damaged: "
                f"{str(error).rstrip('.')}{missing}. The file was altered after it was saved: save "
                "the model again."
            ) from None
        return made

    def check_state(self) -> None:
        """`InputError` if loaded fields do not fit together in a way `ArraySpec` cannot say."""


class FeatureMap(Stored, ABC):
    """phi: R^d -> R^M, fitted and immutable.

    Maps that the registry names have a class method `fit(sample, kernel, rank, seed, view)`, where
    `sample` holds rows (n, d) of the view, a NumPy array or CSR.
    """

    kernel: Kernel  # approximated by the inner products of features
    is_identity: ClassVar[bool] = False  # phi(x) = x: sparse rows are features, never made dense

    def __init_subclass__(cls) -> None:
        if cls.kind:
            MAPS[cls.kind] = cls

    @cached_property
    def n_cols(self) -> int:
        """Number of input columns, d."""
        return _sizes(self)["d"]

    @cached_property
    def rank(self) -> int:
        """Number of features, M."""
        return _sizes(self)["M"]

    @property
    def grain(self) -> int:
        """Columns that are computed together: a block of fewer costs as much."""
        return 1

    @property
    def features_iid(self) -> bool:
        """Whether all features are draws of one distribution, each unbiased on its own."""
        return False

    @property
    def kernel_columns(self) -> Any:
        """The map to kernel values k(., Z) that has the same features; None if there is none."""
        return None

    def kernel_rows(self, X: Array) -> Array:
        """Rows of X in the form that `kernel_columns` takes."""
        return X

    @abstractmethod
    def prepare(self, X: Array) -> Array:
        """What every block of the rows of X (b, d) starts from, computed once: an array (b, any).

        X may be sparse (CSR), and so may the result. Row i of the result depends on row i of X
        only, so that rows can be cut before or after.
        """

    @abstractmethod
    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Features `columns` of prepared rows, (b, columns), written into `out` if given."""

    @abstractmethod
    def scratch_per_row(self) -> int:
        """Numbers held per row: the prepared row, and temporaries while a block is computed."""

    def sparse_features(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array | None:
        """All features of sparse rows as CSR, (b, M); None if the map makes them dense."""
        return None

    def transform(self, X: Array) -> Array:
        """All features of the rows of X, (b, M); raises on NaN and infinity.

        `prepare`, `block` and `project` do not check: they take rows that were checked when read.
        """
        values = X.data if is_sparse(X) else X
        xp = array_namespace(values)
        if not bool(xp.all(xp.isfinite(values))):
            raise NonFiniteError(
                "the rows to be mapped hold NaN or infinite values. Drop or fill them first."
            )
        return self.block(self.prepare(X), slice(0, self.rank))

    def project(self, X: Array, mean: Array, weights: Array) -> Array:
        """(phi(x) - mean) W for rows X (b, d), mean (M,), weights W (M, L): (b, L).

        Features are computed block by block.
        """
        Z, prepared = 0.0, self.prepare(X)
        for columns in self.slices(PROJECTED_COLUMNS):
            centred = self.block(prepared, columns) - mean[columns]  # (b, columns)
            Z = Z + centred @ weights[columns, :]
        return Z

    def gradient(self, X: Array, C: Array) -> Array:
        """Sum over features of C[i, m] times the gradient of phi_m at row i of X, as (n, d).

        C is (n, M). With C = W' in every row, the gradient of the projection.
        """
        raise InputTypeError(
            f"features of type {type(self).__name__} have no gradient in closed form. Use kernel "
            "columns, Nystrom or Fourier features."
        )

    def folded(self, mean: Array, weights: Array) -> tuple["FeatureMap", Array, Array]:
        """A map, mean and weights with the same (phi(x) - mean) W, where that is less work.

        Mean (M,) and weights (M, L) are NumPy arrays, and so are those returned.
        """
        return self, mean, weights

    def slices(self, largest: int) -> list[slice]:
        """Blocks of at most `largest` columns that cover all of them.

        Blocks begin at multiples of `grain` if `largest` allows it.
        """
        if self.grain == 1 or largest < self.grain:
            return even_slices(self.rank, largest)
        step = largest - largest % self.grain
        return [slice(s, min(s + step, self.rank)) for s in range(0, self.rank, step)]


@dataclass(frozen=True)
class Identity(FeatureMap):
    """phi(x) = x: with it, every kernel method is its linear counterpart."""

    kind: ClassVar[str] = "identity"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    is_identity: ClassVar[bool] = True
    columns: Annotated[int, Size("d")]

    @property
    def rank(self) -> int:
        """Number of features: as many as columns."""
        return self.columns

    def prepare(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Columns of the rows; a view unless `out` is given or they are sparse."""
        return copy_columns(prepared, columns, out)

    def project(self, X: Array, mean: Array, weights: Array) -> Array:
        """As any map, but sparse rows stay sparse."""
        if is_sparse(X):
            return X @ weights - mean @ weights
        return super().project(X, mean, weights)

    def gradient(self, X: Array, C: Array) -> Array:
        """C itself."""
        return C

    def scratch_per_row(self) -> int:
        """None."""
        return 0


Fit = Callable[[Array, Kernel, int, int, View], FeatureMap]
"""`fit(sample, kernel, rank, seed, view)`: a fitted map."""


def map_from_state(state: Mapping[str, Any]) -> FeatureMap:
    """Build whichever map `state` describes."""
    kind = state.get("kind")
    if kind not in MAPS:
        raise ModelFileError(
            f"the model uses a feature map of kind {kind!r}, which this version of knoi does not "
            f"know (it knows {', '.join(sorted(MAPS))}). Upgrade knoi to read it."
        )
    return MAPS[kind].from_state_dict(state)


K = TypeVar("K", bound=Kernel)


def require_kernel(kernel: Kernel, kinds: type[K] | tuple[type[K], ...], features: str) -> K:
    """The kernel if it is one of `kinds`; else `InputTypeError` with the names of those."""
    if isinstance(kernel, kinds):
        return kernel
    *names, last = [repr(name) for name, kind in KERNELS.items() if issubclass(kind, kinds)]
    wanted = f"{', '.join(names)} or {last}" if names else last
    raise InputTypeError(
        f"{features} need the kernel {wanted}, not {kernel.name!r}. Change the kernel, or use "
        f"{TAKE_ANY_KERNEL}."
    )


def output(prepared: Array, columns: int, out: Array | None = None) -> Array:
    """`out`, or a new dense array (b, columns) beside the prepared rows."""
    return empty_rows(prepared, columns) if out is None else out


def copy_columns(prepared: Array, columns: slice, out: Array | None) -> Array:
    """Columns of prepared rows that are the features themselves, dense."""
    wanted = dense(prepared[:, columns])
    if out is None:
        return wanted
    out[...] = wanted
    return out


# ------------------------------------------------------------------ fields: sizes, device, state


def _marks(cls: type) -> dict[str, Any]:
    """The `ArraySpec` or `Size` of every field; None for a field without one."""
    return {field.name: _mark(field.type) for field in fields(cls)}


def _mark(annotation: Any) -> Any:
    return next(iter(getattr(annotation, "__metadata__", ())), None)


def _sizes(made: Stored) -> dict[str, int]:
    """The dimensions that the fields declare, each by the first field that has it."""
    sizes: dict[str, int] = {}
    for name, mark in _marks(type(made)).items():
        value = getattr(made, name)
        part = _parts(value)[0]
        if isinstance(mark, Size):
            sizes.setdefault(mark.name, value)
        elif isinstance(mark, ArraySpec) and not mark.optional:
            for dimension, size in zip(mark.shape, value.shape, strict=True):
                symbol, plus = _parsed(dimension)
                sizes.setdefault(symbol, int(size) - plus)
        elif isinstance(part, Stored):
            sizes.setdefault("d", _sizes(part)["d"])
    return sizes


def _parsed(dimension: str) -> tuple[str, int]:
    """Name and offset of a dimension: ("d", 1) for "d + 1"."""
    symbol, _, plus = dimension.partition(" + ")
    return symbol, int(plus or 0)


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _placed(value: Any, mark: Any, backend: Backend) -> Any:
    """The value of a field on the backend."""
    if isinstance(value, Stored):
        return value.to(backend)
    if isinstance(value, tuple):
        return tuple(_placed(part, None, backend) for part in value)
    if not isinstance(mark, ArraySpec) or mark.on_host:
        return value
    if mark.dtype == "float":
        return backend.asarray(value)
    if backend.is_numpy:
        value = value.cpu() if is_torch_array(value) else value
        return np.asarray(value, dtype=mark.dtype)
    if isinstance(value, np.ndarray):
        value = np.array(value, dtype=np.int64)  # torch needs writable memory
    return backend.xp.asarray(value, dtype=backend.xp.int64, device=backend.device)


def _loaded(value: Any, annotation: Any, name: str) -> Any:
    """The value of a field from its state, checked as far as the field alone says."""
    mark = _mark(annotation)
    if isinstance(mark, ArraySpec):
        return _loaded_tensor(value, mark, name)
    held = annotation.__origin__ if mark else annotation
    if get_origin(held) is tuple:
        kind = get_args(held)[0]
        if issubclass(kind, Stored):
            return tuple(map_from_state(value[str(i)]) for i in range(len(value)))
        return tuple(_loaded(number, kind, name) for number in value)
    if held is bool:
        return bool(value)
    if held is int:
        number = operator.index(value)
        if isinstance(mark, Size) and number < 1:
            raise ValueError(f"{name} is {number}, expected at least 1")
        return number
    if held is float:
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, expected a finite number")
        return float(value)
    if issubclass(held, FeatureMap):
        made: Any = map_from_state(value)
    elif issubclass(held, Stored):
        made = held.from_state_dict(value)
    else:
        made = kernel_from_state(value)
    if not isinstance(made, held):
        raise ValueError(f"{name} is of type {type(made).__name__}, expected {held.__name__}")
    return made


def _loaded_tensor(value: Any, mark: ArraySpec, name: str) -> Any:
    """An array of the right number of dimensions and type, without NaN and infinity."""
    if not isinstance(value, np.ndarray) and not (mark.sparse and is_sparse(value)):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected an array")
    wanted = "i" if mark.signs or mark.dtype != "float" else "f"
    if value.ndim != len(mark.shape) or value.dtype.kind != wanted:
        kind = "integers" if wanted == "i" else "floats"
        raise ValueError(
            f"{name} holds {value.dtype} of shape {value.shape}, expected {kind} of shape "
            f"({', '.join(mark.shape)})"
        )
    numbers = value.data if is_sparse(value) else value
    # Extremes show NaN and infinity without a temporary array of booleans.
    if wanted == "f" and numbers.size and not np.isfinite([numbers.min(), numbers.max()]).all():
        raise ValueError(f"{name} holds NaN or infinite values")
    signs = mark.signs and value.size
    if signs and (value.min() < -1 or value.max() > 1 or np.count_nonzero(value) < value.size):
        raise ValueError(f"{name} holds numbers other than -1 and 1")
    return value


def _check_sizes(made: Stored) -> None:
    """`ValueError` if the arrays of a loaded map do not have the sizes that they declare."""
    sizes = _sizes(made)

    def size(dimension: str) -> int:
        symbol, plus = _parsed(dimension)
        if symbol.isdigit():
            return int(symbol)
        if hasattr(made, symbol.partition(".")[0]):
            return int(operator.attrgetter(symbol)(made)) + plus
        return sizes[symbol] + plus

    for name, mark in _marks(type(made)).items():
        if not isinstance(mark, ArraySpec):
            continue
        value = getattr(made, name)
        if mark.optional and 0 in value.shape:
            continue
        expected = tuple(map(size, mark.shape))
        if tuple(value.shape) != expected or 0 in expected:
            wanted = ", ".join(mark.shape)
            raise ValueError(f"{name} has shape {value.shape}, expected ({wanted}) = {expected}")
        if mark.below is not None:
            high = size(mark.below)
            low = -high if mark.signed else 0
            if value.min() < low or value.max() >= high:
                raise ValueError(f"{name} holds indices outside {low} to {high - 1}")
