"""Arc-cosine features: a random layer of steps, ramps or squared ramps (Cho & Saul)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import View
from knoi.arrays.sparse import product
from knoi.exceptions import InputTypeError
from knoi.features.base import FeatureMap
from knoi.features.frequencies import Frequencies, draw_frequencies
from knoi.kernels import RBF, ArcCosine, Kernel, kernel_from_state


@dataclass(frozen=True)
class ArcCosineFeatures(FeatureMap):
    """sqrt(2/M) step(w'x) (w'x)^order with w standard normal and step(0) = 1/2."""

    kind: ClassVar[str] = "arccosine"
    kernel: ArcCosine
    W: Array  # (d, M)

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
    ) -> Self:
        """Draw the layer; the sample only says how many columns there are."""
        if not isinstance(kernel, ArcCosine):
            raise InputTypeError(
                f"arc-cosine features approximate the arc-cosine kernel, not {kernel.name!r}. Use "
                "ArcCosine(...), or a Nystrom approximation, which takes any kernel."
            )
        # The Gaussian kernel of width 1 has standard normal frequencies.
        W, _ = draw_frequencies(
            RBF(1.0), int(sample.shape[1]), rank, seed, view, frequencies, paired=True
        )
        return cls(kernel, W)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return int(self.W.shape[0])

    @property
    def rank(self) -> int:
        """Columns of the output, M."""
        return int(self.W.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the weights."""
        own: np.dtype[Any] = np.dtype(self.W.dtype)
        return own

    def prepare(self, X: Array) -> Array:
        """The rows themselves; refuses those whose k(x, x) overflows."""
        self.kernel.diag(X)
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for the asked-for columns."""
        F = product(prepared, self.W[:, columns], out=out)  # (b, columns)
        xp = array_namespace(F)
        scale = (2 / self.rank) ** 0.5
        if self.kernel.order == 0:
            F[...] = xp.sign(F)
            F += 1.0
            F *= scale / 2
            return F
        xp.clip(F, min=0.0, out=F)
        if self.kernel.order == 2:
            F *= F
        F *= scale
        return F

    def to(self, backend: Backend) -> Self:
        """The layer on the backend."""
        return replace(self, W=backend.asarray(self.W))

    def scratch_per_row(self) -> int:
        """What the check of a row's length takes."""
        return self.n_cols

    def state_dict(self) -> dict[str, Any]:
        """The drawn numbers themselves: no later version has to repeat the draw."""
        return {"kind": self.kind, "kernel": self.kernel.state_dict(), "W": self.W}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        kernel = kernel_from_state(state["kernel"])
        assert isinstance(kernel, ArcCosine)
        return cls(kernel, state["W"])
