"""The report of a fitted model: one HTML page to look at, from disk, without a network."""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from sklearn.utils.validation import check_is_fitted

from knoi import __version__
from knoi.arrays.random import seed_from
from knoi.estimators.base import BaseCCA
from knoi.exceptions import InputTypeError, require
from knoi.report.content import Content, gather
from knoi.report.facts import code_to_repeat, run_facts
from knoi.report.page import Code, Facts, Report, Section
from knoi.report.sections import (
    correlation_section,
    curve_section,
    importance_section,
    retrieval_section,
    summary,
    variate_section,
)

# In the order they are run: each uses only what stands before it.
_SCRIPTS = ("page.js", "charts.js", "retrieval.js", "scatter.js", "importance.js")


def model_report(
    model: BaseCCA,
    X: Any,
    Y: Any,
    *,
    test: tuple[Any, Any] | None = None,
    labels: Any = None,
    images: Any = None,
    command: str | None = None,
    facts: Iterable[tuple[str, str]] | None = None,
    title: str | None = None,
    random_state: Any = 0,
) -> Report:
    """Make a page that shows what a fitted model found: correlations, variates, retrieval, inputs.

    Parameters
    ----------
    model : a fitted estimator of knoi
    X, Y : anything `fit` accepts
        The rows the model was fitted to. At most 10,000 are measured on, drawn at random.
    test : (X_test, Y_test), optional
        Rows it was not fitted to, anything `fit` accepts. Without them the page can only flatter,
        and says so.
    labels : array of shape (n,), optional
        One label for each row of `test`, or of `X` if there is no `test`; to colour and compare by.
    images : ((height, width), (height, width)), optional
        Shapes of the pictures that rows of X and of Y are; None for a view whose rows are none.
    command : str, optional
        The command line that repeats the run; by default the Python that does.
    facts : iterable of (name, text), optional
        More to say of the run: seconds, memory.
    title : str, optional
    random_state : int, RandomState, Generator or None
        Fixes which rows are drawn and shuffled.

    Returns
    -------
    Report
        `report.write(path)` writes the page, 5 to 8 MB: it holds all it needs.

    Raises
    ------
    MissingExtraError
        plotly is not installed.
    """
    plotly = require("plotly.offline", "report", "A report")  # before anything that takes time
    if not isinstance(model, BaseCCA):
        raise InputTypeError(
            f"model is a {type(model).__qualname__}: wanted a fitted estimator of knoi, or what "
            "knoi.load returns."
        )
    check_is_fitted(model)
    if test is not None and not (isinstance(test, list | tuple) and len(test) == 2):
        raise InputTypeError(
            f"test is a {type(test).__qualname__}: wanted a pair, (X_test, Y_test). "
            "Pass both views of the rows held out."
        )
    content = gather(model, X, Y, test, labels, images, seed_from(random_state))
    method = type(model).__name__
    return Report(
        title=title or f"{method} of {content.training.n_available:,} paired rows",
        subtitle=f"A report by knoi {__version__}: what two views of the same things share.",
        sections=(*_sections(content), _run(content, command, facts or ())),
        style=_style(content),
        scripts=(plotly.get_plotlyjs(), _script()),
        data=content.data(),
    )


def _sections(content: Content) -> tuple[Section, ...]:
    return (
        summary(content),
        correlation_section(content),
        *(() if content.curve is None else (curve_section(content),)),
        variate_section(content),
        retrieval_section(content),
        importance_section(content),
    )


def _run(content: Content, command: str | None, facts: Iterable[tuple[str, str]]) -> Section:
    repeat = Code(code_to_repeat(content) if command is None else command)
    lead = "What is needed to judge it, and to do it again."
    return Section("This run", lead, (repeat, Facts(run_facts(content, facts))))


def _style(content: Content) -> str:
    """The look of what only this page has, and the pictures of the rows."""
    pictures = (
        f".picture-{view} {{ background-image: url({sprite.uri}); }}\n"
        for view, sprite in enumerate(content.sprites)
        if sprite is not None
    )
    return _file("page.css") + "".join(pictures)


def _script() -> str:
    parts = "\n".join(_file(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();'


def _file(name: str) -> str:
    return files("knoi.report").joinpath("static", name).read_text(encoding="utf-8")
