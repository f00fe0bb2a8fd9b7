"""One map after another: phi(x) = second(first(x)).

What a kernel of x becomes after the first map decides which the second must be:

- Exponential chi2 is RBF on features of additive chi2, since those keep its distance (`fit_chi2`;
  Sreekanth et al. 2010).
- A stationary kernel of a million sparse columns is the same kernel of their count sketch, about
  (`fit_sketched`): Fourier features of the rows themselves would need a million frequencies each.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import View
from knoi.arrays.sparse import is_sparse
from knoi.exceptions import InputError, InputTypeError
from knoi.features.additive import Additive
from knoi.features.base import FeatureMap, map_from_state
from knoi.features.count_sketch import CountSketch
from knoi.features.fourier import RandomFourier
from knoi.kernels import RBF, AdditiveChi2, Chi2, Kernel, Linear, Matern, kernel_from_state

# Features a column of the map that keeps chi2 distances: two frequencies keep them to one per cent.
CHI2_PER_COLUMN = 5


@runtime_checkable
class KeepsSparse(Protocol):
    """A map whose features of sparse rows are sparse."""

    def sparse_features(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """All features of the rows of X (b, d), as CSR (b, M)."""


@dataclass(frozen=True)
class Chain(FeatureMap):
    """phi(x) = second(first(x)); whoever makes the chain says of what kernel the result is."""

    kind: ClassVar[str] = "chain"
    first: FeatureMap
    second: FeatureMap
    kernel: Kernel

    def __post_init__(self) -> None:
        if self.first.rank != self.second.n_cols:
            raise InputError(
                f"the first map of a chain makes {self.first.rank} features, but the second takes "
                f"{self.second.n_cols} columns. Fit the second on features of the first."
            )

    @property
    def n_cols(self) -> int:
        """Columns of the input, those of the first map."""
        return self.first.n_cols

    @property
    def rank(self) -> int:
        """Columns of the output, those of the second map."""
        return self.second.rank

    @property
    def dtype(self) -> np.dtype[Any]:
        """The wider one of both maps."""
        return np.result_type(self.first.dtype, self.second.dtype)

    @property
    def grain(self) -> int:
        """That of the second map."""
        return self.second.grain

    def prepare(self, X: Array) -> Array:
        """The first map, whole, and what the second prepares from it."""
        return self.second.prepare(all_features(self.first, X))

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """A block of the second map."""
        return self.second.block(prepared, columns, out)

    def to(self, backend: Backend) -> Self:
        """Both maps on the backend."""
        return replace(self, first=self.first.to(backend), second=self.second.to(backend))

    def scratch_per_row(self) -> int:
        """The features in between, and what both maps take."""
        return self.first.scratch_per_row() + self.first.rank + self.second.scratch_per_row()

    def state_dict(self) -> dict[str, Any]:
        """Both maps and the kernel."""
        return {
            "kind": self.kind,
            "kernel": self.kernel.state_dict(),
            "first": self.first.state_dict(),
            "second": self.second.state_dict(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        first, second = map_from_state(state["first"]), map_from_state(state["second"])
        return cls(first, second, kernel_from_state(state["kernel"]))


def all_features(features: FeatureMap, X: Array) -> Array:
    """Every feature of the rows of X, (b, M); sparse if they are and the map keeps them so."""
    if is_sparse(X) and isinstance(features, KeepsSparse):
        return features.sparse_features(X)
    return features.block(features.prepare(X), slice(0, features.rank))


def fit_chi2(
    sample: Array,  # (n, d) rows of the view, NumPy or CSR
    kernel: Kernel,
    rank: int,
    seed: int,
    view: View,
    *,
    per_column: int = CHI2_PER_COLUMN,
) -> Chain:
    """Fourier features of the exponential chi2 kernel exp(-chi2(x, z) / width).

    With psi(x).psi(z) = sum_j 2 x_j z_j / (x_j + z_j), |psi(x) - psi(z)|^2 = chi2(x, z), so the
    kernel is RBF(sqrt(width / 2)) on psi. What error psi has left stays, however large the rank:
    `per_column` of its features a column, an odd number.
    """
    if not isinstance(kernel, Chi2):
        raise InputTypeError(
            f"these features are those of the kernel 'chi2', not of {kernel.name!r}. Use chi2, or "
            "a map that is made for the kernel."
        )
    if per_column < 1 or per_column % 2 == 0:
        raise InputError(f"per_column={per_column} cannot be used: 1, 3, 5, ... is wanted.")
    width = kernel.decided_width
    first = Additive.fit(sample, AdditiveChi2(), per_column * sample.shape[1], seed, view)
    gaussian = RBF(math.sqrt(width / 2))
    second = RandomFourier.fit(all_features(first, sample), gaussian, rank, seed, view)
    return Chain(first, second, kernel)


def fit_sketched(
    sample: Array,  # (n, d) rows of the view, NumPy or CSR
    kernel: Kernel,
    rank: int,
    seed: int,
    view: View,
    *,
    buckets: int,
) -> Chain:
    """Fourier features of RBF or Matern, after a count sketch to `buckets` columns.

    Both are kernels of Euclidean distance, which the sketch keeps: a squared distance is off by
    sqrt(2 / buckets) of itself, about, whatever the rank.
    """
    if not isinstance(kernel, RBF | Matern):
        raise InputTypeError(
            f"a count sketch keeps Euclidean distances, which the kernel {kernel.name!r} is not "
            "made of. Use 'rbf' or 'matern'."
        )
    first = CountSketch.fit(sample, Linear(), buckets, seed, view)
    second = RandomFourier.fit(all_features(first, sample), kernel, rank, seed, view)
    return Chain(first, second, kernel)
