"""The report of a fitted model: everything it shows, gathered for the template `model.html`."""

import math
import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from knoi import __version__
from knoi.arrays.backend import peak_memory
from knoi.arrays.random import View, seed_from
from knoi.data.pairs import PairSource
from knoi.estimators.base import COLUMNS, BaseCCA
from knoi.estimators.plotting import describe_model, round_numbers
from knoi.estimators.structure import in_sample_warning
from knoi.exceptions import InputError, InputTypeError, NotKeptError
from knoi.report.images import Shape, check_image_shapes, make_sprite
from knoi.report.measure import (
    LEVEL,
    MAX_COMPONENTS,
    choose_points,
    correlation_chart,
    label_data,
    learning_curve_data,
    loadings_data,
    measure_correlations,
    project_rows,
    read_rows,
    retrieval_data,
    shorten,
)
from knoi.report.page import Page, pack_table, require_report_extra

Fact = tuple[str, str]

# What is shown of each view.
SHOWN = ("view", "kernel", "scale", "metric", "reg")
# Directions of a learned metric that are shown.
METRIC_DIRECTIONS = 10
# Letters of the text of a row.
MAX_TEXT = 200
# In the order they run: each uses only what the earlier ones define.
_SCRIPTS = ("rows.js", "retrieval.js", "scatter.js", "loadings.js")


def model_report(
    model: BaseCCA,
    X: Any,
    Y: Any,
    *,
    test: tuple[Any, Any] | None = None,
    labels: Any = None,
    images: Any = None,
    texts: Any = None,
    names: Any = None,
    command: str | None = None,
    facts: Iterable[Fact] | None = None,
    title: str | None = None,
    random_state: Any = 0,
) -> Page:
    """Build a page that shows what a fitted model found.

    It shows correlations compared with chance, the learning curve, canonical variates, cross-view
    retrieval and loadings.

    Parameters
    ----------
    model : a fitted estimator of knoi
    X, Y : anything `fit` accepts
        The training rows. Without `test` at most 10,000 of them, drawn at random, are shown.
    test : (X_test, Y_test), optional
        Held-out rows, anything `fit` accepts. Without them the page can only show in-sample
        results, which are optimistic, and says so.
    labels : array of shape (n,), optional
        One label per row of `test`, or of `X` if there is no `test`. Labels colour the points.
    images : ((height, width), (height, width)), optional
        Image shapes of the rows of X and of Y; None for a view whose rows are not images.
    texts : (texts of X, texts of Y), optional
        A text for each row of `test`, or of `X` and `Y` if there is no `test`, such as a title;
        None for a view without. At most 200 letters are shown.
    names : (names of the columns of X, names of the columns of Y), optional
        For loadings; None for those of data frames and files.
    command : str, optional
        The command line that repeats the run. The default is Python code that fits such a model.
    facts : iterable of (name, text), optional
        More about the run, such as times.
    title : str, optional
    random_state : int, RandomState, Generator or None
        Fixes which rows are drawn and permuted.

    Returns
    -------
    Page
        `page.write(path)` writes it, 5 to 8 MB. It loads nothing from the network.

    Raises
    ------
    MissingExtraError
        plotly or Jinja2 is not installed.
    """
    require_report_extra()  # before anything that takes time
    if not isinstance(model, BaseCCA):
        raise InputTypeError(
            f"model is a {type(model).__qualname__}. Pass a fitted estimator of knoi, or what "
            "knoi.load returns."
        )
    check_is_fitted(model)
    if test is not None and not (isinstance(test, list | tuple) and len(test) == 2):
        raise InputTypeError(
            f"test is a {type(test).__qualname__}: wanted a pair, (X_test, Y_test). Pass both "
            "views of the held-out rows."
        )
    content = _gather(model, X, Y, test, labels, images, texts, names, seed_from(random_state))
    points, retrieval = content["points"].leading(), content["retrieval"]
    values = {
        "title": title or f"{content['method']} on {content['n_training']:,} paired rows",
        "subtitle": f"Canonical correlation analysis of two views. Report by knoi {__version__}.",
        "content": content,
        "level": LEVEL,
        "model_facts": _describe_model(model, content),
        "parameters": _parameters(model),
        "code": _python_code(model) if command is None else command,
        "run_facts": _run_facts(model, facts or ()),
    }
    data = {
        "rows": points.rows.tolist(),
        "labels": content["labels"],
        "texts": content["texts"],
        "variates": [pack_table(points.Zx), pack_table(points.Zy)],
        # The images themselves are in the style of the page.
        "images": [sprite and {**sprite, "uri": None} for sprite in content["sprites"]],
        "correlations": correlation_chart(content["correlations"]),
        "curve": content["curve"],
        "recall": retrieval["recall"],
        "retrieval": retrieval,
        "loadings": content["loadings"],
        "metric": content["metric"],
    }
    return Page("model.html", values, data, _SCRIPTS)


def _gather(
    model: BaseCCA,
    X: Any,
    Y: Any,
    test: tuple[Any, Any] | None,
    labels: Any,
    images: Any,
    texts: Any,
    names: Any,
    seed: int,
) -> dict[str, Any]:
    """Evaluate the model on its training rows, and on `test` if given; `content` of the template.

    "points" are the rows to look at one by one, held out if possible.
    """
    with ExitStack() as opened:
        train = shown = opened.enter_context(PairSource.open(X, Y))
        shapes = check_image_shapes(images, train.n_cols)
        if test is not None:
            shown = opened.enter_context(PairSource.open(*test))
            if shown.n_rows < 2:
                raise InputError("test has 1 row: a correlation needs at least 2. Pass more rows.")
        which = "training row" if test is None else "test row"
        labels = _per_row("labels", labels, shown.n_rows, which)
        texts = _per_view("texts", texts, (shown.n_rows,) * 2, which)
        names = _per_view("names", names, train.n_cols, "column")
        evaluated = project_rows(model, shown, seed)
        points = choose_points(evaluated, seed)
        sprites = [
            shape and make_sprite(read_rows(shown, points.rows, view), shape, len(points))
            for view, shape in zip(View, shapes, strict=True)
        ]
        warning = in_sample_warning(model.projection_, train, model._reg_used())
        known = [
            getattr(model, name, view.column_names)
            for (_, name), view in zip(COLUMNS, train.views(), strict=True)
        ]
    names = [own if given is None else given for given, own in zip(names, known, strict=True)]
    n_components = len(model.correlations_)
    return {
        "method": type(model).__name__,
        "n_components": n_components,
        "n_shown": min(n_components, MAX_COMPONENTS),
        "n_training": train.n_rows,
        "evaluated": evaluated,
        "is_held_out": test is not None,
        "points": points,
        "labels": None if labels is None else label_data(labels[points.rows]),
        "texts": [
            None if own is None else [shorten(str(text), MAX_TEXT) for text in own[points.rows]]
            for own in texts
        ],
        "sprites": sprites,
        "correlations": measure_correlations(model, evaluated, test is not None, seed),
        "retrieval": retrieval_data(points),
        "curve": learning_curve_data(model),
        "loadings": [_loadings(model, view, shapes[view], names[view]) for view in View],
        "metric": _metric(model, shapes, names),
        "in_sample_warning": warning,
    }


def _per_row(name: str, values: Any, n: int, each: str) -> NDArray[Any] | None:
    """Check one value for each row or column."""
    if values is None:
        return None
    checked = np.asarray(values)
    if checked.shape != (n,):
        raise InputError(
            f"{name} has shape {checked.shape}, but there are {n} {each}s. Pass one per {each}, "
            f"shape ({n},)."
        )
    return checked


def _per_view(
    name: str, values: Any, sizes: tuple[int, int], each: str
) -> list[NDArray[Any] | None]:
    """Check such values for each view."""
    given = (None, None) if values is None else values
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise InputTypeError(
            f"{name} is a {type(values).__qualname__}: wanted a pair, ({name} of X, {name} of Y), "
            "with None for a view without."
        )
    return [
        _per_row(f"{name} of {view}", own, n, each)
        for view, own, n in zip("XY", given, sizes, strict=True)
    ]


def _loadings(
    model: BaseCCA, view: View, shape: Shape | None, names: Sequence[str] | None
) -> dict[str, Any]:
    try:
        loadings = model._structure(view).loadings(view, view)
    except NotKeptError as error:
        reason = f"{view.name} is not shown. {error}"
        return {"view": view.name, "kind": "missing", "reason": reason}
    return {"view": view.name, **loadings_data(loadings, shape, names)}


def _metric(
    model: BaseCCA, shapes: Sequence[Shape | None], names: Sequence[Sequence[str] | None]
) -> list[dict[str, Any]]:
    """Importance of columns, then leading directions, of the views with a learned metric."""
    try:
        importance = model.column_importance()
    except NotKeptError:
        return []
    found = []
    for view, own, metric in zip(View, importance, (model.x_metric_, model.y_metric_), strict=True):
        if own is None or metric is None:
            continue
        shown = own[:, None]
        if metric.ndim == 2:
            _, vectors = np.linalg.eigh(metric)
            shown = np.hstack([shown, vectors[:, : -1 - METRIC_DIRECTIONS : -1]])
        data = loadings_data(shown, shapes[view], names[view])
        found.append({"view": view.name, "n_shown": shown.shape[1], **data})
    return found


def _describe_model(model: BaseCCA, content: dict[str, Any]) -> list[Fact]:
    """What was fitted to what, and how well."""
    correlations = content["correlations"]
    summary = (type(model).__doc__ or "").strip().split("\n")[0]
    facts = [("method", f"{content['method']}. {summary}")]
    facts.append(("training rows", f"{content['n_training']:,}"))
    if content["is_held_out"]:
        facts.append(("held-out rows", f"{content['evaluated'].n_available:,}"))
    shown = {f"{what} {view}" for what in SHOWN for view in "XY"}
    shown.add("training")
    facts += [(name, round_numbers(text)) for name, text in describe_model(model) if name in shown]
    defaults = dict(_parameters(type(model)()))
    changed = [f"{k}={v}" for k, v in _parameters(model) if v != defaults[k]]
    facts.append(("parameters", ", ".join(changed) or "defaults"))
    text = f"in-sample {correlations['total_in_sample']:.4f}"
    if content["is_held_out"]:
        text += f", held out {correlations['total']:.4f}"
    return [*facts, ("total correlation", f"{text} (maximum {content['n_components']})")]


def _parameters(model: BaseCCA) -> list[Fact]:
    params: dict[str, Any] = model.get_params(deep=False)
    return [(name, round_numbers(repr(value))) for name, value in params.items()]


def _run_facts(model: BaseCCA, given: Iterable[Fact]) -> list[Fact]:
    """What is needed to assess and repeat the run. Given facts come first and take precedence."""
    facts = {}
    params = model.get_params(deep=False)
    if "random_state" in params:
        seed = params["random_state"]
        facts["seed"] = "not fixed: fits differ slightly" if seed is None else str(seed)
    memory = peak_memory()
    if memory is not None:
        facts["peak memory"] = f"{memory / 2**20:,.0f} MiB, of the reporting process"
    first = {str(name): str(text) for name, text in given}
    return list({**first, **facts, **dict(environment_facts()), **first}.items())


def environment_facts() -> list[Fact]:
    """Versions, machine and date."""
    libraries = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "plotly")
    )
    return [
        ("versions", f"knoi {__version__}, Python {platform.python_version()}, {libraries}"),
        ("machine", f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"),
        ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def _python_code(model: Any) -> str:
    name = type(model).__name__
    # scikit-learn shortens long representations by default.
    return f"from knoi import {name}\nmodel = {model.__repr__(N_CHAR_MAX=math.inf)}.fit(X, Y)"
