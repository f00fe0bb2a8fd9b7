"""Every error knoi raises on purpose, in one tree, and its warnings.

KnoiError
├── InputError (ValueError)               data or a parameter that cannot be used as it came
│   ├── InputTypeError (TypeError)        ... because it is of the wrong kind altogether
│   └── NonFiniteError                    ... because a value is NaN or infinite
├── SourceNotFoundError (FileNotFoundError)   a path that is not there
├── SourceFormatError (ValueError)        a file that is there but cannot be read as what it claims
├── MemoryBudgetError (MemoryError)       the work does not fit the stated `memory_budget`
├── NotKeptError (AttributeError)         something that this fitted model does not hold
├── MissingExtraError (ImportError)       an optional dependency is needed; names the pip command
└── ModelFileError (ValueError)           a model file that is truncated, altered or foreign
    └── CheckpointError                   ... or a checkpoint that is of another run

InSampleWarning (UserWarning)             correlations of the training rows that mean nothing

Each message says what came, what was wanted and what to do.
"""

from importlib import import_module
from typing import Any


class KnoiError(Exception):
    """Root of the tree: `except KnoiError` catches whatever knoi refuses."""


class InputError(KnoiError, ValueError):
    """Data or a parameter cannot be used as it came."""


class InputTypeError(InputError, TypeError):
    """Data or a parameter is of the wrong kind altogether."""


class NonFiniteError(InputError):
    """A value is NaN or infinite; the message says in which view, row and column."""


class SourceNotFoundError(KnoiError, FileNotFoundError):
    """A path that is not there."""


class SourceFormatError(KnoiError, ValueError):
    """A file is there but cannot be read as what it claims to be."""


class MemoryBudgetError(KnoiError, MemoryError):
    """The work does not fit the stated memory budget."""


class NotKeptError(KnoiError, AttributeError):
    """A fitted model does not hold what was asked for; an AttributeError, so `hasattr` works."""


class MissingExtraError(KnoiError, ImportError):
    """An optional dependency is needed."""

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
    """A model file is truncated, altered, foreign or of a newer format."""


class CheckpointError(ModelFileError):
    """A checkpoint is of another run, or cannot be where it is wanted."""


class InSampleWarning(UserWarning):
    """A fit to so few rows that any two views, related or not, would agree perfectly on them."""
