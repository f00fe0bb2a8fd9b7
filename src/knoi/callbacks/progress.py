"""One line that tells how the fit is going: rate, time left, current correlation."""

import shutil
import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TextIO

from knoi.solvers.loop import Run
from knoi.solvers.rule import Outcome

# Seconds between updates of the line on a terminal, and between lines in a log.
_TERMINAL_SECONDS = 0.5
_LOG_SECONDS = 10.0


@dataclass
class Progress:
    """Writes a line that renews itself on a terminal, and a plain line now and then elsewhere.

    Parameters
    ----------
    n_components : int
        What the total correlation is out of.
    samples_in_all : int or None
        Samples the run will have seen at its end, if that is known.
    stream : file
        Where to write; the line renews itself if it is a terminal.
    method : str
        What the line begins with.
    """

    n_components: int
    samples_in_all: int | None
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    method: str = "KNOI"
    _written: float = field(default=-float("inf"), init=False)
    _began: tuple[float, int] | None = field(default=None, init=False)
    _width: int = field(default=0, init=False)

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """Write if it is time to."""
        now = monotonic()
        if self._began is None:
            self._began = now, run.weights.samples
        if outcome.undone:
            self._write(
                f"step {run.weights.steps}: the views fell apart; step undone, learning rate "
                f"halved to {outcome.learning_rate / 2:.3g}",
                lasting=True,
            )
        pause = _TERMINAL_SECONDS if self.stream.isatty() else _LOG_SECONDS
        if now - self._written >= pause:
            self._written = now
            self._write(self._line(run, outcome, now))
        return run

    def end(self, run: Run) -> None:
        """Write the last line, which stays."""
        held_out = [] if run.best is None else [f"held out {run.best.held_out:.2f}"]
        why = [] if run.stopped is None else [run.stopped]
        facts = [f"{run.weights.samples:,} samples in {_clock(run.seconds)}", *held_out, *why]
        self._write("  ".join([self.method, *facts]), lasting=True)

    def close(self) -> None:
        """End a line that was to be renewed, so that what comes next has one of its own."""
        if self._width:
            self.stream.write("\n")
            self.stream.flush()
            self._width = 0

    def _line(self, run: Run, outcome: Outcome, now: float) -> str:
        began, samples = self._began or (now, 0)
        seen = run.weights.samples
        rate = (seen - samples) / max(now - began, 1e-9)
        # The position is that of the next minibatch: after the last of an epoch, the next epoch's.
        epoch = max(1, run.position.epoch + (run.position.batch > 0))
        facts = [f"epoch {epoch}", f"{seen:,} samples"]
        if rate > 0:
            facts.append(f"{rate:,.0f}/s")
            if self.samples_in_all is not None:
                left = max(0, self.samples_in_all - seen) / rate
                facts.append(f"{seen / self.samples_in_all:.0%}, {_clock(left)} left")
        facts.append(f"correlation {outcome.correlation:.2f} of {self.n_components}")
        held_out = [record["held_out"] for record in run.history if not record["undone"]]
        if held_out and held_out[-1] == held_out[-1]:
            facts.append(f"held out {held_out[-1]:.2f}")
        return "  ".join([self.method, *facts])

    def _write(self, line: str, *, lasting: bool = False) -> None:
        if self.stream.isatty():
            if not lasting:
                line = _narrowed(line, shutil.get_terminal_size().columns - 1)
            self.stream.write("\r" + line.ljust(self._width) + ("\n" if lasting else ""))
            self._width = 0 if lasting else len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()


def wants_progress(verbose: Any, stream: TextIO) -> bool:
    """Whether to show progress: as told, or by default on terminals only."""
    return stream.isatty() if verbose is None else bool(verbose)


def _narrowed(line: str, width: int) -> str:
    """A line without as many of its first facts as it takes to fit; the last are of most use.

    One that the terminal breaks could not be renewed: only its last part would be.
    """
    name, *facts = line.split("  ")
    while len(facts) > 1 and len("  ".join([name, *facts])) > width:
        del facts[0]
    return "  ".join([name, *facts])[:width]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
