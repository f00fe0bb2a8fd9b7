"""Spherical random Fourier features: polynomial kernels on the unit sphere (Pennington et al.)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.optimize
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View
from knoi.arrays.sparse import append_column, product
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, require_kernel
from knoi.features.fourier import DRAW_BLOCK, Frequencies, draw_blocks, draw_frequencies
from knoi.kernels import RBF, Kernel, Polynomial, SphericalPolynomial
from knoi.kernels.dot_product import to_sphere

# Largest error of the fitted kernel that is accepted, relative to k(x, x).
TOLERANCE = 0.05
# Chords, radii and angles that the spectrum is fitted on.
CHORDS, RADII, ANGLES = 96, 128, 256
# Radii go up to this many times sqrt(D degree / (1 + coef0)), the scale of the Gaussian that the
# kernel tends to with growing degree; the fits use them up to 1.9 times.
LARGEST_RADIUS = 2.5


@dataclass(frozen=True)
class SphericalFourier(FeatureMap):
    """sqrt(2 c / M) cos(w'u + b), u the row at length 1, w from a spectrum fitted to the kernel.

    On the sphere `SphericalPolynomial` is a function of the chord s = |u - v| in [0, 2]. No
    positive spectrum has just this function as its transform, so the nearest one is taken:
    nonnegative weights on radii, by least squares. Inner products tend to the fitted kernel:
    their error falls to at most `bias` times k(x, x), not to 0, as M grows. The bias is small for
    degree >= 3 and coef0 >= 1 (the paper's a >= 2), and falls with the degree.

    `Polynomial` is taken for the kernel of rows scaled to the length `width`, whatever that is.
    """

    kind: ClassVar[str] = "spherical_fourier"
    features_iid = True  # every feature has a random phase
    kernel: SphericalPolynomial
    # Frequencies W, then that of the axis of zero rows, and the phases b.
    turns: Annotated[Array, ArraySpec(("d + 2", "M"))]
    total: float  # c, the weight of the spectrum: what the fitted kernel has for k(x, x)
    bias: float  # the largest error of the fitted kernel, relative to k(x, x)

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
        tolerance: float = TOLERANCE,
    ) -> Self:
        """Fit the spectrum and draw from it; the sample gives the number of columns only."""
        kinds = (Polynomial, SphericalPolynomial)
        given: Any = require_kernel(kernel, kinds, "spherical Fourier features")
        kernel = SphericalPolynomial(given.degree, given.coef0)
        D = int(sample.shape[1]) + 1
        radii, weights, bias = fit_spectrum(kernel, D)
        if not bias <= tolerance:
            raise InputError(
                f"(cos + {kernel.coef0:.6g})^{kernel.degree} in {D - 1} columns has no positive "
                f"spectrum near it: the best has an error of {bias:.2g} k(x, x), more than the "
                f"tolerance of {tolerance:.2g}. Use a larger coef0 or degree, another map such as "
                "TensorSketch, or accept the error by tolerance=..."
            )
        # The frequencies of the Gaussian kernel have uniform directions, which is all that is kept.
        W, phases = draw_frequencies(RBF(1.0), D, rank, seed, view, frequencies)
        draws = draw_blocks(rank, Purpose.RADII, seed, view)
        p = weights / weights.sum()
        lengths = np.concatenate([draw.choice(radii, DRAW_BLOCK, p=p) for draw, _ in draws])
        W *= lengths[:rank] / np.sqrt(np.sum(W * W, axis=0))
        total = float(weights.sum()) * (1 + kernel.coef0) ** kernel.degree
        return cls(kernel, np.concatenate([W, phases[None, :]]), total, bias)

    @property
    def W(self) -> Array:
        """Frequencies, (d + 1, M), the last row for the axis of zero rows."""
        return self.turns[:-1, :]

    def prepare(self, X: Array) -> Array:
        """Rows at length 1, whether a row is zero, and a one for the phase: (b, d + 2)."""
        return append_column(to_sphere(X), 1.0)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for these columns."""
        F = product(prepared, self.turns[:, columns], out=out)  # (b, columns)
        xp = array_namespace(F)
        xp.cos(F, out=F)
        F *= (2 * self.total / self.rank) ** 0.5
        return F

    def scratch_per_row(self) -> int:
        """The prepared row, and it once more while it is made."""
        return 2 * (self.n_cols + 2)


@lru_cache(maxsize=16)  # both views, and every draw, ask for the same
def fit_spectrum(
    kernel: SphericalPolynomial, D: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Radii (R,), nonnegative weights (R,), and the largest error, for k / k(x, x) in D dimensions.

    Least squares over a grid of chords; few of the radii get a weight.
    """
    s = np.linspace(0.0, 2.0, CHORDS)
    wanted = (1 - s * s / (2 * (1 + kernel.coef0))) ** kernel.degree
    largest = LARGEST_RADIUS * np.sqrt(D * kernel.degree / (1 + kernel.coef0))
    radii = np.linspace(0.0, largest, RADII)
    waves = mean_wave(s[:, None] * radii, D)  # (CHORDS, RADII)
    weights, _ = scipy.optimize.nnls(waves, wanted, maxiter=100 * RADII)
    bias = float(np.max(np.abs(waves @ weights - wanted)))
    kept = weights > 0
    radii, weights = radii[kept], weights[kept]
    for array in (radii, weights):
        array.setflags(write=False)
    return radii, weights, bias


def mean_wave(z: NDArray[np.float64], D: int) -> NDArray[np.float64]:
    """E cos(z t), t a coordinate of a uniform unit vector in R^D: the transform of a sphere.

    It is Gamma(D/2) (2/z)^(D/2 - 1) J_(D/2 - 1)(z); but that product over- and underflows from
    some hundred dimensions on, where an integral over the angle is as exact in any.
    """
    # The density cos(a)^(D - 2) of the angle has vanished beyond 9 standard deviations.
    nodes, weights = np.polynomial.legendre.leggauss(ANGLES)
    angles = min(np.pi / 2, 9 / np.sqrt(D)) * (nodes + 1) / 2
    density = weights * np.exp((D - 2) * np.log(np.cos(angles)))
    density /= density.sum()
    waves = np.empty_like(z)
    for i, row in enumerate(z):
        waves[i] = np.cos(row[:, None] * np.sin(angles)) @ density
    return waves
