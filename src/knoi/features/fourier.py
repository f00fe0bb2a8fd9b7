"""Random Fourier features: sqrt(2/M) cos(w'x + b) for stationary kernels (Rahimi & Recht)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device

from knoi.arrays.backend import Array, Backend
from knoi.arrays.fast import cosine
from knoi.arrays.random import View
from knoi.arrays.sparse import column_means, is_sparse, product
from knoi.exceptions import InputTypeError
from knoi.features.base import FeatureMap
from knoi.features.frequencies import Frequencies, draw_frequencies
from knoi.kernels import Kernel, StationaryKernel, kernel_from_state


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """phi(x) = sqrt(2/M) cos(W'(x - c) + b), with W from the spectral measure of the kernel.

    The centre c changes nothing in exact arithmetic (it only turns the phases); it keeps the
    arguments of the cosine small, so that data far from the origin loses no digits in float32.

    `paired` features use every frequency twice, as cos(w'x) and sin(w'x) = cos(w'x - pi/2), and
    need no random phase: lower variance per frequency, half as many frequencies at equal M.

    `frequencies` says how they depend on each other: see `knoi.features.frequencies`.
    """

    kind: ClassVar[str] = "random_fourier"
    kernel: StationaryKernel
    turns: Array  # (d + 1, M): the frequencies W, and under them the phases b, over 2 pi
    centre: Array  # (d,)

    @classmethod
    def fit(
        cls,
        sample: Array,  # (n, d) rows of the view, NumPy or CSR
        kernel: Kernel,
        rank: int,
        seed: int,
        view: View,
        *,
        frequencies: Frequencies = "iid",
        paired: bool = False,
    ) -> Self:
        """Draw the map for `kernel`; the sample only fixes the centre and the number of columns."""
        if not isinstance(kernel, StationaryKernel):
            raise InputTypeError(
                f"random Fourier features need a stationary kernel, not {kernel.name!r}: its "
                "frequencies come from the kernel's Fourier transform. Use 'rbf', 'laplacian', "
                "'cauchy' or 'matern', or a Nystrom approximation, which takes any kernel."
            )
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
        """Centred rows and a one, (b, d + 1): the product then adds the phase by itself.

        Sparse rows stay sparse, and are not centred: `block` turns their phases instead.
        """
        if is_sparse(X):
            one = scipy.sparse.csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))
            return scipy.sparse.hstack([X, one], format="csr")
        xp = array_namespace(X)
        rows = xp.empty((X.shape[0], self.n_cols + 1), dtype=X.dtype, device=device(X))
        rows[:, :-1] = X
        rows[:, :-1] -= self.centre
        rows[:, -1] = 1.0
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for the asked-for columns."""
        F = product(prepared, self.turns[:, columns], out=out)  # (b, columns)
        if is_sparse(prepared):
            F -= self._turn_of_centre[columns]
        return cosine(F, (2 / self.rank) ** 0.5)

    @cached_property
    def _turn_of_centre(self) -> Array:
        """W'c over 2 pi, (M,)."""
        return self.centre @ self.turns[:-1, :]

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
            "turns": self.turns,
            "centre": self.centre,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        kernel = kernel_from_state(state["kernel"])
        assert isinstance(kernel, StationaryKernel)
        return cls(kernel, state["turns"], state["centre"])
