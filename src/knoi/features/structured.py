"""Random Fourier features whose frequencies are never stored: signs and Hadamard transforms.

A dense map multiplies every row by d x M frequencies. Here the frequencies are rows of products of
random diagonals and Hadamard matrices H, so that M features of a row take O(M log d) additions and
the map O(M) memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from knoi.arrays import hadamard
from knoi.arrays.backend import Array, Backend
from knoi.arrays.fast import can_compile, compiled, cosine
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import dense, is_sparse
from knoi.exceptions import InputError, InputTypeError
from knoi.features.feature_map import FeatureMap
from knoi.kernels import Kernel, StationaryKernel, kernel_from_state

Construction = Literal["hadamard", "fastfood"]


@dataclass(frozen=True)
class StructuredFourier(FeatureMap):
    """phi(x) = sqrt(2/M) cos(2 pi (s H D2 P H D1 y + b)), y = the row, rotated for "hadamard".

    Features come in blocks as wide as the padded row, p = 2^k >= 256. Frequencies of one block are
    orthogonal ("fastfood": nearly so); each has its own length s, drawn from the kernel's spectral
    measure in R^p, where the padded rows lie at the same distances.

    - "hadamard" (structured orthogonal features, Yu et al. 2016): H D3 H D2 H D1 with random signs
      D. H D1 is the same for all blocks and applied once, in `prepare`; signs of later factors are
      drawn anew for each.
    - "fastfood" (Le, Sarlos & Smola 2013): H G P H B, with signs B, a permutation P and normal
      numbers G.
    """

    kind: ClassVar[str] = "structured_fourier"
    kernel: StationaryKernel
    rank_: int
    centre: Array  # (d,)
    rotation: Array  # (p,) signs before the transform that all blocks share; (0,) without one
    first: Array  # (blocks p,) D1
    order: Array  # (blocks p,) P, places within a block; (0,) if it is the identity
    second: Array  # (blocks p,) D2
    scale: Array  # (blocks p,) s: lengths in turns, over the norm of the rows of H D2 P H D1
    phases: Array  # (blocks p,) in turns

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        construction: Construction = "hadamard",
    ) -> Self:
        """Draw the map for `kernel`; the sample only fixes the centre and the number of columns."""
        if not isinstance(kernel, StationaryKernel):
            raise InputTypeError(
                f"random Fourier features need a stationary kernel, not {kernel.name!r}. Use 'rbf' "
                "or 'matern', or a Nystrom approximation, which takes any kernel."
            )
        if not kernel.isotropic:
            raise InputError(
                f"{construction!r} features turn frequencies in all directions alike, but those of "
                f"the {kernel.name} kernel keep to the axes. Use 'fourier' or 'qmc' with it, or an "
                "isotropic kernel, 'rbf' or 'matern'."
            )
        d = sample.shape[1]
        p = hadamard.padded(d)
        blocks = [
            _draw(kernel, p, seed, view, block, construction) for block in range(-(-rank // p))
        ]
        first, order, second, scale, phases = (
            np.concatenate(parts) for parts in zip(*blocks, strict=True)
        )
        rotation = np.empty(0)
        if construction == "hadamard":
            rotation = _signs(generator(seed, Purpose.SIGNS, view), p)
        centre = np.zeros(d) if is_sparse(sample) else np.mean(sample, axis=0, dtype=np.float64)
        return cls(kernel, rank, centre, rotation, first, order, second, scale, phases)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return int(self.centre.shape[0])

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return self.rank_

    @property
    def size(self) -> int:
        """Features in a block, p."""
        return hadamard.padded(self.n_cols)

    @property
    def grain(self) -> int:
        """A block is made as a whole."""
        return self.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the lengths."""
        own: np.dtype[Any] = np.dtype(self.scale.dtype)
        return own

    @property
    def W(self) -> Array:
        """Frequencies, (d, M), as a dense map has them: for tests and for looking at."""
        eye = np.eye(self.n_cols, self.size)
        if len(self.rotation):
            eye = hadamard.transform(eye * self.rotation) / self.size**0.5
        blocks = range(len(self.first) // self.size)
        columns = [self._project(eye, k) for k in blocks]
        return 2 * np.pi * np.concatenate(columns, axis=1)[:, : self.rank]

    def prepare(self, X: Array) -> Array:
        """Centred and padded rows, (b, p), rotated where there is a rotation."""
        X = dense(X)
        xp = array_namespace(X)
        rows = xp.zeros((X.shape[0], self.size), dtype=X.dtype, device=device(X))
        inside = rows[:, : self.n_cols]
        inside[...] = X
        inside -= self.centre
        if self.rotation.shape[0]:
            rows *= self.rotation / self.size**0.5
            rows = hadamard.transform(rows)
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Whole blocks straight into `out`, parts of blocks by way of a whole one."""
        b, p = prepared.shape
        if out is None:
            xp = array_namespace(prepared)
            shape = (b, columns.stop - columns.start)
            out = xp.empty(shape, dtype=prepared.dtype, device=device(prepared))
        place = columns.start
        while place < columns.stop:
            start, whole = place - place % p, (columns.stop - place) // p
            target = out[:, place - columns.start :]
            if place == start and whole:
                taken = whole * p
                self._fill(prepared, slice(start, start + taken), target[:, :taken])
            else:
                taken = min(start + p, columns.stop) - place
                one = self._fill(prepared, slice(start, start + p), None)
                target[:, :taken] = one[:, place - start : place - start + taken]
            place += taken
        return out

    def _fill(self, prepared: Array, columns: slice, out: Array | None) -> Array:
        """Features of whole blocks."""
        amplitude = (2 / self.rank) ** 0.5
        if out is None:
            xp = array_namespace(prepared)
            shape = (prepared.shape[0], columns.stop - columns.start)
            out = xp.empty(shape, dtype=prepared.dtype, device=device(prepared))
        if can_compile(prepared, out, self.first, self.second, self.scale, self.phases):
            compiled().structured_features(
                prepared,
                self.first[columns],
                self.order[columns],
                self.second[columns],
                self.scale[columns],
                self.phases[columns],
                np.float32(amplitude),
                out,
            )
            return out
        for k in range(columns.start // self.size, columns.stop // self.size):
            begin = k * self.size - columns.start
            part = out[:, begin : begin + self.size]
            part[...] = self._project(prepared, k)
            part += self.phases[k * self.size : (k + 1) * self.size]
            cosine(part, amplitude)
        return out

    def _project(self, prepared: Array, k: int) -> Array:
        """Return the turns of block k, (b, p)."""
        block = slice(k * self.size, (k + 1) * self.size)
        T = hadamard.transform(prepared * self.first[block])
        if self.order.shape[0]:
            T = array_namespace(T).take(T, self.order[block], axis=1)
        T = hadamard.transform(T * self.second[block])
        T *= self.scale[block]
        return T

    def slices(self, largest: int) -> list[slice]:
        """Blocks of columns that are whole blocks of the map, where these are small enough."""
        step = largest - largest % self.size or largest
        return [slice(s, min(s + step, self.rank)) for s in range(0, self.rank, step)]

    def to(self, backend: Backend) -> Self:
        """What was drawn, on the backend."""
        place = backend.asarray
        moved = {name: place(getattr(self, name)) for name in _FLOATS}
        order = (
            self.order
            if backend.is_numpy
            else backend.xp.asarray(np.asarray(self.order), **backend.placement)
        )
        return replace(self, **moved, order=order)

    def scratch_per_row(self) -> int:
        """The prepared row, and a block with its temporaries."""
        return 4 * self.size

    def state_dict(self) -> dict[str, Any]:
        """The drawn numbers themselves."""
        drawn = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind, **drawn, "kernel": self.kernel.state_dict()}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        kernel = kernel_from_state(state["kernel"])
        assert isinstance(kernel, StationaryKernel)
        drawn = {name: state[name] for name in (*_FLOATS, "order")}
        return cls(kernel=kernel, rank_=int(state["rank_"]), **drawn)


_FLOATS = ("centre", "rotation", "first", "second", "scale", "phases")


def _signs(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
    return draw.choice(np.array([-1.0, 1.0]), size)


def _draw(
    kernel: StationaryKernel, p: int, seed: int, view: View, block: int, construction: Construction
) -> tuple[NDArray[Any], ...]:
    """Everything random in one block: D1, P, D2, lengths over norms in turns, phases in turns."""
    signs = generator(seed, Purpose.SIGNS, view, block)
    first, order = _signs(signs, p), np.empty(0, dtype=np.int32)
    if construction == "hadamard":
        second, norm = _signs(signs, p), float(p)  # two transforms of norm sqrt(p) each
    else:
        permutation = generator(seed, Purpose.PERMUTATION, view, block)
        order = permutation.permutation(p).astype(np.int32)
        second = generator(seed, Purpose.FREQUENCIES, view, block).standard_normal(p)
        norm = float(np.linalg.norm(second)) * p**0.5
    radii = kernel.sample_radii(p, p, generator(seed, Purpose.RADII, view, block))
    phases = generator(seed, Purpose.PHASES, view, block).uniform(0, 1, p)
    return first, order, second, radii / (2 * np.pi * norm), phases
