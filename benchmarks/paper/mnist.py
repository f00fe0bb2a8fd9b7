"""MNIST's files, a stand-in for MNIST8M made from them, and halves of images as two views."""

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.source import RowSource
from knoi.datasets.digits import DeformedImages, split_halves
from knoi.datasets.synthetic import generated_views
from knoi.exceptions import InputError, SourceFormatError, SourceNotFoundError

Float32 = NDArray[np.float32]

MNIST8M_INDICES = range(10_000, 8_110_000)
_IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an IDX file, the format of MNIST, gzipped or not.

    Parameters
    ----------
    path : path of the file
        Whether it is gzipped is determined by its first bytes, not by its name.

    Returns
    -------
    array
        In the shape and dtype of the file, in native byte order.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SourceNotFoundError(f"There is no file {path}. Check the path.") from None
    except IsADirectoryError:
        raise SourceFormatError(f"{path} is a folder. Pass the path of one IDX file.") from None
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise SourceFormatError(
                f"{path} is a damaged gzip file ({error}). Download it again."
            ) from error

    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_DTYPES:
        raise SourceFormatError(
            f"{path} starts with {content[:4].hex(' ') or 'nothing'} and is not an IDX file. "
            "Pass an IDX file, e.g. train-images-idx3-ubyte.gz of MNIST."
        )
    dtype, n_dims = np.dtype(_IDX_DTYPES[content[2]]), content[3]
    header = 4 + 4 * n_dims
    if len(content) < header:
        raise SourceFormatError(
            f"{path} is truncated: its header takes {header} bytes. Download it again."
        )
    shape = tuple(int.from_bytes(content[at : at + 4]) for at in range(4, header, 4))
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise SourceFormatError(
            f"{path} is damaged: its shape {shape} takes {expected} bytes, but it has "
            f"{len(content)}. Download it again."
        )
    values = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def mnist8m_standin(train_images: Any, *, seed: int = 0) -> DeformedImages:
    """A stand-in for MNIST8M made from MNIST: the same index rule, not the same pixels.

    Parameters
    ----------
    train_images : uint8 array of shape (60000, 28, 28)
        The training images of MNIST, e.g. by `read_idx`.
    seed : int
        Seed of the deformation fields, which replace InfiMNIST's.

    Returns
    -------
    DeformedImages
        Training image j at index 10000 + j, deformed ones from 70000 on. MNIST8M is
        `MNIST8M_INDICES`.
    """
    train = np.asarray(train_images)
    if train.shape != (60_000, 28, 28):
        raise InputError(
            f"train_images has shape {train.shape}. Pass MNIST's (60000, 28, 28), on which the "
            "index rule depends, or use DeformedImages for other images."
        )
    return DeformedImages(train, offset=MNIST8M_INDICES.start, seed=seed)


def image_halves(
    images: DeformedImages, indices: NDArray[np.integer[Any]] | range
) -> tuple[RowSource, RowSource]:
    """The left and right halves of images as two paired sources that generate rows when read.

    Rows are float32, pixels / 255; a row is a flattened half image. The left half is the narrower
    one if the width is odd. Reading the same rows of both generates the images once.

    Parameters
    ----------
    images : DeformedImages
    indices : 1-D integer array or range
        The image of each row.
    """
    return generated_views(_Halves(images, indices), random_access=True)


class _Halves:
    """Generates the rows of `image_halves`."""

    def __init__(self, images: DeformedImages, indices: NDArray[np.integer[Any]] | range) -> None:
        height, width = images.image_shape
        if width < 2:
            raise InputError("Images of one column cannot be split into halves.")
        self._images = images
        self._indices = indices
        self._middle = width // 2
        self.n_rows = len(indices)
        self.n_cols = (height * self._middle, height * (width - self._middle))
        self.dtype = np.dtype(np.float32)

    def pair(self, start: int, stop: int) -> tuple[Float32, Float32]:
        """Rows `start:stop` of both halves."""
        return split_halves(self._images.take(self._indices[start:stop]), self._middle)
