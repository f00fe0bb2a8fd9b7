"""Grayscale images in a page: PNG files as data URIs, and all rows of a view in one image."""

import base64
import math
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.sparse import dense
from knoi.exceptions import InputError, InputTypeError

Shape = tuple[int, int]

# Pixels of all images of a view together, about as many bytes before compression.
_MAX_PIXELS = 2_000_000


def data_uri(image: NDArray[Any]) -> str:
    """Encode a grayscale image, uint8 (height, width) with 0 black, as a PNG in a data URI."""
    height, width = image.shape
    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)  # 8 bits, grayscale
    # Each row starts with the number of its filter: 0, none.
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = image
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def make_sprite(chunks: Iterable[Any], shape: Shape, n_images: int) -> dict[str, Any]:
    """Combine rows, each a flattened image, into one image; large images are shrunk.

    Returns its "uri", "height" and "width" of each image in it, and "columns" and "lines" of them.
    """
    factor = math.ceil(math.sqrt(n_images * math.prod(shape) / _MAX_PIXELS))
    images = _to_uint8(
        np.concatenate(
            [shrink(np.asarray(dense(x), np.float32).reshape(-1, *shape), factor) for x in chunks]
        )
    )  # (n, h, w)
    n, height, width = images.shape
    columns = max(1, math.ceil(math.sqrt(n * height / width)))
    lines = -(-n // columns)
    grid = np.zeros((lines * columns, height, width), np.uint8)
    grid[:n] = images
    large = grid.reshape(lines, columns, height, width).swapaxes(1, 2)
    uri = data_uri(large.reshape(lines * height, columns * width))
    return {"uri": uri, "height": height, "width": width, "columns": columns, "lines": lines}


def shrink(images: NDArray[Any], factor: int) -> NDArray[Any]:
    """Average blocks of `factor` x `factor` pixels of images (n, h, w); cut what is left over."""
    n, height, width = images.shape
    factor = min(factor, height, width)
    if factor <= 1:
        return images
    height, width = height // factor, width // factor
    cut = images[:, : height * factor, : width * factor]
    return np.asarray(cut.reshape(n, height, factor, width, factor).mean(axis=(2, 4)))


def _to_uint8(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale to 0..255: values in 0..1 or 0..255 by that range, others by their own."""
    low, high = float(pixels.min()), float(pixels.max())
    if low >= 0.0 and high <= 255.0:
        low, high = 0.0, 1.0 if high <= 1.0 else 255.0
    spread = high - low if high > low else 1.0
    return np.asarray(np.rint((pixels - low) * (255.0 / spread)), np.uint8)


def check_image_shapes(images: Any, n_cols: tuple[int, int]) -> tuple[Shape | None, Shape | None]:
    """Check `images` of `model_report`; return (height, width) or None for each view."""
    if images is None:
        return None, None

    def is_pair(value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) == 2

    if not is_pair(images) or not all(shape is None or is_pair(shape) for shape in images):
        raise InputTypeError(
            f"images={images!r}: wanted a pair, ((height, width) of X, (height, width) of Y), with "
            "None for a view whose rows are not images."
        )
    x, y = (shape and (int(shape[0]), int(shape[1])) for shape in images)
    for name, shape, columns in zip("XY", (x, y), n_cols, strict=True):
        if shape is not None and (min(shape) < 1 or math.prod(shape) != columns):
            raise InputError(
                f"images={images!r}: {name} has {columns} columns, not {shape[0]} x {shape[1]} "
                f"pixels. Pass a height and a width of product {columns}; X and Y may differ."
            )
    return x, y
