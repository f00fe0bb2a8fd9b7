"""Tables of docs/speech.md: error rates beside the paper's, paired differences, correlations.

A difference of error rates is that of two methods on the same utterances, and its standard error is
that of a bootstrap which draws utterances together. It says nothing about other speakers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.harness import Cells
from benchmarks.paper import speech
from benchmarks.paper.speech import chosen
from benchmarks.speech.methods import METHODS, MOST
from benchmarks.speech.protocols import VARIANTS
from benchmarks.speech.recogniser import Errors
from benchmarks.tables import NO_VALUE, Cell, by_numbers, cells_of, closing_line, settings, table

COMMAND = "benchmarks.paper.speech"
NOT_MEASURED = "Not measured yet.\n"
KINDS = {"gmm": "GMM", "softmax": "softmax", "shared": "shared covariance", "full": "full"}
PROTOCOL_LABELS = {
    "same": "same speaker",
    "other": "features from other speakers",
    "unseen": "unseen speaker",
    "paper": "as in the paper",
}
# What is compared besides MFCC: the second against the first of each pair.
COMPARED = (
    ("pca", "cca"),
    ("kpca", "fkcca"),
    ("cca", "fkcca"),
    ("fkcca", "nkcca"),
    ("nkcca", "knoi"),
    ("fkcca", "knoi"),
    ("knoi", "knoi-metric"),
    ("knoi", "deep"),
)
# Total correlation on tuning data in the paper, of 70.
PAPER_CORRELATION = {"knoi": "46.7", "deep": "about 25"}
MEANINGFUL = 2.0  # standard errors

Row = tuple[str, int | None]  # a method and its rank


@dataclass(frozen=True)
class Measured:
    """Cells of one corpus, protocol and variant."""

    cells: list[Cell]

    def rows(self) -> list[Row]:
        """Methods that were measured, in the order of the table."""
        order = list(METHODS)
        found = {(cell["method"], cell["rank"]) for cell in self.cells}
        return sorted(found, key=lambda row: (order.index(row[0]), row[1] or 0))

    def row(self, method: str) -> Row | None:
        """The row of a method at its own rank, or at the largest that was measured."""
        own = [row for row in self.rows() if row[0] == method]
        return max(own, key=lambda row: (row[1] == METHODS[method].rank, row[1] or 0), default=None)

    def of(self, row: Row) -> list[Cell]:
        """The cells of a row."""
        return [cell for cell in self.cells if (cell["method"], cell["rank"]) == row]

    def kinds(self) -> list[str]:
        """Acoustic models."""
        return list(dict.fromkeys(kind for cell in self.cells for kind in cell["rates"]))

    def errors(self, row: Row, kind: str) -> dict[str, Errors]:
        """By fold, with the number of features chosen on its tuning sentences."""
        return {
            cell["fold"]: Errors.of(chosen(cell["rates"][kind])[1]["errors"], cell["phones"])
            for cell in self.of(row)
            if kind in cell["rates"]
        }

    def difference(
        self, row: Row | None, base: Row | None, kind: str
    ) -> tuple[float, float] | None:
        """Of the error rates, in points, and its standard error; over folds that have both."""
        if row is None or base is None:
            return None
        one, other = self.errors(row, kind), self.errors(base, kind)
        folds = [fold for fold in one if fold in other]
        if not folds:
            return None
        joined, against = (Errors.joined([some[fold] for fold in folds]) for some in (one, other))
        error = joined.standard_error_of_difference(against)
        return 100 * (joined.rate - against.rate), 100 * error


def measured(
    results: Path, corpus: str = "mocha", protocol: str = "same", variant: str = "plain"
) -> Measured:
    """Stored cells of methods."""
    wanted = (corpus, protocol, variant)
    return Measured(
        [
            cell
            for cell in Cells(results / speech.NAME).all()
            if "rates" in cell and (cell["corpus"], cell["protocol"], cell["variant"]) == wanted
        ]
    )


def signed(difference: tuple[float, float] | None) -> str:
    """`-1.3 ± 0.2`; in bold if it is at least two standard errors."""
    if difference is None:
        return NO_VALUE
    value, error = difference
    text = f"{value:+.1f} ± {error:.1f}".replace("-", "−")
    return f"**{text}**" if abs(value) >= MEANINGFUL * error > 0 else text


def label_of(row: Row) -> str:
    method, rank = row
    return METHODS[method].label + ("" if rank is None else f" (M = {rank:,})")


def table2(results: Path) -> str:
    """Error rates on MOCHA beside those of the paper."""
    found = measured(results)
    base = found.row("mfcc")
    if base is None:
        return NOT_MEASURED
    kinds = [kind for kind in KINDS if kind in found.kinds()]
    rows = []
    for row in found.rows():
        columns = [label_of(row), str(len(found.of(row)))]
        for kind in kinds:
            errors = Errors.joined(list(found.errors(row, kind).values()))
            columns += [f"{100 * errors.rate:.1f}"]
            columns += [NO_VALUE if row == base else signed(found.difference(row, base, kind))]
        per = METHODS[row[0]].per
        columns += [NO_VALUE if per is None else f"{per}"]
        rows.append(columns)
    headings = [text for kind in kinds for text in (KINDS[kind], "against MFCC")]
    return table(("features", "folds", *headings, "paper, XRMB"), rows) + _closing(found.cells)


def differences(results: Path) -> str:
    """Pairs of methods on MOCHA: what the kernel, the second view or the solver adds."""
    found = measured(results)
    kinds = [kind for kind in KINDS if kind in found.kinds()]
    rows = []
    for base, other in COMPARED:
        pairs = [found.difference(found.row(other), found.row(base), kind) for kind in kinds]
        if any(pair is not None for pair in pairs):
            names = (METHODS[one].label.removeprefix("+ ") for one in (other, base))
            rows.append([" against ".join(names), *map(signed, pairs)])
    if not rows:
        return NOT_MEASURED
    return table(("features", *(KINDS[kind] for kind in kinds)), rows)


def protocols(results: Path) -> str:
    """Differences against MFCC in the other protocols."""
    return _comparison(
        (PROTOCOL_LABELS[name], measured(results, protocol=name)) for name in ("other", "unseen")
    )


def variants(results: Path) -> str:
    """Differences against MFCC in the search for conditions where features help more."""
    return _comparison(
        (variant.label, measured(results, variant=name)) for name, variant in VARIANTS.items()
    )


def _comparison(sets: Iterable[tuple[str, Measured]]) -> str:
    shown: Sequence[str] = [name for name in METHODS if name != "mfcc"]
    lines, used = [], []
    for label, found in sets:
        base = found.row("mfcc")
        if base is None:
            continue
        used += found.cells
        for kind in found.kinds():
            rate = Errors.joined(list(found.errors(base, kind).values())).rate
            pairs = [found.difference(found.row(name), base, kind) for name in shown]
            lines.append((label, KINDS[kind], f"{100 * rate:.1f}", pairs))
    if not lines:
        return NOT_MEASURED
    kept = [k for k in range(len(shown)) if any(pairs[k] is not None for *_, pairs in lines)]
    rows = [
        [label, kind, rate, *(signed(pairs[k]) for k in kept)] for label, kind, rate, pairs in lines
    ]
    headings = [METHODS[shown[k]].label for k in kept]
    return table(("", "acoustic model", "MFCC", *headings), rows) + _closing(used)


def correlations(results: Path) -> str:
    """Total correlation of 70 components on tuning and test sentences, by both measures."""
    found = measured(results)
    rows = []
    for row in found.rows():
        cells = [cell for cell in found.of(row) if cell["correlation"]]
        if cells:
            parts = [
                f"{mean(cell['correlation'][part]['fitted'] for cell in cells):.1f} / "
                f"{mean(cell['correlation'][part]['refit'] for cell in cells):.1f}"
                for part in ("tune", "test")
            ]
            minutes = mean(cell["fit_seconds"] for cell in cells) / 60
            paper = PAPER_CORRELATION.get(row[0], NO_VALUE)
            rows.append([label_of(row).removeprefix("+ "), *parts, f"{minutes:.1f}", paper])
    if not rows:
        return NOT_MEASURED
    columns = ("features", f"tuning, of {MOST}", "test", "minutes to fit", "paper, XRMB, tuning")
    return table(columns, rows)


def xrmb(results: Path) -> str:
    """Table 2 on the paper's own corpus, if anybody has run it."""
    found = measured(results, "xrmb", "paper")
    if not found.cells:
        return "Not measured: the corpus was not available.\n"
    rows = []
    for row in found.rows():
        errors = [Errors.joined(list(found.errors(row, kind).values())) for kind in found.kinds()]
        per = METHODS[row[0]].per
        rates = [f"{100 * one.rate:.1f}" for one in errors]
        rows.append([label_of(row), *rates, NO_VALUE if per is None else f"{per}"])
    headings = (KINDS[kind] for kind in found.kinds())
    return table(("features", *headings, "paper"), rows) + _closing(found.cells)


def lopez_paz(results: Path) -> str:
    """Fitted total correlation of 112 components on XRMB, beside published numbers."""
    if not (results / "lopez_paz_xrmb.json").exists():
        return "Not measured: the corpus was not available.\n"
    cells = cells_of(results, "lopez_paz_xrmb")
    rows = [
        [
            f"{key.partition(' ')[0].capitalize()}CCA",
            NO_VALUE if settings(key)["rank"] == "0" else settings(key)["rank"],
            settings(key)["width"].replace("sqrt", "√"),
            f"{cell['fitted']:.2f}",
            NO_VALUE if cell["published"] is None else f"{cell['published']}",
        ]
        for key, cell in sorted(cells.items(), key=lambda item: by_numbers(item[0]))
    ]
    columns = ("method", "rank", "width", "fitted", "published")
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.lopez_paz --xrmb FOLDER")


def sphinx(results: Path) -> str:
    """Our recogniser beside CMU Sphinx."""
    if not (results / "speech_sphinx.json").exists():
        return NOT_MEASURED
    cells = cells_of(results, "speech_sphinx")
    rows = [
        [
            key.replace(" fold=", ", fold "),
            f"{cell['phones']:,}",
            f"{100 * cell['ours']:.1f}",
            f"{100 * cell['sphinx']:.1f}",
            signed(
                (
                    100 * (cell["sphinx"] - cell["ours"]),
                    100 * cell["standard_error_of_difference"],
                )
            ),
        ]
        for key, cell in cells.items()
    ]
    columns = ("test sentences, models of Sphinx", "phones", "ours", "Sphinx", "difference")
    return table(columns, rows) + closing_line(cells, "benchmarks.speech.sphinx")


def _closing(cells: list[Cell]) -> str:
    return closing_line({str(place): cell for place, cell in enumerate(cells)}, COMMAND)


TABLES = {
    "speech_table2": table2,
    "speech_differences": differences,
    "speech_protocols": protocols,
    "speech_variants": variants,
    "speech_correlations": correlations,
    "speech_xrmb": xrmb,
    "speech_lopez_paz": lopez_paz,
    "speech_sphinx": sphinx,
}
