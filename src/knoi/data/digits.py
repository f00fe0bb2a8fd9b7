"""Image halves as two views: of any deformed images, and of scikit-learn's digits without end."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import zoom

from knoi.arrays.random import Purpose, generator, seed_from
from knoi.data.generated import generated_views
from knoi.data.images import DeformedImages
from knoi.exceptions import InputError

Float32 = NDArray[np.float32]

# Base digits set aside for the test part, of 1797. It and what is left have no factor in common
# with the period of the deformations (39^2), so that a digit meets all of them.
_N_TEST_DIGITS = 397


class ImageHalves:
    """The left and right halves of images as two paired sources that make their rows when read.

    Parameters
    ----------
    images : DeformedImages
    indices : 1-D integer array or range
        Which images, row by row.
    random_access : bool, default=True
        False lets rows be read in runs, which is faster; for indices that are shuffled already.

    Attributes
    ----------
    left, right : ViewSource
        float32, pixels / 255; a row is a half image, flattened. The left half is the narrower one
        when the width is odd. Reading the same rows of both makes the images once.
    """

    def __init__(
        self,
        images: DeformedImages,
        indices: NDArray[np.integer[Any]] | range,
        *,
        random_access: bool = True,
    ) -> None:
        halves = _Halves(images, indices)
        self.left, self.right = generated_views(halves, random_access=random_access)


class _Halves:
    """Rows of `ImageHalves`."""

    def __init__(self, images: DeformedImages, indices: NDArray[np.integer[Any]] | range) -> None:
        height, width = images.image_shape
        if width < 2:
            raise InputError("Images of one column have no halves.")
        self._images = images
        self._indices = indices
        self._middle = width // 2
        self.n_rows = len(indices)
        self.n_cols = (height * self._middle, height * (width - self._middle))
        self.dtype = np.dtype(np.float32)

    def pair(self, start: int, stop: int) -> tuple[Float32, Float32]:
        """Rows `start:stop` of both halves."""
        return _halves(self._images.take(self._indices[start:stop]), self._middle)


def _halves(images: NDArray[np.uint8], middle: int) -> tuple[Float32, Float32]:
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
        Made from other base digits than the training part.
    labels_train, labels_test : int arrays
        Which digit each image shows.
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
    """Deform scikit-learn's bundled handwritten digits without end and cut them in halves.

    Parameters
    ----------
    n_train, n_test : int
        Images of each part. No base digit serves both, so no training digit is found again,
        deformed, in the test part.
    size : int
        Height and width the 8 x 8 digits are smoothly enlarged to, at least 8.
    random_state : None, int, RandomState or Generator

    Returns
    -------
    EndlessDigits
    """
    if size < 8:
        raise InputError(f"size={size}: the digits are 8 x 8 and only enlarged. Pass 8 or more.")
    for name, n in (("n_train", n_train), ("n_test", n_test)):
        if n < 1:
            raise InputError(f"{name}={n}: wanted at least 1 image.")
    from sklearn.datasets import load_digits  # half a second that `import knoi` need not take

    seed = seed_from(random_state)
    digits = load_digits()
    base = _enlarged(digits.images, size)
    order = generator(seed, Purpose.DIGITS_SPLIT).permutation(len(base))
    parts = []
    for chosen, n in ((order[_N_TEST_DIGITS:], n_train), (order[:_N_TEST_DIGITS], n_test)):
        images = DeformedImages(base[chosen], seed=seed)
        indices = np.arange(n)
        labels = digits.target[chosen][images.base_of(indices)].astype(np.int64)
        parts.append((*_halves(images.take(indices), size // 2), labels))
    (X_train, Y_train, labels_train), (X_test, Y_test, labels_test) = parts
    return EndlessDigits(X_train, Y_train, X_test, Y_test, labels_train, labels_test, (size, size))


def _enlarged(images: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """8 x 8 images of 0 to 16 as size x size images of 0 to 255."""
    factor = size / images.shape[1]
    # grid_mode keeps pixels as areas, so that the enlarged digit is not moved.
    large: NDArray[np.float64] = zoom(
        images, (1, factor, factor), order=3, mode="grid-constant", grid_mode=True
    )
    return np.clip(np.rint(large * (255 / 16)), 0, 255).astype(np.uint8)
