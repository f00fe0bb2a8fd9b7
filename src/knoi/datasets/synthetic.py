"""Generated pairs of views: rows computed when they are read, and views of known correlations."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from knoi import checks
from knoi.arrays.random import Purpose, generator, seed_from
from knoi.data.source import RowSource
from knoi.exceptions import InputError

Float64 = NDArray[np.float64]

# Rows drawn per random generator; changing it would change the data.
_BLOCK_ROWS = 4096
# Condition number of the mixing matrices.
_CONDITION = 4.0
# Rows made per call of the generator.
_CALL_ROWS = 4096
# Memory for rows of the other view that were made but not read yet.
_MAX_CACHE_BYTES = 128 * 2**20


@dataclass(frozen=True)
class TwoViews:
    """Paired samples of two views whose canonical correlations are known.

    Attributes
    ----------
    X : array of shape (n_samples, n_features[0])
    Y : array of shape (n_samples, n_features[1])
    correlations : tuple of float
        Of the population, descending; see `make_two_views`.
    """

    X: NDArray[Any]
    Y: NDArray[Any]
    correlations: tuple[float, ...]


def make_two_views(
    n_samples: int,
    n_features: tuple[int, int] = (20, 15),
    correlations: Sequence[float] = (0.9, 0.7, 0.5),
    *,
    noise: float = 1.0,
    nonlinear: bool = False,
    dtype: DTypeLike = np.float64,
    random_state: Any = 0,
) -> TwoViews:
    """Draw two views whose population canonical correlations are exactly those given.

    Pairs of latent Gaussians (u_j, v_j) with the given correlations, and independent ones for the
    remaining dimensions, are mixed by a random well-conditioned matrix in each view.

    Parameters
    ----------
    n_samples : int
        The first rows are the same for every `n_samples`.
    n_features : (int, int)
        Columns of each view, at least as many as there are correlations.
    correlations : sequence of float
        In [0, 1].
    noise : float
        Standard deviation of the independent dimensions; that of the correlated ones is 1. It
        does not change the canonical correlations but makes nonlinear ones harder to find.
    nonlinear : bool
        View Y then has (v_j^2 - 1) / sqrt(2) in place of v_j. In the population, linear canonical
        correlations are zero, and u_j^2 and v_j^2 have exactly the given correlation r_j. (All
        nonlinear canonical correlations are the products of powers of the r_j.)
    dtype : dtype
        float32 or float64.
    random_state : None, int, RandomState or Generator

    Returns
    -------
    TwoViews

    See Also
    --------
    two_view_sources : the same rows, generated when they are read.
    """
    x, y = two_view_sources(
        n_samples,
        n_features,
        correlations,
        noise=noise,
        nonlinear=nonlinear,
        dtype=dtype,
        random_state=random_state,
    )
    descending = tuple(sorted(map(float, correlations), reverse=True))
    return TwoViews(x.read(0, n_samples), y.read(0, n_samples), descending)


def two_view_sources(
    n_rows: int,
    n_features: tuple[int, int] = (20, 15),
    correlations: Sequence[float] = (0.9, 0.7, 0.5),
    *,
    noise: float = 1.0,
    nonlinear: bool = False,
    dtype: DTypeLike = np.float64,
    random_state: Any = 0,
) -> tuple[RowSource, RowSource]:
    """The views of `make_two_views` as a pair of sources that generate their rows when read.

    Any number of rows takes no memory and no file. Parameters are those of `make_two_views`.
    """
    n_rows, noise = checks.count("n_samples", n_rows), checks.positive("noise", noise)
    r = np.asarray(correlations, dtype=np.float64)
    if r.ndim != 1 or not np.all((r >= 0) & (r <= 1)):
        raise InputError(f"correlations={correlations!r}. Pass numbers from 0 to 1.")
    if len(n_features) != 2 or min(n_features) < max(len(r), 1):
        raise InputError(
            f"n_features={n_features!r} with {len(r)} correlations. Each view needs at least one "
            "column per correlation."
        )
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype={np.dtype(dtype)}. Pass float32 or float64.")
    n_cols = (int(n_features[0]), int(n_features[1]))
    seed = seed_from(random_state)
    rows = _LatentGaussians(n_rows, n_cols, np.dtype(dtype), seed, r, noise, nonlinear)
    return generated_views(rows, random_access=False)


@dataclass(eq=False)
class _LatentGaussians:
    """The rows of `make_two_views`, drawn in blocks of 4096."""

    n_rows: int
    n_cols: tuple[int, int]
    dtype: np.dtype[Any]
    seed: int
    correlations: Float64
    noise: float
    nonlinear: bool

    def __post_init__(self) -> None:
        self._mixing = tuple(
            _well_conditioned(d, generator(self.seed, Purpose.SYNTHETIC_MIXING, view))
            for view, d in enumerate(self.n_cols)
        )
        self._cached_block = lru_cache(maxsize=1)(self._block)  # for reads shorter than a block

    def pair(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows `start:stop` of both views."""
        X, Y = (np.empty((stop - start, d), self.dtype) for d in self.n_cols)
        for block in range(start // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS)):
            first = block * _BLOCK_ROWS
            inside = slice(max(start - first, 0), min(stop - first, _BLOCK_ROWS))
            rows = slice(first + inside.start - start, first + inside.stop - start)
            x, y = self._cached_block(block)
            X[rows], Y[rows] = x[inside], y[inside]
        return X, Y

    def _block(self, block: int) -> tuple[Float64, Float64]:
        # Always the whole block: a product of fewer rows may round differently.
        dx, dy = self.n_cols
        # The correlation of squared Gaussians is the square of the Gaussians' correlation.
        r = np.sqrt(self.correlations) if self.nonlinear else self.correlations
        k = len(r)
        draws = generator(self.seed, Purpose.SYNTHETIC_ROWS, block).standard_normal(
            (_BLOCK_ROWS, dx + dy)
        )
        x, y = draws[:, :dx], draws[:, dx:]
        y[:, :k] *= np.sqrt(1 - r * r)
        y[:, :k] += r * x[:, :k]
        if self.nonlinear:
            y[:, :k] = (y[:, :k] ** 2 - 1) / np.sqrt(2)
        x[:, k:] *= self.noise
        y[:, k:] *= self.noise
        return x @ self._mixing[0], y @ self._mixing[1]


def _well_conditioned(d: int, rng: np.random.Generator) -> Float64:
    """A random d x d matrix with singular values from 1 / sqrt(condition) to sqrt(condition)."""
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    stretch = np.geomspace(_CONDITION**-0.5, _CONDITION**0.5, d)
    return np.asarray((left * stretch) @ right)


class PairGenerator(Protocol):
    """Rows of two aligned views, each row a pure function of its number."""

    n_rows: int
    n_cols: tuple[int, int]
    dtype: np.dtype[Any]

    def pair(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows `start:stop` of both views."""
        ...


def generated_views(
    generator: PairGenerator, *, random_access: bool
) -> tuple[RowSource, RowSource]:
    """Both views of a generator as sources; `random_access` if single rows cost no more.

    Reading rows of one view and then the same rows of the other, in one thread, makes them once.
    """
    n, dtype, shared = generator.n_rows, generator.dtype, _SharedRows(generator)
    x, y = (
        RowSource(label, (n, d), dtype, partial(shared.take, side), random_access=random_access)
        for side, (label, d) in enumerate(zip("XY", generator.n_cols, strict=True))
    )
    return x, y


class _SharedRows(threading.local):
    """Makes rows for both views and caches those of the other view until they are read.

    One cache per thread: readers of different rows must not evict each other's.
    """

    def __init__(self, generator: PairGenerator) -> None:
        self._generator = generator
        self._cache: OrderedDict[tuple[int, int, int], NDArray[Any]] = OrderedDict()

    def take(self, side: int, start: int, stop: int) -> NDArray[Any]:
        """Rows `start:stop` of one view, in fresh memory."""
        rows = self._cache.pop((side, start, stop), None)
        if rows is not None:
            return rows
        self._cache.pop((1 - side, start, stop), None)  # made again below
        n, n_cols, dtype = stop - start, self._generator.n_cols, self._generator.dtype
        wanted = np.empty((n, n_cols[side]), dtype)
        room = _MAX_CACHE_BYTES - n * n_cols[1 - side] * dtype.itemsize
        keep_other = room >= 0
        while keep_other and sum(rows.nbytes for rows in self._cache.values()) > room:
            self._cache.popitem(last=False)  # the oldest
        other = np.empty((n if keep_other else 0, n_cols[1 - side]), dtype)
        for first in range(start, stop, _CALL_ROWS):
            last = min(first + _CALL_ROWS, stop)
            made = self._generator.pair(first, last)
            wanted[first - start : last - start] = made[side]
            if keep_other:
                other[first - start : last - start] = made[1 - side]
        if keep_other:
            self._cache[1 - side, start, stop] = other
        return wanted
