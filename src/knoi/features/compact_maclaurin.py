"""Compact Maclaurin features: many random products, mixed down to few (Hamid et al., CRAFT)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator
from knoi.exceptions import InputError
from knoi.features.base import FeatureMap
from knoi.features.products import Exact, ExactTerms, Products, coefficients, room_for
from knoi.kernels import DotProductKernel, Kernel, kernel_from_state

# Features that are mixed from the same products. One group is `expansion` times as many products.
GROUP = 256


@dataclass(frozen=True)
class CompactMaclaurin(FeatureMap):
    """Groups of 256 features, each a subsampled Hadamard transform of `expansion` times as many.

    A random product of high degree is mostly near 0 and rarely large, so an average of M of them
    has an error that grows with up to 3^n for a term of degree n. A mixture of many products is
    nearly normal, and M mixtures have an error of about sqrt((k(x, x) k(z, z) + k(x, z)^2) / M)
    whatever the degree, besides that of the `expansion` times M products. Where products are not
    the larger of the two (low degree, rows nearly at right angles) nothing is gained by mixing,
    and features take `expansion` times as long as those of `RandomMaclaurin`.

    Exact terms stand last and are not mixed, as in `RandomMaclaurin`.
    """

    kind: ClassVar[str] = "compact_maclaurin"
    kernel: Kernel
    products: Products
    mixing: Array  # (products a group, GROUP) signs: distinct columns of a Hadamard matrix
    exact: Exact
    mixed: int  # features that are mixtures

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy or CSR
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        expansion: int = 8,
        exact: ExactTerms = "constant",
    ) -> Self:
        """Draw products, `expansion` (a power of two) times as many as features, and mixtures."""
        if expansion < 4 or expansion & (expansion - 1):
            raise InputError(
                f"expansion={expansion} cannot be used: a power of two of at least 4 is wanted, "
                "for the Hadamard transform. Leave it at 8, or use RandomMaclaurin."
            )
        a = coefficients(kernel)
        assert isinstance(kernel, DotProductKernel)
        terms, left = Exact.split(a, exact, int(sample.shape[1]))
        mixed = terms.sampled(rank)
        many = expansion * GROUP  # whole blocks of products, so that no block is in two groups
        products = Products.draw(left, sample / kernel.unit, -(-mixed // GROUP) * many, seed, view)
        # No signs of its own: those of the products are random already.
        chosen = generator(seed, Purpose.PERMUTATION, view).permutation(many)[:GROUP]
        H = scipy.linalg.hadamard(many, dtype=np.int8)[:, chosen].astype(np.float64, order="C")
        return cls(kernel, products, H, terms, mixed)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return self.exact.n_cols

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return self.mixed + self.exact.count

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the weights."""
        own: np.dtype[Any] = np.dtype(self.products.weights.dtype)
        return own

    @property
    def grain(self) -> int:
        """A group has its products in common."""
        return GROUP

    def prepare(self, X: Array) -> Array:
        """Rows in units of the kernel; refuses those whose k(x, x) overflows."""
        assert isinstance(self.kernel, DotProductKernel)
        self.kernel.diag(X)
        return X / self.kernel.unit

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The products of every group that has some of the columns, mixed; then what is exact."""
        start, stop, _ = columns.indices(self.rank)
        out = room_for(prepared, stop - start, out)
        last = min(stop, self.mixed)
        many = int(self.mixing.shape[0])
        # Products are scaled for an average of them all; a group is to be an average on its own,
        # and the features an average of `mixed` mixtures.
        scale = (self.products.count / (many * self.mixed)) ** 0.5
        for group in range(start // GROUP, -(-last // GROUP) if last > start else 0):
            first = group * GROUP
            lo, hi = max(start, first), min(last, first + GROUP)
            P = room_for(prepared, many, None)
            self.products.fill(prepared, group * many, (group + 1) * many, P)
            F = out[:, lo - start : hi - start]
            F[...] = P @ self.mixing[:, lo - first : hi - first]
            F *= scale
        if stop > self.mixed:
            begin = max(start, self.mixed)
            beyond = begin - self.mixed, stop - self.mixed
            self.exact.fill(prepared, *beyond, out[:, begin - start :])
        return out

    def to(self, backend: Backend) -> Self:
        """Signs, weights and mixtures on the backend."""
        return replace(
            self,
            products=self.products.to(backend),
            mixing=backend.asarray(self.mixing),
            exact=self.exact.to(backend),
        )

    def scratch_per_row(self) -> int:
        """The prepared row, the products of a group and one factor of them, mixtures."""
        return self.n_cols + 2 * int(self.mixing.shape[0]) + GROUP

    def state_dict(self) -> dict[str, Any]:
        """The drawn numbers themselves: no later version has to repeat the draw."""
        return {
            "kind": self.kind,
            "kernel": self.kernel.state_dict(),
            "products": self.products.state_dict(),
            "mixing": np.asarray(self.mixing, dtype=np.int8),
            "exact": self.exact.state_dict(),
            "mixed": self.mixed,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        products = Products.from_state_dict(state["products"])
        mixing = state["mixing"].astype(products.weights.dtype)
        exact = Exact.from_state_dict(state["exact"])
        return cls(kernel_from_state(state["kernel"]), products, mixing, exact, int(state["mixed"]))
