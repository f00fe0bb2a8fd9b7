"""Count sketch, or signed feature hashing: many columns into few, inner products kept on average.

Every column of the data goes, with a random sign, to one column of the sketch (Charikar, Chen &
Farach-Colton 2002; Weinberger et al. 2009). A million columns of text become a few thousand that
Fourier features can start from: see `knoi.features.chain`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device, is_numpy_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import dense, is_sparse
from knoi.exceptions import InputTypeError
from knoi.features.base import FeatureMap
from knoi.kernels import Kernel, Linear

# Columns are hashed this many at a time, each block from its own address.
DRAW_BLOCK = 2**16


@dataclass(frozen=True)
class CountSketch(FeatureMap):
    """phi_i(x) = sum of s_j x_j over the columns j that fall into bucket i, s_j = +1 or -1.

    phi(x).phi(z) has the mean x.z over the draw, and the variance
    (|x|^2 |z|^2 + (x.z)^2 - 2 sum_j x_j^2 z_j^2) / M. A map of another rank is another draw: there
    is no rank at which each bucket is also one of the buckets of a higher one.
    """

    kind: ClassVar[str] = "count_sketch"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    hashes: Array  # (d,) integers: bucket i with sign +1 as i, with sign -1 as -i - 1
    buckets: int  # M

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy or CSR
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
    ) -> Self:
        """Draw a bucket and a sign for every column; the sample only tells how many there are."""
        if not isinstance(kernel, Linear):
            raise InputTypeError(
                f"a count sketch keeps inner products, so it needs the kernel 'linear', not "
                f"{kernel.name!r}. For another kernel, chain its features to a sketch."
            )
        d = int(sample.shape[1])
        hashes = np.empty(d, dtype=np.int32)
        for block, start in enumerate(range(0, d, DRAW_BLOCK)):
            part = hashes[start : start + DRAW_BLOCK]
            draw = generator(seed, Purpose.HASHES, view, block)
            # Twice as many values as buckets are buckets with a sign.
            part[:] = draw.integers(-rank, rank, size=part.size)
        return cls(hashes, rank)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return int(self.hashes.shape[0])

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return self.buckets

    @property
    def dtype(self) -> np.dtype[Any]:
        """Any: features are sums of the rows' own numbers."""
        return np.dtype(np.float32)

    def prepare(self, X: Array) -> Array:
        """The sketch itself, (b, M): every number of the row is looked at once. CSR for CSR."""
        if is_sparse(X):
            return self.sparse_features(X)
        if is_numpy_array(X):
            return np.ascontiguousarray((self._matrix(X.dtype) @ X.T).T)
        xp = array_namespace(X)
        negative = self.hashes < 0
        sketch = xp.zeros((X.shape[0], self.buckets), dtype=X.dtype, device=device(X))
        bucket = xp.where(negative, -self.hashes - 1, self.hashes)
        sketch.index_add_(1, bucket, xp.where(negative, -X, X))
        return sketch

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The asked-for columns; a view of the sketch unless `out` is given or it is sparse."""
        asked = dense(prepared[:, columns])
        if out is None:
            return asked
        out[...] = asked
        return out

    def sparse_features(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """All features of sparse rows, (b, M), with at most as many nonzeros."""
        hashes = self.hashes[X.indices]
        negative = hashes < 0
        data = np.where(negative, -X.data, X.data)
        bucket = np.where(negative, -hashes - 1, hashes)
        sketch = scipy.sparse.csr_array((data, bucket, X.indptr.copy()), (X.shape[0], self.buckets))
        sketch.sum_duplicates()
        return sketch

    def _matrix(self, dtype: np.dtype[Any]) -> scipy.sparse.csr_array:
        """The sketch as a matrix (M, d) with one nonzero a column, numbers in `dtype`."""
        return self._signs.astype(dtype)

    @cached_property
    def _signs(self) -> scipy.sparse.csr_array:
        hashes: NDArray[np.int32] = self.hashes
        negative = hashes < 0
        signs = np.where(negative, np.int8(-1), np.int8(1))
        at = np.where(negative, -hashes - 1, hashes), np.arange(hashes.size, dtype=np.int32)
        return scipy.sparse.csr_array((signs, at), shape=(self.buckets, hashes.size))

    def to(self, backend: Backend) -> Self:
        """Hashes on the backend."""
        if backend.is_numpy:
            return replace(self, hashes=np.asarray(self.hashes, dtype=np.int32))
        hashes = np.array(self.hashes, dtype=np.int64)  # what torch takes as an index; writable
        return replace(self, hashes=backend.xp.asarray(hashes, **backend.placement))

    def scratch_per_row(self) -> int:
        """The sketch, and the row with its signs."""
        return self.buckets + self.n_cols

    def state_dict(self) -> dict[str, Any]:
        """The drawn hashes themselves: no later version has to repeat the draw."""
        return {"kind": self.kind, "hashes": self.hashes, "buckets": self.buckets}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        return cls(state["hashes"], int(state["buckets"]))
