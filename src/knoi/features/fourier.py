"""Random Fourier features: sqrt(2/M) cos(w'x + b) for stationary kernels (Rahimi & Recht)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator
from knoi.exceptions import InputTypeError
from knoi.features.feature_map import FeatureMap
from knoi.kernels import Kernel, StationaryKernel, kernel_from_state

# Frequencies are drawn this many at a time, each block from its own address: block k of a map is
# the same whether the map has ten blocks or a thousand, on whatever worker.
DRAW_BLOCK = 1024


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """phi(x) = sqrt(2/M) cos(W'(x - c) + b), with W from the spectral measure of the kernel.

    The centre c changes nothing in exact arithmetic (it only turns the phases); it keeps the
    arguments of the cosine small, so that data far from the origin loses no digits in float32.

    `paired` features use every frequency twice, as cos(w'x) and sin(w'x) = cos(w'x - pi/2), and
    need no random phase: lower variance per frequency, half as many frequencies at equal M.
    """

    kind: ClassVar[str] = "random_fourier"
    kernel: StationaryKernel
    turns: Array  # (d + 1, M): the frequencies W, and under them the phases b
    centre: Array  # (d,)

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        paired: bool = False,
    ) -> Self:
        """Draw the map for `kernel`; the sample only fixes the centre and the number of columns."""
        if not isinstance(kernel, StationaryKernel):
            raise InputTypeError(
                f"random Fourier features need a stationary kernel, not {kernel.name!r}: its "
                "frequencies come from the kernel's Fourier transform. Use 'rbf', 'laplacian', "
                "'cauchy' or 'matern', or a Nystrom approximation, which takes any kernel."
            )
        n_cols = sample.shape[1]
        frequencies = -(-rank // 2) if paired else rank
        W, phases = [], []
        for block, start in enumerate(range(0, frequencies, DRAW_BLOCK)):
            size = min(DRAW_BLOCK, frequencies - start)
            draw = generator(seed, Purpose.FREQUENCIES, view, block)
            # The whole block is drawn even when only its head is used, so that a larger map
            # extends a smaller one.
            W.append(kernel.sample_frequencies(n_cols, DRAW_BLOCK, draw)[:, :size])
            turn = generator(seed, Purpose.PHASES, view, block)
            phases.append(turn.uniform(0, 2 * np.pi, DRAW_BLOCK)[:size])
        frequency, phase = np.concatenate(W, axis=1), np.concatenate(phases)
        if paired:
            pairs = rank // 2
            last = phase[pairs:]  # an odd rank leaves one unpaired feature, which keeps its phase
            phase = np.concatenate([np.tile([0.0, -np.pi / 2], pairs), last])
            frequency = np.repeat(frequency, 2, axis=1)[:, :rank]
        centre = np.mean(sample, axis=0, dtype=np.float64)
        return cls(kernel, np.concatenate([frequency, phase[None, :]]), centre)

    @property
    def W(self) -> Array:
        """Frequencies, (d, M)."""
        return self.turns[:-1, :]

    @property
    def phases(self) -> Array:
        """Phases b, (M,)."""
        return self.turns[-1, :]

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return int(self.turns.shape[0]) - 1

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return int(self.turns.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the frequencies."""
        own: np.dtype[Any] = np.dtype(self.turns.dtype)
        return own

    def prepare(self, X: Array) -> Array:
        """Centred rows and a one, (b, d + 1): the product then adds the phase by itself."""
        xp = array_namespace(X)
        rows = xp.empty((X.shape[0], self.n_cols + 1), dtype=X.dtype, device=device(X))
        rows[:, :-1] = X
        rows[:, :-1] -= self.centre
        rows[:, -1] = 1.0
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for the asked-for columns."""
        xp = array_namespace(prepared)
        F = xp.matmul(prepared, self.turns[:, columns], out=out)  # (b, columns)
        xp.cos(F, out=F)
        F *= (2 / self.rank) ** 0.5
        return F

    def to(self, backend: Backend) -> Self:
        """Frequencies, phases and centre on the backend."""
        place = backend.asarray
        return replace(self, turns=place(self.turns), centre=place(self.centre))

    def scratch_per_row(self) -> int:
        """The prepared row."""
        return self.n_cols + 1

    def state_dict(self) -> dict[str, Any]:
        """The drawn numbers themselves: no later version has to repeat the draw."""
        return {
            "kind": self.kind,
            "kernel": self.kernel.state_dict(),
            "W": self.W,
            "phases": self.phases,
            "centre": self.centre,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        kernel = kernel_from_state(state["kernel"])
        assert isinstance(kernel, StationaryKernel)
        return cls(kernel, np.concatenate([state["W"], state["phases"][None, :]]), state["centre"])
