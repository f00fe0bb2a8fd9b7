"""Out of core: fit two files within a memory budget, with a checkpoint to resume from.

    python examples/out_of_core.py [--rows 20000] [--folder DIR]

Writes two float32 `.npy` files in pieces, fits KNOI to them within a memory budget, and continues
training from the checkpoint. HDF5, Zarr, Parquet, CSV and .mat files work the same way:
`fit("views.h5:/left", "views.h5:/right")`.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from knoi import KNOI, LinearCCA
from knoi.datasets import two_view_sources

PIECE = 8192


def write(path, source):
    """Write a view to a file, one piece at a time."""
    shape = (source.n_rows, source.n_cols)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, source.n_rows, PIECE):
        stop = min(start + PIECE, source.n_rows)
        file[start:stop] = source.read(start, stop)
    file.flush()
    print(
        f"{path.name}: {shape[0]:,} rows, {shape[1]} columns, {path.stat().st_size / 2**20:.0f} MiB"
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        run(folder, options.rows)


def run(folder, rows):
    left, right = folder / "X.npy", folder / "Y.npy"
    kind = {"correlations": (0.9, 0.7), "nonlinear": True, "dtype": np.float32}
    for path, source in zip((left, right), two_view_sources(rows, (8, 6), **kind), strict=True):
        write(path, source)
    # Held-out rows: the next 2,000 of the same data.
    x, y = two_view_sources(rows + 2000, (8, 6), **kind)
    X_test, Y_test = x.read(rows, rows + 2000), y.read(rows, rows + 2000)

    linear = LinearCCA(n_components=2, memory_budget="64MiB").fit(left, right)
    print(f"linear CCA, one pass: {linear.score(X_test, Y_test):.2f}")

    model = KNOI(
        n_components=2,
        rank=300,
        epochs=1,
        memory_budget="256MiB",
        checkpoint=folder / "run",  # saved every minute, on Ctrl-C and on SIGTERM
        random_state=0,
    )
    model.fit(left, right)
    print(f"KNOI, {model.n_samples_seen_:,} samples: {model.score(X_test, Y_test):.2f}")

    # Later, possibly in another process: the same parameters, except for the number of epochs.
    model.set_params(epochs=2)
    model.fit(left, right, resume=True)
    print(f"resumed, {model.n_samples_seen_:,} samples: {model.score(X_test, Y_test):.2f} of 2")

    model.save(folder / "views.knoi")
    size = (folder / "views.knoi").stat().st_size / 2**10
    print(f"saved to {(folder / 'views.knoi').name}, {size:.0f} KiB")


if __name__ == "__main__":
    main()
