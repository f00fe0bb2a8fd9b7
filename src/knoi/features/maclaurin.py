"""Maclaurin features of dot-product kernels: products of random signs, plain or mixed down.

A product prod_j (w_j'x) with n vectors w_j of random signs is unbiased for (x.z)^n. Plain features
are such products (Kar & Karnick); compact ones are mixtures of many of them (Hamid et al., CRAFT).
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self, get_args

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import dense, empty_rows, inner, is_sparse, product, squared_norms
from knoi.checks import one_of
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, Size, Stored, output, require_kernel
from knoi.features.fourier import DRAW_BLOCK
from knoi.kernels import DotProductKernel, Kernel

ExactTerms = Literal["constant", "linear"]

# No series is followed further; in float32 such powers overflow long before.
HIGHEST_DEGREE = 64
# Rows looked at to weigh the degrees.
WEIGHING_ROWS = 256
# Every degree gets at least this part of an equal share, should the sample not show its weight.
LEAST_SHARE = 0.01
GOLDEN = (math.sqrt(5) - 1) / 2
# Features that are mixed from the same products. A group has `expansion` times as many products.
GROUP = 256


def coefficients(kernel: DotProductKernel) -> NDArray[np.float64]:
    """a_0, a_1, ... of a kernel sum_n a_n (x.z / unit^2)^n, up to the last that is not 0."""
    try:
        a = np.array([kernel.maclaurin(n) for n in range(HIGHEST_DEGREE + 2)])
    except OverflowError:
        a = np.array([np.inf])
    if not np.all(np.isfinite(a)) or np.any(a < 0) or a[-1] > 0:
        raise InputError(
            f"{kernel!r} has no finite, nonnegative Maclaurin coefficients up to degree "
            f"{HIGHEST_DEGREE} and none beyond it. Use a lower degree or a smaller coef0."
        )
    return np.trim_zeros(a, "b")


def degree_shares(
    a: NDArray[np.float64],  # (degrees,), 0 for those that need no products
    sample: Array,  # (n, d) rows in units of the kernel, NumPy or CSR
) -> NDArray[np.float64]:
    """The share of products of each degree that makes the error least on pairs of sample rows.

    A product of degree n has the variance v^n - (x.z)^2n, with v = E (w'x)^2 (w'z)^2. If m_n
    products of degree n add up to a_n (x.z)^n, sum_n a_n^2 variance_n / m_n is least for m_n in
    proportion to a_n times the standard deviation.
    """
    X = sample[:WEIGHING_ROWS, :].astype(np.float64)
    squares = X.multiply(X).tocsr() if is_sparse(X) else X * X
    dots = inner(X, X) ** 2
    lengths = squared_norms(X)
    v = np.maximum(np.outer(lengths, lengths) + 2 * dots - 2 * inner(squares, squares), dots)
    largest = float(v.max(initial=0.0))
    drawn = a > 0
    equal: NDArray[np.float64] = drawn / drawn.sum()
    if largest == 0:
        return equal
    v /= largest
    dots /= largest
    logs = np.full(len(a), -np.inf)
    for n in np.flatnonzero(drawn):
        variance = float(np.mean(v**n - dots**n))
        # Without variance (a single column) any share will do: then by size.
        size = max(variance, 1e-12 * float(np.mean(v**n)))
        logs[n] = math.log(a[n]) + 0.5 * (n * math.log(largest) + math.log(size))
    shares: NDArray[np.float64] = np.exp(logs - logs.max())
    shares /= shares.sum()
    return (1 - LEAST_SHARE) * shares + LEAST_SHARE * equal


@dataclass(frozen=True)
class SignProducts(Stored):
    """Scaled products of all degrees: together, an estimate of sum_n a_n (x.z)^n.

    They are drawn `DRAW_BLOCK` at a time and sorted by degree within a block.
    """

    # Block by block; in a block first factors, second factors, ...
    signs: Annotated[Array, ArraySpec(("d", "factors"), signs=True)]
    weights: Annotated[Array, ArraySpec(("count",))]  # sqrt(a_n / (p_n E))
    # Falling within each block.
    degrees: Annotated[Array, ArraySpec(("count",), dtype="int64", on_host=True)]

    @classmethod
    def draw(
        cls,
        a: NDArray[np.float64],  # (degrees,), 0 for those that need no products
        sample: Array,  # (n, d) rows in units of the kernel
        count: int,
        seed: int,
        view: View,
    ) -> Self:
        """`count` products; a larger draw has the whole blocks of a smaller one."""
        p = degree_shares(a, sample)
        edges = np.cumsum(p)
        # Each degree is drawn with probability p_n, but not independently: multiples of the
        # golden ratio fill [0, 1) evenly, so that every degree gets its share at any count.
        offset = generator(seed, Purpose.DEGREES, view).uniform()
        positions = (offset + GOLDEN * np.arange(count)) % 1.0
        degrees = np.searchsorted(edges[:-1], positions, side="right")
        signs = []
        for block, first in enumerate(range(0, count, DRAW_BLOCK)):
            part = degrees[first : first + DRAW_BLOCK]
            part[::-1].sort()
            draw = generator(seed, Purpose.SIGNS, view, block)
            signs.append(draw.integers(0, 2, (sample.shape[1], int(part.sum())), dtype=np.int8))
        W = np.concatenate(signs, axis=1).astype(np.float64)
        W *= 2.0
        W -= 1.0
        return cls(W, np.sqrt(a[degrees] / (p[degrees] * count)), degrees)

    @property
    def count(self) -> int:
        """Number of products, E."""
        return len(self.degrees)

    @property
    def factors(self) -> int:
        """Number of factors of all products."""
        return int(self.degrees.sum())

    def check_state(self) -> None:
        """Degrees are positive and fall within each block."""
        for first in range(0, self.count, DRAW_BLOCK):
            part = self.degrees[first : first + DRAW_BLOCK]
            if part[-1] < 1 or np.any(np.diff(part) > 0):
                raise InputError("degrees are not positive numbers that fall within each block")

    @cached_property
    def _factor_places(self) -> list[list[tuple[int, int]]]:
        """For every block, where its first, second, ... factors begin, and how many there are."""
        blocks, begin = [], 0
        for first in range(0, self.count, DRAW_BLOCK):
            part = self.degrees[first : first + DRAW_BLOCK]
            factors = []
            for j in range(int(part.max(initial=0))):
                many = int(np.sum(part > j))
                factors.append((begin, many))
                begin += many
            blocks.append(factors)
        return blocks

    def fill(self, rows: Array, start: int, stop: int, out: Array) -> None:
        """Products start:stop of rows (b, d) in units of the kernel, into `out`."""
        for block in range(start // DRAW_BLOCK, -(-stop // DRAW_BLOCK)):
            first = block * DRAW_BLOCK
            lo, hi = max(start - first, 0), min(stop - first, DRAW_BLOCK)
            F = out[:, first + lo - start : first + hi - start]
            for j, (begin, many) in enumerate(self._factor_places[block]):
                if lo >= many:
                    break
                factors = product(rows, self.signs[:, begin + lo : begin + min(hi, many)])
                if j == 0:
                    F[...] = factors
                else:
                    F[:, : factors.shape[1]] *= factors
            F *= self.weights[first + lo : first + hi]


@dataclass(frozen=True)
class LowDegreeTerms(Stored):
    """The features of the terms of low degree that need no sampling: sqrt(a_0), sqrt(a_1) x."""

    # sqrt(a_0), sqrt(a_1); 0 if the term is not taken exactly.
    roots: Annotated[Array, ArraySpec(("2",))]
    constant: bool
    linear: bool
    n_cols: Annotated[int, Size("d")]

    @classmethod
    def split(
        cls, kernel: DotProductKernel, terms: ExactTerms, d: int, rank: int
    ) -> tuple[Self, NDArray[np.float64], int]:
        """What is exact; coefficients (degrees,) of what is left, and features left for it."""
        a = coefficients(kernel)
        one_of("exact", terms, get_args(ExactTerms))
        constant = bool(a[0] > 0)
        linear = terms == "linear" and len(a) > 1 and bool(a[1] > 0)
        roots = np.array([math.sqrt(a[0]), math.sqrt(a[1]) if linear else 0.0])
        a[: 1 + linear] = 0.0
        if not np.any(a):
            raise InputError(
                "exact='linear' leaves nothing to approximate: the kernel is linear. Use "
                "exact='constant', or no feature map at all."
            )
        count = constant + linear * d
        if rank <= count:
            raise InputError(
                f"rank={rank} leaves no features besides the {count} that are exact. Use a rank of "
                f"{count + 1} or more, or exact='constant'."
            )
        return cls(roots, constant, linear, d), a, rank - count

    @property
    def count(self) -> int:
        """Number of features."""
        return self.constant + self.linear * self.n_cols

    def fill(self, rows: Array, start: int, stop: int, out: Array) -> None:
        """Exact features start:stop of rows (b, d) in units of the kernel, into `out`."""
        skip = 0
        if self.constant and start == 0:
            out[:, 0] = self.roots[0]
            skip = 1
        if stop > start + skip:
            linear = slice(start + skip - self.constant, stop - self.constant)
            out[:, skip:] = dense(rows[:, linear]) * self.roots[1]


@dataclass(frozen=True)
class _MaclaurinMap(FeatureMap):
    """What both maps have: products of random signs, then exact terms."""

    kernel: DotProductKernel
    products: SignProducts
    exact: LowDegreeTerms

    @property
    @abstractmethod
    def sampled(self) -> int:
        """Features before the exact ones."""

    @abstractmethod
    def fill(self, rows: Array, start: int, stop: int, out: Array) -> None:
        """Sampled features start:stop of rows (b, d) in units of the kernel, into `out`."""

    @property
    def rank(self) -> int:
        """Number of features, M."""
        return self.sampled + self.exact.count

    def prepare(self, X: Array) -> Array:
        """Rows in units of the kernel; raises if k(x, x) overflows for one of them."""
        self.kernel.diag(X)
        return X / self.kernel.unit

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Sampled features first, then the exact terms."""
        start, stop, _ = columns.indices(self.rank)
        out = output(prepared, stop - start, out)
        E = self.sampled
        if start < E:
            last = min(stop, E)
            self.fill(prepared, start, last, out[:, : last - start])
        if stop > E:
            first = max(start, E)
            self.exact.fill(prepared, first - E, stop - E, out[:, first - start :])
        return out

    def check_state(self) -> None:
        """Products and exact terms take the same columns."""
        coefficients(self.kernel)
        d = self.exact.n_cols
        if self.n_cols != d:
            raise InputError(f"products take {self.n_cols} columns, exact terms {d}")


@dataclass(frozen=True)
class RandomMaclaurin(_MaclaurinMap):
    """sqrt(a_n / (p_n M)) prod_j (w_j'x), w_j random signs, degree n drawn with probability p_n.

    For kernels sum_n a_n (x.z)^n with a_n >= 0, `Polynomial` and `Linear` here. The degrees are
    drawn evenly, and in the proportion that makes the error least on the rows of the sample, not
    by the paper's 2^-n. Terms of low degree are exact and stand last: the constant always, one
    column, and with exact="linear" x itself, which takes d columns and pays where d is well below
    the rank (the paper's H0/1).

    The signs take d numbers per factor: for very many columns use `TensorSketch`.
    """

    kind: ClassVar[str] = "random_maclaurin"

    @classmethod
    def fit(
        cls,
        sample: Array,
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        exact: ExactTerms = "constant",
    ) -> Self:
        """Draw degrees and signs; the sample says how much each degree matters."""
        kernel = require_kernel(kernel, DotProductKernel, "Maclaurin features")
        terms, a, count = LowDegreeTerms.split(kernel, exact, int(sample.shape[1]), rank)
        return cls(kernel, SignProducts.draw(a, sample / kernel.unit, count, seed, view), terms)

    @property
    def sampled(self) -> int:
        """Features that are products."""
        return self.products.count

    def fill(self, rows: Array, start: int, stop: int, out: Array) -> None:
        """The products themselves."""
        self.products.fill(rows, start, stop, out)

    def scratch_per_row(self) -> int:
        """The prepared row, and one factor of a block."""
        return self.n_cols + min(self.rank, DRAW_BLOCK)


@dataclass(frozen=True)
class CompactMaclaurin(_MaclaurinMap):
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
    grain = GROUP  # a group shares its products
    # Signs: distinct columns of a Hadamard matrix, one row per product of a group.
    mixing: Annotated[Array, ArraySpec(("many", str(GROUP)), signs=True)]
    mixed: Annotated[int, Size("mixed")]  # features that are mixtures

    @classmethod
    def fit(
        cls,
        sample: Array,
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
                f"expansion={expansion} cannot be used: it must be a power of two of at least 4, "
                "for the Hadamard transform. Leave it at 8, or use RandomMaclaurin."
            )
        kernel = require_kernel(kernel, DotProductKernel, "Maclaurin features")
        terms, a, mixed = LowDegreeTerms.split(kernel, exact, int(sample.shape[1]), rank)
        many = expansion * GROUP  # whole blocks of products, so that no block is in two groups
        count = -(-mixed // GROUP) * many
        products = SignProducts.draw(a, sample / kernel.unit, count, seed, view)
        # Without further signs: those of the products are random already.
        chosen = generator(seed, Purpose.PERMUTATION, view).permutation(many)[:GROUP]
        H = scipy.linalg.hadamard(many, dtype=np.int8)[:, chosen].astype(np.float64, order="C")
        return cls(kernel, products, terms, H, mixed)

    @property
    def sampled(self) -> int:
        """Features that are mixtures."""
        return self.mixed

    def fill(self, rows: Array, start: int, stop: int, out: Array) -> None:
        """The products of every group that has some of the columns, mixed."""
        many = int(self.mixing.shape[0])
        # Products are scaled for an average of them all; here a group is an average,
        # and the features an average of `mixed` mixtures.
        scale = (self.products.count / (many * self.mixed)) ** 0.5
        for group in range(start // GROUP, -(-stop // GROUP)):
            first = group * GROUP
            lo, hi = max(start, first), min(stop, first + GROUP)
            P = empty_rows(rows, many)
            self.products.fill(rows, group * many, (group + 1) * many, P)
            F = out[:, lo - start : hi - start]
            F[...] = P @ self.mixing[:, lo - first : hi - first]
            F *= scale

    def scratch_per_row(self) -> int:
        """The prepared row, the products of a group and one factor of them, mixtures."""
        return self.n_cols + 2 * int(self.mixing.shape[0]) + GROUP

    def check_state(self) -> None:
        """Every group has its products."""
        super().check_state()
        many = int(self.mixing.shape[0])
        if many % DRAW_BLOCK or self.products.count != -(-self.mixed // GROUP) * many:
            raise InputError(
                f"there are {self.products.count} products for {self.mixed} mixtures of {many}"
            )
