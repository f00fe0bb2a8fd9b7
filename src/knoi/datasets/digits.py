"""Handwritten digits: endless deformed copies of images, their left and right halves as two views.

The index rule of the deformed copies is InfiMNIST's (Loosli, Canu and Bottou, 2007), which made
MNIST8M. Its files of deformation fields are no longer available; the fields here are smooth noise
drawn from a seed.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, zoom

from knoi import checks
from knoi.arrays.random import Purpose, generator, seed_from
from knoi.exceptions import InputError, InputTypeError

UInt8 = NDArray[np.uint8]
Float32 = NDArray[np.float32]

_N_FIELDS = 1522
# (down, right) in pixels, in the order of k1 mod 9
_SHIFTS = ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0))
# Widths for 28 x 28 images; scaled with the smaller side of the image.
_REFERENCE_SIDE = 28
_FIELD_SIGMA, _FIELD_STD = 4.0, 0.4
_TANGENT_SIGMA = 1.0
# Images deformed at once: the six float32 arrays of a block stay in cache.
_BLOCK = 256

# Base digits of the test part, of 1797. Neither part has a factor in common with the period of the
# deformations (39^2), so that each digit gets all of them.
_N_TEST_DIGITS = 397


class DeformedImages:
    """Endless deformed copies of base images, a uint8 array (n, height, width), by index.

    Image i >= offset is a copy of base image a = (i - offset) mod n, moved along two smooth random
    fields and shifted by at most one pixel. The first round, i < offset + n, holds the base images
    unchanged.

    With k1 = (131071 i mod 2^32) mod 1521, k2 = (k1 + 1 + 2 i) mod 1522 and s = 1 if k1 + k2 is
    even, else -1,

        image_i = shift(clip(X_a + s (F_k1 * Tx_a - F_k2 * Ty_a), 0, 255)),

    truncated to integers; Tx, Ty are the derivatives of the image along its columns and rows
    (Gaussian, 1 pixel wide at 28 x 28), F smooth fields (4 pixels wide, standard deviation 0.4
    pixels), and the shift is one of eight directions or none, by k1 mod 9, filled with zeros.
    """

    def __init__(self, base: Any, *, offset: int = 0, seed: int = 0) -> None:
        base = np.asarray(base)
        if base.dtype != np.uint8 or base.ndim != 3 or 0 in base.shape:
            raise InputError(
                f"base has dtype {base.dtype} and shape {base.shape}. Pass uint8 images, scaled to "
                "0 to 255, of shape (images, height, width), none of them 0."
            )
        self._base: UInt8 = np.ascontiguousarray(base)
        self._offset = checks.whole("offset", offset)
        self._fields = _smooth_fields(self.image_shape, seed_from(seed))  # (1522, h, w)
        self._tangents = _tangents(self._base)  # (2, n, h, w)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width."""
        _, height, width = self._base.shape
        return height, width

    def base_of(self, indices: Any) -> NDArray[np.int64]:
        """The base image of each index."""
        return (self._checked_indices(indices) - self._offset) % len(self._base)

    def take(self, indices: Any) -> UInt8:
        """The images at `indices` (k,), shape (k, height, width); any order, repeats allowed."""
        i = self._checked_indices(indices)
        images = np.empty((len(i), *self.image_shape), np.uint8)
        for start in range(0, len(i), _BLOCK):
            rows = slice(start, start + _BLOCK)
            self._fill(images[rows], i[rows])
        return images

    def _fill(self, images: UInt8, i: NDArray[np.int64]) -> None:
        """Write image i[j] to images[j]."""
        a = i - self._offset
        unchanged = a < len(self._base)
        images[unchanged] = self._base[a[unchanged]]
        (deformed,) = np.nonzero(~unchanged)
        i, a = i[deformed], a[deformed] % len(self._base)
        # i is reduced first so that no product overflows; the remainders are the same.
        k1 = ((i % 2**32) * 131071 % 2**32) % 1521
        k2 = (k1 + 1 + 2 * (i % 1522)) % 1522
        sign = np.where((k1 + k2) % 2 == 0, 1, -1).astype(np.float32)
        Tx, Ty = self._tangents
        move = self._fields[k1]
        move *= Tx[a]
        across = self._fields[k2]
        across *= Ty[a]
        move -= across
        move *= sign[:, None, None]
        move += self._base[a]

        height, width = self.image_shape
        padded = np.zeros((len(i), height + 2, width + 2), np.uint8)
        padded[:, 1:-1, 1:-1] = np.clip(move, 0, 255, out=move)  # truncated
        for d, (down, right) in enumerate(_SHIFTS):
            (chosen,) = np.nonzero(k1 % 9 == d)
            rows, columns = slice(1 - down, 1 - down + height), slice(1 - right, 1 - right + width)
            images[deformed[chosen]] = padded[chosen, rows, columns]

    def _checked_indices(self, indices: Any) -> NDArray[np.int64]:
        i = np.asarray(indices)
        if i.ndim != 1 or (i.dtype.kind not in "iu" and i.size):
            raise InputTypeError(
                f"indices have dtype {i.dtype} and shape {i.shape}. Pass a 1-D array of integers."
            )
        i = i.astype(np.int64)
        if i.size and i.min() < self._offset:
            raise InputError(
                f"There is no image {i.min()}: the first image has index {self._offset}."
            )
        return i


def _scale(image_shape: tuple[int, ...]) -> float:
    return min(image_shape) / _REFERENCE_SIDE


@lru_cache(maxsize=4)
def _smooth_fields(image_shape: tuple[int, int], seed: int) -> Float32:
    sigma = _FIELD_SIGMA * _scale(image_shape)
    margin = int(np.ceil(2 * sigma))  # removed again: smoothing mirrors the noise at the border
    height, width = image_shape
    noise = generator(seed).uniform(-1, 1, (_N_FIELDS, height + 2 * margin, width + 2 * margin))
    smooth = gaussian_filter(noise, (0, sigma, sigma))
    inside = smooth[:, margin : margin + height, margin : margin + width]
    fields: Float32 = inside.astype(np.float32, order="C")
    fields *= _FIELD_STD / fields.std()
    fields.flags.writeable = False  # the cache returns the same array to every caller
    return fields


def _tangents(base: UInt8) -> Float32:
    """Derivatives (2, n, h, w) of each image: along its columns, along its rows."""
    sigma = _TANGENT_SIGMA * _scale(base.shape[1:])
    tangents = np.empty((2, *base.shape), np.float32)
    for start in range(0, len(base), 4096):  # the filter copies its input in float32
        images = base[start : start + 4096].astype(np.float32)
        for tangent, order in zip(tangents, ((0, 0, 1), (0, 1, 0)), strict=True):
            gaussian_filter(images, (0, sigma, sigma), order, output=tangent[start : start + 4096])
    return tangents


def split_halves(images: UInt8, middle: int) -> tuple[Float32, Float32]:
    """Columns up to `middle` and the others, flattened per image; pixels / 255."""
    left, right = (
        np.divide(half, 255, dtype=np.float32).reshape(len(images), half[0].size)
        for half in (images[:, :, :middle], images[:, :, middle:])
    )
    return left, right


@dataclass(frozen=True)
class EndlessDigits:
    """Left and right halves of deformed handwritten digits, for training and for testing.

    Attributes
    ----------
    X_train, Y_train : float32 arrays of shape (n_train, size * (size // 2)), (n_train, ...)
        Left and right halves, pixels in [0, 1]; `X.reshape(-1, *left_shape)` are pictures again.
    X_test, Y_test : float32 arrays
        From other base digits than the training part.
    labels_train, labels_test : int arrays
        The digit of each image.
    image_shape : (int, int)
        Height and width of a whole image.
    """

    X_train: Float32
    Y_train: Float32
    X_test: Float32
    Y_test: Float32
    labels_train: NDArray[np.int64]
    labels_test: NDArray[np.int64]
    image_shape: tuple[int, int]

    @property
    def left_shape(self) -> tuple[int, int]:
        """Height and width of a left half."""
        return self.image_shape[0], self.image_shape[1] // 2

    @property
    def right_shape(self) -> tuple[int, int]:
        """Height and width of a right half."""
        return self.image_shape[0], self.image_shape[1] - self.image_shape[1] // 2


def endless_digits(
    n_train: int = 20_000, n_test: int = 5_000, *, size: int = 16, random_state: Any = 0
) -> EndlessDigits:
    """Deform scikit-learn's bundled handwritten digits endlessly and split them into halves.

    Parameters
    ----------
    n_train, n_test : int
        Images of each part. The parts have no base digit in common.
    size : int
        Height and width to which the 8 x 8 digits are enlarged, at least 8.
    random_state : None, int, RandomState or Generator

    Returns
    -------
    EndlessDigits
    """
    size = checks.integer("size", size, minimum=8, hint=" (the digits are 8 x 8 and only enlarged)")
    n_train, n_test = checks.count("n_train", n_train), checks.count("n_test", n_test)
    from sklearn.datasets import load_digits  # takes half a second to import

    seed = seed_from(random_state)
    digits = load_digits()
    base = _enlarged(digits.images, size)
    order = generator(seed, Purpose.DIGITS_SPLIT).permutation(len(base))
    parts = []
    for chosen, n in ((order[_N_TEST_DIGITS:], n_train), (order[:_N_TEST_DIGITS], n_test)):
        images = DeformedImages(base[chosen], seed=seed)
        indices = np.arange(n)
        labels = digits.target[chosen][images.base_of(indices)].astype(np.int64)
        parts.append((*split_halves(images.take(indices), size // 2), labels))
    (X_train, Y_train, labels_train), (X_test, Y_test, labels_test) = parts
    return EndlessDigits(X_train, Y_train, X_test, Y_test, labels_train, labels_test, (size, size))


def _enlarged(images: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """8 x 8 images of 0 to 16 as size x size images of 0 to 255."""
    factor = size / images.shape[1]
    # grid_mode treats pixels as areas, so that the enlarged digit is not shifted.
    large: NDArray[np.float64] = zoom(
        images, (1, factor, factor), order=3, mode="grid-constant", grid_mode=True
    )
    return np.clip(np.rint(large * (255 / 16)), 0, 255).astype(np.uint8)
