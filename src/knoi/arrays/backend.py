"""The place where arrays live: NumPy, or torch on any device, behind one array-API namespace.

This is the only module that imports torch. Code above it writes `xp.matmul`, `xp.cos`, ... and
uses two liberties that NumPy and torch share beyond the array API: `out=` and in-place operators.
"""

import os
import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import array_api_compat.numpy
import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.triangular import solve_lower
from knoi.exceptions import InputError, MemoryBudgetError, MissingExtraError

Array: TypeAlias = Any  # an array of the backend's namespace, or CSR beside NumPy's
DType = Literal["float32", "float64"]
# Sparse rows are made dense for a device up to this size.
MOST_DENSE_BYTES = 2**30


@dataclass(frozen=True)
class Backend:
    """Where arrays live and in what precision features are computed.

    Parameters
    ----------
    xp : module
        Array-API namespace.
    device : str or None
        torch device, e.g. "cuda:0"; None for NumPy.
    dtype : {"float32", "float64"}
        Precision of data and features. L x L and M x M algebra is float64 whatever this says.
    """

    xp: Any
    device: str | None
    dtype: DType

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles: by name, since a namespace is a module."""
        return pick_backend, (self.device, self.dtype)

    @property
    def is_numpy(self) -> bool:
        """Whether arrays of this backend are NumPy's own."""
        return self.device is None

    @property
    def itemsize(self) -> int:
        """Bytes of one number in `dtype`."""
        return 4 if self.dtype == "float32" else 8

    def asarray(self, values: Any, dtype: DType | None = None) -> Array:
        """`values` on the device in `dtype` (default: the backend's); copies only if it must.

        Sparse rows stay sparse (CSR) beside NumPy and become dense on a device.
        """
        wanted = dtype or self.dtype
        if scipy.sparse.issparse(values):
            if self.is_numpy:
                return scipy.sparse.csr_array(values).astype(wanted, copy=False)
            values = self._made_dense(values, np.dtype(wanted))
        if self.is_numpy:
            return np.asarray(values, dtype=wanted)
        if isinstance(values, np.ndarray):
            # torch refuses read-only memory and negative strides; a source may hand out both.
            values = np.require(values, dtype=wanted, requirements=["C", "W"])
            if min(values.strides, default=0) < 0:  # which NumPy calls contiguous if it has one row
                values = values.copy()
        return self.xp.asarray(values, dtype=getattr(self.xp, wanted), device=self.device)

    def _made_dense(self, rows: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
        n, d = rows.shape
        if n * d * dtype.itemsize > MOST_DENSE_BYTES:
            raise MemoryBudgetError(
                f"{n} sparse rows of {d} columns would take {n * d * dtype.itemsize / 2**30:.1f} "
                f"GiB on device={self.device!r}, where rows are dense. Leave device=None, which "
                "keeps them sparse, or use smaller minibatches."
            )
        made: NDArray[Any] = rows.astype(dtype, copy=False).toarray()
        return made

    def empty(self, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
        """Uninitialised array of `shape`."""
        return self.xp.empty(shape, dtype=self._dtype(dtype), **self.placement)

    def zeros(self, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
        """Array of zeros of `shape`."""
        return self.xp.zeros(shape, dtype=self._dtype(dtype), **self.placement)

    def to_numpy(self, values: Array) -> NDArray[Any]:
        """`values` as a NumPy array (or CSR), without a copy where they already are one."""
        if scipy.sparse.issparse(values):
            sparse: NDArray[Any] = values
            return sparse
        return np.asarray(values if self.is_numpy else values.detach().cpu().numpy())

    def free_bytes(self) -> int:
        """Bytes an array could still take where this backend's arrays live."""
        if self.device is not None and self.device.startswith("cuda"):
            free, _total = self.xp.cuda.mem_get_info(self.device)
            return int(free)
        return available_ram()

    def cholesky(self, S: Array) -> Array:
        """Lower Cholesky factor of a symmetric matrix, which it may overwrite."""
        if self.is_numpy:
            # LAPACK works in place on column-major memory: hand it the transpose of symmetric S.
            return scipy.linalg.cholesky(S.T, lower=True, overwrite_a=True, check_finite=False)
        return self.xp.linalg.cholesky(S)

    def solve_lower(self, C: Array, B: Array, *, transposed: bool = False) -> Array:
        """C^-1 B, or C^-T B, for a lower triangular C (the array API has no triangular solve)."""
        if self.is_numpy:
            return solve_lower(C, B, transposed=transposed)
        matrix = C.mT if transposed else C
        return self.xp.linalg.solve_triangular(matrix, B, upper=transposed)

    def top_eigh(self, S: Array, k: int) -> tuple[Array, Array]:
        """The k largest eigenvalues of a symmetric matrix, descending, and their eigenvectors."""
        if self.is_numpy:
            last = len(S) - 1
            values, vectors = scipy.linalg.eigh(
                S, subset_by_index=[last - k + 1, last], overwrite_a=True, check_finite=False
            )
            return values[::-1], vectors[:, ::-1]
        values, vectors = self.xp.linalg.eigh(S)
        return self.xp.flip(values, axis=0)[:k], self.xp.flip(vectors, axis=1)[:, :k]

    def _dtype(self, dtype: DType | None) -> Any:
        return getattr(self.xp, dtype or self.dtype)

    @property
    def placement(self) -> dict[str, str]:
        """The `device=` argument of array creation, where there is one to give."""
        return {} if self.device is None else {"device": self.device}


def numpy_backend(dtype: DType = "float64") -> Backend:
    """Arrays in main memory, NumPy's."""
    return Backend(array_api_compat.numpy, None, dtype)


def torch_backend(device: str = "cpu", dtype: DType = "float64") -> Backend:
    """Arrays as torch tensors on `device`."""
    try:
        import array_api_compat.torch as xp
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", f"device={device!r}") from error
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device={device!r} cannot be used here: {str(error).splitlines()[0].rstrip('.')}. "
            "Leave device=None for NumPy on the CPU, or name a device torch can see."
        ) from error
    return Backend(xp, device, dtype)


def pick_backend(device: Any, dtype: DType) -> Backend:
    """NumPy for `device=None`, else torch on that device (a name, or a `torch.device`)."""
    return numpy_backend(dtype) if device is None else torch_backend(str(device), dtype)


def compute_dtype(*stored: np.dtype[Any]) -> DType:
    """The precision to compute in: single if all stored dtypes fit it without loss, else double."""
    return "float32" if np.result_type(*stored, np.float32) == np.float32 else "float64"


def available_ram() -> int:
    """Bytes of main memory that can be taken without swapping."""
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            for line in meminfo:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30  # nothing to ask: assume a small laptop


def peak_memory() -> int | None:
    """Most bytes of main memory this process has held so far, where the system says."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                # Not ru_maxrss: that begins with what the process that started this one had taken.
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
