"""`knoi transform`: project files to files, piece by piece."""

import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from knoi.cli import options
from knoi.cli.files import check_columns, check_output, load_model, open_pairs
from knoi.cli.output import examples, messages, results, say, show_rows
from knoi.exceptions import InputError
from knoi.fileio import atomic_write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from knoi.data.source import ViewSource
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi transform model.knoi X.npy -o Zx.npy",
    "knoi transform model.knoi X.npy Y.npy -o Z.npz   (arrays Zx and Zy)",
    "knoi transform model.knoi X.npy Y.npy -o Zx.npy -o Zy.npy",
    "knoi transform model.knoi Y.csv --view y -o Z.h5:/test/y",
    "knoi transform model.knoi X.csv Y.csv -o Z.csv   (columns x1, x2, ..., y1, y2, ...)",
)
USAGE = "knoi transform MODEL X [Y] -o OUTPUT"
# Rows are projected in pieces of at most so many bytes of the view, and so many rows.
PIECE_BYTES, PIECE_ROWS = 64 * 2**20, 65_536

_OUTPUT = (
    ".npy (twice for two views), .npz, .csv, .parquet, or .h5:/NAME, which is added to an existing "
    "file."
)
# First row and projected rows (b, L) of each piece, in order; and such pieces by the name of the
# projection, with the number of its rows.
Pieces = Iterable[tuple[int, "NDArray[Any]"]]
Projections = Mapping[str, tuple[int, Pieces]]


def transform(
    model: options.Model,
    x: options.ViewX,
    output: Annotated[list[Path], options.option("FILE", _OUTPUT, "--output", "-o")],
    y: Annotated[Path | None, typer.Argument(metavar="Y", help="The other view.")] = None,
    view: Annotated[str, options.view_option("Which view a single file holds.")] = "x",
    memory: options.Memory = None,
    jobs: options.Jobs = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Project rows of files to the model's components, piece by piece, and write them to files."""
    if view == "y" and y is not None:
        raise options.usage_error("view", "y is for a single file. Leave it out.")
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    names = ("Zx", "Zy") if y is not None else (f"Z{view}",)
    write = _writer(output, names, [model, x, y])
    with ExitStack() as opened:
        views = _open_views(fitted, x, y, view, opened)
        rows = sum(source.n_rows for _, source in views)
        what = f"Projecting {rows:,} rows to {fitted.projection_.x.weights.shape[1]} components"
        with show_rows(messages(quiet), what, rows) as show:
            projections, counted = {}, _added_up(show)
            piece_rows = max(1, min(PIECE_ROWS, *(PIECE_BYTES // s.row_bytes for _, s in views)))
            for name, (side, source) in zip(names, views, strict=True):
                pieces = _project(fitted, source, side, piece_rows, counted)
                projections[name] = source.n_rows, pieces
            write(projections)
    say(results(quiet), f"Written: {' '.join(map(str, output))} ({', '.join(names)})")


def _open_views(
    fitted: "BaseCCA", x: Path, y: Path | None, view: str, opened: ExitStack
) -> list[tuple[str, "ViewSource"]]:
    from knoi.arrays.random import View
    from knoi.data.open import opened_view

    if y is not None:
        pairs = opened.enter_context(open_pairs(x, y, USAGE))
        check_columns(pairs.n_cols, (fitted.n_features_in_, fitted.n_features_y_))
        fitted._remember_columns(pairs, reset=False)
        return list(zip("XY", pairs.views(), strict=True))
    side = view.upper()
    source = opened.enter_context(opened_view(x, side))
    wanted = {"X": fitted.n_features_in_, "Y": fitted.n_features_y_}
    if source.n_cols != wanted[side]:
        hint = "Give a file with the columns of the training data."
        if source.n_cols in wanted.values():
            swap = {"X": "Y: add --view y", "Y": "X: leave out --view y"}
            hint = f"It looks like {swap[side]}."
        raise InputError(
            f"{x} has {source.n_cols} columns, but {side} was fitted with {wanted[side]}. {hint}"
        )
    fitted._check_columns(View[side], source)
    return [(side, source)]


def _added_up(show: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that takes numbers of rows and shows their sum."""
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        show(done)

    return count


def _project(
    model: "BaseCCA", view: "ViewSource", side: str, rows: int, count: Callable[[int], None]
) -> Pieces:
    """Project view "X" or "Y" piece by piece; errors name the row of the view."""
    from knoi.data.open import open_view
    from knoi.data.source import CheckedView
    from knoi.estimators.setup import check_domain

    projection = model.projection_.x if side == "X" else model.projection_.y
    checked = CheckedView(view, side)
    for start in range(0, view.n_rows, rows):
        stop = min(start + rows, view.n_rows)
        chunk = checked.read(start, stop)
        check_domain(side, projection.features.kernel, chunk, start)
        yield start, model._project(open_view(chunk, side), side, projection)
        count(stop - start)


def _writer(
    outputs: list[Path], names: tuple[str, ...], inputs: list[Path | None]
) -> Callable[[Projections], None]:
    """Return the function that writes projections called `names` ("Zx", "Zy") to these files.

    One `.npz` or `.h5:/NAME` holds them all, one `.csv` or `.parquet` has them side by side; `.npy`
    files hold one each. What cannot be written raises an error here, before anything is computed.
    """
    from knoi.exceptions import require

    paths = [_split_dataset(output) for output in outputs]
    for path, _ in paths:
        check_output(path, "--output", inputs)
    suffixes = {path.suffix.lower() for path, _ in paths}
    if suffixes == {".npy"}:
        if len(paths) != len(names):
            raise InputError(
                f"{len(names)} view{'s' if len(names) > 1 else ''} and {len(paths)} .npy "
                f"file{'s' if len(paths) > 1 else ''} to write: a .npy holds one. Give --output "
                "once for each view, or one .npz."
            )
        if len({os.path.realpath(path) for path, _ in paths}) < len(paths):
            raise InputError("--output was given the same name twice. Give one name per view.")
        return partial(_write_npy, [path for path, _ in paths])
    if len(paths) == 1 and suffixes <= {".csv", ".parquet"}:
        arrow = require("pyarrow", "io", f"writing {paths[0][0].suffix[1:]}")
        return partial(_write_table, arrow, paths[0][0])
    if len(paths) == 1 and suffixes == {".npz"}:
        return partial(_write_npz, paths[0][0])
    if len(paths) == 1 and suffixes <= {".h5", ".hdf5"}:
        h5py = require("h5py", "io", "writing HDF5")
        path, name = paths[0]
        datasets = [name]  # the only one, or else a group of all
        if len(names) > 1 or not name.strip("/"):
            datasets = [f"{name.rstrip('/')}/{one}" for one in names]
        if path.exists():
            with h5py.File(path, "r") as file:
                taken = [dataset for dataset in datasets if dataset in file]
            if taken:
                raise InputError(
                    f"--output {path}:{taken[0]} exists already, and a dataset is not overwritten. "
                    "Give another name."
                )
        return partial(_write_hdf5, h5py, path, datasets)
    shown = " ".join(map(str, outputs))
    raise InputError(
        f"--output {shown}: wanted a name that ends in .npy (one for each view), .npz, .csv, "
        ".parquet or .h5:/NAME."
    )


def _split_dataset(output: Path) -> tuple[Path, str]:
    """Return path and dataset of `PATH.h5:/NAME`."""
    match = re.fullmatch(r"(.*?\.(?:h5|hdf5)):(.*)", os.fspath(output))
    return (output, "") if match is None else (Path(match[1]), match[2])


def _write_npy(paths: list[Path], projections: Projections) -> None:
    with ExitStack() as stack:  # every file is complete before the first is moved into place
        temporaries = [stack.enter_context(atomic_write(path)) for path in paths]
        for temporary, projection in zip(temporaries, projections.values(), strict=True):
            with open(temporary, "wb") as file:
                _stream_npy(file, *projection)


def _write_npz(path: Path, projections: Projections) -> None:
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, projection in projections.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _stream_npy(member, *projection)


def _stream_npy(file: IO[bytes], n_rows: int, pieces: Pieces) -> None:
    import numpy as np
    from numpy.lib import format as npy_format

    for start, Z in pieces:
        if start == 0:
            header = {
                "descr": npy_format.dtype_to_descr(Z.dtype),
                "fortran_order": False,
                "shape": (n_rows, Z.shape[1]),
            }
            npy_format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(Z).data)


def _write_table(arrow: Any, path: Path, projections: Projections) -> None:
    """Write the projections side by side: columns x1, x2, ... of Zx and y1, y2, ... of Zy."""
    from pyarrow import csv, parquet

    make = csv.CSVWriter if path.suffix.lower() == ".csv" else parquet.ParquetWriter
    with ExitStack() as stack:
        temporary, writer = stack.enter_context(atomic_write(path)), None
        for pieces in zip(*(pieces for _, pieces in projections.values()), strict=True):
            columns = {
                f"{name[1]}{k}": column
                for name, (_, Z) in zip(projections, pieces, strict=True)
                for k, column in enumerate(Z.T, start=1)
            }
            batch = arrow.record_batch(columns)
            if writer is None:
                writer = stack.enter_context(make(str(temporary), batch.schema))
            writer.write_batch(batch)


def _write_hdf5(h5py: Any, path: Path, datasets: list[str], projections: Projections) -> None:
    """Write a new file, or add to an existing one: that is not replaced, so clean up on failure."""
    with ExitStack() as stack:
        target = path if path.exists() else stack.enter_context(atomic_write(path))
        file = stack.enter_context(h5py.File(target, "a"))
        try:
            for name, (n_rows, pieces) in zip(datasets, projections.values(), strict=True):
                for start, Z in pieces:
                    if start == 0:
                        dataset = file.create_dataset(name, (n_rows, Z.shape[1]), Z.dtype)
                    dataset[start : start + len(Z)] = Z
        except BaseException:
            for name in datasets:
                file.pop(name, None)
            raise
