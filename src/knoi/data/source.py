"""One view as a table of numbers read by rows: the protocol, the class behind it, its checks.

`label` is what error messages call the view: its name, and its path if it has one. Some phrases
are scikit-learn's, word for word, because its estimator checks look for them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.exceptions import InputError, InputTypeError, KnoiError, SourceFormatError

REAL_KINDS = "biuf"
# Names listed in a message.
_LISTED = 20


@runtime_checkable
class ViewSource(Protocol):
    """One view, read by contiguous rows: C-contiguous real NumPy arrays, or CSR.

    `read` never returns memory through which the caller could change the source: a source that
    returns its own storage returns it read-only.
    """

    n_rows: int
    n_cols: int
    dtype: np.dtype[Any]
    # True if `read` returns `scipy.sparse.csr_array` rows, sorted and without duplicates.
    sparse: bool
    # Average bytes per row as `read` returns it; memory is planned by it.
    row_bytes: int
    # True if every row costs the same (the data is in memory); False if `read` should be called on
    # long runs in order (a file).
    random_access: bool
    # Column names if the data has them (data frames, Parquet, CSV), else None.
    column_names: tuple[str, ...] | None

    def read(self, start: int, stop: int) -> Array:
        """Rows `start:stop`, shape (stop - start, n_cols), in the source's dtype."""
        ...

    def close(self) -> None:
        """Release open files; reading afterwards is an error."""
        ...


class RowSource:
    """A `ViewSource` made of a function that fetches rows.

    Parameters
    ----------
    label : str
        What messages call the view.
    shape : tuple of int
        (n_rows, n_cols); both must be at least 1.
    dtype : numpy.dtype
        What `fetch` returns; must be real numbers.
    fetch : callable
        `fetch(start, stop)` returns the rows of a valid, non-empty range. Memory that belongs to
        the data must be read-only; fresh memory may be writable. CSR if `stored_bytes` is given.
    random_access : bool
        Whether every row costs the same.
    column_names : tuple of str, optional
        Names of the columns, if the data has them.
    release : callable, optional
        Closes what was opened for this source, never what the user passed.
    stored_bytes : int, optional
        Bytes of all rows if they are sparse; None if they are dense.
    """

    def __init__(
        self,
        label: str,
        *,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fetch: Callable[[int, int], Array],
        random_access: bool,
        column_names: tuple[str, ...] | None = None,
        release: Callable[[], None] | None = None,
        stored_bytes: int | None = None,
    ) -> None:
        check_shape(label, shape)
        check_dtype(label, dtype)
        self.n_rows, self.n_cols = (int(size) for size in shape)
        self.dtype = dtype.newbyteorder("=")
        self.sparse = stored_bytes is not None
        self.row_bytes = (
            self.n_cols * self.dtype.itemsize
            if stored_bytes is None
            else -(-stored_bytes // self.n_rows)
        )
        self.random_access = random_access
        self.column_names = column_names
        self._label = label
        self._fetch: Callable[[int, int], Array] | None = fetch
        self._release = release

    def read(self, start: int, stop: int) -> Array:
        """Rows `start:stop`, shape (stop - start, n_cols), in the source's dtype."""
        if self._fetch is None:
            raise InputError(f"{self._label} is closed. Open it again to read rows.")
        if not 0 <= start <= stop <= self.n_rows:
            raise InputError(
                f"{self._label} has {self.n_rows} rows: cannot read rows {start} to {stop}. "
                "Pass 0 <= start <= stop <= n_rows."
            )
        if self.sparse:
            if start == stop:
                return scipy.sparse.csr_array((0, self.n_cols), dtype=self.dtype)
            return self._fetch(start, stop)
        if start == stop:
            return np.empty((0, self.n_cols), dtype=self.dtype)
        # Copies only rows that are strided, byte-swapped or of an array subclass.
        return np.ascontiguousarray(self._fetch(start, stop), dtype=self.dtype)

    def close(self) -> None:
        """Release open files; reading afterwards is an error, closing again is not."""
        release, self._release, self._fetch = self._release, None, None
        if release is not None:
            release()


def read_only(rows: NDArray[Any]) -> NDArray[Any]:
    """The same memory as a plain array that is not writable."""
    plain = rows.view(np.ndarray)
    plain.flags.writeable = False
    return plain


def check_shape(label: str, shape: tuple[int, ...]) -> None:
    """Raise unless the shape is two-dimensional with at least one row and one column."""
    if len(shape) != 2:
        advice = (
            "Reshape your data with reshape(-1, 1) if it is a single feature "
            "or reshape(1, -1) if it is a single row."
            if len(shape) < 2
            else f"Reshape your data to one row per sample: reshape({shape[0]}, -1)."
        )
        raise InputError(
            f"{label}: Expected 2D array, got {len(shape)}D array instead (shape={shape}). {advice}"
        )
    for size, what in zip(shape, ("sample(s)", "feature(s)"), strict=True):
        if size < 1:
            raise InputError(
                f"{label}: Found array with {size} {what} (shape={shape}) "
                "while a minimum of 1 is required. Check how it was read or selected."
            )


def check_dtype(label: str, dtype: np.dtype[Any]) -> None:
    """Raise unless the dtype is boolean, integer or real floating point."""
    if dtype.kind in REAL_KINDS:
        return
    if dtype.kind == "c":
        raise InputTypeError(
            f"{label}: Complex data not supported (dtype={dtype}). "
            "Pass the real and imaginary parts as separate columns."
        )
    if dtype.kind in "mM":
        raise InputTypeError(
            f"{label} has dtype {dtype}: dates and durations are not numbers. "
            "Convert them to features first, e.g. days since a date."
        )
    raise InputTypeError(
        f"{label} has dtype {dtype}: only real numbers can be used. "
        "Convert or encode it as numbers first."
    )


def describe_cell(row: int, column: int, column_names: Sequence[str] | None) -> str:
    """The position of a value in a view, for a message: "row 7, column 3 ('age')"."""
    named = "" if column_names is None else f" ({column_names[column]!r})"
    return f"row {row}, column {column}{named}"


def plural(count: int, noun: str) -> str:
    """A count and its noun, for a message: "1 row", "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def common_dtype(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """One dtype for all columns: theirs if they agree, else the smallest float that holds them."""
    distinct = set(dtypes)
    if len(distinct) == 1:
        return distinct.pop()
    fits = all(np.can_cast(dtype, np.float32) for dtype in distinct)
    return np.dtype(np.float32 if fits else np.float64)


@contextmanager
def wrap_parse_errors(label: str, file_format: str) -> Iterator[None]:
    """Turn whatever a parser raises into `SourceFormatError`."""
    try:
        yield
    except (KnoiError, MemoryError):
        raise
    except Exception as error:
        # Damaged files raise anything: struct.error, KeyError, zlib.error, RecursionError,
        # UnicodeDecodeError, ... The cause stays attached.
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise SourceFormatError(
            f"{label} cannot be read as {file_format}: {reason}. The file is damaged, incomplete, "
            "locked or not of this format. Copy or write it again."
        ) from error


def choose(label: str, what: str, names: Iterable[str], selector: str | None) -> str:
    """The member of a file that `selector` names; without a selector, the only member."""
    available = list(names)
    if selector is None:
        if len(available) == 1:
            return available[0]
        if not available:
            raise SourceFormatError(f"{label} has no {what}. Pass a file that has one.")
        raise SourceFormatError(
            f"{label} has {len(available)} {what}s. Select one with PATH:NAME. "
            f"Available: {listing(available)}."
        )
    if selector not in available:
        raise unknown_name(label, what, selector, available)
    return selector


def choose_columns(label: str, names: Sequence[str], selector: str) -> list[str]:
    """The columns that a comma-separated `selector` names."""
    # A name may contain a comma.
    wanted = [selector] if selector in names else [part.strip() for part in selector.split(",")]
    for name in wanted:
        if name not in names:
            raise unknown_name(label, "column", name, names)
        check_unique(label, names, name)
    return wanted


def reject_selector(label: str, what: str, selector: str | None) -> None:
    """Raise if a selector was given for a file that holds a single array."""
    if selector is not None:
        raise SourceFormatError(
            f"{label}: {what}, so {selector!r} cannot be selected. Remove ':{selector}'."
        )


def check_unique(label: str, names: Sequence[str], name: str) -> None:
    """Raise if several columns have the same name."""
    if names.count(name) > 1:
        raise SourceFormatError(
            f"{label} has {names.count(name)} columns called {name!r}. "
            "Rename them, or select others with PATH:a,b."
        )


def unknown_name(
    label: str, what: str, selector: str, available: Iterable[str]
) -> SourceFormatError:
    """The error for a name that the file does not have."""
    names = list(available)
    advice = f"Available: {listing(names)}." if names else f"The file has no {what}."
    return SourceFormatError(f"{label} has no {what} {selector!r}. {advice}")


def listing(names: Iterable[str]) -> str:
    """Quoted names for a message, shortened if there are many."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _LISTED
    return ", ".join(quoted[:_LISTED]) + (f" and {more} more" if more > 0 else "")
