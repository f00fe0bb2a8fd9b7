"""Random Fourier features whose frequencies are never stored: signs and Hadamard transforms.

A dense map multiplies every row by d x M frequencies. Here the frequencies are rows of products of
random diagonals and Hadamard matrices H, so that M features of a row take O(M log d) additions and
the map O(M) memory.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from knoi import checks
from knoi.arrays.backend import Array
from knoi.arrays.fast import (
    PAIRED_RUN,
    compilable,
    compiled,
    cosine,
    hadamard,
    hadamard_size,
    numbers_at_once,
)
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import column_means, dense, is_sparse
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, Size, output, require_kernel
from knoi.kernels import Kernel, StationaryKernel

Construction = Literal["hadamard", "fastfood"]
QUARTER = 0.25  # of a turn: the phase between the two features of a pair


@dataclass(frozen=True)
class StructuredFourier(FeatureMap):
    """phi(x) = sqrt(2/M) cos(2 pi (s H D2 P H D1 y + b)), y = the row, rotated for "hadamard".

    `paired` (the default) features use every frequency twice, the second time a quarter of a turn
    later: half the transforms, and far less error where frequencies are orthogonal, because the
    noise of the phases b, which would hide that, cancels within a pair.

    Frequencies come in blocks as wide as the padded row, p = 2^k >= 256. Those of one block are
    orthogonal ("fastfood": nearly so); each has its own length s, drawn from the kernel's spectral
    measure in R^p, where the padded rows lie at the same distances. Features of the two phases of a
    pair take turns, 64 of each.

    - "hadamard" (structured orthogonal features, Yu et al. 2016): H D3 H D2 H D1 with random signs
      D. H D1 is the same for all blocks and applied once, in `prepare`; signs of later factors are
      drawn anew for each.
    - "fastfood" (Le, Sarlos & Smola 2013): H G P H B, with signs B, a permutation P and normal
      numbers G.
    """

    kind: ClassVar[str] = "structured_fourier"
    features_iid = True  # every feature has a random phase
    kernel: StationaryKernel
    rank_: Annotated[int, Size("M")]
    paired: bool
    centre: Annotated[Array, ArraySpec(("d",))]
    # Signs before the transform that all blocks share; empty without one.
    rotation: Annotated[Array, ArraySpec(("size",), optional=True)]
    first: Annotated[Array, ArraySpec(("drawn",))]  # D1
    # P, places within a block; empty if it is the identity.
    order: Annotated[Array, ArraySpec(("drawn",), dtype="int32", below="size", optional=True)]
    second: Annotated[Array, ArraySpec(("drawn",))]  # D2
    # s: lengths in turns, over the norm of the rows of H D2 P H D1.
    scale: Annotated[Array, ArraySpec(("drawn",))]
    phases: Annotated[Array, ArraySpec(("drawn",))]  # in turns

    @classmethod
    def fit(
        cls,
        sample: Array,
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        construction: Construction = "hadamard",
        paired: bool = True,
    ) -> Self:
        """Draw the map for `kernel`; the sample gives the centre and the number of columns only."""
        checks.one_of("construction", construction, get_args(Construction))
        kernel = require_kernel(kernel, StationaryKernel, f"{construction!r} features")
        if not kernel.isotropic:
            raise InputError(
                f"{construction!r} features need an isotropic kernel: the spectral measure of the "
                f"{kernel.name} kernel is not invariant under rotation. Use 'fourier' or 'qmc' "
                "with it, or the kernel 'rbf' or 'matern'."
            )
        d = sample.shape[1]
        p = hadamard_size(d)
        features_in_block = 2 * p if paired else p
        blocks = [
            _draw(kernel, p, seed, view, block, construction)
            for block in range(-(-rank // features_in_block))
        ]
        first, order, second, scale, phases = (
            np.concatenate(parts) for parts in zip(*blocks, strict=True)
        )
        rotation = np.empty(0)
        if construction == "hadamard":
            rotation = _signs(generator(seed, Purpose.SIGNS, view), p)
        sparse = is_sparse(sample)
        centre = column_means(sample) if sparse else np.mean(sample, axis=0, dtype=np.float64)
        return cls(kernel, rank, paired, centre, rotation, first, order, second, scale, phases)

    @cached_property
    def size(self) -> int:
        """Frequencies in a block, p."""
        return hadamard_size(self.n_cols)

    @property
    def grain(self) -> int:
        """Features of a block, which is computed as a whole."""
        return 2 * self.size if self.paired else self.size

    @property
    def drawn(self) -> int:
        """Frequencies of all blocks."""
        return -(-self.rank_ // self.grain) * self.size

    @property
    def W(self) -> Array:
        """Frequencies of all features, (d, M), as a dense map has them: to look at."""
        rows = np.eye(self.n_cols, self.size)
        if len(self.rotation):
            rows = hadamard(rows * self.rotation) / self.size**0.5
        W = 2 * np.pi * self._turns(rows, slice(0, len(self.first)))
        if self.paired:
            runs = W.reshape(self.n_cols, -1, 1, PAIRED_RUN)
            W = np.tile(runs, (1, 1, 2, 1)).reshape(self.n_cols, -1)
        return W[:, : self.rank]

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
            rows = hadamard(rows)
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Whole blocks straight into `out`, parts of blocks by way of a whole one."""
        grain = self.grain
        out = output(prepared, columns.stop - columns.start, out)
        place = columns.start
        while place < columns.stop:
            k, offset = divmod(place, grain)
            whole = (columns.stop - place) // grain if offset == 0 else 0
            taken = whole * grain or min(grain - offset, columns.stop - place)
            target = out[:, place - columns.start : place - columns.start + taken]
            if whole:
                self._fill(prepared, range(k, k + whole), target)
            else:
                one = self._fill(prepared, range(k, k + 1), output(prepared, grain))
                target[...] = one[:, offset : offset + taken]
            place += taken
        return out

    def _fill(self, prepared: Array, blocks: range, out: Array) -> Array:
        """Features of whole blocks."""
        amplitude = (2 / self.rank) ** 0.5
        p, grain = self.size, self.grain
        part = slice(blocks.start * p, blocks.stop * p)
        drawn = (self.first, self.second, self.scale, self.phases)
        if views := compilable(prepared, out, *(array[part] for array in drawn)):
            rows, features, first, second, scale, phases = views
            order = np.asarray(self.order[part])
            compiled().structured_features(
                rows,
                first,
                order,
                second,
                scale,
                phases,
                rows.dtype.type(amplitude),
                self.paired,
                features,
            )
            return out
        xp = array_namespace(prepared)
        n = prepared.shape[0]
        together = max(1, numbers_at_once(prepared) // max(1, n * p))
        for k in range(0, len(blocks), together):
            some = blocks[k : k + together]
            part = slice(some.start * p, some.stop * p)
            turns = self._turns(prepared, part)
            turns += self.phases[part]
            target = out[:, k * grain : (k + len(some)) * grain]
            if self.paired:
                runs = xp.reshape(turns, (n, len(some) * p // PAIRED_RUN, PAIRED_RUN))
                turns = xp.reshape(xp.stack([runs, runs - QUARTER], axis=2), target.shape)
            target[...] = turns
            cosine(target, amplitude)
        return out

    def _turns(self, prepared: Array, part: slice) -> Array:
        """How far the frequencies `part`, whole blocks, turn the rows, without phases."""
        xp = array_namespace(prepared)
        n, p = prepared.shape
        whole, by_block = (n, part.stop - part.start), (-1, p)
        T = prepared[:, None, :] * xp.reshape(self.first[part], by_block)  # (b, blocks, p)
        T = xp.reshape(hadamard(xp.reshape(T, by_block)), whole)
        if self.order.shape[0]:
            first_places = xp.arange(0, whole[1], p, device=device(T))  # of the blocks
            order = xp.reshape(self.order[part], by_block) + first_places[:, None]
            T = xp.take(T, xp.reshape(order, (-1,)), axis=1)
        T *= self.second[part]
        T = xp.reshape(hadamard(xp.reshape(T, by_block)), whole)
        T *= self.scale[part]
        return T

    def check_state(self) -> None:
        """Either all blocks share a rotation, or each has its permutation."""
        if bool(self.rotation.shape[0]) == bool(self.order.shape[0]):
            raise InputError("it has both a rotation and permutations, or neither")

    def scratch_per_row(self) -> int:
        """The prepared row, and a block with its temporaries."""
        return 3 * self.size + self.grain


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
