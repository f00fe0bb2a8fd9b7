"""Random products: prod_j (w_j'x) with n vectors w_j of random signs, unbiased for (x.z)^n.

What the two Maclaurin maps share: which degrees to draw, the products, and the terms of degree 0
and 1, which can be had exactly.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import dense, inner, is_sparse, product, squared_norms
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels import DotProductKernel, Kernel

ExactTerms = Literal["constant", "linear"]

# Products are drawn this many at a time, each block from its own address, and sorted by degree
# within it.
DRAW_BLOCK = 1024
# No series is followed further; in float32 such powers overflow long before.
HIGHEST_DEGREE = 64
# Rows looked at to weigh the degrees.
WEIGHING_ROWS = 256
# Every degree gets at least this part of an equal share, should the sample not show its weight.
LEAST_SHARE = 0.01
GOLDEN = (math.sqrt(5) - 1) / 2


def coefficients(kernel: Kernel) -> NDArray[np.float64]:
    """a_0, a_1, ... of a kernel sum_n a_n (x.z / unit^2)^n, up to the last that is not 0."""
    if not isinstance(kernel, DotProductKernel):
        raise InputTypeError(
            f"Maclaurin features need a kernel that is a power series of x.z, not {kernel.name!r}. "
            "Use 'polynomial' or 'linear', or a Nystrom approximation, which takes any kernel."
        )
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
    shares = np.zeros(len(a))
    if largest > 0:
        v /= largest
        dots /= largest
        logs = np.full(len(a), -np.inf)
        for n in np.flatnonzero(drawn):
            variance = float(np.mean(v**n - dots**n))
            # Without variance (a single column) any share will do: then by size.
            size = max(variance, 1e-12 * float(np.mean(v**n)))
            logs[n] = math.log(a[n]) + 0.5 * (n * math.log(largest) + math.log(size))
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
    floor: NDArray[np.float64] = drawn / drawn.sum()
    return (1 - LEAST_SHARE) * shares + LEAST_SHARE * floor if largest > 0 else floor


@dataclass(frozen=True)
class Products:
    """Scaled products of all degrees: together, an estimate of sum_n a_n (x.z)^n."""

    signs: Array  # (d, sum of degrees): block by block; in it, first factors, second factors, ...
    weights: Array  # (E,) sqrt(a_n / (p_n E))
    degrees: NDArray[np.int64]  # (E,) falling within each block

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

    @cached_property
    def _factors(self) -> list[list[tuple[int, int]]]:
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
            for j, (begin, many) in enumerate(self._factors[block]):
                if lo >= many:
                    break
                factors = product(rows, self.signs[:, begin + lo : begin + min(hi, many)])
                if j == 0:
                    F[...] = factors
                else:
                    F[:, : factors.shape[1]] *= factors
            F *= self.weights[first + lo : first + hi]

    def to(self, backend: Backend) -> Self:
        """Signs and weights on the backend."""
        place = backend.asarray
        return replace(self, signs=place(self.signs), weights=place(self.weights))

    def state_dict(self) -> dict[str, Any]:
        """Signs as bytes."""
        signs = np.asarray(self.signs, dtype=np.int8)
        return {"signs": signs, "weights": self.weights, "degrees": self.degrees}

    @classmethod
    def from_state_dict(cls, state: Any) -> Self:
        """The inverse of `state_dict`."""
        weights = state["weights"]
        return cls(state["signs"].astype(weights.dtype), weights, state["degrees"])


@dataclass(frozen=True)
class Exact:
    """The features of the terms of low degree that need no sampling: sqrt(a_0), sqrt(a_1) x."""

    roots: Array  # (2,) sqrt(a_0), sqrt(a_1); 0 if the term is not taken exactly
    constant: bool
    linear: bool
    n_cols: int

    @classmethod
    def split(cls, a: NDArray[np.float64], terms: ExactTerms, d: int) -> tuple[Self, Any]:
        """What is exact, and the coefficients (degrees,) of what is left to products."""
        if terms not in get_args(ExactTerms):
            raise InputError(
                f"exact={terms!r} is not known: wanted one of "
                f"{', '.join(map(repr, get_args(ExactTerms)))}."
            )
        constant = bool(a[0] > 0)
        linear = terms == "linear" and len(a) > 1 and bool(a[1] > 0)
        roots = np.array([math.sqrt(a[0]), math.sqrt(a[1]) if linear else 0.0])
        left = a.copy()
        left[0] = 0.0
        if linear:
            left[1] = 0.0
        if not np.any(left):
            raise InputError(
                "exact='linear' leaves nothing to approximate: the kernel is linear. Use "
                "exact='constant', or no feature map at all."
            )
        return cls(roots, constant, linear, d), left

    @property
    def count(self) -> int:
        """Number of features."""
        return self.constant + self.linear * self.n_cols

    def sampled(self, rank: int) -> int:
        """How many of `rank` features are left for products; at least 1."""
        if rank > self.count:
            return rank - self.count
        raise InputError(
            f"rank={rank} leaves no features besides the {self.count} that are exact. Use a rank "
            f"of {self.count + 1} or more, or exact='constant'."
        )

    def fill(self, rows: Array, start: int, stop: int, out: Array) -> None:
        """Exact features start:stop of rows (b, d) in units of the kernel, into `out`."""
        if start >= stop:
            return
        skip = 0
        if self.constant and start == 0:
            out[:, 0] = self.roots[0]
            skip = 1
        if stop > start + skip:
            linear = slice(start + skip - self.constant, stop - self.constant)
            out[:, skip:] = dense(rows[:, linear]) * self.roots[1]

    def to(self, backend: Backend) -> Self:
        """Coefficients on the backend."""
        return replace(self, roots=backend.asarray(self.roots))

    def state_dict(self) -> dict[str, Any]:
        """Coefficients and which terms."""
        return {
            "roots": self.roots,
            "constant": self.constant,
            "linear": self.linear,
            "n_cols": self.n_cols,
        }

    @classmethod
    def from_state_dict(cls, state: Any) -> Self:
        """The inverse of `state_dict`."""
        flags = bool(state["constant"]), bool(state["linear"])
        return cls(state["roots"], *flags, int(state["n_cols"]))


def room_for(prepared: Array, columns: int, out: Array | None) -> Array:
    """`out`, or an array (b, columns) like the prepared rows."""
    if out is not None:
        return out
    if is_sparse(prepared):
        return np.empty((prepared.shape[0], columns), dtype=prepared.dtype)
    xp = array_namespace(prepared)
    shape = (prepared.shape[0], columns)
    return xp.empty(shape, dtype=prepared.dtype, device=device(prepared))
