"""Random Fourier features: sqrt(2/M) cos(w'x + b) for stationary kernels (Rahimi & Recht).

Frequencies w are independent, orthogonal or quasi-Monte Carlo. They are drawn in blocks, each from
its own random address: the frequencies of a map are the first of a larger map, on any worker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from knoi.arrays.backend import Array
from knoi.arrays.fast import cosine
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import append_column, column_means, is_sparse, product
from knoi.checks import one_of
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, require_kernel
from knoi.kernels import Kernel, StationaryKernel

Frequencies = Literal["iid", "orthogonal", "qmc"]

# Blocks are drawn whole even when only their head is used: a larger map extends a smaller one.
DRAW_BLOCK = 1024

# The points of SciPy's Sobol sequence are multiples of this; half of it moves them off 0, where
# quantiles are infinite, and makes them symmetric.
SOBOL_CELL = 2.0**-30


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """phi(x) = sqrt(2/M) cos(W'(x - c) + b), with W from the spectral measure of the kernel.

    The centre c changes nothing in exact arithmetic (it only turns the phases); it keeps the
    arguments of the cosine small, so that data far from the origin loses no digits in float32.

    `paired` features use every frequency twice, as cos(w'x) and sin(w'x) = cos(w'x - pi/2), and
    need no random phase: lower variance per frequency, half as many frequencies at equal M.

    `frequencies` says how these depend on each other. "iid": they are independent (Rahimi & Recht,
    2007). "orthogonal": d directions at a time are at right angles, with independent lengths (Yu et
    al., 2016); for isotropic kernels. "qmc": a scrambled Sobol sequence through inverse CDFs (Yang
    et al., 2014). Features are unbiased under every rule.
    """

    kind: ClassVar[str] = "random_fourier"
    kernel: StationaryKernel
    # Frequencies W, under them the phases b, over 2 pi.
    turns: Annotated[Array, ArraySpec(("d + 1", "M"))]
    centre: Annotated[Array, ArraySpec(("d",))]

    @classmethod
    def fit(
        cls,
        sample: Array,
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        frequencies: Frequencies = "iid",
        paired: bool = False,
    ) -> Self:
        """Draw the map for `kernel`; the sample gives the centre and the number of columns only."""
        kernel = require_kernel(kernel, StationaryKernel, "random Fourier features")
        n_cols = int(sample.shape[1])
        distinct = -(-rank // 2) if paired else rank
        frequency, phase = draw_frequencies(
            kernel, n_cols, distinct, seed, view, frequencies, paired=paired
        )
        if paired:
            pairs = rank // 2
            last = phase[pairs:]  # an odd rank leaves one unpaired feature, which keeps its phase
            phase = np.concatenate([np.tile([0.0, -np.pi / 2], pairs), last])
            frequency = np.repeat(frequency, 2, axis=1)[:, :rank]
        sparse = is_sparse(sample)
        centre = column_means(sample) if sparse else np.mean(sample, axis=0, dtype=np.float64)
        return cls(kernel, np.concatenate([frequency, phase[None, :]]) / (2 * np.pi), centre)

    @property
    def W(self) -> Array:
        """Frequencies, (d, M)."""
        return 2 * np.pi * self.turns[:-1, :]

    @property
    def phases(self) -> Array:
        """Phases b, (M,)."""
        return 2 * np.pi * self.turns[-1, :]

    @property
    def paired(self) -> bool:
        """Whether features are cosines and sines: the sine is a cosine with a phase below 0."""
        return bool((self.phases < 0).any())

    @property
    def features_iid(self) -> bool:
        """Unless paired: of cosine and sine only the sum is unbiased."""
        return not self.paired

    def prepare(self, X: Array) -> Array:
        """Centred rows and a one, (b, d + 1): the product then adds the phase by itself.

        Sparse rows stay sparse, and are not centred: `block` turns their phases instead.
        """
        rows = append_column(X, 1.0)
        if not is_sparse(X):
            rows[:, :-1] -= self.centre
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for these columns."""
        F = product(prepared, self.turns[:, columns], out=out)  # (b, columns)
        if is_sparse(prepared):
            F -= self._turn_of_centre[columns]
        return cosine(F, (2 / self.rank) ** 0.5)

    def gradient(self, X: Array, C: Array) -> Array:
        """The derivative of a cosine is one a quarter turn further on."""
        F = product(self.prepare(X), self.turns) + 0.25  # (n, M)
        if is_sparse(X):
            F -= self._turn_of_centre
        return cosine(F, (2 / self.rank) ** 0.5) * C @ self.W.T

    @cached_property
    def _turn_of_centre(self) -> Array:
        """W'c over 2 pi, (M,)."""
        return self.centre @ self.turns[:-1, :]

    def scratch_per_row(self) -> int:
        """The prepared row."""
        return self.n_cols + 1


def draw_frequencies(
    kernel: StationaryKernel,
    d: int,
    m: int,
    seed: int,
    view: View,
    rule: Frequencies = "iid",
    *,
    paired: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies W (d, m) from the spectral measure of `kernel`, and phases (m,) in [0, 2 pi).

    Each frequency has that distribution under every rule. With `paired`, at most the last phase is
    used.
    """
    one_of("frequencies", rule, get_args(Frequencies))
    if rule == "qmc":
        return _low_discrepancy(kernel, d, m, seed, view, paired)
    draw = _independent if rule == "iid" else _orthogonal
    return draw(kernel, d, m, seed, view), _phases(m, seed, view)


def draw_blocks(
    m: int, purpose: Purpose, seed: int, view: View
) -> Iterator[tuple[np.random.Generator, int]]:
    """The generator of every block that m draws take, and how many of them are still missing."""
    for block, start in enumerate(range(0, m, DRAW_BLOCK)):
        yield generator(seed, purpose, view, block), m - start


def _independent(
    kernel: StationaryKernel, d: int, m: int, seed: int, view: View
) -> NDArray[np.float64]:
    """Independent frequencies, (d, m)."""
    draws = draw_blocks(m, Purpose.FREQUENCIES, seed, view)
    W = [kernel.sample_frequencies(d, DRAW_BLOCK, draw, keep=keep) for draw, keep in draws]
    return np.concatenate(W, axis=1)


def _phases(m: int, seed: int, view: View) -> NDArray[np.float64]:
    """Independent phases, uniform in [0, 2 pi), (m,)."""
    draws = draw_blocks(m, Purpose.PHASES, seed, view)
    return np.concatenate([draw.uniform(0, 2 * np.pi, DRAW_BLOCK)[:keep] for draw, keep in draws])


def _orthogonal(
    kernel: StationaryKernel, d: int, m: int, seed: int, view: View
) -> NDArray[np.float64]:
    """Frequencies whose directions are orthogonal, d at a time, (d, m)."""
    if not kernel.isotropic:
        raise InputError(
            "frequencies='orthogonal' needs an isotropic kernel: the spectral measure of the "
            f"{kernel.name} kernel is not invariant under rotation. Use frequencies='qmc' or 'iid' "
            "with it, or the kernel 'rbf' or 'matern'."
        )
    # An address holds as many orthogonal sets as make a block, so that few columns do not take
    # thousands of generators; at more columns than that, it holds one.
    whole = max(1, DRAW_BLOCK // d) * d
    W = []
    for block, start in enumerate(range(0, m, whole)):
        used = min(whole, m - start)
        # Directions are drawn one after the other: sets of many columns are cut short. Small
        # sets are not, so that they are bit-identical at every rank.
        sets, size = (-(-used // d), d) if d <= DRAW_BLOCK else (1, used)
        draw = generator(seed, Purpose.FREQUENCIES, view, block)
        directions = _haar(draw, sets, size, d)[:, :used]
        lengths = kernel.sample_radii(d, whole, generator(seed, Purpose.RADII, view, block))
        directions *= lengths[:used]
        W.append(directions)
    return np.concatenate(W, axis=1)


def _haar(draw: np.random.Generator, sets: int, size: int, d: int) -> NDArray[np.float64]:
    """Sets of `size` orthonormal directions, each set uniformly rotated, (d, sets * size)."""
    # Vector after vector, so that fewer vectors are the beginning of more.
    normal = draw.standard_normal((sets, size, d)).transpose(0, 2, 1)
    Q, R = np.linalg.qr(normal)  # (sets, d, size), (sets, size, size)
    # QR does not fix the signs; a positive diagonal of R makes Q uniform.
    Q *= np.copysign(1.0, np.diagonal(R, axis1=1, axis2=2))[:, None, :]
    return Q.transpose(1, 0, 2).reshape(d, sets * size)


def _low_discrepancy(
    kernel: StationaryKernel, d: int, m: int, seed: int, view: View, paired: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies (d, m) and phases (m,) at the points of one scrambled Sobol sequence."""
    # Phases must be part of the sequence: independent ones bring back most of the error it avoids.
    # They take its first coordinate, which goes best with each of the others.
    phased = 0 if paired else 1
    uniforms = phased + kernel.uniforms_per_frequency(d)
    if uniforms > qmc.Sobol.MAXDIM:
        raise InputError(
            f"frequencies='qmc' with {d} columns takes {uniforms} coordinates of a Sobol sequence, "
            f"but there are only {qmc.Sobol.MAXDIM}. Use frequencies='iid', or 'orthogonal' with "
            "an isotropic kernel, 'rbf' or 'matern'."
        )
    sequence = qmc.Sobol(uniforms, seed=generator(seed, Purpose.FREQUENCIES, view))
    W, phases = [], []
    for start in range(0, m, DRAW_BLOCK):  # SciPy warns unless the first draw is a power of two
        U = sequence.random(DRAW_BLOCK)[: m - start] + SOBOL_CELL / 2
        W.append(kernel.frequencies_at(U[:, phased:]))
        phases.append(2 * np.pi * U[:, 0])
    frequencies = np.concatenate(W, axis=1)
    return frequencies, _phases(m, seed, view) if paired else np.concatenate(phases)
