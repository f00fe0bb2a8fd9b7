"""Projections on disk, written piece by piece and moved into place when they are whole."""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from knoi.cli.files import check_output
from knoi.data.optional import require
from knoi.exceptions import InputError
from knoi.fileio import atomic_write

# First row and numbers (b, L) of each piece of a projection, in order.
Pieces = Iterable[tuple[int, NDArray[Any]]]


@dataclass(frozen=True)
class Projected:
    """A projection that is made as it is written."""

    n_rows: int
    pieces: Pieces


Write = Callable[[Mapping[str, Projected]], None]


def writer(outputs: list[Path], names: tuple[str, ...], inputs: list[Path | None]) -> Write:
    """What writes projections called `names` ("Zx", "Zy") to these files.

    One `.npz` or `.h5:/NAME` holds them all; `.npy` files hold one each. Refuses, before anything
    is computed, what cannot be written.
    """
    paths = [_split(output) for output in outputs]
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
            raise InputError("--output was given one name twice. Give each view its own.")
        return lambda made: _write_npy([path for path, _ in paths], made)
    if len(paths) == 1 and suffixes == {".npz"}:
        return lambda made: _write_npz(paths[0][0], made)
    if len(paths) == 1 and suffixes <= {".h5", ".hdf5"}:
        h5py = require("h5py", "io", "writing HDF5")
        path, name = paths[0][0], paths[0][1] or "/"
        _refuse_taken(h5py, path, name, names)
        return lambda made: _write_hdf5(h5py, path, name, made)
    shown = " ".join(map(str, outputs))
    raise InputError(
        f"--output {shown}: wanted a name that ends in .npy (one for each view), .npz or .h5:/NAME."
    )


def _split(output: Path) -> tuple[Path, str | None]:
    """Path and dataset of `PATH.h5:/NAME`; of others the path."""
    text = os.fspath(output)
    for suffix in (".h5", ".hdf5"):
        path, mark, name = text.partition(f"{suffix}:")
        if mark:
            return Path(path + suffix), name or None
    return output, None


def _write_npy(paths: list[Path], made: Mapping[str, Projected]) -> None:
    # All are written before the first is moved: there are both, or none.
    with _several_atomic(paths) as temporaries:
        for temporary, projected in zip(temporaries, made.values(), strict=True):
            table = None
            for start, Z in projected.pieces:
                if table is None:
                    shape = (projected.n_rows, Z.shape[1])
                    table = npy_format.open_memmap(temporary, mode="w+", dtype=Z.dtype, shape=shape)
                table[start : start + len(Z)] = Z
            del table  # which writes what is left


@contextmanager
def _several_atomic(paths: list[Path]) -> Iterator[list[Path]]:
    if not paths:
        yield []
        return
    with atomic_write(paths[0]) as first, _several_atomic(paths[1:]) as others:
        yield [first, *others]


def _write_npz(path: Path, made: Mapping[str, Projected]) -> None:
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as zip_:
        for name, projected in made.items():
            with zip_.open(f"{name}.npy", "w", force_zip64=True) as member:
                _stream_npy(member, projected)


def _stream_npy(file: IO[bytes], projected: Projected) -> None:
    for start, Z in projected.pieces:
        if start == 0:
            header = {
                "descr": npy_format.dtype_to_descr(Z.dtype),
                "fortran_order": False,
                "shape": (projected.n_rows, Z.shape[1]),
            }
            npy_format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(Z).data)


def _refuse_taken(h5py: Any, path: Path, name: str, names: tuple[str, ...]) -> None:
    """Refuse datasets that are there: other people's work may be in the same file."""
    if not path.exists():
        return
    with h5py.File(path, "r") as file:
        for place in _places(name, names):
            if place in file:
                raise InputError(
                    f"--output {path}:{place} is there already, and a dataset is not overwritten. "
                    "Give another name."
                )


def _places(name: str, names: tuple[str, ...]) -> list[str]:
    """Where projections go: a name is that of the only one, or of the group of two."""
    if len(names) == 1 and name.strip("/"):
        return [name]
    return [f"{name.rstrip('/')}/{one}" for one in names]


def _write_hdf5(h5py: Any, path: Path, name: str, made: Mapping[str, Projected]) -> None:
    places = _places(name, tuple(made))
    if not path.exists():
        with atomic_write(path) as temporary, h5py.File(temporary, "w") as file:
            _fill(file, places, made)
        return
    # A file with other data in it is added to; what is not whole is taken out again.
    with h5py.File(path, "r+") as file:
        try:
            _fill(file, places, made)
        except BaseException:
            for place in places:
                if place in file:
                    del file[place]
            raise


def _fill(file: Any, places: list[str], made: Mapping[str, Projected]) -> None:
    for place, projected in zip(places, made.values(), strict=True):
        dataset = None
        for start, Z in projected.pieces:
            if dataset is None:
                shape = (projected.n_rows, Z.shape[1])
                dataset = file.create_dataset(place, shape=shape, dtype=Z.dtype)
            dataset[start : start + len(Z)] = Z
