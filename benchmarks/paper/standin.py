"""The stand-in for MNIST8M as two views on disk: same index rule, not the same pixels.

    python -m benchmarks.paper.standin [--samples 1000000]

Left and right 28 x 14 halves. 20,000 held-out images and any number of training images are drawn
at random, without repetition, from the 8.1 million indices; the first rows are the same for every
number of samples. Pixels are kept as uint8 in `.npy` files, made once, in the folder `KNOI_CACHE`
names (a folder of the system's temporary directory by default), and come out as float32 / 255.
Needs KNOI_DATA with MNIST.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import DATA
from knoi.data.images import MNIST8M_INDICES, mnist8m_standin, read_idx
from knoi.data.row_source import RowSource

CACHE = Path(os.environ.get("KNOI_CACHE", Path(tempfile.gettempdir()) / "knoi-benchmarks"))
L = 50
SAMPLES = 1_000_000
HELD_OUT = 20_000
COLUMNS = 392
# Part of the file names: to be counted up whenever what the files hold changes.
_VERSION = 1
_PIECE = 10_000


class StandIn(NamedTuple):
    """Training views, streamed from files, and held-out views in memory."""

    X: RowSource  # (samples, 392)
    Y: RowSource
    X_test: Any  # (20000, 392) float32
    Y_test: Any


def load(samples=SAMPLES):
    """The stand-in with this many training rows; made first where no file has as many."""
    test = _files(HELD_OUT, "test")
    train = next((f for n, f in _made() if n >= samples), None) or _files(samples, "train")
    missing = [files for files in (test, train) if not all(file.exists() for file in files)]
    if missing:
        order = np.random.default_rng(0).permutation(np.arange(*_span()))
        images = _images()
        if test in missing:
            _make(images, order[:HELD_OUT], test)
        if train in missing:
            _make(images, order[HELD_OUT : HELD_OUT + samples], train)
    x, y = (
        RowSource(
            f"{name} of the stand-in",
            shape=(samples, COLUMNS),
            dtype=np.dtype(np.float32),
            fetch=partial(_scaled, np.load(file, mmap_mode="r")),
            random_access=False,
        )
        for name, file in zip("XY", train, strict=True)
    )
    return StandIn(x, y, *(_scaled(np.load(file), 0, HELD_OUT) for file in test))


def _scaled(pixels, start, stop):
    return np.divide(pixels[start:stop], 255, dtype=np.float32)


def _span():
    return MNIST8M_INDICES.start, MNIST8M_INDICES.stop


def _images():
    folder = DATA / "mnist"
    return mnist8m_standin(read_idx(folder / "train-images-idx3-ubyte.gz"))


def _files(rows, part):
    return tuple(CACHE / f"standin-v{_VERSION}-{part}-{rows}-{side}.npy" for side in "xy")


def _made():
    """(rows, files) of the training parts that are there, the smallest first."""
    counts = {int(f.name.split("-")[3]) for f in CACHE.glob(f"standin-v{_VERSION}-train-*-?.npy")}
    both = ((n, _files(n, "train")) for n in sorted(counts))
    return [(n, files) for n, files in both if all(file.exists() for file in files)]


def _make(images, indices, files):
    """Write both halves of the images, under other names until they are whole."""
    CACHE.mkdir(parents=True, exist_ok=True)
    parts = [file.with_suffix(f".{os.getpid()}.part") for file in files]
    left, right = (
        np.lib.format.open_memmap(part, "w+", np.uint8, (len(indices), COLUMNS)) for part in parts
    )
    for start in range(0, len(indices), _PIECE):
        rows = slice(start, start + _PIECE)
        made = images.take(indices[rows])
        left[rows] = made[:, :, :14].reshape(len(made), -1)
        right[rows] = made[:, :, 14:].reshape(len(made), -1)
    left.flush()
    right.flush()
    for part, file in zip(parts, files, strict=True):
        os.replace(part, file)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=SAMPLES)
    options = arguments.parse_args()
    views = load(options.samples)
    print(f"{views.X.n_rows:,} training and {len(views.X_test):,} held-out pairs in {CACHE}")


if __name__ == "__main__":
    main()
