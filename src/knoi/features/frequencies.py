"""How the frequencies of random Fourier features are drawn: iid, orthogonal or quasi-Monte Carlo.

Draws come block by block, each block from its own address: the frequencies of a map are those a
larger map begins with, on whatever worker they are drawn.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from knoi.arrays.random import Purpose, View, generator
from knoi.exceptions import InputError
from knoi.kernels import StationaryKernel

Frequencies = Literal["iid", "orthogonal", "qmc"]

# Blocks are drawn whole even when only their head is used: a larger map extends a smaller one.
DRAW_BLOCK = 1024

# The points of SciPy's Sobol sequence are multiples of this; half of it moves them off 0, where
# quantiles are infinite, and makes them symmetric.
SOBOL_CELL = 2.0**-30


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

    Every frequency has the distribution that `kernel.sample_frequencies` draws from, so features
    are unbiased under every rule; what differs is how frequencies depend on each other.

    Parameters
    ----------
    rule : {"iid", "orthogonal", "qmc"}
        "iid": independent (Rahimi & Recht, 2007). "orthogonal": d directions at a time at right
        angles, each with a length of its own (Yu et al., 2016); for isotropic kernels. "qmc":
        a scrambled Sobol sequence through inverse CDFs (Yang et al., 2014).
    paired : bool
        Whether phases are not going to be used, but perhaps the last.
    """
    if rule == "iid":
        return _independent(kernel, d, m, seed, view), _phases(m, seed, view)
    if rule == "orthogonal":
        return _orthogonal(kernel, d, m, seed, view), _phases(m, seed, view)
    if rule == "qmc":
        return _low_discrepancy(kernel, d, m, seed, view, paired)
    raise InputError(
        f"frequencies={rule!r} is not a way to draw frequencies: wanted one of "
        f"{', '.join(map(repr, get_args(Frequencies)))}."
    )


def _independent(
    kernel: StationaryKernel, d: int, m: int, seed: int, view: View
) -> NDArray[np.float64]:
    """Independent frequencies, (d, m)."""
    W = []
    for block, start in enumerate(range(0, m, DRAW_BLOCK)):
        draw = generator(seed, Purpose.FREQUENCIES, view, block)
        W.append(kernel.sample_frequencies(d, DRAW_BLOCK, draw, keep=m - start))
    return np.concatenate(W, axis=1)


def _phases(m: int, seed: int, view: View) -> NDArray[np.float64]:
    """Independent phases, uniform in [0, 2 pi), (m,)."""
    phases = []
    for block, start in enumerate(range(0, m, DRAW_BLOCK)):
        turn = generator(seed, Purpose.PHASES, view, block)
        phases.append(turn.uniform(0, 2 * np.pi, DRAW_BLOCK)[: m - start])
    return np.concatenate(phases)


def _orthogonal(
    kernel: StationaryKernel, d: int, m: int, seed: int, view: View
) -> NDArray[np.float64]:
    """Frequencies whose directions are orthogonal, d at a time, (d, m)."""
    if not kernel.isotropic:
        raise InputError(
            f"frequencies='orthogonal' turns frequencies in all directions alike, but those of the "
            f"{kernel.name} kernel keep to the axes: its spectral measure is not invariant under "
            "rotation, and the features would stand for another kernel. Use frequencies='qmc' or "
            "'iid' with it, or an isotropic kernel, 'rbf' or 'matern'."
        )
    # An address holds as many orthogonal sets as make a block, so that few columns do not take
    # thousands of generators; at more columns than that, it holds one.
    whole = max(1, DRAW_BLOCK // d) * d
    W = []
    for block, start in enumerate(range(0, m, whole)):
        used = min(whole, m - start)
        # Directions are drawn one after the other, so that none is made for later ones' sake. Sets
        # of many columns are cut short; small ones are not, which keeps them the same to the bit.
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
    # QR leaves signs to chance of the algorithm; a positive diagonal of R makes Q uniform.
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
    for start in range(0, m, DRAW_BLOCK):  # SciPy warns if the first draw is no power of two
        U = sequence.random(DRAW_BLOCK)[: m - start] + SOBOL_CELL / 2
        W.append(kernel.frequencies_at(U[:, phased:]))
        phases.append(2 * np.pi * U[:, 0])
    frequencies = np.concatenate(W, axis=1)
    return frequencies, _phases(m, seed, view) if paired else np.concatenate(phases)
