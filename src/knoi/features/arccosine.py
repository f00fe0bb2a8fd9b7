"""Arc-cosine features: a random layer of steps, ramps or squared ramps (Cho & Saul)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from array_api_compat import array_namespace

from knoi.arrays.backend import Array
from knoi.arrays.random import View
from knoi.arrays.sparse import product
from knoi.features.base import ArraySpec, FeatureMap, require_kernel
from knoi.features.fourier import Frequencies, draw_frequencies
from knoi.kernels import RBF, ArcCosine, Kernel


@dataclass(frozen=True)
class ArcCosineFeatures(FeatureMap):
    """sqrt(2/M) step(w'x) (w'x)^order with w standard normal and step(0) = 1/2."""

    kind: ClassVar[str] = "arccosine"
    features_iid = True  # weights are independent, or at least have one distribution
    kernel: ArcCosine
    W: Annotated[Array, ArraySpec(("d", "M"))]

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
    ) -> Self:
        """Draw the layer; the sample gives the number of columns only."""
        kernel = require_kernel(kernel, ArcCosine, "arc-cosine features")
        # The Gaussian kernel of width 1 has standard normal frequencies.
        W, _ = draw_frequencies(
            RBF(1.0), int(sample.shape[1]), rank, seed, view, frequencies, paired=True
        )
        return cls(kernel, W)

    def prepare(self, X: Array) -> Array:
        """The rows themselves; raises if k(x, x) overflows for one of them."""
        self.kernel.diag(X)
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for these columns."""
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

    def scratch_per_row(self) -> int:
        """What the check of a row's length takes."""
        return self.n_cols
