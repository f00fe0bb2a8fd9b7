"""Hadamard transforms of rows in n log n additions (Walsh's matrix, never formed)."""

from array_api_compat import array_namespace

from knoi.arrays.backend import Array

# The fewest columns to pad to. Products of signs and small Hadamard matrices have too few distinct
# rows to pass for random directions: at 64 the kernel of 2 columns is off by 0.002, at 256 by less
# than can be seen.
SMALLEST = 256
# Of features in pairs, so many of the first kind stand before as many of the second.
PAIRED_RUN = 128


def padded(d: int) -> int:
    """The size to pad d columns to: a power of two, at least `SMALLEST`."""
    return max(SMALLEST, 1 << (d - 1).bit_length())


def transform(X: Array) -> Array:
    """X H for the rows of X (n, 2^k), k >= 3, H the Hadamard matrix of +1 and -1; X is used up.

    The result is in the order that compiled loops write it in: entry (i, j) of the usual order,
    seen as (size / 8, 8), stands at (j, i). Renaming bits of the index on both sides leaves H as it
    is, so that products of several transforms and signs only get their rows in another order.
    """
    xp = array_namespace(X)
    n, size = X.shape
    span = size // 2
    while span >= 1:
        pairs = xp.reshape(X, (n, size // (2 * span), 2, span))
        sums = pairs[:, :, 0, :] + pairs[:, :, 1, :]
        pairs[:, :, 1, :] = pairs[:, :, 0, :] - pairs[:, :, 1, :]
        pairs[:, :, 0, :] = sums
        X = xp.reshape(pairs, (n, size))
        span //= 2
    turned = xp.permute_dims(xp.reshape(X, (n, size // 8, 8)), (0, 2, 1))
    return xp.reshape(turned, (n, size))
