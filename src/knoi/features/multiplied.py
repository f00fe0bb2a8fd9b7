"""Maps multiplied: the features of a product of kernels are products of those of its factors.

All of them, M1 M2, always do (`TensorMap`); where features are random, M products of independent
features do as well as M features of one kernel (`ProductMap`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays.backend import Array, Backend
from knoi.arrays.sparse import PreparedParts, is_sparse
from knoi.exceptions import InputError
from knoi.features.base import FeatureMap
from knoi.features.fourier import RandomFourier
from knoi.features.parts import check_parts, from_states, prepared_parts, room, scratch, states
from knoi.kernels import Kernel, ProductKernel, kernel_from_state

# Kinds of maps, besides those below, whose features are draws of one distribution, each unbiased on
# its own.
IID = frozenset({"structured_fourier", "spherical_fourier", "arccosine"})


@dataclass(frozen=True)
class ProductMap(FeatureMap):
    """phi_i(x) = M^((k-1)/2) phi_1,i(x) phi_2,i(x) ... phi_k,i(x), for the kernel k_1 k_2 ...

    E phi_i(x) phi_i(z) = M^(k-1) prod_j k_j(x, z) / M, so the map is unbiased if parts are drawn
    independently and every single feature of a part is unbiased: E phi_j,i(x) phi_j,i(z) =
    k_j(x, z) / M. So are arc-cosine features and random Fourier features with random phases,
    however the frequencies are drawn. Not so are pairs of cosine and sine, of which only the sum of
    two is unbiased; Nystrom features and monomials, which are not random; Maclaurin features, which
    are sorted by degree and of which one is the whole constant term. The features of a sketch are,
    but few of them can hold most of the kernel, and the error would not fall with M. `TensorMap`
    takes all of these; and one part may be pairs, as each of the two has the others' k_j / M.
    """

    kind: ClassVar[str] = "product"
    kernel: Kernel
    parts: tuple[FeatureMap, ...]
    rows: PreparedParts = field(default=None, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_parts(self.parts)
        if len({part.rank for part in self.parts}) > 1:
            raise InputError(
                f"the maps of a product have ranks {[part.rank for part in self.parts]}: feature "
                "by feature, they must have as many. Fit them with the same rank, or use TensorMap."
            )
        if not elementwise(self.parts):
            kinds = {part.kind for part in self.parts if not features_iid(part)}
            raise InputError(
                f"the features of these maps ({', '.join(sorted(kinds))}) cannot be multiplied one "
                "by one: they are not draws of one distribution, each unbiased on its own. Use "
                "TensorMap, which multiplies each with each."
            )
        if self.rows is None:
            object.__setattr__(self, "rows", prepared_parts(self.parts))

    @classmethod
    def of(cls, parts: tuple[FeatureMap, ...]) -> Self:
        """The product of maps that were drawn independently.

        Random Fourier maps become one whose frequencies are the sums of theirs: the spectral
        measure of a product of kernels is the convolution of those of its factors.
        """
        return cls(ProductKernel(tuple(part.kernel for part in parts)), joined(parts))

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return self.parts[0].n_cols

    @property
    def rank(self) -> int:
        """Columns of the output, as many as every part has."""
        return self.parts[0].rank

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the most precise part."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def grain(self) -> int:
        """The largest of a part."""
        return max(part.grain for part in self.parts)

    def prepare(self, X: Array) -> Array:
        """What the parts prepare, side by side."""
        return self.rows.prepare(X)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The features of the parts, multiplied."""
        first, *others = self.rows.split(prepared)
        if out is None and is_sparse(prepared):
            out = room(prepared, columns.stop - columns.start)
        Phi = self.parts[0].block(first, columns, out)
        for part, rows in zip(self.parts[1:], others, strict=True):
            Phi *= part.block(rows, columns)
        if others:
            Phi *= self.rank ** (len(others) / 2)
        return Phi

    def to(self, backend: Backend) -> Self:
        """All parts on the backend."""
        parts = tuple(part.to(backend) for part in self.parts)
        return replace(self, parts=parts, rows=replace(self.rows, parts=parts))

    def scratch_per_row(self) -> int:
        """What the parts take, twice as their rows are copied, and one more block."""
        return scratch(self.parts) + (self.rank if len(self.parts) > 1 else 0)

    def state_dict(self) -> dict[str, Any]:
        """The kernel and the parts."""
        kernel = self.kernel.state_dict()
        return {"kind": self.kind, "kernel": kernel, "parts": states(self.parts)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        return cls(kernel_from_state(state["kernel"]), from_states(state["parts"]))


@dataclass(frozen=True)
class TensorMap(FeatureMap):
    """phi_ij(x) = phi_1,i(x) phi_2,j(x) for all i and j: inner products of features multiply.

    With M1 <= M2 features the columns are the diagonals: (i, i + s modulo M2), i = 0 ... M1 - 1,
    for s = 0, 1, ... So the first columns are a fair sample of all, and of both maps.
    """

    kind: ClassVar[str] = "tensor"
    few: FeatureMap  # M1
    many: FeatureMap  # M2

    def __post_init__(self) -> None:
        check_parts((self.few, self.many))
        if self.few.rank > self.many.rank:
            few, many = self.many, self.few
            object.__setattr__(self, "few", few)
            object.__setattr__(self, "many", many)

    @classmethod
    def of(cls, parts: tuple[FeatureMap, ...]) -> FeatureMap:
        """Of any number of maps, two by two."""
        product = parts[0]
        for part in parts[1:]:
            product = cls(product, part)
        return product

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The product of those of the parts."""
        return ProductKernel((self.few.kernel, self.many.kernel))

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return self.few.n_cols

    @property
    def rank(self) -> int:
        """Columns of the output, M1 M2."""
        return self.few.rank * self.many.rank

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the more precise part."""
        return np.result_type(self.few.dtype, self.many.dtype)

    def prepare(self, X: Array) -> Array:
        """All features of both, (b, M1 + M2)."""
        both = [p.block(p.prepare(X), slice(0, p.rank)) for p in (self.few, self.many)]
        return array_namespace(*both).concat(both, axis=1)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Parts of diagonals, each a product of two runs of columns."""
        if out is None:
            out = room(prepared, columns.stop - columns.start)
        M1, M2 = self.few.rank, self.many.rank
        few, many = prepared[:, :M1], prepared[:, M1:]
        at = columns.start
        while at < columns.stop:
            diagonal, i = divmod(at, M1)
            j = (i + diagonal) % M2
            size = min(M1 - i, M2 - j, columns.stop - at)
            target = out[:, at - columns.start : at - columns.start + size]
            target[...] = few[:, i : i + size]
            target *= many[:, j : j + size]
            at += size
        return out

    def to(self, backend: Backend) -> Self:
        """Both parts on the backend."""
        return replace(self, few=self.few.to(backend), many=self.many.to(backend))

    def scratch_per_row(self) -> int:
        """What the parts take, and their features twice."""
        parts = (self.few, self.many)
        return sum(part.scratch_per_row() + 2 * part.rank for part in parts)

    def state_dict(self) -> dict[str, Any]:
        """Both parts."""
        return {"kind": self.kind, "parts": states((self.few, self.many))}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        few, many = from_states(state["parts"])
        return cls(few, many)


def features_iid(features: FeatureMap) -> bool:
    """Whether all features are draws of one distribution, each unbiased on its own."""
    if isinstance(features, RandomFourier):
        return not _paired(features)
    if isinstance(features, TensorMap):
        return features_iid(features.few) and features_iid(features.many)
    if isinstance(features, ProductMap):
        return all(features_iid(part) for part in features.parts)
    if features.kind == "chain":
        return features_iid(features.second)  # type: ignore[attr-defined]
    return features.kind in IID


def elementwise(parts: tuple[FeatureMap, ...]) -> bool:
    """Whether the features of `parts` may be multiplied one by one: see `ProductMap`."""
    others = [part for part in parts if not features_iid(part)]
    return len(parts) == 1 or not others or (len(others) == 1 and _paired(others[0]))


def joined(parts: tuple[FeatureMap, ...]) -> tuple[FeatureMap, ...]:
    """The maps, those of Fourier features as one for the product of their kernels."""
    fourier = [part for part in parts if isinstance(part, RandomFourier)]
    if len(fourier) < 2 or len({part.rank for part in fourier}) > 1:
        return parts
    like = next((one for one in fourier if not _paired(one)), fourier[0])
    turns = sum(one.turns for one in fourier)
    turns[-1, :] = like.turns[-1, :]
    # The kernel it names is one of the factors only: who joins knows of what kernel the map is.
    one = replace(like, turns=turns)
    return (one, *(part for part in parts if not isinstance(part, RandomFourier)))


def _paired(features: FeatureMap) -> bool:
    """Whether features are cosines and sines: the sine is a cosine with a phase below 0."""
    return isinstance(features, RandomFourier) and bool((features.phases < 0).any())
