"""Rows that are pictures: all of a view in one PNG, small enough to travel with a page."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.sparse import dense
from knoi.exceptions import InputError, InputTypeError
from knoi.report.pictures import data_uri

Shape = tuple[int, int]

# Pixels of all pictures of a view: about as many bytes before compression.
_MOST_PIXELS = 2_000_000


@dataclass(frozen=True)
class Sprite:
    """Pictures of equal size side by side in one image, `columns` in a line."""

    uri: str
    height: int
    width: int
    columns: int
    n_pictures: int

    def placement(self) -> dict[str, int]:
        """What it takes to find a picture in the image."""
        lines = -(-self.n_pictures // self.columns)
        return {
            "height": self.height,
            "width": self.width,
            "columns": self.columns,
            "lines": lines,
        }


def checked_shapes(images: Any, n_cols: tuple[int, int]) -> tuple[Shape | None, Shape | None]:
    """Height and width of the pictures of each view; None where its rows are no pictures."""
    if images is None:
        return None, None
    wanted = (
        "wanted a pair, ((height, width) of X, (height, width) of Y), with None for a view that "
        "is not made of pixels"
    )
    if not isinstance(images, list | tuple) or len(images) != 2:
        raise InputTypeError(f"images={images!r}: {wanted}.")
    found: list[Shape | None] = []
    for shape, columns, name in zip(images, n_cols, "XY", strict=True):
        if shape is None:
            found.append(None)
            continue
        if not isinstance(shape, list | tuple) or len(shape) != 2:
            raise InputTypeError(f"images={images!r}: {wanted}.")
        height, width = (int(size) for size in shape)
        if min(height, width) < 1 or height * width != columns:
            raise InputError(
                f"images: {name} has {columns} columns, which are no picture of {height} x "
                f"{width} pixels. Pass height and width whose product is {columns}, or None."
            )
        found.append((height, width))
    return found[0], found[1]


def sprite(chunks: Iterable[Any], shape: Shape, n_pictures: int) -> Sprite:
    """Chunks of rows, each a flat picture, as one image; larger ones are made smaller."""
    step = max(1, math.ceil(math.sqrt(n_pictures * math.prod(shape) / _MOST_PIXELS)))
    step = min(step, *shape)
    small = np.concatenate(
        [shrunk(np.asarray(dense(rows), np.float32).reshape(-1, *shape), step) for rows in chunks]
    )
    pictures = _as_grey(small)  # (n, h, w)
    n, height, width = pictures.shape
    columns = max(1, math.ceil(math.sqrt(n * height / width)))
    lines = -(-n // columns)
    grid = np.zeros((lines * columns, height, width), np.uint8)
    grid[:n] = pictures
    image = grid.reshape(lines, columns, height, width).swapaxes(1, 2)
    return Sprite(
        data_uri(image.reshape(lines * height, columns * width)), height, width, columns, n
    )


def shrunk(pictures: NDArray[Any], step: int) -> NDArray[Any]:
    """Pictures (n, h, w) with `step` x `step` pixels averaged; what is left at the edges is cut."""
    if step <= 1:
        return pictures
    n, height, width = pictures.shape
    height, width = height // step, width // step
    cut = pictures[:, : height * step, : width * step]
    return np.asarray(cut.reshape(n, height, step, width, step).mean(axis=(2, 4)))


def _as_grey(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Values as 0 to 255: those of 0..1 and 0..255 as they are meant, others by their range."""
    low, high = float(pixels.min()), float(pixels.max())
    if low >= 0.0 and high <= 255.0:
        low, high = 0.0, 1.0 if high <= 1.0 else 255.0
    spread = high - low if high > low else 1.0
    return np.asarray(np.rint((pixels - low) * (255.0 / spread)), np.uint8)
