"""Array backends (NumPy, or torch on any device) and the linear algebra that the array API lacks.

Only this module and the networks of deep CCA import torch. Other modules call `xp.matmul`,
`xp.cos`, ... and use two features that NumPy and torch share beyond the array API: `out=` and
in-place operators. Matrix decompositions are in float64.
"""

import math
import os
import sys
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, Literal, TypeAlias

import array_api_compat.numpy
import numpy as np
import scipy.linalg
import scipy.sparse
from array_api_compat import array_namespace, is_torch_array
from numpy.typing import NDArray

from knoi.arrays.random import Purpose, generator
from knoi.exceptions import InputError, MemoryBudgetError, require

Array: TypeAlias = Any  # an array of the backend's namespace, or a SciPy CSR array
DType = Literal["float32", "float64"]
# Sparse rows are made dense on a torch device up to this size.
MAX_DENSE_BYTES = 2**30


@dataclass(frozen=True)
class Backend:
    """Where arrays are stored, and the precision in which features are computed."""

    xp: Any  # array-API namespace
    device: str | None  # torch device, e.g. "cuda:0"; None for NumPy
    dtype: DType  # of data and features; L x L and M x M algebra is always float64

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copies and pickles: a namespace is a module, so store device and dtype only."""
        return projecting_backend, (self.device, self.dtype)

    @property
    def is_numpy(self) -> bool:
        """Whether arrays are NumPy arrays."""
        return self.device is None

    @property
    def in_main_memory(self) -> bool:
        """Whether arrays are in main memory: NumPy, or torch on the CPU."""
        return self.device is None or self.device.startswith("cpu")

    @property
    def own_memory(self) -> bool:
        """Whether the device has memory of its own, besides main memory."""
        return self.device is not None and self.device.startswith("cuda")

    @property
    def itemsize(self) -> int:
        """Bytes of one number in `dtype`."""
        return 4 if self.dtype == "float32" else 8

    def asarray(self, values: Any, dtype: DType | None = None) -> Array:
        """`values` on the device in `dtype` (default: the backend's); copies only if needed.

        Sparse rows stay sparse (CSR) with NumPy and become dense on a torch device.
        """
        if isinstance(values, Placed):
            values = values.get()
        wanted = dtype or self.dtype
        if self.is_numpy:
            if scipy.sparse.issparse(values):
                return scipy.sparse.csr_array(values).astype(wanted, copy=False)
            if hasattr(values, "detach"):  # a tensor, perhaps on a device
                values = values.detach().cpu().numpy()
            return np.asarray(values, dtype=wanted)
        if scipy.sparse.issparse(values):
            values = self._dense(values, wanted)
        if isinstance(values, np.ndarray):
            # torch does not accept read-only memory or negative strides; a source may return both.
            values = np.require(values, dtype=wanted, requirements=["C", "W"])
            if min(values.strides, default=0) < 0:  # a single row counts as contiguous
                values = values.copy()
        return self.xp.asarray(values, dtype=getattr(self.xp, wanted), device=self.device)

    def _dense(self, rows: Any, dtype: DType) -> NDArray[Any]:
        size = math.prod(rows.shape) * np.dtype(dtype).itemsize
        if size > MAX_DENSE_BYTES:
            raise MemoryBudgetError(
                f"{rows.shape[0]} sparse rows of {rows.shape[1]} columns would take "
                f"{size / 2**30:.1f} GiB on device={self.device!r}, where rows are dense. Use "
                "device=None, which keeps them sparse, or smaller minibatches."
            )
        made: NDArray[Any] = rows.astype(dtype, copy=False).toarray()
        return made

    def empty(self, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
        """Uninitialised array of `shape`."""
        return self.xp.empty(shape, dtype=getattr(self.xp, dtype or self.dtype), device=self.device)

    def zeros(self, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
        """Array of zeros of `shape`."""
        return self.xp.zeros(shape, dtype=getattr(self.xp, dtype or self.dtype), device=self.device)

    def to_numpy(self, values: Array) -> NDArray[Any]:
        """`values` as a NumPy array (or CSR), without a copy if they are one already."""
        host: NDArray[Any] = values if self.is_numpy else values.detach().cpu().numpy()
        return host if scipy.sparse.issparse(host) else np.asarray(host)

    def uploaded(self, chunk: Any) -> Array:
        """Rows that are then used in pieces: on a device, unless they are sparse and must stay so.

        One transfer is faster than one per piece. In main memory pieces are converted by threads.
        """
        stays = self.in_main_memory or scipy.sparse.issparse(chunk)
        return chunk if stays else self.asarray(chunk)

    def holds(self, values: Any) -> bool:
        """Whether `values` is a tensor on the device of this backend."""
        return hasattr(values, "detach") and str(values.device) == self.device

    def free_bytes(self) -> int:
        """Bytes of free memory on the device; what torch caches but does not use is free."""
        if not self.own_memory:
            return available_ram()
        import torch

        index = torch.device(self.device).index
        index = torch.cuda.current_device() if index is None else index
        cached = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
        return int(torch.cuda.mem_get_info(index)[0] + cached)


class Placed:
    """Rows on their way to the device of a backend: uploaded once, however often they are used.

    Threads may make them ahead of time. With CUDA the copy then begins at once, from pinned memory
    and on a stream of its own, so that it overlaps what the device computes; `get` makes the
    caller's stream wait for it. torch reuses pinned memory only after its copies, and memory of the
    device only after the streams that it was recorded on. Elsewhere `get` makes a plain copy. The
    part for CUDA was never run on a GPU.
    """

    def __init__(self, rows: Any, backend: Backend) -> None:
        self._rows = rows  # None once they are on the device
        self._backend = backend
        self._on_device: Any = None
        self._copied: Any = None  # the event at the end of the copy
        if backend.own_memory and not hasattr(rows, "detach") and _has_cuda():
            self._begin()

    def _begin(self) -> None:
        import torch

        backend, rows = self._backend, self._rows
        if scipy.sparse.issparse(rows):
            rows = backend._dense(rows, backend.dtype)
        dtype = getattr(torch, backend.dtype)
        pinned = torch.empty(tuple(rows.shape), dtype=dtype, pin_memory=True)
        pinned.numpy()[...] = rows
        stream = _upload_stream(backend.device)
        with torch.cuda.stream(stream):
            self._on_device = pinned.to(stream.device, non_blocking=True)
            self._copied = stream.record_event()
        self._rows = None

    def get(self) -> Array:
        """The rows as an array of the backend."""
        if self._copied is not None:
            import torch

            stream = torch.cuda.current_stream(self._on_device.device)
            stream.wait_event(self._copied)
            self._on_device.record_stream(stream)
        elif self._on_device is None:
            rows = self._backend.asarray(self._rows)
            if self._backend.is_numpy:
                return rows  # nothing was uploaded: a conversion is not worth the memory
            self._rows, self._on_device = None, rows
        return self._on_device


def _has_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


@cache
def _upload_stream(device: str | None) -> Any:
    import torch

    return torch.cuda.Stream(device=device)


def numpy_backend(dtype: DType = "float64") -> Backend:
    """NumPy arrays in main memory."""
    return Backend(array_api_compat.numpy, None, dtype)


def torch_backend(
    device: str = "cpu", dtype: DType = "float64", *, float64: bool = True
) -> Backend:
    """Torch tensors on `device`; `float64` says whether the device must have that precision."""
    torch = require("torch", "torch", f"device={device!r}")
    import array_api_compat.torch as xp

    try:
        # With its index: "cuda" means the current device, which every thread may set.
        name = str(torch.empty(1, device=device).device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"device={device!r} cannot be used here: {reason}. "
            "Use device=None for NumPy on the CPU, or a device that torch can use."
        ) from error
    if float64 and not has_float64(device):
        raise InputError(
            f"device={device!r} has no float64, which every method but DeepCCA needs. Use "
            "device=None for NumPy on the CPU, or DeepCCA."
        )
    return Backend(xp, name, dtype)


def has_float64(device: str) -> bool:
    """Whether a torch device has float64; those of Apple do not."""
    import torch

    try:
        torch.empty(1, device=device, dtype=torch.float64)
    except TypeError:
        return False
    return True


def pick_backend(device: Any, dtype: DType) -> Backend:
    """NumPy for `device=None`, else torch on that device (a name, or a `torch.device`)."""
    return numpy_backend(dtype) if device is None else torch_backend(str(device), dtype)


def projecting_backend(device: Any, dtype: DType) -> Backend:
    """The same for projecting rows: NumPy if the device has no numbers of this precision."""
    if device is None:
        return numpy_backend(dtype)
    backend = torch_backend(str(device), dtype, float64=False)
    if dtype == "float64" and not has_float64(str(device)):
        return numpy_backend(dtype)
    return backend


def compute_dtype(*stored: np.dtype[Any]) -> DType:
    """The precision to compute in: float32 if all stored dtypes fit without loss, else float64."""
    return "float32" if np.result_type(*stored, np.float32) == np.float32 else "float64"


def in_main_memory(A: Array) -> bool:
    """Whether the values of A can be read without waiting for a device."""
    return not is_torch_array(A) or bool(A.device.type == "cpu")


def power_of_two(*arrays: Array) -> Any:
    """The power of two s with max |A| / s in [1, 2), or 1 if all entries are 0: A / s is exact.

    A float for NumPy arrays; for tensors a tensor without axes, so that the host need not wait.
    """
    arrays = tuple(A for A in arrays if 0 not in A.shape)
    if arrays and is_torch_array(arrays[0]):
        xp = array_namespace(*arrays)
        largest = xp.max(xp.stack([xp.linalg.vector_norm(A, ord=math.inf) for A in arrays]))
        fraction = xp.frexp(largest)[0]  # in [1/2, 1)
        return xp.where(largest > 0, largest / (2 * fraction), 1.0)
    largest = max((max(float(A.max()), -float(A.min())) for A in arrays), default=0.0)
    # frexp gives largest = f * 2^e with f in [1/2, 1).
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0.0 else 1.0


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


# Rows per block of a triangular solve. SciPy's solver holds the GIL, so it gets only the diagonal
# blocks, a share of 256 / M of the work; matrix products do the rest and let other threads run.
SOLVE_BLOCK = 256


def cholesky(S: Array, backend: Backend) -> Array:
    """Lower Cholesky factor of a symmetric matrix; may overwrite S."""
    if backend.is_numpy:
        # LAPACK works in place on column-major memory: pass the transpose of the symmetric S.
        return scipy.linalg.cholesky(S.T, lower=True, overwrite_a=True, check_finite=False)
    return backend.xp.linalg.cholesky(S)


def solve_lower(C: Array, B: Array, backend: Backend, *, transposed: bool = False) -> Array:
    """C^-1 B, or C^-T B, for a lower triangular C (M, M); entries above its diagonal are unused."""
    if not backend.is_numpy:
        matrix = C.mT if transposed else C
        return backend.xp.linalg.solve_triangular(matrix, B, upper=transposed)
    # One diagonal block after the other, less the contribution of those already solved.
    M = len(C)
    X = np.array(B, dtype=np.result_type(C, B), order="F")
    starts = range(0, M, SOLVE_BLOCK)
    for start in reversed(starts) if transposed else starts:
        own = slice(start, min(start + SOLVE_BLOCK, M))
        if transposed:
            X[own] -= C[own.stop :, own].T @ X[own.stop :]
        else:
            X[own] -= C[own, :start] @ X[:start]
        X[own] = scipy.linalg.solve_triangular(
            C[own, own], X[own], lower=True, trans="T" if transposed else "N", check_finite=False
        )
    return X


def top_eigh(S: Array, k: int, backend: Backend) -> tuple[Array, Array]:
    """The k largest eigenvalues of a symmetric matrix, descending, and their eigenvectors."""
    if backend.is_numpy:
        last = len(S) - 1
        values, vectors = scipy.linalg.eigh(
            S, subset_by_index=[last - k + 1, last], overwrite_a=True, check_finite=False
        )
        return values[::-1], vectors[:, ::-1]
    values, vectors = backend.xp.linalg.eigh(S)
    return backend.xp.flip(values, axis=0)[:k], backend.xp.flip(vectors, axis=1)[:, :k]


# Singular vectors of matrices of at least this size are found by iteration, from blocks of so many
# more columns than are wanted, and of at most so many blocks. Smaller singular values than this,
# relative to the largest, are not found from their squares.
KRYLOV_SIZE, KRYLOV_EXTRA, KRYLOV_BLOCKS = 1000, 10, 17
KRYLOV_TOLERANCE, SQUARABLE = 1e-12, 1e-4


def top_svd(T: Array, k: int, backend: Backend) -> tuple[Array, Array, Array]:
    """The k leading singular triplets of T: U (m, k), s (k,) descending, V (n, k).

    For k far below the size of T, leading ones of a large T are found by iteration. If that does
    not converge soon, and for a smaller T, the leading eigenvectors of T T' are computed. Both
    square the singular values: where the leading ones are too small for it, or T is small, the full
    SVD is computed.
    """
    xp = backend.xp
    if k * 12 < min(T.shape):
        found = _krylov_svd(T, k, backend) if min(T.shape) >= KRYLOV_SIZE else None
        if found is not None:
            return found
        values, U = top_eigh(T @ T.T, k, backend)
        s = xp.sqrt(xp.clip(values, 0.0, None))
        # LAPACK may return fewer than k vectors where many eigenvalues are equal.
        if len(s) == k and float(s[-1]) > SQUARABLE * float(s[0]):
            return U, s, (T.T @ U) / s
    U, s, Vh = xp.linalg.svd(T, full_matrices=False)
    return U[:, :k], s[:k], Vh[:k, :].T


def _krylov_svd(T: Array, k: int, backend: Backend) -> tuple[Array, Array, Array] | None:
    """The same by block Krylov iteration (Musco & Musco 2015), or None if that takes too long.

    The best approximations from the span of T A, (T T') T A, ... for a random block A, until
    T V = U s up to rounding; T' U = V s holds by construction.
    """
    xp, n, width = backend.xp, int(T.shape[1]), k + KRYLOV_EXTRA
    A = generator(0, Purpose.KRYLOV).standard_normal((n, width))
    basis = xp.linalg.qr(T @ backend.asarray(A, "float64"))[0]  # (m, j * width), orthonormal
    images = T.T @ basis  # (n, j * width)
    for number in range(1, min(KRYLOV_BLOCKS, min(T.shape) // (2 * width))):
        block = T @ images[:, -width:]
        for _ in range(2):  # once more for what rounding has left in the span of the basis
            block = xp.linalg.qr(block - basis @ (basis.T @ block))[0]
        basis = xp.concat([basis, block], axis=1)
        images = xp.concat([images, T.T @ block], axis=1)
        if number % 2 == 0:
            values, vectors = top_eigh(images.T @ images, k, backend)
            s = xp.sqrt(xp.clip(values, 0.0, None))
            if len(s) < k or float(s[-1]) <= SQUARABLE * float(s[0]):
                return None
            U, V = basis @ vectors, (images @ vectors) / s
            errors = xp.linalg.vector_norm(T @ V - U * s, axis=0)
            if float(xp.max(errors)) <= KRYLOV_TOLERANCE * float(s[0]):
                return U, s, V
    return None


@dataclass(frozen=True)
class Whitener:
    """W with W' (S + r I) W = I on the directions that carry variance.

    Held as `scale * factor`: either a Cholesky factor C of the equilibrated matrix (W = D C^-T) or
    its eigenvectors divided by root eigenvalues (W = D E), depending on the conditioning.
    """

    backend: Backend
    scale: Array  # (M,)   D, the equilibration
    factor: Array  # (M, M) lower triangular, or (M, rank)
    triangular: bool

    @property
    def rank(self) -> int:
        """Number of directions that carry variance."""
        return int(self.factor.shape[1])

    def whiten(self, B: Array) -> Array:
        """W' B."""
        scaled = self.scale[:, None] * B
        if self.triangular:
            return solve_lower(self.factor, scaled, self.backend)
        return self.factor.T @ scaled

    def unwhiten(self, A: Array) -> Array:
        """W A: from whitened coordinates to weights on the features."""
        if self.triangular:
            A = solve_lower(self.factor, A, self.backend, transposed=True)
            return self.scale[:, None] * A
        return self.scale[:, None] * (self.factor @ A)


def whitener(S: Array, r: float, precision: float, backend: Backend) -> Whitener:
    """Whiten S + r I, where the entries of S are known to a relative `precision`; overwrites S.

    S is first scaled to unit diagonal, so that neither the scale of the view nor that of a single
    column decides what counts as zero. A regulariser well above the noise of S makes Cholesky safe;
    otherwise eigenvalues below the noise are dropped (duplicated columns, more columns than rows).
    """
    xp = backend.xp
    diagonal = xp.arange(S.shape[0], device=backend.device)
    variance = backend.to_numpy(S[diagonal, diagonal]) + r  # (M,)
    live = variance > 0
    d = np.zeros_like(variance)
    d[live] = 1 / np.sqrt(variance[live])
    scale = backend.asarray(d, "float64")
    S *= scale[:, None]
    S *= scale[None, :]
    S[diagonal, diagonal] = backend.asarray(live, "float64")
    noise = 32 * precision * len(d) ** 0.5
    # r d^2 is the least eigenvalue of the scaled matrix: above the noise, Cholesky cannot fail.
    if live.all() and r * float(np.min(d)) ** 2 > noise:
        return Whitener(backend, scale, cholesky(S, backend), triangular=True)
    values, vectors = xp.linalg.eigh(S)
    kept = values > noise
    return Whitener(backend, scale, vectors[:, kept] / xp.sqrt(values[kept]), triangular=False)


def operations_per_second() -> float:
    """Floating-point operations per second of a float32 product, on the cores that BLAS uses.

    The median: where other processes run now and then, they will do so later, too.
    """
    A = np.ones((1024, 1024), np.float32)
    seconds = []
    for _ in range(10):
        start = perf_counter()
        A @ A
        seconds.append(perf_counter() - start)
    return 2 * 1024**3 / float(np.median(seconds))
