"""The report of a fitted model: everything it shows, gathered for the template `model.html`."""

import math
import os
import platform
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from knoi import __version__
from knoi.arrays.backend import peak_memory
from knoi.arrays.random import View, seed_from
from knoi.data.pairs import PairSource
from knoi.estimators.base import BaseCCA
from knoi.estimators.plotting import describe_model
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
)
from knoi.report.page import Page, pack_table, require_report_extra

Fact = tuple[str, str]

# Directions of a learned metric that are shown.
METRIC_DIRECTIONS = 10
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
        The training rows. At most 10,000, drawn at random, are evaluated.
    test : (X_test, Y_test), optional
        Held-out rows, anything `fit` accepts. Without them the page can only show in-sample
        results, which are optimistic, and says so.
    labels : array of shape (n,), optional
        One label per row of `test`, or of `X` if there is no `test`. Labels colour the points.
    images : ((height, width), (height, width)), optional
        Image shapes of the rows of X and of Y; None for a view whose rows are not images.
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
    content = _gather(model, X, Y, test, labels, images, seed_from(random_state))
    points, retrieval = content["points"].leading(), content["retrieval"]
    values = {
        "title": title or f"{content['method']} on {content['training'].n_available:,} paired rows",
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
        labels = None if labels is None else np.asarray(labels)
        if labels is not None and labels.shape != (shown.n_rows,):
            which = "training" if test is None else "test"
            raise InputError(
                f"labels has shape {labels.shape}, but there are {shown.n_rows} {which} rows. Pass "
                f"one label per {which} row, shape ({shown.n_rows},)."
            )
        training = project_rows(model, train, seed)
        held_out = None if test is None else project_rows(model, shown, seed)
        points = choose_points(training if held_out is None else held_out, seed)
        sprites = [
            shape and make_sprite(read_rows(shown, points.rows, view), shape, len(points))
            for view, shape in zip(View, shapes, strict=True)
        ]
        warning = in_sample_warning(model.projection_, train, model._reg_used())
        names = [view.column_names for view in train.views()]
    names[0] = getattr(model, "feature_names_in_", names[0])
    n_components = training.Zx.shape[1]
    return {
        "method": type(model).__name__,
        "n_components": n_components,
        "n_shown": min(n_components, MAX_COMPONENTS),
        "training": training,
        "held_out": held_out,
        "points": points,
        "labels": None if labels is None else label_data(labels[points.rows]),
        "sprites": sprites,
        "correlations": measure_correlations(training, held_out, seed),
        "retrieval": retrieval_data(points),
        "curve": learning_curve_data(model),
        "loadings": [_loadings(model, view, shapes[view], names[view]) for view in View],
        "metric": _metric(model, shapes, names),
        "in_sample_warning": warning,
    }


def _loadings(
    model: BaseCCA, view: View, shape: Shape | None, names: Sequence[str] | None
) -> dict[str, Any]:
    try:
        loadings = model.x_loadings_ if view == View.X else model.y_loadings_
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
    training, held_out = content["training"], content["held_out"]
    summary = (type(model).__doc__ or "").strip().split("\n")[0]
    facts = [("method", f"{content['method']}. {summary}")]
    facts.append(("training rows", f"{training.n_available:,}"))
    if held_out is not None:
        facts.append(("held-out rows", f"{held_out.n_available:,}"))
    shown = {f"{what} {view}" for what in ("view", "kernel", "metric", "reg") for view in "XY"}
    shown.add("training")
    facts += [(name, round_numbers(text)) for name, text in describe_model(model) if name in shown]
    defaults = dict(_parameters(type(model)()))
    changed = [f"{k}={v}" for k, v in _parameters(model) if v != defaults[k]]
    facts.append(("parameters", ", ".join(changed) or "defaults"))
    text = f"training {training.total_correlation():.4f}"
    if held_out is not None:
        text += f", held out {held_out.total_correlation():.4f}"
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


def round_numbers(text: str) -> str:
    """Shorten the numbers in a text to four digits."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", text)
