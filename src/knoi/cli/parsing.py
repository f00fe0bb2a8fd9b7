"""What is typed as text: sizes, durations, pairs, lists, row numbers."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import typer

from knoi.arrays.blocks import parse_bytes
from knoi.exceptions import InputError

Value = TypeVar("Value")

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?")


def seconds(text: str) -> float:
    """A duration: 90, 90s, 10m, 1h30m."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = [0.0 if part is None else float(part) for part in match.groups()] if match else []
    total = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=bool(parts)))
    if not total:
        raise typer.BadParameter(f"{text!r} is not a duration. Wanted e.g. 90s, 10m or 1h30m.")
    return total


def memory_size(text: str) -> str:
    """A size in bytes, checked; the text itself is what estimators take."""
    try:
        parse_bytes(text)
    except InputError:
        raise typer.BadParameter(f"{text!r} is not a size. Wanted e.g. 500MB or 4GiB.") from None
    return text


def image_size(text: str) -> tuple[int, int]:
    """HEIGHTxWIDTH."""
    match = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    if match is None or 0 in (int(match[1]), int(match[2])):
        raise typer.BadParameter(f"{text!r} is no size. Wanted height x width, e.g. 28x14.")
    return int(match[1]), int(match[2])


def word(text: str) -> str:
    """A name."""
    if not text.strip():
        raise typer.BadParameter("it is empty. Give a name.")
    return text.strip()


def number_or(name: str) -> Callable[[str], Any]:
    """A number >= 0, or the one name that may stand for it."""

    def parse(text: str) -> Any:
        if text.strip() == name:
            return name
        return nonnegative(text, f"a number, or {name}")

    return parse


def nonnegative(text: str, wanted: str = "a number") -> float:
    """A finite number >= 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise typer.BadParameter(f"{text!r}: wanted {wanted}, at least 0.")
    return number


def pair_of(one: Callable[[str], Value]) -> Callable[[str], Any]:
    """One value for both views, or X:Y."""

    def parse(text: str) -> Any:
        parts = text.split(":")
        if len(parts) > 2:
            raise typer.BadParameter(
                f"{text!r} has {len(parts)} parts. Wanted one value, or two as X:Y."
            )
        values = [one(part) for part in parts]
        return values[0] if len(values) == 1 else (values[0], values[1])

    return parse


def list_of(one: Callable[[str], Value]) -> Callable[[str], Any]:
    """Values with commas between them."""

    def parse(text: str) -> list[Value]:
        return [one(part) for part in text.split(",")]

    return parse


def whole(text: str) -> int:
    """A whole number >= 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r}: wanted a whole number, at least 1.")
    return int(text)


def row_numbers(text: str) -> list[int]:
    """Row numbers from 0: 0,5,10-20, both ends of a range included."""
    rows: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise typer.BadParameter(
                f"{part!r} is no row number. Wanted numbers from 0 and ranges, e.g. 0,5,10-20."
            )
        first = int(match[1])
        rows.extend(range(first, (first if match[2] is None else int(match[2])) + 1))
    return list(dict.fromkeys(rows))


def held_out_part(text: str) -> int | float:
    """How much to hold out: a number of rows, or a part of them below 1; 0 for none."""
    number = nonnegative(text, "a part of the rows such as 0.1, or a number of them")
    if number < 1:
        return number
    if number != int(number):
        raise typer.BadParameter(
            f"{text!r}: wanted a part of the rows below 1, such as 0.1, or a whole number of them."
        )
    return int(number)


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON has it, or as a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"{text!r}: wanted NAME=VALUE, e.g. momentum=0.99.")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None if value.strip().lower() == "none" else value.strip()
    return name.strip(), tuple(parsed) if isinstance(parsed, list) else parsed


def per_view(value: Any) -> str:
    """A value, or a pair of them, as it is typed."""
    values = value if isinstance(value, list | tuple) else (value,)
    return ":".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in values)


@dataclass(frozen=True)
class Factor:
    """A width as a multiple of the median distance."""

    times: float


def width_or_factor(text: str) -> float | Factor:
    """A width: a number, a multiple of the median (0.5x), or the median itself."""
    stripped = text.strip()
    if stripped == "median":
        return Factor(1.0)
    factor = stripped.endswith("x")
    number = nonnegative(stripped.removesuffix("x"), "a number, or a multiple such as 0.5x")
    if number == 0:
        raise typer.BadParameter(f"{text!r}: wanted a width above 0.")
    return Factor(number) if factor else number
