"""Damaged files: whatever a format's parser raises becomes one clear error."""

from collections.abc import Iterator
from contextlib import contextmanager

from knoi.exceptions import KnoiError, SourceFormatError


@contextmanager
def damage_reported(label: str, file_format: str) -> Iterator[None]:
    """Turn failures to parse a file into `SourceFormatError`."""
    try:
        yield
    except (KnoiError, MemoryError):
        raise
    except Exception as error:
        # Everything, because a damaged file fails in any way: struct.error, KeyError, zlib.error,
        # RecursionError, UnicodeDecodeError, ... The cause stays attached.
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise SourceFormatError(
            f"{label} cannot be read as {file_format}: {reason}. The file is damaged, incomplete, "
            "locked or not of this format: copy or write it again."
        ) from error
