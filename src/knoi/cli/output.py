"""What is printed: results on stdout, progress and messages on stderr, colour on terminals only."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
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


class Interrupted(Exception):  # noqa: N818
    """A command was stopped. The message says what was saved and how to continue."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def examples(*commands: str) -> str:
    """Format command lines to show under the help of a command."""
    # A paragraph each: some versions of typer join the lines of a paragraph.
    shown = (command.replace("[", r"\[") for command in commands)
    return "\n\n".join(["[bold]Examples[/bold]", *shown])


def paragraphs(text: str | None) -> str:
    """Format a docstring as help text: one line per paragraph, wrapped by the terminal."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def results(quiet: bool = False) -> Console:
    """Return the console for results: stdout."""
    return Console(quiet=quiet, highlight=False)


def messages(quiet: bool = False) -> Console:
    """Return the console for everything else: stderr, so that results can be piped."""
    return Console(stderr=True, quiet=quiet, highlight=False)


def say(console: Console, *lines: str) -> None:
    """Print lines as they are: no markup, no wrapping."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def one_line(text: str) -> str:
    """Return a text of the data without anything that could move the cursor of a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def table(*columns: str, title: str | None = None, caption: str | None = None) -> Table:
    """Create a table whose first column is text and whose others are numbers."""
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
    """Create a table of names and values, without borders."""
    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in facts:
        made.add_row(Text(name), Text(value))
    return made


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document: arrays as lists, NaN as null, other objects as text."""
    text = json.dumps(document, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))
    finite = json.loads(text, parse_constant=lambda _: None)
    print(json.dumps(finite, indent=2), flush=True)


@contextmanager
def show_steps(console: Console, n_steps: int) -> Iterator[Callable[[str], None]]:
    """Show steps, a bar on a terminal and lines elsewhere; call what it yields as each begins."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    done = 0
    with _progress(console, *columns) as bar:
        task = bar.add_task("", total=n_steps)

        def begin(step: str) -> None:
            nonlocal done
            bar.update(task, description=step, completed=done)
            done += 1
            if not console.is_terminal:
                say(console, f"[{done}/{n_steps}] {step}")
                console.file.flush()

        yield begin


@contextmanager
def show_rows(
    console: Console, what: str, n_rows: int | None, then: str = ""
) -> Iterator[Callable[[int], None]]:
    """Print `what`, and show how many rows are done; call what it yields with that number.

    `n_rows` is None if it is not known; `then` is shown while work continues after the last row.
    """
    say(console, what)
    columns = (SpinnerColumn(finished_text="⠿"), BarColumn(), _RowsLeft(then))
    with _progress(console, *columns) as bar:
        task = bar.add_task("", total=n_rows)
        yield lambda rows: bar.update(task, completed=rows)


def _progress(console: Console, *columns: ProgressColumn) -> Progress:
    hidden = console.quiet or not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden)


class _RowsLeft(ProgressColumn):
    """Time spent, rows done, rows per second, time left."""

    def __init__(self, then: str) -> None:
        super().__init__()
        self._then, self._began = then, monotonic()

    def render(self, task: Task) -> Text:
        # rich's own clock stops with the last row, but what follows takes time, too.
        facts = [clock(monotonic() - self._began)]
        if task.total is not None:
            facts.append(f"{task.completed:,.0f} of {task.total:,.0f} rows")
        if task.total is None or task.completed >= task.total:
            facts.append(self._then)
        elif task.speed:
            facts += [f"{task.speed:,.0f}/s", f"{clock(task.time_remaining or 0)} left"]
        return Text("  ".join(facts))


def clock(seconds: float) -> str:
    """Format a duration: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
