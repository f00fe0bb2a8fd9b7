"""The contract of a feature map, and the identity map.

A fitted map is a value: arrays and numbers, no behaviour that depends on what was computed before.
Any block of its columns can be had on its own, so that nothing ever needs all of phi(x) at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays.backend import Array, Backend
from knoi.arrays.blocks import even_slices
from knoi.arrays.sparse import dense, is_sparse
from knoi.exceptions import ModelFileError, NonFiniteError
from knoi.kernels import Kernel, Linear

MAPS: dict[str, type["FeatureMap"]] = {}
# Columns of features that a projection computes at a time. Wide enough for BLAS, narrow enough that
# rank 100,000 does not need 100,000 numbers per row.
PROJECTED_COLUMNS = 8192


class FeatureMap(ABC):
    """phi: R^d -> R^M, fitted and immutable."""

    kind: ClassVar[str]  # the name a model file knows the map by
    kernel: Kernel  # what inner products of features stand for
    is_identity: ClassVar[bool] = False  # phi(x) = x: sparse rows are features, never made dense

    def __init_subclass__(cls) -> None:
        MAPS[cls.kind] = cls

    @property
    @abstractmethod
    def n_cols(self) -> int:
        """Columns of the input, d."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Columns of the output, M."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The precision the map was fitted in, and must be used in at least."""

    @property
    def grain(self) -> int:
        """Columns that are made together: blocks of fewer cost as much."""
        return 1

    @property
    def landmark_rows(self) -> Array | None:
        """Landmarks Z (M, d) if the features are the kernel values k(x, Z); None for other maps."""
        return None

    @abstractmethod
    def prepare(self, X: Array) -> Array:
        """What every block of the rows of X (b, d) starts from, computed once: an array (b, any).

        X may be sparse (CSR); so may be what is returned, if `block` knows it. A part of its rows
        prepares a part of X, so that rows can be cut after as well as before.
        """

    @abstractmethod
    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Features `columns` of prepared rows, (b, columns), written into `out` if given."""

    @abstractmethod
    def to(self, backend: Backend) -> Self:
        """The same map with its arrays where `backend` has them, in its precision."""

    @abstractmethod
    def scratch_per_row(self) -> int:
        """Numbers held for one row, prepared and while a block of it is computed, besides it."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything needed to build the map again: NumPy arrays and JSON values."""

    @classmethod
    @abstractmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""

    def transform(self, X: Array) -> Array:
        """All features of the rows of X, (b, M); refuses NaN and infinity, as no other method does.

        `prepare` and `block` are for rows that were checked as they were read.
        """
        refuse_non_finite(X)
        return self.block(self.prepare(X), slice(0, self.rank))

    def project(self, X: Array, mean: Array, weights: Array) -> Array:
        """(phi(x) - mean) W for rows X (b, d), mean (M,), weights W (M, L): (b, L).

        Features are computed block by block; rows are not checked.
        """
        Z, prepared = 0.0, self.prepare(X)
        for columns in self.slices(PROJECTED_COLUMNS):
            centred = self.block(prepared, columns) - mean[columns]  # (b, columns)
            Z = Z + centred @ weights[columns, :]
        return Z

    def folded(self, mean: Array, weights: Array) -> tuple["FeatureMap", Array, Array]:
        """A map, mean and weights with the same (phi(x) - mean) W, where that is less work.

        Mean (M,) and weights (M, L) are NumPy's, and so is what is returned.
        """
        return self, mean, weights

    def slices(self, largest: int) -> list[slice]:
        """Blocks of at most `largest` columns that together are all of them.

        They begin where columns that are made together do, if so many are allowed.
        """
        if self.grain == 1 or largest < self.grain:
            return even_slices(self.rank, largest)
        step = largest - largest % self.grain
        return [slice(s, min(s + step, self.rank)) for s in range(0, self.rank, step)]


def refuse_non_finite(X: Array) -> None:
    """`NonFiniteError` if X (b, d) holds NaN or infinity."""
    values = X.data if is_sparse(X) else X
    xp = array_namespace(values)
    if not bool(xp.all(xp.isfinite(values))):
        raise NonFiniteError(
            "the rows to be mapped hold NaN or infinite values. Drop or fill them first."
        )


@dataclass(frozen=True)
class Identity(FeatureMap):
    """phi(x) = x: with it, every kernel method is its linear counterpart."""

    kind: ClassVar[str] = "identity"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    is_identity: ClassVar[bool] = True
    columns: int

    @property
    def n_cols(self) -> int:
        """Columns of the input."""
        return self.columns

    @property
    def rank(self) -> int:
        """Columns of the output: as many."""
        return self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Any: the rows themselves are the features."""
        return np.dtype(np.float32)

    def prepare(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The asked-for columns; a view of the rows unless `out` is given or they are sparse."""
        asked = dense(prepared[:, columns])
        if out is None:
            return asked
        out[...] = asked
        return out

    def project(self, X: Array, mean: Array, weights: Array) -> Array:
        """As any map, but sparse rows stay sparse."""
        if is_sparse(X):
            return X @ weights - mean @ weights
        return super().project(X, mean, weights)

    def to(self, backend: Backend) -> Self:
        """Nothing to move."""
        return self

    def scratch_per_row(self) -> int:
        """No scratch."""
        return 0

    def state_dict(self) -> dict[str, Any]:
        """The number of columns."""
        return {"kind": self.kind, "columns": self.columns}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        return cls(int(state["columns"]))


def map_from_state(state: Mapping[str, Any]) -> FeatureMap:
    """Build whichever map `state` describes."""
    kind = state.get("kind")
    if kind not in MAPS:
        raise ModelFileError(
            f"the model uses a feature map of kind {kind!r}, which this version of knoi does not "
            f"know (it knows {', '.join(sorted(MAPS))}). Upgrade knoi to read it."
        )
    return MAPS[kind].from_state_dict(state)
