"""The rows of a CSV file as Arrow batches, in order, a block of text at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knoi.data.csv_head import MISSING, Head, is_gzip
from knoi.data.optional import require

# A block of few rows has little to do for each column and as much to prepare: with many columns it
# is larger. Arrow reads some thirty blocks ahead, so within reason. A block must hold a whole row,
# and no number is longer than this.
_BLOCK_ROWS = 64
_BLOCK_BYTES = (2**20, 4 * 2**20)
_NUMBER_BYTES = 64


@dataclass(frozen=True)
class CsvText:
    """The chosen columns of a CSV file.

    Columns go by their position, as text, so that names may be absent or there twice.
    """

    path: Path
    head: Head
    columns: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the chosen columns, where the file has a header."""
        names = self.head.names
        return None if names is None else tuple(names[column] for column in self.columns)

    @contextmanager
    def batches(
        self, kind: Any, on_ragged: Callable[[Any], str] | None = None, *, threads: bool = True
    ) -> Iterator[Any]:
        """Batches of the chosen columns, each once, all of one Arrow type.

        `on_ragged` is told of a row with too few or too many values; it knows the number of that
        row only without threads.
        """
        pa = require("pyarrow", "io", "reading CSV")
        csv = require("pyarrow.csv", "io", "reading CSV")
        head = self.head
        chosen = [str(column) for column in dict.fromkeys(self.columns)]
        smallest, largest = _BLOCK_BYTES
        with (
            pa.input_stream(
                str(self.path), compression="gzip" if is_gzip(self.path) else None
            ) as stream,
            csv.open_csv(
                stream,
                read_options=csv.ReadOptions(
                    use_threads=threads,
                    block_size=max(
                        min(max(smallest, _BLOCK_ROWS * head.n_characters), largest),
                        _NUMBER_BYTES * head.n_cols + 4 * head.n_characters,
                    ),
                    skip_rows=head.n_skipped,
                    column_names=[str(column) for column in range(head.n_cols)],
                ),
                parse_options=csv.ParseOptions(
                    delimiter=head.delimiter,
                    # In a single column an empty line is a value that is missing.
                    ignore_empty_lines=head.n_cols > 1,
                    invalid_row_handler=on_ragged,
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(chosen, kind),
                    include_columns=chosen,
                    null_values=list(MISSING),
                    check_utf8=False,
                ),
            ) as reader,
        ):
            yield reader
