"""What a command has to say to the report: what to show, checked before the long part."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knoi.cli.files import check_output
from knoi.cli.labels import read_labels
from knoi.data.optional import require
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA

Size = tuple[int, int]


def check_report(path: Path, inputs: Sequence[Path | None]) -> None:
    """Refuse a report that cannot be made, or not be written there."""
    check_output(path, "--report", inputs)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--report {path}: it is a web page. Give a name that ends in .html.")
    require("plotly", "report", "the report")


@dataclass(frozen=True)
class Shown:
    """What a report shows beside the model.

    Attributes
    ----------
    test : PairSource or None
        Pairs that were not fitted to.
    labels : array or None
        Of the rows shown: those of `test` if there are any, else of those fitted to.
    images : pair of sizes or None
        Height and width of the pictures that rows of X and of Y are.
    """

    test: "PairSource | None"
    labels: Any
    images: tuple[Size, Size] | None
    title: str | None
    seed: int

    @classmethod
    def checked(
        cls,
        pairs: "PairSource",
        test: "PairSource | None",
        *,
        held_out: bool,
        labels: Path | None,
        images: Sequence[Size],
        title: str | None,
        seed: int,
    ) -> "Shown":
        """Read the labels and check everything; `held_out` says that `test` is part of `pairs`."""
        of_rows = None
        if labels is not None and test is not None and held_out:
            # As many as X has: those of the rows held out are taken.
            of_rows = read_labels(labels, pairs.n_rows, "X")[test.row_numbers()]
        elif labels is not None and test is not None:
            of_rows = read_labels(labels, test.n_rows, "X of --test")
        elif labels is not None:
            of_rows = read_labels(labels, pairs.n_rows, "X")
        return cls(test, of_rows, _sizes(images, pairs.n_cols), title, seed)

    def write(
        self,
        path: Path,
        model: "BaseCCA",
        train: "PairSource",
        facts: Sequence[tuple[str, str]],
        command: str,
    ) -> None:
        """Make the report and write it whole."""
        from knoi.report import model_report

        X, Y = train.views()
        try:
            model_report(
                model,
                X,
                Y,
                test=None if self.test is None else self.test.views(),
                labels=self.labels,
                images=self.images,
                command=command,
                facts=facts,
                title=self.title,
                random_state=self.seed,
            ).write(path)
        except Exception as error:
            error.add_note("The model itself is there and whole; only the report failed.")
            raise


def _sizes(images: Sequence[Size], n_cols: tuple[int, int]) -> tuple[Size, Size] | None:
    if not images:
        return None
    if len(images) > 2:
        raise InputError(
            f"--images was given {len(images)} times. Give it once for both views, or twice."
        )
    x, y = images[0], images[-1]
    for name, (height, width), columns in zip("XY", (x, y), n_cols, strict=True):
        if height * width != columns:
            raise InputError(
                f"--images {height}x{width} is {height * width} pixels, but {name} has {columns} "
                "columns. Give height x width of a row's picture; twice, if X and Y differ."
            )
    return x, y
