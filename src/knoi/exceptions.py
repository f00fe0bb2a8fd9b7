"""The errors and warnings of knoi.

KnoiError
├── InputError (ValueError)               invalid data or an invalid parameter
│   ├── InputTypeError (TypeError)        ... of the wrong type
│   ├── RankError                         more components than a view has directions
│   └── NonFiniteError                    ... that contains NaN or infinity
├── SourceNotFoundError (FileNotFoundError)   a path that does not exist
├── SourceFormatError (ValueError)        a file that cannot be read
├── MemoryBudgetError (MemoryError)       the work does not fit in `memory_budget`
├── NotKeptError (AttributeError)         an attribute that this model has not kept
├── MissingExtraError (ImportError)       a missing optional dependency
└── ModelFileError (ValueError)           a file that is damaged or not a model file
    └── CheckpointError                   ... or a checkpoint of another run

InSampleWarning (UserWarning)             meaningless correlations on training rows

Each message says what came, what was expected and what to do.
"""

from importlib import import_module
from typing import Any


class KnoiError(Exception):
    """Base class of all errors raised by knoi."""


class InputError(KnoiError, ValueError):
    """Invalid data or an invalid parameter."""


class InputTypeError(InputError, TypeError):
    """Data or a parameter of the wrong type."""


class RankError(InputError):
    """A view has fewer independent directions than `n_components`; it has `most`."""

    def __init__(self, message: str, most: int = 0) -> None:
        super().__init__(message)
        self.most = most


class NonFiniteError(InputError):
    """A value is NaN or infinite; the message says in which view, row and column."""


class SourceNotFoundError(KnoiError, FileNotFoundError):
    """A path does not exist."""


class SourceFormatError(KnoiError, ValueError):
    """A file exists but cannot be read in the format that its name says."""


class MemoryBudgetError(KnoiError, MemoryError):
    """The work does not fit in the memory budget."""


class NotKeptError(KnoiError, AttributeError):
    """A fitted model has not kept an attribute; an AttributeError, so that `hasattr` works."""


class MissingExtraError(KnoiError, ImportError):
    """An optional dependency is missing; the message has the pip command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed. Run: pip install 'knoi[{extra}]'"
        )


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional dependency, or raise `MissingExtraError` with the pip command."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], extra, purpose) from error


class ModelFileError(KnoiError, ValueError):
    """A file is truncated, altered, not a model file, or of a newer format."""


class CheckpointError(ModelFileError):
    """A checkpoint is of another run, or its directory cannot be used."""


class InSampleWarning(UserWarning):
    """A fit to so few rows that any two views, related or not, would correlate perfectly."""
