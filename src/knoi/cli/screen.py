"""What is shown: results on stdout, progress and remarks on stderr, colour on terminals only."""

import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text


def examples(*commands: str) -> str:
    """Command lines to be shown under the help of a command."""
    # A paragraph each: some versions of typer join the lines of a paragraph.
    shown = (command.replace("[", r"\[") for command in commands)
    return "\n\n".join(["[bold]Examples[/bold]", *shown])


def paragraphs(text: str | None) -> str:
    """A docstring as help is written: a line a paragraph, broken where the screen ends."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def results(quiet: bool = False) -> Console:
    """Where results go."""
    return Console(quiet=quiet, highlight=False)


def remarks(quiet: bool = False) -> Console:
    """Where everything else goes, so that results can be piped."""
    return Console(stderr=True, quiet=quiet, highlight=False)


def say(console: Console, *lines: str) -> None:
    """Lines as they are: no markup is read into them, none is broken."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def table(*columns: str, title: str | None = None, caption: str | None = None) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(
        title=title,
        caption=caption,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for index, name in enumerate(columns):
        made.add_column(name, justify="right" if index else "left", overflow="fold")
    return made


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Names and what they are."""
    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in facts:
        made.add_row(Text(name), Text(value))
    return made


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document; what is no number (NaN) is null."""
    sys.stdout.write(json.dumps(plain(document), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, NaN as null, what it does not know as text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


@contextmanager
def stepping(console: Console, n_steps: int) -> Iterator[Callable[[str], None]]:
    """Yield what to call with each step: a bar on a terminal, plain lines elsewhere."""
    done = 0
    if not console.is_terminal:

        def tell(step: str) -> None:
            nonlocal done
            done += 1
            say(console, f"[{done}/{n_steps}] {step}")
            console.file.flush()

        yield tell
        return

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task("", total=n_steps)

        def advance(step: str) -> None:
            nonlocal done
            bar.update(task, description=step, completed=done)
            done += 1

        yield advance


@contextmanager
def counting_rows(
    console: Console, what: str, n_rows: int | None, then: str = ""
) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the rows done so far: a bar with rate and time left on a terminal.

    Parameters
    ----------
    console : Console
    what : str
        A line that is shown first, and stays.
    n_rows : int or None
        Rows in all; None where nobody will tell how many are done.
    then : str
        What goes on once all rows are done.
    """
    say(console, what)
    columns = (SpinnerColumn(finished_text="⠿"), BarColumn(), _RowsLeft(then))
    shown = console.is_terminal and not console.quiet
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=n_rows)
        yield lambda rows: bar.update(task, completed=rows)


class _RowsLeft(ProgressColumn):
    """Time spent, rows done, rows a second, time left."""

    def __init__(self, then: str) -> None:
        super().__init__()
        self._then, self._began = then, monotonic()

    def render(self, task: Task) -> Text:
        # rich's own clock stops with the rows; what comes then takes time, too.
        facts = [clock(monotonic() - self._began)]
        done = task.total is None or task.completed >= task.total
        if task.total is not None:
            facts.append(f"{task.completed:,.0f} of {task.total:,.0f} rows")
        if done and self._then:
            facts.append(self._then)
        if not done and task.speed is not None:
            facts.append(f"{task.speed:,.0f}/s")
        if not done and task.time_remaining is not None:
            facts.append(f"{clock(task.time_remaining)} left")
        return Text("  ".join(facts))


def clock(seconds: float) -> str:
    """A duration for people: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
