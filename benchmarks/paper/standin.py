"""The stand-in for MNIST8M as two views: the same index rule, not the same pixels.

    python -m benchmarks.paper.standin [--samples 1000000]

makes the stand-in with 20,000 held-out rows and keeps it in the folder that `KNOI_CACHE` names (by
default a folder in the system's temporary directory). Needs KNOI_DATA with MNIST.

Left and right 28 x 14 halves, float32 / 255. Held-out images and any number of training images are
drawn at random, without repetition, from the 8.1 million indices; the first training rows are the
same for every number of them. Rows are made as they are read, or come from uint8 files made once.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import DATA
from benchmarks.paper.mnist import MNIST8M_INDICES, image_halves, mnist8m_standin, read_idx
from knoi.data.pairs import RowPair
from knoi.data.source import RowSource
from knoi.datasets.digits import DeformedImages
from knoi.exceptions import InputError, SourceNotFoundError
from knoi.fileio import atomic_write

CACHE = Path(os.environ.get("KNOI_CACHE", Path(tempfile.gettempdir()) / "knoi-benchmarks"))
L = 50
SAMPLES = 1_000_000
HELD_OUT = 20_000
COLUMNS = 392
TRAIN_FILE = "train-images-idx3-ubyte"
# Part of the file names: to be counted up whenever what the files hold changes.
_VERSION = 2
_PIECE = 10_000


class StandIn(NamedTuple):
    """Training views, made or streamed as they are read, and other rows in memory."""

    X: RowSource  # (samples, 392)
    Y: RowSource
    test: RowPair  # (held_out, 392) each
    tuning: RowPair


def load(
    samples: int,
    held_out: int,
    tuning: int = 0,
    *,
    mnist: Path | None = None,
    cache: Path | None = None,
) -> StandIn:
    """Load the stand-in with these numbers of training, held-out and tuning rows.

    The tuning rows are the last of all, so training on all other rows includes them.

    Parameters
    ----------
    samples, held_out, tuning : int
    mnist : path, optional
        Folder of MNIST's idx files, gzipped or not. Without it scikit-learn fetches them.
    cache : path, optional
        Folder to keep the pixels of training rows in, 784 bytes an image, for runs that read them
        often.
    """
    most = len(MNIST8M_INDICES) - held_out
    if not 1 <= samples <= most:
        raise InputError(f"{samples:,} training samples: expected 1 to {most:,}.")
    span = np.arange(MNIST8M_INDICES.start, MNIST8M_INDICES.stop)
    order = np.random.default_rng(0).permutation(span)
    images, train = mnist_images(mnist), order[held_out : held_out + samples]
    return StandIn(
        *(_made(images, train) if cache is None else _cached(images, train, cache, held_out)),
        _in_memory(images, order[:held_out]),
        _in_memory(images, order[len(order) - tuning :]),
    )


def _made(images: DeformedImages, indices: NDArray[np.integer[Any]]) -> tuple[RowSource, RowSource]:
    """Views whose rows are made as they are read."""
    return image_halves(images, indices)


def _in_memory(images: DeformedImages, indices: NDArray[np.integer[Any]]) -> RowPair:
    if not len(indices):
        nothing = np.empty((0, COLUMNS), np.float32)
        return nothing, nothing
    left, right = _made(images, indices)
    return left.read(0, len(indices)), right.read(0, len(indices))


def mnist_images(folder: Path | None) -> DeformedImages:
    """MNIST's training images, deformed without end."""
    if folder is None:
        return mnist8m_standin(_fetched())
    for name in (f"{TRAIN_FILE}.gz", TRAIN_FILE):
        if (folder / name).exists():
            return mnist8m_standin(read_idx(folder / name))
    raise SourceNotFoundError(
        f"{folder} has no {TRAIN_FILE} or {TRAIN_FILE}.gz: name the folder of MNIST's idx files "
        "with --mnist DIR."
    )


def _fetched() -> NDArray[np.uint8]:
    """MNIST's training images by way of OpenML, which keeps them in order before the test ones."""
    from sklearn.datasets import fetch_openml

    try:
        pixels = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff").data
    except OSError as error:  # also what urllib raises without a network
        raise SourceNotFoundError(
            f"MNIST could not be fetched from OpenML ({error}). Offline, give the folder of its "
            f"idx files: --mnist DIR, with {TRAIN_FILE}.gz in it."
        ) from error
    images: NDArray[np.uint8] = pixels[:60_000].reshape(-1, 28, 28).astype(np.uint8)
    return images


def _cached(
    images: DeformedImages, indices: NDArray[np.integer[Any]], cache: Path, first: int
) -> tuple[RowSource, RowSource]:
    """Views of files in `cache`, made where none has as many of the rows from `first` on."""

    def files(rows: int) -> tuple[Path, Path]:
        stem = f"standin-v{_VERSION}-from-{first}-{rows}"
        return cache / f"{stem}-x.npy", cache / f"{stem}-y.npy"

    made = (int(f.stem.split("-")[-2]) for f in cache.glob(files(0)[0].name.replace("-0-", "-*-")))
    rows = min((n for n in made if n >= len(indices)), default=len(indices))
    if not all(file.exists() for file in files(rows)):
        _make(images, indices, files(rows))
    x, y = (
        RowSource(
            f"{name} of the stand-in",
            shape=(len(indices), COLUMNS),
            dtype=np.dtype(np.float32),
            fetch=partial(_scaled, np.load(file, mmap_mode="r")),
            random_access=False,
        )
        for name, file in zip("XY", files(rows), strict=True)
    )
    return x, y


def _scaled(pixels: NDArray[np.uint8], start: int, stop: int) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = np.divide(pixels[start:stop], 255, dtype=np.float32)
    return scaled


def _make(
    images: DeformedImages, indices: NDArray[np.integer[Any]], files: tuple[Path, Path]
) -> None:
    """Write both halves of the images to files that appear once they are complete."""
    files[0].parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(files[0]) as x, atomic_write(files[1]) as y:
        left, right = (
            np.lib.format.open_memmap(part, "w+", np.dtype(np.uint8), (len(indices), COLUMNS))
            for part in (x, y)
        )
        for start in range(0, len(indices), _PIECE):
            rows = slice(start, start + _PIECE)
            made = images.take(indices[rows])
            left[rows] = made[:, :, :14].reshape(len(made), -1)
            right[rows] = made[:, :, 14:].reshape(len(made), -1)
        left.flush()
        right.flush()


def load_cached(samples: int = SAMPLES) -> StandIn:
    """Load the stand-in from the cache; it is made first if no file has that many rows."""
    return load(samples, HELD_OUT, mnist=DATA / "mnist", cache=CACHE)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=SAMPLES)
    options = arguments.parse_args()
    views = load_cached(options.samples)
    print(f"{views.X.n_rows:,} training and {len(views.test[0]):,} held-out pairs in {CACHE}")


if __name__ == "__main__":
    main()
