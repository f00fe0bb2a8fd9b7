"""Parts of a file that holds several: which ones a selector means, and what else there is."""

from collections.abc import Iterable, Sequence

from knoi.exceptions import SourceFormatError

_LISTED = 20


def choose(label: str, what: str, names: Iterable[str], selector: str | None) -> str:
    """The name that `selector` means; without a selector, the only name there is."""
    available = list(names)
    if selector is None:
        if len(available) == 1:
            return available[0]
        if not available:
            raise SourceFormatError(f"{label} holds no {what}: point to a file that holds one.")
        raise SourceFormatError(
            f"{label} holds {len(available)} {what}s: say which one by PATH:NAME. "
            f"There are: {listing(available)}."
        )
    if selector not in available:
        raise nothing_called(label, what, selector, available)
    return selector


def choose_columns(label: str, names: Sequence[str], selector: str) -> list[str]:
    """The columns that a comma-separated `selector` means, each of which must be there once."""
    # A name may itself hold a comma.
    wanted = [selector] if selector in names else [part.strip() for part in selector.split(",")]
    for name in wanted:
        if name not in names:
            raise nothing_called(label, "column", name, names)
        refuse_twice(label, names, name)
    return wanted


def refuse_twice(label: str, names: Sequence[str], name: str) -> None:
    """A column that is to be found by its name must be the only one of it."""
    if names.count(name) > 1:
        raise SourceFormatError(
            f"{label} has {names.count(name)} columns called {name!r}: "
            "rename them or select others by PATH:a,b."
        )


def nothing_called(
    label: str, what: str, selector: str, available: Iterable[str]
) -> SourceFormatError:
    """The error for a name that is not in the file."""
    names = list(available)
    there = f"There are: {listing(names)}." if names else f"It holds no {what} at all."
    return SourceFormatError(f"{label} has no {what} {selector!r}. {there}")


def listing(names: Iterable[str]) -> str:
    """Names for a message, shortened where they are many."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _LISTED
    return ", ".join(quoted[:_LISTED]) + (f" and {more} more" if more > 0 else "")
