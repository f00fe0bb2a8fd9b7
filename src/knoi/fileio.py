"""Atomic writes: a file appears under its name only once it is complete and on disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX, _SUFFIX = ".knoi-", ".tmp"


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces `path` if the block succeeds.

    The temporary file has the same name, in a new directory next to `path`. If the block raises (a
    KeyboardInterrupt included) the directory is removed, and an existing file at `path` stays as it
    was. A symbolic link stays a link: the file it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    directory = Path(tempfile.mkdtemp(_SUFFIX, _PREFIX, target.parent))
    try:
        temporary = directory / target.name
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def atomic_write_text(path: str | Path, text: str, *, errors: str = "strict") -> None:
    """Write `text` as UTF-8 to `path`, complete or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def remove_unfinished(directory: str | Path) -> None:
    """Remove what `atomic_write` left in a directory when its process was killed."""
    for path in Path(directory).glob(f"{_PREFIX}*{_SUFFIX}"):
        shutil.rmtree(path, ignore_errors=True)
