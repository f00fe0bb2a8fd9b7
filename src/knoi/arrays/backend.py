"""Array backends: NumPy, or torch on any device, behind one array-API namespace.

This is the only module that imports torch. Other modules call `xp.matmul`, `xp.cos`, ... and use
two features that NumPy and torch share beyond the array API: `out=` and in-place operators.
"""

import os
import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import array_api_compat.numpy
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.exceptions import InputError, MemoryBudgetError, MissingExtraError

Array: TypeAlias = Any  # an array of the backend's namespace, or a SciPy CSR array
DType = Literal["float32", "float64"]
# Sparse rows are made dense on a torch device up to this size.
MAX_DENSE_BYTES = 2**30


@dataclass(frozen=True)
class Backend:
    """Where arrays are stored, and the precision in which features are computed.

    Parameters
    ----------
    xp : module
        Array-API namespace.
    device : str or None
        torch device, e.g. "cuda:0"; None for NumPy.
    dtype : {"float32", "float64"}
        Precision of data and features. L x L and M x M algebra is always float64.
    """

    xp: Any
    device: str | None
    dtype: DType

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copies and pickles: a namespace is a module, so store device and dtype only."""
        return pick_backend, (self.device, self.dtype)

    @property
    def is_numpy(self) -> bool:
        """Whether arrays are NumPy arrays."""
        return self.device is None

    @property
    def itemsize(self) -> int:
        """Bytes of one number in `dtype`."""
        return 4 if self.dtype == "float32" else 8

    def asarray(self, values: Any, dtype: DType | None = None) -> Array:
        """`values` on the device in `dtype` (default: the backend's); copies only if needed.

        Sparse rows stay sparse (CSR) with NumPy and become dense on a torch device.
        """
        wanted = dtype or self.dtype
        if scipy.sparse.issparse(values):
            if self.is_numpy:
                return scipy.sparse.csr_array(values).astype(wanted, copy=False)
            values = self._to_dense(values, np.dtype(wanted))
        if self.is_numpy:
            return np.asarray(values, dtype=wanted)
        if isinstance(values, np.ndarray):
            # torch does not accept read-only memory or negative strides; a source may return both.
            values = np.require(values, dtype=wanted, requirements=["C", "W"])
            if min(values.strides, default=0) < 0:  # a single row counts as contiguous
                values = values.copy()
        return self.xp.asarray(values, dtype=getattr(self.xp, wanted), device=self.device)

    def _to_dense(self, rows: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
        n, d = rows.shape
        if n * d * dtype.itemsize > MAX_DENSE_BYTES:
            raise MemoryBudgetError(
                f"{n} sparse rows of {d} columns would take {n * d * dtype.itemsize / 2**30:.1f} "
                f"GiB on device={self.device!r}, where rows are dense. Use device=None, which "
                "keeps them sparse, or smaller minibatches."
            )
        result: NDArray[Any] = rows.astype(dtype, copy=False).toarray()
        return result

    def empty(self, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
        """Uninitialised array of `shape`."""
        return self.xp.empty(shape, dtype=self._dtype(dtype), **self.placement)

    def zeros(self, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
        """Array of zeros of `shape`."""
        return self.xp.zeros(shape, dtype=self._dtype(dtype), **self.placement)

    def to_numpy(self, values: Array) -> NDArray[Any]:
        """`values` as a NumPy array (or CSR), without a copy if they are one already."""
        if scipy.sparse.issparse(values):
            sparse: NDArray[Any] = values
            return sparse
        return np.asarray(values if self.is_numpy else values.detach().cpu().numpy())

    def free_bytes(self) -> int:
        """Bytes of free memory on the device."""
        if self.device is not None and self.device.startswith("cuda"):
            free, _total = self.xp.cuda.mem_get_info(self.device)
            return int(free)
        return available_ram()

    def _dtype(self, dtype: DType | None) -> Any:
        return getattr(self.xp, dtype or self.dtype)

    @property
    def placement(self) -> dict[str, str]:
        """The `device=` argument of array creation; empty for NumPy."""
        return {} if self.device is None else {"device": self.device}


def numpy_backend(dtype: DType = "float64") -> Backend:
    """NumPy arrays in main memory."""
    return Backend(array_api_compat.numpy, None, dtype)


def torch_backend(device: str = "cpu", dtype: DType = "float64") -> Backend:
    """Torch tensors on `device`."""
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
            "Use device=None for NumPy on the CPU, or a device that torch can use."
        ) from error
    return Backend(xp, device, dtype)


def pick_backend(device: Any, dtype: DType) -> Backend:
    """NumPy for `device=None`, else torch on that device (a name, or a `torch.device`)."""
    return numpy_backend(dtype) if device is None else torch_backend(str(device), dtype)


def compute_dtype(*stored: np.dtype[Any]) -> DType:
    """The precision to compute in: float32 if all stored dtypes fit without loss, else float64."""
    return "float32" if np.result_type(*stored, np.float32) == np.float32 else "float64"


def available_ram() -> int:
    """Bytes of main memory available without swapping."""
    available = _proc_bytes("/proc/meminfo", "MemAvailable:")
    if available is not None:
        return available
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30  # unknown: assume a small laptop


def peak_memory() -> int | None:
    """Peak resident memory of this process in bytes, or None where it is unknown."""
    # Not ru_maxrss on Linux: that starts from the peak of the parent process.
    peak = _proc_bytes("/proc/self/status", "VmHWM:")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _proc_bytes(path: str, key: str) -> int | None:
    """A size from a file of /proc, in bytes; None if the file or the line is missing."""
    try:
        with open(path, encoding="ascii") as lines:
            sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith(key)]
    except OSError:
        return None
    return sizes[0] if sizes else None
