"""Views on disk: from a locator `PATH` or `PATH:SELECTOR` to the opener of its format."""

import difflib
import os
from collections.abc import Callable
from pathlib import Path

from knoi.data.csv_numbers import open_csv
from knoi.data.mat import open_mat
from knoi.data.npy import open_npy, open_npz
from knoi.data.row_source import RowSource
from knoi.data.selection import listing
from knoi.data.stores import open_hdf5, open_zarr
from knoi.data.tabular import open_parquet
from knoi.exceptions import SourceFormatError, SourceNotFoundError

FileOpener = Callable[[Path, str | None, str], RowSource]

_OPENERS: dict[str, FileOpener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
    ".zarr": open_zarr,
    ".parquet": open_parquet,
    ".csv": open_csv,
    ".csv.gz": open_csv,
    ".tsv": open_csv,
    ".tsv.gz": open_csv,
    ".mat": open_mat,
}
# What Zarr puts at the root of a store, of its formats 3 and 2.
_ZARR_MARKS = ("zarr.json", ".zarray", ".zgroup")


def open_locator(data: str | os.PathLike[str], name: str) -> RowSource:
    """The view that a locator names.

    Parameters
    ----------
    data : str or path
        `PATH` or `PATH:SELECTOR`, the selector naming an array of a `.npz`, `.h5`, `.zarr` or
        `.mat`, or the columns of a `.parquet` or `.csv`, comma-separated.
    name : str
        How messages call the view; the locator is added to it.
    """
    text = os.fsdecode(data)
    label = f"{name} ({text!r})"
    path, selector = split_locator(text)
    if not text or not os.path.exists(path):
        raise _not_found(label, path)
    return _opener(path, label)(path, selector, label)


def split_locator(text: str) -> tuple[Path, str | None]:
    """Path and selector of a locator; a path that exists wins over one that is shorter."""
    colons = [index for index, character in enumerate(text) if character == ":"]
    splits = [(text, None), *((text[:i], text[i + 1 :] or None) for i in reversed(colons) if i)]
    candidates = [(Path(os.path.expanduser(path)), selector) for path, selector in splits]
    for path, selector in candidates:
        if os.path.exists(path):
            return path, selector
    # None is there: the message should name what was most likely meant.
    for path, selector in candidates:
        if _extension(path) in _OPENERS:
            return path, selector
    return candidates[0]


def _extension(path: Path) -> str:
    """The suffix; with the one before it where the file is compressed."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def _opener(path: Path, label: str) -> FileOpener:
    extension = _extension(path)
    opener = _OPENERS.get(extension)
    if path.is_dir():
        if any((path / mark).exists() for mark in _ZARR_MARKS):
            return open_zarr
        if opener not in (open_zarr, open_parquet):
            return _open_folder
    if opener is None:
        raise SourceFormatError(
            f"{label}: files ending in {extension!r} are not supported. Supported are "
            f"{', '.join(_OPENERS)}, and folders of .parquet files."
        )
    return opener


def _open_folder(path: Path, selector: str | None, label: str) -> RowSource:
    if not any(path.rglob("*.parquet")):
        raise SourceFormatError(
            f"{label} is a folder that is neither a Zarr store nor holds .parquet files. "
            f"Point to a file ({', '.join(_OPENERS)}) or to such a folder."
        )
    return open_parquet(path, selector, label)


def _not_found(label: str, path: Path) -> SourceNotFoundError:
    folder = path.parent
    if not os.path.isdir(folder):
        return SourceNotFoundError(
            f"{label}: there is no folder {str(folder)!r}. Check the path; relative paths start at "
            "the working directory."
        )
    near = difflib.get_close_matches(path.name, os.listdir(folder), n=3)
    hint = f"Near it are: {listing(near)}." if near else "Check the path."
    return SourceNotFoundError(f"{label}: there is no file or folder {str(path)!r}. {hint}")
