"""Atomic writes: a file appears under its name only once it is complete and on disk."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces `path` if the block succeeds.

    The temporary file is in the same directory and has the same suffix. If the block raises (a
    KeyboardInterrupt included) it is removed, and an existing file at `path` stays as it was. A
    symbolic link stays a link: the file it points to is replaced. Permissions are the usual ones
    of a new file.
    """
    target = Path(os.path.realpath(path))
    temporary = target.parent / f".knoi-{secrets.token_hex(8)}{target.suffix}"
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def atomic_write_text(path: str | Path, text: str, *, errors: str = "strict") -> None:
    """Write `text` as UTF-8 to `path`, complete or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)
