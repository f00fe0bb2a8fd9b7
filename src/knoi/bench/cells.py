"""Results of a benchmark, one JSON file a cell: what is there is not computed again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from knoi.bench.origin import origin
from knoi.exceptions import SourceFormatError
from knoi.fileio import atomic_write_text


class Cells:
    """A folder of cells, each under its key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def stored(self, key: str) -> dict[str, Any] | None:
        """The cell under `key`; None if it has not been computed."""
        file = self._file(key)
        return _read(file) if file.exists() else None

    def all(self) -> list[dict[str, Any]]:
        """All cells that are stored, in the order of their keys."""
        return [_read(file) for file in sorted(self.folder.glob("*.json"))]

    def store(self, key: str, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Write a cell, whole or not at all, with where it was made."""
        whole = {**cell, "origin": origin()}
        write_json(self._file(key), whole)
        return whole

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def write_json(file: Path, content: Any) -> None:
    """Write a file, whole or not at all, readable by all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(file, json.dumps(content, indent=1, sort_keys=True) + "\n")


def _read(file: Path) -> dict[str, Any]:
    try:
        cell: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise SourceFormatError(
            f"{file} is not a result of this benchmark ({error}). Remove it to compute it again."
        ) from None
    return cell
