"""Optional libraries: recognised without being imported, imported only when they are needed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from knoi.exceptions import MissingExtraError


def require(module: str, extra: str, purpose: str) -> Any:
    """The imported `module`, or an error that names the pip command which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], extra, purpose) from error


def is_a(library: str, class_name: str) -> Callable[[Any], bool]:
    """Test for instances of a class of `library` that never imports the library."""

    def test(data: Any) -> bool:
        return any(
            base.__name__ == class_name and base.__module__.partition(".")[0] == library
            for base in type(data).__mro__
        )

    return test
