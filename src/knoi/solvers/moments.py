"""Additive moments of two views: n, means and scatter matrices, over any partition of the rows.

Products run in the precision of the features (float32 at the speed of BLAS), their sums in float64.
Every chunk is centred first, on the means so far and then on what is left of its own, so that data
far from the origin loses no digits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from knoi.arrays.backend import Array, Backend, pick_backend
from knoi.exceptions import InputError


@dataclass(frozen=True)
class Covariances:
    """What closed forms start from: means and covariances in float64."""

    n: int
    mean_x: Array  # (Mx,)
    mean_y: Array  # (My,)
    Sxx: Array  # (Mx, Mx)
    Sxy: Array  # (Mx, My)
    Syy: Array  # (My, My)
    precision: float  # relative accuracy of the entries


class Moments:
    """Running moments. Fill the `room` for a chunk with features less `shifts`, then `absorb` it.

    The shifts are the means so far. Whoever makes features has them in cache and takes the shifts
    off for nothing; what is left of a chunk's own mean is small and taken off here.

    The room has one spare row. With n rows seen so far and m in the chunk, moving from the scatter
    about two means to the scatter about their joint mean adds (n m / (n + m)) delta delta', where
    delta is the distance of the means. Written into the spare row as sqrt(n m / (n + m)) delta, it
    rides along in the same matrix product and costs nothing (Chan, Golub & LeVeque's update).
    """

    def __init__(self, ranks: tuple[int, int], backend: Backend) -> None:
        self.n = 0
        self.ranks = ranks
        self.backend = backend
        self._means = [backend.zeros((rank,), "float64") for rank in self.ranks]
        self._scatters = {
            (i, j): backend.zeros((self.ranks[i], self.ranks[j]), "float64")
            for i, j in ((0, 0), (0, 1), (1, 1))
        }
        self._rooms: list[Array] = []
        self._largest = [0.0, 0.0]  # magnitude of centred features among the first rows

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the scratch, and with the name of the backend."""
        backend = (self.backend.device, self.backend.dtype)
        return {**vars(self), "_rooms": [], "backend": backend}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.backend = pick_backend(*state["backend"])

    @property
    def held_bytes(self) -> int:
        """Bytes of the sums, which stay as long as rows may follow."""
        return sum(8 * int(S.shape[0] * S.shape[1]) for S in self._scatters.values())

    @staticmethod
    def fixed_bytes(ranks: tuple[int, int], itemsize: int) -> int:
        """Bytes held however many rows there are: three scatters and the product of one chunk."""
        rank_x, rank_y = ranks
        scatters = rank_x * rank_x + rank_x * rank_y + rank_y * rank_y
        return 8 * scatters + itemsize * max(ranks) ** 2

    @property
    def shifts(self) -> tuple[Array, Array]:
        """What to take off the features of the next chunk: the means so far, (Mx,) and (My,)."""
        x, y = (self.backend.asarray(mean) for mean in self._means)
        return x, y

    def room(self, rows: int) -> tuple[Array, Array]:
        """Two arrays, (rows, Mx) and (rows, My), to be filled with a chunk."""
        if not self._rooms or self._rooms[0].shape[0] < rows + 1:
            self.close_room()  # the old one goes before the new one comes
            self._rooms = [self.backend.empty((rows + 1, rank)) for rank in self.ranks]
        return self._rooms[0][:rows, :], self._rooms[1][:rows, :]

    def close_room(self) -> None:
        """Give the memory of the room back."""
        self._rooms = []

    def update(self, Phi: Array, Psi: Array) -> None:
        """Add the rows of Phi (m, Mx) and Psi (m, My), which are left as they are."""
        for room, features, shift in zip(self.room(len(Phi)), (Phi, Psi), self.shifts, strict=True):
            self.backend.xp.subtract(features, shift, out=room)
        self.absorb(len(Phi))

    def absorb(self, rows: int) -> None:
        """Add the first `rows` rows of the room, overwriting them."""
        if rows == 0:
            return
        xp = self.backend.xp
        weight = self.n * rows / (self.n + rows)
        chunk = []
        for view, (room, mean, shift) in enumerate(
            zip(self._rooms, self._means, self.shifts, strict=True)
        ):
            features = room[:rows, :]
            delta = self.backend.asarray(shift, "float64") - mean
            # What rounding leaves of a mean far from 0 is small, and then seen with all its digits.
            # The first chunk has no shift to bring it near 0. Without this a constant column would
            # seem to vary, by the rounding of its mean.
            for _ in range(2 if self.n == 0 else 1):
                step = self._column_means(features)
                features -= step
                delta += step
            if self.n == 0:
                self._largest[view] = float(xp.max(xp.abs(features)))
            room[rows, :] = delta * weight**0.5
            mean += delta * (rows / (self.n + rows))
            chunk.append(room[: rows + 1, :])
        for (i, j), scatter in self._scatters.items():
            with np.errstate(over="ignore", invalid="ignore"):  # seen, and said, in `covariances`
                # NumPy recognises A' A and calls syrk: half the work of a general product.
                scatter += xp.matmul(chunk[i].T, chunk[j])
        self.n += rows

    def _column_means(self, features: Array) -> Array:
        """Means in the precision of the features, by whatever sums columns fast and well."""
        if self.backend.is_numpy:
            return np.full(len(features), 1 / len(features), features.dtype) @ features
        # torch's own product adds up row after row: 2000 roundings off in 16,000 rows of float32.
        return self.backend.xp.mean(features, axis=0)

    def merge(self, other: "Moments") -> None:
        """Add the rows another `Moments` has seen; `other` is left as it is."""
        if other.ranks != self.ranks:
            raise InputError(
                f"moments over {other.ranks} features cannot be added to moments over {self.ranks}."
            )
        if other.n == 0:
            return
        share = other.n / (self.n + other.n)
        deltas = [theirs - ours for ours, theirs in zip(self._means, other._means, strict=True)]
        for (i, j), scatter in self._scatters.items():
            scatter += other._scatters[i, j]
            scatter += (self.n * share) * deltas[i][:, None] * deltas[j][None, :]
        for mean, delta in zip(self._means, deltas, strict=True):
            mean += share * delta
        self._largest = [max(pair) for pair in zip(self._largest, other._largest, strict=True)]
        self.n += other.n

    def covariances(self, *, consume: bool = False) -> Covariances:
        """Means and covariances (divided by n, as in the paper) of the rows seen so far.

        With `consume` they are made in place, for half the memory, and no rows can follow.
        """
        if self.n < 2:
            raise InputError(
                f"n_samples={self.n}: a covariance needs at least 2 rows. Pass more rows."
            )
        scatters = self._scatters
        if consume:
            self._scatters = {}
            self.close_room()
        else:
            scatters = {key: scatter + 0.0 for key, scatter in scatters.items()}
        for scatter in scatters.values():
            scatter /= self.n
        Sxx, Sxy, Syy = scatters[0, 0], scatters[0, 1], scatters[1, 1]
        mean_x, mean_y = (mean + 0.0 for mean in self._means)
        precision = float(np.finfo(self.backend.dtype).eps)
        for own, S, mean in ((0, Sxx, mean_x), (1, Syy, mean_y)):
            _check_range("XY"[own], S, self._largest[own], self.backend)
            idle = _constant_columns(self.backend, S, mean, precision)
            if len(idle):
                S[idle, :] = 0.0
                S[:, idle] = 0.0
                Sxy[(idle, slice(None)) if own == 0 else (slice(None), idle)] = 0.0
        return Covariances(self.n, mean_x, mean_y, Sxx, Sxy, Syy, precision)


def _check_range(view: str, S: Array, largest: float, backend: Backend) -> None:
    """Refuse variances too large or too small to be numbers of the precision used."""
    variance = backend.to_numpy(backend.xp.linalg.diagonal(S))
    if not np.isfinite(variance).all():
        raise InputError(
            f"view {view} holds numbers so large that their squares overflow {backend.dtype} "
            f"(feature {int(np.argmin(np.isfinite(variance)))}). Divide {view} by a constant: a "
            "change of units changes no correlation."
        )
    limits = np.finfo(backend.dtype)
    if largest > 0 and variance.max() < float(limits.tiny) / float(limits.eps):
        raise InputError(
            f"view {view} holds numbers so small that their squares vanish in {backend.dtype}. "
            f"Multiply {view} by a constant: a change of units changes no correlation."
        )


def _constant_columns(backend: Backend, S: Array, mean: Array, precision: float) -> Array:
    """Indices of columns whose spread is no more than the rounding of their mean."""
    variance = backend.to_numpy(backend.xp.linalg.diagonal(S))
    # Centring is exact to far less than this; numbers that differ at all differ by more.
    rounding = precision / 8 * np.abs(backend.to_numpy(mean))
    return backend.xp.asarray(np.flatnonzero(variance <= rounding**2), **backend.placement)
