"""TensorSketch: polynomial kernels by count sketches multiplied as polynomials (Pham & Pagh)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.fft
import scipy.sparse
from array_api_compat import array_namespace, device, is_numpy_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import is_sparse
from knoi.exceptions import InputError, InputTypeError
from knoi.features.base import FeatureMap
from knoi.features.products import room_for
from knoi.kernels import Kernel, Polynomial, kernel_from_state

# The error of M features does not depend on how many sketches they are cut into, as long as each
# has some tens of features. The time does: a sketch reads the row once for each degree, which
# favours large ones, but large Fourier transforms leave the cache. 512 took least of 128 ... 4096.
SKETCH = 512
# Rows at a time, so that their sketches stay in cache.
ROWS = 256


@dataclass(frozen=True)
class TensorSketch(FeatureMap):
    """Independent sketches of x⊗...⊗x, side by side; unbiased for `Polynomial`.

    A count sketch adds the entries of (x / width, sqrt(coef0)) up in s random buckets, with random
    signs. The circular convolution of `degree` of them, a product after a Fourier transform, is
    the count sketch of the tensor power. A map of M features is M / s such sketches, the last one
    smaller, each scaled by sqrt(s / M). A larger map has the whole sketches of a smaller one.

    Time is O(degree (nonzeros + s log s)) a row and sketch. The hashes take 2 degree (d + 1) M / s
    bytes: 96 MB for a million columns, 8192 features of degree 3 and s = 512. On a torch device
    they take four times that, and rows are dense.
    """

    kind: ClassVar[str] = "tensor_sketch"
    kernel: Polynomial
    hashes: (
        Array  # (sketches, degree, d + 1) integers: bucket h where the sign is +, ~h where it is -
    )
    constant: Array  # (1,) sqrt(coef0), the last entry of every row
    features: int  # M
    size: int  # s, of every sketch but the last

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy or CSR
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        sketch_size: int = SKETCH,
    ) -> Self:
        """Draw the hashes; the sample only says how many columns there are."""
        if not isinstance(kernel, Polynomial):
            raise InputTypeError(
                f"TensorSketch approximates the polynomial kernel, not {kernel.name!r}. Use "
                "Polynomial(...), or a Nystrom approximation, which takes any kernel."
            )
        largest = np.iinfo(np.int16).max
        if not 1 <= sketch_size <= largest:
            raise InputError(
                f"sketch_size={sketch_size} cannot be used: 1 to {largest} buckets are wanted, "
                f"since a hash has 16 bits. Leave it at {SKETCH}."
            )
        _ = kernel.decided_width  # refused here, not at the first row
        hashes = [
            _draw(generator(seed, Purpose.HASHES, view, sketch), kernel.degree, sample.shape[1], s)
            for sketch, s in enumerate(_sizes(rank, sketch_size))
        ]
        constant = np.array([math.sqrt(kernel.coef0)])
        return cls(kernel, np.stack(hashes), constant, rank, sketch_size)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return int(self.hashes.shape[2]) - 1

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return self.features

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision the map was placed in; hashes are exact in any."""
        own: np.dtype[Any] = np.dtype(self.constant.dtype)
        return own

    @property
    def grain(self) -> int:
        """A sketch is made as a whole."""
        return self.size

    def prepare(self, X: Array) -> Array:
        """Rows over the width, and sqrt(coef0): (b, d + 1). Refuses those whose power overflows."""
        self.kernel.diag(X)
        if is_sparse(X):
            one = scipy.sparse.csr_array(np.full((X.shape[0], 1), self.constant, dtype=X.dtype))
            return scipy.sparse.hstack([X / self.kernel.decided_width, one], format="csr")
        xp = array_namespace(X)
        rows = xp.empty((X.shape[0], self.n_cols + 1), dtype=X.dtype, device=device(X))
        rows[:, :-1] = X
        rows[:, :-1] /= self.kernel.decided_width
        rows[:, -1] = self.constant
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The asked-for columns of every sketch that has some of them."""
        start, stop, _ = columns.indices(self.rank)
        out = room_for(prepared, stop - start, out)
        for top in range(0, prepared.shape[0], ROWS):
            sketched = _sketcher(prepared[top : top + ROWS, :])
            for sketch in range(start // self.size, -(-stop // self.size)):
                first = sketch * self.size
                s = min(self.size, self.rank - first)
                begin, end = max(start, first), min(stop, first + s)
                room = out[top : top + ROWS, begin - start : end - start]
                room[...] = sketched(self.hashes[sketch], s)[:, begin - first : end - first]
                room *= math.sqrt(s / self.rank)
        return out

    def to(self, backend: Backend) -> Self:
        """Hashes where the rows will be."""
        if backend.is_numpy:
            hashes: Array = np.asarray(self.hashes, dtype=np.int16)
        else:
            hashes = backend.xp.asarray(self.hashes, dtype=backend.xp.int64, device=backend.device)
        return replace(self, hashes=hashes, constant=backend.asarray(self.constant))

    def scratch_per_row(self) -> int:
        """The prepared row and its transpose, a sketch and its transforms."""
        return 2 * (self.n_cols + 1) + 4 * min(self.size, self.rank)

    def state_dict(self) -> dict[str, Any]:
        """The drawn hashes themselves: no later version has to repeat the draw."""
        return {
            "kind": self.kind,
            "kernel": self.kernel.state_dict(),
            "hashes": self.hashes,
            "constant": self.constant,
            "features": self.features,
            "size": self.size,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        kernel = kernel_from_state(state["kernel"])
        assert isinstance(kernel, Polynomial)
        sizes = int(state["features"]), int(state["size"])
        return cls(kernel, state["hashes"], state["constant"], *sizes)


def _sizes(rank: int, size: int) -> list[int]:
    """Buckets of each sketch of a map: `size`, and what is left for the last."""
    return [min(size, rank - first) for first in range(0, rank, size)]


def _draw(draw: np.random.Generator, degree: int, d: int, s: int) -> NDArray[np.int16]:
    """Buckets among s, and signs, of one sketch: (degree, d + 1)."""
    buckets = draw.integers(0, s, (degree, d + 1), dtype=np.int16)
    negative = draw.integers(0, 2, (degree, d + 1), dtype=np.int8).astype(bool)
    np.invert(buckets, out=buckets, where=negative)
    return buckets


def _open(hashes: NDArray[np.int16], dtype: Any) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Buckets and signs of the same shape."""
    negative = hashes < 0
    buckets = np.where(negative, ~hashes, hashes).astype(np.int32)
    return buckets, np.where(negative, -1, 1).astype(dtype)


def _sketcher(rows: Array) -> Callable[[Array, int], Array]:
    """The function (hashes, s) -> (b, s) that sketches these rows (b, d + 1)."""
    if is_sparse(rows):
        return lambda hashes, s: _sketch_sparse(rows, hashes, s)
    if is_numpy_array(rows):
        columns = np.ascontiguousarray(rows.T)
        return lambda hashes, s: _sketch_dense(columns, hashes, s)
    return lambda hashes, s: _sketch_on_device(rows, hashes, s)


def _sketch_dense(columns: Array, hashes: NDArray[np.int16], s: int) -> Array:
    """One tensor sketch of the columns (d + 1, b) of dense rows, as (b, s)."""
    power = None
    starts = np.arange(len(columns) + 1, dtype=np.int32)
    # One degree after the other: with all at once, the system gives out fresh memory every time.
    for buckets, signs in zip(*_open(hashes, columns.dtype), strict=True):
        # As a product, a column is added to its bucket over all rows at once.
        count = scipy.sparse.csc_array((signs, buckets, starts), shape=(s, len(columns)))
        C = count @ columns  # (s, b)
        if len(hashes) == 1:
            return C.T
        # Along the first axis, so that nothing is transposed but the result.
        F = scipy.fft.rfft(C, axis=0)
        power = F if power is None else np.multiply(power, F, out=power)
    return scipy.fft.irfft(power, s, axis=0).T


def _sketch_sparse(rows: Array, hashes: NDArray[np.int16], s: int) -> Array:
    """One tensor sketch of sparse rows (b, d + 1), as (b, s)."""
    power = None
    # The hashes of stored entries, (degree, nnz).
    for buckets, signs in zip(*_open(hashes[:, rows.indices], rows.dtype), strict=True):
        # The entries moved to their buckets; those that meet in one are added when made dense.
        moved = (rows.data * signs, buckets, rows.indptr)
        C = scipy.sparse.csr_array(moved, shape=(rows.shape[0], s)).toarray()
        if len(hashes) == 1:
            return C
        F = scipy.fft.rfft(C, axis=1)
        power = F if power is None else np.multiply(power, F, out=power)
    return scipy.fft.irfft(power, s, axis=1)


def _sketch_on_device(rows: Array, hashes: Array, s: int) -> Array:
    """One tensor sketch of rows (b, d + 1) that are torch tensors, as (b, s)."""
    xp = array_namespace(rows)
    power = None
    for h in hashes:
        buckets = xp.where(h < 0, -1 - h, h)
        signs = xp.astype(1 - 2 * xp.astype(h < 0, xp.int64), rows.dtype)
        C = xp.zeros((rows.shape[0], s), dtype=rows.dtype, device=device(rows))
        C.index_add_(1, buckets, rows * signs)
        F = xp.fft.rfft(C, axis=1)
        power = F if power is None else power * F
    return xp.fft.irfft(power, n=s, axis=1)
