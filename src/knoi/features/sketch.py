"""Sketches of many columns: CountSketch keeps inner products, TensorSketch their powers.

A count sketch, or signed feature hashing, adds every column with a random sign to one of few
buckets (Charikar, Chen & Farach-Colton 2002; Weinberger et al. 2009). A million columns of text
become a few thousand that Fourier features can start from: see `fit_sketched`. TensorSketch
multiplies count sketches as polynomials, for polynomial kernels (Pham & Pagh 2013).
"""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.fft
import scipy.sparse
from array_api_compat import array_namespace, device, is_numpy_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import append_column, is_sparse
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, Size, copy_columns, output, require_kernel
from knoi.kernels import Kernel, Linear, Polynomial

# Columns that a count sketch hashes at a time, each block from its own address.
HASHED_COLUMNS = 2**16
# The error of M features does not depend on how many sketches they are cut into, as long as each
# has some tens of features. The time does: a sketch reads the row once for each degree, which
# favours large ones, but large Fourier transforms leave the cache. 512 was the fastest size.
SKETCH = 512
# Rows that a tensor sketch takes at a time, so that their sketches stay in cache.
ROWS = 256


@dataclass(frozen=True)
class CountSketch(FeatureMap):
    """phi_i(x) = sum of s_j x_j over the columns j that fall into bucket i, s_j = +1 or -1.

    phi(x).phi(z) has the mean x.z over the draw, and the variance
    (|x|^2 |z|^2 + (x.z)^2 - 2 sum_j x_j^2 z_j^2) / M. A map of another rank is another
    draw: the buckets of a small sketch are not among those of a larger one.
    """

    kind: ClassVar[str] = "count_sketch"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    # Bucket i with sign +1 as i, with sign -1 as -i - 1.
    hashes: Annotated[Array, ArraySpec(("d",), dtype="int32", below="buckets", signed=True)]
    buckets: Annotated[int, Size("M")]

    @classmethod
    def fit(cls, sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> Self:
        """Draw a bucket and a sign for every column; the sample gives their number only."""
        require_kernel(kernel, Linear, "count sketches, which keep inner products,")
        d = int(sample.shape[1])
        hashes = np.empty(d, dtype=np.int32)
        for block, start in enumerate(range(0, d, HASHED_COLUMNS)):
            part = hashes[start : start + HASHED_COLUMNS]
            draw = generator(seed, Purpose.HASHES, view, block)
            # Twice as many values as buckets are buckets with a sign.
            part[:] = draw.integers(-rank, rank, size=part.size)
        return cls(hashes, rank)

    def prepare(self, X: Array) -> Array:
        """The sketch itself, (b, M), which reads every number of a row once. CSR for CSR."""
        if is_sparse(X):
            return self.sparse_features(X)
        if is_numpy_array(X):
            return np.ascontiguousarray((self._matrix.astype(X.dtype) @ X.T).T)
        return _torch_count(X, self.hashes, self.buckets)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Columns of the sketch; a view unless `out` is given or it is sparse."""
        return copy_columns(prepared, columns, out)

    def sparse_features(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """All features of sparse rows, (b, M), with at most as many nonzeros."""
        buckets, signs = _signed_buckets(self.hashes[X.indices], X.dtype)
        moved = X.data * signs, buckets, X.indptr.copy()
        sketch = scipy.sparse.csr_array(moved, shape=(X.shape[0], self.buckets))
        sketch.sum_duplicates()
        return sketch

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        """The sketch as a matrix of signs (M, d) with one nonzero per column."""
        buckets, signs = _signed_buckets(self.hashes, np.int8)
        at = buckets, np.arange(self.n_cols, dtype=np.int32)
        return scipy.sparse.csr_array((signs, at), shape=(self.buckets, self.n_cols))

    def scratch_per_row(self) -> int:
        """The sketch, and the row with its signs."""
        return self.buckets + self.n_cols


@dataclass(frozen=True)
class TensorSketch(FeatureMap):
    """Independent sketches of x⊗...⊗x, side by side; unbiased for `Polynomial`.

    A count sketch adds the entries of (x / width, sqrt(coef0)) up in s random buckets, with random
    signs. The circular convolution of `degree` of them, a product after a Fourier transform, is
    the count sketch of the tensor power. A map of M features is M / s such sketches, the last one
    smaller, each scaled by sqrt(s / M). A larger map has the whole sketches of a smaller one.

    Time is O(degree (nonzeros + s log s)) per row and sketch. The hashes take 2 degree (d + 1)
    M / s bytes: 96 MB for a million columns, 8192 features of degree 3 and s = 512. On a torch
    device they take four times that, and rows are dense.
    """

    kind: ClassVar[str] = "tensor_sketch"
    kernel: Polynomial
    # Bucket h where the sign is +1, -h - 1 where it is -1.
    hashes: Annotated[
        Array, ArraySpec(("sketches", "degree", "d + 1"), dtype="int16", below="size", signed=True)
    ]
    constant: Annotated[Array, ArraySpec(("1",))]  # sqrt(coef0), the last entry of every row
    features: Annotated[int, Size("M")]
    size: Annotated[int, Size("size")]  # s, of every sketch but the last

    @classmethod
    def fit(
        cls,
        sample: Array,
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        sketch_size: int = SKETCH,
    ) -> Self:
        """Draw the hashes; the sample gives the number of columns only."""
        kernel = require_kernel(kernel, Polynomial, "tensor sketches")
        largest = np.iinfo(np.int16).max
        if not 1 <= sketch_size <= largest:
            raise InputError(
                f"sketch_size={sketch_size} cannot be used: it must be 1 to {largest}, since a "
                f"hash has 16 bits. Leave it at {SKETCH}."
            )
        _ = kernel.decided_width  # raises here if there is none, not at the first row
        hashes = [
            _draw(generator(seed, Purpose.HASHES, view, sketch), kernel.degree, sample.shape[1], s)
            for sketch, s in enumerate(_sizes(rank, sketch_size))
        ]
        constant = np.array([math.sqrt(kernel.coef0)])
        return cls(kernel, np.stack(hashes), constant, rank, sketch_size)

    @property
    def sketches(self) -> int:
        """Number of sketches."""
        return -(-self.features // self.size)

    @property
    def degree(self) -> int:
        """Count sketches that are multiplied to one sketch."""
        return self.kernel.degree

    @property
    def grain(self) -> int:
        """A sketch is computed as a whole."""
        return self.size

    def prepare(self, X: Array) -> Array:
        """Rows over the width, and sqrt(coef0): (b, d + 1). Raises if a power overflows."""
        self.kernel.diag(X)
        return append_column(X / self.kernel.decided_width, self.constant)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """These columns of every sketch that has some of them."""
        start, stop, _ = columns.indices(self.rank)
        out = output(prepared, stop - start, out)
        for top in range(0, prepared.shape[0], ROWS):
            sketched = _sketcher(prepared[top : top + ROWS, :])
            for sketch in range(start // self.size, -(-stop // self.size)):
                first = sketch * self.size
                s = min(self.size, self.rank - first)
                begin, end = max(start, first), min(stop, first + s)
                target = out[top : top + ROWS, begin - start : end - start]
                target[...] = sketched(self.hashes[sketch], s)[:, begin - first : end - first]
                target *= math.sqrt(s / self.rank)
        return out

    def scratch_per_row(self) -> int:
        """The prepared row and its transpose, a sketch and its transforms."""
        return 2 * (self.n_cols + 1) + 4 * min(self.size, self.rank)

    def check_state(self) -> None:
        """Buckets of the last sketch are those of a smaller one."""
        last = _sizes(self.features, self.size)[-1]
        hashes = self.hashes[-1]
        if hashes.min() < -last or hashes.max() >= last:
            raise InputError(f"the last sketch has buckets beyond {last}")


def _sizes(rank: int, size: int) -> list[int]:
    """Buckets of each sketch of a map: `size`, and the rest for the last."""
    return [min(size, rank - first) for first in range(0, rank, size)]


def _draw(draw: np.random.Generator, degree: int, d: int, s: int) -> NDArray[np.int16]:
    """Buckets among s, and signs, of one sketch: (degree, d + 1)."""
    buckets = draw.integers(0, s, (degree, d + 1), dtype=np.int16)
    negative = draw.integers(0, 2, (degree, d + 1), dtype=np.int8).astype(bool)
    np.invert(buckets, out=buckets, where=negative)
    return buckets


def _signed_buckets(hashes: NDArray[Any], dtype: Any) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Buckets and signs of the same shape."""
    negative = hashes < 0
    buckets = np.where(negative, ~hashes, hashes).astype(np.int32)
    return buckets, np.where(negative, -1, 1).astype(dtype)


def _sketcher(rows: Array) -> Callable[[Array, int], Array]:
    """The function (hashes, s) -> (b, s) that sketches these rows (b, d + 1)."""
    if is_sparse(rows):
        return lambda hashes, s: _multiply(_sparse_counts(rows, hashes, s), len(hashes), s, axis=1)
    if is_numpy_array(rows):
        columns = np.ascontiguousarray(rows.T)
        # Along the first axis, so that nothing is transposed but the result.
        return lambda hashes, s: _multiply(_counts(columns, hashes, s), len(hashes), s, axis=0).T
    return lambda hashes, s: _torch_sketch(rows, hashes, s)


def _multiply(counts: Iterator[Array], degree: int, s: int, axis: int) -> Array:
    """The tensor sketch that is the convolution of count sketches of size s along an axis."""
    power = None
    for C in counts:  # one after the other: all at once would allocate fresh memory every time
        if degree == 1:
            return C
        F = scipy.fft.rfft(C, axis=axis)
        power = F if power is None else np.multiply(power, F, out=power)
    return scipy.fft.irfft(power, s, axis=axis)


def _counts(columns: Array, hashes: NDArray[np.int16], s: int) -> Iterator[Array]:
    """Count sketches (s, b) of the columns (d + 1, b) of dense rows, degree by degree."""
    starts = np.arange(len(columns) + 1, dtype=np.int32)
    for buckets, signs in zip(*_signed_buckets(hashes, columns.dtype), strict=True):
        # As a product, a column is added to its bucket over all rows at once.
        yield scipy.sparse.csc_array((signs, buckets, starts), (s, len(columns))) @ columns


def _sparse_counts(rows: Array, hashes: NDArray[np.int16], s: int) -> Iterator[Array]:
    """Count sketches (b, s) of sparse rows (b, d + 1), degree by degree."""
    # The hashes of stored entries, (degree, nnz).
    for buckets, signs in zip(*_signed_buckets(hashes[:, rows.indices], rows.dtype), strict=True):
        # The entries moved to their buckets; those that meet in one are added when made dense.
        moved = (rows.data * signs, buckets, rows.indptr)
        yield scipy.sparse.csr_array(moved, shape=(rows.shape[0], s)).toarray()


def _torch_count(rows: Array, hashes: Array, s: int) -> Array:
    """The count sketch (b, s) of rows (b, d) that are torch tensors."""
    xp = array_namespace(rows)
    negative = hashes < 0
    sketch = xp.zeros((rows.shape[0], s), dtype=rows.dtype, device=device(rows))
    sketch.index_add_(1, xp.where(negative, -1 - hashes, hashes), xp.where(negative, -rows, rows))
    return sketch


def _torch_sketch(rows: Array, hashes: Array, s: int) -> Array:
    """The tensor sketch (b, s) of rows (b, d + 1) that are torch tensors."""
    fft = array_namespace(rows).fft
    power = reduce(operator.mul, (fft.rfft(_torch_count(rows, h, s), axis=1) for h in hashes))
    return fft.irfft(power, n=s, axis=1)
