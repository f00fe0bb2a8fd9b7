"""Random Maclaurin features: dot-product kernels by products of random signs (Kar & Karnick)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import View
from knoi.features.base import FeatureMap
from knoi.features.products import DRAW_BLOCK, Exact, ExactTerms, Products, coefficients, room_for
from knoi.kernels import DotProductKernel, Kernel, kernel_from_state


@dataclass(frozen=True)
class RandomMaclaurin(FeatureMap):
    """sqrt(a_n / (p_n M)) prod_j (w_j'x), w_j random signs, degree n drawn with probability p_n.

    For kernels sum_n a_n (x.z)^n with a_n >= 0, `Polynomial` and `Linear` here. The degrees are
    drawn evenly, and in the proportion that makes the error least on the rows of the sample, not
    by the paper's 2^-n. Terms of low degree are exact and stand last: the constant always, one
    column, and with exact="linear" x itself, which takes d columns and pays where d is well below
    the rank (the paper's H0/1).

    The signs take d numbers a factor: for very many columns use `TensorSketch`.
    """

    kind: ClassVar[str] = "random_maclaurin"
    kernel: Kernel
    products: Products
    exact: Exact

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy or CSR
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        exact: ExactTerms = "constant",
    ) -> Self:
        """Draw degrees and signs; the sample says how much each degree matters."""
        a = coefficients(kernel)
        assert isinstance(kernel, DotProductKernel)
        terms, left = Exact.split(a, exact, int(sample.shape[1]))
        scaled = sample / kernel.unit
        products = Products.draw(left, scaled, terms.sampled(rank), seed, view)
        return cls(kernel, products, terms)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return self.exact.n_cols

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return self.products.count + self.exact.count

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the weights."""
        own: np.dtype[Any] = np.dtype(self.products.weights.dtype)
        return own

    def prepare(self, X: Array) -> Array:
        """Rows in units of the kernel; refuses those whose k(x, x) overflows."""
        assert isinstance(self.kernel, DotProductKernel)
        self.kernel.diag(X)
        return X / self.kernel.unit

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Products first, then what is exact."""
        start, stop, _ = columns.indices(self.rank)
        out = room_for(prepared, stop - start, out)
        E = self.products.count
        if start < E:
            last = min(stop, E)
            self.products.fill(prepared, start, last, out[:, : last - start])
        if stop > E:
            first = max(start, E)
            self.exact.fill(prepared, first - E, stop - E, out[:, first - start :])
        return out

    def to(self, backend: Backend) -> Self:
        """Signs and weights on the backend."""
        return replace(self, products=self.products.to(backend), exact=self.exact.to(backend))

    def scratch_per_row(self) -> int:
        """The prepared row, and one factor of a block."""
        return self.n_cols + min(self.rank, DRAW_BLOCK)

    def state_dict(self) -> dict[str, Any]:
        """The drawn numbers themselves: no later version has to repeat the draw."""
        return {
            "kind": self.kind,
            "kernel": self.kernel.state_dict(),
            "products": self.products.state_dict(),
            "exact": self.exact.state_dict(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        products = Products.from_state_dict(state["products"])
        kernel = kernel_from_state(state["kernel"])
        return cls(kernel, products, Exact.from_state_dict(state["exact"]))
