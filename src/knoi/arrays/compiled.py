"""Loops compiled by numba for arrays in main memory; the only module that imports numba.

Each loop passes over the data once where NumPy passes several times, eight numbers at a time:
cosine and exponential of float32 take 0.2 ns per number, NumPy's take 1.5 ns. `knoi.arrays.fast`
chooses between these loops and NumPy.
"""

import math
from typing import Any

import numpy as np
from numba import float32, int32, int64, njit, types
from numba.extending import overload

from knoi.arrays.fast import PAIRED_RUN

# "contract" lets a product and a sum become one instruction; nothing else is relaxed, so that the
# same input gives the same output.
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"contract"},
    "error_model": "numpy",
    "cache": True,
}

# sin(pi f) = f (S0 + S1 f^2 + ...) on |f| <= 1/2, to 4e-9.
S0, S1, S2, S3, S4 = (
    float32(c) for c in (3.14159258, -5.16770688, 2.55003138, -0.59804519, 0.07722015)
)
# The same in double precision: the first terms of the series, to 2e-18.
D0, D1, D2, D3, D4, D5, D6, D7, D8, D9, D10 = (
    (-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11)
)
# e^r = E0 + E1 r + ... on |r| <= log(2) / 2, to 2e-9.
E0, E1, E2, E3, E4, E5, E6 = (
    float32(c)
    for c in (1, 1.00000004, 0.500000017, 0.166664155, 0.0416660837, 0.00837512858, 0.00139560518)
)
LOG2_E = float32(1.44269504)
# log 2 in two parts: an integer times the first is exact.
LN2_HIGH, LN2_LOW = float32(0.693359375), float32(-2.12194440e-4)
LARGEST_POWER = float32(127)
HALF_LN2 = float32(0.3465736)
# The same in double precision: the first terms of the series, to 4e-18.
X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13 = (
    1 / math.factorial(k) for k in range(14)
)
D_LOG2_E, D_HALF_LN2 = math.log2(math.e), math.log(2) / 2
D_LN2_HIGH, D_LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
D_LARGEST_POWER = 1023.0
ROUNDING = 1.5 * 2.0**52  # numbers of this size are integers
ROUNDING_BITS = int(np.float64(ROUNDING).view(np.int64))


def _cosine_of_turns(t: Any, amplitude: Any) -> Any:
    """amplitude cos(2 pi t), for compiled code: `_cosine_by_precision` says how."""  # noqa: D403
    raise NotImplementedError


@overload(_cosine_of_turns, inline="always")  # type: ignore[untyped-decorator]
def _cosine_by_precision(t: Any, amplitude: Any) -> Any:
    # cos(2 pi t) = 1 - 2 sin(pi t)^2, and removing whole turns is exact.
    def single(t: Any, amplitude: Any) -> Any:
        f = t - np.rint(t)
        q = f * f
        s = f * (S0 + q * (S1 + q * (S2 + q * (S3 + q * S4))))
        return amplitude - (amplitude + amplitude) * (s * s)

    def double(t: Any, amplitude: Any) -> Any:
        f = t - np.rint(t)
        q = f * f
        s = D8 + q * (D9 + q * D10)
        s = D4 + q * (D5 + q * (D6 + q * (D7 + q * s)))
        s = f * (D0 + q * (D1 + q * (D2 + q * (D3 + q * s))))
        return amplitude - (amplitude + amplitude) * (s * s)

    return single if t == types.float32 else double


def _exponential(x: Any) -> Any:
    """e^x, for compiled code: `_exponential_by_precision` says how."""
    raise NotImplementedError


@overload(_exponential, inline="always")  # type: ignore[untyped-decorator]
def _exponential_by_precision(x: Any) -> Any:
    # e^x = 2^k e^r with an integer k. 2^k comes from its bits; the lowest k gives 0.
    def single(x: Any) -> Any:
        k = np.rint(min(max(x * LOG2_E, -LARGEST_POWER), LARGEST_POWER))
        r = (x - k * LN2_HIGH) - k * LN2_LOW
        r = min(max(r, -HALF_LN2), HALF_LN2)
        p = E0 + r * (E1 + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E6)))))
        return p * np.int32((int32(k) + int32(127)) << int32(23)).view(np.float32)

    def double(x: Any) -> Any:
        # Added to `ROUNDING`, k is in the lowest bits. That avoids a conversion to an integer,
        # which few processors can do for eight numbers at once.
        shifted = min(max(x * D_LOG2_E, -D_LARGEST_POWER), D_LARGEST_POWER) + ROUNDING
        k = shifted - ROUNDING
        r = (x - k * D_LN2_HIGH) - k * D_LN2_LOW
        r = min(max(r, -D_HALF_LN2), D_HALF_LN2)
        p = X8 + r * (X9 + r * (X10 + r * (X11 + r * (X12 + r * X13))))
        p = X4 + r * (X5 + r * (X6 + r * (X7 + r * p)))
        p = X0 + r * (X1 + r * (X2 + r * (X3 + r * p)))
        bits = np.float64(shifted).view(np.int64) - ROUNDING_BITS + int64(1023)
        return p * np.int64(bits << int64(52)).view(np.float64)

    return single if x == types.float32 else double


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def cosine(F: Any, amplitude: Any) -> None:
    """Replace F (n, m) by amplitude cos(2 pi F)."""
    for i in range(F.shape[0]):
        row = F[i]
        for j in range(row.size):
            row[j] = _cosine_of_turns(row[j], amplitude)


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def exponential(F: Any) -> None:
    """Replace F (n, m) by exp(F); subnormal results become 0, and nothing overflows."""
    for i in range(F.shape[0]):
        row = F[i]
        for j in range(row.size):
            row[j] = _exponential(row[j])


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_and_subtract_8(b: Any, o: Any, s: Any) -> None:
    """Three stages of butterflies on eight numbers at offset `o` and stride `s`."""
    a0, a1, a2, a3 = b[o], b[o + s], b[o + 2 * s], b[o + 3 * s]
    a4, a5, a6, a7 = b[o + 4 * s], b[o + 5 * s], b[o + 6 * s], b[o + 7 * s]
    c0, c1, c2, c3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
    c4, c5, c6, c7 = a4 + a5, a4 - a5, a6 + a7, a6 - a7
    d0, d1, d2, d3 = c0 + c2, c1 + c3, c0 - c2, c1 - c3
    d4, d5, d6, d7 = c4 + c6, c5 + c7, c4 - c6, c5 - c7
    b[o], b[o + s], b[o + 2 * s], b[o + 3 * s] = d0 + d4, d1 + d5, d2 + d6, d3 + d7
    b[o + 4 * s], b[o + 5 * s], b[o + 6 * s], b[o + 7 * s] = d0 - d4, d1 - d5, d2 - d6, d3 - d7


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_and_subtract_4(b: Any, o: Any, s: Any) -> None:
    """Two stages of butterflies on four numbers at offset `o` and stride `s`."""
    a0, a1, a2, a3 = b[o], b[o + s], b[o + 2 * s], b[o + 3 * s]
    c0, c1, c2, c3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
    b[o], b[o + s], b[o + 2 * s], b[o + 3 * s] = c0 + c2, c1 + c3, c0 - c2, c1 - c3


# Constant strides let the compiler keep eight numbers in a register. So pieces of 256 and 512 have
# separate loops, and larger sizes are made of pieces of 512.
@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _within_256(b: Any) -> None:
    for j in range(64):
        _add_and_subtract_4(b, j, 64)
    for g in range(0, 256, 64):
        for j in range(8):
            _add_and_subtract_8(b, g + j, 8)


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _within_512(b: Any) -> None:
    for j in range(64):
        _add_and_subtract_8(b, j, 64)
    for g in range(0, 512, 64):
        for j in range(8):
            _add_and_subtract_8(b, g + j, 8)


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _across(low: Any, high: Any) -> None:
    for j in range(low.size):
        a, c = low[j], high[j]
        low[j], high[j] = a + c, a - c


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _neighbours(a: Any, sums: Any, differences: Any) -> None:
    for i in range(sums.size):
        sums[i], differences[i] = a[2 * i] + a[2 * i + 1], a[2 * i] - a[2 * i + 1]


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def hadamard(b: Any, t: Any) -> None:
    """H b into t, in the order of `knoi.arrays.fast.hadamard`; overwrites b (2^k >= 256)."""
    if b.size == 256:
        _within_256(b)
    elif b.size == 512:
        _within_512(b)
    else:
        for k in range(b.size // 512):
            _within_512(b[512 * k : 512 * (k + 1)])
        s = 512
        while s < b.size:
            for k in range(b.size // (2 * s)):
                pair = b[2 * s * k : 2 * s * (k + 1)]
                _across(pair[:s], pair[s:])
            s *= 2
    # Neighbours cannot be added eight at a time in place: each of the last three stages writes
    # sums to the lower and differences to the upper half.
    half = b.size // 2
    _neighbours(b, t[:half], t[half:])
    _neighbours(t, b[:half], b[half:])
    _neighbours(b, t[:half], t[half:])


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def hadamard_rows(X: Any) -> None:
    """Replace every row of X (n, 2^k >= 256) by its transform."""
    b, t = np.empty(X.shape[1], X.dtype), np.empty(X.shape[1], X.dtype)
    for i in range(X.shape[0]):
        row = X[i]
        b[:] = row
        hadamard(b, t)
        row[:] = t


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _multiply(a: Any, by: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = a[j] * by[j]


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _gather(a: Any, order: Any, by: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = a[order[j]] * by[j]


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _finish(t: Any, scale: Any, phase: Any, amplitude: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = _cosine_of_turns(t[j] * scale[j] + phase[j], amplitude)


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def structured_features(
    Y: Any,
    first: Any,
    order: Any,
    second: Any,
    scale: Any,
    phase: Any,
    amplitude: Any,
    paired: Any,
    out: Any,
) -> None:
    """Features of every row y of Y (n, p), block by block of p frequencies, into out (n, features).

    amplitude cos(2 pi (scale H D_second P H D_first y + phase)). P is the permutation `order`, or
    the identity if it is empty. If `paired`, every run of `PAIRED_RUN` features is followed by the
    same features a quarter of a turn earlier.
    """
    p = Y.shape[1]
    b, t, later = np.empty(p, Y.dtype), np.empty(p, Y.dtype), np.empty(p, Y.dtype)
    for k in range(first.size // p):
        # Slices from 0, because an index that might be negative is not vectorised.
        block = slice(k * p, (k + 1) * p)
        d1, d2, places = first[block], second[block], order[block]
        lengths, turns = scale[block], phase[block]
        for j in range(p):
            later[j] = turns[j] - 0.25
        for i in range(Y.shape[0]):
            _multiply(Y[i], d1, b)
            hadamard(b, t)
            if order.size:
                _gather(t, places, d2, b)
            else:
                _multiply(t, d2, b)
            hadamard(b, t)
            if not paired:
                _finish(t, lengths, turns, amplitude, out[i, block])
                continue
            row = out[i, 2 * k * p : 2 * (k + 1) * p]
            for q in range(p // PAIRED_RUN):
                own = slice(q * PAIRED_RUN, (q + 1) * PAIRED_RUN)
                target = row[2 * q * PAIRED_RUN : 2 * (q + 1) * PAIRED_RUN]
                _finish(t[own], lengths[own], turns[own], amplitude, target[:PAIRED_RUN])
                _finish(t[own], lengths[own], later[own], amplitude, target[PAIRED_RUN:])
