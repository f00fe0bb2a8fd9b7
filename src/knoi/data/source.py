"""One view as a table of numbers: read by rows, checked, in sets of rows.

`label` is what error messages call the view: its name, and its path if it has one. Some phrases
are scikit-learn's, word for word, because its estimator checks look for them.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, available_ram
from knoi.arrays.sparse import is_sparse, stack, stored_position
from knoi.exceptions import (
    InputError,
    InputTypeError,
    KnoiError,
    MemoryBudgetError,
    NonFiniteError,
    SourceFormatError,
)

Rows = NDArray[np.int64]

REAL_KINDS = "biuf"
# The search for the first value that is not finite reads this many bytes at a time.
_SEARCH_BYTES = 2**24
# Rows of a file with at most this many bytes between them are read at once: a disk reads so far
# ahead anyway. Such a read has at most so many bytes.
_GAP_BYTES = 2**17
_SPAN_BYTES = 2**20
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
    # True if every row costs the same (an array in memory); False if `read` should be called on
    # long runs in order (a file, a frame that is converted).
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

    `fetch(start, stop)` returns the rows of a valid, non-empty range. Memory that belongs to the
    data must be read-only; fresh memory may be writable. Rows are CSR if `stored_bytes`, the bytes
    of all rows, is given. `release` closes what was opened for this source. `tensor` is the whole
    table where it is, if that is a torch device other than the CPU.
    """

    def __init__(
        self,
        label: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fetch: Callable[[int, int], Array],
        *,
        random_access: bool = False,
        column_names: tuple[str, ...] | None = None,
        release: Callable[[], None] | None = None,
        stored_bytes: int | None = None,
        tensor: Any = None,
    ) -> None:
        check_shape(label, shape)
        check_dtype(label, dtype)
        self.n_rows, self.n_cols = (int(size) for size in shape)
        self.dtype = dtype.newbyteorder("=")
        self.sparse = stored_bytes is not None
        dense_row = self.n_cols * dtype.itemsize
        self.row_bytes = dense_row if stored_bytes is None else -(-stored_bytes // self.n_rows)
        self.random_access = random_access
        self.column_names = column_names
        self.tensor = tensor
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
        if start == stop:
            empty = scipy.sparse.csr_array if self.sparse else np.empty
            return empty((0, self.n_cols), dtype=self.dtype)
        if self.sparse:
            return self._fetch(start, stop)
        # Copies only rows that are strided, byte-swapped or of an array subclass.
        return np.ascontiguousarray(self._fetch(start, stop), dtype=self.dtype)

    def storage(self) -> Array | None:
        """All rows as one array in memory, in any layout and byte order, if the data is that."""
        if not self.random_access or self._fetch is None:
            return None
        known = self.sparse or shares_memory(self._fetch, self.n_rows)
        return self._fetch(0, self.n_rows) if known else None

    def close(self) -> None:
        """Release open files; reading afterwards is an error, closing again is not."""
        release, self._release, self._fetch = self._release, None, None
        if release is not None:
            release()


def array_source(
    rows: NDArray[Any],
    label: str,
    *,
    random_access: bool = False,
    column_names: tuple[str, ...] | None = None,
) -> RowSource:
    """An array of numbers as a source: what it reads are read-only views of the array."""
    table = read_only(rows)
    return RowSource(
        label,
        table.shape,
        table.dtype,
        lambda start, stop: table[start:stop],
        random_access=random_access,
        column_names=column_names,
    )


def read_only(rows: NDArray[Any]) -> NDArray[Any]:
    """The same memory as a plain array that is not writable."""
    plain = rows.view(np.ndarray)
    plain.flags.writeable = False
    return plain


def check_shape(label: str, shape: tuple[int, ...]) -> None:
    """Raise unless the shape is (n, d) with n, d >= 1."""
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
    raise InputTypeError(
        f"{label} has dtype {dtype}: only real numbers can be used. Convert or encode it as "
        "numbers first, dates e.g. as days since a date."
    )


def check_fits(label: str, what: str, n_bytes: int, remedy: str) -> None:
    """Raise if data that is read whole does not fit in memory."""
    free = available_ram()
    if n_bytes > free:
        raise MemoryBudgetError(
            f"{label} is {what} that takes {n_bytes / 2**20:.0f} MiB in memory, but only "
            f"{free / 2**20:.0f} MiB are free. {remedy}"
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


def choose(
    label: str,
    what: str,
    names: Iterable[str],
    selector: str | None,
    described: Iterable[str] | None = None,
) -> str:
    """The member of a file that `selector` names; without a selector, the only member.

    Messages list the names, or what is `described` instead.
    """
    available = list(names)
    if selector is None and len(available) == 1:
        return available[0]
    if selector in available:
        return selector
    if not available:
        raise SourceFormatError(f"{label} has no {what}. Pass a file that has one.")
    asked = (
        f"{len(available)} {what}s. Select one with PATH:NAME"
        if selector is None
        else f"no {what} {selector!r}"
    )
    raise SourceFormatError(f"{label} has {asked}. Available: {listing(described or available)}.")


def choose_columns(label: str, names: Sequence[str], selector: str) -> list[str]:
    """The columns that a comma-separated `selector` names."""
    # A name may contain a comma.
    wanted = [selector] if selector in names else [part.strip() for part in selector.split(",")]
    for name in wanted:
        choose(label, "column", names, name)
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


def listing(names: Iterable[str]) -> str:
    """Quoted names for a message, shortened if there are many."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _LISTED
    return ", ".join(quoted[:_LISTED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, eq=False)
class RowRuns:
    """A set of rows of a table: sorted, disjoint runs `starts[k]:stops[k]`, none adjacent.

    Row i *of the set* is the i-th row in sorted order.
    """

    starts: Rows  # (k,)
    stops: Rows  # (k,)
    # offsets[k] is the number of rows before run k; the last entry is the number of rows.
    offsets: Rows = field(init=False, repr=False)  # (k + 1,)

    def __post_init__(self) -> None:
        offsets = np.zeros(len(self.starts) + 1, dtype=np.int64)
        np.cumsum(self.stops - self.starts, out=offsets[1:])
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def whole(cls, n_rows: int) -> Self:
        """All rows of a table."""
        return cls(np.array([0], dtype=np.int64), np.array([n_rows], dtype=np.int64))

    @classmethod
    def joined(cls, starts: Rows, stops: Rows) -> Self:
        """Sorted, disjoint runs, some of which may be adjacent or empty."""
        filled = stops > starts
        starts, stops = starts[filled], stops[filled]
        apart = starts[1:] != stops[:-1]
        begins, ends = np.append(True, apart), np.append(apart, True)
        return cls(starts[begins[: len(starts)]], stops[ends[: len(stops)]])

    @classmethod
    def from_rows(cls, rows: Rows) -> Self:
        """Distinct row numbers, sorted."""
        return cls.joined(rows, rows + 1)

    @property
    def n_rows(self) -> int:
        """Number of rows in the set."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self) -> Rows:
        """All row numbers, sorted; 8 bytes per row."""
        return self.locate(np.arange(self.n_rows, dtype=np.int64))

    def locate(self, members: Rows) -> Rows:
        """Table rows of the given rows of the set, in the order given."""
        run = np.searchsorted(self.offsets, members, side="right") - 1
        located: Rows = self.starts[run] + (members - self.offsets[run])
        return located

    def spans(self, gap: int, most: int) -> "Iterator[RowRuns]":
        """The set in parts: runs at most `gap` rows apart, in all at most `most` rows long."""
        first = 0
        for last in range(1, len(self) + 1):
            if (
                last == len(self)
                or self.starts[last] - self.stops[last - 1] > gap
                or self.stops[last] - self.starts[first] > most
            ):
                yield RowRuns(self.starts[first:last], self.stops[first:last])
                first = last

    def part(self, start: int, stop: int) -> "RowRuns":
        """Rows `start:stop` of the set."""
        if stop <= start:
            return RowRuns(self.starts[:0], self.stops[:0])
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        last = int(np.searchsorted(self.offsets, stop, side="left"))
        starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
        starts[0] += start - self.offsets[first]
        stops[-1] -= self.offsets[last] - stop
        return RowRuns(starts, stops)

    def select(self, members: "RowRuns") -> "RowRuns":
        """A subset, given as rows of this set, as rows of the table."""
        # The runs of `members` are split wherever a run of this set ends inside them.
        run = np.searchsorted(members.starts, self.offsets, side="right") - 1
        inside = (run >= 0) & (self.offsets < members.stops[np.maximum(run, 0)])
        splits = np.union1d(members.starts, self.offsets[inside])
        ends: Rows = np.minimum(
            members.stops[np.searchsorted(members.starts, splits, side="right") - 1],
            self.offsets[np.searchsorted(self.offsets, splits, side="right")],
        )
        starts = self.locate(splits)
        return RowRuns.joined(starts, starts + (ends - splits))

    def complement(self, n_rows: int) -> "RowRuns":
        """The other rows of a table of `n_rows` rows."""
        starts = np.concatenate([[0], self.stops], dtype=np.int64)
        stops = np.concatenate([self.starts, [n_rows]], dtype=np.int64)
        return RowRuns.joined(starts, stops)


def random_runs(n_rows: int, count: int, run_rows: int, rng: np.random.Generator) -> RowRuns:
    """Exactly `count` rows of `n_rows`, in random runs of `run_rows` rows.

    Every row has the same chance, the first and the last included: the runs are placed on a ring
    (all ways to do so are equally likely), which is then cut open at a random place. `run_rows=1`
    draws a uniform set of rows.
    """
    lengths = np.full(-(-count // run_rows), run_rows, dtype=np.int64)
    # The short run can be the last, because the ring is cut at random.
    lengths[-1] = count - run_rows * (len(lengths) - 1)
    # k runs among the free rows: shrink each run to one slot, draw k slots, expand them again.
    slots = rng.choice(n_rows - count + len(lengths), len(lengths), replace=False, shuffle=False)
    slots.sort()
    before = np.cumsum(lengths) - lengths
    starts = (slots - np.arange(len(lengths)) + before + rng.integers(n_rows)) % n_rows
    stops = starts + lengths
    # At most one run crosses the cut: it becomes the end and the beginning of the table.
    spill = np.maximum(stops - n_rows, 0)
    order = np.argsort(starts)
    return RowRuns.joined(
        np.concatenate([[0], starts[order]], dtype=np.int64),
        np.concatenate([[spill.max()], np.minimum(stops[order], n_rows)], dtype=np.int64),
    )


class CheckedView:
    """A `ViewSource` whose rows are checked to be finite, with its name ("X" or "Y") for messages.

    Threads may read at the same time: the source itself is called by one of them at a time.

    A tensor on a device may stay there (`stay_near`): computations take its rows where they are,
    everything else downloads what it reads. Or it is downloaded once (`download`). With neither it
    is read like a file.
    """

    def __init__(self, source: ViewSource, name: str) -> None:
        self.source = source
        self.name = name
        self.reading = threading.Lock()  # held while the source reads
        self.near = False  # whether the view is a tensor that stays on its device
        self._tensor: Array = getattr(source, "tensor", None)
        self._table = _storage(source) if self._tensor is None else None

    @property
    def indexable(self) -> bool:
        """True if `take` costs no more than copying the rows: the view is an array in memory."""
        return self._table is not None or self.near

    @property
    def bytes_elsewhere(self) -> int:
        """Bytes of a tensor that is on a device and does not stay there; otherwise 0."""
        elsewhere = self._tensor is not None and not self.near
        return self.source.n_rows * self.source.row_bytes if elsewhere else 0

    def stay_near(self, backend: Backend) -> None:
        """Leave a tensor where it is if that is the device of the backend.

        All its values are checked here: a check of every minibatch would wait for the device.
        """
        if self.near or not backend.holds(self._tensor):
            return
        xp, rows = array_namespace(self._tensor), max(1, _SEARCH_BYTES // self.source.row_bytes)
        starts = range(0, self.source.n_rows, rows)
        finite = [xp.all(xp.isfinite(self._tensor[start : start + rows])) for start in starts]
        for start, one in zip(starts, xp.stack(finite).cpu().tolist(), strict=True):
            if not one:
                self.read(start, min(start + rows, self.source.n_rows))  # raises, with the cell
        self.near = True

    def download(self) -> None:
        """Copy a tensor on a device to main memory, once for all reads."""
        if self.bytes_elsewhere:
            rows = self.source.read(0, self.source.n_rows)
            self.source = array_source(rows, self.name, random_access=True)
            self._table, self._tensor = _storage(self.source), None

    def bytes_on(self, backend: Backend) -> int:
        """Bytes per row as an array of `backend`, in its precision."""
        if self.source.sparse and backend.is_numpy:
            # An upper bound: the values may need a wider dtype, the indices do not.
            grown = max(1.0, backend.itemsize / self.source.dtype.itemsize)
            return int(self.source.row_bytes * grown)
        return self.source.n_cols * backend.itemsize

    def read(self, start: int, stop: int, *, near: bool = False) -> Array:
        """Rows `start:stop`; may be a read-only view of the source's memory.

        With `near`, rows of a tensor that stays on its device are left there.
        """
        if near and self.near:
            return self._tensor[start:stop]
        with self.reading:
            rows = self.source.read(start, stop)
        check_finite(rows, self.name, start, self.source.column_names)
        return rows

    def read_runs(self, runs: RowRuns, *, near: bool = False) -> Array:
        """The rows of a set, in order; runs that are close to each other are read at once."""
        if len(runs) == 1:
            return self.read(int(runs.starts[0]), int(runs.stops[0]), near=near)
        if near and self.near:
            return self._take_there(self._upload(runs.rows()))
        if self._table is not None or self._tensor is not None:
            return self.take(runs.rows())
        if not len(runs):
            return self.source.read(0, 0)
        row_bytes = self.source.row_bytes
        gap = 0 if self.source.random_access else _GAP_BYTES // row_bytes
        spans = runs.spans(gap, _SPAN_BYTES // row_bytes)
        if self.source.sparse:
            return stack([self._read_span(span) for span in spans])
        table, at = np.empty((runs.n_rows, self.source.n_cols), dtype=self.source.dtype), 0
        for span in spans:
            table[at : at + span.n_rows] = self._read_span(span)
            at += span.n_rows
        return table

    def _read_span(self, span: RowRuns) -> Array:
        """The rows of a set, with one read of all rows from the first to the last."""
        start, stop = int(span.starts[0]), int(span.stops[-1])
        if len(span) == 1:
            return self.read(start, stop)
        rows = span.rows()
        with self.reading:
            gathered = gather(self.source.read(start, stop), rows - start)
        # Of the rows between them, nothing is known: they may be left out because they are bad.
        check_finite(gathered, self.name, rows, self.source.column_names)
        return gathered

    def take(self, rows: Rows) -> Array:
        """The given rows, in the order given, in a fresh array."""
        if self._tensor is not None:
            # NumPy has no bfloat16: the source says which dtype holds its values.
            dtype = getattr(array_namespace(self._tensor), self.source.dtype.name)
            gathered = self._take_there(self._upload(rows)).to(dtype).cpu().numpy()
        elif self._table is None:
            distinct, index = np.unique(rows, return_inverse=True)
            return gather(self.read_runs(RowRuns.from_rows(distinct)), index)
        else:
            # The memory of an array may be in another byte order.
            gathered = gather(self._table, rows).astype(self.source.dtype, copy=False)
        check_finite(gathered, self.name, rows, self.source.column_names)
        return gathered

    def in_order(self, members: RowRuns, order: Rows) -> Callable[[slice], Array]:
        """A function that takes a part of `order`, the rows of a set in any order.

        Where the view stays near, so do the rows; their numbers are uploaded once, with the first.
        """
        if not self.near:
            return lambda part: self.take(members.locate(order[part]))
        there = cache(lambda: self._upload(members.locate(order)))
        return lambda part: self._take_there(there()[part])

    def _upload(self, rows: Rows) -> Array:
        return array_namespace(self._tensor).asarray(rows, device=self._tensor.device)

    def _take_there(self, rows: Array) -> Array:
        return array_namespace(self._tensor).take(self._tensor, rows, axis=0)


def gather(table: Array, rows: Rows) -> Array:
    """The given rows of a table, in the order given, in a fresh array."""
    if is_sparse(table):
        return table[rows]
    if table.flags.c_contiguous:
        return np.take(table, rows, axis=0)
    return np.ascontiguousarray(table[rows])  # `take` would copy the whole table first


def _storage(source: ViewSource) -> Array | None:
    """The source's own memory as one array, if it has one; nothing is copied to find out."""
    if isinstance(source, RowSource):
        return source.storage()
    if not source.random_access or source.sparse or not shares_memory(source.read, source.n_rows):
        return None
    return source.read(0, source.n_rows)


def shares_memory(fetch: Callable[[int, int], Array], n_rows: int) -> bool:
    """Whether rows are fetched as views of one array."""
    # The same rows fetched twice share memory only if it is the source's own. Two rows are fetched,
    # because one row of a strided table, which is copied on reading, is contiguous.
    first, again = (fetch(0, min(2, n_rows)) for _ in range(2))
    return np.may_share_memory(first, again)


def part_source(view: CheckedView, rows: RowRuns) -> RowSource:
    """Some rows of a view as a view that does not own it; errors name rows of the whole view."""
    source = view.source
    return RowSource(
        view.name,
        (rows.n_rows, source.n_cols),
        source.dtype,
        lambda start, stop: view.read_runs(rows.part(start, stop)),
        column_names=source.column_names,
        stored_bytes=source.row_bytes * rows.n_rows if source.sparse else None,
    )


def check_finite(
    rows: Array, name: str, numbers: int | Rows, column_names: Sequence[str] | None
) -> None:
    """Raise `NonFiniteError`, which names the first such cell, if a value is NaN or infinite.

    `numbers` are the row numbers in the view, of all rows or of the first of consecutive ones.
    """
    if _surely_finite(rows.data if is_sparse(rows) else rows):
        return
    values = rows.data if is_sparse(rows) else rows.reshape(-1)
    first = _first_not_finite(values)
    if first is None:
        return
    value = values[first]
    row, column = stored_position(rows, first) if is_sparse(rows) else divmod(first, rows.shape[1])
    number = numbers + row if isinstance(numbers, int) else int(numbers[row])
    wanted, remedy = "finite values", "clip the value (e.g. numpy.clip)"
    if np.isnan(value):
        wanted, remedy = "complete rows", "impute the value (e.g. sklearn.impute.SimpleImputer)"
    raise NonFiniteError(
        f"{name} has {'NaN' if np.isnan(value) else value} at "
        f"{describe_cell(number, column, column_names)}: CCA needs {wanted}. "
        f"Drop the row or {remedy} before fitting."
    )


def _first_not_finite(values: NDArray[Any]) -> int | None:
    step = _SEARCH_BYTES // values.itemsize
    for start in range(0, len(values), step):
        bad = ~np.isfinite(values[start : start + step])
        if bad.any():
            return start + int(bad.argmax())
    return None


def _surely_finite(values: NDArray[Any]) -> bool:
    if values.dtype.kind != "f":
        return True
    if values.dtype.char not in "fd":
        return False
    # A sum of squares is finite only if every value is, and BLAS computes it at the speed of
    # memory. The converse does not hold (large values overflow): then search.
    flat = values.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.dot(flat, flat)))
